"""`df.write.format("deltic")` with all save modes and `.partitionBy()`, which Spark refuses for Python data sources.

`install` wraps methods of Spark's classes: they record the settings of a writer, and `save` of a DataFrame in this
format calls `deltic.spark.write`. Spark writes all other formats. Proved by `tests/spark/test_install.py`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import to_str

from deltic.errors import InvalidInputError
from deltic.spark.data_source.source import refuse_stream, register
from deltic.spark.options import TIMES, in_zone, location, no_catalog, storage_options, write_arguments
from deltic.spark.sql.time_zone import session_zone
from deltic.spark.writing.write import write

__all__ = ["install", "uninstall"]

_MODES = {"append": "append", "overwrite": "overwrite", "ignore": "ignore"}
_MODES |= dict.fromkeys(("error", "errorifexists", "default"), "error")
_STATE_ATTRIBUTE = "_deltic_state"
_BY_CASE = {name.lower(): name for name in TIMES}

Method: TypeAlias = Callable[..., Any]

_WRAPPED: dict[type, dict[str, Method]] = {}
"""The original methods of each wrapped class of Spark."""


def install(spark: SparkSession) -> None:
    """Register `format("deltic")` with a session, and let its DataFrames be written with every mode and `partitionBy`.

    `df.write.format("deltic")` then takes the modes `errorifexists` (the default) and `ignore` too, `.partitionBy(...)`
    and the option `optimizeWrite`, which Spark refuses for a Python data source, and `save` calls `deltic.spark.write`:
    errors have deltic's classes. The times of `timestampAsOf`, `startingTimestamp` and `endingTimestamp` may be without
    offset, and are in the session's time zone then. `saveAsTable` with the option `path` writes there and warns that
    Spark's catalog gets no entry; without it, it is refused. `spark.readStream` refuses the format when it loads.

    Spark's classes are changed for all sessions of their kind, classic or Connect, in this process; other formats are
    not affected. Calling it again changes nothing; `uninstall` reverts it. Existing writers and readers do not change.

    >>> deltic.spark.install(spark)
    >>> df = spark.createDataFrame([(7, "UA"), (8, "AA")], "month int, carrier string")
    >>> df.write.format("deltic").partitionBy("month").save(uri + "_by_month")
    >>> df.write.format("deltic").mode("ignore").save(uri + "_by_month")
    >>> deltic.Table(uri + "_by_month").snapshot().partition_columns
    ['month']
    """
    register(spark)
    for cls, methods in _classes(spark):
        if cls not in _WRAPPED:
            _WRAPPED[cls] = {name: getattr(cls, name) for name in methods}
            for name, wrap in methods.items():
                setattr(cls, name, wrap(_WRAPPED[cls][name]))


def uninstall(spark: SparkSession) -> None:
    """Restore the methods that the classes of a session had before `install`. The format stays registered."""
    for cls, _methods in _classes(spark):
        for name, method in _WRAPPED.pop(cls, {}).items():
            setattr(cls, name, method)


def _classes(spark: SparkSession) -> list[tuple[type, dict[str, Callable[[Method], Method]]]]:
    """The writer and reader classes of a session, classic or Connect, and the wrappers of their methods."""
    streams = type(spark.readStream)
    return [(type(spark.range(1).write), _OF_WRITERS), (type(spark.read), _OF_READERS), (streams, _OF_STREAMS)]


@dataclass
class _WriterState:
    """The settings of a writer or a reader so far."""

    format: str | None = None
    mode: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    partition_by: list[str] | None = None
    layout: str | None = None

    def set_option(self, name: str, value: Any) -> None:
        text = to_str(value)
        if text is not None:
            self.options[name.lower()] = text


def _state(of: Any) -> _WriterState:
    state: _WriterState = of.__dict__.setdefault(_STATE_ATTRIBUTE, _WriterState())
    return state


def _recording(record: Callable[..., None]) -> Callable[[Method], Method]:
    """Wrap a method that sets something on a writer or reader: `record` is called after the method has accepted it."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        def recorded(self: Any, *arguments: Any, **named: Any) -> Any:
            result = method(self, *arguments, **named)
            record(_state(self), *arguments, **named)
            return result

        return recorded

    return wrap


def _record_format(state: _WriterState, source: str) -> None:
    state.format = source


def _record_mode(state: _WriterState, saveMode: str | None) -> None:
    state.mode = state.mode if saveMode is None else saveMode


def _record_option(state: _WriterState, key: str, value: Any) -> None:
    state.set_option(key, value)


def _record_options(state: _WriterState, **options: Any) -> None:
    for name, value in options.items():
        state.set_option(name, value)


def _record_partitions(state: _WriterState, *columns: str | Sequence[str]) -> None:
    given: Any = columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns
    state.partition_by = list(given)


def _record_layout(name: str) -> Callable[..., None]:
    def record(state: _WriterState, *_arguments: Any, **_named: Any) -> None:
        state.layout = name

    return record


def _is_deltic(of: Any, format: str | None) -> bool:
    name = format or _state(of).format or _session(of).conf.get("spark.sql.sources.default", "")
    return isinstance(name, str) and name.lower() == "deltic"


def _session(of: Any) -> SparkSession:
    """The session of a writer or reader: Connect's reader calls it its client."""
    found: SparkSession = getattr(of, "_spark", None) or of._client
    return found


def _apply_save_arguments(
    writer: Any, format: str | None, mode: str | None, partition_by: Any, options: dict[str, Any]
) -> None:
    """Apply the arguments of `save` to its writer, in Spark's order."""
    writer.mode(mode).options(**options)
    if partition_by is not None:
        writer.partitionBy(partition_by)
    if format is not None:
        writer.format(format)


def _save(spark_save: Method) -> Method:
    @functools.wraps(spark_save)
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        if not _is_deltic(self, format):
            spark_save(self, path, format, mode, partitionBy, **options)
            return
        _apply_save_arguments(self, format, mode, partitionBy, options)
        options = _state(self).options
        if path is not None and "path" in options:
            raise InvalidInputError("option 'path' and save(path) both say where the table is: give one")
        # The path of the call is not recorded: a writer may save to several paths.
        _write(self, options if path is None else {**options, "path": path})

    return save


def _save_as_table(spark_save: Method) -> Method:
    @functools.wraps(spark_save)
    def save_as_table(
        self: Any,
        name: str,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        if not _is_deltic(self, format):
            spark_save(self, name, format, mode, partitionBy, **options)
            return
        _apply_save_arguments(self, format, mode, partitionBy, options)
        chosen = _state(self).options
        if "path" not in chosen:
            message = f"saveAsTable({name!r}) with format 'deltic' has no option 'path'"
            raise InvalidInputError(f"{message}. {no_catalog(name=name)}")
        _write(self, chosen)
        message = f"saveAsTable({name!r}) wrote the Delta table at {chosen['path']}, and Spark's catalog has"
        call = f"deltic.spark.create_view(spark, {name!r}, {chosen['path']!r})"
        message = f"{message} no entry for it: read it with load(path), or make a view of it once with {call}"
        warnings.warn(message, UserWarning, stacklevel=2)

    return save_as_table


def _write(writer: Any, options: dict[str, str]) -> None:
    state = _state(writer)
    if state.layout is not None:
        instead = {"bucketBy": "partitionBy", "clusterBy": "deltic.create(cluster_by=...) before the first write"}
        message = f"format 'deltic' does not take .{state.layout}()"
        raise InvalidInputError(f"{message}: use {instead.get(state.layout, 'the option sort_by')}")
    mode = _MODES.get((state.mode or "default").lower())
    if mode is None:
        listed = "append, overwrite, error, errorifexists and ignore"
        raise InvalidInputError(f"there is no save mode {state.mode!r}; there are {listed}")
    arguments = write_arguments(options)
    if state.partition_by is not None:
        if "partition_by" in arguments:
            raise InvalidInputError("option 'partition_by' and .partitionBy() both say the same thing: give one")
        arguments["partition_by"] = state.partition_by
    storage = storage_options(options)
    write(_frame(writer), location(options), mode, storage_options=storage or None, **arguments)  # type: ignore[arg-type]


def _frame(writer: Any) -> DataFrame:
    """The DataFrame of a writer: Connect's has only its plan."""
    if isinstance(writer._df, DataFrame):
        return writer._df
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

    made: DataFrame = ConnectDataFrame(writer._df, writer._spark)
    return made


def _load(spark_load: Method) -> Method:
    @functools.wraps(spark_load)
    def load(self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> DataFrame:
        if _is_deltic(self, format):
            self.options(**options)
            options = _with_offsets(self)
        loaded: DataFrame = spark_load(self, path, format, schema, **options)
        return loaded

    return load


def _load_stream(spark_load: Method) -> Method:
    @functools.wraps(spark_load)
    def load(self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> DataFrame:
        if _is_deltic(self, format):
            refuse_stream()
        loaded: DataFrame = spark_load(self, path, format, schema, **options)
        return loaded

    return load


def _with_offsets(reader: Any) -> dict[str, str]:
    """The options whose times are in the session's time zone, with an offset."""
    times = {_BY_CASE[name]: text for name, text in _state(reader).options.items() if name in _BY_CASE}
    if not times:
        return {}
    zone = session_zone(_session(reader))
    return {name: in_zone(text, f"option {name!r}", zone) for name, text in times.items()}


_OF_READERS = {
    "format": _recording(_record_format),
    "option": _recording(_record_option),
    "options": _recording(_record_options),
}
_OF_WRITERS = {
    **_OF_READERS,
    "mode": _recording(_record_mode),
    "partitionBy": _recording(_record_partitions),
    **{name: _recording(_record_layout(name)) for name in ("bucketBy", "sortBy", "clusterBy")},
    "save": _save,
    "saveAsTable": _save_as_table,
}
_OF_READERS["load"] = _load
_OF_STREAMS = {"format": _recording(_record_format), "load": _load_stream}
