"""The layout of a table's files (`Layout`): their sizes, what queries can skip, partitions, deletion vectors.

All of it is from the log; no data file is read. PROTOCOL.md: "Per-file Statistics", "Deletion Vectors".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltic.display.charts import bars
from deltic.display.strings import counted, html_table, printable, size
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.reading.snapshot import Snapshot
from deltic.results.optimize import OptimizeResult

__all__ = ["SMALL_FILE", "Files", "Layout", "partition_labels"]

SMALL_FILE = 16_000_000
"""The size in bytes below which a file is small, by default."""

_SIZE_BOUNDS = (10_000, 100_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000, 256_000_000, 1_000_000_000)
_MOST_SHOWN = 20
_COLUMNS_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        ("kind", pa.string()),
        ("files_with_bounds", pa.int64()),
        ("files_read", pa.float64()),
        ("share_skipped", pa.float64()),
        ("depth", pa.float64()),
        ("max_depth", pa.int64()),
        ("overlaps", pa.float64()),
    ]
)


class Files(NamedTuple):
    """The log's records of the files of one version, in columns."""

    table: pa.Table
    vectors: pa.Table

    @classmethod
    def of(cls, snapshot: Snapshot) -> Files:
        """Read them, without the files' paths."""
        tasks = snapshot.plan().to_reader()
        return cls(
            _without(snapshot.files(), "path", "modification_time"),
            _without(tasks, "path", "modification_time", "size").filter(pc.field("deleted_rows").is_valid()),
        )

    @property
    def deleted_rows(self) -> int:
        """Rows that deletion vectors delete from the files."""
        return pc.sum(self.vectors["deleted_rows"]).as_py() or 0

    def fields(self, of: str, table: pa.Table | None = None) -> dict[str, pa.ChunkedArray]:
        """The fields of one of the structs, by their names; none if there is no such struct."""
        found = self.table if table is None else table
        if of not in found.column_names:
            return {}
        names = [field.name for field in found.schema.field(of).type]
        return dict(zip(names, found.select([of]).flatten().columns, strict=True))


def _without(files: pa.RecordBatchReader, *names: str) -> pa.Table:
    wanted = [name for name in files.schema.names if name not in names]
    schema = pa.schema([files.schema.field(name) for name in wanted])
    return pa.Table.from_batches([batch.select(wanted) for batch in files], schema)


@dataclass(frozen=True, repr=False)
class Layout:
    """The layout of the files of the latest version, made by `Table.layout`. Sizes are in bytes.

    Attributes:
        location, version: The table and the version.
        num_files, size_in_bytes: Number and size of the live files.
        num_rows: Number of rows, None if the statistics of a file do not have it.
        min_file_size, median_file_size, max_file_size: None without files; of an even number of files the lower median.
        histogram: Files by size: `at_least`, `below` (null for the last), `files` and `bytes`.
        small_file_size: Files below this size are small.
        small_files, small_file_bytes: Number and size of the small files.
        files_with_vectors: Files with deletion vectors.
        deleted_rows: Rows that these deletion vectors delete; they are still in the files.
        columns: How much queries can skip: a row for each partition column (`kind` "partition") and each column with
            bounds ("statistics"). `files_read`: how many files a query `column = value` must read, on average if the
            values are the bounds of all files. `share_skipped`: the share of files that it skips. `depth` and
            `max_depth`: how many files have such a value in their range, on average and at most. `overlaps`: how many
            other files have a range that overlaps a file's, on average. A file without bounds counts as read, unless
            all its values are known to be null.
        partitions: `partition` (a struct), `files`, `bytes` and `rows` (null if unknown) of each, largest first; None
            for a table without partition columns.
        partition_skew: Bytes of the largest partition divided by those of the median one.
        optimize: What `Table.optimize` would do, None if deltic cannot write the table.
        optimize_refused: The reason then.
    """

    location: str
    version: int
    num_files: int
    size_in_bytes: int
    num_rows: int | None
    min_file_size: int | None
    median_file_size: int | None
    max_file_size: int | None
    histogram: pa.Table
    small_file_size: int
    small_files: int
    small_file_bytes: int
    files_with_vectors: int
    deleted_rows: int
    columns: pa.Table
    partitions: pa.Table | None
    partition_skew: float | None
    optimize: OptimizeResult | None
    optimize_refused: str | None

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        small_file_size: int,
        optimize: OptimizeResult | UnsupportedFeatureError,
    ) -> Layout:
        """Compute the layout from the log's records of the files."""
        files = Files.of(snapshot)
        sizes = files.table["size"]
        small = sizes.filter(pc.less(sizes, small_file_size))
        partitions = _partitions(files)
        ends = pc.min_max(sizes).as_py()
        return cls(
            location=snapshot.uri,
            version=snapshot.version,
            num_files=len(sizes),
            size_in_bytes=pc.sum(sizes).as_py() or 0,
            num_rows=_rows(files),
            min_file_size=ends["min"],
            median_file_size=_median(sizes),
            max_file_size=ends["max"],
            histogram=_histogram(sizes),
            small_file_size=small_file_size,
            small_files=len(small),
            small_file_bytes=pc.sum(small).as_py() or 0,
            files_with_vectors=files.vectors.num_rows,
            deleted_rows=files.deleted_rows,
            columns=pa.Table.from_pylist(list(_columns(files, columns)), _COLUMNS_SCHEMA),
            partitions=partitions,
            partition_skew=None if partitions is None else _skew(partitions["bytes"]),
            optimize=optimize if isinstance(optimize, OptimizeResult) else None,
            optimize_refused=None if isinstance(optimize, OptimizeResult) else str(optimize),
        )

    def to_arrow(self) -> pa.Table:
        """Return `columns`: how much queries on each column can skip."""
        return self.columns

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values; tables are lists of dicts."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name, value in fields.items():
            if isinstance(value, pa.Table):
                fields[name] = value.to_pylist()
        fields["optimize"] = None if self.optimize is None else self.optimize.to_dict()
        return fields

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        rows = "unknown" if self.num_rows is None else f"{self.num_rows:,}"
        lines = [
            ("version", f"{self.version}"),
            ("rows", f"{rows} in {counted(self.num_files, 'file')}, {size(self.size_in_bytes)}"),
        ]
        if self.min_file_size is not None and self.median_file_size is not None and self.max_file_size is not None:
            least, middle, most = map(size, (self.min_file_size, self.median_file_size, self.max_file_size))
            lines.append(("file sizes", f"{least} to {most}, median {middle}"))
        lines.append(("small files", f"{self.small_files:,} below {size(self.small_file_size)}"))
        if self.files_with_vectors:
            lines.append(
                (
                    "vectors",
                    f"{counted(self.deleted_rows, 'deleted row')} in {counted(self.files_with_vectors, 'file')}",
                )
            )
        if self.partitions is not None:
            skew = "" if self.partition_skew is None else f", the largest {self.partition_skew:.1f} times the median"
            lines.append(("partitions", f"{self.partitions.num_rows:,}{skew}"))
        for column in self.columns.slice(0, _MOST_SHOWN).to_pylist():
            lines.append((f"skipped by {column['column']}", skipped(column, self.num_files)))
        if self.columns.num_rows > _MOST_SHOWN:
            lines.append(("skipped by …", f"{counted(self.columns.num_rows - _MOST_SHOWN, 'more column')}"))
        lines.append(("OPTIMIZE", self._optimize()))
        return [(printable(name), printable(value)) for name, value in lines]

    def _optimize(self) -> str:
        if self.optimize is None:
            return f"refused: {self.optimize_refused}"
        if not self.optimize.files_to_rewrite:
            return "nothing to rewrite"
        before = f"{counted(self.optimize.files_to_rewrite, 'file')} ({size(self.optimize.bytes_to_rewrite)})"
        return f"would rewrite {before} as about {self.optimize.expected_files:,}"

    def plot(self) -> Any:
        """Draw file sizes, skipping and partitions as a `matplotlib` figure (needs matplotlib: `deltic[plot]`).

        Raises `ModuleNotFoundError` if matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            message = "Layout.plot needs matplotlib: pip install 'deltic[plot]'"
            raise ModuleNotFoundError(message, name=error.name) from error
        columns = self.columns.slice(0, _MOST_SHOWN).to_pylist()
        drawn: list[tuple[str, list[tuple[str, float]]]] = [
            ("files by size", [(label, count) for label, count, _ in self.sizes()]),
            ("share of files skipped", [(c["column"], c["share_skipped"] or 0.0) for c in columns]),
        ]
        if self.partitions is not None:
            first = self.partitions.slice(0, _MOST_SHOWN)
            of = list(zip(partition_labels(first), first["bytes"].to_pylist(), strict=True))
            drawn.append(("bytes by partition", of))
        figure = Figure(figsize=(9, 3.2 * len(drawn)), layout="constrained")
        for axes, (title, values) in zip(figure.subplots(len(drawn), squeeze=False).flat, drawn, strict=True):
            at = list(range(len(values)))
            axes.barh(at, [value for _, value in values])
            # In matplotlib a dollar begins a formula.
            axes.set_yticks(at, [printable(label).replace("$", r"\$") for label, _ in values])
            axes.invert_yaxis()
            axes.set_title(title)
        return figure

    def sizes(self) -> list[tuple[str, int, str]]:
        """For each range of sizes a label, the number of files, and a note for it."""
        lines = []
        for row in self.histogram.to_pylist():
            label = f"< {size(row['below'])}" if row["below"] is not None else f"≥ {size(row['at_least'])}"
            lines.append((label, row["files"], f"{counted(row['files'], 'file')}, {size(row['bytes'])}"))
        return lines

    def __repr__(self) -> str:
        lines = "".join(f"\n  {name}: {value}" for name, value in self.lines())
        return f"Layout({printable(self.location)!r}){lines}"

    def _repr_html_(self) -> str:
        return html_table(self.location, self.lines()) + bars(self.sizes())


def skipped(column: dict[str, Any], num_files: int) -> str:
    """One row of `Layout.columns` as a string."""
    if column["share_skipped"] is None:
        return "unknown: no file"
    return f"{100 * column['share_skipped']:.1f} %, reads {column['files_read']:,.1f} of {counted(num_files, 'file')}"


def partition_labels(partitions: pa.Table) -> list[str]:
    """The values of each `partition` as in a path, percent-escaped as by Hive and Spark."""
    names = [field.name for field in partitions.schema.field("partition").type]
    columns = partitions.select(["partition"]).flatten().columns
    parts = [[f"{_escaped(name)}={value}" for value in _in_path(of)] for name, of in zip(names, columns, strict=True)]
    return ["/".join(values) for values in zip(*parts, strict=True)]


_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def _in_path(values: pa.ChunkedArray) -> list[str]:
    if pa.types.is_binary(values.type):
        lines = [None if value is None else value.decode(errors="backslashreplace") for value in values.to_pylist()]
    else:
        lines = pc.cast(values, pa.string()).to_pylist()
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        lines = [None if value is None else value.replace(" ", "T") for value in lines]
    return [_NULL_DIRECTORY if value is None else _escaped(value) for value in lines]


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _median(numbers: pa.ChunkedArray) -> int | None:
    found = pc.quantile(numbers, 0.5, interpolation="lower")[0].as_py() if len(numbers) else None
    return None if found is None else int(found)


def _skew(of_partitions: pa.ChunkedArray) -> float | None:
    median = _median(of_partitions)
    return pc.max(of_partitions).as_py() / median if median else None


def _rows(files: Files) -> int | None:
    counts = files.table["num_records"]
    return None if counts.null_count else (pc.sum(counts).as_py() or 0) - files.deleted_rows


def _histogram(sizes: pa.ChunkedArray) -> pa.Table:
    rows = []
    for low, high in zip((0, *_SIZE_BOUNDS), (*_SIZE_BOUNDS, None), strict=True):
        within = pc.greater_equal(sizes, low)
        if high is not None:
            within = pc.and_(within, pc.less(sizes, high))
        found = sizes.filter(within)
        rows.append({"at_least": low, "below": high, "files": len(found), "bytes": pc.sum(found).as_py() or 0})
    return pa.Table.from_pylist(rows, pa.schema([(name, pa.int64()) for name in rows[0]]))


def _partitions(files: Files) -> pa.Table | None:
    values = files.fields("partition")
    if not values:
        return None
    keys = [str(at) for at in range(len(values))]
    deleted = files.vectors["deleted_rows"]
    none = pa.chunked_array([pa.repeat(0, len(deleted))])
    # A deletion vector reduces the rows of its partition.
    vectors = [*files.fields("partition", files.vectors).values(), none, none, pc.negate(deleted)]
    live = [*values.values(), pa.repeat(1, files.table.num_rows), files.table["size"], files.table["num_records"]]
    names = [*keys, "files", "bytes", "rows"]
    table = pa.concat_tables([pa.table(live, names), pa.table(vectors, names)])
    # A file without a number of rows makes the count of its partition unknown.
    strict = pc.ScalarAggregateOptions(skip_nulls=False)
    grouped = table.group_by(keys).aggregate([("files", "sum"), ("bytes", "sum"), ("rows", "sum", strict)])
    parts = [grouped[key].combine_chunks() for key in keys]
    partition = pa.StructArray.from_arrays(parts, fields=list(files.table.schema.field("partition").type))
    named = {"partition": partition, **{name: grouped[f"{name}_sum"] for name in ("files", "bytes", "rows")}}
    return pa.table(named).sort_by([("bytes", "descending")])


def _columns(files: Files, wanted: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    partition, low, high = (files.fields(of) for of in ("partition", "min", "max"))
    nulls = files.fields("null_count")
    known = {name.lower(): name for name in (*partition, *low)}
    for name in wanted or ():
        if name.lower() not in known:
            raise InvalidInputError(f"column `{name}` has no statistics and no partition values")
    records = files.table["num_records"]
    for name in known.values() if wanted is None else (known[name.lower()] for name in wanted):
        if name in partition:
            values = partition[name]
            yield _column(name, "partition", (values, values), pc.is_null(values))
        else:
            # NULL is not TRUE.
            only_nulls = pc.fill_null(pc.equal(nulls[name], records), False)
            yield _column(name, "statistics", (low[name], high[name]), only_nulls)


def _column(
    name: str, kind: str, bounds: tuple[pa.ChunkedArray, pa.ChunkedArray], empty: pa.ChunkedArray
) -> dict[str, Any]:
    """How many files have a value in their range: those that begin at or before it, less those that end before."""
    total = len(empty)
    known = pc.and_(pc.fill_null(pc.less_equal(*bounds), False), pc.invert(empty))
    starts, ends = (bound.filter(known).combine_chunks() for bound in bounds)
    found = len(starts)
    unknown = total - found - (pc.sum(empty).as_py() or 0)
    fields: dict[str, Any] = {"column": name, "kind": kind, "files_with_bounds": found}
    depth = 0.0
    if found:
        both = pa.concat_arrays([starts, ends])
        before = pc.subtract(_rank(both, "min").slice(0, found), _rank(starts, "min"))
        begun = pc.subtract(_rank(both, "max").slice(found), _rank(ends, "max"))
        at_start = pc.subtract(_rank(starts, "max"), before)
        at_end = pc.subtract(begun, pc.subtract(_rank(ends, "min"), 1))
        depths = pa.concat_arrays([at_start, at_end])
        depth = pc.mean(depths).as_py()
        fields |= {"depth": depth, "max_depth": pc.max(depths).as_py()}
        fields["overlaps"] = pc.mean(pc.subtract(begun, before)).as_py() - 1
    fields["files_read"] = depth + unknown
    fields["share_skipped"] = 1 - fields["files_read"] / total if total else None
    return fields


def _rank(values: pa.Array, tiebreaker: str) -> pa.Array:
    return pc.cast(pc.rank(values, tiebreaker=tiebreaker), pa.int64())
