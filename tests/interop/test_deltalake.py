"""deltic and delta-rs (the `deltalake` package) read each other's tables."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import FILTERS, with_reused_sidecars
from sample import log_actions, rows

import deltic

deltalake = pytest.importorskip("deltalake")

COARSE_CLOCK_MS = 20


def part(table: pa.Table, start: int, length: int) -> pa.Table:
    """Copy rows of a table: delta-rs 1.6 aborts the process on a sliced struct array."""
    return table.take(list(range(start, min(start + length, table.num_rows))))


def theirs(uri: str, version: int | None = None) -> pa.Table:
    return pa.table(deltalake.DeltaTable(uri, version=version).to_pyarrow_table())


def query(uri: str, filter: str) -> pa.Table:
    """Query with delta-rs' own engine, which prunes files by deltic's statistics."""
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
    return pa.table(builder.execute(f"SELECT id FROM t WHERE {filter}"))


@pytest.mark.parametrize("partition_by", [None, ["month"], ["origin", "month"]])
def test_they_read_what_deltic_wrote(uri: str, flights: pa.Table, partition_by: list[str] | None) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=partition_by)
    assert deltalake.DeltaTable(uri).version() == 2
    assert rows(theirs(uri)) == rows(flights)
    assert rows(theirs(uri, version=0)) == rows(flights.slice(0, 40))
    for filter in FILTERS:
        ours = deltic.Table(uri).scan(columns=["id"], filter=filter).to_arrow()
        assert rows(query(uri, filter)) == rows(ours), filter


@pytest.mark.parametrize("partition_by", [None, ["month"], ["origin", "month"]])
def test_deltic_reads_what_they_wrote(uri: str, flights: pa.Table, partition_by: list[str] | None) -> None:
    for start in range(0, 120, 40):
        deltalake.write_deltalake(uri, part(flights, start, 40), mode="append", partition_by=partition_by)
    table = deltic.Table(uri)
    assert table.snapshot().version == 2
    assert table.snapshot().partition_columns == (partition_by or [])
    assert rows(table.scan().to_arrow()) == rows(flights)
    assert rows(table.snapshot(0).scan().to_arrow()) == rows(flights.slice(0, 40))
    for filter in FILTERS:
        ours = table.scan(columns=["id"], filter=filter).to_arrow()
        assert rows(ours) == rows(query(uri, filter)), filter


def test_statistics_of_either_prune_for_deltic(tmp_path: Path, flights: pa.Table) -> None:
    for name in ("ours", "theirs"):
        uri = str(tmp_path / name)
        for start in range(0, 120, 40):
            if name == "ours":
                deltic.write(uri, flights.slice(start, 40))
            else:
                deltalake.write_deltalake(uri, part(flights, start, 40), mode="append")
        plan = deltic.Table(uri).plan(filter="id BETWEEN 45 AND 50")
        assert (plan.files_kept, plan.skipped["statistics"]) == (1, 2), name


def test_their_deletes_overwrites_and_checkpoints(uri: str, flights: pa.Table) -> None:
    deltalake.write_deltalake(uri, flights, partition_by=["month"])
    deltalake.DeltaTable(uri).delete("id < 60")
    assert deltic.Table(uri).scan().to_arrow().num_rows == 60
    deltalake.DeltaTable(uri).create_checkpoint()
    Path(uri, "_delta_log", f"{0:020}.json").unlink()
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(60))
    deltalake.write_deltalake(uri, part(flights, 0, 5), mode="overwrite")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(0, 5))


def test_they_read_deltics_checkpoint(uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=["month"])
    assert deltic.Table(uri).checkpoint() == 2
    for version in range(3):
        Path(uri, "_delta_log", f"{version:020}.json").unlink()
    assert rows(theirs(uri)) == rows(flights)
    assert rows(query(uri, "id BETWEEN 45 AND 50")) == rows(flights.select(["id"]).slice(45, 6))


def test_they_read_reused_sidecars(uri: str, flights: pa.Table) -> None:
    left = with_reused_sidecars(uri, flights)
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(left)
    # Of delta-rs' readers only its own engine supports V2 checkpoints.
    assert rows(query(uri, "TRUE")) == rows(left.select(["id"]))
    for filter in FILTERS:
        ours = deltic.Table(uri).scan(columns=["id"], filter=filter).to_arrow()
        assert rows(query(uri, filter)) == rows(ours), filter


def test_writers_take_turns(uri: str, flights: pa.Table) -> None:
    deltic.write(uri, flights.slice(0, 30), partition_by=["month"])
    deltalake.write_deltalake(uri, part(flights, 30, 30), mode="append")
    deltic.write(uri, flights.slice(60, 30))
    deltalake.write_deltalake(uri, part(flights, 90, 30), mode="append")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights)
    assert rows(theirs(uri)) == rows(flights)
    assert deltalake.DeltaTable(uri).version() == deltic.Table(uri).snapshot().version == 3


def test_they_understand_deltics_history(uri: str, flights: pa.Table) -> None:
    deltic.write(uri, flights, user_metadata="why")
    (entry,) = deltalake.DeltaTable(uri).history()
    assert entry["userMetadata"] == "why"
    # delta-rs returns the commit info's timestamp, deltic the file's modification time, as time travel uses it. File
    # systems use a clock that is some milliseconds behind.
    assert 0 <= deltic.Table(uri).history()[0]["timestamp"] - entry["timestamp"] + COARSE_CLOCK_MS < 60_000
    (info,) = [action["commitInfo"] for action in log_actions(uri, 0) if "commitInfo" in action]
    assert entry["engineInfo"] == info["engineInfo"]


def test_an_overwrite_of_theirs_by_deltic(uri: str, flights: pa.Table) -> None:
    deltalake.write_deltalake(uri, flights, partition_by=["month"])
    deltic.write(uri, flights.slice(0, 7), mode="overwrite")
    assert rows(theirs(uri)) == rows(flights.slice(0, 7))
    assert rows(theirs(uri, version=0)) == rows(flights)


@pytest.mark.parametrize("zone", ["UTC", None])
def test_they_find_rows_at_the_last_instant(uri: str, zone: str | None) -> None:
    """The last instant of 9999 often means "valid forever". delta-rs treats a missing bound as null."""
    kind = pa.timestamp("us", zone)
    instants = pa.array([0, 253_402_300_799_999_999], pa.int64()).cast(kind)
    deltic.write(uri, pa.table({"id": [1, 2], "until": instants}))
    dataset = deltalake.DeltaTable(uri).to_pyarrow_dataset()
    written = ["1970-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z"]
    for at, (instant, text) in enumerate(zip(instants, written, strict=True), 1):
        assert dataset.to_table(filter=pc.field("until") == instant)["id"].to_pylist() == [at]
        literal = f"TIMESTAMP '{text}'" if zone else f"TIMESTAMP_NTZ '{text[:-1]}'"
        assert deltic.Table(uri).scan(["id"], filter=f"until = {literal}").to_arrow()["id"].to_pylist() == [at]
