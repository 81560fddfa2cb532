"""The command line: `deltic show`, `files`, `history`, `plan`, `layout`, `diff`, `report` and `check` read a table;
`optimize`, `purge`, `repair`, `vacuum` and `restore` change it; `manifests` writes lists of its files, `clone` makes
another table of it, and `convert` makes a table of Parquet files or of an Iceberg table.

Errors go to stderr, with exit code 1. This is also the exit code of a `check` with findings, of a `repair` that leaves
a fault, and of a `restore --dry-run` whose restore would be refused. Wrong arguments have exit code 2, as usual for
argparse; Ctrl-C has 130. Names and other strings of a table are printed without control characters. On a terminal long
operations show their progress on stderr, unless `--json` is given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import Any, Protocol

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import whole
from deltic.commit_history import metrics_of, parameters_of
from deltic.conversion import convert
from deltic.display import counted, printable, size
from deltic.errors import CorruptTableError, DelticError, InvalidInputError
from deltic.file_layout import SMALL_FILE
from deltic.instant import shown_instant
from deltic.progress_bars import is_terminal, progress
from deltic.snapshot import Snapshot
from deltic.table import Table
from deltic.type_name import type_name

__all__ = ["main"]

_HISTORY = 20


def _line(text: str) -> None:
    print(printable(text))


def _note(text: str) -> None:
    """A line on stderr; `print` would use stdout if there is no stderr."""
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def _json(value: object) -> None:
    # DEL is the only control character that JSON leaves as it is.
    print(json.dumps(value, default=_for_json).replace("\x7f", "\\u007f"))


def _for_json(value: Any) -> Any:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def _result(arguments: argparse.Namespace, result: _Result) -> None:
    if arguments.json:
        _json(result.to_dict())
        return
    for name, value in result.lines():
        _line(f"{name:<15} {value}")


class _Result(Protocol):
    def to_dict(self) -> dict[str, Any]: ...
    def lines(self) -> list[tuple[str, str]]: ...


def _table(arguments: argparse.Namespace) -> Table:
    return Table(arguments.uri, dict(arguments.storage))


def _snapshot(arguments: argparse.Namespace) -> Snapshot:
    return _table(arguments).snapshot(arguments.version, arguments.timestamp)


def _show(arguments: argparse.Namespace) -> int:
    snapshot = _snapshot(arguments)
    protocol, metadata = snapshot.protocol, snapshot.metadata
    features = sorted({*protocol.get("readerFeatures", []), *protocol.get("writerFeatures", [])})
    if arguments.json:
        _json(
            {
                "table": snapshot.uri,
                "id": metadata.get("id"),
                "name": metadata.get("name"),
                "description": metadata.get("description"),
                "version": snapshot.version,
                "protocol": protocol,
                "files": snapshot.num_files,
                "partition_columns": snapshot.partition_columns,
                "properties": snapshot.properties,
                "schema": [
                    {"name": field.name, "type": type_name(field), "nullable": field.nullable}
                    for field in snapshot.schema
                ],
            }
        )
        return 0
    lines = {
        "table": snapshot.uri,
        "name": metadata.get("name"),
        "version": snapshot.version,
        "protocol": f"reader {protocol['minReaderVersion']}, writer {protocol['minWriterVersion']}",
        "features": ", ".join(features),
        "files": snapshot.num_files,
        "partitioned by": ", ".join(snapshot.partition_columns),
        "properties": ", ".join(f"{key}={value}" for key, value in sorted(snapshot.properties.items())),
    }
    for key, value in lines.items():
        if value not in (None, ""):
            _line(f"{key:<15} {value}")
    print()
    for field in snapshot.schema:
        _line(f"  {field.name:<24} {type_name(field)}{'' if field.nullable else ' not null'}")
    return 0


def _files(arguments: argparse.Namespace) -> int:
    for batch in _snapshot(arguments).files(arguments.filter):
        if arguments.json:
            for row in _plain(batch.select([name for name in _OF_A_FILE if name in batch.schema.names])):
                _json(row)
            continue
        for path, bytes_ in zip(batch.column("path"), batch.column("size"), strict=True):
            _line(f"{bytes_.as_py():>14,}  {path.as_py()}")
    return 0


_OF_A_FILE = ("path", "size", "modification_time", "partition", "num_records")


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(f"a value has no JSON form: {error}") from error


def _history(arguments: argparse.Namespace) -> int:
    limit = None if arguments.all else whole(arguments.limit, "limit")
    entries = _table(arguments).history(limit if limit is None else limit + 1)
    more = limit is not None and len(entries) > limit
    for entry in entries[:limit]:
        if arguments.json:
            _json(entry)
            continue
        operation, metrics = entry.get("operation") or "?", metrics_of(entry)
        counts = f"  ({metrics})" if metrics else ""
        when = shown_instant(entry["timestamp"])
        _line(f"{entry['version']:>8}  {when}  {operation!s:<16} {parameters_of(entry)}{counts}")
    if more:
        sys.stdout.flush()
        _note(f"deltic: the newest {limit}; there are more: --limit N or --all")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    plan = _snapshot(arguments).plan(filter=arguments.filter)
    if arguments.json:
        _json(plan.to_dict())
    else:
        print(f"reads    {plan.files_kept:,} of {counted(plan.files_total, 'file')}")
        print(f"         {size(plan.bytes_kept)} of {size(plan.bytes_total)}")
        for reason, files in plan.skipped.items():
            print(f"skipped  {counted(files, 'file')} by {reason}")
    explained = plan.explain(files=True).files if arguments.files else None
    for batch in () if explained is None else explained.to_batches(1000):
        for row in _plain(batch):
            if arguments.json:
                _json(row)
            else:
                _line(f"{'reads' if row['kept'] else 'skips':<7}{row['size']:>14,}  {row['path']}")
    return 0


def _layout(arguments: argparse.Namespace) -> int:
    layout = _table(arguments).layout(arguments.columns, small_file_size=arguments.small_file_size)
    if arguments.json:
        try:
            _json(layout.to_dict())
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise InvalidInputError(f"a partition value has no JSON form: {error}") from error
        return 0
    for name, value in layout.lines():
        _line(f"{name:<24} {value}")
    print()
    for label, _, shown in layout.sizes():
        _line(f"  {label:<22} {shown}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    (first, since), (last, until) = arguments.of, arguments.to
    limit = whole(arguments.limit, "limit")
    diff = _table(arguments).diff(first, last, arguments.rows, from_timestamp=since, to_timestamp=until)
    if arguments.json:
        _json(diff.to_dict())
    else:
        for name, value in diff.lines():
            _line(f"{name:<24} {value}" if name else value)
    rows = None if diff.rows is None else diff.rows.slice(0, limit)
    for batch in () if rows is None else rows.to_batches(1000):
        for row in _plain(batch):
            if arguments.json:
                _json(row)
            else:
                sign = _SIGNS[row.pop("_change_type")]
                _line(f"{sign} " + ", ".join(f"{name}={value}" for name, value in row.items()))
    if diff.rows is not None and rows is not None and rows.num_rows < diff.rows.num_rows:
        sys.stdout.flush()
        _note(f"deltic: {rows.num_rows:,} of {counted(diff.rows.num_rows, 'row')}: --limit")
    return 0


_SIGNS = {"insert": "+", "delete": "-", "update_preimage": "<", "update_postimage": ">"}


def _report(arguments: argparse.Namespace) -> int:
    mode = None if arguments.vacuum == "none" else arguments.vacuum
    path = _table(arguments).report(arguments.output, vacuum=mode)
    if arguments.json:
        _json({"path": str(path), "bytes": path.stat().st_size})
    else:
        _line(str(path))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    found = _table(arguments).check(arguments.version, files=arguments.files)
    if arguments.json:
        _json(found.to_dict())
    else:
        for finding in found.findings:
            _line(str(finding))
        if found.ok:
            print(f"version {found.version}: nothing differs")
    return 0 if found.ok else 1


def _optimize(arguments: argparse.Namespace) -> int:
    result = _table(arguments).optimize(
        arguments.where,
        zorder_by=arguments.zorder_by,
        target_file_size=arguments.target_file_size,
        full=arguments.full,
        max_tasks=arguments.max_tasks,
        dry_run=arguments.dry_run,
    )
    _result(arguments, result)
    return 0


def _purge(arguments: argparse.Namespace) -> int:
    result = _table(arguments).purge(arguments.where, max_tasks=arguments.max_tasks, dry_run=arguments.dry_run)
    _result(arguments, result)
    return 0


def _repair(arguments: argparse.Namespace) -> int:
    result = _table(arguments).repair(dry_run=arguments.dry_run)
    _result(arguments, result)
    return 0 if result.ok else 1


def _manifests(arguments: argparse.Namespace) -> int:
    result = _table(arguments).write_manifests(dry_run=arguments.dry_run)
    if arguments.json:
        _json(result.to_dict())
        return 0
    for verb, paths in (("write", result.written), ("delete", result.deleted)):
        for path in paths if result.dry_run else ():
            _line(f"{verb:<7} {path}")
    _line(str(result))
    return 0


def _vacuum(arguments: argparse.Namespace) -> int:
    result = _table(arguments).vacuum(
        arguments.retention,
        mode="lite" if arguments.lite else "full",
        dry_run=arguments.dry_run,
        force=arguments.force,
    )
    if arguments.json:
        _json(result.to_dict())
        return 0
    for path in [] if result.files is None else result.files["path"].to_pylist():
        _line(path)
    _line(str(result))
    for path in result.nested_tables:
        _note(printable(f"{path} is a Delta table of its own: its files stay"))
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    result = convert(
        _table(arguments),
        partition_schema=dict(arguments.partition) or None,
        collect_statistics=not arguments.no_statistics,
        properties=dict(arguments.property) or None,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        counts = {"files": result.num_files, "rows": result.num_rows, "bytes": result.num_bytes}
        _json({"version": result.version, **counts, "columns": {c.name: type_name(c) for c in result.schema}})
        return 0
    if arguments.dry_run:
        for column in result.schema:
            _line(f"{column.name}  {type_name(column)}")
    _line(str(result))
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    result = _table(arguments).restore(
        arguments.version,
        arguments.timestamp,
        ignore_missing_files=arguments.ignore_missing_files,
        protocol_downgrade_allowed=arguments.protocol_downgrade_allowed,
        dry_run=arguments.dry_run,
    )
    _result(arguments, result)
    return int(result.refused)


def _clone(arguments: argparse.Namespace) -> int:
    commit = _table(arguments).clone(
        arguments.target,
        shallow=not arguments.deep,
        version=arguments.version,
        timestamp=arguments.timestamp,
        mode=arguments.mode,
        properties=dict(arguments.property),
        storage_options=dict(arguments.target_storage) or None,
    )
    if arguments.json:
        _json({"version": commit.version, "attempts": commit.attempts, "metrics": dict(commit.metrics)})
        return 0
    _line(f"version {commit.version} of {arguments.target}" if commit.attempts else "nothing differs")
    for name, value in commit.metrics.items():
        _line(f"  {name:<18} {value:,}")
    return 0


def _columns(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _version_or_time(text: str) -> tuple[int | None, str | None]:
    return (int(text), None) if text.isdecimal() else (None, text)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        # The whole string may be a secret.
        raise argparse.ArgumentTypeError("a setting is written KEY=VALUE")
    return key, value


def _column_type(text: str) -> tuple[str, str]:
    name, separator, type = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"write {text}=TYPE, such as {text}=string or {text}=date")
    return name, type


_FILTER = "SQL such as \"month = 7 AND carrier IN ('UA', 'AA')\""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deltic",
        description="Read, maintain and copy a Delta table, or make one of Parquet files or of an Iceberg table.",
        epilog="deltic COMMAND --help lists the options of a command.",
    )
    parser.add_argument("--version", action="store_true", help="print the version of deltic and exit")
    commands = parser.add_subparsers(metavar="command")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], summary: str, of_version: bool = True
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
        added.set_defaults(run=run, command=name)
        added.add_argument("uri", help="path or URL of the table, such as s3://bucket/table")
        added.add_argument(
            "--storage",
            metavar="KEY=VALUE",
            type=_setting,
            action="append",
            default=[],
            help="a setting of the store, such as aws_region=eu-west-1; may be given several times",
        )
        if of_version:
            added.add_argument("--version", type=int, metavar="N", help="a version, by default the latest")
        added.add_argument("--json", action="store_true", help="print JSON, one object a line")
        return added

    def timed(added: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added.add_argument("--timestamp", help="the version at this time (ISO 8601, UTC by default)")
        return added

    timed(command("show", _show, "version, protocol, properties and schema"))
    files = timed(command("files", _files, "sizes and paths of the data files"))
    files.add_argument("--filter", help=f"only files that may have matching rows: {_FILTER}")
    history = command("history", _history, "the commits, newest first", of_version=False)
    history.add_argument(
        "--limit", type=int, default=_HISTORY, metavar="N", help=f"the most commits to list, by default {_HISTORY}"
    )
    history.add_argument("--all", action="store_true", help="all commits that the log still has")
    plan = timed(command("plan", _plan, "what a query would read, and what it skips"))
    plan.add_argument("filter", nargs="?", help=_FILTER)
    plan.add_argument("--files", action="store_true", help="list each file, and whether it is read")
    layout = command("layout", _layout, "layout of the files: sizes, what queries skip, partitions", of_version=False)
    layout.add_argument("--columns", type=_columns, metavar="A,B", help="only the skipping by these columns")
    layout.add_argument(
        "--small-file-size", default=SMALL_FILE, metavar="SIZE", help='a smaller file is small, such as "16 MB"'
    )
    diff = command("diff", _diff, "the differences of two versions", of_version=False)
    of_time = "a version, or a time (ISO 8601) for the last version at that time"
    diff.add_argument("of", type=_version_or_time, metavar="FROM", help=f"the version before: {of_time}")
    diff.add_argument(
        "to", type=_version_or_time, metavar="TO", nargs="?", default=(None, None), help="by default the latest"
    )
    diff.add_argument("--rows", action="store_true", help="also the rows that differ, one a line")
    diff.add_argument("--limit", type=int, metavar="N", help="with --rows: the most rows to print")
    report = command("report", _report, "write an HTML page about the table", of_version=False)
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="by default report.html")
    report.add_argument(
        "--vacuum",
        choices=["full", "lite", "none"],
        default="full",
        help="find the files that VACUUM would delete by a listing (full), by the log (lite), or not at all",
    )
    check = command("check", _check, "compare facts that the table has twice; exit code 1 if they differ")
    check.add_argument("--files", action="store_true", help="also look for every data file: one request a file")
    manifests = command(
        "manifests", _manifests, "write symlink manifests, for engines that cannot read Delta", of_version=False
    )
    manifests.add_argument("--dry-run", action="store_true", help="list the manifests, and write nothing")
    optimize = command(
        "optimize", _optimize, "rewrite files: fewer, or in an order by which queries skip more", of_version=False
    )
    optimize.add_argument("--where", metavar="SQL", help="a condition on partition columns")
    optimize.add_argument(
        "--zorder-by", type=_columns, metavar="A,B", help="order the rows of each partition by columns"
    )
    optimize.add_argument("--target-file-size", metavar="SIZE", help='the size of new files, such as "128 MB"')
    optimize.add_argument("--full", action="store_true", help="in a clustered table, also clustered files")
    optimize.add_argument("--max-tasks", type=int, metavar="N", help="how many groups of files are written at a time")
    optimize.add_argument("--dry-run", action="store_true", help="print what would be done, and write nothing")
    purge = command("purge", _purge, "rewrite files without deleted rows and dropped columns", of_version=False)
    purge.add_argument("--where", metavar="SQL", help='rows to delete and to purge: "customer = 17"')
    purge.add_argument("--max-tasks", type=int, metavar="N", help="how many groups of files are written at a time")
    purge.add_argument("--dry-run", action="store_true", help="print what would be done, and write nothing")
    repair = command(
        "repair",
        _repair,
        "repair the log, and remove missing files from the table; exit code 1 if a fault is left",
        of_version=False,
    )
    repair.add_argument("--dry-run", action="store_true", help="print what would be done, and write nothing")
    vacuum = command("vacuum", _vacuum, "delete files that no version within the retention needs", of_version=False)
    vacuum.add_argument(
        "--retention", metavar="TIME", help='a number of hours, or "7 days"; by default the table\'s, or a week'
    )
    vacuum.add_argument("--lite", action="store_true", help="take removed files from the log, without a listing")
    vacuum.add_argument("--force", action="store_true", help="allow a retention shorter than the table's")
    vacuum.add_argument("--dry-run", action="store_true", help="list the files, and delete none")
    converting = command(
        "convert", _convert, "make a table of a folder of Parquet files, or of an Iceberg table", of_version=False
    )
    converting.add_argument(
        "--partition",
        metavar="COLUMN=TYPE",
        type=_column_type,
        action="append",
        default=[],
        help="a column of folders such as day=2013-01-01, and its type, such as day=date; once for each, in order",
    )
    converting.add_argument(
        "--property", metavar="KEY=VALUE", type=_setting, action="append", default=[], help="a property of the table"
    )
    converting.add_argument(
        "--no-statistics", action="store_true", help="take only the number of rows from the footers"
    )
    converting.add_argument("--dry-run", action="store_true", help="print what would be converted, and write nothing")
    restore = command("restore", _restore, "restore the table to an older version", of_version=False)
    restore.add_argument("--version", type=int, metavar="N", help="the older version")
    restore.add_argument("--timestamp", help="the version at this time (ISO 8601, UTC by default)")
    restore.add_argument("--ignore-missing-files", action="store_true", help="leave out missing files")
    restore.add_argument("--protocol-downgrade-allowed", action="store_true", help="remove newer features")
    restore.add_argument("--dry-run", action="store_true", help="print what would be done, and write nothing")
    clone = timed(command("clone", _clone, "make another table a copy of this one"))
    clone.add_argument("target", help="path or URL of the clone")
    clone.add_argument("--deep", action="store_true", help="copy the files instead of sharing them")
    clone.add_argument(
        "--mode", choices=("error", "replace", "update"), default="error", help="what to do if there is a table already"
    )
    clone.add_argument(
        "--property", metavar="KEY=VALUE", type=_setting, action="append", default=[], help="a property of the clone"
    )
    clone.add_argument(
        "--target-storage",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="a setting of the target's store; by default it has those of this table",
    )
    return parser


_OPTIONS = {
    "force=True": "--force",
    "from_timestamp": "FROM",
    "from_version": "FROM",
    "full=True": "--full",
    "ignore_missing_files=True": "--ignore-missing-files",
    "max_tasks": "--max-tasks",
    "partition_schema": "--partition",
    "protocol_downgrade_allowed": "--protocol-downgrade-allowed",
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


def _error(error: DelticError, command: str) -> None:
    """The message; if it has several lines, as those about filters, the lines after the first are indented."""
    first, *others = _ARGUMENT.sub(lambda found: _OPTIONS[found[1]], str(error)).split("\n")
    if isinstance(error, CorruptTableError) and error.table is not None and command != "repair":
        how = f"deltic repair --dry-run {shlex.quote(error.table)}"
        others.append(f"`{how}` says what of the newest version is damaged and what can be mended")
    _note(printable(f"deltic: {first}"))
    for line in others:
        _note(printable(f"  {line.removeprefix('  ')}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its escape, not an error.
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        if not arguments.version:
            parser.error("a command is needed; `deltic --help` lists them")
        print(f"deltic {_deltic.__version__}")
        return 0
    try:
        with progress(is_terminal() and not arguments.json):
            code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except DelticError as error:
        _error(error, arguments.command)
        return 1
    except BrokenPipeError:
        # The reader of a pipe has ended. Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
