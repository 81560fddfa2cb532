"""A table that delta-spark and deltic write in turns, with its expected rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_spark import check_checksum
from pyspark.sql import SparkSession
from sample import adds, rows

import deltic


@dataclass
class Turns:
    """A table with two writers, and its expected rows."""

    spark: SparkSession
    uri: str
    model: list[pa.Table] = field(default_factory=list)
    readers: list[Callable[[str], pa.Table]] = field(default_factory=list)
    """Other clients that support the table's features."""

    @property
    def at(self) -> str:
        return f"delta.`{self.uri}`"

    @property
    def version(self) -> int:
        return deltic.Table(self.uri).snapshot().version

    def sql(self, *statements: str) -> None:
        """Run statements, in which `@` stands for the table."""
        for statement in statements:
            self.spark.sql(statement.replace("@", self.at))

    def spark_appends(self, table: pa.Table) -> None:
        self.spark.createDataFrame(table).coalesce(1).createOrReplaceTempView("rows")
        self.sql("INSERT INTO @ BY NAME SELECT * FROM rows")
        self.model.append(table)
        self.check("delta-spark's append")

    def append(self, table: pa.Table) -> list[dict[str, Any]]:
        """Append by deltic; return the added files."""
        version = deltic.write(self.uri, table).version
        self.model.append(table)
        self.check("deltic's append")
        return adds(self.uri, version)

    def overwrite(self, table: pa.Table) -> None:
        deltic.write(self.uri, table, mode="overwrite")
        self.model = [table]
        self.check("deltic's overwrite")

    def delete(self, condition: str, keeps: Callable[[dict[str, Any]], bool]) -> None:
        self.sql(f"DELETE FROM @ WHERE {condition}")
        kept = [row for table in self.model for row in table.to_pylist() if keeps(row)]
        self.model = [pa.Table.from_pylist(kept, schema=self.model[0].schema)]
        self.check("delta-spark's DELETE")

    def check(self, step: str) -> None:
        check_checksum(self.spark, self.uri, needed=False)
        wanted = rows(pa.concat_tables(self.model))
        assert rows(self.spark.read.format("delta").load(self.uri).toArrow()) == wanted, f"delta-spark after {step}"
        assert rows(deltic.Table(self.uri).scan().to_arrow()) == wanted, f"deltic after {step}"
        for reader in self.readers:
            assert rows(reader(self.uri)) == wanted, f"{reader.__name__} after {step}"

    def take_turns(self, table: Callable[[int], pa.Table]) -> None:
        """Write `table(1)` to `table(5)` by both clients, with a checkpoint before the second append of deltic."""
        self.append(table(1))
        self.overwrite(table(2))
        self.describe()
        self.spark_appends(table(3))
        deltic.Table(self.uri).checkpoint()
        self.append(table(4))
        self.spark_appends(table(5))
        assert deltic.Table(self.uri).check().ok

    def describe(self) -> None:
        (detail,) = self.spark.sql(f"DESCRIBE DETAIL {self.at}").collect()
        assert detail.numFiles == deltic.Table(self.uri).snapshot().num_files
        latest = self.spark.sql(f"DESCRIBE HISTORY {self.at}").first()
        assert latest is not None
        assert latest["version"] == self.version

    def file(self, add: dict[str, Any]) -> pq.ParquetFile:
        return pq.ParquetFile(Path(self.uri, unquote(add["path"])))


def in_delta_rs(uri: str) -> pa.Table:
    deltalake = pytest.importorskip("deltalake")
    return pa.table(deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri)).execute("SELECT * FROM t"))


def shape(file: pq.ParquetFile) -> list[tuple[str, str | None]]:
    """Every column of a file, at any depth, with its Parquet field id."""

    def walk(field: pa.Field, above: str) -> Iterator[tuple[str, str | None]]:
        path = f"{above}{field.name}"
        yield path, (field.metadata or {}).get(b"PARQUET:field_id", b"").decode() or None
        if pa.types.is_struct(field.type):
            for inner in field.type.fields:
                yield from walk(inner, f"{path}.")
        elif pa.types.is_list(field.type):
            yield from walk(field.type.value_field, f"{path}.")
        elif pa.types.is_map(field.type):
            yield from walk(field.type.key_field, f"{path}.")
            yield from walk(field.type.item_field, f"{path}.")

    return [found for field in file.schema_arrow for found in walk(field, "")]


def newest_adds(uri: str) -> list[dict[str, Any]]:
    return adds(uri, deltic.Table(uri).snapshot().version)


def leaves(statistics: dict[str, Any], above: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in statistics.items():
        found |= leaves(value, f"{above}{name}/") if isinstance(value, dict) else {f"{above}{name}"}
    return found
