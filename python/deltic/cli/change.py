"""Commands that change a table or make one. Each prints what it did, and returns the exit code."""

from __future__ import annotations

import argparse

from deltic.cli.arguments import open_table
from deltic.cli.output import print_json, print_line, print_note, print_result
from deltic.conversion import convert as conversion
from deltic.display.strings import printable
from deltic.types.names import type_name

__all__ = ["clone", "convert", "manifests", "optimize", "purge", "repair", "restore", "vacuum"]


def optimize(arguments: argparse.Namespace) -> int:
    """Rewrite files in a better layout."""
    result = open_table(arguments).optimize(
        arguments.where,
        zorder_by=arguments.zorder_by,
        target_file_size=arguments.target_file_size,
        full=arguments.full,
        max_tasks=arguments.max_tasks,
        dry_run=arguments.dry_run,
    )
    print_result(result, arguments.json)
    return 0


def purge(arguments: argparse.Namespace) -> int:
    """Rewrite files without deleted rows and dropped columns."""
    result = open_table(arguments).purge(arguments.where, max_tasks=arguments.max_tasks, dry_run=arguments.dry_run)
    print_result(result, arguments.json)
    return 0


def repair(arguments: argparse.Namespace) -> int:
    """Repair the table; exit code 1 if a fault is left."""
    result = open_table(arguments).repair(dry_run=arguments.dry_run, recover_to=arguments.recover_to)
    print_result(result, arguments.json)
    return 0 if result.ok else 1


def manifests(arguments: argparse.Namespace) -> int:
    """Write symlink manifests."""
    result = open_table(arguments).write_manifests(dry_run=arguments.dry_run)
    if arguments.json:
        print_json(result.to_dict())
        return 0
    for verb, paths in (("write", result.written), ("delete", result.deleted)):
        for path in paths if result.dry_run else ():
            print_line(f"{verb:<7} {path}")
    print_line(str(result))
    return 0


def vacuum(arguments: argparse.Namespace) -> int:
    """Delete files that no version within the retention needs."""
    result = open_table(arguments).vacuum(
        arguments.retention,
        mode="lite" if arguments.lite else "full",
        dry_run=arguments.dry_run,
        force=arguments.force,
        log=not arguments.no_log,
    )
    if arguments.json:
        print_json(result.to_dict())
        return 0
    for path in [] if result.files is None else result.files["path"].to_pylist():
        print_line(path)
    print_line(str(result))
    for path in result.nested_tables:
        print_note(printable(f"{path} is a Delta table of its own: its files stay"))
    return 0


def convert(arguments: argparse.Namespace) -> int:
    """Make a table of Parquet files or of an Iceberg table."""
    result = conversion.convert(
        open_table(arguments),
        partition_schema=dict(arguments.partition) or None,
        collect_statistics=not arguments.no_statistics,
        properties=dict(arguments.property) or None,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        counts = {"files": result.num_files, "rows": result.num_rows, "bytes": result.num_bytes}
        print_json({"version": result.version, **counts, "columns": {c.name: type_name(c) for c in result.schema}})
        return 0
    if arguments.dry_run:
        for column in result.schema:
            print_line(f"{column.name}  {type_name(column)}")
    print_line(str(result))
    return 0


def restore(arguments: argparse.Namespace) -> int:
    """Restore the table to an older version; exit code 1 if a dry run finds that it would be refused."""
    result = open_table(arguments).restore(
        arguments.version,
        arguments.timestamp,
        ignore_missing_files=arguments.ignore_missing_files,
        protocol_downgrade_allowed=arguments.protocol_downgrade_allowed,
        dry_run=arguments.dry_run,
    )
    print_result(result, arguments.json)
    return int(result.refused)


def clone(arguments: argparse.Namespace) -> int:
    """Make another table a copy of this one."""
    commit = open_table(arguments).clone(
        arguments.target,
        shallow=not arguments.deep,
        version=arguments.version,
        timestamp=arguments.timestamp,
        mode=arguments.mode,
        properties=dict(arguments.property),
        storage_options=dict(arguments.target_storage) or None,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        summary = {"version": commit.version, "attempts": commit.attempts, "metrics": dict(commit.metrics)}
        print_json({"dry_run": arguments.dry_run, **summary})
        return 0
    made = f"version {commit.version} of {arguments.target}"
    if commit.attempts:
        print_line(made)
    elif arguments.dry_run and commit.metrics:
        print_line(f"would make {made}")
    else:
        print_line("nothing differs")
    for name, value in commit.metrics.items():
        print_line(f"  {name:<18} {value:,}")
    return 0
