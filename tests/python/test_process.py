"""Living in a Python process: fork, threads, the interpreter's lock, Ctrl-C."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import deltic


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> deltic.Table:
    """A table that takes a moment to read, even on a fast machine."""
    uri = str(tmp_path_factory.mktemp("big") / "t")
    rows = 200_000
    columns = {f"c{i}": [f"value {i} {row % 1000}" for row in range(rows)] for i in range(4)}
    for _ in range(4):
        deltic.write(uri, pa.table({"id": list(range(rows)), **columns}))
    return deltic.Table(uri)


def test_a_forked_child_reads_and_writes(big: deltic.Table, uri: str) -> None:
    snapshot = big.snapshot()
    assert snapshot.scan(filter="id < 10").to_arrow().num_rows == 40, "the parent's threads are running"
    deltic.write(uri, pa.table({"who": ["parent"]}))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            deltic.write(uri, pa.table({"who": ["child"]}))
            inherited = snapshot.scan(filter="id < 10").to_arrow().num_rows
            opened = big.snapshot().scan(filter="id < 10").to_arrow().num_rows
            status = 0 if (inherited, opened) == (40, 40) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert big.scan(filter="id < 10").to_arrow().num_rows == 40, "and the parent goes on"
    assert sorted(deltic.Table(uri).scan().to_arrow()["who"].to_pylist()) == ["child", "parent"]


def test_writes_of_what_deltic_reads_do_not_wait_for_one_another(tmp_path: Path, python: str) -> None:
    # In a process of its own, which can be ended.
    script = """
        import os, sys
        from concurrent.futures import ThreadPoolExecutor
        import deltic, pyarrow as pa

        folder, writers = sys.argv[1], 3 * ((os.cpu_count() or 1) + 6)
        for at in range(3):
            deltic.write(folder + "/source", pa.table({"n": list(range(20_000))}))

        def copy(at):
            scan = deltic.Table(folder + "/source").scan()
            data = [scan, scan.to_reader(1000), pa.RecordBatchReader.from_stream(scan)][at % 3]
            deltic.write(f"{folder}/{at}", data)
            return deltic.Table(f"{folder}/{at}").scan().to_arrow().num_rows

        with ThreadPoolExecutor(writers) as pool:
            assert list(pool.map(copy, range(writers))) == [60_000] * writers
    """
    subprocess.run([python, "-c", textwrap.dedent(script), str(tmp_path)], check=True, timeout=120)


def _count(snapshot: deltic.Snapshot) -> int:
    return snapshot.scan(filter="id < 10").to_arrow().num_rows


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_snapshots_travel_to_other_processes(big: deltic.Table, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_count, [big.snapshot(0), big.snapshot(3)]) == [10, 40]


def longest_wait(work: threading.Thread) -> float:
    """Seconds for which this thread could not run while another one worked."""
    longest, last = 0.0, time.perf_counter()
    work.start()
    while work.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def test_reading_and_writing_leave_the_interpreter_free(big: deltic.Table, uri: str) -> None:
    table = big.scan().to_arrow()
    for work in (
        lambda: big.scan(columns=["id"], filter="c1 LIKE '%99%'").to_arrow(),
        lambda: deltic.write(uri, table),
        lambda: [big.snapshot().num_files for _ in range(50)],
    ):
        started = time.perf_counter()
        waited = longest_wait(threading.Thread(target=work))
        took = time.perf_counter() - started
        assert waited < max(0.25, took / 3), f"held the lock for {waited:.2f} of {took:.2f} seconds"


def test_threads_share_a_table(big: deltic.Table) -> None:
    snapshot = big.snapshot()
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda i: snapshot.scan(filter=f"id = {i}").to_arrow().num_rows, range(40)))
    assert counts == [4] * 40


INTERRUPTED = """
    import sys, time, deltic
    table = deltic.Table(sys.argv[1])
    print("ready", flush=True)
    started = time.monotonic()
    try:
        while True:
            {work}
    except KeyboardInterrupt:
        print(f"stopped {{time.monotonic() - started:.2f}}", flush=True)
"""


@pytest.mark.parametrize(
    "work",
    [
        "table.scan().to_arrow()",
        "table.snapshot().files().read_all()",
        "deltic.write(sys.argv[2], table.scan())",
        # A server that accepts and never answers.
        "deltic.Table(f's3://b/t', {'aws_endpoint': sys.argv[3], 'aws_allow_http': 'true', 'aws_region': 'x',"
        " 'aws_access_key_id': 'a', 'aws_secret_access_key': 'b'}).snapshot()",
    ],
    ids=["read", "list", "write", "wait for a store"],
)
def test_ctrl_c_stops_it(big: deltic.Table, uri: str, work: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        program = textwrap.dedent(INTERRUPTED.format(work=work))
        process = subprocess.Popen(
            [sys.executable, "-c", program, big.uri, uri, endpoint], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            time.sleep(1.0)
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert output.startswith("stopped"), output
    assert process.returncode == 0
    assert time.monotonic() - sent < 5


INTERRUPTED_WRITE = """
    import sys, threading, time, pathlib, _thread, pyarrow as pa, deltic
    uri = sys.argv[1]
    rows = pa.record_batch({"p": list(range(8)) * 2000, "n": list(range(16000))})
    written = lambda: [p for p in pathlib.Path(uri).rglob("*.parquet") if "_delta_log" not in p.parts]
    before = len(written())

    def endless():
        while True:
            yield rows

    def interrupt():
        while len(written()) < before + 20:
            time.sleep(0.01)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    data = pa.RecordBatchReader.from_batches(rows.schema, endless())
    try:
        WORK
    except KeyboardInterrupt:
        print(len(written()) - before, flush=True)
"""


@pytest.mark.parametrize(
    "work",
    [
        "deltic.write(uri + '/new', data, target_file_size=1000)",
        "deltic.write(uri, data, target_file_size=1000)",
        "with deltic.Table(uri).transaction() as tx: tx.append(data)",
    ],
    ids=["a new table", "an append", "a transaction"],
)
def test_ctrl_c_leaves_no_data_files(uri: str, work: str) -> None:
    properties = {"delta.targetFileSize": "1000"}
    start = pa.table({"p": [0], "n": pa.array([0], pa.int64())})
    deltic.write(uri, start, partition_by=["p"], properties=properties)
    program = textwrap.dedent(INTERRUPTED_WRITE).replace("WORK", work)
    found = subprocess.run([sys.executable, "-c", program, uri], capture_output=True, text=True, timeout=60)
    assert (found.stdout.strip(), found.returncode) == ("0", 0), found.stderr
    assert deltic.Table(uri).scan().to_arrow().num_rows == 1


def test_importing_starts_no_threads(root: Path) -> None:
    program = "import threading, os, deltic; print(len(os.listdir('/proc/self/task')))"
    if not Path("/proc/self/task").is_dir():
        pytest.skip("needs /proc to count threads")
    plain = subprocess.run(
        [sys.executable, "-c", program.replace("deltic", "pyarrow")], capture_output=True, text=True, check=True
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(found.stdout) <= int(plain.stdout)


def test_importing_deltic_does_not_import_pyspark_or_pandas() -> None:
    program = "import sys, deltic; print({'pyspark', 'pandas', 'polars'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("given", [None, "5"])
def test_the_environment_is_as_it_was(given: str | None) -> None:
    """The core's allocator is given its setting as it is loaded, and nobody else sees it."""
    setting = {} if given is None else {"MIMALLOC_PURGE_DELAY": given}
    environment = {key: value for key, value in os.environ.items() if key != "MIMALLOC_PURGE_DELAY"} | setting
    show = (
        "import os, deltic; print(sorted(k + '=' + v for k, v in os.environ.items() if 'MIMALLOC' in k), "
        "'_deltic' in dir(deltic))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", show], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    expected = [] if given is None else [f"MIMALLOC_PURGE_DELAY={given}"]
    assert seen.stdout.strip() == f"{expected} True"
