"""Rows that change from Spark: `deltic.spark.delete`, `update`, `merge`, and `DeltaTable` with delta-spark's names."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import deltic
import deltic.spark
from deltic.spark import DeltaTable


@pytest.fixture
def table(spark: SparkSession, uri: str) -> DeltaTable:
    rows = [(1, "a", 10.5), (2, "b", None), (3, "c", 0.0)]
    deltic.spark.write(spark.createDataFrame(rows, "id long, name string, price double"), uri)
    return DeltaTable.forPath(spark, uri)


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.toDF().collect())


@pytest.fixture
def news(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(2, "B", 2.5), (9, "new", None)], "id long, name string, price double")


def test_functions_change_rows(spark: SparkSession, uri: str, table: DeltaTable, news: DataFrame) -> None:
    assert deltic.spark.delete(spark, uri, "id = 1", user_metadata="by hand").metrics["numDeletedRows"] == 1
    assert deltic.spark.update(spark, uri, {"name": "upper(name)"}, "id = 3").metrics["numUpdatedRows"] == 1
    merge = deltic.spark.merge(spark, uri, news, "s.id = t.id", "s", "t").when_matched_update_all()
    preview = merge.when_not_matched_insert_all().preview()
    assert preview.rows == 1
    assert merge.execute().metrics["numTargetRowsInserted"] == 1
    assert rows(table) == [(2, "B", 2.5), (3, "C", 0.0), (9, "new", None)]
    history = deltic.Table(uri).history()
    assert [entry["operation"] for entry in history[:3]] == ["MERGE", "UPDATE", "DELETE"]
    assert history[2]["userMetadata"] == "by hand"


def test_a_source_is_computed_once(spark: SparkSession, uri: str, table: DeltaTable, news: DataFrame) -> None:
    seen = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    counted = news.mapInArrow(count, news.schema)
    merge = deltic.spark.merge(spark, uri, counted, "source.id = target.id").when_matched_delete()
    assert seen.value == 0
    merge.preview()
    merge.execute()
    assert seen.value == 2


def test_results_are_those_of_delta_spark(table: DeltaTable, news: DataFrame) -> None:
    assert table.delete("id = 1").collect() == [Row(num_affected_rows=1)]
    assert table.update(set={"price": "coalesce(price, 0) + 1"}).collect() == [Row(num_affected_rows=2)]
    merge = table.alias("t").merge(news.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("s.price > 2", {"name": "s.name"}).whenMatchedDelete()
    merge = merge.whenNotMatchedInsert(values={"id": "s.id", "name": "concat(s.name, '!')"})
    merge = merge.whenNotMatchedBySourceUpdate("t.id = 3", {"name": "'left'"}).whenNotMatchedBySourceDelete()
    expected = Row(num_affected_rows=3, num_updated_rows=2, num_deleted_rows=0, num_inserted_rows=1)
    assert merge.execute().collect() == [expected]
    assert rows(table) == [(2, "B", 1.0), (3, "left", 1.0), (9, "new!", None)]


def test_schema_evolution(table: DeltaTable, news: DataFrame) -> None:
    merge = table.merge(news.withColumn("note", F.lit("n")), "target.id = source.id").withSchemaEvolution()
    merge.whenMatchedUpdateAll("source.price IS NOT NULL").whenNotMatchedInsertAll().execute()
    assert table.toDF().columns == ["id", "name", "price", "note"]
    assert table.toDF().where("note = 'n'").count() == 2


def test_history_and_detail(table: DeltaTable) -> None:
    table.delete("id = 1")
    first = table.history(1).first()
    assert first is not None
    assert (first["version"], first["operation"], first["isBlindAppend"]) == (1, "DELETE", False)
    assert first["operationParameters"]["predicate"] == '["id = 1"]'
    assert table.history().count() == 2
    detail = table.detail().first()
    assert detail is not None
    assert (detail["format"], detail["numFiles"] > 0, detail["partitionColumns"]) == ("delta", True, [])
    table.addFeatureSupport("domainMetadata")
    assert "domainMetadata" in table.detail().first()["tableFeatures"]  # type: ignore[index]
    table.dropFeatureSupport("domainMetadata")
    assert "domainMetadata" not in table.detail().first()["tableFeatures"]  # type: ignore[index]
    assert table.vacuum(200).count() == 0


def test_what_is_refused(spark: SparkSession, uri: str, table: DeltaTable, news: DataFrame) -> None:
    assert DeltaTable.isDeltaTable(spark, uri)
    assert not DeltaTable.isDeltaTable(spark, uri + "_other")
    with pytest.raises(deltic.TableNotFoundError):
        DeltaTable.forPath(spark, uri + "_other")
    column: Any = F.col("id") == 1
    with pytest.raises(deltic.UnsupportedFeatureError, match="condition is a Column"):
        table.delete(column)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"set\['name'\] is a Column"):
        table.update("id = 1", {"name": column})
    with pytest.raises(deltic.InvalidInputError, match="set is needed"):
        table.update("id = 1")
    with pytest.raises(deltic.InvalidInputError, match="source must be a Spark DataFrame, not int"):
        deltic.spark.merge(spark, uri, 7, "source.id = target.id")  # type: ignore[arg-type]
    with pytest.raises(deltic.InvalidInputError, match="spark must be a SparkSession"):
        deltic.spark.delete(uri, uri)  # type: ignore[arg-type]
    twice = news.union(news)
    with pytest.raises(deltic.InvalidInputError, match="several rows"):
        table.merge(twice, "target.id = source.id").whenMatchedUpdateAll().execute()
    broken = spark.range(3).selectExpr("id", "raise_error('no') AS name", "1D AS price")
    with pytest.raises(Exception, match="no"):
        table.merge(broken, "target.id = source.id").whenMatchedUpdateAll().execute()
    assert deltic.Table(uri).snapshot().version == 0


def test_older_versions_and_clones(uri: str, table: DeltaTable) -> None:
    rows = sorted(table.toDF().collect())
    table.delete("id = 1")
    table.cloneAtVersion(0, uri + "_old", isShallow=True)
    left = [row for row in rows if row["id"] != 1]
    assert sorted(table.cloneAtTimestamp("2999-01-01", uri + "_now").toDF().collect()) == left != rows
    told = table.restoreToVersion(0).first()
    assert told is not None
    assert (told["num_restored_files"], told["num_of_files_after_restore"]) == (1, len(table._table.files().read_all()))
    assert sorted(table.toDF().collect()) == rows
    with pytest.raises(deltic.InvalidInputError, match="is the newest"):
        table.restoreToTimestamp("2999-01-01")
    with pytest.raises(deltic.TableExistsError):
        table.clone(uri + "_now")
    assert sorted(table.clone(uri + "_now", replace=True, properties={"mine": "1"}).toDF().collect()) == rows
