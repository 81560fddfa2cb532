"""Transactions: all changes become one commit, or none; no requests for known state."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from log_files import Log

import deltic
from deltic import InvalidInputError, Table

SHOPS = pa.table({"shop": ["a", "a", "b", "c"], "items": [1, 2, 3, 4]})


@pytest.fixture
def table(uri: str) -> Table:
    deltic.write(uri, SHOPS, partition_by=["shop"])
    return Table(uri)


def shop(name: str, *items: int) -> pa.Table:
    return pa.table({"shop": [name] * len(items), "items": pa.array(items, pa.int64())})


def items(rows: Any) -> list[int]:
    return sorted(row["items"] for row in rows.to_arrow().to_pylist())


def commit_lines(table: Table, version: int) -> list[dict[str, Any]]:
    return Log(table.uri).read(version)


def data_files(table: Table) -> set[str]:
    return {str(path) for path in Path(table.uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def test_a_transaction_is_one_commit(table: Table) -> None:
    with table.transaction(operation="ETL", user_metadata={"ticket": 7}, max_attempts=1 << 40) as tx:
        assert tx.snapshot.version == 0
        assert tx.append(shop("d", 5, 6)) == 2
        assert tx.remove("shop = 'a'") == 1
        tx.add_feature("domainMetadata")
        tx.set_domain("app.x", "text")
    assert tx.committed is not None
    assert (tx.committed.version, tx.committed.attempts, tx.committed.num_added_files) == (1, 1, 1)
    assert items(table.scan()) == [3, 4, 5, 6]
    info, *actions = commit_lines(table, 1)
    assert [next(iter(action)) for action in actions] == ["protocol", "domainMetadata", "remove", "add"]
    info = info["commitInfo"]
    assert (info["operation"], json.loads(info["userMetadata"]), info["isBlindAppend"]) == ("ETL", {"ticket": 7}, False)
    assert table.snapshot().domains() == {"app.x": "text"}
    assert table.check().ok


def test_a_scan_sees_own_rows_but_not_those_of_other_writers(table: Table) -> None:
    with (
        pytest.raises(deltic.ConcurrentAppendError),  # `other` commits first, and `one` has read everything
        table.transaction() as one,
        Table(table.uri).transaction() as other,
    ):
        one.append(shop("b", 10))
        one.remove("shop = 'c'")
        other.append(shop("d", 20))
        assert items(one.scan()) == [1, 2, 3, 10]
        assert items(one.scan(filter="shop = 'b'")) == [3, 10]
        assert items(one.scan(columns=["items"], filter="items >= 10")) == [10]
        assert one.scan(columns=["items"]).schema == pa.schema([("items", pa.int64())])
        assert items(other.scan(filter="shop = 'd'")) == [20]
        assert items(table.scan()) == [1, 2, 3, 4]
        # Files of the transaction itself can be removed.
        assert one.remove("shop = 'b'") == 2
        assert items(one.scan(filter="shop <> 'd'")) == [1, 2]
        assert other.remove([row["path"] for row in other.snapshot.files("shop = 'a'").read_all().to_pylist()]) == 1
        with pytest.raises(InvalidInputError, match="not in the table"):
            other.remove(["nowhere.parquet"])
        other.append(shop("d", 30))


def test_conflicts_come_from_the_end_of_the_block(table: Table) -> None:
    before = data_files(table)
    with pytest.raises(deltic.ConcurrentAppendError) as caught, table.transaction() as tx:
        tx.scan(filter="shop = 'a' AND items > 1").to_arrow()
        tx.append(shop("z", 1))
        rival = deltic.write(table.uri, shop("a", 2))
    assert caught.value.winning_version == rival.version == 1
    assert tx.committed is None
    # The files of the refused commit were deleted.
    assert len(data_files(table) - before) == 1

    # Rows that cannot match, by partition or statistics, are no conflict.
    with table.transaction() as tx:
        tx.scan(filter="shop = 'a' AND items > 100").to_arrow()
        tx.append(shop("z", 1))
        deltic.write(table.uri, shop("a", 7))
        deltic.write(table.uri, shop("b", 500))
    assert tx.committed is not None
    assert (tx.committed.version, tx.committed.attempts) == (4, 2)

    paths = [row["path"] for row in table.files("shop = 'c'").read_all().to_pylist()]
    with pytest.raises(deltic.ConcurrentDeleteReadError), table.transaction(isolation="WriteSerializable") as tx:
        tx.remove(paths)
        with Table(table.uri).transaction() as rival_tx:
            rival_tx.remove("shop = 'c'")


def test_an_exception_abandons_the_transaction(table: Table) -> None:
    before = data_files(table)
    with pytest.raises(KeyError), table.transaction() as tx:
        tx.append(shop("d", 5))
        assert len(data_files(table)) == len(before) + 1
        raise KeyError
    assert tx.committed is None
    assert data_files(table) == before
    assert table.snapshot().version == 0


def test_rows_of_an_abandoned_transaction_are_not_read(table: Table) -> None:
    with pytest.raises(KeyError), table.transaction() as tx:
        others = tx.scan()
        tx.append(shop("d", 5))
        own = tx.scan()
        assert items(own) == [1, 2, 3, 4, 5]
        raise KeyError
    with pytest.raises(InvalidInputError, match="the transaction was abandoned"):
        own.to_arrow()
    assert items(others) == [1, 2, 3, 4]


def test_a_read_only_transaction_commits_nothing(table: Table) -> None:
    with table.transaction() as tx:
        assert items(tx.scan()) == [1, 2, 3, 4]
    with table.transaction() as empty:
        pass
    assert (tx.committed, empty.committed, table.snapshot().version) == (None, None, 0)
    with table.transaction(operation="NOTE", commit_empty=True) as tx:
        pass
    assert tx.committed is not None
    assert table.history(1)[0]["operation"] == "NOTE"


def test_a_transaction_is_used_once(table: Table) -> None:
    tx = table.transaction()
    with pytest.raises(InvalidInputError, match="has not begun"):
        tx.append(shop("d", 5))
    with tx:
        tx.append(shop("d", 5))
    with pytest.raises(InvalidInputError, match="used once"):
        tx.__enter__()
    with pytest.raises(InvalidInputError, match="has ended"):
        tx.scan()


def test_an_applications_transaction_happens_once(table: Table) -> None:
    def run(version: int) -> deltic.Transaction:
        with table.transaction(app_id="job", app_version=version) as tx:
            tx.append(shop("d", version))
            tx.remove("shop = 'c'")
        return tx

    first, again, later = run(1), run(1), run(2)
    assert (first.replayed, again.replayed, later.replayed) == (False, True, False)
    assert again.committed is not None
    assert (again.committed.version, again.committed.attempts) == (1, 0)
    assert items(table.scan()) == [1, 1, 2, 2, 3]
    assert table.snapshot().transaction_version("job") == 2
    with pytest.raises(deltic.ConcurrentTransactionError), table.transaction(app_id="job", app_version=3) as tx:
        tx.append(shop("d", 3))
        run(3)
    with pytest.raises(InvalidInputError, match="belong together"), table.transaction(app_id="job"):
        pass


def test_removing_covers_whole_files(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="whole file") as caught, table.transaction() as tx:
        tx.remove("shop = 'a' AND items = 1")
    assert caught.value.path is not None
    assert caught.value.path.startswith("shop=a/")
    with table.transaction() as tx:
        assert tx.remove("shop = 'a' AND items <= 2") == 1
        assert tx.remove("items > 100") == 0
    assert items(table.scan()) == [3, 4]


def test_metadata_changes_before_rows(table: Table) -> None:
    with table.transaction() as tx:
        tx.set_metadata(name="shops", description="what they have", properties={"mine": "0"})
        tx.set_properties({"mine": "1"})
        assert items(tx.scan()) == items(table.scan())
    assert table.snapshot().metadata["name"] == "shops"
    with table.transaction() as tx:
        tx.append(shop("d", 5))
        with pytest.raises(InvalidInputError, match="rows were written under the old metadata"):
            tx.set_properties({"mine": "2"})
    with table.transaction() as tx:
        tx.set_metadata(schema=pa.schema([("shop", pa.string()), ("items", pa.int64()), ("note", pa.string())]))
        tx.append(pa.table({"shop": ["e"], "items": [9], "note": ["new"]}))
    assert items(table.scan(filter="note = 'new'")) == [9]
    with table.transaction() as tx:
        tx.set_metadata(unset=["mine"], properties={"delta.enableDeletionVectors": "true"})
    snapshot = table.snapshot()
    assert snapshot.properties == {"delta.enableDeletionVectors": "true"}
    assert snapshot.protocol["readerFeatures"] == ["deletionVectors"]
    assert table.check().ok


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": pa.schema([("shop", pa.string())])}, "gone|every column"),
        ({"schema": pa.schema([("shop", pa.string()), ("items", pa.int32())])}, "cannot go from the type"),
        ({"schema": pa.schema([("shop", pa.string()), ("items", pa.int64(), False)])}, "stays nullable"),
        (
            {"schema": pa.schema([("shop", pa.string()), ("items", pa.int64()), ("n", pa.int64(), False)])},
            "must be nullable",
        ),
        ({"schema": pa.schema([("shop", pa.string()), ("items", pa.int64()), ("ITEMS", pa.int64())])}, "two columns"),
        ({"schema": pa.schema([("items", pa.int64()), ("other", pa.int64())])}, "partition column|gone"),
        ({"schema": pa.schema([("shop", pa.string()), ("items", pa.int64()), ("a b", pa.int64())])}, "character"),
        (
            {
                "schema": pa.schema([("shop", pa.string()), ("items", pa.int64()), ("_Change_type", pa.string())]),
                "properties": {"delta.enableChangeDataFeed": "true"},
            },
            "reserved in a table with a change data feed",
        ),
        ({"properties": {"delta.appendonly": "true"}}, "no table property"),
        ({"properties": {"delta.appendOnly": "perhaps"}}, "true or false"),
        ({"unset": ["delta.appendOnly"]}, "not set"),
        ({"properties": {"delta.columnMapping.mode": "id"}}, "cannot go from none to id"),
    ],
)
def test_illegal_metadata_is_found_before_anything_is_written(table: Table, change: Any, words: str) -> None:
    with table.transaction() as tx, pytest.raises(InvalidInputError, match=words):
        tx.set_metadata(**change)
    assert (tx.committed, table.snapshot().version) == (None, 0)


def test_features_and_domains_are_checked(table: Table) -> None:
    with table.transaction() as tx:
        with pytest.raises(InvalidInputError, match="does not have the feature"):
            tx.set_domain("app.x", "1")
        with pytest.raises(InvalidInputError, match="does not exist"):
            tx.add_feature("zebra")
        with pytest.raises(deltic.UnsupportedFeatureError):
            tx.add_feature("catalogManaged")
        tx.add_feature("domainMetadata")
        with pytest.raises(InvalidInputError, match="are reserved"):
            tx.set_domain("delta.rowTracking", "1")
        tx.set_domain("app.x", "1")
        tx.set_domain("app.y", "2")
    with table.transaction() as tx:
        tx.set_domain("app.x", None)
    assert table.snapshot().domains() == {"app.y": "2"}
    deltic.write(table.uri, shop("d", 5))
    assert table.snapshot().domains() == {"app.y": "2"}


def test_append_only_tables_keep_their_rows(uri: str) -> None:
    deltic.write(uri, SHOPS, properties={"delta.appendOnly": "true"})
    with Table(uri).transaction() as tx:
        with pytest.raises(InvalidInputError, match="append-only"):
            tx.remove("items > 0")
        with pytest.raises(InvalidInputError, match="append-only"):
            tx.remove(["x"])


def test_commits_have_timestamps_and_row_ids_if_enabled(uri: str) -> None:
    properties = {"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true"}
    deltic.write(uri, SHOPS, properties=properties)
    table = Table(uri)
    for n in range(3):
        deltic.write(table, shop("d", n))
    deltic.write(uri, shop("e", 9))
    times, ids = [], []
    for version in range(5):
        lines = commit_lines(table, version)
        times.append(lines[0]["commitInfo"]["inCommitTimestamp"])
        ids += [line["add"]["baseRowId"] for line in lines if "add" in line]
        assert {line["add"]["defaultRowCommitVersion"] for line in lines if "add" in line} == {version}
    assert times == sorted(set(times))
    assert ids == [0, 4, 5, 6, 7]
    domain = next(line["domainMetadata"] for line in commit_lines(table, 4) if "domainMetadata" in line)
    assert json.loads(domain["configuration"]) == {"rowIdHighWaterMark": 7}
    found = table.scan(columns=["items", "_metadata.row_id"]).to_arrow().to_pylist()
    assert sorted(row["_metadata.row_id"] for row in found) == list(range(8))
    assert table.check().ok


def test_times_can_be_enabled_later(table: Table) -> None:
    with table.transaction() as tx:
        tx.set_properties({"delta.enableInCommitTimestamps": "true"})
    deltic.write(table, shop("d", 1))
    properties = table.snapshot().properties
    assert properties["delta.inCommitTimestampEnablementVersion"] == "1"
    first = commit_lines(table, 1)[0]["commitInfo"]["inCommitTimestamp"]
    assert properties["delta.inCommitTimestampEnablementTimestamp"] == str(first)
    assert commit_lines(table, 2)[0]["commitInfo"]["inCommitTimestamp"] > first
    assert [entry["version"] for entry in table.history()] == [2, 1, 0]


def test_hooks_are_called_and_cannot_fail_the_commit(table: Table) -> None:
    calls: list[Any] = []
    with (
        pytest.warns(RuntimeWarning, match=r"hook .*broken.* version 1, which stands: .*boom"),
        table.transaction() as tx,
    ):
        tx.append(shop("d", 5))

        @tx.on_commit
        def broken(version: int, actions: list[dict[str, Any]]) -> None:
            actions.clear()
            raise ValueError("boom")

        tx.on_commit(lambda version, actions: calls.append((version, [next(iter(a)) for a in actions])))
    assert calls == [(1, ["commitInfo", "add"])]
    assert table.snapshot().version == 1


def counted(table: Table, action: Any) -> dict[str, int]:
    before = table.request_counts()
    action()
    after = table.request_counts()
    return {name: after[name] - before[name] for name in ("lists", "gets", "heads", "puts", "deletes")}


def test_an_uncontended_commit_is_one_put_and_no_list(table: Table) -> None:
    deltic.write(table, shop("d", 1))
    for _ in range(3):
        # Puts: data file, commit, checksum. Heads: the previous commit, before and after the put of the commit.
        once = counted(table, lambda: deltic.write(table, shop("d", 1)))
        assert once == {"lists": 0, "gets": 0, "heads": 2, "puts": 3, "deletes": 0}
    deltic.write(table.uri, shop("d", 2))
    # Gets: the winner, the end of the log, the winner's checksum.
    met = counted(table, lambda: deltic.write(table, shop("d", 3)))
    assert (met["lists"], met["gets"], met["puts"]) == (0, 3, 4)
    assert table.check().ok


def test_a_blind_append_reads_no_files_of_the_table(uri: str) -> None:
    for n in range(12):
        deltic.write(uri, shop("a", n))
    table = Table(uri)
    first = counted(table, lambda: deltic.write(table, shop("a", 1)))
    # Whether the table exists, the hint, the end of the log, the newest checksum and the commits after it.
    assert first["lists"] <= 2
    assert first["gets"] <= 6, first


def test_a_handle_with_outdated_state_reads_the_table_again(table: Table) -> None:
    deltic.write(table, shop("d", 1))
    with Table(table.uri).transaction() as tx:
        tx.set_properties({"delta.appendOnly": "true"})
    assert deltic.write(table, shop("d", 2)).version == 3
    with Table(table.uri).transaction() as tx:
        tx.set_properties({"delta.dataSkippingNumIndexedCols": "1"})
    # The written files do not fit the new property, and a stream cannot be written again.
    with pytest.raises(deltic.MetadataChangedError):
        deltic.write(table, shop("d", 3).to_reader())
    assert deltic.write(table, shop("d", 3).to_reader()).version == 5
    # Rows were written for cached metadata, which has changed when the transaction reads the table.
    with pytest.raises(deltic.MetadataChangedError), table.transaction() as late:
        late.append(shop("d", 4))
        with Table(table.uri).transaction() as tx:
            tx.set_properties({"mine": "1"})
        late.scan()


@pytest.mark.slow
def test_an_append_to_a_recreated_table_is_prepared_again(table: Table) -> None:
    for n in range(5):
        deltic.write(table, shop("d", n))
    for again in (shop("e", 7), shop("e", 8).to_reader()):
        shutil.rmtree(table.uri)
        deltic.write(table.uri, shop("a", 1), partition_by=["shop"])
        deltic.write(table.uri, shop("a", 2))
        assert deltic.write(table, again).version == 2
        assert items(Table(table.uri).scan())[:2] == [1, 2]
        assert Table(table.uri).scan().to_arrow().num_rows == 3
        assert table.check().ok
        for n in range(5):
            deltic.write(table, shop("d", n))


def test_a_recreated_table_with_equal_commit_sizes_is_detected(uri: str) -> None:
    first = Path(uri, "_delta_log", f"{0:020}.json")

    def make(hours_ago: int) -> int:
        shutil.rmtree(uri, ignore_errors=True)
        deltic.create(uri, pa.schema([("v", pa.int64())]))
        written = time.time() - hours_ago * 3600
        os.utime(first, (written, written))
        return first.stat().st_size

    length = make(2)
    with pytest.raises(deltic.MetadataChangedError, match="deleted or created again"), Table(uri).transaction() as tx:
        tx.append(pa.table({"v": [1]}))
        assert make(1) == length
    # Files for the deleted table are not committed to the new one.
    assert Table(uri).snapshot().version == 0
    assert Table(uri).scan().to_arrow().num_rows == 0


def test_cached_state_is_not_used_for_a_recreated_table_with_equal_commit_sizes(uri: str) -> None:
    def make(column: str, minutes_ago: int) -> tuple[Table, list[int]]:
        shutil.rmtree(uri, ignore_errors=True)
        deltic.create(uri, pa.schema([("x", pa.int64()), (column, pa.string())]))
        handle = Table(uri)
        deltic.write(handle, pa.table({"x": [1], column: ["a"]}))
        commits = sorted(Path(uri, "_delta_log").glob("*.json"))
        for commit in commits:
            written = time.time() - minutes_ago * 60
            os.utime(commit, (written, written))
        return handle, [commit.stat().st_size for commit in commits]

    handle, lengths = make("y", 0)
    assert make("z", 1)[1] == lengths
    with pytest.raises(deltic.InvalidInputError, match="`y`"):
        deltic.write(handle, pa.table({"x": [2], "y": ["b"]}))
    assert Table(uri).scan().to_arrow().to_pylist() == [{"x": 1, "z": "a"}]


def test_a_deleted_table_is_created_again(table: Table) -> None:
    deltic.write(table, shop("d", 1))
    shutil.rmtree(table.uri)
    with pytest.raises(deltic.TableNotFoundError):
        deltic.write(table, shop("d", 2).to_reader())
    assert not table.exists()
    assert not data_files(table)
    deltic.write(table.uri, SHOPS, partition_by=["shop"])
    deltic.write(table, shop("d", 2))
    shutil.rmtree(table.uri)
    assert deltic.write(table, shop("d", 3)).version == 0
    assert items(table.scan()) == [3]


def widen(uri: str) -> None:
    with Table(uri).transaction() as tx:
        tx.set_metadata(schema=pa.schema([*SHOPS.schema, ("c", pa.int64())]))


def test_data_is_checked_against_the_newest_schema(table: Table) -> None:
    deltic.write(table, shop("d", 1))
    widen(table.uri)
    # A stream with a column that another writer added.
    rows = shop("d", 2).append_column("c", pa.array([9]))
    assert deltic.write(table, rows.to_reader()).version == 3
    with pytest.raises(InvalidInputError, match=r"column `x`"):
        deltic.write(table, shop("d", 2).append_column("x", pa.array([9])))
    assert deltic.write(table, rows).version == 4
    assert sorted(row["c"] for row in table.scan().to_arrow().to_pylist() if row["items"] == 2 and row["c"]) == [9, 9]


def test_rows_without_a_column_that_was_added_are_committed(table: Table) -> None:
    deltic.write(table, shop("d", 1))
    widen(table.uri)
    assert deltic.write(table, shop("d", 2).to_reader()).version == 3
    with table.transaction() as tx:
        tx.append(shop("d", 3))
    assert tx.committed is not None
    assert (tx.committed.version, items(table.scan())) == (4, [1, 1, 2, 2, 3, 3, 4])


def test_a_failed_block_or_a_newer_snapshot_drops_cached_state(table: Table) -> None:
    deltic.write(table, shop("d", 1))
    assert table.remembers()
    assert table.snapshot().version == 1
    assert table.remembers()
    deltic.write(table.uri, shop("d", 2))
    assert table.snapshot(1).version == 1
    assert table.remembers()
    assert table.snapshot().version == 2
    assert not table.remembers()
    deltic.write(table, shop("d", 3))
    with pytest.raises(KeyError), table.transaction():
        raise KeyError
    assert not table.remembers()


@pytest.mark.slow
def test_checksums_follow_from_commit_to_commit(table: Table) -> None:
    log = Path(table.uri) / "_delta_log"
    for n in range(13):
        deltic.write(table.uri, shop("d", n))
    with table.transaction(app_id="job", app_version=1) as tx:
        tx.remove("shop = 'd'")
    assert table.check().ok
    checksum = json.loads((log / f"{14:020}.crc").read_text())
    assert checksum["numFiles"] == table.snapshot().num_files == 3
    assert [txn["appId"] for txn in checksum["setTransactions"]] == ["job"]
    # Without the previous checksum the files of a small table are counted.
    (log / f"{14:020}.crc").unlink()
    deltic.write(table.uri, shop("e", 1))
    assert json.loads((log / f"{15:020}.crc").read_text())["numFiles"] == Table(table.uri).snapshot().num_files == 4
    assert table.check().ok
    (log / f"{15:020}.crc").unlink()
    assert Table(table.uri).write_checksum() == 15
    deltic.write(table.uri, shop("e", 2))
    assert (log / f"{16:020}.crc").exists()
    assert table.check().ok


def append_many(uri: str, worker: int, count: int) -> list[int]:
    table = Table(uri, {"deltic.durability": "none"})
    return [deltic.write(table, shop("w", worker * 1000 + n)).version for n in range(count)]


@pytest.mark.slow
def test_appends_of_many_processes_succeed(uri: str) -> None:
    deltic.write(uri, shop("w", -1))
    processes, count = 6, 10
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        versions = pool.starmap(append_many, [(uri, worker, count) for worker in range(processes)])
    assert sorted(v for own in versions for v in own) == list(range(1, processes * count + 1))
    expected = sorted([-1] + [w * 1000 + n for w in range(processes) for n in range(count)])
    assert items(Table(uri).scan()) == expected
    assert Table(uri).check().ok


@pytest.mark.slow
def test_many_threads_share_a_handle(uri: str) -> None:
    deltic.write(uri, shop("w", -1))
    table = Table(uri, {"deltic.durability": "none"})
    threads = [threading.Thread(target=lambda n=n: deltic.write(table, shop("w", n))) for n in range(24)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert items(table.scan()) == list(range(-1, 24))


INTERRUPTED = """
import sys, threading, _thread, time, pyarrow as pa, deltic
uri = sys.argv[1]
table = deltic.Table(uri)
rival_stop = threading.Event()
rows = pa.table({"shop": ["a"], "items": [1]})
try:
    with table.transaction() as tx:
        tx.append(rows)
        print("ready", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("abandoned", flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_inside_the_block_abandons(table: Table, python: str) -> None:
    before = data_files(table)
    environment = {**os.environ}
    child = subprocess.Popen([python, "-c", INTERRUPTED, table.uri], stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "abandoned\n"
    assert data_files(table) == before
    assert table.snapshot().version == 0


def test_failures_after_the_commit_are_warnings(uri: str) -> None:
    text = json.dumps({"version": 3, "attempts": 1, "num_added_files": 0, "metrics": {"checksumError": "no disk"}})
    with pytest.warns(RuntimeWarning, match="after the commit of version 3: no disk"):
        assert deltic.Commit.parse(text).metrics == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deltic.write(uri, SHOPS)
