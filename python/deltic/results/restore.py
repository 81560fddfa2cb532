"""What `Table.restore` did or would do. PROTOCOL.md: "Add File and Remove File"."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from deltic.display.strings import counted, html_table, printable, size

__all__ = ["RestoreResult"]


@dataclass(frozen=True, repr=False)
class RestoreResult:
    """What a restore did, or with `dry_run=True` would do.

    The names of the numbers are delta-spark's; sizes are in bytes.

    Attributes:
        dry_run: Whether it was a dry run.
        version: The version that was made; None in a dry run, and if the newest version was to be restored, so that
            nothing was committed.
        restored_version: The older version.
        num_restored_files, restored_files_size: Files that were added again.
        num_removed_files, removed_files_size: Files that were removed.
        num_of_files_after_restore, table_size_after_restore: Files of the restored table.
        missing: Paths of data files and files of deletion vectors that would be added again, but no longer exist; they
            are in none of the numbers.
        refused: Only in a dry run: whether the restore would be refused, because files are missing and
            `ignore_missing_files` is not given.
    """

    dry_run: bool
    version: int | None
    restored_version: int
    num_restored_files: int
    restored_files_size: int
    num_removed_files: int
    removed_files_size: int
    num_of_files_after_restore: int
    table_size_after_restore: int
    missing: list[str] = field(default_factory=list)
    refused: bool = False

    @classmethod
    def parse(cls, text: str, dry_run: bool, ignores_missing: bool) -> RestoreResult:
        """Parse a result of the core."""
        parsed = json.loads(text)
        return cls(dry_run=dry_run, refused=bool(parsed["missing"]) and not ignores_missing, **parsed)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        return {**vars(self), "missing": list(self.missing)}

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        would = "would " if self.dry_run else ""
        lines = [
            ("restored", f"version {self.restored_version}"),
            (f"{would}add", f"{counted(self.num_restored_files, 'file')}, {size(self.restored_files_size)}"),
            (f"{would}remove", f"{counted(self.num_removed_files, 'file')}, {size(self.removed_files_size)}"),
            ("then", f"{counted(self.num_of_files_after_restore, 'file')}, {size(self.table_size_after_restore)}"),
        ]
        if self.version is not None:
            lines.append(("committed", f"version {self.version}"))
        elif not self.dry_run:
            lines.append(("committed", "nothing: this is the newest version"))
        if self.missing:
            lines.append(("missing", f"{counted(len(self.missing), 'file')}, such as {self.missing[0]}"))
        if self.refused:
            lines.append(("would be", "refused for these; the figures are those of leaving missing files out"))
        return [(name, printable(value)) for name, value in lines]

    def __repr__(self) -> str:
        kind = "(dry run)" if self.dry_run else ""
        return f"RestoreResult{kind}" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        return html_table("RESTORE" + (" (dry run)" if self.dry_run else ""), self.lines())
