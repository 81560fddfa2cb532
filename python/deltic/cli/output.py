"""What the command line prints: lines and JSON on stdout, notes and errors on stderr."""

from __future__ import annotations

import json
import re
import shlex
import sys
from datetime import date, datetime, time
from typing import Any, Protocol

import pyarrow as pa

from deltic.display.strings import printable
from deltic.errors import CorruptTableError, DelticError, InvalidInputError

__all__ = ["json_rows", "print_error", "print_json", "print_line", "print_note", "print_result"]


def print_line(text: str) -> None:
    """A line on stdout, without control characters."""
    print(printable(text))


def print_note(text: str) -> None:
    """A line on stderr; `print` would use stdout if there is no stderr."""
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def print_json(value: object) -> None:
    """A value as one line of JSON on stdout."""
    # DEL is the only control character that JSON leaves as it is.
    print(json.dumps(value, default=_for_json).replace("\x7f", "\\u007f"))


def _for_json(value: Any) -> Any:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


class _Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...
    def lines(self) -> list[tuple[str, str]]: ...


def print_result(result: _Result, as_json: bool) -> None:
    """The result of an operation."""
    if as_json:
        print_json(result.to_dict())
        return
    for name, value in result.lines():
        print_line(f"{name:<15} {value}")


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as Python values that have a JSON form."""
    try:
        return list(batch.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(f"a value has no JSON form: {error}") from error


_OPTIONS = {
    "force=True": "--force",
    "from_timestamp": "FROM",
    "from_version": "FROM",
    "full=True": "--full",
    "ignore_missing_files=True": "--ignore-missing-files",
    "max_tasks": "--max-tasks",
    "partition_schema": "--partition",
    "protocol_downgrade_allowed": "--protocol-downgrade-allowed",
    "recover_to": "--recover-to",
    "small_file_size": "--small-file-size",
    "Table.purge": "deltic purge",
    "Table.write_manifests()": "deltic manifests",
    "target_file_size": "--target-file-size",
    "to_timestamp": "TO",
    "to_version": "TO",
    "zorder_by": "--zorder-by",
}
"""The options of the command line for arguments that messages name."""
_ARGUMENT = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, _OPTIONS))})(?!\w)")


def print_error(error: DelticError, command: str) -> None:
    """The message; if it has several lines, as those about filters, the lines after the first are indented."""
    first, *others = _ARGUMENT.sub(lambda found: _OPTIONS[found[1]], str(error)).split("\n")
    if isinstance(error, CorruptTableError) and error.table is not None and command != "repair":
        how = f"deltic repair --dry-run {shlex.quote(error.table)}"
        others.append(f"`{how}` reports what is damaged and what can be repaired")
    print_note(printable(f"deltic: {first}"))
    for line in others:
        print_note(printable(f"  {line.removeprefix('  ')}"))
