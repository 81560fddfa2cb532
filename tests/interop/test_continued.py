"""deltic and other clients continue each other's tables: seeded random steps, compared with a simple model.

Names and partition values are hard to encode: beyond ASCII, with spaces, quotes and percent signs. There are nested
types and extreme values. After each step deltic, the other client and the model have the same rows.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sample import rows

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("teilé", pa.string()),
        ("日", pa.date32()),
        ("größe", pa.float64()),
        ("it's", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("dec", pa.decimal128(20, 4)),
        ("place", pa.struct([("naïve", pa.int32()), ("deep", pa.struct([("x-y", pa.string())]))])),
        ("list", pa.list_(pa.field("element", pa.struct([("k", pa.string()), ("v", pa.int64())])))),
        ("pairs", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int32())))),
    ]
)
PARTITIONS = ["é", "日本 b", "100%", "%C3%A9", 'it\'s "so"', "a/b=c{x}", "ü+&?#", None]
STRINGS = ["", "é", "日本 🐎", "it's", "a\\b\n", "x" * 60, "\U0010ffff" * 40, None]
DOUBLES = [0.0, -0.0, float("nan"), float("inf"), 5e-324, -1.5, None]


def some_rows(rng: random.Random, ids: list[int]) -> dict[int, dict[str, Any]]:
    """A row for each id. One value in twelve is null."""

    def row(n: int) -> dict[str, Any]:
        maybe: Callable[[Any], Any] = lambda value: None if rng.random() < 1 / 12 else value  # noqa: E731
        return {
            "id": n,
            "teilé": rng.choice(PARTITIONS),
            "日": rng.choice([date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]),
            "größe": rng.choice([*DOUBLES, n / 7]),
            "it's": rng.choice([*STRINGS, f"row {n}"]),
            "at": maybe(datetime(2020, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=n * 1_000_003)),
            "dec": maybe(Decimal(n * 12345) / 10000),
            "place": maybe({"naïve": maybe(n), "deep": maybe({"x-y": rng.choice(STRINGS)})}),
            "list": maybe([maybe({"k": rng.choice(STRINGS), "v": maybe(n)}) for _ in range(rng.randrange(3))]),
            "pairs": maybe([(f"k{at}", maybe([n, None])) for at in range(rng.randrange(3))]),
        }

    return {n: row(n) for n in ids}


def table_of(model: dict[int, dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(model.values()), schema=SCHEMA)


@dataclass
class Walk:
    """A table with two writers, its expected rows, and the rows of versions that can be restored."""

    uri: str
    rng: random.Random
    model: dict[int, dict[str, Any]] = field(default_factory=dict)
    past: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    next_id: int = 0

    def fresh(self, count: int) -> dict[int, dict[str, Any]]:
        made = some_rows(self.rng, list(range(self.next_id, self.next_id + count)))
        self.next_id += count
        return made

    def some_ids(self, count: int) -> list[int]:
        return self.rng.sample(sorted(self.model), min(count, len(self.model)))

    def append(self) -> None:
        new = self.fresh(self.rng.randrange(5, 15))
        deltic.write(self.uri, table_of(new))
        self.model.update(new)

    def remove(self) -> None:
        """Remove a partition by deltic, also one whose value another client spelled in the log."""
        value = self.rng.choice([part for part in PARTITIONS if part is not None])
        with deltic.Table(self.uri).transaction() as tx:
            tx.remove(f"`teilé` = '{value.replace(chr(39), chr(39) * 2)}'")
        self.model = {n: row for n, row in self.model.items() if row["teilé"] != value}

    def erase(self) -> None:
        """Delete rows by deltic, with deletion vectors or copy-on-write as the table says."""
        ids = self.some_ids(6)
        commit = deltic.Table(self.uri).delete(f"id IN ({', '.join(map(str, [*ids, -1]))}) OR `it's` = '日本 🐎'")
        before = len(self.model)
        self.model = {n: row for n, row in self.model.items() if n not in ids and row["it's"] != "日本 🐎"}
        assert commit.metrics["numDeletedRows"] == before - len(self.model)

    def checkpoint(self) -> None:
        deltic.Table(self.uri).checkpoint()

    def check(self, theirs: pa.Table, step: str) -> None:
        wanted = rows(table_of(self.model))
        table = deltic.Table(self.uri)
        assert rows(table.scan().to_arrow()) == wanted, f"deltic after {step}"
        assert rows(theirs) == wanted, f"the other client after {step}"
        for filter, keep in (
            ("`teilé` = 'é'", lambda row: row["teilé"] == "é"),
            ("`teilé` IS NULL", lambda row: row["teilé"] is None),
            ("id >= 20 AND id < 40", lambda row: 20 <= row["id"] < 40),
            ("`it's` = '日本 🐎'", lambda row: row["it's"] == "日本 🐎"),
            ("place.`naïve` < 15", lambda row: ((row["place"] or {}).get("naïve") or 99) < 15 or _zero(row)),
        ):
            found = table.scan(columns=["id"], filter=filter).to_arrow()["id"].to_pylist()
            assert sorted(found) == sorted(n for n, row in self.model.items() if keep(row)), f"{filter} after {step}"
        self.past[table.snapshot().version] = dict(self.model)


def _zero(row: dict[str, Any]) -> bool:
    return row["place"] is not None and row["place"]["naïve"] == 0


class DeltaSpark:
    """The steps of delta-spark."""

    def __init__(self, spark: SparkSession, walk: Walk, tmp_path: Path) -> None:
        self.spark, self.walk, self.tmp_path = spark, walk, tmp_path
        self.at = f"delta.`{walk.uri}`"

    def read(self) -> pa.Table:
        return self.spark.read.format("delta").load(self.walk.uri).toArrow()

    def source(self, model: dict[int, dict[str, Any]]) -> None:
        self.spark.createDataFrame(table_of(model)).createOrReplaceTempView("source")

    def insert(self) -> None:
        new = self.walk.fresh(10)
        self.spark.createDataFrame(table_of(new)).write.format("delta").mode("append").save(self.walk.uri)
        self.walk.model.update(new)

    def delete(self) -> None:
        ids = self.walk.some_ids(8)
        self.spark.sql(f"DELETE FROM {self.at} WHERE id IN ({', '.join(map(str, [*ids, -1]))})")
        for n in ids:
            del self.walk.model[n]

    def merge(self) -> None:
        changed = {**some_rows(self.walk.rng, self.walk.some_ids(8)), **self.walk.fresh(4)}
        self.source(changed)
        self.spark.sql(
            f"MERGE INTO {self.at} t USING source s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self.walk.model.update(changed)

    def update(self) -> None:
        ids = self.walk.some_ids(5)
        self.spark.sql(f"UPDATE {self.at} SET `teilé` = '日本 b' WHERE id IN ({', '.join(map(str, [*ids, -1]))})")
        for n in ids:
            self.walk.model[n] = {**self.walk.model[n], "teilé": "日本 b"}

    def optimize(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.at}")

    def vacuum(self) -> None:
        self.spark.sql(f"VACUUM {self.at} RETAIN 0 HOURS")
        self.walk.past.clear()

    def restore(self) -> None:
        if self.walk.past:
            version = self.walk.rng.choice(sorted(self.walk.past))
            self.spark.sql(f"RESTORE TABLE {self.at} TO VERSION AS OF {version}")
            self.walk.model = dict(self.walk.past[version])

    def clone(self) -> None:
        """Continue with a shallow clone; the source stays, and keeps its files."""
        base, self.walk.uri = self.walk.uri, str(self.tmp_path / "clone é 2")
        self.at = f"delta.`{self.walk.uri}`"
        self.spark.sql(f"CREATE TABLE {self.at} SHALLOW CLONE delta.`{base}`")
        self.walk.past.clear()

    def stream(self) -> pa.Table:
        """All rows of the table, read by a new stream."""
        target, checkpoints = str(self.tmp_path / "streamed"), str(self.tmp_path / "checkpoints")
        reader = self.spark.readStream.format("delta").load(self.walk.uri)
        writer = reader.writeStream.format("delta").option("checkpointLocation", checkpoints)
        writer.trigger(availableNow=True).start(target).awaitTermination()
        found = self.spark.read.format("delta").load(target).toArrow()
        shutil.rmtree(target)
        shutil.rmtree(checkpoints)
        return found


@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
def test_delta_spark_continues_what_deltic_began(spark: SparkSession, tmp_path: Path, vectors: bool) -> None:
    """Each case takes half of the shuffled steps."""
    walk = Walk(str(tmp_path / "tafel é 100% 日本"), random.Random(7))
    walk.model = walk.fresh(40)
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    deltic.write(walk.uri, table_of(walk.model), partition_by=["teilé"], properties=properties)
    theirs = DeltaSpark(spark, walk, tmp_path)
    ours = [walk.append, walk.append, walk.erase, walk.erase, walk.remove, walk.checkpoint]
    steps = [theirs.insert, theirs.delete, theirs.merge, theirs.update, theirs.restore, theirs.optimize, *ours]
    walk.rng.shuffle(steps)
    steps = [*steps[int(vectors) :: 2], theirs.vacuum]
    if not vectors:
        steps += [theirs.clone, walk.append, theirs.vacuum]
    walk.check(theirs.read(), "the first write")
    for step in steps:
        step()
        walk.check(theirs.read(), step.__name__)
    assert rows(theirs.stream()) == rows(table_of(walk.model))


def test_delta_rs_continues_what_deltic_began(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    walk = Walk(str(tmp_path / "tafel"), random.Random(3))

    def opened() -> Any:
        return deltalake.DeltaTable(walk.uri)

    def read() -> pa.Table:
        found = pa.table(deltalake.QueryBuilder().register("t", opened()).execute("SELECT * FROM t"))
        return found.cast(table_of({}).select(found.schema.names).schema)

    def vacuum() -> None:
        opened().vacuum(0, dry_run=False, enforce_retention_duration=False)

    def compact() -> None:
        opened().optimize.compact()

    def delete() -> None:
        ids = walk.some_ids(8)
        opened().delete(f"id IN ({', '.join(map(str, ids))})")
        for n in ids:
            del walk.model[n]

    walk.model = walk.fresh(40)
    deltic.write(walk.uri, table_of(walk.model), partition_by=["teilé"])
    walk.check(read(), "the first write")
    steps = [vacuum, walk.append, walk.erase, compact, vacuum, walk.remove, delete, walk.erase, walk.append, vacuum]
    for step in [*steps, compact, vacuum]:
        step()
        walk.check(read(), step.__name__)
