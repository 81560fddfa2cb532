"""Schemas between Spark and Arrow, in one place.

Timestamps are microseconds: with zone UTC for Spark's TIMESTAMP, whatever the session's time zone, and without a zone
for TIMESTAMP_NTZ.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

__all__ = ["to_arrow", "to_spark"]


def to_spark(schema: pa.Schema) -> StructType:
    """Spark's schema for what deltic reads, nullability kept at every level."""
    spark = types.from_arrow_schema(schema, prefer_timestamp_ntz=True)
    assert isinstance(spark, StructType)
    return spark


def to_arrow(schema: StructType) -> pa.Schema:
    """Arrow schema of a DataFrame's batches, with UTC timestamps."""
    try:
        return types.to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # pyspark before 4.2 has another keyword, whose default is UTC
        return types.to_arrow_schema(schema)


def nullable(schema: StructType) -> StructType:
    """The schema with nulls allowed everywhere: what Spark infers of a DataFrame is no constraint on a table."""
    loose = schema._as_nullable()
    assert isinstance(loose, StructType)
    return loose
