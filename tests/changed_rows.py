"""A table and a simple model of it: after every commit, rows, change data feed and row ids are compared.

The column `n` is unique and identifies a row across commits.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltic

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
IDS = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
TIMES = {"delta.enableInCommitTimestamps": "true"}
PROPERTIES: list[dict[str, str]] = [
    dict(itertools.chain(*(p.items() for p in chosen)))
    for n in range(5)
    for chosen in itertools.combinations([VECTORS, FEED, IDS, MAPPED], n)
]

FEW = [PROPERTIES[0], *PROPERTIES[11:15]]
"""No feature, and all combinations of three, for slow tests."""

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("p", pa.string()),
        ("k", pa.int32()),
        ("d", pa.float64()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("l", pa.list_(pa.field("element", pa.string()))),
    ]
)

COPIES_AND_VECTORS = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])

STOCK = pa.table({"shop": ["a", "a", "b", "b", "c"], "item": ["nut", "bolt", "nut", "gear", "bolt"], "left": range(5)})

Row = dict[str, Any]


def made(uri: str, properties: dict[str, str] | None = None, rows: pa.Table = STOCK) -> deltic.Table:
    """Write a table partitioned by shop, with one file for each shop."""
    deltic.write(uri, rows, partition_by=["shop"], properties=properties)
    return deltic.Table(uri)


def stock(table: Any) -> list[tuple[Any, ...]]:
    """The rows of a table, snapshot or transaction, sorted."""
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def ids(table: Any) -> list[Any]:
    """The values of the column `id` of a table or snapshot, sorted."""
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def files_of(uri: str) -> set[str]:
    """All files below a table's root except its log."""
    found = (path.relative_to(uri) for path in Path(uri).rglob("*") if path.is_file())
    return {path.as_posix() for path in found if path.parts[0] != "_delta_log"}


def read_by_spark(spark: Any, uri: str) -> pa.Table:
    """The rows that delta-spark reads."""
    rows: pa.Table = spark.read.format("delta").load(uri).toArrow()
    return rows


def counted(changes: list[Row]) -> Counter[str]:
    """The rows of a change data feed as a multiset."""
    return Counter(f"{key(row)} {row['_change_type']}" for row in changes)


def label(properties: dict[str, str]) -> str:
    """The name of a case."""
    names = [name.removeprefix("delta.").removeprefix("enable") for name in properties]
    return "-".join(names) or "plain"


def some_row(rng: random.Random, n: int) -> Row:
    """A random row, in which a tenth of the values are null."""

    def value(choices: Any) -> Any:
        return None if rng.random() < 0.1 else rng.choice(choices)

    return {
        "n": n,
        "p": value(["a", "b", "c"]),
        "k": value(range(9)),
        "d": value([0.0, 1.5, float("nan"), -0.0, float("inf")]),
        "s": value([{"x": value(range(4)), "y": value(["x", "ÿ", "long " * 9])}]),
        "l": value([[], ["a"], [None, "b"]]),
    }


def key(row: Row) -> str:
    """A comparable form of a row, in which NaN equals NaN."""
    return repr([row[name] for name in SCHEMA.names])


def same(found: Counter[Any], wanted: Counter[Any]) -> None:
    """Compare two multisets; a failure lists the surplus and the missing rows."""
    assert found == wanted, f"too many: {sorted(map(str, found - wanted))}, missing: {sorted(map(str, wanted - found))}"


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table of the schema."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


@dataclass
class Changed:
    """A table and its expected rows and row ids, by `n`."""

    uri: str
    properties: dict[str, str]
    rows: dict[int, Row] = field(default_factory=dict)
    ids: dict[int, tuple[int, int]] = field(default_factory=dict)
    fresh: int = 0

    @classmethod
    def create(cls, uri: str, properties: dict[str, str], partitioned: bool) -> Changed:
        """Create an empty table."""
        by = ["p"] if partitioned else None
        deltic.write(uri, SCHEMA.empty_table(), partition_by=by, properties=properties)
        return cls(uri, properties)

    def new_rows(self, rng: random.Random, count: int) -> dict[int, Row]:
        """Random rows with new values of `n`."""
        self.fresh += count
        return {n: some_row(rng, n) for n in range(self.fresh - count, self.fresh)}

    def append(self, rng: random.Random, count: int) -> None:
        """Append random rows and check the table."""
        new = self.new_rows(rng, count)
        deltic.write(self.uri, table_of(new.values()))
        self.check({**self.rows, **new}, set())

    def check(self, after: dict[int, Row], updated: set[int], *others: pa.Table) -> None:
        """Check the table after a commit: `after` has the expected rows, `updated` the `n` of updated rows.

        `others`: the rows that other clients read.
        """
        table = deltic.Table(self.uri)
        wanted = Counter(map(key, after.values()))
        same(Counter(map(key, table.scan().to_arrow().to_pylist())), wanted)
        for rows in others:
            same(Counter(map(key, rows.to_pylist())), wanted)
        checked = table.check(files=True)
        assert checked.ok, checked
        version = table.snapshot().version
        if "delta.enableChangeDataFeed" in self.properties:
            changes = table.changes(version, version).to_arrow().to_pylist()
            same(Counter((key(row), row["_change_type"]) for row in changes), self.feed(after, updated))
        if "delta.enableRowTracking" in self.properties:
            self.check_ids(table, after, updated)
        self.rows = after

    def feed(self, after: dict[int, Row], updated: set[int]) -> Counter[tuple[str, str]]:
        """The expected change data feed of the commit."""
        before = self.rows
        expected = [(key(before[n]), "delete") for n in before.keys() - after.keys()]
        expected += [(key(after[n]), "insert") for n in after.keys() - before.keys()]
        expected += [(key(before[n]), "update_preimage") for n in updated]
        expected += [(key(after[n]), "update_postimage") for n in updated]
        return Counter(expected)

    def check_ids(self, table: deltic.Table, after: dict[int, Row], updated: set[int]) -> None:
        """Check that row ids are stable and unique, and that commit versions are those of each row's last change."""
        version = table.snapshot().version
        columns = ["n", "_metadata.row_id", "_metadata.row_commit_version"]
        rows = table.scan(columns=columns).to_arrow().to_pylist()
        found = {row["n"]: (row["_metadata.row_id"], row["_metadata.row_commit_version"]) for row in rows}
        greatest = max((row_id for row_id, _ in self.ids.values()), default=-1)
        for n, (row_id, changed) in found.items():
            if n not in self.rows:
                assert row_id > greatest, "a new row gets a new row id"
                assert changed == version
            else:
                assert row_id == self.ids[n][0], "a row keeps its row id"
                assert changed == (version if n in updated else self.ids[n][1])
        assert len({row_id for row_id, _ in found.values()}) == len(after)
        self.ids |= found
