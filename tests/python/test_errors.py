"""Bad input and damaged tables: a typed error says what is wrong, where, and what to do; no data is lost."""

import json
import logging
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from log_files import Log, features, protocol

import deltic


@pytest.fixture
def table(uri: str) -> deltic.Table:
    deltic.write(uri, pa.table({"id": [1, 2], "name": ["a", "b"], "part": ["x", "y"]}), partition_by=["part"])
    return deltic.Table(uri)


def data_file(uri: str) -> Path:
    return next(path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts)


def test_not_a_table(uri: str) -> None:
    with pytest.raises(deltic.TableNotFoundError, match="table") as caught:
        deltic.Table(uri).snapshot()
    assert uri in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    Path(uri).mkdir()
    Path(uri, "data.csv").write_text("not a table")
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(uri).scan()
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(uri).history()


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ([], "table", "there is no Delta log (`_delta_log`) at the location"),
        (["part-0.parquet", "part-1.parquet", "_SUCCESS"], "table", "but 2 Parquet files"),
        (["part-0.parquet"], "day=1", "a partition of a table"),
        (["data.csv"], "table", "no Delta log (`_delta_log`), but 1 files that are not Parquet"),
        (["metadata/v1.metadata.json", "data/a.parquet"], "table", "Apache Iceberg"),
        (["_delta_log/.tmp"], "table/_delta_log", "name the folder above it"),
        ([], "part-[0-9].parquet", "a location is not a pattern"),
        ([], "rows.parquet", "the name of a file"),
        ([], "main.sales.orders", "ask the catalog for its location"),
        (["_delta_log/00000000000000000003.crc"], "table", "neither a commit nor a complete checkpoint"),
    ],
)
def test_the_error_describes_what_exists_instead_of_a_table(
    tmp_path: Path, files: list[str], name: str, message: str
) -> None:
    for file in files:
        path = tmp_path / name.removesuffix("/_delta_log") / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    table = deltic.Table(tmp_path / name)
    reads = (table.snapshot, table.scan, table.history, lambda: table.snapshot(timestamp="2024-01-01"), table.changes)
    for read in reads:
        with pytest.raises(deltic.TableNotFoundError, match="not a Delta table: ") as caught:
            read()
        assert message in str(caught.value)
        assert caught.value.table is not None


@pytest.mark.slow
def test_a_large_folder_is_described_from_a_part_of_it(tmp_path: Path) -> None:
    for number in range(2500):
        (tmp_path / f"part-{number}.parquet").touch()
    with pytest.raises(deltic.TableNotFoundError, match="but many Parquet files"):
        deltic.Table(tmp_path).scan()


def test_a_file_in_the_place_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(deltic.TableNotFoundError, match="the name of a file"):
        deltic.Table(path).scan()


def test_a_table_that_exists_is_not_created(table: deltic.Table, uri: str) -> None:
    rows = pa.table({"id": [3]})
    for create in (lambda: deltic.create(uri, rows.schema), lambda: deltic.write(uri, rows, mode="error")):
        with pytest.raises(deltic.TableExistsError, match="there is a table already") as caught:
            create()
        assert isinstance(caught.value, FileExistsError)
        assert caught.value.table == table.uri
    assert table.snapshot().version == 0


def test_a_missing_data_file_is_named_once(table: deltic.Table, uri: str) -> None:
    missing = data_file(uri)
    missing.unlink()
    with pytest.raises(deltic.CorruptTableError, match="a file that is gone") as caught:
        table.scan().to_arrow()
    assert str(caught.value).count(missing.name) == 1


def deletes_a_row(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.enableDeletionVectors": "true"})
    deltic.Table(uri).delete("n = 1")


def changes_a_row(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.enableChangeDataFeed": "true"})
    deltic.Table(uri).update({"n": "3"}, "n = 1")


def has_sidecars(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.checkpointPolicy": "v2"})
    deltic.Table(uri).checkpoint()
    for commit in Path(uri, "_delta_log").glob("*.json"):
        commit.unlink()


def is_written(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}))


def reads_tasks(table: deltic.Table) -> object:
    (group,) = table.plan().task_groups(1)
    return deltic.read_task_group(table, group).read_all()


MISSING: dict[str, tuple[Callable[[str], None], str, Callable[[deltic.Table], object]]] = {
    "deletion vector": (deletes_a_row, "*.bin", lambda table: table.scan().to_arrow()),
    "change file": (changes_a_row, "_change_data/*.parquet", lambda table: table.changes(1, 1).to_arrow()),
    "sidecar": (has_sidecars, "_delta_log/_sidecars/*.parquet", lambda table: table.scan().to_arrow()),
    "data file of a task": (is_written, "*.parquet", reads_tasks),
    "data file of a scan": (is_written, "*.parquet", lambda table: table.scan().to_arrow()),
    "data file of an update": (is_written, "*.parquet", lambda table: table.update({"n": "1"}, "n = 2")),
    "data file of a merge": (
        is_written,
        "*.parquet",
        lambda table: table.merge(pa.table({"n": [1]}), "source.n = target.n").when_matched_update_all().execute(),
    ),
    "data file of a purge": (deletes_a_row, "*.parquet", lambda table: table.purge()),
    "data file of a stream": (is_written, "*.parquet", lambda table: pa.table(table.scan())),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_file_of_any_kind_is_named_once(uri: str, kind: str) -> None:
    make, pattern, read = MISSING[kind]
    make(uri)
    (missing,) = Path(uri).glob(pattern)
    missing.unlink()
    with pytest.raises((deltic.DelticError, OSError, pa.ArrowException)) as caught:
        read(deltic.Table(uri))
    assert str(caught.value).count(missing.name) == 1, caught.value
    assert not isinstance(caught.value, FileNotFoundError), "the table exists"


@pytest.mark.parametrize("version", [1, 7, 2**40])
def test_a_version_that_does_not_exist(table: deltic.Table, version: int) -> None:
    with pytest.raises(deltic.VersionNotFoundError, match=str(version)) as caught:
        table.snapshot(version)
    assert isinstance(caught.value, LookupError)
    # Not FileNotFoundError, after which a caller may create the table.
    assert not isinstance(caught.value, FileNotFoundError)
    assert (caught.value.earliest_version, caught.value.latest_version) == (0, 0)


def test_a_negative_version(table: deltic.Table) -> None:
    with pytest.raises((deltic.InvalidInputError, OverflowError)):
        table.snapshot(-1)


@pytest.mark.parametrize("location", ["", "ftp://host/table", "s3://", "http://[::1"])
def test_invalid_locations(location: str) -> None:
    with pytest.raises((deltic.InvalidInputError, deltic.UnsupportedFeatureError)):
        deltic.Table(location).exists()


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ("nme = 'a'", "nme"),
        ("id = 'abc'", "id"),
        ("name > 3", "name"),
        ("id = DATE '2013-01-01'", "id"),
        ("id = ", "expected"),
        ("id = 1 AND", "expected"),
        ("(id = 1", r"\)"),
        ("id = 1)", "paren"),
        ("", "expected"),
        ("id + = 2", "expected"),
        ("id + 1", "not a condition"),
        ("name LIKE 3", "LIKE"),
        ("date = DATE '2013-02-30'", "2013-02-30"),
        ("id.x = 1", "id"),
        ("SELECT 1", "SELECT|expected"),
    ],
)
def test_filters_that_do_not_fit(table: deltic.Table, filter: str, message: str) -> None:
    for call in (table.plan, table.scan):
        with pytest.raises(deltic.InvalidInputError, match=message):
            call(filter=filter)
    with pytest.raises(deltic.InvalidInputError, match=message):
        table.files(filter).read_all()


def test_an_unknown_column(table: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match="nme"):
        table.scan(columns=["id", "nme"])
    with pytest.raises(deltic.InvalidInputError, match="id"):
        table.scan(columns=["id", "id"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"id": ["1"], "name": ["a"], "part": ["x"]}, "id"),
        ({"id": [1], "name": ["a"], "part": ["x"], "extra": [1]}, "extra"),
        ({"id": [1.5], "name": ["a"], "part": ["x"]}, "id"),
        ({"id": [1], "name": [["a"]], "part": ["x"]}, "name"),
    ],
)
def test_data_that_do_not_fit(table: deltic.Table, data: dict[str, Any], message: str) -> None:
    before = sorted(Path(table.uri).rglob("*"))
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.write(table.uri, pa.table(data))
    assert sorted(Path(table.uri).rglob("*")) == before, "a refused write leaves no files"
    assert table.snapshot().version == 0


def test_a_null_in_a_required_column(uri: str) -> None:
    deltic.create(uri, pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    with pytest.raises(deltic.InvalidInputError, match="a"):
        deltic.write(uri, pa.table({"a": pa.array([1, None])}))
    with pytest.raises(deltic.InvalidInputError, match="a"):
        deltic.write(uri, pa.table({"b": [1]}))
    assert deltic.Table(uri).snapshot().version == 0


@pytest.mark.parametrize(
    ("schema", "partition_by"),
    [
        (pa.schema([("a", pa.int64())]), ["b"]),
        (pa.schema([("a", pa.int64())]), ["a"]),
        (pa.schema([("a", pa.int64()), ("b", pa.list_(pa.int64()))]), ["b"]),
        (pa.schema([("a", pa.int64()), ("b", pa.int64())]), ["b", "b"]),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), None),
        (pa.schema([("a", pa.null())]), None),
        (pa.schema([("a", pa.uint64())]), None),
        (pa.schema([("a", pa.duration("s"))]), None),
        (pa.schema([]), None),
        ("a long", None),
    ],
    ids=str,
)
def test_schemas_that_delta_cannot_hold(uri: str, schema: Any, partition_by: list[str] | None) -> None:
    with pytest.raises((deltic.InvalidInputError, deltic.UnsupportedFeatureError)):
        deltic.create(uri, schema, partition_by=partition_by)
    assert not deltic.Table(uri).exists()


def test_another_partitioning(table: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match="part"):
        deltic.write(table.uri, pa.table({"id": [1], "name": ["a"], "part": ["x"]}), partition_by=["name"])


def test_mode_error(table: deltic.Table) -> None:
    with pytest.raises(deltic.TableExistsError, match="already"):
        deltic.write(table.uri, pa.table({"id": [1], "name": ["a"], "part": ["x"]}), mode="error")
    assert deltic.write(table.uri + "2", pa.table({"id": [1]}), mode="error").version == 0


@pytest.mark.parametrize("mode", ["upsert", "", None])
def test_an_unknown_mode(table: deltic.Table, mode: Any) -> None:
    with pytest.raises(deltic.InvalidInputError, match="mode"):
        deltic.write(table.uri, pa.table({"id": [1], "name": ["a"], "part": ["x"]}), mode=mode)


def test_a_stream_that_fails_half_way(table: deltic.Table) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("part", pa.string())])

    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [3], "name": ["c"], "part": ["x"]}, schema=schema)
        raise RuntimeError("the source broke")

    before = sorted(Path(table.uri).rglob("*"))
    with pytest.raises(Exception, match="the source broke"):
        deltic.write(table.uri, pa.RecordBatchReader.from_batches(schema, broken()))
    assert sorted(Path(table.uri).rglob("*")) == before
    assert table.snapshot().version == 0


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.slow
def test_a_store_that_cannot_be_reached(closed_port: int) -> None:
    options = {
        "aws_endpoint": f"http://127.0.0.1:{closed_port}",
        "aws_allow_http": "true",
        "aws_region": "eu-west-1",
        "aws_access_key_id": "AKIAVISIBLE",
        "aws_secret_access_key": "hunter2",
    }
    table = deltic.Table("s3://bucket/table", options)
    with pytest.raises(deltic.StorageError) as caught:
        table.snapshot()
    assert isinstance(caught.value, OSError)
    assert "hunter2" not in str(caught.value)
    assert "AKIAVISIBLE" not in str(caught.value)
    with pytest.raises(deltic.StorageError):
        deltic.write(table.uri, pa.table({"a": [1]}), storage_options=options)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for location in (tmp_path / "file", tmp_path / "file" / "table"):
        with pytest.raises((deltic.StorageError, deltic.InvalidInputError)):
            deltic.write(str(location), pa.table({"a": [1]}))
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, 40, -3])
def test_a_truncated_commit(table: deltic.Table, keep: int) -> None:
    deltic.write(table.uri, pa.table({"id": [3], "name": ["c"], "part": ["x"]}))
    commit = Log(table.uri).path(1)
    commit.write_bytes(commit.read_bytes().rstrip()[: keep or None][: None if keep else 0])
    with pytest.raises(deltic.CorruptTableError) as caught:
        table.scan().to_arrow()
    assert caught.value.version == 1
    assert f"{1:020}.json" in str(caught.value)
    assert table.snapshot(0).scan().to_arrow().num_rows == 2


def test_a_missing_commit(table: deltic.Table) -> None:
    for i in range(2):
        deltic.write(table.uri, pa.table({"id": [i], "name": ["c"], "part": ["x"]}))
    Log(table.uri).path(1).unlink()
    with pytest.raises(deltic.CorruptTableError, match="1"):
        table.snapshot()


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_data_file(table: deltic.Table, keep: int) -> None:
    path = data_file(table.uri)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(deltic.CorruptTableError) as caught:
        table.scan().to_arrow()
    assert caught.value.path is not None
    assert path.name in str(caught.value)


def test_a_data_file_that_is_missing(table: deltic.Table) -> None:
    path = data_file(table.uri)
    path.unlink()
    with pytest.raises(deltic.CorruptTableError, match="gone") as caught:
        table.scan().to_arrow()
    assert caught.value.path is not None
    assert path.name in str(caught.value)


def test_a_data_file_that_is_no_parquet(table: deltic.Table) -> None:
    path = data_file(table.uri)
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(deltic.CorruptTableError, match=path.name):
        table.scan().to_arrow()


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", '{"add":{}}', '{"add":{"path":{}}}', '{"add":[]}', "\x00", '{"a":1}{"b":2}']
)
def test_an_invalid_commit(table: deltic.Table, line: str) -> None:
    Log(table.uri).path(1).write_text(line)
    with pytest.raises(deltic.CorruptTableError) as caught:
        table.scan().to_arrow()
    assert caught.value.version == 1


@pytest.mark.parametrize("line", ['{"metaData":null}', '{"telepathy":{"strength":3}}'])
def test_unknown_and_null_actions_are_ignored(table: deltic.Table, line: str) -> None:
    Log(table.uri).path(1).write_text(line)
    assert table.scan().to_arrow().num_rows == 2


def test_a_reader_feature_that_deltic_does_not_have(table: deltic.Table) -> None:
    Log(table.uri).commit(1, [features("telepathy")])
    with pytest.raises(deltic.UnsupportedFeatureError, match="telepathy") as caught:
        table.snapshot()
    assert tuple(caught.value.features) == ("telepathy",)
    assert isinstance(caught.value, NotImplementedError)
    with pytest.raises(deltic.UnsupportedFeatureError):
        deltic.write(table.uri, pa.table({"id": [1], "name": ["a"], "part": ["x"]}))


def test_a_writer_feature_that_deltic_does_not_have(table: deltic.Table) -> None:
    Log(table.uri).commit(1, [protocol(1, 7, writerFeatures=["telepathy"])])
    assert table.scan().to_arrow().num_rows == 2
    with pytest.raises(deltic.UnsupportedFeatureError, match="telepathy"):
        deltic.write(table.uri, pa.table({"id": [1], "name": ["a"], "part": ["x"]}))


def test_an_append_only_table_is_not_overwritten(uri: str) -> None:
    deltic.create(uri, pa.schema([("a", pa.int64())]), properties={"delta.appendOnly": "true"})
    assert deltic.write(uri, pa.table({"a": [1]})).version == 1
    with pytest.raises((deltic.InvalidInputError, deltic.UnsupportedFeatureError)):
        deltic.write(uri, pa.table({"a": [2]}), mode="overwrite")


def test_errors_pickle(table: deltic.Table) -> None:
    with pytest.raises(deltic.VersionNotFoundError) as caught:
        table.snapshot(9)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is deltic.VersionNotFoundError
    assert (again.earliest_version, again.latest_version) == (0, 0)
    assert str(again) == str(caught.value)
    assert again.table == caught.value.table


def test_every_error_is_a_deltic_error() -> None:
    classes = [getattr(deltic, name) for name in deltic.__all__ if name.endswith("Error")]
    assert len(classes) == 15
    assert all(issubclass(cls, deltic.DelticError) and cls.__doc__ for cls in classes)


HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\nINFO all is well"


def hostile_table(uri: str) -> deltic.Table:
    """A table of another writer with terminal escape sequences in all names."""
    fields = [
        {"name": f"a{HOSTILE}", "type": "long", "nullable": False, "metadata": {}},
        {"name": f"p{HOSTILE}", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
    ]
    metadata = {
        "id": "5d9b2d3c-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [f"p{HOSTILE}"],
        "configuration": {f"delta.constraints.c{HOSTILE}": f"`a{HOSTILE}` > 0"},
    }
    added = {
        "path": quote(f"f{HOSTILE}.parquet"),
        "partitionValues": {f"p{HOSTILE}": f"x{HOSTILE}"},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
    }
    log = Log.empty(uri, protocol(1, 3), {"metaData": metadata})
    log.commit(1, [{"add": added}])
    log.commit(2, [{"add": {**added, "partitionValues": {f"p{HOSTILE}": "1"}}}, {"remove": added}])
    return deltic.Table(uri)


def unknown_feature(uri: str) -> None:
    names = [f"zebra{HOSTILE}"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    needed = {"protocol": {**versions, "readerFeatures": names, "writerFeatures": names}}
    schema = json.dumps({"type": "struct", "fields": []})
    metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": schema, "partitionColumns": []}
    Log.empty(uri, needed, {"metaData": {**metadata, "configuration": {}}})
    deltic.Table(uri).snapshot()


ON_HOSTILE: dict[str, Callable[[deltic.Table], object]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "stream": lambda table: pa.table(table.scan()),
    "scan of a bad partition value": lambda table: table.snapshot(1).scan(filter=f"`p{HOSTILE}` = 1").to_arrow(),
    "column": lambda table: table.scan(columns=["nobody"]),
    "own column": lambda table: table.scan(columns=[f"nobody{HOSTILE}"]),
    "filter": lambda table: table.scan(filter="nobody = 1"),
    "type of a filter": lambda table: table.scan(filter=f"`a{HOSTILE}` = 'x'"),
    "syntax of a filter": lambda table: table.scan(filter=f"`a{HOSTILE}` = = 1"),
    "write": lambda table: deltic.write(table, pa.table({"n": [1]})),
    "write of another type": lambda table: deltic.write(
        table, pa.table({f"a{HOSTILE}": ["x"], f"p{HOSTILE}": pa.array([1], pa.int32()), "n": [1]})
    ),
    "write of a null": lambda table: deltic.write(
        table, pa.table({f"a{HOSTILE}": pa.array([None], pa.int64()), f"p{HOSTILE}": pa.array([1], pa.int32())})
    ),
    "write against a rule": lambda table: deltic.write(
        table, pa.table({f"a{HOSTILE}": [-1], f"p{HOSTILE}": pa.array([1], pa.int32()), "n": [1]})
    ),
    "write of one more": lambda table: deltic.write(table, pa.table({f"z{HOSTILE}": [1]})),
    "write of a twice named": lambda table: deltic.write(
        table, pa.table([pa.array([1]), pa.array([1])], [f"z{HOSTILE}", f"Z{HOSTILE}"])
    ),
    "write of an unknown type": lambda table: deltic.write(
        table, pa.table({f"z{HOSTILE}": pa.array([1], pa.uint64())}), schema_mode="merge"
    ),
    "partitions": lambda table: deltic.write(table, pa.table({"n": [1]}), partition_by=["n"]),
    "delete": lambda table: table.delete(f"`a{HOSTILE}` > 0"),
    "update": lambda table: table.update({f"a{HOSTILE}": "'x'"}),
    "merge": lambda table: table.merge(pa.table({"q": [1]}), "source.q = target.nobody").execute(),
    "rename": lambda table: table.rename_column(f"a{HOSTILE}", "n"),
    "drop": lambda table: table.drop_columns([f"p{HOSTILE}"]),
    "add": lambda table: table.add_columns([pa.field(f"n{HOSTILE}", pa.int64(), nullable=False)]),
    "property": lambda table: table.set_properties({f"delta.x{HOSTILE}": "1"}),
    "constraint": lambda table: table.drop_constraint(f"x{HOSTILE}"),
    "optimize": lambda table: table.optimize(where=f"`a{HOSTILE}` > 0"),
    "diff": lambda table: table.diff(0, rows=True),
}


def assert_printable(error: BaseException) -> None:
    """Check that an error and its causes contain no control characters."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        assert all(line.isprintable() for line in text.split("\n  ")), repr(text)
        for place in (getattr(seen, "path", None), getattr(seen, "table", None)):
            assert place is None or place.isprintable(), repr(place)
        seen = seen.__cause__


@pytest.mark.parametrize("name", ON_HOSTILE)
def test_no_control_character_of_a_log_is_in_an_error(uri: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    table = hostile_table(uri)
    caplog.set_level(logging.DEBUG, logger="deltic")
    with pytest.raises((deltic.DelticError, OSError, pa.ArrowException)) as caught:
        ON_HOSTILE[name](table)
    assert_printable(caught.value)
    assert_printable(pickle.loads(pickle.dumps(caught.value)))
    assert all(record.getMessage().isprintable() for record in caplog.records), caplog.text


def test_no_control_character_is_in_names_of_features_paths_and_log_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(deltic.DelticError, match=r"\\x1b\[2J") as caught:
        unknown_feature(str(tmp_path / "unknown"))
    assert_printable(caught.value)
    table = hostile_table(str(tmp_path / "t"))
    with pytest.raises(deltic.CorruptTableError) as missing:
        table.scan().to_arrow()
    assert_printable(missing.value)
    assert missing.value.path == "f\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202e\\r\\nINFO all is well.parquet"
    # A path from the caller is escaped in log records too.
    caplog.set_level(logging.DEBUG, logger="deltic")
    odd = tmp_path / f"odd{HOSTILE.replace('/', '')}"
    deltic.write(odd, pa.table({"n": [1]}))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert all(record.getMessage().isprintable() for record in caplog.records), caplog.text
    error = deltic.CorruptTableError(f"a{HOSTILE}\n  an excerpt", table=HOSTILE, path=HOSTILE)
    assert_printable(error)
    assert str(error).endswith("INFO all is well\n  an excerpt")
