"""The command line: `deltic show`, `detail`, `files`, `history`, `plan`, `layout`, `diff`, `report` and `check` read a
table; `optimize`, `purge`, `repair`, `vacuum` and `restore` change it; `manifests` writes lists of its files, `clone`
makes another table of it, and `convert` makes a table of Parquet files or of an Iceberg table.

Errors go to stderr, with exit code 1. This is also the exit code of a `check` with findings, of a `repair` that leaves
a fault, and of a `restore --dry-run` whose restore would be refused. Wrong arguments have exit code 2, as usual for
argparse; Ctrl-C has 130. Names and other strings of a table are printed without control characters. On a terminal long
operations show their progress on stderr, unless `--json` is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from deltic import _deltic
from deltic.cli.output import print_error
from deltic.cli.parser import command_parser
from deltic.errors import DelticError
from deltic.monitoring.progress_bars import is_terminal, progress

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its escape, not an error.
            stream.reconfigure(errors="backslashreplace")
    parser = command_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        # The usage is that of the command, if there is one.
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
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
        print_error(error, arguments.command)
        return 1
    except BrokenPipeError:
        # The reader of a pipe has ended. Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
