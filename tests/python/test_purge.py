"""PURGE: live files contain only live rows and columns; older files that still hold purged rows are reported."""

from __future__ import annotations

import json
import os
import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed_rows import FEED, IDS, MAPPED, PROPERTIES, VECTORS, Changed, Row, label, table_of
from log_files import Log

import deltic
from deltic import InvalidInputError, Table, cli


def live(table: Table, version: int | None = None) -> list[dict[str, Any]]:
    """The adds of a version, by replaying its commits."""
    files: dict[str, dict[str, Any]] = {}
    last = table.snapshot(version).version
    for commit in range(last + 1):
        for action in sorted(Log(table.uri).read(commit), key=lambda action: "add" in action):
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
    return list(files.values())


def stored(table: Table, path: str) -> pa.Table:
    """The content of a data file, including deleted rows and dropped columns."""
    return pq.ParquetFile(Path(table.uri) / unquote(path)).read()


def physical(table: Table) -> set[str]:
    """The physical names of the columns."""
    schema = json.loads(table.snapshot().metadata["schemaString"])
    names = {f["metadata"].get("delta.columnMapping.physicalName", f["name"]) for f in schema["fields"]}
    hidden = {v for k, v in table.snapshot().properties.items() if k.startswith("delta.rowTracking.materialized")}
    return names | hidden


def assert_clean(table: Table) -> None:
    """Check that no live file has a deletion vector or a dropped column."""
    names = physical(table)
    for add in live(table):
        assert not add.get("deletionVector"), add
        assert set(stored(table, add["path"]).column_names) <= names, add


def change(model: Changed, rng: random.Random) -> None:
    """Make a random commit that adds, deletes or updates rows."""
    table = Table(model.uri)
    kind = rng.choice(["append", "delete", "update"])
    if kind == "append" or not model.rows:
        model.append(rng, rng.randrange(1, 9))
        return
    chosen = set(rng.sample(sorted(model.rows), rng.randrange(1, len(model.rows) + 1)))
    where = f"n IN ({', '.join(map(str, sorted(chosen)))})"
    if kind == "delete":
        table.delete(where)
        model.check({n: row for n, row in model.rows.items() if n not in chosen}, set())
    else:
        table.update({"k": "7"}, where)
        model.check({n: {**row, "k": 7} if n in chosen else row for n, row in model.rows.items()}, chosen)


def forget(model: Changed, rng: random.Random) -> None:
    """Purge random rows, some of which are deleted already."""
    table = Table(model.uri)
    chosen = set(rng.sample(range(model.fresh), rng.randrange(1, model.fresh + 1)))
    where = f"n IN ({', '.join(map(str, sorted(chosen)))})"
    plan = table.purge(where, dry_run=True)
    before = table.snapshot().version
    result = table.purge(where)
    after: dict[int, Row] = {n: row for n, row in model.rows.items() if n not in chosen}
    assert plan.rows_deleted == result.rows_deleted == len(model.rows) - len(after)
    assert table.snapshot().version == before + len(result.versions)
    if FEED.items() <= model.properties.items() and result.rows_deleted:
        found = table.changes(result.versions[0], table.snapshot().version).to_arrow().to_pylist()
        assert sorted((row["n"], row["_change_type"]) for row in found) == [
            (n, "delete") for n in sorted(model.rows.keys() - after.keys())
        ]
    if IDS.items() <= model.properties.items():
        model.check_ids(table, after, set())
    model.rows = after
    retained = result.retained
    assert retained is not None
    assert (retained.versions, set(retained.paths)) == holders(table, chosen)
    assert retained.files + retained.change_files == len(retained.paths)


def holders(table: Table, chosen: set[int]) -> tuple[list[int], set[str]]:
    """The versions and files that hold one of these rows, found by reading all files."""
    versions, paths = set(), set()
    for version in range(table.snapshot().version + 1):
        changes = [action["cdc"] for action in Log(table.uri).read(version) if "cdc" in action]
        for file in [*live(table, version), *changes]:
            names = {f["name"]: f["metadata"] for f in json.loads(table.snapshot().metadata["schemaString"])["fields"]}
            name = names["n"].get("delta.columnMapping.physicalName", "n")
            try:
                numbers = stored(table, file["path"])[name].to_pylist()
            except FileNotFoundError:
                continue
            if chosen & set(numbers):
                versions.add(version)
                paths.add(file["path"])
    return sorted(versions), paths


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("properties", PROPERTIES, ids=label)
def test_random_histories(uri: str, properties: dict[str, str], partitioned: bool) -> None:
    rng = random.Random(f"{properties} {partitioned}")
    model = Changed.create(uri, properties, partitioned)
    model.append(rng, 9)
    for _ in range(4):
        for _ in range(rng.randrange(1, 4)):
            change(model, rng)
        table = Table(uri)
        version = table.snapshot().version
        if rng.random() < 0.5:
            vectors = [add for add in live(table) if add.get("deletionVector")]
            result = table.purge()
            assert (result.files_with_vectors, result.files_with_dropped_columns) == (len(vectors), 0)
            assert (len(result.versions) > 0) == (len(vectors) > 0)
            if result.versions:
                model.check(model.rows, set())
        else:
            forget(model, rng)
        assert_clean(table)
        for made in range(version + 1, table.snapshot().version + 1):
            info = next(action["commitInfo"] for action in Log(uri).read(made) if "commitInfo" in action)
            changes = [a for action in Log(uri).read(made) for a in action.values() if a.get("dataChange")]
            assert (info["operation"] == "REORG") == (not changes)


@pytest.mark.slow
def test_dropped_columns_are_removed(uri: str) -> None:
    data = pa.table({"a": [1, 2], "b": ["secret", "x"], "s": pa.array([{"x": 1, "y": "inner"}, None])})
    for mode in ("name", "id"):
        place = f"{uri}-{mode}"
        deltic.write(place, data, properties={"delta.columnMapping.mode": mode, **IDS})
        table = Table(place)
        assert table.purge().versions == []
        table.drop_columns("b")
        deltic.write(table, pa.table({"a": [3], "s": pa.array([{"x": 5, "y": "new"}])}))
        result = table.purge()
        assert (result.files_with_dropped_columns, result.files_to_rewrite, result.files_total) == (1, 1, 2)
        assert_clean(table)
        table.drop_columns("s.y")
        table.rename_column("a", "c")
        assert table.purge().files_with_dropped_columns == 2
        for add in live(table):
            assert b"inner" not in (Path(place) / unquote(add["path"])).read_bytes()
        assert table.purge().versions == []
        rows = table.scan().to_arrow().sort_by("c").to_pylist()
        assert rows == [{"c": 1, "s": {"x": 1}}, {"c": 2, "s": None}, {"c": 3, "s": {"x": 5}}]


@pytest.mark.slow
def test_purged_rows_are_in_no_file_after_a_vacuum(uri: str) -> None:
    tokens = [uuid.UUID(int=random.Random(n).getrandbits(128)).hex for n in range(6)]

    def data(*numbers: int) -> pa.Table:
        return pa.table({"n": list(numbers), "token": [tokens[n] for n in numbers], "v": [0] * len(numbers)})

    # Uncompressed, so that the bytes of strings can be searched.
    plain = {"delta.parquet.compression.codec": "uncompressed"}
    properties = {**VECTORS, **FEED, **IDS, **MAPPED, **plain}
    deltic.write(uri, data(0, 1, 2), properties=properties)
    table = Table(uri)
    deltic.write(table, data(3, 4))
    table.update({"v": "1"}, "n = 0")
    table.delete("n = 4")
    table.optimize()

    def files_with(token: str) -> set[str]:
        found = (p for p in Path(uri).rglob("*") if p.is_file() and "_delta_log" not in p.parts)
        return {p.relative_to(uri).as_posix() for p in found if token.encode() in p.read_bytes()}

    for number in (0, 4):
        assert files_with(tokens[number])
        result = table.purge(f"n = {number}")
        retained = result.retained
        assert retained is not None
        assert result.rows_deleted == (1 if number == 0 else 0)
        assert {unquote(path) for path in retained.paths} == files_with(tokens[number])
        sizes = sum((Path(uri) / path).stat().st_size for path in files_with(tokens[number]))
        assert retained.bytes + retained.change_bytes == sizes
        assert retained.change_files > 0 or number == 4
        # The retention is a week, so a vacuum would delete nothing yet.
        assert (retained.vacuum_files, retained.vacuum_bytes, retained.files_elsewhere) == (0, 0, 0)
        assert retained.vacuum_from is not None
        assert timedelta(days=6.9) < retained.vacuum_from - datetime.now(timezone.utc) < timedelta(days=7.1)
        assert "from " in repr(result)
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    retained = table.purge("n = 0", dry_run=True).retained
    assert retained is not None
    assert retained.vacuum_files == len(retained.paths) > 0
    table.vacuum(0, force=True)
    assert files_with(tokens[0]) == files_with(tokens[4]) == set()
    assert all(files_with(tokens[number]) for number in (1, 2, 3))
    nothing = table.purge("n = 0", dry_run=True).retained
    assert nothing is not None
    assert (nothing.versions, nothing.paths, nothing.vacuum_from) == ([], [], None)


def test_versions_without_commit_files_are_searched(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}))
    table = Table(uri)
    deltic.write(table, pa.table({"n": [3]}))
    table.checkpoint()
    for version in range(2):
        (Path(uri) / f"_delta_log/{version:020}.json").unlink()
    retained = table.purge("n = 1").retained
    assert retained is not None
    assert (retained.versions, retained.files) == ([1], 1)


def retained_by(table: Table, where: str) -> deltic.RetainedRows:
    retained = table.purge(where).retained
    assert retained is not None
    return retained


@pytest.mark.parametrize(("then", "now"), [(["p"], []), ([], ["p"]), (["p"], ["v"])])
def test_versions_with_other_partition_columns_may_hold_rows(uri: str, then: list[str], now: list[str]) -> None:
    deltic.write(uri, pa.table({"p": ["x", "y"], "v": [1, 2]}), partition_by=then)
    new = pa.table({"p": ["z"], "v": [9]})
    deltic.write(uri, new, mode="overwrite", schema_mode="overwrite", partition_by=now)
    retained = retained_by(Table(uri), "p = 'x'")
    assert (retained.versions, retained.files_unreadable) == ([0], retained.files)


@pytest.mark.parametrize(("then", "now", "where"), [(["5", "50"], [7], "n = 50"), ([5, 50, 100], ["7"], "n = '50'")])
def test_versions_with_other_types_may_hold_rows(uri: str, then: list[Any], now: list[Any], where: str) -> None:
    deltic.write(uri, pa.table({"n": then}))
    deltic.write(uri, pa.table({"n": now}), mode="overwrite", schema_mode="overwrite")
    retained = retained_by(Table(uri), where)
    assert (retained.versions, retained.files, retained.files_unreadable) == ([0], 1, 1)


def test_another_column_of_the_same_name_may_hold_rows(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1], "e": ["gone"]}), properties=MAPPED)
    table = Table(uri)
    table.drop_columns("e")
    deltic.write(uri, pa.table({"n": [2], "e": ["new"]}), schema_mode="merge")
    assert 0 in retained_by(Table(uri), "e = 'gone'").versions


def test_files_of_widened_columns_are_searched(uri: str) -> None:
    data = pa.table({"n": pa.array([1, 2], pa.int32())})
    deltic.write(uri, data, properties={"delta.enableTypeWidening": "true"})
    table = Table(uri)
    table.alter_column("n", type="long")
    assert retained_by(table, "n > 3000000000").files == 0
    retained = retained_by(table, "n = 2")
    assert (retained.versions, retained.files, retained.files_unreadable) == ([0, 1], 1, 0)


def test_files_removed_before_the_oldest_version_are_searched(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2], "e": ["gone", "x"]}))
    table = Table(uri)
    table.update({"e": "'new'"}, "n = 1")
    table.checkpoint()
    for version in range(2):
        (Path(uri) / f"_delta_log/{version:020}.json").unlink()
        (Path(uri) / f"_delta_log/{version:020}.crc").unlink()
    retained = retained_by(Table(uri), "e = 'gone'")
    assert (retained.versions, retained.files) == ([], 1)
    assert retained.vacuum_from is not None
    text = repr(table.purge("e = 'gone'"))
    assert "no version that can be read" in text
    assert "which a full vacuum deletes" in text


def test_removed_files_of_another_partitioning_may_hold_rows(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["x", "y"], "n": [1, 2]}), partition_by="p")
    deltic.write(uri, pa.table({"p": ["z"], "n": [3]}), mode="overwrite", schema_mode="overwrite", partition_by=[])
    table = Table(uri)
    table.checkpoint()
    for version in range(2):
        Path(uri, "_delta_log", f"{version:020}.json").unlink()
    retained = retained_by(table, "p = 'x'")
    assert retained.files_unreadable == retained.files == 2


def test_a_file_that_is_added_again_is_retained_until_it_is_removed(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}))
    table = Table(uri)
    table.enable_row_tracking()
    deltic.write(uri, pa.table({"n": [3]}))
    newest = table.snapshot().version
    retained = retained_by(table, "n = 1")
    assert retained.versions == list(range(newest + 1))


def test_statistics_of_a_file_with_a_vector_do_not_exclude_rows(uri: str) -> None:
    now = {
        "delta.deletedFileRetentionDuration": "interval 0 seconds",
        "delta.logRetentionDuration": "interval 0 seconds",
    }
    deltic.write(uri, pa.table({"v": range(1, 11)}), properties=VECTORS | now)
    table, log = Table(uri), Log(uri)
    table.delete("v > 5")
    (marked,) = log.of(1, "add")
    tight = {"numRecords": 10, "tightBounds": True, "minValues": {"v": 1}, "maxValues": {"v": 5}, "nullCount": {"v": 0}}
    version = log.append([{"add": {**marked, "stats": json.dumps(tight), "dataChange": False}}])
    log.path(version, "crc").unlink(missing_ok=True)
    Table(uri).checkpoint()
    log.remove(0, 1)
    retained = Table(uri).purge("v = 9", dry_run=True).retained
    assert retained is not None
    assert (retained.files, retained.versions) == (1, [version])


def test_the_retention_starts_with_the_in_commit_timestamp(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.enableInCommitTimestamps": "true"})
    deltic.write(uri, pa.table({"n": [3]}), mode="overwrite")
    for path in Path(uri, "_delta_log").glob("*.json"):
        os.utime(path, (10**9, 10**9))
    retained = retained_by(Table(uri), "n = 1")
    assert (retained.files, retained.vacuum_files) == (1, 0)
    assert retained.vacuum_from is not None
    assert retained.vacuum_from > datetime.now(timezone.utc) + timedelta(days=6)


@pytest.mark.slow
def test_dropping_vectors_keeps_files_without_them(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1], "gone": [1]}), properties={**MAPPED, **VECTORS})
    deltic.write(uri, pa.table({"n": [2], "gone": [2]}))
    table = Table(uri)
    table.drop_columns("gone")
    before = set(table.files().read_all()["path"].to_pylist())
    table.drop_feature("deletionVectors")
    assert set(table.files().read_all()["path"].to_pylist()) == before


def test_missing_source_files_of_a_clone_may_hold_rows(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    source, clone = str(tmp_path / "mounted" / "source"), str(tmp_path / "clone")
    deltic.write(source, pa.table({"n": [1, 2]}))
    Table(source).clone(clone)
    deltic.write(clone, pa.table({"n": [9]}), mode="overwrite")
    (tmp_path / "mounted").rename(tmp_path / "unmounted")
    retained = retained_by(Table(clone), "n = 1")
    assert (retained.versions, retained.files_unreadable, retained.files_elsewhere) == ([0], 1, 1)


def test_a_retention_beyond_the_range_of_timestamps(uri: str) -> None:
    forever = {"delta.deletedFileRetentionDuration": "interval 1000000 weeks"}
    deltic.write(uri, pa.table({"n": [1, 2]}), properties=forever)
    retained = retained_by(Table(uri), "n = 1")
    assert retained.vacuum_from == datetime.max.replace(tzinfo=timezone.utc)


def test_a_dry_run_writes_nothing(uri: str) -> None:
    deltic.write(uri, pa.table({"n": range(9)}), properties=VECTORS)
    table = Table(uri)
    table.delete("n = 3")
    before = sorted(p for p in Path(uri).rglob("*"))
    plan = table.purge("n < 5", dry_run=True)
    assert sorted(p for p in Path(uri).rglob("*")) == before
    assert (plan.versions, plan.rows_deleted, plan.files_deleted, plan.files_with_vectors) == ([], 4, 1, 1)
    assert plan.retained is not None
    assert plan.retained.versions == [0, 1]
    assert table.purge("n < 5", user_metadata="by law").versions == [2]
    assert table.history(1)[0]["userMetadata"] == "by law"


def test_a_refused_purge_changes_nothing(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.appendOnly": "true"})
    table = Table(uri)
    with pytest.raises(InvalidInputError, match="append-only"):
        table.purge("n = 1")
    with pytest.raises(InvalidInputError, match="zebra"):
        table.purge("zebra = 1")
    with pytest.raises(InvalidInputError, match="max_tasks"):
        table.purge(max_tasks=0)
    assert table.purge().versions == []
    assert table.snapshot().version == 0


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_unreadable_file_may_hold_rows(uri: str, checkpoint: bool) -> None:
    deltic.write(uri, pa.table({"n": ["a", "b"]}))
    table = Table(uri)
    if checkpoint:
        table.checkpoint()
    deltic.write(table, pa.table({"n": [1, 2]}), mode="overwrite", schema_mode="overwrite")
    deltic.write(table, pa.table({"n": [1, 2, 3]}), mode="overwrite")
    corrupt = Path(uri) / live(table, 1)[0]["path"]
    corrupt.write_bytes(b"x" * corrupt.stat().st_size)
    retained = table.purge("n = 1").retained
    assert retained is not None
    assert (retained.files, retained.files_unreadable, retained.versions) == (3, 2, [0, 1, 2])
    assert "cannot be read" in repr(table.purge("n = 1"))
    live_file = Path(uri) / live(table)[0]["path"]
    live_file.write_bytes(b"x" * live_file.stat().st_size)
    version = table.snapshot().version
    with pytest.raises(deltic.CorruptTableError, match=live_file.name):
        table.purge("n = 2")
    assert table.snapshot().version == version


@pytest.mark.slow
def test_concurrent_deletes_and_purges(uri: str) -> None:
    deltic.write(uri, table_of([]), partition_by=["p"], properties={**VECTORS, **IDS})
    model = Changed(uri, {})
    rng = random.Random(7)
    new = model.new_rows(rng, 60)
    deltic.write(uri, table_of(new.values()))
    Table(uri).delete("n % 10 = 0")

    def delete(n: int) -> None:
        for _ in range(9):
            try:
                Table(uri).delete(f"n = {n}")
            except deltic.CommitConflictError:
                continue
            return

    with ThreadPoolExecutor(3) as pool:
        deletes = [pool.submit(delete, n) for n in (1, 2, 3)]
        for _ in range(3):
            Table(uri).purge()
        for done in deletes:
            done.result()
    table = Table(uri)
    while table.purge().files_lost:
        pass
    assert_clean(table)
    numbers = sorted(row["n"] for row in table.scan(columns=["n"]).to_arrow().to_pylist())
    assert numbers == [n for n in range(60) if n % 10 and n not in (1, 2, 3)]


@pytest.mark.slow
def test_dropping_the_feature_purges_vectors(uri: str) -> None:
    deltic.write(uri, pa.table({"n": range(100)}), properties=VECTORS)
    table = Table(uri)
    table.delete("n = 3")
    table.drop_feature("deletionVectors")
    assert "deletionVectors" not in table.snapshot().protocol.get("writerFeatures", [])
    assert "REORG" in [entry["operation"] for entry in table.history()]
    assert_clean(table)
    assert table.scan().count() == 99
    assert table.check(files=True).ok


@pytest.mark.slow
def test_command_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    deltic.write(uri, pa.table({"n": range(9)}), properties=VECTORS)
    Table(uri).delete("n = 3")
    assert cli.main(["purge", uri, "--dry-run"]) == 0
    assert "would rewrite" in capsys.readouterr().out
    assert cli.main(["purge", uri, "--where", "n = 4", "--max-tasks", "2", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["rows_deleted"], output["retained"]["versions"], output["dry_run"]) == (1, [0, 1], False)
    assert cli.main(["purge", uri, "--where", "zebra = 4"]) == 1
    assert "zebra" in capsys.readouterr().err
