"""The differences of two versions of a table (`Diff`): schema, properties, protocol, files, and rows if requested.

PROTOCOL.md: "Action Reconciliation", "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltic.display.strings import counted, html_table, printable, size
from deltic.errors import InvalidInputError
from deltic.inspection.layout import partition_labels
from deltic.inspection.physical_name import column_keys, comparable_schemas
from deltic.inspection.row_difference import CHANGE_TYPE, ReadGroup, changed_rows, widens
from deltic.reading.scan import Plan
from deltic.reading.snapshot import Snapshot
from deltic.results.detail import Detail
from deltic.types.names import type_name

__all__ = ["ColumnChange", "Diff"]

ColumnChangeKind: TypeAlias = Literal["added", "dropped", "renamed", "retyped", "nullability"]

_COUNTS = ("files_added", "files_removed", "files_changed", "bytes_added", "bytes_removed")
_ROWS = ("rows_added", "rows_removed")
_MOST_SHOWN = 20


class ColumnChange(NamedTuple):
    """One change of a column or of a field of a struct.

    `kind`: "added", "dropped", "renamed", "retyped" or "nullability". `column`: its path in the version after, or in
    the version before if it was dropped. `before` and `after`: paths of a renamed column, otherwise types; None if it
    does not exist.
    """

    kind: ColumnChangeKind
    column: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        change = {"added": self.after, "dropped": self.before}.get(self.kind, f"{self.before} → {self.after}")
        return printable(f"{self.kind} {self.column}: {change}")


@dataclass(frozen=True, repr=False)
class Diff:
    """The differences of two versions, made by `Table.diff`. Sizes are in bytes.

    Attributes:
        before, after: The facts about the two versions (`Detail`).
        columns: Changes of columns.
        properties: Properties that differ, with their values before and after, None if not set.
        metadata: The same for `name`, `description`, `id`, `partition_columns`, `clustering_columns`,
            `min_reader_version` and `min_writer_version`.
        features_added, features_dropped: Features of the protocol.
        partitions: For each partition with different files, named as in a path (a table without partitions is one):
            `files_added`, `files_removed`, `files_changed` (other deletion vectors), `bytes_added`, `bytes_removed`,
            `rows_added` and `rows_removed`: rows of these files, including rows that were only rewritten, null if
            statistics do not have them. The sums are attributes of the same names.
        rows: The rows that differ, if requested, otherwise None: `_change_type` ("insert", "delete", "update_preimage",
            "update_postimage"), the columns of the version after, and `_metadata.row_id` if both versions track rows.
    """

    before: Detail
    after: Detail
    columns: list[ColumnChange]
    properties: dict[str, tuple[str | None, str | None]]
    metadata: dict[str, tuple[Any, Any]]
    features_added: list[str]
    features_dropped: list[str]
    partitions: pa.Table
    rows: pa.Table | None

    @classmethod
    def of(cls, before: Snapshot, after: Snapshot, read: ReadGroup | None) -> Diff:
        """Compare two versions; rows too if a reader for them is given."""
        old, new = before.detail(), after.detail()
        set_before, set_after = old.properties, new.properties
        keys = sorted({*set_before, *set_after})
        earlier, later = comparable_schemas(before.schema, after.schema)
        named = ("name", "description", "id", "partition_columns", "clustering_columns")
        facts = {name: (getattr(old, name), getattr(new, name)) for name in (*named, *_PROTOCOL)}
        return cls(
            before=old,
            after=new,
            columns=list(_columns(list(earlier), list(later), "")),
            properties={
                key: (set_before.get(key), set_after.get(key))
                for key in keys
                if set_before.get(key) != set_after.get(key)
            },
            metadata={name: pair for name, pair in facts.items() if pair[0] != pair[1]},
            features_added=[name for name in new.table_features if name not in old.table_features],
            features_dropped=[name for name in old.table_features if name not in new.table_features],
            partitions=_partitions(before, after),
            rows=None if read is None else changed_rows(before, after, read),
        )

    @property
    def from_version(self) -> int:
        """The version before."""
        return self.before.version

    @property
    def to_version(self) -> int:
        """The version after."""
        return self.after.version

    @property
    def files_added(self) -> int:
        """Files that only the version after has."""
        return self._sum("files_added") or 0

    @property
    def files_removed(self) -> int:
        """Files that only the version before has."""
        return self._sum("files_removed") or 0

    @property
    def files_changed(self) -> int:
        """Files of both versions with another deletion vector."""
        return self._sum("files_changed") or 0

    @property
    def bytes_added(self) -> int:
        """Bytes of the files that were added."""
        return self._sum("bytes_added") or 0

    @property
    def bytes_removed(self) -> int:
        """Bytes of the files that were removed."""
        return self._sum("bytes_removed") or 0

    @property
    def rows_added(self) -> int | None:
        """Rows of files that were added; None if statistics do not have them."""
        return self._sum("rows_added")

    @property
    def rows_removed(self) -> int | None:
        """Rows of files that were removed, or deleted by deletion vectors; None if statistics do not have them."""
        return self._sum("rows_removed")

    def _sum(self, name: str) -> int | None:
        found = self.partitions[name]
        return None if found.null_count else int(pc.sum(found).as_py() or 0)

    def row_counts(self) -> dict[str, int]:
        """How many rows of each `_change_type` differ; raises `InvalidInputError` if rows were not requested."""
        kinds = ("insert", "delete", "update_preimage", "update_postimage")
        counted = self.to_arrow()[CHANGE_TYPE].value_counts().to_pylist()
        found = {row["values"]: row["counts"] for row in counted}
        return {kind: found.get(kind, 0) for kind in kinds}

    def to_arrow(self) -> pa.Table:
        """Return `rows`; raises `InvalidInputError` if they were not requested."""
        if self.rows is None:
            raise InvalidInputError("rows were not compared: ask for them by `diff(..., rows=True)`")
        return self.rows

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values, with counts instead of the rows."""
        return {
            "from_version": self.from_version,
            "to_version": self.to_version,
            "columns": [change._asdict() for change in self.columns],
            "properties": {key: {"before": was, "after": now} for key, (was, now) in self.properties.items()},
            "metadata": {key: {"before": was, "after": now} for key, (was, now) in self.metadata.items()},
            "features_added": list(self.features_added),
            "features_dropped": list(self.features_dropped),
            **{name: self._sum(name) for name in (*_COUNTS, *_ROWS)},
            "partitions": self.partitions.to_pylist(),
            "rows": None if self.rows is None else self.row_counts(),
        }

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        lines = [("column", str(change)) for change in self.columns[:_MOST_SHOWN]]
        if len(self.columns) > _MOST_SHOWN:
            lines.append(("column", f"… {len(self.columns) - _MOST_SHOWN:,} more"))
        lines += [(f"property {key}", _change(was, now)) for key, (was, now) in self.properties.items()]
        lines += [(key, _change(was, now)) for key, (was, now) in self.metadata.items()]
        lines += [("feature", f"added {name}") for name in self.features_added]
        lines += [("feature", f"dropped {name}") for name in self.features_dropped]
        if self.partitions.num_rows:
            lines += [
                ("files added", f"{self.files_added:,}, {size(self.bytes_added)}, {_rows(self.rows_added)}"),
                ("files removed", f"{self.files_removed:,}, {size(self.bytes_removed)}, {_rows(self.rows_removed)}"),
            ]
        if self.files_changed:
            lines.append(("files changed", f"{self.files_changed:,} that differ in their deletion vectors"))
        for row in self.partitions.slice(0, _MOST_SHOWN).to_pylist():
            if row["partition"]:
                counts = f"files: {row['files_added']:,} added, {row['files_removed']:,} removed"
                counts += f", {row['files_changed']:,} changed" if row["files_changed"] else ""
                lines.append((f"partition {row['partition']}", counts))
        if self.partitions.num_rows > _MOST_SHOWN:
            lines.append(("partition …", f"{self.partitions.num_rows - _MOST_SHOWN:,} more"))
        if self.rows is not None:
            lines += [(f"rows: {kind}", f"{count:,}") for kind, count in self.row_counts().items() if count]
        return [(printable(name), printable(value)) for name, value in lines or [("", "nothing differs")]]

    def __repr__(self) -> str:
        head = f"Diff({printable(self.after.location)!r}, from_version={self.from_version}, "
        lines = "".join(f"\n  {name}: {value}" if name else f"\n  {value}" for name, value in self.lines())
        return f"{head}to_version={self.to_version}){lines}"

    def _repr_html_(self) -> str:
        title = f"{self.after.location}: version {self.from_version} → {self.to_version}"
        return html_table(title, self.lines())


_PROTOCOL = ("min_reader_version", "min_writer_version")


def _change(was: object, now: object) -> str:
    """What a setting was and is; None is one that is not set."""
    return " → ".join("not set" if value is None else str(value) for value in (was, now))


def _rows(count: int | None) -> str:
    return "rows unknown" if count is None else counted(count, "row")


def _columns(before: list[pa.Field], after: list[pa.Field], prefix: str) -> Iterator[ColumnChange]:
    """Changes of fields at one level, then of those within structs, however deep."""
    old_keys, keys = column_keys(before, after)
    old = dict(zip(old_keys, before, strict=True))
    for key, field in old.items():
        if key not in keys:
            yield ColumnChange("dropped", prefix + field.name, type_name(field), None)
    for key, field in zip(keys, after, strict=True):
        path = prefix + field.name
        was = old.get(key)
        if was is None:
            yield ColumnChange("added", path, None, type_name(field))
            continue
        if was.name != field.name:
            yield ColumnChange("renamed", path, prefix + was.name, path)
        if was.nullable != field.nullable:
            yield ColumnChange("nullability", path, _nullable(was), _nullable(field))
        yield from _types(was.type, field.type, path)


def _types(was: pa.DataType, now: pa.DataType, path: str) -> Iterator[ColumnChange]:
    if pa.types.is_struct(was) and pa.types.is_struct(now):
        yield from _columns(list(was), list(now), f"{path}.")
    elif pa.types.is_list(was) and pa.types.is_list(now):
        yield from _types(was.value_type, now.value_type, f"{path}.element")
    elif pa.types.is_map(was) and pa.types.is_map(now):
        yield from _types(was.key_type, now.key_type, f"{path}.key")
        yield from _types(was.item_type, now.item_type, f"{path}.value")
    elif was != now:
        yield ColumnChange("retyped", path, type_name(was), type_name(now))


def _nullable(field: pa.Field) -> str:
    return "nullable" if field.nullable else "not null"


class _Partitioning(NamedTuple):
    """The partition columns of files: for each its identity, which a rename does not change, and its name in labels."""

    keys: list[str]
    fields: list[pa.Field]

    @classmethod
    def of_both(cls, before: Snapshot, after: Snapshot) -> tuple[_Partitioning, _Partitioning]:
        schemas = zip((before, after), comparable_schemas(before.schema, after.schema), strict=True)
        old, new = ([schema.field(name) for name in each.partition_columns] for each, schema in schemas)
        old_keys, keys = column_keys(old, new)
        return (
            cls(old_keys, [field.remove_metadata() for field in old]),
            cls(keys, [field.remove_metadata() for field in new]),
        )

    def holds(self, earlier: _Partitioning) -> bool:
        """Whether partitions of an earlier version are partitions of this one."""
        types = dict(zip(self.keys, self.fields, strict=True))
        return set(self.keys) == set(earlier.keys) and all(
            field.type == types[key].type or widens(field.type, types[key].type)
            for key, field in zip(earlier.keys, earlier.fields, strict=True)
        )

    def values(self, tasks: pa.Table, written: _Partitioning) -> list[pa.ChunkedArray]:
        """The values of these columns for files that were written with those."""
        if not self.keys:
            return []
        columns = dict(zip(written.keys, tasks.select(["partition"]).flatten().columns, strict=True))
        return [pc.cast(columns[key], field.type) for key, field in zip(self.keys, self.fields, strict=True)]

    def grouped(self, files: pa.Table) -> pa.Table:
        """The sums of each partition, and its label."""
        keys = ["all", *map(str, range(len(self.keys)))]
        strict = pc.ScalarAggregateOptions(skip_nulls=False)
        sums = [(name, "sum") for name in _COUNTS]
        found = files.group_by(keys).aggregate([*sums, *((name, "sum", strict) for name in _ROWS)])
        labels = [""] * found.num_rows
        if self.keys:
            parts = [found[key].combine_chunks() for key in keys[1:]]
            labels = partition_labels(pa.table({"partition": pa.StructArray.from_arrays(parts, fields=self.fields)}))
        counts = {name: found[f"{name}_sum"] for name in (*_COUNTS, *_ROWS)}
        return pa.table({"partition": pa.array(labels, pa.string()), **counts})


def _partitions(before: Snapshot, after: Snapshot) -> pa.Table:
    plans = before.plan(), after.plan()
    old, new = (plan.tasks for plan in plans)
    removed_files = old.filter(pc.invert(pc.is_in(old["path"], value_set=new["path"])))
    added_files = new.filter(pc.invert(pc.is_in(new["path"], value_set=old["path"])))
    earlier, later = _Partitioning.of_both(before, after)
    kept, changes = _other_vectors(*plans)
    found = [
        _table(
            later.values(added_files, later),
            added_files.num_rows,
            **_counts(added_files, "added", _live_rows(after, added_files)),
        ),
        _table(later.values(kept, later), kept.num_rows, **changes),
    ]
    # Partitions by other columns are different partitions.
    shown = later if later.holds(earlier) else earlier
    removed = _counts(removed_files, "removed", _live_rows(before, removed_files))
    others = _table(shown.values(removed_files, earlier), removed_files.num_rows, **removed)
    if shown is later:
        return later.grouped(pa.concat_tables([*found, others])).sort_by("partition")
    apart = [later.grouped(pa.concat_tables(found)), earlier.grouped(others)]
    return pa.concat_tables(apart).sort_by("partition")


def _table(values: list[pa.ChunkedArray], rows: int, **columns: pa.ChunkedArray | pa.Array) -> pa.Table:
    zeros = pa.repeat(pa.scalar(0, pa.int64()), rows)
    counts = {name: columns.get(name, zeros) for name in (*_COUNTS, *_ROWS)}
    return pa.table({"all": zeros, **{str(at): column for at, column in enumerate(values)}, **counts})


def _counts(tasks: pa.Table, what: str, rows: pa.ChunkedArray) -> dict[str, pa.ChunkedArray | pa.Array]:
    ones = pa.repeat(pa.scalar(1, pa.int64()), tasks.num_rows)
    return {f"files_{what}": ones, f"bytes_{what}": tasks["size"], f"rows_{what}": rows}


def _live_rows(snapshot: Snapshot, tasks: pa.Table) -> pa.ChunkedArray:
    """How many rows of these files are not deleted; null if statistics do not have their rows."""
    paths, counts = [], []
    for batch in snapshot.files() if tasks.num_rows else ():
        wanted = pc.is_in(batch["path"], value_set=tasks["path"])
        paths.append(batch["path"].filter(wanted))
        counts.append(batch["num_records"].filter(wanted))
    table = pa.table(
        {"path": pa.chunked_array(paths, pa.string()), "num_records": pa.chunked_array(counts, pa.int64())}
    )
    found = table["num_records"].take(pc.index_in(tasks["path"], value_set=table["path"]))
    return pc.subtract(found, pc.fill_null(tasks["deleted_rows"], 0))


def _vectors(plan: Plan, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """A string that identifies the deletion vector of each file, empty if it has none."""
    tasks = plan.tasks
    found = plan.deletion_vectors() if tasks["deleted_rows"].null_count < tasks.num_rows else {}
    of, ids = pa.array(found.keys(), pa.string()), pa.array(found.values(), pa.string())
    return pc.fill_null(ids.take(pc.index_in(paths, value_set=of)), "")


def _other_vectors(before: Plan, after: Plan) -> tuple[pa.Table, dict[str, pa.ChunkedArray | pa.Array]]:
    """Files of both versions with different vectors, even if these delete as many rows; and their counts."""
    old, new = before.tasks, after.tasks
    kept = new.filter(pc.is_in(new["path"], value_set=old["path"]))
    kept = kept.filter(pc.not_equal(_vectors(before, kept["path"]), _vectors(after, kept["path"])))
    was = old.take(pc.index_in(kept["path"], value_set=old["path"]))
    more = pc.subtract(pc.fill_null(kept["deleted_rows"], 0), pc.fill_null(was["deleted_rows"], 0))
    ones = pa.repeat(pa.scalar(1, pa.int64()), kept.num_rows)
    removed, added = (pc.max_element_wise(number, 0) for number in (more, pc.negate(more)))
    return kept, {"files_changed": ones, "rows_added": added, "rows_removed": removed}
