"""Arguments of a wrong type: every call raises an `InvalidInputError` that names the argument, and writes nothing."""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import deltic
from deltic import arguments
from deltic.results.vacuum import VacuumMode
from deltic.table.copies import CloneMode
from deltic.write import CreateMode

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


@pytest.mark.slow
@pytest.mark.parametrize("message", CALLS)
def test_an_argument_of_a_wrong_kind_is_named(table: deltic.Table, message: str) -> None:
    with pytest.raises(deltic.InvalidInputError) as caught:
        CALLS[message](table)
    assert message in str(caught.value)
    assert table.snapshot().version == 0
    assert not deltic.Table(table.uri + "2").exists()


def test_a_storage_option_is_named_without_its_value(uri: str) -> None:
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
def test_invalid_data_is_refused(table: deltic.Table, data: Any) -> None:
    for call in (deltic.write, lambda uri, data: within(deltic.Table(uri), lambda tx: tx.append(data))):
        with pytest.raises(deltic.InvalidInputError):
            call(table.uri, data)
    assert table.snapshot().version == 0


def test_columns_may_be_any_iterable_of_names(table: deltic.Table) -> None:
    for columns in (pd.Index(["a"]), (name for name in "a"), {"a": 0}):
        assert table.scan(columns=columns).to_arrow().num_rows == 1


def committed(table: deltic.Table, use: Callable[[deltic.Transaction], object], **options: Any) -> object:
    with table.transaction(**options) as transaction:
        return use(transaction)


def written_again(table: deltic.Table) -> deltic.Table:
    deltic.write(table, ROW)
    return table


T: TypeAlias = deltic.Table


def altering(owner: str, verb: str, given: dict[str, Any]) -> Callable[[T, dict[str, Any]], object]:
    def call(table: T, arguments: dict[str, Any]) -> object:
        table.add_columns(pa.field("b", pa.int64()))
        table.set_properties({"delta.columnMapping.mode": "name"})
        chosen = {**given, **arguments}
        if owner == "Table":
            return getattr(table, verb)(**chosen)
        return committed(table, lambda tx: getattr(tx, verb)(**chosen))

    return call


def without_constraint(table: T, drop: Callable[[], object]) -> object:
    """Call `drop` on a table that has the constraint `c`."""
    table.add_constraint("c", "a > 0")
    return drop()


def without_feature(table: T, drop: Callable[[], object]) -> object:
    table.add_feature("domainMetadata")
    return drop()


def in_parts(table: T) -> deltic.Table:
    parts = Path(str(table.uri) + "-in-parts")
    if not parts.exists():
        deltic.write(parts, pa.table({"a": [1], "b": [2]}), partition_by=["a"])
    return deltic.Table(parts)


def of_two(table: T) -> T:
    table.add_columns(pa.field("b", pa.int64()))
    return table


def merging(table: T, **options: Any) -> deltic.Merge[deltic.Commit]:
    return table.merge(**{"source": ROW, "on": "source.a = target.a", **options})


def parquet_beside(table: T) -> Path:
    """A folder `files` next to a table, with a Parquet file."""
    folder = Path(table.uri).parent / "files"
    folder.mkdir()
    pq.write_table(ROW, folder / "1.parquet")
    return folder


# A call of every public function, with a value for each argument of a simple type. `test_every_argument_is_tested`
# checks that none is missing.
ACCEPTED: dict[str, tuple[Callable[[T, dict[str, Any]], object], dict[str, Any]]] = {
    "Table": (lambda t, a: deltic.Table(**{"uri": t.uri, **a}), {"uri": Path("table"), "cache_bytes": 0}),
    "Table.snapshot": (lambda t, a: t.snapshot(**a), {"version": 0, "timestamp": "written"}),
    "Table.scan": (lambda t, a: t.scan(**a).to_arrow(), {"columns": ["a"], "filter": "a = 1"}),
    "Table.plan": (lambda t, a: t.plan(**a).files_kept, {"columns": ["a"], "filter": "a = 1"}),
    "Table.files": (lambda t, a: t.files(**a).read_all(), {"filter": "a = 1"}),
    "Table.changes": (
        lambda t, a: t.changes(**a).to_arrow(),
        {"start": 0, "end": 0, "columns": ["a"], "filter": "a = 1"},
    ),
    "Table.history": (lambda t, a: t.history(**a), {"limit": 1}),
    "Table.check": (lambda t, a: t.check(**a), {"version": 0, "files": True}),
    "Table.transaction": (
        lambda t, a: committed(t, lambda tx: tx.append(ROW), **{"app_id": "a", "app_version": 1, **a}),
        {
            "operation": "MOVE",
            "isolation": "Serializable",
            "user_metadata": "by hand",
            "app_id": "a",
            "app_version": 7,
            "max_attempts": 3,
            "commit_empty": True,
            "commit_info": {"a": np.int64(5)},
        },
    ),
    "Table.compact_log": (
        lambda t, a: (deltic.write(t, ROW), t.compact_log(**{"start": 0, "end": 1, **a})),
        {"start": 0, "end": 1},
    ),
    "Table.enable_row_tracking": (lambda t, a: t.enable_row_tracking(**a), {"max_attempts": 3}),
    "Snapshot.transaction_version": (lambda t, a: t.snapshot().transaction_version(**a), {"app_id": "a"}),
    "Snapshot.files": (lambda t, a: t.snapshot().files(**a).read_all(), {"filter": "a = 1"}),
    "Snapshot.plan": (lambda t, a: t.snapshot().plan(**a), {"columns": ["a"], "filter": "a = 1"}),
    "Snapshot.scan": (lambda t, a: t.snapshot().scan(**a), {"columns": ["a"], "filter": "a = 1"}),
    "Plan.explain": (lambda t, a: t.plan().explain(**a), {"files": True}),
    "Plan.task_groups": (lambda t, a: t.plan().task_groups(**a), {"n": 2}),
    "Scan.to_reader": (lambda t, a: t.scan().to_reader(**a).read_all(), {"batch_size": 1}),
    "Scan.limit": (lambda t, a: t.scan().limit(**a).to_arrow(), {"n": 1}),
    "Scan.head": (lambda t, a: t.scan().head(**a), {"n": 1}),
    "Changes.to_reader": (lambda t, a: t.changes().to_reader(**a).read_all(), {"batch_size": 1}),
    "TransactionScan.to_reader": (
        lambda t, a: committed(t, lambda tx: tx.scan().to_reader(**a).read_all()),
        {"batch_size": 1},
    ),
    "TransactionScan.limit": (lambda t, a: committed(t, lambda tx: tx.scan().limit(**a).to_arrow()), {"n": 1}),
    "TransactionScan.head": (lambda t, a: committed(t, lambda tx: tx.scan().head(**a)), {"n": 1}),
    "Transaction.scan": (
        lambda t, a: committed(t, lambda tx: tx.scan(**a).to_arrow()),
        {"columns": ["a"], "filter": "a = 1"},
    ),
    **{
        f"{owner}.{verb}": (altering(owner, verb, given), {name: given[name] for name in tried})
        for owner in ("Table", "Transaction")
        for verb, (given, tried) in {
            "add_columns": ({"fields": pa.field("new", pa.int64()), "after": "a"}, ["after"]),
            "rename_column": ({"old": "a", "new": "c"}, ["old", "new"]),
            "drop_columns": ({"names": ["a"]}, ["names"]),
            "alter_column": (
                {"name": "a", "type": "long", "nullable": True, "comment": "c", "default": None, "position": "first"},
                ["name", "type", "nullable", "comment", "default", "position"],
            ),
            "unset_properties": ({"names": ["delta.logRetentionDuration"]}, ["names"]),
            "cluster_by": ({"columns": ["a"]}, ["columns"]),
            "set_name": ({"name": "n"}, ["name"]),
            "set_description": ({"description": "d"}, ["description"]),
            "add_feature": ({"name": "domainMetadata"}, ["name"]),
        }.items()
    },
    "field": (
        lambda t, a: deltic.field(**{"name": "a", "type": "long", **a}),
        {"name": "a", "type": "long", "nullable": False, "comment": "c", "default": "1", "generated": "b + 1"}
        | {"identity": {"start": 1, "step": 1}},
    ),
    "Table.delete": (
        lambda t, a: t.delete(**{"where": "a = 1", "app_id": "d", "app_version": 1, **a}),
        {
            "where": "a = 1",
            "isolation": "Serializable",
            "user_metadata": "by hand",
            "app_id": "d",
            "app_version": 7,
            "max_attempts": 3,
        },
    ),
    "Table.delete_preview": (lambda t, a: t.delete_preview(**a), {"where": "a = 1"}),
    "Transaction.delete": (lambda t, a: committed(t, lambda tx: tx.delete(**a)), {"where": "a = 1"}),
    "Table.drop_constraint": (lambda t, a: without_constraint(t, lambda: t.drop_constraint(**a)), {"name": "c"}),
    "Transaction.drop_constraint": (
        lambda t, a: without_constraint(t, lambda: committed(t, lambda tx: tx.drop_constraint(**a))),
        {"name": "c"},
    ),
    "Table.add_constraint": (
        lambda t, a: t.add_constraint(**{"name": "c", "expression": "a > 0", **a}),
        {"name": "c", "expression": "a = 1"},
    ),
    "Transaction.add_constraint": (
        lambda t, a: committed(t, lambda tx: tx.add_constraint(**{"name": "c", "expression": "a > 0", **a})),
        {"name": "c", "expression": "a = 1"},
    ),
    "Table.compact_automatically": (lambda t, a: t.compact_automatically(**a), {"enabled": True}),
    "Transaction.compact_automatically": (
        lambda t, a: committed(t, lambda tx: tx.compact_automatically(**a)),
        {"enabled": True},
    ),
    "progress": (lambda t, a: deltic.progress(**a).__exit__(None, None, None), {"to": False}),
    "Table.optimize": (
        lambda t, a: in_parts(t).optimize(**a),
        {
            "where": "a = 1",
            "zorder_by": ["b"],
            "target_file_size": 1000,
            "full": False,
            "max_tasks": 2,
            "dry_run": True,
        },
    ),
    "Table.layout": (lambda t, a: t.layout(**a), {"columns": ["a"], "small_file_size": 10}),
    "Table.diff": (
        lambda t, a: t.diff(**{"from_version": None if "from_timestamp" in a else 0, **a}),
        {"from_version": 0, "to_version": 0, "rows": True, "from_timestamp": "written", "to_timestamp": "written"},
    ),
    "Table.report": (lambda t, a: t.report(**{"path": "report.html", **a}), {"path": Path("report.html")}),
    "convert": (
        lambda t, a: deltic.convert(**{"uri": parquet_beside(t), **a}),
        {"uri": Path("files"), "name": "n", "description": "d", "collect_statistics": False, "dry_run": True},
    ),
    "Table.update": (
        lambda t, a: t.update(**{"set": {"a": "a + 1"}, "app_id": "u", "app_version": 1, **a}),
        {
            "set": {"a": "2"},
            "where": "a = 1",
            "isolation": "Serializable",
            "user_metadata": "by hand",
            "app_id": "u",
            "app_version": 7,
            "max_attempts": 3,
        },
    ),
    "Table.update_preview": (
        lambda t, a: t.update_preview(**{"set": {"a": "a + 1"}, **a}),
        {"set": {"a": "2"}, "where": "a = 1"},
    ),
    "Transaction.update": (
        lambda t, a: committed(t, lambda tx: tx.update(**{"set": {"a": "a + 1"}, **a})),
        {"set": {"a": "2"}, "where": "a = 1"},
    ),
    "Table.merge": (
        lambda t, a: merging(t, **{"app_id": "m", "app_version": 1, **a}).when_matched_delete().execute(),
        {
            "on": "source.a = target.a",
            "source_alias": "source",
            "target_alias": "target",
            "memory_limit": "1 MB",
            "isolation": "Serializable",
            "user_metadata": "by hand",
            "app_id": "m",
            "app_version": 7,
            "max_attempts": 3,
        },
    ),
    "Transaction.merge": (
        lambda t, a: committed(
            t, lambda tx: tx.merge(**{"source": ROW, "on": "source.a = target.a", **a}).when_matched_delete().execute()
        ),
        {"on": "source.a = target.a", "source_alias": "source", "target_alias": "target", "memory_limit": 1 << 20},
    ),
    "Merge.when_matched_update": (
        lambda t, a: merging(t).when_matched_update(**{"set": {"a": "2"}, **a}).execute(),
        {"set": {"a": "3"}, "condition": "target.a = 1"},
    ),
    "Merge.when_matched_update_all": (
        lambda t, a: merging(of_two(t), source=pa.table({"a": [1], "b": [2]})).when_matched_update_all(**a).execute(),
        {"condition": "target.a = 1", "except_columns": ["a"]},
    ),
    "Merge.when_matched_delete": (
        lambda t, a: merging(t).when_matched_delete(**a).execute(),
        {"condition": "target.a = 1"},
    ),
    "Merge.when_not_matched_insert": (
        lambda t, a: merging(t).when_not_matched_insert(**{"values": {"a": "source.a"}, **a}).execute(),
        {"values": {"a": "3"}, "condition": "source.a = 1"},
    ),
    "Merge.when_not_matched_insert_all": (
        lambda t, a: merging(t).when_not_matched_insert_all(**a).execute(),
        {"condition": "source.a = 1", "except_columns": ["a"]},
    ),
    "Merge.when_not_matched_by_source_update": (
        lambda t, a: merging(t).when_not_matched_by_source_update(**{"set": {"a": "2"}, **a}).execute(),
        {"set": {"a": "3"}, "condition": "target.a = 1"},
    ),
    "Merge.when_not_matched_by_source_delete": (
        lambda t, a: merging(t).when_not_matched_by_source_delete(**a).execute(),
        {"condition": "target.a = 1"},
    ),
    "Table.purge": (
        lambda t, a: t.purge(**a),
        {"where": "a = 1", "max_tasks": 2, "dry_run": True, "user_metadata": "by hand", "max_attempts": 3},
    ),
    "Table.repair": (lambda t, a: t.repair(**a), {"dry_run": False, "recover_to": 0, "max_attempts": 3}),
    "Table.write_manifests": (lambda t, a: t.write_manifests(**a), {"dry_run": True}),
    "Table.vacuum": (
        lambda t, a: t.vacuum(**{"retention": 0, "force": True, **a}),
        {"retention": "1 week", "force": True, "dry_run": True, "log": False},
    ),
    "Table.restore": (
        lambda t, a: written_again(t).restore(
            **{"version": None if "timestamp" in a else 0, "app_id": "r", "app_version": 1, **a}
        ),
        {
            "version": 0,
            "timestamp": "written",
            "ignore_missing_files": True,
            "protocol_downgrade_allowed": False,
            "dry_run": True,
            "user_metadata": "by hand",
            "commit_info": {"a": 5},
            "app_id": "r",
            "app_version": 7,
            "max_attempts": 3,
        },
    ),
    "Table.clone": (
        lambda t, a: t.clone(**{"target": t.uri + "2", "app_id": "c", "app_version": 1, **a}),
        {
            "target": Path("table2"),
            "dry_run": True,
            "shallow": False,
            "version": 0,
            "timestamp": "written",
            "user_metadata": "by hand",
            "commit_info": {"a": 5},
            "app_id": "c",
            "app_version": 7,
            "max_attempts": 3,
        },
    ),
    "Table.drop_feature": (
        lambda t, a: without_feature(t, lambda: t.drop_feature(**{"name": "domainMetadata", **a})),
        {"name": "domainMetadata", "truncate_history": False},
    ),
    "Transaction.drop_feature": (
        lambda t, a: without_feature(t, lambda: committed(t, lambda tx: tx.drop_feature(**a))),
        {"name": "domainMetadata"},
    ),
    "Transaction.remove": (lambda t, a: committed(t, lambda tx: tx.remove(**a)), {"what": "a = 1"}),
    "Transaction.set_metadata": (
        lambda t, a: committed(t, lambda tx: tx.set_metadata(**a)),
        {"name": "n", "description": "d", "unset": ["delta.logRetentionDuration"]},
    ),
    "Transaction.set_domain": (
        lambda t, a: committed(
            t,
            lambda tx: (tx.add_feature("domainMetadata"), tx.set_domain(**{"domain": "d", "configuration": "c", **a})),
        ),
        {"domain": "d", "configuration": "c"},
    ),
    "read_task_group": (
        lambda t, a: deltic.read_task_group(**{"uri": t.uri, "group": t.plan().task_groups(1)[0], **a}).read_all(),
        {"uri": Path("table"), "batch_size": 1},
    ),
    "create": (
        lambda t, a: deltic.create(**{"uri": t.uri + "2", "schema": SCHEMA_OF_TWO, **a}),
        {"uri": Path("table2"), "partition_by": ["a"], "cluster_by": ["a"], "name": "n", "description": "d"},
    ),
    "write": (
        lambda t, a: deltic.write(
            **{"uri_or_table": t.uri, "data": ROW, "mode": "overwrite", "app_id": "w", "app_version": 1, **a}
        ),
        {
            "uri_or_table": Path("table"),
            "mode": "overwrite",
            "partition_by": [],
            "replace_where": "a = 1",
            "partition_overwrite": "static",
            "schema_mode": "merge",
            "data_change": True,
            "sort_by": ["a"],
            "max_rows_per_file": 1,
            "row_group_rows": 1,
            "compression_level": 3,
            "column_options": {"a": {"dictionary": np.bool_(False), "bloom_filter": {"fpp": np.float32(0.5)}}},
            "commit_info": {"a": np.int64(5)},
            "max_attempts": 3,
            "name": None,
            "description": None,
            "target_file_size": 1 << 20,
            "memory_limit": 1 << 20,
            "compression": "snappy",
            "user_metadata": "by hand",
            "app_id": "w",
            "app_version": 2,
        },
    ),
}
SCHEMA_OF_TWO = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def signatures() -> set[tuple[str, str]]:
    """Every argument of these types, of all public functions, methods and constructors for callers."""
    found = set()
    kinds = re.compile(r"\b(int|bool|str|Time|Mode|PartitionOverwrite|SchemaMode|Isolation|Compression|PathLike)\b")
    for name in deltic.__all__:
        thing = getattr(deltic, name)
        if name in ("Commit", "Check", "Detail", "Finding") or name.endswith("Error"):
            continue  # not created by callers
        calls = {name: thing} if not isinstance(thing, type) or thing is deltic.Table else {}
        if isinstance(thing, type):
            calls |= {
                f"{name}.{member}": getattr(thing, member)
                for member in dir(thing)
                if not member.startswith("_") and inspect.isfunction(getattr(thing, member))
            }
        for call, function in calls.items():
            for parameter in inspect.signature(function).parameters.values():
                annotation = str(parameter.annotation)
                if parameter.kind is parameter.VAR_KEYWORD:
                    continue
                if kinds.search(annotation) and not annotation.startswith("Mapping[str, str]"):
                    found.add((call, parameter.name))
    return found


def test_every_argument_is_tested() -> None:
    tried = {(call, argument) for call, (_, arguments) in ACCEPTED.items() for argument in arguments}
    assert signatures() == tried, "give a value for each of them in ACCEPTED"


PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.logRetentionDuration": "interval 60 days"}


def forms(value: Any, table: deltic.Table) -> list[Any]:
    """The value as other types that callers may pass, such as NumPy scalars."""
    if value == "written":
        stamp = pd.Timestamp(table.history()[0]["timestamp"], unit="ms", tz="UTC")
        naive = stamp.tz_convert(None)
        return [
            stamp,
            naive,
            stamp.to_pydatetime(),
            naive.to_datetime64(),
            stamp.isoformat(),
            np.str_(stamp.isoformat()),
        ]
    if isinstance(value, Path):
        return [Path(table.uri).parent / value, np.str_(Path(table.uri).parent / value)]
    if isinstance(value, bool):
        return [value, np.bool_(value)]
    if isinstance(value, int):
        return [value, np.int64(value), np.uint32(value), np.array(value)]
    if isinstance(value, str):
        return [value, np.str_(value), Spelled(value)]
    if isinstance(value, list):
        return [value, tuple(value), np.array(value, dtype=object), pd.Index(value, dtype=object), iter(value)]
    return [value]


class Spelled(str):
    def __str__(self) -> str:
        return "not this"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "argument"), [(call, argument) for call, (_, arguments) in ACCEPTED.items() for argument in arguments]
)
def test_scalars_of_numpy_and_pandas_are_accepted(tmp_path: Path, call: str, argument: str) -> None:
    function, arguments = ACCEPTED[call]
    count = None
    for at in range(10):
        folder = tmp_path / str(at)
        folder.mkdir()
        table = deltic.Table(folder / "table")
        deltic.write(table, ROW, properties=PROPERTIES)
        spelled = forms(arguments[argument], table)
        count = len(spelled)
        if at >= count:
            break
        function(table, {argument: spelled[at]})
    assert count


@pytest.mark.parametrize("day", [date(2100, 1, 1), np.datetime64("2100-01-01"), "2100-01-01"])
def test_ends_of_changes_may_be_days(table: deltic.Table, day: Any) -> None:
    with table.transaction() as tx:
        tx.set_properties({"delta.enableChangeDataFeed": "true"})
    deltic.write(table, ROW)
    start = table.snapshot().version
    assert table.changes(np.int64(start), day).versions == range(start, start + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.changes(np.bool_(True)), "start must be a version, a datetime or an ISO 8601 string, not bool"),
        (lambda t: t.changes(1.0), "start must be a version, a datetime or an ISO 8601 string, not float"),
        (lambda t: t.changes(-1), "start must be a version from 0, not -1"),
        (lambda t: t.snapshot(np.True_), "version must be a whole number from 0, not True"),
        (lambda t: t.snapshot(np.float64(1)), "version must be a whole number from 0, not 1.0"),
        (lambda t: t.snapshot(pd.NA), "version must be a whole number from 0, not <NA>"),
        (lambda t: t.snapshot(timestamp=np.datetime64("NaT")), "not NaT"),
        (lambda t: t.snapshot(timestamp=5), "timestamp must be a datetime or an ISO 8601 string, not int"),
    ],
)
def test_other_scalars_are_refused(table: deltic.Table, call: Callable[[T], object], message: str) -> None:
    with pytest.raises(deltic.InvalidInputError) as caught:
        call(table)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("time", "down", "up"),
    [
        (pd.Timestamp("1970-01-01T00:00:00.001000001"), 1, 2),
        (np.datetime64("1970-01-01T00:00:00.001000001"), 1, 2),
        (np.datetime64("1969-12-31T23:59:59.9999"), -1, 0),
        (pd.Timestamp("1970-01-01T01:00:00", tz="Europe/Berlin"), 0, 0),
        (date(1970, 1, 2), 86_400_000, 86_400_000),
        (np.datetime64("1970-01-02"), 86_400_000, 86_400_000),
        ("1970-01-01T00:00:00.0005Z", 0, 1),
    ],
)
def test_times_are_rounded_to_milliseconds(time: Any, down: int, up: int) -> None:
    assert (arguments.epoch_ms(time), arguments.epoch_ms(time, up=True)) == (down, up)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a", "=", 1), "write 'a = 1'"),
        ([("a", "==", 1), ("c", "in", ["UA", "O'H"])], "write \"a = 1 AND c IN ('UA', 'O''H')\""),
        ([[("a", "=", True)], [("b c", "!=", None)]], "write '(a = TRUE) OR (`b c` IS NOT NULL)'"),
        ([("d", ">=", date(2026, 3, 1))], "write \"d >= DATE '2026-03-01'\""),
        ([("a", "~", 1)], "write one string, such as"),
        ({"a": 1}, "filter must be a string of SQL, not dict"),
        (pl.col("a") == 1, "an expression of polars cannot be taken apart: write it as SQL"),
        (pyarrow.dataset.field("a") == 1, "an expression of pyarrow cannot be taken apart: write it as SQL"),
        (pd.Series([True]), "an expression of pandas cannot be taken apart: write it as SQL"),
        (duckdb.ColumnExpression("a"), "an expression of duckdb cannot be taken apart: write it as SQL"),
    ],
)
def test_filters_of_other_libraries_are_refused_with_the_sql(table: deltic.Table, given: Any, message: str) -> None:
    for call in (table.scan, table.plan, table.files, table.changes):
        with pytest.raises(deltic.InvalidInputError) as caught:
            call(filter=given)
        assert message in str(caught.value)


def test_metadata_of_a_commit_may_hold_scalars(table: deltic.Table) -> None:
    given = {"rows": np.int64(3), "share": np.float32(0.5), "day": date(2026, 3, 1), "from": Path("in") / "file"}
    deltic.write(table, ROW, user_metadata=given)
    metadata = json.loads(table.history(1)[0]["userMetadata"])
    assert metadata == {"rows": 3, "share": 0.5, "day": "2026-03-01", "from": os.path.join("in", "file")}


CHOICES: dict[str, set[object]] = {
    "mode": {arguments.Mode, CreateMode, CloneMode, VacuumMode},
    "partition_overwrite": {arguments.PartitionOverwrite},
    "schema_mode": {arguments.SchemaMode},
    "isolation": {arguments.Isolation},
    "compression": {arguments.Compression},
}
"""Arguments that take one of several strings, and the `Literal` type that lists the strings."""


def choices_of(name: str) -> Iterator[tuple[str, str, object]]:
    """The arguments of a public function or class that have such a name, with their types."""
    thing = getattr(deltic, name)
    calls = {name: thing} if inspect.isfunction(thing) else {}
    if isinstance(thing, type):
        calls = {f"{name}.{method}": call for method, call in inspect.getmembers(thing, inspect.isfunction)}
    for call, function in calls.items():
        for argument in CHOICES.keys() & inspect.signature(function).parameters.keys():
            kind = get_type_hints(function)[argument]
            optional = [part for part in get_args(kind) if part is not type(None)]
            yield call, argument, optional[0] if type(None) in get_args(kind) else kind


def test_string_choices_have_literal_types() -> None:
    assert all(get_origin(kind) is Literal and get_args(kind) for kinds in CHOICES.values() for kind in kinds)
    found = {(call, argument): kind for name in deltic.__all__ for call, argument, kind in choices_of(name)}
    assert {key: kind for key, kind in found.items() if kind not in CHOICES[key[1]]} == {}
    for key, kind in {
        ("write", "mode"): arguments.Mode,
        ("write", "compression"): arguments.Compression,
        ("write", "schema_mode"): arguments.SchemaMode,
        ("write", "partition_overwrite"): arguments.PartitionOverwrite,
        ("create", "mode"): CreateMode,
        ("Table.transaction", "isolation"): arguments.Isolation,
        ("Table.vacuum", "mode"): VacuumMode,
    }.items():
        assert found[key] == kind, key


def test_the_snapshot_of_a_transaction_has_a_type() -> None:
    snapshot = vars(deltic.Transaction)["snapshot"]
    assert get_type_hints(snapshot.fget)["return"] is deltic.Snapshot


def test_literal_types_list_the_accepted_strings(table: deltic.Table) -> None:
    for mode in get_args(arguments.Mode):
        if mode != "error":
            deltic.write(table, ROW, mode=mode)
    for compression in get_args(arguments.Compression):
        deltic.write(table, ROW, compression=compression)
    for isolation in get_args(arguments.Isolation):
        committed(table, lambda tx: tx.append(ROW), isolation=isolation)
    other = deltic.Table(table.uri + "2")
    deltic.write(other, ROW, mode="error")
    for overwrite in get_args(arguments.PartitionOverwrite):
        deltic.write(table, ROW, mode="overwrite", partition_overwrite=overwrite)
    for schema_mode in get_args(arguments.SchemaMode):
        deltic.write(table, ROW, mode="overwrite", schema_mode=schema_mode)
    for mode in get_args(CreateMode):
        if mode != "error":
            deltic.create(table, ROW.schema, mode=mode)
    for mode in get_args(VacuumMode):
        table.vacuum(mode=mode, dry_run=True)
    with pytest.raises(deltic.InvalidInputError, match="'upsert'"):
        deltic.write(table, ROW, mode="upsert")


def test_literal_types_list_all_that_the_core_accepts(table: deltic.Table) -> None:
    """The core's messages list the accepted strings."""
    codec: Any = "lzo"
    with pytest.raises(deltic.InvalidInputError) as caught:
        deltic.write(table, ROW, compression=codec)
    listed = str(caught.value).split("; use ")[1].split(" [")[0]
    assert re.split(", | or ", listed) == list(get_args(arguments.Compression))
    level: Any = "ReadCommitted"
    with pytest.raises(deltic.InvalidInputError) as caught:
        committed(table, lambda tx: tx.append(ROW), isolation=level)
    listed = str(caught.value).split("may be ")[1].split(" [")[0]
    assert re.split(", | or ", listed) == list(get_args(arguments.Isolation))
