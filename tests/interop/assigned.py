"""Assignments of values of every type to columns of every type, for UPDATE and MERGE in delta-spark and deltic."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

KINDS = {
    "bo": "BOOLEAN",
    "by": "TINYINT",
    "sm": "SMALLINT",
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "dec": "DECIMAL(6,2)",
    "tenths": "DECIMAL(3,1)",
    "fine": "DECIMAL(20,8)",
    "s": "STRING",
    "bin": "BINARY",
    "day": "DATE",
    "ts": "TIMESTAMP",
    "ntz": "TIMESTAMP_NTZ",
}
"""Names of columns, and their types in Spark's SQL."""

VALUES = {
    "bo": ["true", "false", "NULL"],
    "by": ["7Y", "-128Y", "NULL"],
    "sm": ["300S", "-7S", "99S"],
    "i": ["-7", "70000", "12"],
    "l": ["70000L", "4000000000L", "-1L"],
    "f": ["CAST(2.7 AS FLOAT)", "CAST(-0.5 AS FLOAT)", "CAST(1e20 AS FLOAT)"],
    "d": ["-2.7D", "0.125D", "1e300D"],
    "dec": ["12.35", "-0.05", "9999.99"],
    "tenths": ["-2.5", "99.9", "0.1"],
    "fine": ["3.055", "-0.12500000", "123456789012.5"],
    "s": ["'7'", "' 2.75 '", "'2024-02-29'"],
    "bin": ["X'37'", "X'c3a9'", "NULL"],
    "day": ["DATE'2024-02-29'", "DATE'1969-12-31'", "NULL"],
    "ts": ["TIMESTAMP'2024-02-29 23:59:58.7'", "TIMESTAMP'1969-12-31 23:59:58.7'", "TIMESTAMP'1970-01-01 00:01:40'"],
    "ntz": ["TIMESTAMP_NTZ'2024-02-29 23:59:58.7'", "TIMESTAMP_NTZ'1969-12-31 00:00:00'", "NULL"],
}
"""Values in three rows, whose `k` is 1, 2 and 3."""

LITERALS = [
    "NULL", "'yes'", "'2024-13-01'", "'2024-02-30 10:00:00'", "'2024-02-02 10:00:00.5'", "'-12'", "'1e2'", "'x'", "''",
    "300", "-1.5", "0.005", "dec / 3", "dec * 1.19", "d / 3", "i * 1000", "l + 1", "concat(s, '0')",
]  # fmt: skip
EXPRESSIONS = [*KINDS, *LITERALS]


def create(spark: SparkSession, uri: str) -> None:
    """A table of delta-spark with the three rows, and columns that values are assigned to: `to_i` and so on."""
    columns = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
    targets = ", ".join(f"to_{name} {kind}" for name, kind in KINDS.items())
    spark.sql(f"CREATE TABLE delta.`{uri}` (k INT, {columns}, {targets}) USING delta")
    rows = ", ".join(f"({at + 1}, {', '.join(VALUES[name][at] for name in KINDS)})" for at in range(3))
    spark.sql(f"INSERT INTO delta.`{uri}` (k, {', '.join(KINDS)}) VALUES {rows}")


def succeeds(change: Callable[[], object], refusals: tuple[type[BaseException], ...]) -> bool:
    """Whether a change succeeds, or is refused."""
    try:
        change()
    except refusals:
        return False
    return True
