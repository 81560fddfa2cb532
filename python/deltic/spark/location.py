"""The table of a call, in a form that every process of a Spark job can open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from deltic.errors import InvalidInputError
from deltic.table import Table, as_table

__all__ = ["checked_session", "shared"]


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


def checked_session(spark: Any) -> None:
    """Raise `InvalidInputError` for anything but a SparkSession."""
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(f"spark must be a SparkSession, not {type(spark).__name__}")
