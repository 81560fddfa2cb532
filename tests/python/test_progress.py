"""Progress reports of long operations: their content, the listener that gets them, and failing listeners."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltic
from deltic import InvalidInputError, Progress, Table, cli
from deltic.monitoring import progress_bars

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    deltic.progress(False)


def made(uri: str, files: int = 6) -> Table:
    for _ in range(files):
        deltic.write(uri, ROWS)
    return Table(uri)


def reported(work: Any) -> list[Progress]:
    reports: list[Progress] = []
    with deltic.progress(reports.append):
        work()
    return reports


def last(reports: list[Progress], operation: str) -> Progress:
    of_it = [report for report in reports if report.operation == operation]
    assert {report.ended for report in of_it[:-1]} <= {False}
    assert [report.done for report in of_it] == sorted(report.done for report in of_it)
    assert of_it[-1].ended
    return of_it[-1]


def test_optimize_counts_bytes(uri: str) -> None:
    table = made(uri)
    size = sum(pa.table(table.files())["size"].to_pylist())
    report = last(reported(table.optimize), "OPTIMIZE")
    assert (report.unit, report.done, report.total) == ("bytes", size, size)
    deltic.write(table, ROWS)
    size = sum(pa.table(table.files())["size"].to_pylist())
    report = last(reported(lambda: table.optimize(zorder_by="id")), "OPTIMIZE")
    assert (report.done, report.total) == (size, size)


def test_writes_count_rows(uri: str) -> None:
    batches = pa.RecordBatchReader.from_batches(ROWS.schema, (batch for _ in range(5) for batch in ROWS.to_batches()))
    for data, rows in ((ROWS, 3), (batches, 15)):
        report = last(reported(lambda data=data: deltic.write(uri, data)), "WRITE")
        assert (report.unit, report.done, report.total) == ("rows", rows, None)


@pytest.mark.slow
def test_other_operations_that_report(uri: str, tmp_path: Path) -> None:
    table = made(uri)
    report = last(reported(lambda: table.clone(str(tmp_path / "deep"), shallow=False)), "CLONE")
    assert (report.unit, report.done, report.total) == ("files", 6, 6)
    assert last(reported(table.checkpoint), "CHECKPOINT").done == 6
    assert last(reported(lambda: table.repair(dry_run=True)), "FSCK").done == 6
    table.delete("id > 0")
    report = last(reported(lambda: table.restore(5)), "RESTORE")
    assert (report.done, report.total) == (6, 6)
    report = last(reported(lambda: table.purge("id = 1", dry_run=True)), "PURGE")
    assert (report.done, report.total) == (6, 6)
    assert last(reported(lambda: table.purge("id = 2")), "REORG").ended
    assert last(reported(lambda: table.vacuum(0, force=True)), "VACUUM").done > 0
    assert last(reported(lambda: table.vacuum(dry_run=True)), "VACUUM").total is None
    folder = tmp_path / "parquet"
    folder.mkdir()
    for number in range(3):
        pq.write_table(ROWS, folder / f"{number}.parquet")
    assert last(reported(lambda: deltic.convert(str(folder))), "CONVERT").done == 3


def of_changes(reports: list[Progress], operation: str) -> list[tuple[str, int, int | None]]:
    """Unit, count and total of the last report of each piece of work, in the order of their beginnings."""
    ids = sorted({report.id for report in reports if report.operation == operation})
    ends = [last([report for report in reports if report.id == id], operation) for id in ids]
    return [(end.unit, end.done, end.total) for end in ends]


@pytest.mark.slow
@pytest.mark.parametrize("marks", [False, True])
def test_row_changes_report_files_and_rows(uri: str, marks: bool) -> None:
    for number in range(4):
        rows = pa.table({"id": range(10 * number, 10 * number + 10), "v": [0] * 10})
        properties = {"delta.enableDeletionVectors": str(marks).lower()} if number == 0 else None
        deltic.write(uri, rows, properties=properties)
    table = Table(uri)
    copied = 0 if marks else 1
    reports = reported(lambda: table.update({"v": "id"}, "id % 10 = 3 AND id < 30"))
    assert of_changes(reports, "UPDATE") == [("files", 3, 3), ("rows", 3 + 27 * copied, 3 + 27 * copied)]
    # The file with ids from 30 on is removed without being read.
    live = table.snapshot().num_files
    reports = reported(lambda: table.delete("id >= 30 OR id % 10 = 4"))
    (files, rows) = of_changes(reports, "DELETE")
    assert (files[0], rows) == ("files", ("rows", 13 + 27 * copied, 13 + 27 * copied))
    assert files[1] == files[2] == live
    source = pa.table({"id": [0, 1, 100], "v": [7, 7, 7]})

    def merge() -> None:
        table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()

    # Without deletion vectors UPDATE and DELETE have left one file with all rows.
    before = table.scan().count()
    reports = reported(merge)
    assert of_changes(reports, "MERGE")[1] == ("rows", *[3 + (before - 2) * copied] * 2)
    assert of_changes(reports, "MERGE")[0][0] == "files"
    reports = reported(lambda: table.delete("id = 12345"))
    assert of_changes(reports, "DELETE") == [("rows", 0, 0)]
    planned = reported(lambda: table.delete_preview("id % 10 = 5"))
    assert {unit for unit, _, _ in of_changes(planned, "DELETE")} == {"files"}, "a preview writes nothing"


@pytest.mark.slow
def test_a_failed_change_ends_its_reports(uri: str) -> None:
    made(uri)
    reports: list[Progress] = []
    with deltic.progress(reports.append), pytest.raises(InvalidInputError):
        Table(uri).update({"id": "id % 0"}, "id = 1")
    assert reports
    assert all(report.ended for report in {report.id: report for report in reports}.values())


@pytest.mark.slow
def test_long_work_reports_while_it_runs(uri: str) -> None:
    def slowly() -> Iterator[pa.RecordBatch]:
        for batch in ROWS.to_batches() * 8:
            time.sleep(0.1)
            yield batch

    began = time.monotonic()
    reports = reported(lambda: deltic.write(uri, pa.RecordBatchReader.from_batches(ROWS.schema, slowly())))
    took = time.monotonic() - began
    assert 3 <= len(reports) <= 10 * took + 2
    assert not reports[0].ended
    assert last(reports, "WRITE").done == 24


@pytest.mark.slow
def test_listeners_are_replaced_and_restored(uri: str) -> None:
    table = made(uri)
    outer: list[Progress] = []
    inner: list[Progress] = []
    deltic.progress(outer.append)
    with deltic.progress(inner.append):
        table.checkpoint()
    before = len(inner)
    assert {report.operation for report in inner} == {"CHECKPOINT"}
    with deltic.progress(False):
        table.optimize()
    assert (len(outer), len(inner)) == (0, before)
    thread = threading.Thread(target=table.vacuum)
    thread.start()
    thread.join()
    assert {report.operation for report in outer} == {"VACUUM"}, "the listener gets reports of all threads"
    before = len(outer)
    deltic.progress(False)
    table.vacuum()
    assert len(outer) == before


def test_blocks_of_several_threads_are_independent(uri: str) -> None:
    table = made(uri)
    outer: list[Progress] = []
    deltic.progress(outer.append)
    first, second = deltic.progress(lambda _: None), deltic.progress(lambda _: None)
    for block in (first, second):
        block.__enter__()
    for block in (first, second):
        block.__exit__(None, None, None)
    table.vacuum()
    assert {report.operation for report in outer} == {"VACUUM"}
    for _ in range(10):
        deltic.progress(outer.append)
    assert len(progress_bars._listeners) <= 2, "listeners that cannot be restored are dropped"


@pytest.mark.slow
def test_a_call_reports_nothing_after_the_block_has_ended(uri: str) -> None:
    reports: list[Progress] = []
    begun, ended = threading.Event(), threading.Event()

    def slowly() -> Iterator[pa.RecordBatch]:
        for batch in ROWS.to_batches() * 3:
            time.sleep(0.15)
            yield batch
        begun.set()
        ended.wait(20)

    stream = pa.RecordBatchReader.from_batches(ROWS.schema, slowly())
    thread = threading.Thread(target=deltic.write, args=(uri, stream))
    with deltic.progress(reports.append):
        thread.start()
        assert begun.wait(20)
    before = len(reports)
    assert before > 0
    ended.set()
    thread.join()
    assert len(reports) == before
    assert Table(uri).scan().count() == 9


def test_the_calling_thread_makes_the_reports(uri: str) -> None:
    table = made(uri)
    threads = []
    with deltic.progress(lambda _: threads.append(threading.current_thread())):
        table.optimize()
    assert set(threads) == {threading.current_thread()}


@pytest.mark.parametrize("wrong", [None, 1, "yes"])
def test_other_arguments_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="progress takes True, False or a function"):
        deltic.progress(wrong)


def test_a_function_that_raises_disturbs_nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(uri)
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))

    def broken(report: Progress) -> None:
        raise ValueError(report.operation)

    with deltic.progress(broken):
        assert table.optimize().versions == [6]
        table.vacuum()
    assert [str(error) for error in raised] == ["OPTIMIZE", "VACUUM"]


@pytest.mark.slow
def test_a_function_stops_the_work_as_ctrl_c_does(uri: str) -> None:
    def stop(report: Progress) -> None:
        raise KeyboardInterrupt

    with deltic.progress(stop), pytest.raises(KeyboardInterrupt):
        deltic.write(uri, pa.RecordBatchReader.from_batches(ROWS.schema, _forever()))
    assert not Path(uri, "_delta_log").exists()
    assert not list(Path(uri).glob("*.parquet"))
    table = made(uri)
    with (
        deltic.progress(stop),
        pytest.raises(KeyboardInterrupt, match="interrupted: the commit was made, as version 6"),
    ):
        table.optimize()
    assert table.scan().count() == 18


def test_a_short_stream_is_not_written_when_its_only_report_stops_it(uri: str) -> None:
    def stop(report: Progress) -> None:
        assert report.ended
        raise KeyboardInterrupt

    stream = pa.RecordBatchReader.from_batches(ROWS.schema, iter(ROWS.to_batches()))
    with deltic.progress(stop), pytest.raises(KeyboardInterrupt):
        deltic.write(uri, stream)
    assert not Path(uri, "_delta_log").exists()
    assert not list(Path(uri).glob("*.parquet"))


def _forever() -> Iterator[pa.RecordBatch]:
    while True:
        yield from ROWS.to_batches()


def test_a_listener_may_use_deltic(uri: str, tmp_path: Path) -> None:
    table = made(uri)
    log = str(tmp_path / "log")

    def record(report: Progress) -> None:
        deltic.write(log, pa.table({"done": [report.done]}))

    with deltic.progress(record):
        table.optimize()
    assert Table(log).scan().to_arrow()["done"].to_pylist()[-1] > 0


@pytest.mark.slow
def test_a_forked_child_reports_its_own_work(uri: str) -> None:
    code = f"""
        import os, sys
        import pyarrow as pa
        import deltic

        def tell(report):
            print(os.getpid(), report.operation, report.ended, flush=True)

        for _ in range(3):
            deltic.write({uri!r}, pa.table({{"id": [1]}}))
        deltic.progress(tell)
        table = deltic.Table({uri!r})
        table.vacuum()
        child = os.fork()
        if child == 0:
            deltic.Table({uri!r}).optimize()
            os._exit(0)
        os.waitpid(child, 0)
        print(child)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    *lines, child = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(child)][-1:] == [f"{child} OPTIMIZE True"]


@pytest.mark.slow
def test_a_child_forked_inside_a_listener_reports_its_own_work(uri: str) -> None:
    code = f"""
        import os
        import pyarrow as pa
        import deltic

        parent, table = os.getpid(), deltic.Table({uri!r})

        def tell(report):
            if os.getpid() != parent:
                print("child", report.operation, report.ended, flush=True)
            elif report.ended:
                child = os.fork()
                if child == 0:
                    deltic.Table({uri!r}).optimize()
                    os._exit(0)
                os.waitpid(child, 0)

        for _ in range(3):
            deltic.write({uri!r}, pa.table({{"id": [1]}}))
        deltic.progress(tell)
        table.vacuum(dry_run=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "child OPTIMIZE True"


class Bars:
    """A replacement for tqdm."""

    made: ClassVar[list[Bars]] = []

    def __init__(self, **options: Any) -> None:
        self.options, self.n, self.closed = options, 0, False
        Bars.made.append(self)

    def update(self, more: int) -> None:
        self.n += more

    def close(self) -> None:
        self.closed = True


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make stderr a terminal. Not a fixture, since pytest replaces stderr for each test."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress_bars, "_BAR_AFTER", 0.0)
    return stderr


def reports() -> list[Progress]:
    return [
        Progress("OPTIMIZE", "bytes", 0, 2000, False, 1),
        Progress("VACUUM", "files", 7, None, False, 2),
        Progress("OPTIMIZE", "bytes", 1000, 2000, False, 1),
        Progress("OPTIMIZE", "bytes", 2000, 2000, True, 1),
    ]


def test_a_terminal_has_bars_of_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    fake = types.ModuleType("tqdm")
    fake.tqdm = Bars  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", fake)
    monkeypatch.setattr(Bars, "made", [])
    bars = progress_bars._Bars()
    for report in reports():
        bars(report)
    optimize, vacuum = Bars.made
    assert (optimize.options["desc"], optimize.options["total"], optimize.options["unit"]) == ("OPTIMIZE", 2000, "B")
    assert (vacuum.options["total"], vacuum.options["unit"]) == (None, " files")
    assert (optimize.n, optimize.closed, vacuum.n, vacuum.closed) == (2000, True, 7, False)
    bars.close()
    assert vacuum.closed
    assert stderr.getvalue() == ""


def test_a_terminal_without_tqdm_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    bars = progress_bars._Bars()
    for report in reports():
        bars(report)
    assert stderr.getvalue().split("\r")[-1] == "OPTIMIZE: 2.0 kB of 2.0 kB (100 %)\n"


def test_tqdm_itself_shows_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    stderr = terminal(monkeypatch)
    bars = progress_bars._Bars()
    for report in reports():
        bars(report)
    bars.close()
    assert "OPTIMIZE: 100%" in stderr.getvalue()
    assert "VACUUM: 7 files" in stderr.getvalue()


def test_threads_share_bars_and_a_report_after_the_end_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    bars = progress_bars._Bars()

    def report(id: int) -> None:
        for at in range(300):
            bars(Progress("VACUUM", "files", at, None, False, 1000 * id + at))

    threads = [threading.Thread(target=report, args=(id,)) for id in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        bars.close()
    for thread in threads:
        thread.join()
    assert bars._shown == {}
    shown = stderr.getvalue()
    bars(Progress("VACUUM", "files", 1, None, False, 1))
    assert stderr.getvalue() == shown


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
def test_without_a_stderr_nothing_is_shown(
    uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], closed: bool
) -> None:
    made(uri)
    stderr = io.StringIO()
    stderr.close()
    monkeypatch.setattr(progress_bars, "_BAR_AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", stderr if closed else None)
    with deltic.progress(True):
        Table(uri).optimize()
    assert cli.main(["vacuum", uri, "--json"]) == 0
    assert capsys.readouterr().out.startswith("{")
    if not closed:
        assert cli.main(["vacuum", uri + "/nothing"]) == 1
        assert capsys.readouterr().out == ""


def test_without_a_terminal_lines_are_printed_occasionally(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bars = progress_bars._Bars()
    bars(reports()[0])
    bars(reports()[3])
    assert capfd.readouterr().err == "", "short work prints nothing"
    monkeypatch.setattr(progress_bars, "_BAR_AFTER", 0.0)
    for report in reports():
        bars(report)
    assert capfd.readouterr().err.splitlines() == [
        "OPTIMIZE: 0 B of 2.0 kB (0 %)",
        "VACUUM: 7 files",
        "OPTIMIZE: 2.0 kB of 2.0 kB (100 %)",
    ]


@pytest.mark.slow
def test_the_command_line_shows_progress_on_a_terminal(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(uri)
    monkeypatch.setattr(progress_bars, "_BAR_AFTER", 0.0)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    shown: set[str] = set()
    monkeypatch.setattr(progress_bars._Bars, "__call__", lambda _, report: shown.add(report.operation))
    assert cli.main(["optimize", uri, "--dry-run"]) == 0
    assert cli.main(["vacuum", uri]) == 0
    assert shown == set(), "stderr is not a terminal here"
    reader, writer = os.openpty()
    with os.fdopen(reader), os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        assert cli.main(["vacuum", uri, "--json"]) == 0
        assert shown == set()
        assert cli.main(["vacuum", uri]) == 0
    assert shown == {"CHECKPOINT", "VACUUM"}, "VACUUM START is version 10"
