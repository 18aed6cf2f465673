"""A local rank that a script takes from its command line, where it is not.

``torch.distributed.launch`` gave each process ``--local_rank``; ``torchrun``
sets LOCAL_RANK in the environment. Many scripts keep the option for the old
launcher, and never read it: that is right. So the report names it where it is
read, unless the script then sets it::

    args = parser.parse_args()                       -1 on each rank
    torch.cuda.set_device(args.local_rank)           named, with this line
    args.local_rank = int(os.environ["LOCAL_RANK"])  right, from here on
"""

from argparse import Namespace
from collections.abc import Callable
from typing import Any


def watched_options(
    read: Callable[[object], None], changed: Callable[[object], None]
) -> type[Namespace]:
    """Return a class of options that reports the use of their local rank.

    Args:
        read: Is called with the value that is read.
        changed: Is called with the old value where another is set.
    """

    class Options(Namespace):
        @property
        def local_rank(self) -> object:
            value: object = vars(self)["local_rank"]
            read(value)
            return value

        @local_rank.setter
        def local_rank(self, value: object) -> None:
            changed(vars(self)["local_rank"])
            vars(self)["local_rank"] = value
            self.__class__ = Namespace  # type: ignore[assignment]

        def __reduce__(self) -> Any:
            return Namespace, (), vars(self)  # a copy, or saved

    Options.__name__ = "Namespace"  # as it is printed
    return Options
