"""Arguments of a wrong kind: an `InvalidInputError` that names the argument, from every call, and nothing written."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import deltic

ROW = pa.table({"a": [1]})
SCHEMA = pa.schema([("a", pa.int64())])


def within(table: deltic.Table, use: Callable[[deltic.Transaction], object]) -> None:
    with table.transaction() as transaction:
        use(transaction)


CALLS: dict[str, Callable[[deltic.Table], object]] = {
    "columns[0] must be a string": lambda t: t.scan(columns=[1]),
    "columns must be a list of names, not int": lambda t: t.plan(columns=5),
    "columns must be a list of names, not a string": lambda t: t.scan(columns="a"),
    "filter must be a string of SQL, not int": lambda t: t.scan(filter=5),
    "filter must be a string of SQL, not bool": lambda t: t.files(filter=True),
    "filter must be a string of SQL, not list": lambda t: t.changes(filter=["a"]),
    "filter is not valid Unicode": lambda t: t.scan(filter="a = '\ud800'"),
    "uri must be a path or a URL, not None": lambda t: deltic.Table(None),
    "uri must be a path or a URL, not bytes": lambda t: deltic.Table(b"table"),
    "uri must be a path or a URL, not int": lambda t: deltic.write(5, ROW),
    "storage_options['timeout'] must be a string, not int": lambda t: deltic.Table(t.uri, {"timeout": 5}),
    "storage_options must be a mapping": lambda t: deltic.Table(t.uri, "a=b"),
    "cache_bytes must be a whole number from 0, not -1": lambda t: deltic.Table(t.uri, cache_bytes=-1),
    "max_attempts must be a whole number from 1, not '3'": lambda t: t.transaction(max_attempts="3"),
    "max_attempts must be a whole number from 1, not 0": lambda t: t.enable_row_tracking(0),
    "commit_empty must be True or False": lambda t: t.transaction(commit_empty="no"),
    "operation must be a string": lambda t: t.transaction(operation=5),
    "user_metadata must be a string, not int": lambda t: t.transaction(user_metadata=5),
    "user_metadata cannot be stored as JSON": lambda t: t.transaction(user_metadata={"a": object()}),
    "user_metadata must be a string, not list": lambda t: deltic.write(t, ROW, user_metadata=["a"]),
    "timestamp must be a datetime or an ISO 8601 string, not NaTType": lambda t: t.snapshot(timestamp=pd.NaT),
    "start must be a datetime or an ISO 8601 string, not NaTType": lambda t: t.changes(start=pd.NaT),
    "files must be True or False": lambda t: t.check(files="yes"),
    "app_id must be a string": lambda t: t.snapshot().transaction_version(5),
    "what[0] must be a string": lambda t: within(t, lambda tx: tx.remove([1])),
    "what must be a list": lambda t: within(t, lambda tx: tx.remove(5)),
    "name must be a string, not float": lambda t: within(t, lambda tx: tx.set_metadata(name=0.5)),
    "unset[0] must be a string": lambda t: within(t, lambda tx: tx.set_metadata(unset=[5])),
    "domain must be a string": lambda t: within(t, lambda tx: tx.set_domain(5, "x")),
    "hook must be a function": lambda t: within(t, lambda tx: tx.on_commit(5)),
    "properties must be a mapping of strings, not str": lambda t: deltic.write(t.uri, ROW, properties="x"),
    "properties must be a mapping of strings, not int": lambda t: deltic.create(t.uri + "2", SCHEMA, properties=5),
    "property 'a' must be a string": lambda t: deltic.write(t, ROW, properties={"a": 1}),
    "name must be a string, not int": lambda t: deltic.write(t.uri, ROW, name=5),
    "description must be a string": lambda t: deltic.create(t.uri + "2", SCHEMA, description=5),
    "partition_by[0] must be a string": lambda t: deltic.write(t.uri, ROW, partition_by=[1]),
    "target_file_size must be a whole number from 1, not 0": lambda t: deltic.write(t.uri, ROW, target_file_size=0),
    "target_file_size must be a whole number from 1, not -1": lambda t: deltic.write(t, ROW, target_file_size=-1),
    "app_version must be a whole number, not '1'": lambda t: deltic.write(t, ROW, app_id="a", app_version="1"),
    "is not a compression": lambda t: deltic.write(t, ROW, compression=""),
}


@pytest.fixture
def table(uri: str) -> deltic.Table:
    table = deltic.Table(uri)
    deltic.write(table, ROW)
    return table


@pytest.mark.parametrize("told", CALLS)
def test_an_argument_of_a_wrong_kind_is_named(table: deltic.Table, told: str) -> None:
    with pytest.raises(deltic.InvalidInputError) as caught:
        CALLS[told](table)
    assert told in str(caught.value)
    assert table.snapshot().version == 0
    assert not deltic.Table(table.uri + "2").exists()


def test_a_setting_is_named_and_not_shown(uri: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match="aws_secret_access_key") as caught:
        deltic.Table(uri, {"aws_secret_access_key": b"hunter2"})
    assert "hunter2" not in str(caught.value)


HALF_NULL = pa.array([{"a": 1}, None])


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"a": [1, "x", b"y"]}),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pa.array([1]),
        pa.chunked_array([[1]]),
        HALF_NULL,
        pa.chunked_array([HALF_NULL]),
    ],
    ids=["mixed", "twice", "array", "chunks", "null row", "null row in chunks"],
)
def test_data_that_are_no_rows(table: deltic.Table, data: Any) -> None:
    for call in (deltic.write, lambda uri, data: within(deltic.Table(uri), lambda tx: tx.append(data))):
        with pytest.raises(deltic.InvalidInputError):
            call(table.uri, data)
    assert table.snapshot().version == 0


def test_names_may_come_from_anything_that_yields_them(table: deltic.Table) -> None:
    for columns in (pd.Index(["a"]), (name for name in "a"), {"a": 0}):
        assert table.scan(columns=columns).to_arrow().num_rows == 1
