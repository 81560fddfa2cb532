"""Tables on real servers: the conformance suite of `Storage`, and operations from the first write to time travel."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
import servers

import deltic

ROOT = Path(__file__).resolve().parents[2]
STARTERS = {"s3": servers.s3, "azure": servers.azure, "gcs": servers.gcs, "dynamodb": servers.dynamodb}


class Store:
    """A server for a test's tables."""

    def __init__(self, server: servers.Server, kind: str) -> None:
        self.server = server
        self.kind = kind
        self.options = {**server.storage_options, **server.log_store}

    def uri(self) -> str:
        return self.server.uri(f"{uuid.uuid4().hex}/a table=ü".replace(" ", "%20"))


class Started:
    """The servers that are running. Each is started on first use, and all stop at the end."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.stores: dict[str, Store] = {}

    def store(self, kind: str) -> Store:
        if kind not in self.stores:
            self.stores[kind] = Store(self.stack.enter_context(STARTERS[kind]()), kind)
        return self.stores[kind]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with ExitStack() as stack:
        yield Started(stack)


@pytest.fixture(params=STARTERS)
def store(request: pytest.FixtureRequest, started: Started) -> Store:
    return started.store(request.param)


def rows(start: int, stop: int) -> pa.Table:
    part = [f"{i % 2} %/ü" for i in range(start, stop)]
    return pa.table({"id": pa.array(range(start, stop), pa.int64()), "part": part})


def ids(table: deltic.Table, version: int | None = None) -> list[int]:
    return sorted(table.snapshot(version).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def conform(stores: list[dict[str, object]]) -> str:
    """Run `deltic_store::conformance` on the stores; return its output."""
    command = ["cargo", "test", "--workspace", "--locked", "--quiet", "--test", "table"]
    command += ["storage::servers", "--", "--nocapture", "--test-threads=1"]
    if shutil.which("cargo") is None:
        servers.missing("there is no cargo to run the contract with")
    environment = {**os.environ, "DELTIC_TEST_STORES": json.dumps(stores)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3000)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    return run.stdout


def test_stores_conform(store: Store) -> None:
    uri = store.server.uri(uuid.uuid4().hex)
    assert f"conforms: {uri}" in conform([{"uri": uri, "options": store.options, "without": store.server.without}])


def lists_of_blocks(server: servers.Server, uri: str) -> list[int]:
    """The status codes of Azurite's Put Block List for the large file that the conformance suite creates twice."""
    path = re.escape(f"/{uri.removeprefix('az://')}/large/w/many?comp=blocklist")
    log = (server.folder / "server.log").read_text()
    return [int(status) for status in re.findall(rf'"PUT /\w+{path}\S* HTTP/1.1" (\d+)', log)]


@pytest.mark.parametrize("signed", [False, True], ids=["key", "signature"])
def test_azure_takes_large_files_in_blocks(started: Started, signed: bool) -> None:
    server = started.store("azure").server
    options = server.storage_options
    if signed:
        options = {name: value for name, value in options.items() if not name.endswith("_account_key")}
        options |= servers.azure_shared_access()
    uri = server.uri(uuid.uuid4().hex)
    # Azurite does not accept a shared access signature for batch deletes, so files are kept.
    assert f"takes parts: {uri}" in conform([{"uri": uri, "options": options, "keeps": True}])
    assert lists_of_blocks(server, uri) == [201, 409]


def test_large_files_are_put_whole_where_a_put_takes_blocks_for_a_file() -> None:
    with servers.azure(blocks_are_no_file=False) as server:
        uri = server.uri(uuid.uuid4().hex)
        assert f"conforms: {uri}" in conform([{"uri": uri, "options": server.storage_options, "without": "\\"}])
        assert lists_of_blocks(server, uri) == []


def test_a_table_from_the_first_write_to_time_travel(store: Store) -> None:
    uri = store.uri()
    assert not deltic.Table(uri, storage_options=store.options).exists()
    deltic.write(uri, rows(0, 10), partition_by=["part"], storage_options=store.options)
    table = deltic.Table(uri, storage_options=store.options)
    assert table.scan(filter="part = '1 %/ü' AND id > 4").to_arrow()["id"].to_pylist() == [5, 7, 9]

    other = deltic.Table(uri, storage_options=store.options)
    assert ids(other) == list(range(10))
    with table.transaction() as tx:
        tx.remove("part = '0 %/ü'")
        tx.append(rows(10, 12))
    assert ids(other) == [1, 3, 5, 7, 9, 10, 11], "a handle with a cached version reads newer ones"

    assert table.checkpoint() == 1
    deltic.write(uri, rows(12, 13), storage_options=store.options)
    fresh = deltic.Table(uri, storage_options=store.options)
    assert fresh.snapshot().version == 2
    assert ids(fresh) == [1, 3, 5, 7, 9, 10, 11, 12]
    assert ids(fresh, version=0) == list(range(10))
    assert [entry["version"] for entry in fresh.history()] == [2, 1, 0]
    assert fresh.check(files=True).ok


def test_threads_that_write_lose_nothing(store: Store) -> None:
    uri = store.uri()
    deltic.write(uri, rows(0, 1), storage_options=store.options)

    def append(writer: int) -> list[int]:
        first = 100 * (writer + 1)
        return [
            deltic.write(uri, rows(first + i, first + i + 1), storage_options=store.options).version for i in range(5)
        ]

    with ThreadPoolExecutor(4) as pool:
        versions = sorted(version for own in pool.map(append, range(4)) for version in own)
    assert versions == list(range(1, 21))
    expected = [0] + [100 * writer + i for writer in (1, 2, 3, 4) for i in range(5)]
    assert ids(deltic.Table(uri, storage_options=store.options)) == expected


APPEND = """
import json, sys
import deltic
import pyarrow as pa

uri, options, first = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
for i in range(first, first + 5):
    deltic.write(uri, pa.table({"id": pa.array([i], pa.int64()), "part": ["x"]}), storage_options=options)
"""


def test_processes_that_write_lose_nothing(store: Store) -> None:
    uri = store.uri()
    deltic.write(uri, rows(0, 1), storage_options=store.options)
    command = [sys.executable, "-c", APPEND, uri, json.dumps(store.options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    writers = [subprocess.Popen([*command, str(first)], env=environment) for first in (100, 200)]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    table = deltic.Table(uri, storage_options=store.options)
    assert table.snapshot().version == 10
    assert ids(table) == [0, *range(100, 105), *range(200, 205)]


def deep_clone_by_the_store(uri: str, options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    payload = pa.array([os.urandom(2048) for _ in range(1000)])
    deltic.write(uri, rows(0, 1000).append_column("payload", payload), storage_options=options, partition_by=["part"])
    source = deltic.Table(uri, storage_options=options)
    before = source.request_counts()
    caplog.set_level(logging.DEBUG, logger="deltic")
    source.clone(f"{uri}_clone", shallow=False)
    assert not [record for record in caplog.records if "instead" in record.getMessage()]
    assert source.request_counts()["bytes_read"] - before["bytes_read"] < 100_000, (
        "the client does not read the 2 MB of files"
    )
    clone = deltic.Table(f"{uri}_clone", storage_options=options)
    assert clone.scan().to_arrow().sort_by("id") == source.scan().to_arrow().sort_by("id")
    assert clone.check(files=True).ok


def test_a_store_copies_the_files_of_a_deep_clone(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    deep_clone_by_the_store(store.uri(), store.options, caplog)


def test_azure_copies_files_by_a_signature(started: Started, caplog: pytest.LogCaptureFixture) -> None:
    store = started.store("azure")
    options = {name: value for name, value in store.options.items() if not name.endswith("_account_key")}
    deep_clone_by_the_store(store.uri(), options | servers.azure_shared_access(), caplog)


def test_delta_rs_writes_to_the_same_table() -> None:
    deltalake = pytest.importorskip("deltalake")
    with servers.s3() as server:
        uri = server.uri("together")
        theirs = {**server.storage_options, "aws_conditional_put": "etag"}
        deltic.write(uri, rows(0, 5), partition_by=["part"], storage_options=server.storage_options)

        def theirs_now() -> list[int]:
            read = deltalake.DeltaTable(uri, storage_options=theirs).to_pyarrow_table()
            return sorted(read["id"].to_pylist())

        assert theirs_now() == list(range(5))

        def append(first: int) -> None:
            for i in range(first, first + 4):
                if first == 100:
                    deltic.write(uri, rows(i, i + 1), storage_options=server.storage_options)
                else:
                    deltalake.write_deltalake(uri, rows(i, i + 1), mode="append", storage_options=theirs)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(append, (100, 200)))
        expected = [*range(5), *range(100, 104), *range(200, 204)]
        assert ids(deltic.Table(uri, storage_options=server.storage_options)) == expected
        assert theirs_now() == expected


def unfinish(server: servers.Server, uri: str, version: int) -> dict[str, str]:
    """Undo the last step of a commit, as if its writer had died: a temporary file and an incomplete item remain."""
    name = f"{version:020}.json"
    log = f"{server.endpoint}/{uri.removeprefix('s3://')}/_delta_log"
    # Without a content type the server would parse the body as a form.
    authorized = {"Authorization": servers.scope("s3"), "Content-Type": "application/json"}
    text = servers.send("GET", f"{log}/{name}", b"", authorized)
    servers.send("PUT", f"{log}/.tmp/{name}.died", text, authorized)
    servers.send("DELETE", f"{log}/{name}", b"", authorized)
    item = {"tablePath": uri, "fileName": name, "tempPath": f".tmp/{name}.died", "complete": "false"}
    put = {"TableName": "delta_log", "Item": {key: {"S": value} for key, value in item.items()}}
    servers.aws_json(server.endpoint, "PutItem", put)
    return item


def test_a_writer_that_died_after_its_claim_has_committed() -> None:
    with servers.dynamodb() as server:
        options = {**server.storage_options, **server.log_store}
        uri = server.uri("recovered")
        for i in range(2):
            deltic.write(uri, rows(i, i + 1), storage_options=options)
        reader = deltic.Table(uri, storage_options=options)
        assert ids(reader) == [0, 1]

        item = unfinish(server, uri, 1)
        assert ids(deltic.Table(uri, storage_options=options)) == [0, 1]
        key = {key: {"S": item[key]} for key in ("tablePath", "fileName")}
        found = servers.aws_json(server.endpoint, "GetItem", {"TableName": "delta_log", "Key": key})["Item"]
        assert isinstance(found, dict)
        assert found["complete"] == {"S": "true"}
        assert int(found["expireTime"]["N"]) > 1_700_000_000
        assert deltic.write(uri, rows(2, 3), storage_options=options).version == 2
        assert ids(reader) == [0, 1, 2]


TAKE_TURNS = """
import json, os, sys
import deltalake
import pyarrow as pa

uri, options, first, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for i in range(first, first + count):
    data = pa.table({"id": pa.array([i], pa.int64()), "part": ["x"]})
    deltalake.write_deltalake(uri, data, mode="append", storage_options=options)
read = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table()
print(json.dumps([deltalake.__version__, sorted(read["id"].to_pylist())]), flush=True)
# Exit without waiting for the package's threads.
os._exit(0)
"""


class OtherWriter:
    """An older delta-rs, which uses delta-spark's format of the lock table. delta-spark's own jar is not available."""

    PACKAGE = "deltalake==1.2.1"

    def __init__(self, server: servers.Server, uri: str) -> None:
        site = servers.pip_folder(self.PACKAGE.replace("==", "-"), [self.PACKAGE])
        self.environment = {**os.environ, "PYTHONPATH": str(site), "AWS_EC2_METADATA_DISABLED": "true"}
        lock = {"aws_s3_locking_provider": "dynamodb", "delta_dynamo_table_name": "delta_log"}
        lock |= {"aws_endpoint_url": server.endpoint, "aws_endpoint_url_dynamodb": server.endpoint}
        self.command = [sys.executable, "-c", TAKE_TURNS, uri, json.dumps({**server.storage_options, **lock})]

    def start(self, first: int, count: int) -> subprocess.Popen[str]:
        command = [*self.command, str(first), str(count)]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    def append(self, first: int, count: int) -> list[int]:
        """Append rows one by one; return the ids that the process then reads."""
        return self.result(self.start(first, count))

    def result(self, process: subprocess.Popen[str]) -> list[int]:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        version, read = json.loads(output)
        assert version == self.PACKAGE.split("==")[1]
        return list(read)


def items(server: servers.Server, uri: str) -> dict[str, dict[str, dict[str, str]]]:
    """The item of each commit in the DynamoDB table, by file name."""
    found = servers.aws_json(server.endpoint, "Scan", {"TableName": "delta_log"})["Items"]
    assert isinstance(found, list)
    own = {item["fileName"]["S"]: item for item in found if item["tablePath"] == {"S": uri}}
    return {name: item for name, item in own.items() if name.endswith(".json")}


def test_another_writer_takes_turns_through_dynamodb(started: Started) -> None:
    store = started.store("dynamodb")
    uri = store.server.uri("turns")
    other = OtherWriter(store.server, uri)
    expected = []
    for turn in range(3):
        deltic.write(uri, rows(2 * turn, 2 * turn + 1), storage_options=store.options)
        expected += [2 * turn, 2 * turn + 1]
        assert other.append(2 * turn + 1, 1) == expected
    assert ids(deltic.Table(uri, storage_options=store.options)) == expected

    command = [sys.executable, "-c", APPEND, uri, json.dumps(store.options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ours = [subprocess.Popen([*command, str(first)], env=environment) for first in (100, 200)]
    theirs = [other.start(first, 5) for first in (300, 400)]
    assert [writer.wait(300) for writer in ours] == [0, 0]
    for process in theirs:
        other.result(process)
    expected += [first + i for first in (100, 200, 300, 400) for i in range(5)]
    table = deltic.Table(uri, storage_options=store.options)
    assert table.snapshot().version == 25
    assert ids(table) == expected == other.append(0, 0)
    claimed = items(store.server, uri)
    assert sorted(claimed) == [f"{version:020}.json" for version in range(26)]
    assert {item["complete"]["S"] for item in claimed.values()} == {"true"}
    assert {frozenset(item) for item in claimed.values()} == {
        frozenset({"tablePath", "fileName", "tempPath", "complete", "expireTime"})
    }


def test_another_writer_finishes_what_deltic_claimed(started: Started) -> None:
    store = started.store("dynamodb")
    uri = store.server.uri("finished")
    for i in range(2):
        deltic.write(uri, rows(i, i + 1), storage_options=store.options)
    unfinish(store.server, uri, 1)
    assert OtherWriter(store.server, uri).append(2, 1) == [0, 1, 2]
    assert items(store.server, uri)[f"{1:020}.json"]["complete"] == {"S": "true"}
    assert ids(deltic.Table(uri, storage_options=store.options)) == [0, 1, 2]
