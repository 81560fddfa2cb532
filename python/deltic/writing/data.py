"""Data that callers pass, as Arrow. All columns of a frame are written, or an error says why not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa

from deltic import _deltic
from deltic.display.strings import a
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.reading.scan import Plan, Rows
from deltic.types.other_libraries import package_of
from deltic.writing.collections import of_batches, of_rows
from deltic.writing.read_once import mark_as_read, nonempty_again, refuse_if_read

__all__ = ["refuse_geometries", "refuse_names", "stream"]


def stream(
    data: Any, table_schema: Callable[[], pa.Schema | None] = lambda: None
) -> _deltic.ArrowStream | pa.RecordBatchReader | pa.Table:
    """Any Arrow data in the form of the core. A named pandas index becomes columns, before the others.

    `table_schema` returns the columns of an existing table; rows that are passed as dicts get their types.
    """
    if isinstance(data, Rows):
        _refuse_no_columns(data.schema, None)
        # The core accepts its own streams directly, so that errors of reading keep their class.
        return data._read()
    if isinstance(data, _deltic.ArrowStream):
        return data
    refuse_if_read(data)
    try:
        rows = _rows(data, table_schema)
    except InvalidInputError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"cannot write this {type(data).__name__}: {error}") from error
    _refuse_no_columns(rows.schema, rows.num_rows if isinstance(rows, pa.Table) else None)
    refuse_names(rows.schema)
    refuse_geometries(rows.schema)
    return rows


def _rows(data: Any, table_schema: Callable[[], pa.Schema | None]) -> pa.RecordBatchReader | pa.Table:
    if isinstance(data, pa.RecordBatchReader | pa.Table):
        return data
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _of_pandas(data)
    if pandas is not None and isinstance(data, pandas.Series):
        raise InvalidInputError("cannot write a pandas Series: make it a frame, with series.to_frame('name')")
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(data, polars.Series):
        message = "cannot write a polars Series, which is one column"
        raise InvalidInputError(f"{message}: make it a frame, with series.to_frame('name')")
    if isinstance(data, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(data.type):
        message = f"cannot write {a(type(data).__name__)}, which is one column"
        raise InvalidInputError(f"{message}: make a table of it, with pa.table({{'name': array}})")
    if polars is not None and isinstance(data, polars.LazyFrame):
        data = data.collect(engine="streaming")
    if polars is not None and isinstance(data, polars.DataFrame):
        for name, dtype in data.schema.items():
            # polars aborts the process when it exports such a name.
            if any("\0" in found for found in _names_in_polars(name, dtype)):
                raise InvalidInputError(f"column {name!r} has a NUL character in its name, or inside; rename it")
            # Their Arrow form has addresses in this process, without saying so.
            if dtype == polars.Object:
                raise InvalidInputError(f"column `{name}` has the polars type Object, which cannot be stored; cast it")
    if type(data).__module__.startswith("pyspark.sql."):
        # Their Arrow form has lost some column types: user-defined types, collations, intervals.
        raise InvalidInputError("this is a Spark DataFrame: write it with deltic.spark.write(df, uri)")
    if hasattr(data, "__arrow_c_stream__"):
        return nonempty_again(data, pa.RecordBatchReader.from_stream(data))
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    dataset = sys.modules.get("pyarrow.dataset")
    if dataset is not None and isinstance(data, dataset.Dataset):
        return data.scanner().to_reader()
    if dataset is not None and isinstance(data, dataset.Scanner):
        return data.to_reader()
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        return of_rows(data, table_schema)
    if isinstance(data, list | tuple | Iterator):
        # The first batch is read here, and says which columns there are.
        mark_as_read(data)
        return of_batches(data, lambda item: _all_rows(item, table_schema))
    _refuse(data)


def _all_rows(data: Any, table_schema: Callable[[], pa.Schema | None]) -> pa.Table:
    """An item of a list, read completely."""
    refuse_if_read(data)
    found = _rows(data, table_schema)
    if isinstance(found, pa.Table):
        return found
    mark_as_read(data)
    return found.read_all()


def _of_pandas(frame: Any) -> pa.Table:
    """All columns and the named levels of the index; only row numbers, which have no name, are left out."""
    labels = list(frame.columns)
    if frame.columns.nlevels > 1:
        raise InvalidInputError(
            f"the frame's columns have {frame.columns.nlevels} levels of labels, and a table's have one name each; "
            "join them, such as with frame.columns = ['_'.join(map(str, label)) for label in frame.columns]"
        )
    for label in labels:
        if not isinstance(label, str):
            raise InvalidInputError(
                f"the frame has a column labelled {label!r} ({type(label).__name__}), and a table's columns are named "
                "by strings; rename it, or all of them with frame.rename(columns=str)"
            )
    kept = _index_names(frame, set(labels))
    rows = pa.Table.from_pandas(frame, preserve_index=bool(kept))
    if not kept:
        # A pyarrow table without columns has no rows, even if the frame has some: the message says how many.
        _refuse_no_columns(rows.schema, len(frame))
        return rows
    return rows.select([*kept, *labels])


def _index_names(frame: Any, columns: set[str]) -> list[str]:
    """The names of the index's levels, in order; none for row numbers."""
    index = frame.index
    levels = list(index.names)
    if len(levels) == 1 and levels[0] is None:
        if type(index).__name__ == "RangeIndex" or len(index) == 0:
            return []
        raise InvalidInputError(
            f"the frame's index has no name, and whether its labels (the first is {index[0]}) belong in the table is "
            "not known; drop them with frame.reset_index(drop=True), or name them with frame.rename_axis('name')"
        )
    for name in levels:
        if not isinstance(name, str):
            what = "a level without a name" if name is None else f"a level named {name!r} ({type(name).__name__})"
            raise InvalidInputError(
                f"the frame's index has {what}, and a table's columns are named by strings; name its levels with "
                "frame.rename_axis([...]), or drop it with frame.reset_index(drop=True)"
            )
        if name in columns or levels.count(name) > 1:
            raise InvalidInputError(
                f"the frame has `{name}` twice, as {'a column' if name in columns else 'a level of the index'} and as "
                "a level of the index; rename one, or drop the index with frame.reset_index(drop=True)"
            )
    return levels


def _refuse_no_columns(schema: pa.Schema, rows: int | None) -> None:
    """Rows without columns would be lost silently, and no columns at all are hardly the rows that are meant."""
    if len(schema) == 0:
        count = f" and {rows} rows" if rows else ""
        raise InvalidInputError(f"the data has no columns{count}; nothing of it could be stored")


_INSTEAD = {
    ("duckdb", "DuckDBPyConnection"): "pass the relation that connection.sql('...') returns",
    ("pyspark", "DataFrame"): "use deltic.spark.write, which leaves the rows on the executors",
    ("numpy", "ndarray"): "name its columns, such as with pa.table({'a': array[:, 0]})",
    ("dask", "DataFrame"): "write its partitions one by one, each as the pandas frame that it computes to",
    ("deltic", "Table"): "pass its rows: table.scan()",
    ("deltic", "Snapshot"): "pass its rows: snapshot.scan()",
}
"""What to pass instead of some classes, by the package and the name of the class or one of its bases."""


def _refuse(data: Any) -> NoReturn:
    message = f"cannot write {a(type(data).__name__)}"
    for kind in type(data).__mro__:
        instead = _INSTEAD.get((package_of(kind), kind.__name__))
        if instead is not None:
            raise InvalidInputError(f"{message}: {instead}")
    if isinstance(data, str | os.PathLike):
        raise InvalidInputError(f"{message} as rows: the location goes before them, deltic.write(uri, data)")
    if isinstance(data, Plan):
        raise InvalidInputError(f"{message}: a plan is files; pass the rows of snapshot.scan(...)")
    if isinstance(data, Mapping):
        raise InvalidInputError(f"{message}: make a table of it, with pa.table(columns), columns being lists by name")
    raise InvalidInputError(
        f"{message}: pass Arrow data (anything with __arrow_c_stream__), such as a pyarrow Table or RecordBatchReader, "
        "or a polars or pandas DataFrame"
    )


def _names_in_polars(name: str, dtype: Any) -> Iterator[str]:
    """The name of a column, and those of the fields inside it."""
    yield name
    for field in getattr(dtype, "fields", ()):
        yield from _names_in_polars(field.name, field.dtype)
    if (inner := getattr(dtype, "inner", None)) is not None:
        yield from _names_in_polars("", inner)


def refuse_names(fields: Iterable[pa.Field], inside: str = "") -> None:
    """Raise `InvalidInputError` for names with a NUL: Arrow's C interface would cut them there."""
    for child in fields:
        path = f"{inside}.{child.name}" if inside else child.name
        if "\0" in child.name:
            raise InvalidInputError(f"the column name {path!r} has a NUL character; rename it")
        if pa.types.is_nested(child.type):
            refuse_names([child.type.field(at) for at in range(child.type.num_fields)], path)


def refuse_geometries(fields: Iterable[pa.Field], inside: str = "") -> None:
    """Raise `UnsupportedFeatureError` for what Spark marked as a geometry or geography, and Arrow has as a struct."""
    for child in fields:
        for mark in ("geometry", "geography") if child.name == "wkb" else ():
            if (child.metadata or {}).get(mark.encode()) == b"true":
                message = f"`{inside or child.name}` is a {mark} in the Arrow form of Spark, which deltic does not take"
                raise UnsupportedFeatureError(f"{message}: make it binary, with ST_AsBinary()", features=["geospatial"])
        if pa.types.is_nested(child.type):
            children = [child.type.field(at) for at in range(child.type.num_fields)]
            refuse_geometries(children, f"{inside}.{child.name}" if inside else child.name)
