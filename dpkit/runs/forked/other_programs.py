"""A rank stays the program that it is: ``os.execv`` in its process is refused.

The other program would have no simulated device, and the launch would hear
nothing of it. A child of a rank may become any program.
"""

import os
from typing import Any

from dpkit.sim.changes import replaced


def refuse_other_programs() -> None:
    """Refuse, in this process alone, what would make it another program."""
    own = os.getpid()
    for name in ("execv", "execve"):  # all others call one of these
        replaced(os, name, _refusing(name, own)).apply()


def _refusing(name: str, own: int) -> Any:
    become: Any = getattr(os, name)

    def call(path: Any, *others: Any, **named: Any) -> Any:
        """Stand in for a function that makes this process another program."""
        if os.getpid() == own:
            program = os.fsdecode(path) if isinstance(path, bytes) else path
            raise NotImplementedError(
                "a rank of a simulated machine cannot become another program, "
                f"which would have no simulated GPU (os.{name}: {program}); "
                "start it with subprocess.run, or, if the script restarts "
                "itself to change environment variables, set these before the "
                "launch"
            )
        return become(path, *others, **named)

    return call
