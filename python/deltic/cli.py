"""A look at a table from the shell: `deltic show`, `files`, `history` and `plan`. Reads only.

Errors are one line on stderr and exit code 1; wrong arguments are exit code 2, as argparse has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from deltic.errors import DelticError
from deltic.scan import Plan
from deltic.snapshot import Snapshot
from deltic.table import Table

__all__ = ["main"]


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _when(timestamp: int) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"{timestamp} ms"


def _snapshot(arguments: argparse.Namespace) -> Snapshot:
    return Table(arguments.uri, dict(arguments.storage)).snapshot(arguments.version, arguments.timestamp)


def _show(arguments: argparse.Namespace) -> None:
    snapshot = _snapshot(arguments)
    protocol = snapshot.protocol
    features = sorted({*protocol.get("readerFeatures", []), *protocol.get("writerFeatures", [])})
    lines = {
        "table": snapshot.uri,
        "name": snapshot.metadata.get("name"),
        "version": snapshot.version,
        "protocol": f"reader {protocol['minReaderVersion']}, writer {protocol['minWriterVersion']}",
        "features": ", ".join(features),
        "files": snapshot.num_files,
        "partitioned by": ", ".join(snapshot.partition_columns),
        "properties": ", ".join(f"{key}={value}" for key, value in sorted(snapshot.properties.items())),
    }
    for key, value in lines.items():
        if value not in (None, ""):
            print(f"{key:<15} {value}")
    print()
    for field in snapshot.schema:
        print(f"  {field.name:<24} {field.type}{'' if field.nullable else ' not null'}")


def _files(arguments: argparse.Namespace) -> None:
    for batch in _snapshot(arguments).files(arguments.filter):
        paths, sizes = batch.column("path"), batch.column("size")
        for path, size in zip(paths, sizes, strict=True):
            print(f"{size.as_py():>14,}  {path.as_py()}")


def _history(arguments: argparse.Namespace) -> None:
    for entry in Table(arguments.uri, dict(arguments.storage)).history(arguments.limit):
        if arguments.json:
            print(json.dumps(entry))
            continue
        # What writers put into a commit info is up to them.
        operation, parameters = entry.get("operation") or "?", entry.get("operationParameters") or {}
        if isinstance(parameters, dict):
            parameters = " ".join(f"{key}={value}" for key, value in parameters.items())
        print(f"{entry['version']:>8}  {_when(entry['timestamp'])}  {operation!s:<16} {parameters}")


def _plan(arguments: argparse.Namespace) -> None:
    plan: Plan = _snapshot(arguments).plan(filter=arguments.filter)
    print(f"reads    {plan.files_kept:,} of {plan.files_total:,} files")
    print(f"         {_size(plan.bytes_kept)} of {_size(plan.bytes_total)}")
    for reason, files in plan.skipped.items():
        print(f"skipped  {files:,} files by {reason}")


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deltic", description="Look at a Delta table.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Any, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(run=run)
        added.add_argument("uri", help="path or URL of the table")
        added.add_argument(
            "--storage", metavar="KEY=VALUE", type=_setting, action="append", default=[], help="a setting of the store"
        )
        return added

    def versioned(added: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added.add_argument("--version", type=int, help="a version instead of the latest")
        added.add_argument("--timestamp", help="the version at this time (ISO 8601, UTC unless it says otherwise)")
        return added

    versioned(command("show", _show, "version, protocol, properties and schema"))
    versioned(command("files", _files, "sizes and paths of the data files")).add_argument("--filter", help="SQL text")
    history = command("history", _history, "the commits, newest first")
    history.add_argument("--limit", type=int, help="at most so many")
    history.add_argument("--json", action="store_true", help="one JSON object a line")
    versioned(command("plan", _plan, "what a query would read")).add_argument("filter", nargs="?", help="SQL text")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except DelticError as error:
        print(f"deltic: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has gone; nothing is left to say
    return 0
