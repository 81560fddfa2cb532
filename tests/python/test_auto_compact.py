"""Auto compaction: when it runs, which files it compacts, and that it does not affect the write."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import FEED, IDS, MAPPED, VECTORS
from log_files import Log

import deltic
from deltic import InvalidInputError, Table

COMPACT = {"delta.autoOptimize.autoCompact": "true"}


def made(uri: str, properties: dict[str, str] | None = None, **options: Any) -> Table:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    deltic.create(uri, schema, properties={**COMPACT, **(properties or {})}, **options)
    return Table(uri)


def rows(*ids: int, part: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [part] * len(ids)})


def append(table: Table | str, ids: range, part: str = "a") -> list[deltic.Commit]:
    return [deltic.write(table, rows(id, part=part)) for id in ids]


def ids(table: Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def compactions(commits: list[deltic.Commit]) -> list[int]:
    return [commit.compaction for commit in commits if commit.compaction is not None]


@pytest.mark.slow
@pytest.mark.parametrize("by_handle", [True, False])
def test_the_fiftieth_small_file_starts_a_compaction(uri: str, by_handle: bool) -> None:
    table = made(uri)
    commits = append(table if by_handle else uri, range(49))
    assert compactions(commits) == []
    last = deltic.write(table if by_handle else uri, rows(49))
    assert (last.version, last.compaction) == (50, 51)
    assert "version 51" in last._repr_html_()
    assert ids(table) == list(range(50))
    assert table.snapshot().num_files == 1
    entry = table.history(limit=1)[0]
    assert entry["operation"] == "OPTIMIZE"
    assert entry["isolationLevel"] == "SnapshotIsolation"
    assert entry["operationParameters"] == {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": True}
    for kind in ("add", "remove"):
        assert {action[kind]["dataChange"] for action in Log(uri).read(51) if kind in action} == {False}
    more = append(table if by_handle else uri, range(50, 99))
    assert compactions(more) == [101], "the compacted file is small too: 49 more make 50"
    assert ids(table) == list(range(99))
    assert table.check(files=True).ok


@pytest.mark.slow
def test_nothing_is_compacted_unless_the_property_is_set(uri: str) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"})
    assert compactions(append(table, range(60))) == []
    table.compact_automatically()
    assert compactions(append(table, range(60, 61))) == [table.snapshot().version], (
        "files from before it was enabled count"
    )
    assert table.snapshot().num_files == 1
    table.compact_automatically(False)
    assert table.snapshot().properties == {
        "delta.autoOptimize.autoCompact": "false",
        "delta.autoOptimize": "false",
    }
    assert compactions(append(table, range(61, 121))) == []
    with table.transaction() as tx:
        tx.compact_automatically()
        tx.append(rows(121))
    assert tx.committed is not None
    assert tx.committed.compaction == tx.committed.version + 1, "compaction runs after the commit that enables it"
    assert ids(table) == list(range(122))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "compacts"),
    [
        ("delta.autoOptimize.autoCompact", "auto", True),
        ("delta.autoOptimize.autoCompact", "TRUE", True),
        ("delta.autoOptimize", "true", True),
        ("delta.autoOptimize.optimizeWrite", "true", False),
    ],
)
def test_properties(uri: str, name: str, value: str, compacts: bool) -> None:
    deltic.create(uri, rows(0).schema, properties={name: value})
    assert bool(compactions(append(Table(uri), range(50)))) is compacts


def test_other_values_are_refused(uri: str) -> None:
    table = made(uri)
    with pytest.raises(InvalidInputError, match="autoCompact` cannot be `sometimes`: it may be true, auto or false"):
        table.set_properties({"delta.autoOptimize.autoCompact": "sometimes"})
    with pytest.raises(InvalidInputError, match="enabled"):
        table.compact_automatically("yes")  # type: ignore[arg-type]


@pytest.mark.slow
def test_large_files_do_not_count(uri: str) -> None:
    table = made(uri)
    append(table, range(1))
    size = pa.table(table.files())["size"][0].as_py()
    table.set_properties({"delta.targetFileSize": str(2 * size)})
    assert compactions(append(table, range(1, 60))) == [], "half of the target size is not small"
    table.set_properties({"delta.targetFileSize": str(10 * size)})
    assert len(compactions(append(table, range(60, 61)))) == 1
    assert 7 <= table.snapshot().num_files <= 13
    assert ids(table) == list(range(61))


@pytest.mark.slow
def test_partitions_are_counted_apart(uri: str) -> None:
    table = made(uri, partition_by=["part"])
    assert compactions(append(table, range(40), "a") + append(table, range(40, 80), "b")) == []
    commits = append(table, range(80, 90), "a")
    assert compactions(commits) == [commits[-1].version + 1]
    assert table.snapshot().num_files == 41, "partition b still has 40 files"
    assert ids(table) == list(range(90))


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", [True, False])
def test_only_partitions_of_the_write_are_compacted(uri: str, checkpointed: bool) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"}, partition_by=["part"])
    append(table, range(60), "cold")
    append(table, range(60, 109), "warm")
    if checkpointed:
        table.checkpoint()
    table.compact_automatically()
    commit = deltic.write(uri, rows(109, part="none"))
    assert commit.compaction is None
    commit = deltic.write(uri, rows(110, part="warm"))
    assert commit.compaction == commit.version + 1
    assert table.snapshot().num_files == 62, "50 files became one"
    commit = deltic.write(uri, rows(111, part="cold"))
    assert commit.compaction == commit.version + 1
    assert table.snapshot().num_files == 3
    assert ids(table) == list(range(112))
    assert table.check(files=True).ok


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [None, ["part"]])
def test_a_handle_counts_files_only_when_needed(uri: str, partitions: list[str] | None) -> None:
    def requests(value: str) -> list[int]:
        table = made(f"{uri}-{value}", {"delta.autoOptimize.autoCompact": "false"}, partition_by=partitions)
        # A hundred files, none of them small.
        table.set_properties({"delta.targetFileSize": "2"})
        append(table, range(101))
        table.set_properties({"delta.autoOptimize.autoCompact": value})
        counts = []
        for id in range(101, 108):
            before = table.request_counts()
            deltic.write(table, rows(id))
            more = {name: count - before[name] for name, count in table.request_counts().items()}
            counts.append(sum(count for name, count in more.items() if "bytes" not in name))
        return counts

    off, on = requests("false"), requests("true")
    assert on[0] > off[0], "the first write counts files"
    assert on[1:] == off[1:], "later writes count them again only when 50 are possible"


@pytest.mark.slow
def test_row_changes_start_a_compaction_too(uri: str) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"})
    append(table, range(60))
    table.compact_automatically()
    assert table.delete("id = 3").compaction is None, "it added no file"
    commit = table.update({"id": "id + 1000"}, "id = 4")
    assert commit.compaction == commit.version + 1
    assert ids(table) == sorted({*range(60), 1004} - {3, 4})
    overwritten = deltic.write(table, rows(1), mode="overwrite")
    assert overwritten.compaction is None
    assert ids(table) == [1]


@pytest.mark.slow
def test_a_replayed_application_write_does_not_compact(uri: str) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"})
    append(table, range(60))
    table.compact_automatically()
    first, again = (deltic.write(table, rows(60), app_id="job", app_version=1) for _ in range(2))
    assert first.compaction == first.version + 1
    assert (again.attempts, again.compaction) == (0, None)


@pytest.mark.slow
def test_compaction_keeps_row_ids_applies_vectors_and_adds_no_changes(uri: str) -> None:
    properties = FEED | IDS | VECTORS | MAPPED
    table = made(uri, properties | {"delta.autoOptimize.autoCompact": "false"})
    for first in range(0, 180, 3):
        deltic.write(table, rows(first, first + 1, first + 2))
    table.delete("id % 3 = 1")
    columns = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    before = table.scan(columns=columns).to_arrow().sort_by("id")
    table.compact_automatically()
    commit = deltic.write(table, rows(1000))
    assert commit.compaction == commit.version + 1
    after = table.scan(columns=columns, filter="id < 1000").to_arrow().sort_by("id")
    assert after.to_pylist() == before.to_pylist()
    changes = table.changes(commit.version, commit.compaction).to_arrow()
    assert changes["id"].to_pylist() == [1000]
    assert table.check(files=True).ok


@pytest.mark.slow
def test_clustered_files_are_not_compacted(uri: str) -> None:
    table = made(uri, cluster_by=["id"])
    commits = append(table, range(50))
    assert compactions(commits) == [commits[-1].version + 1]
    table.optimize()
    tagged = [path for path, tags in _tags(table) if tags]
    assert len(tagged) == 1
    append(table, range(50, 100))
    assert table.history(limit=1)[0]["operationParameters"]["auto"] is True
    assert [path for path, tags in _tags(table) if tags] == tagged
    assert table.snapshot().num_files == 2
    assert ids(table) == list(range(100))


def _tags(table: Table) -> list[tuple[str, Any]]:
    live = set(pa.table(table.files())["path"].to_pylist())
    adds = {}
    for version in range(table.snapshot().version + 1):
        for action in Log(table.uri).read(version):
            if "add" in action:
                adds[action["add"]["path"]] = action["add"].get("tags")
    return [(path, tags) for path, tags in adds.items() if path in live]


@pytest.mark.slow
def test_concurrent_writers_lose_no_row(uri: str) -> None:
    made(uri)

    def write(writer: int) -> list[deltic.Commit]:
        table = Table(uri)
        return append(table, range(writer * 40, writer * 40 + 40))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(4) as pool:
            commits = [commit for done in pool.map(write, range(4)) for commit in done]
    table = Table(uri)
    assert compactions(commits)
    assert ids(table) == list(range(160))
    assert table.snapshot().num_files < 100
    assert table.check(files=True).ok


@pytest.mark.slow
def test_one_of_several_threads_compacts(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"})
    append(table, range(60))
    table.compact_automatically()
    tables = [Table(uri) for _ in range(6)]
    with caplog.at_level(logging.INFO, "deltic"), ThreadPoolExecutor(6) as pool:
        commits = list(pool.map(lambda at: deltic.write(tables[at], rows(60 + at)), range(6)))
    assert len(compactions(commits)) == 1
    assert "another writer has changed them" not in caplog.text
    assert ids(table) == list(range(66))


@pytest.mark.slow
def test_a_write_succeeds_if_compaction_fails(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"})
    append(table, range(60))
    gone = Path(uri, pa.table(table.files())["path"][7].as_py())
    kept = gone.rename(gone.with_suffix(".gone"))
    table.compact_automatically()
    files = {path.name for path in Path(uri).glob("*.parquet")}
    with caplog.at_level(logging.WARNING, "deltic"), pytest.warns(RuntimeWarning, match=gone.name):
        commit = deltic.write(table, rows(60))
    assert (commit.attempts, commit.compaction) == (1, None)
    assert "small files were not compacted after version" in caplog.text
    assert len({path.name for path in Path(uri).glob("*.parquet")} - files) == 1, "compaction deletes its own files"
    kept.rename(gone)
    assert ids(table) == list(range(61))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compactions([deltic.write(uri, rows(61))]) == [], "this process does not try again soon"
    program = """
        import sys, deltic, pyarrow as pa
        print(deltic.write(sys.argv[1], pa.table({"id": [62], "part": ["a"]})).compaction)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), uri], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == str(commit.version + 3)
    assert ids(table) == list(range(63))


@pytest.mark.slow
def test_an_unreadable_bin_does_not_stop_other_bins(uri: str) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"}, partition_by=["part"])
    for part in ("a", "b"):
        append(table, range(60), part)
    gone = Path(uri, next(path for path in pa.table(table.files())["path"].to_pylist() if "part=a" in path))
    gone.unlink()
    table.compact_automatically()
    data = pa.concat_tables([rows(60, part="a"), rows(60, part="b")])
    with pytest.warns(RuntimeWarning, match="part=a"):
        commit = deltic.write(table, data)
    assert commit.compaction == commit.version + 1
    assert table.scan(filter="part = 'b'").count() == 61
    parts = [path.split("/")[0] for path in pa.table(table.files())["path"].to_pylist()]
    assert (parts.count("part=a"), parts.count("part=b")) == (61, 1)


@pytest.mark.slow
def test_a_table_that_optimize_refuses_can_be_written(uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("_metadata.row_id", pa.int64())])
    deltic.create(uri, schema, properties=COMPACT | IDS)
    table = Table(uri)
    data = pa.table({"id": [1], "_metadata.row_id": [1]})
    for _ in range(49):
        deltic.write(table, data)
    with pytest.warns(RuntimeWarning, match="rename the column"):
        deltic.write(table, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deltic.write(table, data)
    assert table.snapshot().num_files == 51


def test_an_invalid_property_value_does_not_stop_a_write(uri: str) -> None:
    table = made(uri, {"delta.autoOptimize.autoCompact": "false"})
    path = Path(uri, "_delta_log", f"{0:020}.json")
    path.write_text(
        path.read_text().replace('"delta.autoOptimize.autoCompact":"false"', '"delta.autoOptimize.autoCompact":"?"')
    )
    Path(uri, "_delta_log", f"{0:020}.crc").unlink()
    table = Table(uri)
    with pytest.warns(RuntimeWarning, match="autoCompact"):
        commit = deltic.write(table, rows(1))
    assert commit.attempts == 1
    assert ids(table) == [1]
