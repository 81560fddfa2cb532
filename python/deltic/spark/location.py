"""The table of a call, in a form that every process of a Spark job can open."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from deltic.errors import InvalidInputError, TableNotFoundError
from deltic.reading.snapshot import Snapshot
from deltic.table.table import Table, as_table

__all__ = ["checked_session", "opened", "shared"]

_TIME_TRAVEL = re.compile(r"(.+)@(?:v(\d+)|\d{17})")
"""A path with a version or a time, as in delta-spark."""


def shared(uri: str | os.PathLike[str] | Table, storage_options: Mapping[str, str] | None) -> Table:
    """The table at a location, or the given table, with other settings if any are given.

    Raises `InvalidInputError` for `memory://`: executors are other processes, each with an empty store of that name.
    """
    table = as_table(uri, storage_options)
    if table.uri.partition(":")[0].lower() == "memory":
        raise InvalidInputError(
            f"{table.uri} is in the memory of one process, and Spark reads and writes in others: use a path or a URL "
            "that the driver and every executor can open"
        )
    return table


def opened(table: Table, open: Callable[[Table], Snapshot] = Table.snapshot) -> Snapshot:
    """A snapshot of the table, with advice if there is none and the path is written as one with a version or a time."""
    try:
        return open(table)
    except TableNotFoundError as error:
        found = _TIME_TRAVEL.fullmatch(table.uri)
        if found is None:
            raise
        path, version = found.group(1), found.group(2)
        option = "versionAsOf" if version else "timestampAsOf"
        value = f" = {version}" if version else ""
        message = f"a path does not choose a version: read {path!r} with the option {option!r}{value}"
        raise TableNotFoundError(f"{error}; {message}", table=error.table) from None


def checked_session(spark: Any) -> None:
    """Raise `InvalidInputError` for anything but a SparkSession."""
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(f"spark must be a SparkSession, not {type(spark).__name__}")
