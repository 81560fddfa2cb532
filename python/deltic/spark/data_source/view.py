"""Views of Delta tables in Spark's catalog.

Spark passes a Python data source neither the location nor the properties of a table of its catalog, but it does pass
the options that SQL gives after `WITH` where the table is used. So the SQL of a view has the location, and selects from
a table of the catalog that has nothing but the columns. Proved by `tests/spark/test_view.py`.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from deltic.arguments import check_str
from deltic.errors import InvalidInputError
from deltic.spark.location import checked_session, opened, shared
from deltic.spark.options import sql_text
from deltic.spark.types.column_types import to_spark
from deltic.table.table import Table

__all__ = ["create_view"]

_SUFFIX = "_columns"


def create_view(spark: SparkSession, name: str, uri: str | os.PathLike[str] | Table) -> None:
    """Create a view in Spark's catalog with the rows of a table, for SQL and `spark.table(name)`.

    Each query reads the version that is the latest then. The view lasts as long as the catalog: Hive's keeps it,
    Spark's own ends with the application. Each session that reads it must have the format (`deltic.spark.register`).
    Its columns are those of the table now; when the table has other columns later, a query is refused, and the view has
    to be created again. `WHERE` and `SELECT` skip neither files nor columns, as after `load`.

    The catalog also gets the table `<name>_columns`, which has the columns and no rows, and cannot be read by itself.
    `DROP VIEW <name>` and `DROP TABLE <name>_columns` remove both, and leave the Delta table.

    Arguments:
        spark: The session, with the format registered.
        name: The name of the view, as in SQL: `flights`, `db.flights`.
        uri: A path or URL, or a `deltic.Table` without settings of the store: a catalog is no place for them, so the
            processes of Spark must find them in their environment.

    Raises `TableNotFoundError` if there is no table, `InvalidInputError` for settings of the store and for `memory://`,
    `UnsupportedFeatureError` for a column whose type cannot be passed to Spark, and Spark's errors if the catalog has
    something by one of the two names, which stays as it is.

    >>> deltic.spark.register(spark)
    >>> deltic.spark.create_view(spark, "known_flights", uri)
    >>> spark.sql("SELECT count(*) FROM known_flights WHERE distance > 2000").first()[0]
    1
    >>> _ = spark.sql("DROP VIEW known_flights"), spark.sql("DROP TABLE known_flights_columns")
    """
    checked_session(spark)
    check_str(name, "name")
    table = shared(uri, None)
    if table.storage_options:
        raise InvalidInputError(
            "a view cannot have settings of the store, since everyone who reads Spark's catalog would see them: set "
            "them in the environment of Spark's processes, and give the table's location"
        )
    snapshot = opened(table)
    schema = to_spark(snapshot, snapshot.schema.names)
    # Inside the back-ticks, if the name has some.
    columns = f"{name[:-1]}{_SUFFIX}`" if name.endswith("`") else f"{name}{_SUFFIX}"
    spark.sql(f"CREATE TABLE {columns} ({', '.join(map(_column, schema.fields))}) USING deltic")
    try:
        options = f"path = {sql_text(table.uri)}, all_columns = 'true'"
        spark.sql(f"CREATE VIEW {name} AS SELECT * FROM {columns} WITH ({options})")
    except Exception:
        spark.sql(f"DROP TABLE {columns}")
        raise


def _column(field: StructField) -> str:
    comment = (field.metadata or {}).get("comment")
    described = f" COMMENT {sql_text(comment)}" if isinstance(comment, str) else ""
    return f"{_quoted(field.name)} {_type(field.dataType)}{described}"


def _type(kind: DataType) -> str:
    """A type in Spark's DDL, in which everything may be null."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    # A session can have TIMESTAMP mean another type.
    return "TIMESTAMP_LTZ" if isinstance(kind, TimestampType) else kind.simpleString()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
