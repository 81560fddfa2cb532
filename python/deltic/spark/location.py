"""The table that a call names, as every process of a Spark job can open it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from deltic.errors import InvalidInputError
from deltic.table import Table, opened

__all__ = ["checked_session", "shared"]


def shared(uri: str | os.PathLike[str] | Table, storage_options: Mapping[str, str] | None) -> Table:
    """The table at a location, or the one given, with other settings if there are some.

    `InvalidInputError` for `memory://`: executors are processes of their own, each with an empty store of that name.
    """
    table = opened(uri, storage_options)
    if table.uri.partition(":")[0].lower() == "memory":
        raise InvalidInputError(
            f"{table.uri} is in the memory of one process, and Spark reads and writes in others: use a path or a URL "
            "that the driver and every executor can open"
        )
    return table


def checked_session(spark: Any) -> None:
    """`InvalidInputError` for what is no SparkSession."""
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(f"spark must be a SparkSession, not {type(spark).__name__}")
