"""Which files a plan reads, and why it skips the others (`Explanation`). PROTOCOL.md: "Per-file Statistics"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltic.display.strings import counted, html_table, printable, size

__all__ = ["Explanation"]

_BY = {"partition": "by their partition values", "statistics": "by their statistics: bounds, null and row counts"}


@dataclass(frozen=True, repr=False)
class Explanation:
    """Which files a query reads and why it skips the others, made by `Plan.explain`. Sizes are in bytes.

    `skipped`: how many files are skipped for which reason, as in `Plan.skipped`. `deleted_rows`: rows that deletion
    vectors delete from the files that are read. `files`: if requested, a row for each live file: `kept` (whether it is
    read) and the columns of `Snapshot.files`, whose bounds and partition values are the reason; otherwise None.
    """

    location: str
    version: int
    filter: str | None
    columns: list[str]
    files_total: int
    files_kept: int
    bytes_total: int
    bytes_kept: int
    skipped: dict[str, int]
    deleted_rows: int
    files: pa.Table | None

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        files = counted(self.files_total, "file")
        lines = [
            ("table", f"{self.location}, version {self.version}"),
            ("filter", self.filter or "none"),
            ("columns", ", ".join(self.columns)),
            ("reads", f"{self.files_kept:,} of {files}{_share(self.files_kept, self.files_total)}"),
            ("bytes", f"{size(self.bytes_kept)} of {size(self.bytes_total)}"),
        ]
        if self.deleted_rows:
            lines.append(("reads past", f"{counted(self.deleted_rows, 'row')} that deletion vectors take out"))
        for reason, count in self.skipped.items():
            lines.append(("skips", f"{counted(count, 'file')} {_BY.get(reason, f'by {reason}')}"))
        return [(name, printable(value)) for name, value in lines]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values; the files are a list of dicts, or None if not requested."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "files": None if self.files is None else self.files.to_pylist()}

    def __repr__(self) -> str:
        return "Explanation" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        return html_table("Plan, explained", self.lines())


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""
