"""The commands of the command line, and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from deltic.cli.arguments import column_type, names, setting, version_or_time
from deltic.cli.change import clone, convert, manifests, optimize, purge, repair, restore, vacuum
from deltic.cli.read import check, detail, diff, files, history, layout, plan, report, show
from deltic.inspection.layout import SMALL_FILE

__all__ = ["command_parser"]

_HISTORY = 20
_FILTER = "SQL such as \"month = 7 AND carrier IN ('UA', 'AA')\""


@dataclass(frozen=True)
class _Command:
    """A command. `has_version`: whether it is about a version that `--version` names, by default the latest."""

    name: str
    run: Callable[[argparse.Namespace], int]
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    has_version: bool = False


def command_parser() -> argparse.ArgumentParser:
    """The parser of all commands. Its result has the parser of the command that was given, in `parser`."""
    parser = argparse.ArgumentParser(
        prog="deltic",
        description="Read, maintain and copy a Delta table, or make one of Parquet files or of an Iceberg table.",
        epilog="deltic COMMAND --help lists the options of a command.",
    )
    parser.add_argument("--version", action="store_true", help="print the version of deltic and exit")
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(metavar="command")
    for command in _COMMANDS:
        summary = command.summary
        added = commands.add_parser(command.name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
        added.set_defaults(run=command.run, command=command.name, parser=added)
        added.add_argument("uri", help="path or URL of the table, such as s3://bucket/table")
        _add_settings(
            added, "--storage", "a setting of the store, such as aws_region=eu-west-1; may be given several times"
        )
        if command.has_version:
            added.add_argument("--version", type=int, metavar="N", help="a version, by default the latest")
        added.add_argument("--json", action="store_true", help="print JSON, one object a line")
        command.add_options(added)
    return parser


def _add_settings(parser: argparse.ArgumentParser, option: str, summary: str) -> None:
    """An option that may be given several times."""
    parser.add_argument(option, metavar="KEY=VALUE", type=setting, action="append", default=[], help=summary)


def _add_timestamp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timestamp", help="the version at this time (ISO 8601, UTC by default)")


def _add_dry_run(parser: argparse.ArgumentParser, summary: str = "print what would be done, and write nothing") -> None:
    parser.add_argument("--dry-run", action="store_true", help=summary)


def _add_max_tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-tasks",
        type=int,
        metavar="N",
        help="how many bins (files that are rewritten together) are written at a time",
    )


def _files(parser: argparse.ArgumentParser) -> None:
    _add_timestamp(parser)
    parser.add_argument("--filter", help=f"only files that may have matching rows: {_FILTER}")


def _history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=_HISTORY, metavar="N", help=f"the most commits to list, by default {_HISTORY}"
    )
    parser.add_argument("--all", action="store_true", help="all commits that the log still has")


def _plan(parser: argparse.ArgumentParser) -> None:
    _add_timestamp(parser)
    parser.add_argument("filter", nargs="?", help=_FILTER)
    parser.add_argument("--files", action="store_true", help="list each file, and whether it is read")


def _layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", type=names, metavar="A,B", help="only the skipping by these columns")
    parser.add_argument(
        "--small-file-size", default=SMALL_FILE, metavar="SIZE", help='a smaller file is small, such as "16 MB"'
    )


def _diff(parser: argparse.ArgumentParser) -> None:
    of_time = "a version, or a time (ISO 8601) for the last version at that time"
    parser.add_argument("of", type=version_or_time, metavar="FROM", help=f"the version before: {of_time}")
    parser.add_argument(
        "to", type=version_or_time, metavar="TO", nargs="?", default=(None, None), help="by default the latest"
    )
    parser.add_argument("--rows", action="store_true", help="also the rows that differ, one a line")
    parser.add_argument("--limit", type=int, metavar="N", help="with --rows: the most rows to print")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="by default report.html")
    parser.add_argument(
        "--vacuum",
        choices=["full", "lite", "none"],
        default="full",
        help="find the files that VACUUM would delete by a listing (full), by the log (lite), or not at all",
    )


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", action="store_true", help="also look for every data file: one request a file")


def _manifests(parser: argparse.ArgumentParser) -> None:
    _add_dry_run(parser, "list the manifests, and write nothing")


def _optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", metavar="SQL", help="a condition on partition columns")
    parser.add_argument("--zorder-by", type=names, metavar="A,B", help="order the rows of each partition by columns")
    parser.add_argument("--target-file-size", metavar="SIZE", help='the size of new files, such as "128 MB"')
    parser.add_argument("--full", action="store_true", help="in a clustered table, also clustered files")
    _add_max_tasks(parser)
    _add_dry_run(parser)


def _purge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", metavar="SQL", help='rows to delete and to purge: "customer = 17"')
    _add_max_tasks(parser)
    _add_dry_run(parser)


def _repair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recover-to",
        type=int,
        metavar="N",
        help="the last version that can be read: move later ones out of the log, since commits are missing or torn",
    )
    _add_dry_run(parser)


def _vacuum(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--retention", metavar="TIME", help='a number of hours, or "7 days"; by default the table\'s, or a week'
    )
    parser.add_argument("--lite", action="store_true", help="take removed files from the log, without a listing")
    parser.add_argument("--force", action="store_true", help="allow a retention shorter than the table's")
    parser.add_argument("--no-log", action="store_true", help="leave it out of the history; needs no space on the disk")
    _add_dry_run(parser, "list the files, and delete none")


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        metavar="COLUMN=TYPE",
        type=column_type,
        action="append",
        default=[],
        help="a column of folders such as day=2013-01-01, and its type, such as day=date; once for each, in order",
    )
    _add_settings(parser, "--property", "a property of the table")
    parser.add_argument("--no-statistics", action="store_true", help="take only the number of rows from the footers")
    _add_dry_run(parser, "print what would be converted, and write nothing")


def _restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", type=int, metavar="N", help="the older version")
    _add_timestamp(parser)
    parser.add_argument("--ignore-missing-files", action="store_true", help="leave out missing files")
    parser.add_argument("--protocol-downgrade-allowed", action="store_true", help="remove newer features")
    _add_dry_run(parser)


def _clone(parser: argparse.ArgumentParser) -> None:
    _add_timestamp(parser)
    parser.add_argument("target", help="path or URL of the clone")
    parser.add_argument("--deep", action="store_true", help="copy the files instead of sharing them")
    parser.add_argument(
        "--mode", choices=("error", "replace", "update"), default="error", help="what to do if there is a table already"
    )
    _add_settings(parser, "--property", "a property of the clone")
    _add_settings(parser, "--target-storage", "a setting of the target's store; by default it has those of this table")
    _add_dry_run(parser, "print how many files and bytes would be copied, and write nothing")


_COMMANDS = (
    _Command("show", show, "version, protocol, properties and schema", _add_timestamp, has_version=True),
    _Command(
        "detail",
        detail,
        "the facts of DESCRIBE DETAIL: files, rows, bytes, times, features",
        _add_timestamp,
        has_version=True,
    ),
    _Command("files", files, "sizes and paths of the data files", _files, has_version=True),
    _Command("history", history, "the commits, newest first", _history),
    _Command("plan", plan, "what a query would read, and what it skips", _plan, has_version=True),
    _Command("layout", layout, "layout of the files: sizes, what queries skip, partitions", _layout),
    _Command("diff", diff, "the differences of two versions", _diff),
    _Command("report", report, "write an HTML page about the table", _report),
    _Command(
        "check",
        check,
        "compare the log, checksum and checkpoint of a version; exit code 1 if they differ",
        _check,
        has_version=True,
    ),
    _Command("manifests", manifests, "write symlink manifests, for engines that cannot read Delta", _manifests),
    _Command("optimize", optimize, "compact small files, or order rows so that queries skip more files", _optimize),
    _Command("purge", purge, "rewrite files without deleted rows and dropped columns", _purge),
    _Command(
        "repair",
        repair,
        "repair the log, and remove missing files from the table; exit code 1 if a fault is left",
        _repair,
    ),
    _Command("vacuum", vacuum, "delete files that no version within the retention needs", _vacuum),
    _Command("convert", convert, "make a table of a folder of Parquet files, or of an Iceberg table", _convert),
    _Command("restore", restore, "restore the table to an older version", _restore),
    _Command("clone", clone, "make another table a copy of this one", _clone, has_version=True),
)
