"""The options and the result of `Table.optimize` (`OptimizeResult`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from deltic.arguments import byte_size, check_bool, check_filter, check_int, check_name_or_names
from deltic.display.strings import counted, html_table, printable, size
from deltic.errors import InvalidInputError
from deltic.hints.names import OPTIMIZED, no_attribute

__all__ = ["OptimizeResult", "optimize_options"]


def optimize_options(
    where: str | None,
    zorder_by: Sequence[str] | str | None,
    target_file_size: int | str | None,
    full: bool,
    max_tasks: int | None,
) -> str:
    """The checked arguments of `Table.optimize`, in the form of the core."""
    columns = None if zorder_by is None else check_name_or_names(zorder_by, "zorder_by")
    if columns is not None and not columns:
        raise InvalidInputError("zorder_by names no column; leave it out, or name some")
    options = {
        "filter": check_filter(where, "where"),
        "zorder_by": columns or [],
        "target_file_size": byte_size(target_file_size, "target_file_size"),
        "full": check_bool(full, "full"),
        "max_tasks": check_int(max_tasks, "max_tasks", 1),
    }
    return json.dumps(options)


@dataclass(frozen=True, repr=False)
class OptimizeResult:
    """What `Table.optimize` did, or with `dry_run=True` would do.

    Attributes:
        dry_run: Whether it was a dry run.
        read_version: The version whose files were considered.
        versions: Versions that were committed, in order; empty if nothing had to be done, and in a dry run.
        layout: `"compact"`, `"zorder"` or `"hilbert"`.
        columns: The columns by which rows are ordered.
        target_file_size: In bytes.
        files_total: Live files.
        files_considered: Those in the requested partitions.
        files_skipped: Those of them that are kept.
        files_lost: Files that were kept after all, since another writer changed rows of them, or of files in the same
            bin, meanwhile: the next call considers them again.
        files_to_rewrite, bytes_to_rewrite: Files that are rewritten.
        expected_files: About how many files they become.
        partitions: The same by partition: `values`, `files`, `bytes` and `expected_files` of each.
        metrics: Counters by delta-spark's names, of all commits: `numAddedFiles`, `numAddedBytes`, `numRemovedFiles`,
            `numRemovedBytes`, `numDeletionVectorsRemoved`; and the sizes of the files that were added, `minFileSize`,
            `p25FileSize`, `p50FileSize`, `p75FileSize` (these three of the last commit) and `maxFileSize`.
    """

    dry_run: bool
    read_version: int
    versions: list[int]
    layout: str
    columns: list[str]
    target_file_size: int
    files_total: int
    files_considered: int
    files_skipped: int
    files_lost: int
    files_to_rewrite: int
    bytes_to_rewrite: int
    expected_files: int
    partitions: list[dict[str, Any]]
    metrics: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, dry_run: bool) -> OptimizeResult:
        """Parse a result of the core."""
        return cls(dry_run=dry_run, **json.loads(text))

    @property
    def partitions_optimized(self) -> int:
        """How many partitions have files that are rewritten; a table without partitions counts as one."""
        return len(self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        return {
            "dry_run": self.dry_run,
            "read_version": self.read_version,
            "versions": list(self.versions),
            "layout": self.layout,
            "columns": list(self.columns),
            "target_file_size": self.target_file_size,
            "files_total": self.files_total,
            "files_considered": self.files_considered,
            "files_skipped": self.files_skipped,
            "files_lost": self.files_lost,
            "files_to_rewrite": self.files_to_rewrite,
            "bytes_to_rewrite": self.bytes_to_rewrite,
            "expected_files": self.expected_files,
            "partitions_optimized": self.partitions_optimized,
            "partitions": [dict(partition) for partition in self.partitions],
            "metrics": dict(self.metrics),
        }

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        along = f" by {', '.join(self.columns)}" if self.columns else ""
        before = f"{counted(self.files_to_rewrite, 'file')}, {size(self.bytes_to_rewrite)}"
        partitions = f" in {self.partitions_optimized:,} partitions" if self.partitions_optimized > 1 else ""
        lines = [
            ("layout", f"{self.layout}{along}, files of {size(self.target_file_size)}"),
            (
                "looked at",
                f"version {self.read_version}, {self.files_considered:,} of {counted(self.files_total, 'file')}",
            ),
        ]
        if self.dry_run:
            lines.append(("would rewrite", f"{before}{partitions}, as about {self.expected_files:,}"))
        elif self.versions:
            count = self.metrics.get
            old = f"{counted(count('numRemovedFiles', 0), 'file')}, {size(count('numRemovedBytes', 0))}"
            new = f"{counted(count('numAddedFiles', 0), 'file')}, {size(count('numAddedBytes', 0))}"
            lines += [
                ("rewrote", f"{old}{partitions}, as {new}"),
                ("committed", "version " + ", ".join(str(version) for version in self.versions)),
            ]
        else:
            lines.append(("rewrote", "nothing"))
        if self.files_lost:
            lines.append(("left out", f"{counted(self.files_lost, 'file')} that other writers got to"))
        return [(name, printable(value)) for name, value in lines]

    def __repr__(self) -> str:
        kind = ", dry run" if self.dry_run else ""
        return f"OptimizeResult({self.layout}{kind})" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            no_attribute("OptimizeResult", OPTIMIZED, name, self)

    def _repr_html_(self) -> str:
        return html_table("OPTIMIZE" + (" (dry run)" if self.dry_run else ""), self.lines())
