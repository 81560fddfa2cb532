"""deltic reads every table that `recipes` creates with delta-spark: the same rows as delta-spark.

Compared are every version and every range of changes, without and with random filters. `DELTIC_FILTER_SEEDS=20` tests
twenty times as many filters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from recipes import RECIPES
from recording import Feed, Made, Maker, Unsupported, Version
from sample import rows

import deltic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Scan = Callable[..., pa.Table]
COMPARED: Counter[str] = Counter()
"""Number of comparisons by table."""
SHOWN = 5
"""Number of differing rows of each side that a failure shows."""


@pytest.fixture(scope="session")
def tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[Made]]]:
    """The tables of the selected tests. Two are created at a time, in the background."""

    def make(name: str) -> Made:
        maker = Maker(spark, name, str(tmp_path_factory.mktemp(name) / "table"))
        RECIPES[name](maker)
        return maker.finish()

    chosen = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    pool = ThreadPoolExecutor(2)
    yield {name: pool.submit(make, name) for name in RECIPES if name in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def made(tables: dict[str, Future[Made]], name: str) -> Made:
    try:
        return tables[name].result()
    except Unsupported as reason:
        pytest.skip(f"this delta-spark does not make {name}: {reason}")


def check(made: Made, place: str, filter: str | None, theirs: Counter[Any], ours: Counter[Any]) -> None:
    """Check that both read the same rows."""
    if ours != theirs:
        lines = [f"{made.name}, {place}, filter {filter}: Spark has {theirs.total()} rows, deltic {ours.total()}"]
        for who, some in [("Spark", theirs - ours), ("deltic", ours - theirs)]:
            lines += [f"  {who} alone has {count} times {row}" for row, count in list(some.items())[:SHOWN]]
        pytest.fail("\n".join([*lines, f"  the table is at {made.uri}"]))
    COMPARED[made.name] += 1


def readable(made: Made, table: pa.Table) -> pa.Table:
    """Convert variants to JSON, as in Spark's records, since a value has many encodings."""
    from pyspark.sql.types import VariantVal

    for name in made.variants & set(table.schema.names):
        values = table.column(name).to_pylist()
        texts = [None if v is None else VariantVal(v["value"], v["metadata"]).toJson() for v in values]
        table = table.set_column(table.schema.names.index(name), name, pa.array(texts, pa.string()))
    return table


def check_all(made: Made, place: str, seen: Version, scan: Scan) -> None:
    """Check rows, types, and the rows of each filter: only ids for most filters, all columns for every fifth."""
    names = seen.rows.schema.names
    whole = readable(made, scan(columns=names, filter=None))
    simple = [field for field in seen.rows.schema if not pa.types.is_nested(field.type)]
    assert [whole.schema.field(field.name).type for field in simple] == [field.type for field in simple], place
    check(made, place, None, rows(seen.rows), rows(whole))
    for index, decided in enumerate(seen.decided):
        columns = names if index % 5 == 0 else ["id"]
        ours = scan(columns=columns, filter=decided.filter.ours)
        theirs = decided.rows.select(columns).filter(pc.fill_null(decided.holds, False))
        check(made, place, decided.filter.ours, rows(theirs), rows(readable(made, ours)))


@pytest.mark.some(10)
@pytest.mark.parametrize("name", RECIPES)
def test_versions(made: Made) -> None:
    table = deltic.Table(made.uri)
    assert table.snapshot().version == max(made.versions)
    for version, seen in made.versions.items():
        snapshot = table.snapshot(version)
        assert snapshot.schema.names == [name for name in seen.rows.schema.names if name not in made.columns]
        check_all(made, f"version {version}", seen, lambda scan=snapshot.scan, **query: scan(**query).to_arrow())


FEEDS = ["changes", "changes_without_deletion_vectors"]
TIMES = ["commit_times", "commit_times_later"]


@pytest.mark.parametrize("name", FEEDS)
def test_changes(made: Made) -> None:
    assert made.feeds
    table = deltic.Table(made.uri)
    for feed in made.feeds:

        def scan(columns: Sequence[str], filter: str | None, feed: Feed = feed) -> pa.Table:
            return table.changes(feed.start, feed.end, columns, filter).to_arrow()

        check_all(made, f"changes {feed.start} to {feed.end}", feed.seen, scan)


@pytest.mark.parametrize("name", TIMES)
def test_times(made: Made) -> None:
    assert len(made.times) > len(made.versions)
    table = deltic.Table(made.uri)
    for at, theirs in made.times.items():
        ours = table.snapshot(timestamp=datetime.fromtimestamp(at / 1000, timezone.utc)).scan(["id"]).to_arrow()
        check(made, f"{at} ms", None, rows(theirs), rows(ours))


@pytest.mark.parametrize("name", ["clustering"])
def test_domains(made: Made) -> None:
    assert len(made.clustered) == 3
    for version, columns in made.clustered.items():
        domain = json.loads(deltic.Table(made.uri).snapshot(version).domains()["delta.clustering"])
        assert [".".join(path) for path in domain["clusteringColumns"]] == columns, f"version {version}"
