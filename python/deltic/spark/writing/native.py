"""Writes data files by Spark's own Parquet writer, for a commit by deltic.

The core decides the columns of the files (physical names, field ids) and a directory that no other write uses. Spark
writes into it, and its committer publishes only the files of successful attempts. The core then reads the footers, and
checks them against the table's schema and Spark's row count. Writes for which deltic must evaluate each row are
refused.

The writer's settings belong to a session. The job runs in a copy of the DataFrame's session, so that the caller's
session does not change. Proved by `tests/spark/test_native_write.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.errors import DelticError, UnsupportedFeatureError
from deltic.monitoring.progress_bars import Work
from deltic.spark.tasks import copied, planned_in
from deltic.spark.types.column_types import has_type, type_without_nullability
from deltic.table.table import Table

__all__ = ["NativeWrite", "check_arguments"]

_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""Settings that files of a Delta table need."""
_VARIANT_SETTINGS = {"spark.sql.variant.writeShredding.enabled": "false"}
"""Settings that files with variants need in addition."""
_OPTIONS = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # With version 2 of the committer a task's files are visible before the job is committed.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "parquet.writer.version": "v1",
}
_UNSUPPORTED_ARGUMENTS = {
    "target_file_size": "it ends a file where its task ends, or after max_rows_per_file",
    "row_group_rows": "it ends a row group by its bytes",
}
"""Arguments that Spark's writer does not support, and what it does instead."""
_SCHEMES = {"s3": "s3a", "s3a": "s3a", "abfss": "abfss", "abfs": "abfs", "gs": "gs"}
"""Hadoop's scheme for each scheme of a table's location."""
_UNESCAPED_VALUE = r"\A[ -$&-~]*\z"
"""Partition values that a directory name can have, apart from escaped characters."""
_ESCAPED = "\"#%'*/:=?\\{[]^"
"""Of these, the characters that Spark escapes as three characters, such as `%25`."""
_LONGEST_NAME = 255
"""The most characters of a folder's name on a local disk."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise `UnsupportedFeatureError` for an argument of a write that Spark's writer does not support."""
    for name, instead in _UNSUPPORTED_ARGUMENTS.items():
        if arguments[name] is not None:
            raise _refused(name, f"it has no {name}: {instead}")


def _refused(what: str, why: str, instead: str = "") -> UnsupportedFeatureError:
    message = f"Spark's own Parquet writer cannot write this: {why}; {instead}use engine='arrow'"
    return UnsupportedFeatureError(message, features=[f"engine 'native' with {what}"])


@dataclass(frozen=True)
class _Layout:
    """The layout of the files, decided by the core."""

    folder: str
    columns: StructType
    """Columns of the table."""
    files: StructType
    """Columns of the files, by physical names."""
    partitions: StructType
    folders: Sequence[str]
    options: Mapping[str, str]

    @classmethod
    def of(cls, plan: bytes, rows: pa.Schema) -> _Layout:
        parsed = json.loads(_deltic.external_layout(plan, rows))
        options = {"compression": parsed["compression"]}
        if (level := parsed["compression_level"]) is not None:
            options["parquet.compression.codec.zstd.level"] = str(level)
        if (most := parsed["max_rows_per_file"]) is not None:
            options["maxRecordsPerFile"] = str(most)
        columns, files, partitions = (
            StructType.fromJson(json.loads(parsed[name])) for name in ("columns", "files", "partitions")
        )
        return cls(parsed["folder"], columns, files, partitions, parsed["folders"], options)


class NativeWrite:
    """A write of a DataFrame by Spark's own writer: checked when the object is made, then `run` once."""

    def __init__(self, df: DataFrame, table: Table, plan: bytes, rows: pa.Schema) -> None:
        """Make all checks that are possible before a task runs.

        Raises `UnsupportedFeatureError` if the write needs deltic's own writer, and for a store that Spark cannot
        reach.
        """
        self._table = table
        self._plan = plan
        self._layout = _Layout.of(plan, rows)
        self._place = f"{_hadoop_location(table.uri)}/{self._layout.folder}"
        session = df.sparkSession
        settings = _SETTINGS | (_VARIANT_SETTINGS if has_type(self._layout.files, VariantType) else {})
        if is_remote():
            _check_settings(session, settings)
        else:
            session = copied(session, settings)
            _check_reachable(session, self._place)
            df = planned_in(session, df)
        self._session = session
        _check_partitions(session, self._layout.partitions, table.uri)
        self._rows = _to_file_columns(df, self._layout, is_local="://" not in table.uri)

    def run(self) -> list[bytes]:
        """Let Spark write, and return the files, serialised. After an error they exist until `discard`."""
        counted = Observation()
        rows = self._rows.observe(counted, F.count(F.lit(1)).alias("rows"))
        writer = rows.write.mode("error").format("parquet").options(**_OPTIONS, **self._layout.options)
        if self._layout.folders:
            writer = writer.partitionBy(*self._layout.folders)
        with Work("WRITE", "rows") as work:
            writer.save(self._place)
            work.done = int(counted.get["rows"])
        return _deltic.take_external(self._plan, self._table.storage_options, work.done)

    def discard(self) -> None:
        """Delete the files that Spark wrote; an error of the store is ignored."""
        if not is_remote():
            # Also deletes folders, and files if Spark may have written to another store than deltic's.
            with suppress(Py4JError, PySparkException):
                path, system = _file_system(self._session, self._place)
                system.delete(path, True)
        with suppress(DelticError):
            _deltic.delete_external(self._plan, self._table.storage_options)


def _hadoop_location(uri: str) -> str:
    """A table's location for Hadoop's file systems, which decode nothing."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return f"file://{uri}"
    if scheme.lower() not in _SCHEMES:
        raise _refused(
            f"locations of {scheme}://",
            f"Hadoop has no file system for {scheme}://; it has them for {', '.join(_SCHEMES)} and paths",
        )
    return f"{_SCHEMES[scheme.lower()]}://{unquote(rest).rstrip('/')}"


def _check_settings(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Check the settings in Spark Connect, where the job runs in the session of the caller."""
    wrong = {
        name: value for name, value in settings.items() if str(session.conf.get(name, "")).lower() != value.lower()
    }
    if wrong:
        listed = ", ".join(f"{name} = {value}" for name, value in wrong.items())
        raise _refused("these settings of Spark Connect", f"the session needs {listed}", "set them, or ")


def _file_system(session: SparkSession, place: str) -> tuple[Any, Any]:
    path = session._jvm.org.apache.hadoop.fs.Path(place)  # type: ignore[union-attr]
    return path, path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())


def _check_reachable(session: SparkSession, place: str) -> None:
    try:
        _file_system(session, place)
    except (Py4JError, PySparkException) as error:
        # Not Java's message: that of a store's client may contain its settings.
        kind = type(error).__name__
        if (cause := getattr(error, "java_exception", None)) is not None:
            kind = cause.getClass().getName()
        scheme = place.partition(":")[0]
        raise _refused(
            f"locations of {scheme}://",
            f"Spark's Hadoop file systems do not reach {scheme}:// here ({kind})",
            "add Hadoop's connector and its settings, or ",
        ) from None


def _check_partitions(session: SparkSession, partitions: StructType, uri: str) -> None:
    kinds = [field.dataType for field in partitions.fields]
    is_ansi = str(session.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
    if any(isinstance(kind, DecimalType) for kind in kinds) and not is_ansi:
        message = "without spark.sql.ansi.enabled Spark prints small decimals with an exponent"
        raise _refused("decimal partition columns", message, "set it, or ")
    if any(isinstance(kind, StringType) for kind in kinds) and "://" not in uri and sys.platform in ("darwin", "win32"):
        raise _refused("string partition columns", "the file system here ignores case in names")


def _to_file_columns(df: DataFrame, layout: _Layout, *, is_local: bool) -> DataFrame:
    """The rows with the columns of the files, followed by those of the folders."""
    # The core has checked that no two names differ only by case, and that the partition columns exist.
    positions = {name.lower(): at for at, name in enumerate(df.schema.names)}
    # Spark looks up columns by name, and takes a dot in a name for a path into a struct.
    numbered = df.toDF(*(f"c{at}" for at in positions.values()))

    def given(column: StructField) -> Column:
        at = positions[column.name.lower()]
        kind = df.schema.fields[at].dataType
        if type_without_nullability(kind) != type_without_nullability(column.dataType):
            kinds = f"{kind.simpleString()}, and {column.dataType.simpleString()} in the table"
            raise _refused("other types than the table's", f"the column `{column.name}` is {kinds}", "cast it, or ")
        return F.col(f"c{at}")

    chosen: list[Column] = []
    for column, stored in zip(layout.columns.fields, layout.files.fields, strict=True):
        is_given = column.name.lower() in positions
        values = given(column) if is_given else F.lit(None)
        if not is_given or _has_fields(stored.dataType):
            # Fields get these names by position.
            values = values.cast(stored.dataType)
        chosen.append(values.alias(stored.name, metadata=stored.metadata))
    for column, folder in zip(layout.partitions.fields, layout.folders, strict=True):
        text = _folder_text(given(column), column.dataType)
        if is_local:
            text = _check_folder_length(text, column.name, _LONGEST_NAME - len(f"{folder}="))
        chosen.append(text.alias(folder))
    return numbered.select(*chosen)


def _check_folder_length(text: Column, column: str, most: int) -> Column:
    """The folder's name; raises an error in the task if it is longer than disks allow."""
    escapes = F.length(text) - F.length(F.translate(text, _ESCAPED, ""))
    message = (
        f"a value of the partition column `{column}` is too long for the name of a folder on a disk with "
        'engine="native"; write with engine="arrow"'
    )
    return F.when(F.length(text) + 2 * escapes > most, F.raise_error(F.lit(message))).otherwise(text)


def _has_fields(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_fields(kind.elementType)
    if isinstance(kind, MapType):
        return _has_fields(kind.keyType) or _has_fields(kind.valueType)
    return isinstance(kind, StructType)


def _folder_text(values: Column, kind: DataType) -> Column:
    """Partition values as strings from which the core reads the same values."""
    if isinstance(kind, StringType):
        is_plain = values.rlike(_UNESCAPED_VALUE) & (values != F.lit(_NULL_FOLDER))
        escaped = F.regexp_replace(F.hex(values.cast("binary")), "(..)", "%$1")
        return F.when(is_plain, values).otherwise(escaped)
    if isinstance(kind, TimestampType):
        seconds = (F.unix_micros(values).cast("decimal(20,0)") / F.lit(1_000_000)).try_cast("decimal(18,6)")
        zero = F.lit(0)
        # The time in UTC, whatever the session's time zone is.
        text = (F.expr("timestamp_ntz'1970-01-01 00:00:00'") + F.make_dt_interval(zero, zero, zero, seconds)).cast(
            "string"
        )
    else:
        text = values.cast("string")
    # The core reads no value that has no text.
    return F.when(values.isNotNull(), F.coalesce(text, F.lit("?")))
