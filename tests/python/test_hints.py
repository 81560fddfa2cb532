"""Hints for names of deltalake and delta-spark: keyword arguments, and what follows `optimize`."""

import copy
import inspect
import operator
import pickle
import pydoc
import re
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

import deltic
from deltic.hints.keywords import KEYWORDS
from deltic.hints.names import MERGES, OF_OPTIMIZE, OPTIMIZED

OF_SPARK = {"spark.read", "spark.write", "DeltaTable.forPath"}
"""Functions that need PySpark: `tests/spark/test_options.py` has their tests."""


@pytest.fixture
def table(uri: str) -> deltic.Table:
    table = deltic.Table(uri)
    for value in (1, 2):
        deltic.write(table, pa.table({"v": [value]}))
    return table


def function_of(table: deltic.Table, name: str) -> Callable[..., Any]:
    """A function that has hints, by its name in `KEYWORDS`."""
    owner, _, method = name.rpartition(".")
    owners = {
        "": table.scan() if method == "to_pandas" else deltic,
        "Table": table,
        "Snapshot": table.snapshot(),
        "Transaction": table.transaction(),
        "Merge": table.merge(pa.table({"v": [1]}), "source.v = target.v"),
    }
    found: Callable[..., Any] = getattr(owners[owner], method)
    return found


@pytest.mark.parametrize("name", sorted(KEYWORDS.keys() - OF_SPARK))
def test_keywords_of_other_clients_get_hints(table: deltic.Table, name: str) -> None:
    function = function_of(table, name)
    parameters = inspect.signature(function).parameters
    for keyword, hint in KEYWORDS[name].items():
        assert keyword not in parameters, f"{name} has {keyword} now: remove its hint"
        with pytest.raises(TypeError, match=re.escape(f"{name}() has no argument {keyword!r}: {hint}")):
            function(**{keyword: None})
        own, _, of_others = hint.partition("; `Table.transaction` has")
        assert set(re.findall(r"`(\w+)`", own)) <= parameters.keys(), hint
        assert set(re.findall(r"`(\w+)`", of_others)) <= inspect.signature(table.transaction).parameters.keys(), hint
        for path in re.findall(r"`(?:deltic\.)?((?:Table|TransactionScan|Scan|Merge|lit)[\w.]*)", hint):
            assert operator.attrgetter(path)(deltic)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing_like_it'"):
        function(nothing_like_it=None)
    assert deltic.Table(table.uri).snapshot().version == 1


def test_a_call_with_hints_keeps_its_signature() -> None:
    assert list(inspect.signature(deltic.Table).parameters) == ["uri", "storage_options", "cache_bytes"]
    assert list(inspect.signature(deltic.Table.delete).parameters)[:3] == ["self", "where", "isolation"]
    assert get_type_hints(deltic.write)["return"] is deltic.Commit
    assert "replace_where: 'str | None' = None" in pydoc.render_doc(deltic.write)
    assert deltic.write.__module__ == "deltic.write"
    assert (deltic.Table.vacuum.__doc__ or "").startswith("Delete files")


def test_keywords_of_a_write_change_no_table(table: deltic.Table) -> None:
    with pytest.raises(TypeError, match="use `replace_where`"):
        deltic.write(table, pa.table({"v": [9]}), "overwrite", predicate="v = 1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="use `where`"):
        table.delete(predicate="v = 1")  # type: ignore[call-arg]
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [1, 2]


def test_methods_of_optimize_say_to_call_it(table: deltic.Table) -> None:
    method: Any = table.optimize
    for name, hint in OF_OPTIMIZE.items():
        with pytest.raises(AttributeError, match=re.escape(f"Table.optimize.{name}() does not exist: {hint}")):
            getattr(method, name)(["v"])
    with pytest.raises(AttributeError):
        _ = method.nothing_like_it
    assert table.snapshot().version == 1


def test_an_optimize_that_was_called_says_that_it_is_done(table: deltic.Table) -> None:
    result: Any = table.optimize()
    assert result.versions == [2]
    for name, hint in OPTIMIZED.items():
        with pytest.raises(AttributeError, match=re.escape(f"OptimizeResult has no attribute {name!r}: {hint}")):
            getattr(result, name)("v")
    with pytest.raises(AttributeError, match=r"OptimizeResult has no attribute 'nothing_like_it'$"):
        _ = result.nothing_like_it
    assert copy.copy(result) == pickle.loads(pickle.dumps(result)) == result


def test_wrong_arguments_name_the_class_of_the_object(table: deltic.Table) -> None:
    with table.transaction() as transaction:
        things: dict[str, Any] = {
            "Table": table,
            "Transaction": transaction,
            "Scan": table.scan(),
            "TransactionScan": transaction.scan(),
        }
        for name, of in {
            "optimize": "Table",
            "delete": "Table Transaction",
            "add_constraint": "Table Transaction",
            "clone": "Table",
            "layout": "Table",
            "limit": "Scan TransactionScan",
            "to_pandas": "Scan TransactionScan",
        }.items():
            for kind in of.split():
                with pytest.raises(TypeError, match=rf"^{kind}\.{name}\(\) got an unexpected .* 'nothing_like_it'"):
                    getattr(things[kind], name)(nothing_like_it=1)
                assert getattr(type(things[kind]), name).__qualname__ == f"{kind}.{name}"
    with pytest.raises(TypeError, match=r"^Table\.add_constraint\(\) missing 2 required positional arguments"):
        table.add_constraint()  # type: ignore[call-arg]
    assert inspect.signature(deltic.Table.set_name) == inspect.signature(deltic.Transaction.set_name)
    assert (deltic.Transaction.set_name.__doc__ or "") == deltic.Table.set_name.__doc__


def test_rows_that_are_not_read_say_how_to_read_them(table: deltic.Table) -> None:
    scan: Any = table.scan()
    for loop in (lambda: list(scan), lambda: next(iter(scan)), lambda: scan["v"]):
        with pytest.raises(TypeError, match=r"^Scan is not read yet: loop over `to_reader\(\)`.*`to_arrow\(\)`"):
            loop()
    assert not isinstance(scan, Iterable)


@pytest.mark.parametrize("name", sorted(MERGES))
def test_clauses_of_delta_spark_say_their_name(table: deltic.Table, name: str) -> None:
    merge = table.merge(pa.table({"v": [1]}), "source.v = target.v")
    with pytest.raises(AttributeError, match=re.escape(f"Merge has no attribute {name!r}: {MERGES[name]}")):
        getattr(merge, name)
    (instead,) = re.findall(r"`Merge\.(\w+)`", MERGES[name])
    assert instead.replace("_", "") == name.lower()
    assert callable(getattr(merge, instead))
    with pytest.raises(AttributeError, match=r"Merge has no attribute 'nothing_like_it'$"):
        _ = merge.nothing_like_it  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("on", "aliases", "condition"),
    [
        (["id"], (), '"source.id = target.id", not list'),
        (("day", "a b"), ("s", "t"), '"s.day = t.day AND s.`a b` = t.`a b`", not tuple'),
        (None, (), '"source.id = target.id", not None'),
        ({"id": "id"}, (), '"source.id = target.id", not dict'),
    ],
)
def test_columns_of_a_merge_are_shown_as_its_condition(
    table: deltic.Table, on: Any, aliases: tuple[str, ...], condition: str
) -> None:
    with pytest.raises(deltic.InvalidInputError, match=re.escape(f"on must be a string of SQL, such as {condition}")):
        table.merge(pa.table({"id": [1]}), on, *aliases)


@pytest.mark.parametrize(
    ("mode", "instead"),
    [("overwrite", ": use 'create_or_replace' for an empty table"), ("append", ": use 'ignore' to keep"), (5, "")],
)
def test_modes_of_a_write_are_not_those_of_create(uri: str, mode: Any, instead: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match=f"mode must be 'error', .*, not {mode!r}{instead}"):
        deltic.create(uri, pa.schema([("v", pa.int64())]), mode=mode)
    assert not deltic.Table(uri).exists()


@pytest.mark.parametrize("schema", ["id long, name string", {"id": "long"}, [("id", "long")], None])
def test_schemas_of_other_clients_say_how_columns_are_written(uri: str, schema: Any) -> None:
    with pytest.raises(
        deltic.InvalidInputError, match=f"not {type(schema).__name__.replace('Type', '')}: write "
    ) as of:
        deltic.create(uri, schema)
    written = str(of.value).partition("write ")[2]
    assert deltic.create(uri, eval(written, {"deltic": deltic})).version == 0
    assert deltic.Table(uri).snapshot().schema.names == ["id", "name"]
