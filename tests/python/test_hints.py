"""Hints for names of deltalake and delta-spark: keyword arguments, and what follows `optimize`."""

import copy
import inspect
import operator
import pickle
import pydoc
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

import deltic
from deltic.hints import OF_OPTIMIZE, OPTIMIZED
from deltic.keyword_hints import KEYWORDS

OF_SPARK = {"spark.write", "DeltaTable.forPath"}
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
    owners = {"": deltic, "Table": table, "Merge": table.merge(pa.table({"v": [1]}), "source.v = target.v")}
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
        for path in re.findall(r"`(?:deltic\.)?((?:Table|Merge|lit)[\w.]*)", hint):
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
