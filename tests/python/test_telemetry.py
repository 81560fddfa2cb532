"""OpenTelemetry spans: their names and attributes, and that nothing is imported without a tracer."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltic
from deltic import Table

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The finished spans of a provider of this test's own."""
    trace = pytest.importorskip("opentelemetry.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)

    def finished() -> list[Any]:
        ended = list(exporter.get_finished_spans())
        exporter.clear()
        return ended

    yield finished
    provider.shutdown()


def one(spans: list[Any], name: str) -> Any:
    (span,) = [span for span in spans if span.name == f"deltic.{name}"]
    return span


def said(spans: list[Any], name: str) -> dict[str, Any]:
    return {key.removeprefix("deltic."): value for key, value in one(spans, name).attributes.items()}


@pytest.mark.slow
def test_operations_are_spans(uri: str, tmp_path: Path, spans: Any) -> None:
    deltic.write(uri, ROWS)
    told = spans()
    size = next(Path(uri).glob("*.parquet")).stat().st_size
    place = Table(uri).uri
    assert said(told, "write") == {"table": place, "version": 0, "rows": 3, "files": 1, "bytes": size, "retries": 0}
    assert one(told, "commit").parent.span_id == one(told, "write").context.span_id
    assert said(told, "commit")["version"] == 0
    table = Table(uri)
    assert table.scan(["id"], "id > 1").to_arrow().num_rows == 2
    told = spans()
    assert said(told, "plan") == {"table": place, "files": 1, "bytes": size}
    assert (said(told, "scan")["rows"], said(told, "scan")["table"]) == (2, place)
    table.update({"v": "upper(v)"}, "id = 1")
    assert {"version": 1, "rows": 1, "table": place}.items() <= said(spans(), "update").items()
    source = pa.table({"id": [2, 9], "v": ["x", "y"]})
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert {"version": 2, "rows": 2, "table": place}.items() <= said(spans(), "merge").items()
    table.delete("id = 9")
    told = spans()
    assert {"version": 3, "rows": 1}.items() <= said(told, "delete").items()
    assert one(told, "commit").parent.span_id == one(told, "delete").context.span_id
    deltic.write(table, ROWS)
    spans()
    files = len(pa.table(table.files()))
    table.optimize()
    assert {"version": 5, "files": files, "dry_run": False}.items() <= said(spans(), "optimize").items()
    found = table.vacuum(0, force=True, dry_run=True).files_deleted
    assert {"files": found, "dry_run": True}.items() <= said(spans(), "vacuum").items()
    table.restore(4)
    assert {"version": 6, "files": files}.items() <= said(spans(), "restore").items()
    assert table.checkpoint() == 6
    assert said(spans(), "checkpoint") == {"table": place, "version": 6}
    clone = table.clone(tmp_path / "clone")
    assert said(spans(), "clone")["version"] == clone.version
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(ROWS, folder / "a.parquet")
    deltic.convert(folder)
    assert {"version": 0, "files": 1, "rows": 3, "table": str(folder)}.items() <= said(spans(), "convert").items()


def test_transactions_are_spans_of_their_steps(uri: str, spans: Any) -> None:
    table = Table(uri)
    deltic.create(uri, ROWS.schema)
    spans()
    with table.transaction() as tx:
        tx.append(ROWS)
        deltic.write(uri, ROWS)
    told = spans()
    assert said(told, "append") == {"table": table.uri}
    ended = [span for span in told if span.name == "deltic.commit" and "deltic.table" in span.attributes]
    assert [span.attributes["deltic.retries"] for span in ended] == [1], "the other writer was first"
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
    told = spans()
    assert said(told, "write")["table"] == "s3://bucket/table"
    assert not any("SECRET" in span.to_json() for span in told)


@pytest.mark.slow
def test_nothing_is_imported_without_it(uri: str) -> None:
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
def test_who_imports_the_api_and_configures_nothing_is_told_nothing(uri: str) -> None:
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


@pytest.mark.parametrize("place", ["start_as_current_span", "__enter__", "set_attribute", "__exit__"])
def test_a_tracer_that_fails_fails_nothing(uri: str, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    class Span:
        def is_recording(self) -> bool:
            return True

        def set_attribute(self, name: str, value: object) -> None:
            if place == "set_attribute":
                raise RuntimeError(place)

        def __enter__(self) -> Span:
            if place == "__enter__":
                raise RuntimeError(place)
            return self

        def __exit__(self, *error: object) -> None:
            if place == "__exit__":
                raise RuntimeError(place)

    class Tracer:
        def start_as_current_span(self, name: str, **options: object) -> Span:
            if place == "start_as_current_span":
                raise RuntimeError(place)
            return Span()

    module = types.ModuleType("opentelemetry.trace")
    module.get_tracer = lambda *_: Tracer()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    assert deltic.write(uri, pa.table({"id": [1]})).version == 0
    with pytest.raises(deltic.InvalidInputError):
        deltic.write(uri, pa.table({"other": [1]}))
    assert deltic.Table(uri).scan().count() == 1
