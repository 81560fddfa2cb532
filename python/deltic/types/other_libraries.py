"""Values of libraries that need not be installed: numpy, pandas, polars and others."""

from __future__ import annotations

from typing import Any

__all__ = ["as_python", "is_boolean", "is_instance", "package_of"]


def package_of(cls: type) -> str:
    """The package of a class, also if its compiled part is in another package."""
    return cls.__module__.partition(".")[0].lstrip("_")


def is_instance(value: object, package: str, *classes: str) -> bool:
    """Whether a value's class, or a base of it, has one of these names in a package, which need not be installed."""
    return any(c.__name__ in classes and package_of(c) == package for c in type(value).__mro__)


def is_boolean(value: object) -> bool:
    """Whether it is True or False, of Python or numpy."""
    return isinstance(value, bool) or is_instance(value, "numpy", "bool", "bool_")


def as_python(value: Any) -> Any:
    """A scalar of numpy as one of Python."""
    return value.item() if is_instance(value, "numpy", "generic") else value
