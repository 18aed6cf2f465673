"""The store of the ranks, in the process of one of them."""

from collections.abc import Callable
from typing import Any

from dpkit.runs.forked.requests import Requests
from dpkit.runs.ranks.store import KeyStore, RankStore

#: What PyTorch asks of a store, by the names of its methods.
STORE_METHODS: dict[str, Callable[..., Any]] = {
    "set": RankStore.set,
    "append": RankStore.append,
    "multi_set": RankStore.multi_set,
    "deleteKey": RankStore.deleteKey,
    "add": RankStore.add,
    "compare_set": RankStore.compare_set,
    "get": RankStore.get,
    "multi_get": RankStore.multi_get,
    "wait": RankStore.wait,
    "check": RankStore.check,
    "getNumKeys": RankStore.getNumKeys,
}


#: Those that wait. Their last argument is the time limit of this rank.
_WAITING = ("get", "multi_get", "wait")


class RemoteStore(KeyStore):
    """The store that the parent has: every call is a question to it."""

    def __init__(self, requests: Requests) -> None:
        super().__init__()
        self._requests = requests


def _asking(name: str) -> Callable[..., Any]:
    def ask(self: RemoteStore, *args: Any) -> Any:
        if name in _WAITING and len(args) == 1:
            args = *args, self.timeout
        return self._requests.ask("store", name, args)

    ask.__name__ = name
    ask.__doc__ = STORE_METHODS[name].__doc__
    return ask


for _name in STORE_METHODS:
    setattr(RemoteStore, _name, _asking(_name))
