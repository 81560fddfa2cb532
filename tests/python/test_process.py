"""Behaviour in a Python process: fork, threads, the GIL, Ctrl-C."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import deltic

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> deltic.Table:
    """A table that takes some time to read, even on a fast machine."""
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
    assert big.scan(filter="id < 10").to_arrow().num_rows == 40, "the parent still works"
    assert sorted(deltic.Table(uri).scan().to_arrow()["who"].to_pylist()) == ["child", "parent"]


def test_concurrent_copies_by_deltic_do_not_deadlock(tmp_path: Path, python: str) -> None:
    # In another process, which can be killed after a deadlock.
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
def test_snapshots_can_be_sent_to_other_processes(big: deltic.Table, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_count, [big.snapshot(0), big.snapshot(3)]) == [10, 40]


def longest_wait(work: threading.Thread) -> float:
    """The longest time in seconds that this thread could not run while another one worked."""
    longest, last = 0.0, time.perf_counter()
    work.start()
    while work.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def test_reading_and_writing_release_the_gil(big: deltic.Table, uri: str) -> None:
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
        # A server that accepts connections and never answers.
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
def test_importing_does_not_change_the_environment(given: str | None) -> None:
    """Importing deltic does not change environment variables of its allocator."""
    setting = {} if given is None else {"MIMALLOC_PURGE_DELAY": given}
    environment = {key: value for key, value in os.environ.items() if key != "MIMALLOC_PURGE_DELAY"} | setting
    show = (
        "import os, sys, deltic; print(sorted(k + '=' + v for k, v in os.environ.items() if 'MIMALLOC' in k), "
        "'deltic._deltic' in sys.modules)"
    )
    seen = subprocess.run(
        [sys.executable, "-c", show], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    expected = [] if given is None else [f"MIMALLOC_PURGE_DELAY={given}"]
    assert seen.stdout.strip() == f"{expected} True"


def test_checkpoints_are_the_same_with_and_without_the_page_decoder(tmp_path: Path) -> None:
    """Processes with and without the page decoder read each other's checkpoints."""
    program = """
        import sys, deltic, pyarrow as pa
        table = deltic.Table(sys.argv[1])
        for filter in (None, "n > 450", "p = 'b'", "s IS NULL"):
            plan = table.plan(filter=filter)
            print(plan.files_kept, sorted(plan.to_arrow()["path"].to_pylist()))
        print(sorted(table.files().read_all().to_pylist(), key=lambda file: file["path"]))
        table.checkpoint()
    """
    uri = str(tmp_path / "table")
    for start in range(0, 500, 100):
        rows = pa.table(
            {
                "n": range(start, start + 100),
                "s": [None if start == 200 else f"s{n}" for n in range(100)],
                "p": ["a", "b"] * 50,
            }
        )
        deltic.write(uri, rows, partition_by=["p"])
    deltic.Table(uri).checkpoint()
    answers = []
    for switch in ("on", "off", "on"):
        # Each process reads the checkpoint of the one before.
        found = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), uri],
            env=os.environ | {"DELTIC_DIRECT_PAGES": switch},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        answers.append(found.stdout)
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].splitlines()[0].startswith("10 ")


SOURCE = """
    import contextlib, os, signal, sys, threading, time
    import numpy as np, pyarrow as pa, deltic
    uri, S = sys.argv[1], pa.schema([("id", pa.int64()), ("s", pa.string())])
    closed, made = [], []

    def interrupt_after(batches):
        def watch():
            while len(made) < batches:
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=watch, daemon=True).start()

    def rows(bad_at=None, fails_at=None, count=300):
        try:
            for i in range(count):
                time.sleep(0.01)
                if i == fails_at:
                    raise LookupError("no row today")
                # Memory of Python's, which is given back with the interpreter's help.
                ids = pa.array(np.full(1000, i)) if i != bad_at else pa.array([None] * 1000, pa.int64())
                made.append(i)
                yield pa.record_batch([ids, pa.array(["a"] * 1000)], schema=S)
        finally:
            closed.append(threading.current_thread().name)

    def reader(g):
        return pa.RecordBatchReader.from_batches(S, g)

    deltic.create(uri, pa.schema([pa.field("id", pa.int64(), False), ("s", pa.string())]))
    written = lambda: [name for name in os.listdir(uri) if name.endswith(".parquet")]
"""

ENDINGS = {
    "all is well": (0, "deltic.write(uri, reader(rows(count=5))); assert closed == ['MainThread'], closed"),
    "the error is handled": (
        1,
        """
        try:
            deltic.write(uri, reader(rows(bad_at=3)))
        except deltic.InvalidInputError:
            assert not written()
            sys.exit(1)
        """,
    ),
    "the error is not handled": (1, "deltic.write(uri, reader(rows(bad_at=3)))"),
    "a transaction fails": (
        1,
        """
        with deltic.Table(uri).transaction() as tx:
            tx.append(reader(rows(count=2)))
            tx.append(reader(rows(bad_at=3)))
        """,
    ),
    "the source raises": (
        0,
        """
        try:
            deltic.write(uri, reader(rows(fails_at=3)))
        except deltic.InvalidInputError as error:
            assert isinstance(error.__cause__, LookupError), repr(error.__cause__)
            assert "no row today" in str(error) and closed == ["MainThread"] and not written()
        else:
            sys.exit("nothing was raised")
        """,
    ),
    "a failed source is closed": (
        0,
        """
        g = rows(bad_at=3)
        with contextlib.suppress(deltic.InvalidInputError):
            deltic.write(uri, reader(g))
        g.close()
        assert closed == ["MainThread"], closed
        """,
    ),
    "Ctrl-C": (
        -signal.SIGINT,
        """
        interrupt_after(5)
        deltic.write(uri, reader(rows()))
        """,
    ),
    "Ctrl-C in a transaction": (
        -signal.SIGINT,
        """
        interrupt_after(15)
        try:
            with deltic.Table(uri).transaction() as tx:
                tx.append(reader(rows(count=10)))
                tx.append(reader(rows()))
        finally:
            assert not written(), written()
        """,
    ),
    "Ctrl-C in a stream of C that Python feeds": (
        -signal.SIGINT,
        """
        class Stream:
            def __init__(self, rows):
                self.rows = rows

            def __arrow_c_stream__(self, requested_schema=None):
                return self.rows.__arrow_c_stream__(requested_schema)

        interrupt_after(5)
        try:
            deltic.write(uri, Stream(reader(rows())))
        finally:
            assert not written(), written()
        """,
    ),
    "Ctrl-C in a source that waits": (
        -signal.SIGINT,
        """
        def waits():
            yield from rows(count=3)
            threading.Event().wait(50)

        interrupt_after(3)
        deltic.write(uri, reader(waits()))
        """,
    ),
    "a thread that nobody waits for": (
        0,
        """
        threading.Thread(target=lambda: deltic.write(uri, reader(rows())), daemon=True).start()
        while len(made) < 5:
            time.sleep(0.01)
        """,
    ),
    "a thread that nobody waits for, and a function that hears of it": (
        0,
        """
        def hear(report):
            time.sleep(0.02)
            for _ in range(20_000):
                pass

        def again():
            while True:
                deltic.Table(uri).vacuum(dry_run=True)

        deltic.progress(hear)
        deltic.write(uri, reader(rows(count=3)))
        for _ in range(3):
            threading.Thread(target=again, daemon=True).start()
            threading.Thread(target=lambda: deltic.write(uri, reader(rows())), daemon=True).start()
        time.sleep(0.5)
        """,
    ),
    "a write while the interpreter ends": (
        0,
        """
        import atexit
        threading.excepthook = lambda arguments: None
        rewrite = lambda: deltic.write(uri, reader(rows(count=3))).version == 1 or os._exit(9)
        atexit.register(rewrite)
        """,
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_wrote_from_python_exits_cleanly(tmp_path: Path, python: str, ending: str) -> None:
    code, work = ENDINGS[ending]
    program = textwrap.dedent(SOURCE) + textwrap.dedent(work)
    for run in range(4):
        ended = subprocess.run(
            [python, "-c", program, str(tmp_path / f"t{run}")], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode in ({code, 130} if code < 0 else {code}), ended.stderr
        assert "panicked" not in ended.stderr


def test_a_source_may_read_and_write_tables(uri: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    deltic.write(other, pa.table({"id": list(range(5))}))

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield from deltic.Table(other).scan().to_arrow().to_batches()
            deltic.write(other, deltic.Table(other).scan().to_reader())

    deltic.write(uri, pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), rows()))
    assert deltic.Table(uri).scan().to_arrow().num_rows == 5 + 10 + 20


def test_files_are_encoded_while_the_source_runs(uri: str) -> None:
    """The source waits for a file with its first rows, which would deadlock if encoding waited for the source."""

    def rows() -> Iterator[pa.RecordBatch]:
        for at in range(40):
            yield pa.record_batch({"id": list(range(at * 1000, at * 1000 + 1000))})
        deadline = time.monotonic() + 30
        while not list(Path(uri).glob("*.parquet")):
            assert time.monotonic() < deadline, "no file was written"
            time.sleep(0.01)

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), rows())
    assert deltic.write(uri, reader, target_file_size=4096).num_added_files > 1


@pytest.mark.parametrize("kind", [ValueError, deltic.StorageError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_of_a_source_reaches_the_caller(uri: str, kind: type[BaseException]) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    before = set(Path(uri).glob("*.parquet"))
    raised = kind("as it is")

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [2]})
        raise raised

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), rows())
    with pytest.raises((Exception, kind)) as caught:
        deltic.write(uri, reader)
    if kind is ValueError:
        assert type(caught.value) is deltic.InvalidInputError
        assert caught.value.__cause__ is raised
        assert str(caught.value) == "the data could not be read: ValueError: as it is"
    else:
        assert caught.value is raised
    assert set(Path(uri).glob("*.parquet")) == before
    assert deltic.Table(uri).scan().to_arrow().num_rows == 1


def test_batches_with_other_types_than_their_reader_are_refused(uri: str) -> None:
    announced = pa.schema([("id", pa.int64())])
    for wrong in (pa.record_batch({"id": pa.array([1], pa.int32())}), pa.record_batch({"a": [1], "id": [2]})):
        with pytest.raises(deltic.InvalidInputError, match="announced"):
            deltic.write(uri, pa.RecordBatchReader.from_batches(announced, [wrong]))


def test_a_stream_that_was_opened_before_a_fork_is_refused_in_the_child(uri: str, tmp_path: Path) -> None:
    deltic.write(uri, pa.table({"x": list(range(1000))}))

    def streams() -> list[object]:
        scan = deltic.Table(uri).scan()
        begun = scan._core.read()
        begun.read_next()
        return [begun, scan._core.read(), scan.to_reader(), pa.RecordBatchReader.from_stream(scan._core.read())]

    opened = streams()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(30)
            for at, stream in enumerate(opened):
                with pytest.raises(deltic.DelticError, match="before the process forked"):
                    deltic.write(str(tmp_path / f"copy{at}"), stream)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    for at, stream in enumerate(opened[1:]):
        assert deltic.write(str(tmp_path / f"mine{at}"), stream).metrics["numOutputRows"] == 1000


@pytest.mark.parametrize("bad", [1, 20_000], ids=["few rows", "many rows"])
def test_invalid_arrow_data_leave_no_files(uri: str, bad: int) -> None:
    keys = pa.array([0] * bad + [99], pa.int8())
    broken = pa.table({"x": pa.DictionaryArray.from_arrays(keys, pa.array(["a"]), safe=False)})
    deltic.create(uri, pa.schema([("x", pa.string())]))
    table = deltic.Table(uri)

    def append_both() -> None:
        with table.transaction() as tx:
            tx.append(pa.table({"x": ["good"]}))
            tx.append(broken)

    with pytest.raises(deltic.InvalidInputError, match="column `x` is not valid"):
        append_both()
    assert not list(Path(uri).glob("*.parquet"))
    with pytest.raises(deltic.InvalidInputError, match="column `x` is not valid"):
        deltic.write(uri, broken)
    assert not list(Path(uri).glob("*.parquet"))


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_transaction_that_is_left_by_an_exception_leaves_no_files(uri: str, kind: type[BaseException]) -> None:
    deltic.create(uri, pa.schema([("x", pa.string())]))
    table = deltic.Table(uri)

    def append() -> None:
        with table.transaction() as tx:
            tx.append(pa.table({"x": ["good"]}))
            assert list(Path(uri).glob("*.parquet"))
            raise kind

    with pytest.raises(kind):
        append()
    assert not list(Path(uri).glob("*.parquet"))
