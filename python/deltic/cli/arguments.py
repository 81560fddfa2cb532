"""Arguments of the command line: the conversions of their strings, and the tables that they name."""

from __future__ import annotations

import argparse

from deltic.reading.snapshot import Snapshot
from deltic.table.table import Table

__all__ = ["column_type", "names", "open_snapshot", "open_table", "setting", "version_or_time"]


def open_table(arguments: argparse.Namespace) -> Table:
    """The table of a command."""
    return Table(arguments.uri, dict(arguments.storage))


def open_snapshot(arguments: argparse.Namespace) -> Snapshot:
    """The version of the table that a command reads."""
    return open_table(arguments).snapshot(arguments.version, arguments.timestamp)


def names(text: str) -> list[str]:
    """The names in `A,B`."""
    return [name.strip() for name in text.split(",") if name.strip()]


def version_or_time(text: str) -> tuple[int | None, str | None]:
    """A version, or a time."""
    return (int(text), None) if text.isdecimal() else (None, text)


def setting(text: str) -> tuple[str, str]:
    """The key and the value of `KEY=VALUE`."""
    key, separator, value = text.partition("=")
    if not separator:
        # The whole string may be a secret.
        raise argparse.ArgumentTypeError("a setting is written KEY=VALUE")
    return key, value


def column_type(text: str) -> tuple[str, str]:
    """The column and the type of `COLUMN=TYPE`."""
    name, separator, type = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"write {text}=TYPE, such as {text}=string or {text}=date")
    return name, type
