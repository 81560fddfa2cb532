"""The options of `format("deltic")` and of `deltic.spark.write`, each under all of its names."""

import inspect
import json
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sample import adds, log_actions

import deltic
import deltic.spark
from deltic.hints.keywords import KEYWORDS
from deltic.spark.location import opened
from deltic.spark.options import in_zone, read_arguments, write_arguments

Rows = list[tuple[Any, ...]]


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    deltic.spark.register(spark)


@pytest.fixture
def table(spark: SparkSession, uri: str) -> str:
    """Four rows in the partitions a and b, at version 0."""
    deltic.write(uri, pa.table({"p": ["a", "a", "b", "b"], "n": [1, 2, 3, 4]}), partition_by="p")
    return uri


def frame(spark: SparkSession, *rows: tuple[Any, ...], schema: str = "p string, n long") -> DataFrame:
    return spark.createDataFrame(list(rows), schema).coalesce(1)


def save(df: DataFrame, uri: str, mode: str = "append", **options: Any) -> None:
    df.write.format("deltic").mode(mode).options(**options).save(uri)


def content(uri: str) -> Rows:
    return sorted((tuple(row.values()) for row in deltic.Table(uri).scan().to_arrow().to_pylist()), key=repr)


def info(uri: str) -> dict[str, Any]:
    return deltic.Table(uri).history(limit=1)[0]


def footers(uri: str, version: int) -> list[pq.FileMetaData]:
    return [pq.read_metadata(Path(uri) / add["path"]) for add in adds(uri, version)]


def test_the_arguments_are_those_of_deltic_write() -> None:
    ours, theirs = (inspect.signature(write).parameters for write in (deltic.spark.write, deltic.write))
    own = {"df", "uri", "optimize_write", "engine"}
    assert ours.keys() - own == theirs.keys() - {"uri_or_table", "data"}
    # None is the mode of the session, which only Spark has.
    assert (ours["partition_overwrite"].default, theirs["partition_overwrite"].default) == (None, "static")
    for name in ours.keys() - own - {"partition_overwrite"}:
        assert (ours[name].default, ours[name].kind) == (theirs[name].default, theirs[name].kind), name


def test_keywords_of_other_clients_get_hints(spark: SparkSession, table: str) -> None:
    for keyword, hint in KEYWORDS["spark.write"].items():
        with pytest.raises(TypeError, match=re.escape(f"spark.write() has no argument {keyword!r}: {hint}")):
            deltic.spark.write(frame(spark, ("a", 5)), table, **{keyword: None})  # type: ignore[arg-type]
    for keyword, hint in KEYWORDS["spark.read"].items():
        assert set(re.findall(r"`(\w+)`", hint)) <= inspect.signature(deltic.spark.read).parameters.keys(), hint
        with pytest.raises(TypeError, match=re.escape(f"spark.read() has no argument {keyword!r}: {hint}")):
            deltic.spark.read(spark, table, **{keyword: None})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'hadoopConf': use `storageOptions`"):
        deltic.spark.DeltaTable.forPath(spark, table, hadoopConf={})  # type: ignore[call-arg]


def test_rows_that_are_not_of_spark_are_refused_by_name(table: str) -> None:
    import pandas

    for rows, name in ((pandas.DataFrame({"n": [1]}), "pandas.DataFrame"), ([{"n": 1}], "list"), (table, "str")):
        with pytest.raises(TypeError, match=f"^df must be a DataFrame of Spark, not {name}: use spark.createDataFrame"):
            deltic.spark.write(rows, table)  # type: ignore[arg-type]


def test_every_argument_is_an_option() -> None:
    parameters = inspect.signature(deltic.spark.write).parameters.keys() - {"df", "uri", "mode", "storage_options"}
    text = {"properties": "{}", "column_options": "{}", "commit_info": "{}", "data_change": "true"}
    text |= {"optimize_write": "false"} | dict.fromkeys(
        (
            "target_file_size",
            "memory_limit",
            "max_rows_per_file",
            "row_group_rows",
            "compression_level",
            "app_version",
            "max_attempts",
        ),
        "1",
    )
    found = write_arguments({name: text.get(name, "x") for name in parameters})
    assert found.keys() == parameters


@pytest.mark.parametrize("name", ["partition_overwrite", "partitionOverwriteMode", "PARTITIONOVERWRITEMODE"])
def test_partitions_are_overwritten(spark: SparkSession, table: str, name: str) -> None:
    save(frame(spark, ("b", 9)), table, "overwrite", **{name: "DYNAMIC"})
    assert content(table) == [("a", 1), ("a", 2), ("b", 9)]
    save(frame(spark, ("b", 9)), table, "overwrite", **{name: "static"})
    assert content(table) == [("b", 9)]


@pytest.mark.parametrize("name", ["replace_where", "replaceWhere"])
def test_rows_of_a_condition_are_replaced_in_one_commit(spark: SparkSession, table: str, name: str) -> None:
    save(frame(spark, ("a", 2), ("c", 8)), table, "overwrite", **{name: "n % 2 = 0"})
    assert content(table) == [("a", 1), ("a", 2), ("b", 3), ("c", 8)]
    assert deltic.Table(table).snapshot().version == 1
    assert info(table)["operationParameters"]["predicate"] == "n % 2 = 0"


def files(uri: str) -> list[Path]:
    return sorted(path for path in Path(uri).rglob("*") if path.is_file())


def test_a_row_outside_the_condition_fails_the_job_and_leaves_no_file(spark: SparkSession, table: str) -> None:
    before = files(table)
    with pytest.raises(PySparkException, match=r"InvalidInputError.*replace_where"):
        save(frame(spark, ("a", 2), ("c", 7)), table, "overwrite", replaceWhere="n % 2 = 0")
    with pytest.raises(PySparkException, match=r"InvalidInputError.*replace_where"):
        deltic.spark.write(frame(spark, ("c", 7)), table, "overwrite", replace_where="n % 2 = 0")
    assert files(table) == before


def test_rows_of_a_condition_are_replaced_with_new_columns(spark: SparkSession, table: str) -> None:
    more = frame(spark, ("b", 3, 1.5), schema="p string, n long, x double")
    save(more, table, "overwrite", replaceWhere="n = 3", mergeSchema="true")
    assert content(table) == [("a", 1, None), ("a", 2, None), ("b", 3, 1.5), ("b", 4, None)]
    assert deltic.Table(table).snapshot().version == 1


def test_deltic_spark_write_replaces_rows_and_partitions(spark: SparkSession, table: str) -> None:
    deltic.spark.write(frame(spark, ("a", 7)), table, "overwrite", replace_where="p = 'a' AND n > 1")
    assert content(table) == [("a", 1), ("a", 7), ("b", 3), ("b", 4)]
    deltic.spark.write(frame(spark, ("b", 0)), table, "overwrite", partition_overwrite="dynamic")
    assert content(table) == [("a", 1), ("a", 7), ("b", 0)]
    more = frame(spark, ("b", 1, 5), schema="p string, n long, x int")
    deltic.spark.write(more, table, schema_mode="merge", user_metadata={"job": 1}, commit_info={"run": "r1"})
    assert content(table)[-1] == ("b", 1, 5)
    assert (info(table)["userMetadata"], info(table)["run"]) == ('{"job": 1}', "r1")


def test_a_mode_for_a_table_that_is_there(spark: SparkSession, table: str) -> None:
    ran = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ran.add(1)
        yield from batches

    df = frame(spark, ("a", 1)).mapInArrow(count, "p string, n long")
    with pytest.raises(deltic.TableExistsError):
        deltic.spark.write(df, table, "error")
    assert deltic.spark.write(df, table, "ignore").attempts == 0
    with pytest.raises(deltic.InvalidInputError, match="mode must be"):
        deltic.spark.write(df, table, "errorifexists")  # type: ignore[arg-type]
    assert (ran.value, deltic.Table(table).snapshot().version) == (0, 0)


@pytest.mark.parametrize("options", [{"mergeSchema": "true"}, {"schema_mode": "MERGE"}])
def test_columns_are_added(spark: SparkSession, table: str, options: dict[str, str]) -> None:
    more = frame(spark, ("a", 5, 0.5), schema="p string, n long, x double")
    with pytest.raises(PySparkException, match="InvalidInputError"):
        save(more, table, mergeSchema="false")
    save(more, table, **options)
    assert content(table)[-2:] == [("b", 3, None), ("b", 4, None)]
    assert ("a", 5, 0.5) in content(table)


@pytest.mark.parametrize("options", [{"overwriteSchema": "True"}, {"schema_mode": "overwrite"}])
def test_columns_are_replaced(spark: SparkSession, table: str, options: dict[str, str]) -> None:
    other = frame(spark, ("x", 1.5), schema="q string, r double")
    save(other, table, "overwrite", partition_by="q", mergeSchema="false", **options)
    assert content(table) == [("x", 1.5)]
    assert deltic.Table(table).snapshot().partition_columns == ["q"]


@pytest.mark.parametrize("name", ["user_metadata", "userMetadata"])
def test_user_metadata(spark: SparkSession, table: str, name: str) -> None:
    save(frame(spark, ("a", 5)), table, **{name: "because"}, commit_info='{"batch": {"id": 7}}')
    assert (info(table)["userMetadata"], info(table)["batch"]) == ("because", {"id": 7})


@pytest.mark.parametrize("names", [("app_id", "app_version"), ("txnAppId", "txnVersion")])
def test_an_applications_transaction_happens_once(spark: SparkSession, table: str, names: tuple[str, str]) -> None:
    for _ in range(2):
        save(frame(spark, ("a", 5)), table, **dict(zip(names, ("job", "3"), strict=True)))
    assert deltic.Table(table).snapshot().version == 1
    assert deltic.Table(table).snapshot().transaction_version("job") == 3
    written = {path.name for path in files(table) if path.suffix == ".parquet"}
    live = {Path(path).name for path in deltic.Table(table).files().read_all()["path"].to_pylist()}
    assert written == live, "the second write leaves no files"


@pytest.mark.parametrize("name", ["data_change", "dataChange"])
def test_rows_are_rearranged(spark: SparkSession, table: str, name: str) -> None:
    save(deltic.spark.read(spark, table), table, "overwrite", **{name: "false"})
    changes = {action[kind]["dataChange"] for action in log_actions(table, 1) for kind in action if kind in "addremove"}
    assert changes == {False}


@pytest.mark.parametrize("name", ["max_rows_per_file", "maxRecordsPerFile"])
def test_files_have_few_rows(spark: SparkSession, uri: str, name: str) -> None:
    save(spark.range(10).coalesce(1), uri, **{name: "4"})
    assert sorted(footer.num_rows for footer in footers(uri, 0)) == [2, 4, 4]


def test_no_limit_is_no_limit(spark: SparkSession, uri: str) -> None:
    for version, most in enumerate(("0", "-1")):
        save(spark.range(10).coalesce(1), uri, maxRecordsPerFile=most)
        assert len(adds(uri, version)) == 1


def test_options_of_files(spark: SparkSession, uri: str) -> None:
    options = {
        "sort_by": "n, p",
        "row_group_rows": "2",
        "compression_level": "9",
        "column_options": '{"n": {"encoding": "delta_binary_packed"}}',
        "properties": '{"delta.checkpointInterval": "7"}',
        "name": "numbers",
        "description": "of rows",
        "partition_by": '["p"]',
        "max_attempts": "3",
        "target_file_size": "100000000",
        "memory_limit": "64 MB",
    }
    save(frame(spark, ("a", 3), ("a", 1), ("a", 2)), uri, compression="gzip", **options)
    (footer,) = footers(uri, 0)
    column = footer.row_group(0).column(0)
    assert (footer.num_row_groups, column.compression) == (2, "GZIP")
    assert "DELTA_BINARY_PACKED" in column.encodings
    snapshot = deltic.Table(uri).snapshot()
    assert snapshot.partition_columns == ["p"]
    assert (snapshot.metadata["name"], snapshot.metadata["description"]) == ("numbers", "of rows")
    (path,) = (Path(uri) / add["path"] for add in adds(uri, 0))
    assert pq.read_table(path, partitioning=None)["n"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(("given", "stored"), [("none", "UNCOMPRESSED"), ("SNAPPY", "SNAPPY"), ("zstd", "ZSTD")])
def test_codecs_as_spark_names_them(spark: SparkSession, uri: str, given: str, stored: str) -> None:
    save(spark.range(3).coalesce(1), uri, compression=given)
    assert footers(uri, 0)[0].row_group(0).column(0).compression == stored


def test_optimized_writes_bring_a_partitions_rows_together(spark: SparkSession, uri: str) -> None:
    scattered = spark.range(0, 400, 1, 4).selectExpr("id % 2 AS `a.b`", "id")
    deltic.spark.write(scattered, uri, partition_by=["a.b"])
    assert len(adds(uri, 0)) == 8
    deltic.spark.write(scattered, uri, optimize_write=True)
    assert len(adds(uri, 1)) == 2
    with pytest.raises(deltic.InvalidInputError, match="optimize_write must be True or False"):
        deltic.spark.write(scattered, uri, optimize_write="true")  # type: ignore[arg-type]
    save(scattered, uri, optimizeWrite="false")
    assert deltic.spark.read(spark, uri).count() == 1200


def test_options_with_the_name_of_a_property_are_those_of_a_new_table(spark: SparkSession, uri: str) -> None:
    given = {"delta.enableDeletionVectors": "true", "DELTA.appendonly": "false", "properties": '{"owner": "me"}'}
    save(frame(spark, ("a", 1)), uri, **given)
    expected = {"delta.enableDeletionVectors": "true", "delta.appendOnly": "false", "owner": "me"}
    assert deltic.Table(uri).snapshot().properties == expected
    deltic.Table(uri).delete("n = 1")
    assert deltic.Table(uri).history(1)[0]["operation"] == "DELETE"


def test_properties_are_spelled_as_in_the_protocol() -> None:
    found = write_arguments({"delta.enablechangedatafeed": "true", "properties": '{"a": "b"}', "name": "t"})
    assert found == {"name": "t", "properties": {"a": "b", "delta.enableChangeDataFeed": "true"}}
    assert write_arguments({"delta.nosuch": "1"}) == {"properties": {"delta.nosuch": "1"}}
    with pytest.raises(deltic.InvalidInputError, match=r"both have the table property delta\.appendOnly: give one"):
        write_arguments({"delta.appendonly": "true", "properties": '{"delta.appendOnly": "true"}'})
    for name in ("delta.feature.deletionVectors", "delta.constraints.c"):
        with pytest.raises(deltic.InvalidInputError, match=r"does not keep the case of its name: use .*add_feature"):
            write_arguments({name: "supported"})
    with pytest.raises(deltic.InvalidInputError, match=r"unknown option 'delta\.appendOnly'"):
        read_arguments({"delta.appendOnly": "true"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("replaceOn", "no option 'replaceOn': use 'replaceWhere'"),
        ("replaceUsing", "no option 'replaceUsing': use 'partitionOverwriteMode'"),
        ("targetAlias", "no option 'targetAlias': it is for replaceOn"),
        ("writePartitionColumns", r"set the table property 'delta\.writePartitionColumnsToParquet'"),
    ],
)
def test_options_of_delta_that_do_not_exist_are_refused_by_name(name: str, message: str) -> None:
    for spelling in (name, name.lower()):
        with pytest.raises(deltic.InvalidInputError, match=message):
            write_arguments({spelling: "x"})


def test_the_old_name_of_the_change_feed() -> None:
    expected = {"changes": True, "start": 0}
    assert read_arguments({"readchangedata": "true", "startingVersion": "0"}) == expected
    with pytest.raises(deltic.InvalidInputError, match="both say the same thing"):
        read_arguments({"readChangeData": "true", "readChangeFeed": "true", "startingVersion": "0"})


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("@v5", r"read '.*table' with the option 'versionAsOf' = 5"),
        ("@20260301120000000", r"read '.*table' with the option 'timestampAsOf'"),
    ],
)
def test_a_path_with_a_version_says_which_option_to_use(table: str, suffix: str, message: str) -> None:
    with pytest.raises(deltic.TableNotFoundError, match=message) as caught:
        opened(deltic.Table(table + suffix))
    assert caught.value.table == table + suffix
    with pytest.raises(deltic.TableNotFoundError, match="this is not a Delta table") as caught:
        opened(deltic.Table(table + "@version5"))
    assert "option" not in str(caught.value)
    deltic.write(table + suffix, pa.table({"n": [1]}))
    assert opened(deltic.Table(table + suffix)).version == 0


BAD: list[tuple[str, dict[str, str], str]] = [
    ("append", {"delta.enableDeletionVectors": "true"}, "for a new table.*set_properties"),
    ("append", {"delta.nosuch": "true"}, "for a new table"),
    ("append", {"replaceOn": "t.n = s.n"}, "no option 'replaceOn'"),
    ("append", {"bogus": "1"}, r"unknown option 'bogus' of format 'deltic'; there are .*mergeSchema.*and storage"),
    (
        "append",
        {"mergeSchemas": "true"},
        "unknown option 'mergeschemas' of format 'deltic'; the nearest is mergeSchema",
    ),
    ("append", {"replace_wher": "n = 1"}, "the nearest are replace_where, replaceWhere"),
    ("append", {"versionAsOf": "1"}, "unknown option 'versionasof'"),
    ("append", {"optimizeWrite": "true"}, r"optimizeWrite' needs deltic\.spark\.install"),
    ("append", {"optimizeWrite": "often"}, "option 'optimizeWrite' must be true or false, not 'often'"),
    ("append", {"mergeSchema": "yes"}, "option 'mergeSchema' must be true or false"),
    ("append", {"overwriteSchema": "1"}, "option 'overwriteSchema' must be true or false"),
    ("append", {"overwriteSchema": "true"}, "schema_mode.*is for mode"),
    ("append", {"schema_mode": "keep"}, "schema_mode must be 'merge' or 'overwrite', not 'keep'"),
    ("overwrite", {"mergeSchema": "true", "overwriteSchema": "true"}, "both say the same thing"),
    ("overwrite", {"mergeSchema": "true", "schema_mode": "merge"}, "both say the same thing"),
    ("append", {"replaceWhere": "n = 1"}, "replace_where is for mode"),
    ("overwrite", {"replaceWhere": "nope = 1"}, "nope"),
    ("overwrite", {"replaceWhere": "n = 1", "replace_where": "n = 1"}, "both say the same thing"),
    ("overwrite", {"replaceWhere": "n = 1", "partitionOverwriteMode": "dynamic"}, "give one of them"),
    ("overwrite", {"partitionOverwriteMode": "some"}, "partition_overwrite must be 'static' or 'dynamic'"),
    ("append", {"partitionOverwriteMode": "dynamic"}, "partition_overwrite.*is for mode"),
    ("append", {"dataChange": "no"}, "option 'dataChange' must be true or false"),
    ("append", {"maxRecordsPerFile": "many"}, "option 'maxRecordsPerFile' must be a whole number"),
    ("append", {"max_rows_per_file": "0"}, "max_rows_per_file must be a whole number from 1"),
    ("append", {"row_group_rows": "0"}, "row_group_rows must be a whole number from 1"),
    ("append", {"target_file_size": "big"}, "target_file_size'? must be a number of bytes or"),
    ("append", {"compression": "rar"}, "rar"),
    ("append", {"compression_level": "99"}, "99"),
    ("append", {"column_options": "n"}, "option 'column_options' must be a JSON object"),
    ("append", {"column_options": '{"n": {"speed": 1}}'}, "has no option 'speed'"),
    ("append", {"commit_info": "[1]"}, "commit_info must be a mapping"),
    ("append", {"commit_info": '{"operation": "X"}'}, "operation"),
    ("append", {"sort_by": "nope"}, "nope"),
    ("append", {"sort_by": "[1"}, "option 'sort_by' must be names with commas"),
    ("append", {"partition_by": "n"}, "is partitioned by"),
    ("append", {"name": "x"}, "for a new table"),
    ("append", {"txnAppId": "job"}, "belong together"),
    ("append", {"txnAppId": "job", "txnVersion": "one"}, "option 'txnVersion' must be a whole number"),
    ("append", {"max_attempts": "0"}, "option 'max_attempts' must be a whole number from 1"),
]


@pytest.mark.parametrize(("mode", "options", "message"), BAD)
def test_wrong_options_of_a_write_leave_the_table(
    spark: SparkSession, table: str, mode: str, options: dict[str, str], message: str
) -> None:
    before = sorted(Path(table).rglob("*"))
    with pytest.raises(PySparkException, match=rf"(?s)InvalidInputError.*{message}"):
        save(frame(spark, ("a", 5)), table, mode, **options)
    assert sorted(Path(table).rglob("*")) == before


def load(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    return spark.read.format("deltic").options(**options).load(uri)


@pytest.fixture
def fed(spark: SparkSession, uri: str) -> str:
    """A table with three versions and a change data feed."""
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.enableChangeDataFeed": "true"})
    deltic.write(uri, pa.table({"n": [3]}))
    deltic.Table(uri).delete("n = 1")
    return uri


def time_of(uri: str, version: int) -> str:
    entry = next(entry for entry in deltic.Table(uri).history() if entry["version"] == version)
    return datetime.fromtimestamp(entry["timestamp"] / 1000, timezone.utc).isoformat()


def test_versions_in_the_notation_of_spark(spark: SparkSession, fed: str) -> None:
    assert sorted(row.n for row in load(spark, fed, versionAsOf=1).collect()) == [1, 2, 3]
    assert sorted(row.n for row in load(spark, fed, timestampAsOf=time_of(fed, 0)).collect()) == [1, 2]
    assert sorted(row.n for row in load(spark, fed, timestamp=time_of(fed, 0)).collect()) == [1, 2]


FEEDS: list[tuple[dict[str, Any], Rows]] = [
    ({"startingVersion": 0}, [(1, "delete", 2), (1, "insert", 0), (2, "insert", 0), (3, "insert", 1)]),
    ({"startingVersion": 1, "endingVersion": 1}, [(3, "insert", 1)]),
    ({"startingVersion": 0, "filter": "n = 1"}, [(1, "delete", 2), (1, "insert", 0)]),
    ({"startingVersion": 0, "filter": "_change_type = 'delete'"}, [(1, "delete", 2)]),
]


@pytest.mark.parametrize(("options", "expected"), FEEDS)
def test_changes(spark: SparkSession, fed: str, options: dict[str, Any], expected: Rows) -> None:
    feed = load(spark, fed, readChangeFeed="true", **options)
    assert feed.columns == ["n", "_change_type", "_commit_version", "_commit_timestamp"]
    assert sorted((row.n, row._change_type, row._commit_version) for row in feed.collect()) == expected


def test_changes_between_times(spark: SparkSession, fed: str) -> None:
    first, last = time_of(fed, 1), time_of(fed, 1)
    feed = load(spark, fed, readChangeFeed=True, startingTimestamp=first, endingTimestamp=last)
    changed = [row for row in feed.collect() if row._commit_version == 1]
    assert [(row.n, row._change_type) for row in changed] == [(3, "insert")]
    assert changed[0]._commit_timestamp.timestamp() == datetime.fromisoformat(first).timestamp()


def test_a_schema_chooses_columns_of_the_feed(spark: SparkSession, fed: str) -> None:
    reader = spark.read.format("deltic").options(readChangeFeed="true", startingVersion="2")
    rows = reader.schema("_Change_type string, n long").load(fed).collect()
    assert [tuple(row) for row in rows] == [("delete", 1)]
    with pytest.raises(PySparkException, match=r"`_metadata\.row_id`, and the table does not"):
        reader.schema("`_metadata.row_id` long").load(fed).collect()


def test_the_versions_of_a_feed_are_fixed_by_load(spark: SparkSession, fed: str) -> None:
    feed = load(spark, fed, readChangeFeed="true", startingVersion="1")
    deltic.write(fed, pa.table({"n": [9]}))
    assert sorted(row.n for row in feed.collect()) == [1, 3]


BAD_READS: list[tuple[dict[str, Any], str]] = [
    ({"mergeSchema": "true"}, "unknown option 'mergeschema'.*there are .*readChangeFeed"),
    ({"readChangeData": "true"}, "needs the option startingVersion or startingTimestamp"),
    ({"versionAsOf": "latest"}, "option 'versionAsOf' must be a whole number"),
    ({"versionAsOf": 99}, "VersionNotFoundError"),
    ({"versionAsOf": 1, "version": 1}, "both say the same thing"),
    ({"versionAsOf": 1, "timestampAsOf": "2026-01-01T00:00:00Z"}, "give one"),
    ({"timestampAsOf": "yesterday"}, "ISO 8601"),
    ({"timestampAsOf": "2026-01-01"}, "option 'timestampAsOf' has no offset from UTC"),
    ({"timestampAsOf": "2026-01-01 10:00:00"}, "has no offset from UTC"),
    ({"readChangeFeed": "on"}, "option 'readChangeFeed' must be true or false"),
    ({"readChangeFeed": "true"}, "needs the option startingVersion or startingTimestamp"),
    ({"readChangeFeed": "true", "endingVersion": 1}, "needs the option startingVersion"),
    ({"startingVersion": 1}, "are for reads with readChangeFeed=true"),
    ({"readChangeFeed": "false", "endingTimestamp": "2026-01-01T00:00:00Z"}, "are for reads with readChangeFeed=true"),
    ({"readChangeFeed": "true", "startingVersion": -1}, "option 'startingVersion' must be a whole number from 0"),
    ({"readChangeFeed": "true", "startingVersion": 2, "endingVersion": 1}, "InvalidInputError"),
    ({"readChangeFeed": "true", "startingVersion": 7}, "VersionNotFoundError"),
    (
        {"readChangeFeed": "true", "startingVersion": 0, "startingTimestamp": "2026-01-01T00:00:00Z"},
        "options 'startingVersion' and 'startingTimestamp' both|options 'startingTimestamp' and 'startingVersion' both",
    ),
    ({"readChangeFeed": "true", "startingTimestamp": "2026-01-01"}, "option 'startingTimestamp' has no offset"),
    ({"readChangeFeed": "true", "startingVersion": 0, "endingTimestamp": "x"}, "ISO 8601"),
    ({"readChangeFeed": "true", "startingVersion": 0, "versionAsOf": 1}, "the option for version is not for reads"),
    ({"readChangeFeed": "true", "startingVersion": 0, "partitions": 2}, "the option for partitions is not for reads"),
]


@pytest.mark.parametrize(("options", "message"), BAD_READS)
def test_wrong_options_of_a_read(spark: SparkSession, fed: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PySparkException, match=rf"(?s){message}"):
        load(spark, fed, **options).collect()


def test_changes_that_were_not_recorded_are_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(PySparkException, match=r"InvalidInputError.*enableChangeDataFeed"):
        load(spark, table, readChangeFeed="true", startingVersion=0).collect()


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-01-01", "America/Los_Angeles", "2026-01-01T00:00:00-08:00"),
        ("2026-07-01 12:30:00", "America/Los_Angeles", "2026-07-01T12:30:00-07:00"),
        ("2026-07-01 12:30:00", "+05:30", "2026-07-01T12:30:00+05:30"),
        ("2026-07-01 12:30:00", "-8", "2026-07-01T12:30:00-08:00"),
        ("2026-07-01 12:30:00", "-13:33", "2026-07-01T12:30:00-13:33"),
        ("2026-07-01 12:30:00", "GMT+2", "2026-07-01T12:30:00+02:00"),
        ("2026-07-01 12:30:00", "UTC-00:30", "2026-07-01T12:30:00-00:30"),
        ("2026-07-01 12:30:00", "Z", "2026-07-01T12:30:00+00:00"),
        ("2026-07-01 12:30:00", "Etc/GMT+2", "2026-07-01T12:30:00-02:00"),
        ("2026-07-01T12:30:00Z", "America/Los_Angeles", "2026-07-01T12:30:00Z"),
        ("2026-07-01T12:30:00+02:00", "nonsense", "2026-07-01T12:30:00+02:00"),
    ],
)
def test_times_get_the_sessions_offset(text: str, zone: str, expected: str) -> None:
    assert in_zone(text, "option 'timestampAsOf'", zone) == expected
    assert read_arguments({"timestampasof": expected}) == {"timestamp": expected, "changes": False}


def test_an_unknown_time_zone_is_refused() -> None:
    for zone in ("nonsense", "../etc", "GMT 8", "+25:00", "+05:61", "05:30", "+"):
        with pytest.raises(deltic.InvalidInputError, match=re.escape(f"time zone '{zone}' is no offset either")):
            in_zone("2026-01-01", "option 'timestampAsOf'", zone)


def test_deeply_nested_json_is_an_error() -> None:
    for name in ("properties", "column_options", "commit_info", "sort_by"):
        with pytest.raises(deltic.InvalidInputError, match=f"option '{name}' must be"):
            write_arguments({name: "[" * 100_000})
    assert json.loads('{"a": 1}') == write_arguments({"properties": '{"a": 1}'})["properties"]
