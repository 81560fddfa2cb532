"""The memory of a commit with very many files: much less than their actions or JSON would take."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest
import servers
from log_files import Log, add, field, metadata, protocol, struct

import deltic
from deltic import Table

pytestmark = pytest.mark.slow

# The figures of docs/commit-protocol.md are those of a million files, printed with `pytest -s`.
ASKED = int(os.environ.get("DELTIC_FILES_IN_A_COMMIT", "0"))
FILES = ASKED or 40_000
# Enough for a multipart upload.
IN_A_BUCKET = ASKED or 200_000
# Limit in bytes for each file. As structs, JSON and sets of paths each would take 2 kB.
MOST_OF_EACH = 700
# Limit in bytes for any number of files.
MOST = 180e6
SCHEMA = struct(field("x", "long"))

# Each measurement runs in its own process, since the peak is that of the process.
PEAK = """
import json, sys, time
import deltic
from deltic import _deltic

def peak(begin=False):
    if begin:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

uri, options = sys.argv[1], json.loads(sys.argv[2])
"""

REMOVE = """
table = deltic.Table(uri, options)
# Read the log first, since its memory is not that of the commit.
sum(batch.num_rows for batch in table.files())
before, began = peak(begin=True), time.monotonic()
with table.transaction() as transaction:
    assert transaction.remove("TRUE") == FILES
print(peak() - before, time.monotonic() - began)
"""

WRITE = """
import pyarrow as pa
rows = pa.table({"x": [1]})
transaction = _deltic.plan_write(_deltic.Table(uri, options), rows.schema, "{}")
[written] = _deltic.write_files(transaction.write_plan(rows.schema), options, rows)
written = json.loads(written)
files = []
for n in range(FILES):
    written["body"]["add"]["path"] = f"new-{n:05}-{n * 2654435761 % 2**32:08x}-{n * 40503 % 2**16:04x}-c000.parquet"
    files.append(json.dumps(written).encode())
before, began = peak(begin=True), time.monotonic()
transaction.append_files(files)
transaction.commit()
print(peak() - before, time.monotonic() - began)
"""


@pytest.fixture
def large(tmp_path: Path) -> str:
    """A log with very many files, which do not exist."""
    stats = {"numRecords": 1000, "minValues": {"x": 0}, "maxValues": {"x": 999}, "nullCount": {"x": 0}}
    names = (f"part-{n:05}-{n * 2654435761 % 2**32:08x}-{n * 40503 % 2**16:04x}-c000.parquet" for n in range(FILES))
    adds = (add(name, 10**8 + n * 7919, stats) for n, name in enumerate(names))
    return Log.empty(tmp_path / "table", protocol(), metadata(SCHEMA), *adds).uri


def row(x: int) -> pa.Table:
    return pa.table({"x": [x]})


def measure(program: str, uri: str, files: int = FILES, options: dict[str, str] | None = None) -> int:
    """The growth of the process's peak memory during the commit, in bytes."""
    command = [sys.executable, "-c", PEAK + program.replace("FILES", str(files)), uri, json.dumps(options)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    grown, seconds = int(ran.stdout.split()[0]), float(ran.stdout.split()[1])
    what = "add" if program is WRITE else "remove"
    print(f"{uri}: {what} {files} files: +{grown / 1e6:.0f} MB, {seconds:.1f} s")
    return grown


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("program", [REMOVE, WRITE], ids=["remove", "write"])
def test_many_files_are_committed_in_little_memory(large: str, program: str) -> None:
    grown = measure(program, large)
    committed = (Path(large) / "_delta_log" / f"{1:020}.json").stat().st_size
    note = f"{grown / FILES:.0f} bytes for each file, of {committed / FILES:.0f} bytes of JSON"
    assert grown < min(FILES * MOST_OF_EACH, MOST), note
    snapshot = Table(large).snapshot()
    assert snapshot.version == 1
    assert snapshot.num_files == (0 if program is REMOVE else 2 * FILES)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("store", [servers.s3, servers.azure, servers.gcs], ids=["s3", "azure", "gcs"])
def test_many_files_are_committed_to_a_bucket_in_parts(
    store: Callable[[], AbstractContextManager[servers.Server]],
) -> None:
    with store() as server:
        uri, options = server.uri("large"), server.storage_options
        deltic.create(uri, pa.schema([("x", pa.int64())]), storage_options=options)
        for version, (program, action, length) in enumerate([(WRITE, b'{"add"', 262), (REMOVE, b'{"remove"', 172)], 1):
            grown = measure(program, uri, IN_A_BUCKET, options)
            assert grown < MOST, f"{grown} bytes"
            # Less than two copies of the JSON.
            assert grown < IN_A_BUCKET * (length + 150), f"{grown} bytes"
            if store is servers.s3:
                # Read the server's file directly, not through deltic.
                log = server.folder / "data" / servers.BUCKET / "large" / "_delta_log"
                with (log / f"{version:020}.json").open("rb") as lines:
                    assert sum(line.startswith(action) for line in lines) == IN_A_BUCKET
                assert not list((log / ".tmp").glob("*"))
        assert Table(uri, options).snapshot().num_files == 0
        assert [entry["version"] for entry in Table(uri, options).history()] == [2, 1, 0]


def test_a_compacted_log_reads_the_same(uri: str) -> None:
    for n in range(4):
        deltic.write(uri, row(n))
    table = Table(uri)
    with table.transaction() as transaction:
        transaction.remove("x = 1")
    before = sorted(table.scan().to_arrow()["x"].to_pylist())
    path = table.compact_log(1, 4)
    assert (Path(uri) / path).is_file()
    assert sorted(Table(uri).scan().to_arrow()["x"].to_pylist()) == before == [0, 2, 3]
    with pytest.raises(deltic.InvalidInputError, match="nothing to compact"):
        table.compact_log(4, 4)


def test_row_tracking_is_enabled_on_a_table_with_files(uri: str) -> None:
    for n in range(3):
        deltic.write(uri, row(n))
    table = Table(uri)
    with table.transaction() as transaction, pytest.raises(deltic.InvalidInputError, match="enable_row_tracking"):
        transaction.set_properties({"delta.enableRowTracking": "true"})
    version = table.enable_row_tracking()
    assert (version, table.snapshot().properties["delta.enableRowTracking"]) == (5, "true")
    deltic.write(table, row(3))
    found = table.scan(columns=["x", "_metadata.row_id"]).to_arrow().to_pylist()
    assert sorted(row["_metadata.row_id"] for row in found) == [0, 1, 2, 3]
    operations = [entry["operation"] for entry in table.history()]
    assert operations[1:4] == ["SET TBLPROPERTIES", "ROW TRACKING BACKFILL", "UPGRADE PROTOCOL"]
    assert table.check().ok
    assert table.enable_row_tracking() == version + 1
