"""Commands that read a table. Each prints what it found, and returns the exit code."""

from __future__ import annotations

import argparse
import sys

import pyarrow as pa

from deltic.arguments import check_int
from deltic.cli.arguments import open_snapshot, open_table
from deltic.cli.output import json_rows, print_json, print_line, print_note, print_result
from deltic.display.instant import shown_instant
from deltic.display.strings import counted, size
from deltic.errors import InvalidInputError
from deltic.results.history import metrics_of, parameters_of
from deltic.types.names import type_name

__all__ = ["check", "detail", "diff", "files", "history", "layout", "plan", "report", "show"]


def show(arguments: argparse.Namespace) -> int:
    """Print the version, protocol, properties and schema."""
    snapshot = open_snapshot(arguments)
    protocol, metadata = snapshot.protocol, snapshot.metadata
    features = sorted({*protocol.get("readerFeatures", []), *protocol.get("writerFeatures", [])})
    if arguments.json:
        print_json(
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
            print_line(f"{key:<15} {value}")
    print()
    for field in snapshot.schema:
        print_line(f"  {field.name:<24} {type_name(field)}{'' if field.nullable else ' not null'}")
    return 0


def detail(arguments: argparse.Namespace) -> int:
    """Print the facts of `DESCRIBE DETAIL`."""
    print_result(open_snapshot(arguments).detail(), arguments.json)
    return 0


def files(arguments: argparse.Namespace) -> int:
    """Print sizes and paths of the data files."""
    for batch in open_snapshot(arguments).files(arguments.filter):
        if arguments.json:
            for row in json_rows(batch.select([name for name in _FILE_COLUMNS if name in batch.schema.names])):
                print_json(row)
            continue
        for path, bytes_ in zip(batch.column("path"), batch.column("size"), strict=True):
            print_line(f"{bytes_.as_py():>14,}  {path.as_py()}")
    return 0


_FILE_COLUMNS = ("path", "size", "modification_time", "partition", "num_records")


def history(arguments: argparse.Namespace) -> int:
    """Print the commits, newest first."""
    limit = None if arguments.all else check_int(arguments.limit, "limit")
    entries = open_table(arguments).history(limit if limit is None else limit + 1)
    more = limit is not None and len(entries) > limit
    for entry in entries[:limit]:
        if arguments.json:
            print_json(entry)
            continue
        operation, metrics = entry.get("operation") or "?", metrics_of(entry)
        counts = f"  ({metrics})" if metrics else ""
        when = shown_instant(entry["timestamp"])
        print_line(f"{entry['version']:>8}  {when}  {operation!s:<16} {parameters_of(entry)}{counts}")
    if more:
        sys.stdout.flush()
        print_note(f"deltic: the newest {limit}; there are more: --limit N or --all")
    return 0


def plan(arguments: argparse.Namespace) -> int:
    """Print what a query would read, and what it skips."""
    plan = open_snapshot(arguments).plan(filter=arguments.filter)
    if arguments.json:
        print_json(plan.to_dict())
    else:
        print(f"reads    {plan.files_kept:,} of {counted(plan.files_total, 'file')}")
        print(f"         {size(plan.bytes_kept)} of {size(plan.bytes_total)}")
        for reason, files in plan.skipped.items():
            print(f"skipped  {counted(files, 'file')} by {reason}")
    explained = plan.explain(files=True).files if arguments.files else None
    for batch in () if explained is None else explained.to_batches(1000):
        for row in json_rows(batch):
            if arguments.json:
                print_json(row)
            else:
                print_line(f"{'reads' if row['kept'] else 'skips':<7}{row['size']:>14,}  {row['path']}")
    return 0


def layout(arguments: argparse.Namespace) -> int:
    """Print the layout of the files."""
    layout = open_table(arguments).layout(arguments.columns, small_file_size=arguments.small_file_size)
    if arguments.json:
        try:
            print_json(layout.to_dict())
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise InvalidInputError(f"a partition value has no JSON form: {error}") from error
        return 0
    for name, value in layout.lines():
        print_line(f"{name:<24} {value}")
    print()
    for label, _, shown in layout.sizes():
        print_line(f"  {label:<22} {shown}")
    return 0


def diff(arguments: argparse.Namespace) -> int:
    """Print the differences of two versions."""
    (first, since), (last, until) = arguments.of, arguments.to
    limit = check_int(arguments.limit, "limit")
    diff = open_table(arguments).diff(first, last, arguments.rows, from_timestamp=since, to_timestamp=until)
    if arguments.json:
        print_json(diff.to_dict())
    else:
        for name, value in diff.lines():
            print_line(f"{name:<24} {value}" if name else value)
    rows = None if diff.rows is None else diff.rows.slice(0, limit)
    for batch in () if rows is None else rows.to_batches(1000):
        for row in json_rows(batch):
            if arguments.json:
                print_json(row)
            else:
                sign = _DIFF_SIGNS[row.pop("_change_type")]
                print_line(f"{sign} " + ", ".join(f"{name}={value}" for name, value in row.items()))
    if diff.rows is not None and rows is not None and rows.num_rows < diff.rows.num_rows:
        sys.stdout.flush()
        print_note(f"deltic: {rows.num_rows:,} of {counted(diff.rows.num_rows, 'row')}: --limit")
    return 0


_DIFF_SIGNS = {"insert": "+", "delete": "-", "update_preimage": "<", "update_postimage": ">"}


def report(arguments: argparse.Namespace) -> int:
    """Write an HTML page about the table."""
    mode = None if arguments.vacuum == "none" else arguments.vacuum
    path = open_table(arguments).report(arguments.output, vacuum=mode)
    if arguments.json:
        print_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        print_line(str(path))
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Print the facts that differ; exit code 1 if there are any."""
    found = open_table(arguments).check(arguments.version, files=arguments.files)
    if arguments.json:
        print_json(found.to_dict())
    else:
        for finding in found.findings:
            print_line(str(finding))
        if found.ok:
            print(f"version {found.version}: nothing differs")
    return 0 if found.ok else 1
