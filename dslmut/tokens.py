"""The token: what ``mut(x)`` is at run time, on its way from a call into a parameter."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

__all__ = ["Token"]


class Token:
    """What ``mut(x)`` makes: a marked argument, on its way from a call into its parameter.

    A function with a ``Mut`` parameter takes the object out before anything else runs. Whatever
    else touches a token is code that no marker was meant for, so that every use is E1101.
    """

    __slots__ = ("_o",)

    def __init__(self, o: object, /) -> None:
        object.__setattr__(self, "_o", o)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_o":  # a protocol that somebody asks for
            raise AttributeError(name)
        return _bound_method(self._o, name) or _misuse(self, f"its `.{name}` is read")

    def __setattr__(self, name: str, value: object) -> None:
        _misuse(self, f"its `.{name}` is set")

    def __delattr__(self, name: str) -> None:
        _misuse(self, f"its `.{name}` is deleted")

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        token = next((a for a in given if type(a) is Token), cls(None))
        _misuse(token, f"`torch.{getattr(function, '__name__', '')}` gets it")

    def __repr__(self) -> str:
        return f"mut({type(self._o).__name__})"


def _bound_method(o: object, name: str) -> Any:
    """Bind the method *name* of *o* to a token, if its ``self`` is ``Mut``; else None."""
    method: Any = getattr(o, name, None)
    spec = getattr(getattr(method, "__func__", None), "__dslmut__", None)
    if spec is None or not spec.marks_receiver:
        return None
    return functools.partial(method.__func__, Token(method.__self__))


def _misuse(token: Token, how: str) -> NoReturn:
    from dslmut.diagnostics.marking import spurious_token

    raise spurious_token(type(token._o).__name__, how)


def _refusing(how: str) -> Any:
    def refuse(self: Token, *_: object, **__: object) -> NoReturn:
        _misuse(self, how)

    return refuse


_COMPUTING = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift"
_MISUSES = {
    "it is called": "__call__",
    "an item of it is read": "__getitem__ __contains__",
    "an item of it is set": "__setitem__ __delitem__",
    "it is iterated over": "__iter__ __next__ __reversed__ __len__",
    "its truth is asked": "__bool__",
    "it is entered by `with`": "__enter__ __exit__",
    "it is awaited": "__await__",
    "a number is made of it": "__float__ __int__ __index__ __complex__ __round__",
    "it is copied or pickled": "__copy__ __deepcopy__ __reduce_ex__",
    "it is given to NumPy": "__array__",
    "it is compared": "__eq__ __ne__ __lt__ __le__ __gt__ __ge__",
    "it is hashed": "__hash__",
    "it is computed with": " ".join(
        ["__neg__ __pos__ __abs__ __invert__"]
        + [f"__{side}{name}__" for name in _COMPUTING.split() for side in ("", "r", "i")]
    ),
}


def _refuse_all(misuses: dict[str, str]) -> None:
    """Define the special methods, which Python looks up on the type, past ``__getattr__``."""
    for how, names in misuses.items():
        for name in names.split():
            setattr(Token, name, _refusing(how))


_refuse_all(_MISUSES)
