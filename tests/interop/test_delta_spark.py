"""deltic and delta-spark, the JVM library, read each other's tables.

The release of delta-spark is that for the installed PySpark. If its jars cannot be fetched, the tests are skipped.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import FILTERS, with_reused_sidecars
from delta_spark import check_checksum
from sample import rows

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

pytestmark = pytest.mark.usefixtures("validating")


def theirs(spark: SparkSession, uri: str, version: int | None = None) -> pa.Table:
    """What delta-spark reads. For the newest version, check the checksum if one exists."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    else:
        check_checksum(spark, uri, needed=False)
    return reader.load(uri).toArrow()


def append(spark: SparkSession, uri: str, table: pa.Table, *partition_by: str) -> None:
    frame = spark.createDataFrame(table).coalesce(1)
    frame.write.format("delta").mode("append").partitionBy(*partition_by).save(uri)


def check_filters(spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("delta").load(uri)
    for filter in FILTERS:
        ours = deltic.Table(uri).scan(columns=["id"], filter=filter).to_arrow()
        assert rows(frame.where(filter).select("id").toArrow()) == rows(ours), filter


@pytest.mark.parametrize("partition_by", [[], ["month"], ["origin", "month"]])
def test_delta_spark_reads_what_deltic_wrote(
    spark: SparkSession, uri: str, flights: pa.Table, partition_by: list[str]
) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=partition_by or None)
    assert rows(theirs(spark, uri)) == rows(flights)
    assert rows(theirs(spark, uri, version=0)) == rows(flights.slice(0, 40))
    check_filters(spark, uri)


@pytest.mark.parametrize("partition_by", [[], ["month"], ["origin", "month"]])
def test_deltic_reads_what_delta_spark_wrote(
    spark: SparkSession, uri: str, flights: pa.Table, partition_by: list[str]
) -> None:
    for start in range(0, 120, 40):
        append(spark, uri, flights.slice(start, 40), *partition_by)
    table = deltic.Table(uri)
    assert rows(table.scan().to_arrow()) == rows(flights)
    assert rows(table.snapshot(0).scan().to_arrow()) == rows(flights.slice(0, 40))
    assert table.snapshot().partition_columns == partition_by
    check_filters(spark, uri)


def test_statistics_of_delta_spark_prune_for_deltic(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 40):
        append(spark, uri, flights.slice(start, 40))
    plan = deltic.Table(uri).plan(filter="id BETWEEN 45 AND 50")
    assert (plan.files_kept, plan.skipped["statistics"]) == (1, 2)


def test_statistics_of_deltic_prune_for_delta_spark(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40))
    frame = spark.read.format("delta").load(uri).where("id BETWEEN 45 AND 50")
    assert frame.count() == 6
    assert len(frame.inputFiles()) == 1, "delta-spark skips files by deltic's statistics"


def test_delta_sparks_changes(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    append(spark, uri, flights, "month")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id < 60")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(60))
    spark.sql(f"UPDATE delta.`{uri}` SET integer = -1 WHERE id = 100")
    assert deltic.Table(uri).scan(filter="integer = -1").to_arrow()["id"].to_pylist() == [100]
    spark.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMN (extra STRING)")
    assert deltic.Table(uri).scan().to_arrow()["extra"].null_count == 60
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(theirs(spark, uri))
    spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 0")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(theirs(spark, uri))


def test_delta_sparks_checkpoints(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 10):
        append(spark, uri, flights.slice(start, 10), "month")
    log = Path(uri, "_delta_log")
    assert list(log.glob("*10.checkpoint.parquet"))
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights)
    plan = deltic.Table(uri).plan(filter="id BETWEEN 42 AND 48 AND month = 0")
    assert plan.files_kept == 1


def test_deltics_checkpoints(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 10):
        deltic.write(uri, flights.slice(start, 10), partition_by=["month"])
    log = Path(uri, "_delta_log")
    assert list(log.glob("*10.checkpoint.parquet"))
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert rows(theirs(spark, uri)) == rows(flights)
    check_filters(spark, uri)


def test_deltics_checkpoint_in_place_of_delta_sparks(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    """deltic deletes Hadoop's checksum of a file that it replaces: Spark refuses a file that does not match it."""
    for start in range(0, 110, 10):
        append(spark, uri, flights.slice(start, 10), "month")
    log, name = Path(uri, "_delta_log"), f"{10:020}.checkpoint.parquet"
    checksums = [log / f".{name}.crc", log / "._last_checkpoint.crc"]
    assert all(file.exists() for file in checksums)
    before = (log / name).read_bytes()
    deltic.Table(uri).checkpoint()
    assert (log / name).read_bytes() != before
    assert not any(file.exists() for file in checksums)
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert rows(theirs(spark, uri)) == rows(flights.slice(0, 110))


def test_delta_spark_reads_reused_sidecars(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    left = with_reused_sidecars(uri, flights)
    assert rows(theirs(spark, uri)) == rows(left)
    check_filters(spark, uri)


def test_writers_take_turns(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    deltic.write(uri, flights.slice(0, 30), partition_by=["month"])
    append(spark, uri, flights.slice(30, 30), "month")
    deltic.write(uri, flights.slice(60, 30))
    append(spark, uri, flights.slice(90), "month")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(theirs(spark, uri)) == rows(flights)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").select("version", "operation", "operationMetrics").collect()
    assert [row.version for row in history] == [3, 2, 1, 0]
    assert history[1].operation == "WRITE"
    assert history[1].operationMetrics["numOutputRows"] == "30"
    ours = deltic.Table(uri).history()
    assert [entry["version"] for entry in ours] == [3, 2, 1, 0]


def test_delta_spark_overwrites_what_deltic_wrote_and_the_other_way_round(
    spark: SparkSession, uri: str, flights: pa.Table
) -> None:
    deltic.write(uri, flights)
    spark.createDataFrame(flights.slice(0, 7)).write.format("delta").mode("overwrite").save(uri)
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(0, 7))
    deltic.write(uri, flights.slice(0, 3), mode="overwrite")
    assert rows(theirs(spark, uri)) == rows(flights.slice(0, 3))
    assert rows(theirs(spark, uri, version=0)) == rows(flights)


def test_delta_spark_accepts_our_checksums(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=["month"])
        check_checksum(spark, uri)
    table = deltic.Table(uri)
    with table.transaction(app_id="job", app_version=7) as tx:
        tx.add_feature("domainMetadata")
        tx.set_domain("app.x", "text")
        tx.remove("month = 1")
    check_checksum(spark, uri)
    # A checksum of delta-spark has more members, which deltic keeps up to date.
    append(spark, uri, flights.slice(0, 10), "month")
    check_checksum(spark, uri)
    with table.transaction() as tx:
        tx.append(flights.slice(10, 10))
        tx.remove("month = 2")
        tx.set_domain("app.x", None)
    check_checksum(spark, uri)
    for start in range(8):
        deltic.write(table, flights.slice(start, 1))
        check_checksum(spark, uri)
    assert table.check().ok
    assert rows(theirs(spark, uri)) == rows(table.scan().to_arrow())


SPOILED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "numFiles": (lambda number: number + 1, "Number of files - Expected: 3 Computed: 2"),
    "tableSizeBytes": (lambda size: size - 1, "Table size"),
    "setTransactions": (lambda _: [], "SetTransaction mismatch"),
    "domainMetadata": (lambda _: [], "(?i)domain ?metadata mismatch"),
    "metadata": (lambda metadata: {**metadata, "name": "another"}, "metadata .* could not be recovered"),
}


@pytest.mark.parametrize("member", SPOILED)
def test_delta_spark_refuses_a_checksum_that_is_wrong(spark: SparkSession, uri: str, member: str) -> None:
    """Shows that delta-spark does validate checksums, in reads and commits: a wrong one is an error."""
    row = pa.table({"id": [1]})
    deltic.write(uri, row)
    with deltic.Table(uri).transaction(app_id="job", app_version=7) as tx:
        tx.add_feature("domainMetadata")
        tx.set_domain("app.x", "text")
        tx.append(row)
    check_checksum(spark, uri)
    spoil, complaint = SPOILED[member]
    path = Path(uri, "_delta_log", f"{1:020}.crc")
    checksum = json.loads(path.read_text())
    path.write_text(json.dumps({**checksum, member: spoil(checksum[member])}))
    with pytest.raises(Exception, match=complaint):
        check_checksum(spark, uri)
    with pytest.raises(Exception, match=complaint):
        append(spark, uri, row)
    assert not Path(uri, "_delta_log", f"{2:020}.json").exists()
    path.write_text(json.dumps(checksum))
    check_checksum(spark, uri)
    append(spark, uri, row)
    check_checksum(spark, uri)


def test_both_clients_continue_row_ids_and_timestamps(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}
    deltic.write(uri, flights.slice(0, 30), properties=properties)
    append(spark, uri, flights.slice(30, 30))
    deltic.write(uri, flights.slice(60, 30))
    append(spark, uri, flights.slice(90, 30))
    check_checksum(spark, uri)
    ours = deltic.Table(uri).scan(columns=["id", "_metadata.row_id", "_metadata.row_commit_version"]).to_arrow()
    frame = spark.read.format("delta").load(uri).selectExpr("id", "_metadata.row_id", "_metadata.row_commit_version")
    assert sorted(map(tuple, ours.to_pandas().itertuples(index=False))) == sorted(map(tuple, frame.collect()))
    assert len(set(ours["_metadata.row_id"].to_pylist())) == 120
    assert [entry["version"] for entry in deltic.Table(uri).history()] == [3, 2, 1, 0]


def test_transactions_meet_concurrent_commits_of_delta_spark(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    """Transactions of deltic rebase on concurrent commits of delta-spark, or conflict with them."""
    deltic.write(uri, flights.slice(0, 60), partition_by=["month"])
    table = deltic.Table(uri)
    with table.transaction() as tx:
        tx.scan(filter="month = 0").to_arrow()
        tx.append(flights.slice(60, 10))
        spark.sql(f"DELETE FROM delta.`{uri}` WHERE month = 1")
        spark.sql(f"OPTIMIZE delta.`{uri}` WHERE month = 2")
    assert tx.committed is not None
    with pytest.raises(deltic.CommitConflictError), table.transaction() as tx:
        tx.scan(filter="month = 0").to_arrow()
        tx.append(flights.slice(70, 10))
        spark.sql(f"UPDATE delta.`{uri}` SET integer = -1 WHERE month = 0")
    with table.transaction() as tx:
        tx.append(flights.slice(80, 10))
        spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.checkpointInterval' = '50')")
    check_checksum(spark, uri)
    # A handle with cached state commits files that still fit the table's newest schema.
    before = deltic.Table(uri).scan().to_arrow().num_rows
    with table.transaction() as tx:
        tx.append(flights.slice(90, 10))
        spark.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMN (extra STRING)")
    found = table.scan().to_arrow()
    assert found.num_rows == before + 10
    assert rows(theirs(spark, uri)) == rows(found)
    # A transaction that read the table before gets an error.
    with pytest.raises(deltic.MetadataChangedError), deltic.Table(uri).transaction() as tx:
        tx.append(flights.slice(100, 10))
        spark.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMN (more STRING)")
    assert rows(theirs(spark, uri)) == rows(table.scan().to_arrow())


def test_delta_spark_reads_the_row_ids_that_deltic_gave_to_old_files(
    spark: SparkSession, uri: str, flights: pa.Table
) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40))
    table = deltic.Table(uri)
    table.enable_row_tracking()

    def ids() -> dict[int, tuple[int, int]]:
        names = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
        ours = table.scan(columns=names).to_arrow().to_pylist()
        frame = spark.read.format("delta").load(uri).select("id", *names[1:])
        found = {row["id"]: (row["row_id"], row["row_commit_version"]) for row in frame.collect()}
        assert found == {row["id"]: (row[names[1]], row[names[2]]) for row in ours}
        assert len({row_id for row_id, _ in found.values()}) == len(found)
        return found

    before = ids()
    assert len(before) == 120
    # Rewritten rows keep their row ids, and new rows get new ones.
    spark.sql(f"UPDATE delta.`{uri}` SET id = id + 1000 WHERE id < 10")
    append(spark, uri, flights.slice(0, 5))
    after = ids()
    assert all(after[n + 1000][0] == before[n][0] for n in range(10))
    assert all(after[n] == before[n] for n in range(10, 120))
    assert min(after[n][0] for n in range(5)) > max(row_id for row_id, _ in before.values())


def test_delta_spark_reads_a_log_that_deltic_compacted(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 20):
        deltic.write(uri, flights.slice(start, 20))
    table = deltic.Table(uri)
    with table.transaction() as transaction:
        transaction.remove("id < 20")
    assert (Path(uri) / table.compact_log(1, 6)).is_file()
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(20))
    assert rows(theirs(spark, uri)) == rows(flights.slice(20))
