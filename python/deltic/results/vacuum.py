"""What `Table.vacuum` did or would do. PROTOCOL.md: "Vacuum Protocol Check"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from deltic.arguments import check_bool, duration_ms
from deltic.display.strings import counted, html_table, size
from deltic.errors import InvalidInputError
from deltic.results.inventory import inventory_rows, is_spark_frame

__all__ = ["VacuumMode", "VacuumResult", "vacuum_arguments"]

VacuumMode: TypeAlias = Literal["full", "lite"]


@dataclass(frozen=True, repr=False)
class VacuumResult:
    """What a vacuum did, or would do.

    `retention`: how long files that are no longer part of the table are kept. `dry_run`: whether nothing was deleted.
    `files_seen`: files that were considered. `files_deleted` and `bytes_deleted`: files that were deleted, or would be;
    a lite vacuum does not know the sizes of deletion vectors, and counts files again that an earlier vacuum deleted.
    `files`: in a dry run the files, with `path`, `size` in bytes and `modification_time` in milliseconds since 1970;
    otherwise None. `nested_tables`: folders below the table that are other Delta tables; their files were kept.
    """

    retention: timedelta
    dry_run: bool
    files_seen: int
    files_deleted: int
    bytes_deleted: int
    files: pa.Table | None = field(compare=False)
    nested_tables: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, files: Any) -> VacuumResult:
        """Parse a result of the core."""
        parsed = json.loads(text)
        return cls(
            timedelta(milliseconds=parsed["retention_ms"]),
            files is not None,
            parsed["files_seen"],
            parsed["files_deleted"],
            parsed["bytes_deleted"],
            None if files is None else pa.table(files),
            tuple(parsed["nested_tables"]),
        )

    def __str__(self) -> str:
        verb = "would be deleted" if self.dry_run else "deleted"
        return f"{self.files_deleted:,} of {counted(self.files_seen, 'file')} {verb} ({size(self.bytes_deleted)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values; it has `files`, their paths, only in a dry run."""
        fields = dict(vars(self))
        files = fields.pop("files")
        hours = fields.pop("retention").total_seconds() / 3600
        found = {"retention_hours": hours, **fields, "nested_tables": list(self.nested_tables)}
        return found if files is None else {**found, "files": files["path"].to_pylist()}

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        hours = self.retention.total_seconds() / 3600
        lines = [("files", str(self)), ("retention", "1 hour" if hours == 1 else f"{hours:,.10g} hours")]
        if self.nested_tables:
            lines.append(("nested tables", f"{', '.join(self.nested_tables)} (files of these Delta tables stay)"))
        return lines

    def __repr__(self) -> str:
        kind = "(dry run)" if self.dry_run else "()"
        return f"VacuumResult{kind}" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        return html_table("VACUUM" + (" (dry run)" if self.dry_run else ""), self.lines())


def vacuum_arguments(
    retention: timedelta | float | str | None,
    mode: object,
    dry_run: object,
    force: object,
    log: object,
    inventory: Any,
) -> tuple[tuple[int | None, bool], bool, bool, bool, Any]:
    """The checked arguments of a vacuum, in the form of the core."""
    if mode not in ("full", "lite"):
        raise InvalidInputError(f'mode must be "full" or "lite", not {mode!r}')
    length = (duration_ms(retention, "retention"), check_bool(force, "force"))
    dry, logged = check_bool(dry_run, "dry_run"), check_bool(log, "log")
    if inventory is not None:
        if mode == "lite":
            raise InvalidInputError("an inventory replaces the listing of a full vacuum; leave mode out")
        if is_spark_frame(inventory):
            inventory = inventory_rows(inventory)
        if isinstance(inventory, Mapping) or not hasattr(inventory, "__arrow_c_stream__"):
            raise InvalidInputError(
                "inventory must be a table (of pyarrow, polars, pandas, DuckDB or Spark) with the columns path, "
                "length, isDir and modificationTime"
            )
    return length, mode == "lite", dry, logged, inventory
