"""Inherited methods under the name of the class that has them (`with_own_methods`).

Python's messages for wrong arguments name a method's first class: `MaintenanceMethods.optimize()` for a `Table`.
"""

from __future__ import annotations

from functools import update_wrapper
from types import CellType, FunctionType
from typing import TypeVar

__all__ = ["with_own_methods"]

T = TypeVar("T")


def with_own_methods(cls: type[T]) -> type[T]:
    """Decorate a class so that its inherited public methods are its own, with its name in messages and in `help`.

    They are copies, since several classes may inherit a method.
    """
    inherited = {name: method for base in reversed(cls.__mro__[1:]) for name, method in vars(base).items()}
    for name, method in inherited.items():
        if isinstance(method, FunctionType) and not name.startswith("_") and name not in vars(cls):
            setattr(cls, name, _copy(method, f"{cls.__qualname__}.{name}"))
    return cls


def _copy(method: FunctionType, qualname: str) -> FunctionType:
    """The same function under another name, and so the function that a decorator has wrapped."""
    wrapped: FunctionType | None = getattr(method, "__wrapped__", None)
    inner = None if wrapped is None else _copy(wrapped, qualname)
    closure = method.__closure__
    if closure is not None and inner is not None:
        closure = tuple(CellType(inner) if cell.cell_contents is wrapped else cell for cell in closure)
    own = FunctionType(method.__code__, method.__globals__, method.__name__, method.__defaults__, closure)
    own.__kwdefaults__ = method.__kwdefaults__
    update_wrapper(own, method)
    own.__qualname__ = qualname
    if inner is None:
        del own.__wrapped__  # type: ignore[attr-defined]
    else:
        own.__wrapped__ = inner  # type: ignore[attr-defined]
    return own
