"""Functions that DuckDB evaluates, in every operation with an expression, and the errors without DuckDB."""

import importlib.util
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest

import deltic
from deltic import duckdb_functions

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

TAGS = pa.list_(pa.string())
FIELDS = [
    pa.field("id", pa.int64()),
    pa.field("tags", TAGS),
    pa.field("first", pa.string(), metadata={"delta.generationExpression": "array_join(sort_array(tags), ',')"}),
    pa.field("parts", pa.string(), metadata={"delta.generationExpression": "array_join(split(line, '[,;]'), '|')"}),
    pa.field("line", pa.string()),
    pa.field("least", pa.int32(), metadata={"CURRENT_DEFAULT": "array_min(array(3, 2))"}),
]
CHECK = "array_max(tags) < 'x' OR id = 0"
ROWS: dict[str, Any] = {"id": [1, 2, 3], "tags": [["b", "a"], [], None], "line": ["a,b;c", "", None]}


@pytest.fixture
def table(uri: str) -> deltic.Table:
    deltic.create(
        uri, pa.schema(FIELDS), properties={"delta.constraints.tagged": f"tags IS NULL OR size(tags) = 0 OR {CHECK}"}
    )
    deltic.write(uri, pa.table(ROWS, schema=pa.schema([FIELDS[0], FIELDS[1], FIELDS[4]])))
    return deltic.Table(uri)


def read(table: deltic.Table, column: str, **options: Any) -> list[Any]:
    return table.scan(list(dict.fromkeys(["id", column])), **options).to_arrow().sort_by("id")[column].to_pylist()


@pytest.mark.slow
def test_columns_are_generated_and_defaults_computed(table: deltic.Table) -> None:
    assert read(table, "first") == ["a,b", "", None]
    assert read(table, "parts") == ["a|b|c", "", None]
    assert read(table, "least") == [2, 2, 2]


def test_a_violation_names_the_constraint_and_the_row(table: deltic.Table) -> None:
    rows = pa.table({"id": [7, 8], "tags": pa.array([["a"], ["y"]], TAGS)})
    with pytest.raises(deltic.InvalidInputError, match=r"`tagged` .* is violated by row 1 .*: tags = .*id = 8"):
        deltic.write(table, rows)
    assert table.snapshot().version == 1


@pytest.mark.slow
def test_rows_are_updated_deleted_and_merged(table: deltic.Table) -> None:
    table.update(set={"tags": "array_append(tags, 'd')"}, where="array_max(tags) = 'b'")
    assert read(table, "tags") == [["b", "a", "d"], [], None]
    assert read(table, "first") == ["a,b,d", "", None]
    source = pa.table({"key": ["a", "z"], "line": ["new", "more"]})
    merged = table.merge(source, on="array_min(target.tags) = source.key")
    merged.when_matched_update(set={"line": "array_join(split(source.line, 'e'), '-')"}).execute()
    assert read(table, "line") == ["n-w", "", None]
    assert read(table, "id", filter="array_min(tags) = 'a'") == [1]
    table.delete(where="array_join(tags, '+') = 'b+a+d'")
    assert read(table, "id") == [2, 3]


@pytest.mark.slow
def test_a_constraint_is_added(table: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match="is violated by 1 row"):
        table.add_constraint("short", "tags IS NULL OR coalesce(array_join(tags, ''), '') = ''")
    table.add_constraint("long", "tags IS NULL OR length(array_join(tags, '')) < 3")
    with pytest.raises(deltic.InvalidInputError, match="`long`"):
        deltic.write(table, pa.table({"id": [9], "tags": pa.array([["a", "bc"]], TAGS)}))


@pytest.mark.slow
def test_writes_in_several_threads(table: deltic.Table) -> None:
    rows = pa.table({"id": pa.array(range(20_000)), "tags": pa.array([["b", "a"]] * 20_000, TAGS)})
    threads = [threading.Thread(target=deltic.write, args=(table, rows)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table.scan(["id"], filter="first = 'a,b'").to_arrow().num_rows == 60_001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("array_max(line) > 'a'", "the function array_max is not evaluated here: it does not take the type string"),
        ("size(split(line, 'a*')) > 1", "split is not evaluated here: it takes a literal of characters"),
        ("size(sort_array(tags, id > 1)) > 1", "the order must be TRUE or FALSE"),
        ("array_max(tags, 'a') = 'a'", "the function array_max does not take 2 arguments"),
        ("array_append(tags, NULL) IS NULL", "the function array_append is not evaluated for NULL itself"),
        ("get_json_object(line, '$.a') = 'a'", "there is no function get_json_object"),
    ],
)
def test_an_unsupported_function_is_named(table: deltic.Table, condition: str, message: str) -> None:
    with pytest.raises(deltic.UnsupportedFeatureError, match=message.replace("$", r"\$")):
        table.delete(where=condition)


def test_without_the_packages_the_refusal_names_them(table: deltic.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def missing(name: str, package: str | None = None) -> Any:
        return None if name == "sqlglot" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    message = r"the function array_max is evaluated by DuckDB, which is not installed; run pip install 'deltic\[sql\]'"
    for refused in (
        lambda: table.delete(where="array_max(tags) = 'a'"),
        lambda: deltic.write(table, pa.table({"id": [1]})),
        lambda: table.add_constraint("more", "array_max(tags) = 'a'"),
    ):
        with pytest.raises(deltic.UnsupportedFeatureError, match="deltic.sql" if refused is not None else message):
            refused()
    with pytest.raises(deltic.UnsupportedFeatureError, match=message):
        table.update(set={"line": "array_max(tags)"})


@pytest.mark.slow
def test_an_error_names_the_function_and_the_expression(table: deltic.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("out of marbles")

    monkeypatch.setattr(duckdb_functions, "_translated", fails)
    message = r"the function array_max failed: out of marbles, in `array_max\(tags\) = 'a'`"
    with pytest.raises(deltic.InvalidInputError, match=message):
        table.delete(where="array_max(tags) = 'a'")


def run_alone(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_a_process_exits_with_an_unread_stream(uri: str) -> None:
    for _ in range(8):
        deltic.write(uri, pa.table({"tags": pa.array([["a", "b"]] * 100_000)}))
    program = """
import sys, deltic
rows = iter(deltic.Table(sys.argv[1]).scan(filter="array_max(tags) = 'b'").to_reader(5000))
next(rows)
"""
    for _ in range(4):
        ended = run_alone(program, uri)
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_a_consumer_of_a_c_stream_may_hold_the_gil(table: deltic.Table) -> None:
    """As `arro3` does: functions of `PYFUNCTYPE` keep the GIL, which a worker thread needs for DuckDB."""
    program = """
import ctypes, sys, deltic
class Stream(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "data")]
class Array(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int64), ("counts", ctypes.c_int64 * 4), ("pointers", ctypes.c_void_p * 3),
                ("release", ctypes.c_void_p), ("data", ctypes.c_void_p)]
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
capsule = deltic.Table(sys.argv[1]).scan(filter="array_max(tags) = 'b'").__arrow_c_stream__()
stream = pointer(capsule, b"arrow_array_stream")
get_next = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(Stream.from_address(stream).get_next)
rows = 0
while True:
    array = Array()
    assert get_next(stream, ctypes.addressof(array)) == 0
    if array.release is None:
        break
    rows += array.length
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(array.release)(ctypes.addressof(array))
print(rows)
"""
    ended = run_alone(program, table.uri)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
