"""OpenTelemetry spans: their names, attributes and children, and that nothing is imported without a tracer."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltic
from deltic import Table, _deltic

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@contextmanager
def tracing(monkeypatch: pytest.MonkeyPatch, sampler: Any = None) -> Iterator[Callable[[], list[Any]]]:
    """A function for the finished spans since the last call, of a tracer provider for this test."""
    trace = pytest.importorskip("opentelemetry.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)

    def finished() -> list[Any]:
        ended = list(exporter.get_finished_spans())
        exporter.clear()
        return ended

    yield finished
    provider.shutdown()
    assert _deltic.begin_trace(False) is None, "all operations have ended"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with tracing(monkeypatch) as finished:
        yield finished


def made(uri: str, files: int = 3) -> Table:
    for _ in range(files):
        deltic.write(uri, ROWS)
    return Table(uri)


def one(spans: list[Any], name: str) -> Any:
    (span,) = [span for span in spans if span.name == f"deltic.{name}"]
    return span


def attributes(spans: list[Any], name: str) -> dict[str, Any]:
    return {key.removeprefix("deltic."): value for key, value in one(spans, name).attributes.items()}


def of_core(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.name.startswith("deltic.core.")]


def below(spans: list[Any], name: str) -> list[tuple[str, dict[str, int]]]:
    """Name and attributes of an operation's pieces of work, whose times must be within the operation's."""
    operation = one(spans, name)
    pieces = [piece for piece in of_core(spans) if piece.parent.span_id == operation.context.span_id]
    for piece in pieces:
        assert piece.context.trace_id == operation.context.trace_id
        assert operation.start_time <= piece.start_time <= piece.end_time <= operation.end_time
    return [(piece.name.removeprefix("deltic.core."), dict(piece.attributes)) for piece in pieces]


@pytest.mark.slow
def test_operations_are_spans(uri: str, tmp_path: Path, spans: Any) -> None:
    deltic.write(uri, ROWS)
    finished = spans()
    size = next(Path(uri).glob("*.parquet")).stat().st_size
    place = Table(uri).uri
    expected = {"table": place, "version": 0, "rows": 3, "files": 1, "bytes": size, "retries": 0}
    assert attributes(finished, "write") == expected
    assert one(finished, "commit").parent.span_id == one(finished, "write").context.span_id
    assert attributes(finished, "commit")["version"] == 0
    table = Table(uri)
    assert table.scan(["id"], "id > 1").to_arrow().num_rows == 2
    finished = spans()
    assert attributes(finished, "plan") == {"table": place, "files": 1, "bytes": size}
    assert (attributes(finished, "scan")["rows"], attributes(finished, "scan")["table"]) == (2, place)
    table.update({"v": "upper(v)"}, "id = 1")
    assert {"version": 1, "rows": 1, "table": place}.items() <= attributes(spans(), "update").items()
    source = pa.table({"id": [2, 9], "v": ["x", "y"]})
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert {"version": 2, "rows": 2, "table": place}.items() <= attributes(spans(), "merge").items()
    table.delete("id = 9")
    finished = spans()
    assert {"version": 3, "rows": 1}.items() <= attributes(finished, "delete").items()
    assert one(finished, "commit").parent.span_id == one(finished, "delete").context.span_id
    deltic.write(table, ROWS)
    spans()
    files = len(pa.table(table.files()))
    table.optimize()
    assert {"version": 5, "files": files, "dry_run": False}.items() <= attributes(spans(), "optimize").items()
    found = table.vacuum(0, force=True, dry_run=True).files_deleted
    assert {"files": found, "dry_run": True}.items() <= attributes(spans(), "vacuum").items()
    table.restore(4)
    assert {"version": 6, "files": files}.items() <= attributes(spans(), "restore").items()
    assert table.checkpoint() == 6
    assert attributes(spans(), "checkpoint") == {"table": place, "version": 6}
    clone = table.clone(tmp_path / "clone")
    assert attributes(spans(), "clone")["version"] == clone.version
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(ROWS, folder / "a.parquet")
    deltic.convert(folder)
    assert {"version": 0, "files": 1, "rows": 3, "table": str(folder)}.items() <= attributes(spans(), "convert").items()


def test_transactions_are_spans_of_their_steps(uri: str, spans: Any) -> None:
    table = Table(uri)
    deltic.create(uri, ROWS.schema)
    spans()
    with table.transaction() as tx:
        tx.append(ROWS)
        deltic.write(uri, ROWS)
    finished = spans()
    assert attributes(finished, "append") == {"table": table.uri}
    ended = [span for span in finished if span.name == "deltic.commit" and "deltic.table" in span.attributes]
    assert [span.attributes["deltic.retries"] for span in ended] == [1], "the other writer won"
    assert [span.parent for span in ended] == [None]


def test_an_error_is_recorded(uri: str, spans: Any) -> None:
    deltic.write(uri, ROWS)
    spans()
    with pytest.raises(deltic.InvalidInputError):
        Table(uri).delete("nothing = 1")
    span = one(spans(), "delete")
    assert (span.status.status_code.name, span.attributes["error.type"]) == ("ERROR", "InvalidInputError")
    (event,) = span.events
    assert event.name == "exception"
    assert "nothing" in event.attributes["exception.message"]
    with pytest.raises(deltic.InvalidInputError):
        Table(uri).vacuum(0)
    assert one(spans(), "vacuum").status.status_code.name == "ERROR"


def test_a_location_has_no_credentials(spans: Any) -> None:
    uri = "s3://KEY:SECRET@bucket/table?signature=SECRET"
    options = {"aws_region": "x", "aws_endpoint": "http://127.0.0.1:1", "allow_http": "true", "max_retries": "0"}
    try:
        table = Table(uri, options)
    except deltic.InvalidInputError:
        table = Table("s3://bucket/table", {**options, "aws_access_key_id": "KEY", "aws_secret_access_key": "SECRET"})
    with pytest.raises(deltic.DelticError):
        deltic.write(table, ROWS)
    finished = spans()
    assert attributes(finished, "write")["table"] == "s3://bucket/table"
    assert not any("SECRET" in span.to_json() for span in finished)


@pytest.mark.slow
def test_opentelemetry_is_not_imported_by_deltic(uri: str) -> None:
    code = f"""
        import sys
        import pyarrow as pa
        import deltic

        class Refused:
            def find_spec(self, name, *rest):
                assert not name.startswith("opentelemetry"), name

        sys.meta_path.insert(0, Refused())
        deltic.write({uri!r}, pa.table({{"id": [1]}}))
        table = deltic.Table({uri!r})
        table.delete("id = 1")
        table.optimize()
        print(table.scan().count(), [name for name in sys.modules if name.startswith("opentelemetry")])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0 []\n"


@pytest.mark.slow
def test_the_api_without_a_provider_prints_nothing(uri: str) -> None:
    pytest.importorskip("opentelemetry.trace")
    code = f"""
        import opentelemetry.trace
        import pyarrow as pa
        import deltic

        deltic.write({uri!r}, pa.table({{"id": [1]}}))
        print(deltic.Table({uri!r}).scan().count())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    "place",
    [
        "start_as_current_span",
        "__enter__",
        "is_recording",
        "set_attribute",
        "set_span_in_context",
        "start_span",
        "end",
        "__exit__",
    ],
)
def test_a_failing_tracer_does_not_fail_the_operation(uri: str, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    reached = set()

    def reach(here: str) -> None:
        reached.add(here)
        if here == place:
            raise RuntimeError(place)

    class Span:
        def is_recording(self) -> bool:
            reach("is_recording")
            return True

        def set_attribute(self, name: str, value: object) -> None:
            reach("set_attribute")

        def end(self, end_time: int) -> None:
            reach("end")

        def __enter__(self) -> Span:
            reach("__enter__")
            return self

        def __exit__(self, *error: object) -> None:
            reach("__exit__")

    class Tracer:
        def start_as_current_span(self, name: str, **options: object) -> Span:
            reach("start_as_current_span")
            return Span()

        def start_span(self, name: str, **options: object) -> Span:
            reach("start_span")
            return Span()

    module = types.ModuleType("opentelemetry.trace")
    module.get_tracer = lambda *_: Tracer()  # type: ignore[attr-defined]
    module.set_span_in_context = lambda _: reach("set_span_in_context")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    assert deltic.write(uri, pa.table({"id": [1]})).version == 0
    with pytest.raises(deltic.InvalidInputError):
        deltic.write(uri, pa.table({"other": [1]}))
    assert deltic.Table(uri).scan().count() == 1
    assert place in reached
    assert _deltic.begin_trace(False) is None, "all operations have ended"


def test_core_work_is_below_the_span_of_its_operation(uri: str, spans: Any) -> None:
    deltic.write(uri, ROWS, properties={"delta.checkpointInterval": "2"})
    finished = spans()
    assert below(finished, "write") == [("write", {"deltic.rows": 3})]
    assert of_core(finished) == [one(finished, "core.write")], "this commit has no long work"
    table = made(uri, 1)
    spans()
    deltic.write(uri, ROWS)
    finished = spans()
    assert below(finished, "write") == [("write", {"deltic.rows": 3})]
    assert below(finished, "commit") == [("checkpoint", {"deltic.files": 3})], "work belongs to the inner operation"
    size = sum(pa.table(table.files())["size"].to_pylist())
    spans()
    table.optimize()
    finished = spans()
    assert below(finished, "optimize") == [("optimize", {"deltic.bytes": size})]
    assert "deltic.work_left_out" not in one(finished, "optimize").attributes
    table.update({"v": "upper(v)"}, "id = 1")
    files, rows = below(spans(), "update")
    assert files == ("update", {"deltic.files": 1})
    assert (rows[0], list(rows[1])) == ("update", ["deltic.rows"])
    assert rows[1]["deltic.rows"] >= 3, "rows of several writes"
    assert table.scan().to_arrow().num_rows == 9
    assert of_core(spans()) == [], "a scan has no work of earlier operations"


def test_work_of_a_failed_operation_is_below_its_span(uri: str, spans: Any) -> None:
    table = made(uri)
    spans()
    with pytest.raises(deltic.InvalidInputError):
        table.update({"id": "id % 0"}, "id = 1")
    finished = spans()
    assert one(finished, "update").status.status_code.name == "ERROR"
    assert {name for name, _ in below(finished, "update")} == {"update"}
    assert len(of_core(finished)) == len(below(finished, "update"))
    table.vacuum(dry_run=True)
    finished = spans()
    assert {name for name, _ in below(finished, "vacuum")} == {"vacuum"}
    assert len(of_core(finished)) == len(below(finished, "vacuum")), "no work of the failed operation is left"


def test_work_belongs_to_the_innermost_operation_of_its_thread(uri: str, tmp_path: Path, spans: Any) -> None:
    inner, other = made(str(tmp_path / "inner")), made(str(tmp_path / "other"))
    spans()

    def rows() -> Iterator[pa.RecordBatch]:
        inner.optimize()
        thread = threading.Thread(target=other.vacuum, kwargs={"dry_run": True})
        thread.start()
        thread.join()
        yield from ROWS.to_batches()

    deltic.write(uri, pa.RecordBatchReader.from_batches(ROWS.schema, rows()))
    finished = spans()
    assert below(finished, "write") == [("write", {"deltic.rows": 3})]
    assert [name for name, _ in below(finished, "optimize")] == ["optimize"]
    assert {name for name, _ in below(finished, "vacuum")} == {"vacuum"}
    assert len(of_core(finished)) == sum(len(below(finished, name)) for name in ("write", "optimize", "vacuum"))


def test_work_is_traced_and_reported_at_once(uri: str, spans: Any) -> None:
    table = made(uri)
    spans()
    reports: list[deltic.Progress] = []
    with deltic.progress(reports.append):
        table.optimize()
    (piece,) = below(spans(), "optimize")
    assert reports[-1].ended
    assert piece == ("optimize", {"deltic.bytes": reports[-1].done})


def test_work_of_an_unsampled_span_is_not_recorded(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

    class NoCommits(Sampler):
        def should_sample(self, parent_context: Any, trace_id: int, name: str, *_: Any, **__: Any) -> SamplingResult:
            return SamplingResult(Decision.DROP if name == "deltic.commit" else Decision.RECORD_AND_SAMPLE)

        def get_description(self) -> str:
            return "no commits"

    with tracing(monkeypatch, NoCommits()) as spans:
        deltic.write(uri, ROWS, properties={"delta.checkpointInterval": "1"})
        spans()
        deltic.write(uri, ROWS)
        finished = spans()
    assert list(Path(uri, "_delta_log").glob("*.checkpoint*.parquet"))
    assert sorted(span.name for span in finished) == ["deltic.core.write", "deltic.write"]


def test_without_a_recorded_span_nothing_is_measured(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    begin, begun = _deltic.begin_trace, []

    def noted(is_recording: bool) -> int | None:
        begun.append(begin(is_recording))
        return begun[-1]

    monkeypatch.setattr(_deltic, "begin_trace", noted)
    with tracing(monkeypatch, ALWAYS_OFF) as spans:
        deltic.write(uri, ROWS)
        assert spans() == []
    assert begun
    assert set(begun) == {None}
    begun.clear()
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    deltic.write(uri, ROWS)
    assert begun == [], "nothing is traced without a tracer"


def test_only_work_of_open_operations_is_timed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the tracer, whose spans would be inner operations.
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    def traced(work: Callable[[], object]) -> list[tuple[str, str, int]]:
        began = time.time_ns()
        trace = _deltic.begin_trace(True)
        assert trace is not None
        work()
        pieces, left_out = _deltic.end_trace(trace)
        assert all(began <= start <= end <= time.time_ns() for *_, start, end in pieces)
        assert left_out == 0
        assert _deltic.end_trace(trace) == ([], 0), "work is returned only once"
        return [piece[:3] for piece in pieces]

    def write() -> None:
        deltic.write(uri, ROWS)

    def elsewhere() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    def inside() -> None:
        assert traced(write) == [("WRITE", "rows", 3)]
        unrecorded = _deltic.begin_trace(False)
        assert unrecorded is not None
        write()
        assert _deltic.end_trace(unrecorded) == ([], 0)

    assert traced(write) == [("WRITE", "rows", 3)]
    write()
    assert traced(lambda: None) == [], "work outside of operations is not kept"
    assert traced(elsewhere) == []
    assert traced(inside) == []
    assert _deltic.begin_trace(False) is None, "all operations have ended"


def test_work_that_is_left_out_is_counted(uri: str, spans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    end = _deltic.end_trace
    monkeypatch.setattr(_deltic, "end_trace", lambda trace: (end(trace)[0], 7))
    deltic.write(uri, ROWS)
    finished = spans()
    assert attributes(finished, "write")["work_left_out"] == 7
    assert below(finished, "write") == [("write", {"deltic.rows": 3})]


@pytest.mark.slow
def test_a_child_forked_in_an_operation_traces_its_own_work(uri: str, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    other = str(tmp_path / "other")
    code = f"""
        import os
        import pyarrow as pa
        import deltic
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        data = pa.table({{"id": [1]}})

        def tell(who):
            names = {{span.context.span_id: span.name for span in exporter.get_finished_spans()}}
            for span in exporter.get_finished_spans():
                if span.name.startswith("deltic.core."):
                    print(who, span.name, names[span.parent.span_id], flush=True)

        def rows():
            child = os.fork()
            if child == 0:
                deltic.Table({other!r}).optimize()
                tell("child")
                os._exit(0)
            os.waitpid(child, 0)
            yield from data.to_batches()

        for _ in range(3):
            deltic.write({other!r}, data)
        exporter.clear()
        deltic.write({uri!r}, pa.RecordBatchReader.from_batches(data.schema, rows()))
        tell("parent")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == [
        "child deltic.core.optimize deltic.optimize",
        "parent deltic.core.write deltic.write",
    ]
