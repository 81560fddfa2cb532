"""Row changes from Spark: `deltic.spark.delete`, `update`, `merge`, and `DeltaTable` with delta-spark's names."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

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


def test_metrics_are_those_of_delta_spark(table: DeltaTable, news: DataFrame) -> None:
    assert table.delete("id = 1").collect() == [Row(num_affected_rows=1)]
    assert table.update(set={"price": "coalesce(price, 0) + 1"}).collect() == [Row(num_affected_rows=2)]
    merge = table.alias("t").merge(news.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("s.price > 2", {"name": "s.name"}).whenMatchedDelete()
    merge = merge.whenNotMatchedInsert(values={"id": "s.id", "name": "concat(s.name, '!')"})
    merge = merge.whenNotMatchedBySourceUpdate("t.id = 3", {"name": "'left'"}).whenNotMatchedBySourceDelete()
    expected = Row(num_affected_rows=3, num_updated_rows=2, num_deleted_rows=0, num_inserted_rows=1)
    assert merge.execute().collect() == [expected]
    assert rows(table) == [(2, "B", 1.0), (3, "left", 1.0), (9, "new!", None)]


def test_an_alias_of_the_table_may_be_named(spark: SparkSession, uri: str, table: DeltaTable) -> None:
    named = table.alias("t")
    assert named.delete("t.id = 1 AND T.name = 'a'").collect() == [Row(num_affected_rows=1)]
    assert named.update("t.id = 2", {"t.name": "upper(t.name) || name"}).collect() == [Row(num_affected_rows=1)]
    assert named.update(set={"price": "coalesce(t.price, t.id)"}).collect() == [Row(num_affected_rows=2)]
    assert rows(table) == [(2, "Bb", 2.0), (3, "c", 0.0)]
    with pytest.raises(deltic.InvalidInputError, match="there is no column `u`"):
        named.delete("u.id = 1")
    with pytest.raises(deltic.InvalidInputError, match="there is no column `t`"):
        table.delete("t.id = 1")
    with pytest.raises(deltic.InvalidInputError, match="`name` is set twice, with and without the alias"):
        named.update(set={"t.name": "'a'", "name": "'b'"})
    # As in Spark, the alias comes before a column of the same name, unless only the column has such a field.
    deltic.spark.write(spark.sql("SELECT 1L AS id, named_struct('id', 5L, 'x', 2L) AS t"), uri + "_struct")
    same = DeltaTable.forPath(spark, uri + "_struct").alias("t")
    assert same.update("t.id = 1 AND t.x = 2 AND t.t.id = 5", {"t.x": "t.id + t.t.x"}).first()[0] == 1  # type: ignore[index]
    assert same.toDF().select("t.t.x").collect() == [Row(x=3)]


def test_an_alias_of_a_source_is_found_below_filters(table: DeltaTable, news: DataFrame) -> None:
    named = news.alias("s")
    for source in (
        named.where("s.id < 5"),
        named.where("id < 5").orderBy("s.id").limit(1),
        named.orderBy("id").limit(1).distinct(),
        named.repartition(2).dropDuplicates(["id"]).where("id = 2"),
    ):
        merge = table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdate(set={"name": "s.name || t.name"})
        assert merge.execute().first()["num_updated_rows"] == 1  # type: ignore[index]
    assert rows(table)[1] == (2, "BBBBb", None)
    computed = named.select("id", F.upper("name").alias("name"))
    with pytest.raises(deltic.InvalidInputError, match=r"names `s\.id`.*no alias was found.*alias\('s'\)"):
        table.alias("t").merge(computed, "t.id = s.id")
    merge = table.alias("t").merge(computed, "t.id = source.id").whenMatchedDelete()
    assert merge.execute().first()["num_deleted_rows"] == 1  # type: ignore[index]


def test_schema_evolution(table: DeltaTable, news: DataFrame) -> None:
    merge = table.merge(news.withColumn("note", F.lit("n")), "target.id = source.id").withSchemaEvolution()
    merge.whenMatchedUpdateAll("source.price IS NOT NULL").whenNotMatchedInsertAll().execute()
    assert table.toDF().columns == ["id", "name", "price", "note"]
    assert table.toDF().where("note = 'n'").count() == 2


def test_columns_come_with_their_metadata(spark: SparkSession, uri: str) -> None:
    """A merge adds columns with the comments and lengths of the DataFrame, as a write that creates a table does."""
    deltic.spark.write(spark.range(2), uri)
    length = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    inner = StructType([StructField("at", TimestampType(), False, {"comment": "when"})])
    schema = StructType(
        [
            StructField("id", LongType(), False),
            StructField("code", StringType(), True, {"comment": "of a country", "mine": 1, **length}),
            StructField("seen", ArrayType(inner, False), True),
            StructField("of", MapType(StringType(), DecimalType(5, 2)), True),
        ]
    )
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    new = [(1, "abc", [(moment,)], {"a": Decimal("1.50")}), (7, None, None, None)]
    source = spark.createDataFrame(new, schema)
    merge = deltic.spark.merge(spark, uri, source, "source.id = target.id").with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    columns = {field.name: field for field in deltic.spark.read(spark, uri).schema}
    assert columns["code"].metadata["comment"] == "of a country"
    assert columns["code"].metadata["mine"] == 1
    assert "varchar(3)" in str(columns["code"].metadata)
    assert columns["seen"].dataType.elementType["at"].metadata == {"comment": "when"}  # type: ignore[attr-defined]
    found = deltic.Table(uri).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [
        {"id": 0, "code": None, "seen": None, "of": None},
        {"id": 1, "code": "abc", "seen": [{"at": moment}], "of": [("a", Decimal("1.50"))]},
        {"id": 7, "code": None, "seen": None, "of": None},
    ]
    with pytest.raises(deltic.InvalidInputError, match=r"varchar\(3\)"):
        deltic.write(uri, [{"id": 9, "code": "abcd"}])


def test_a_source_with_padded_strings_is_refused(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.createDataFrame([("a", 1)], "k string, v int"), uri)
    kept = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    source = spark.createDataFrame([("a  ", 2)], "k string, v int").withMetadata("k", kept)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"column `k` is of type char\(3\).*F\.rtrim\('k'\)"):
        deltic.spark.merge(spark, uri, source, "source.k = target.k")
    trimmed = source.withColumn("k", F.rtrim("k"))
    merge = DeltaTable.forPath(spark, uri).merge(trimmed, "source.k = target.k")
    assert merge.whenMatchedUpdateAll().execute().first()["num_updated_rows"] == 1  # type: ignore[index]


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forName", r"forPath\(spark, path\)"),
        ("create", r"deltic\.create"),
        ("createIfNotExists", "mode='ignore'"),
        ("createOrReplace", "mode='create_or_replace'"),
        ("replace", "mode='replace'"),
        ("upgradeTableProtocol", "addFeatureSupport"),
    ],
)
def test_missing_names_of_delta_spark_have_hints(name: str, message: str) -> None:
    for of in (DeltaTable, DeltaTable.__new__(DeltaTable)):
        with pytest.raises(deltic.UnsupportedFeatureError, match=rf"DeltaTable has no {name}: .*{message}"):
            getattr(of, name)("x", version=1)


def test_optimize_and_manifests(uri: str, table: DeltaTable) -> None:
    rows = sorted(table.toDF().collect())
    deltic.write(uri, table._table.scan().to_arrow())
    files = table._table.snapshot().num_files
    found = table.optimize().executeCompaction().first()
    assert found is not None
    assert (found["numAddedFiles"], found["numRemovedFiles"]) == (1, files)
    assert sorted(table.toDF().collect()) == sorted([*rows, *rows])
    deltic.write(uri, table._table.scan().to_arrow(), mode="overwrite")
    assert table.optimize().executeZOrderBy(["id"]).count() == 1
    assert table.optimize().executeZOrderBy("id").count() == 1
    with pytest.raises(deltic.InvalidInputError, match="partition"):
        table.optimize().where("id = 1").executeCompaction()
    table.generate("symlink_format_manifest")
    assert Path(uri, "_symlink_format_manifest", "manifest").exists()
    with pytest.raises(deltic.InvalidInputError, match="symlink_format_manifest"):
        table.generate("other")


def test_convert(spark: SparkSession, uri: str) -> None:
    spark.range(3).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(uri)
    table = DeltaTable.convertToDelta(spark, f"parquet.`{uri}`", "p INT")
    assert sorted(tuple(row) for row in table.toDF().collect()) == [(0, 0), (1, 1), (2, 0)]
    with pytest.raises(deltic.InvalidInputError, match=r"parquet\.`path`"):
        DeltaTable.convertToDelta(spark, "my_table")


def test_older_versions_and_clones(uri: str, table: DeltaTable) -> None:
    rows = sorted(table.toDF().collect())
    table.delete("id = 1")
    table.cloneAtVersion(0, uri + "_old", isShallow=True)
    left = [row for row in rows if row["id"] != 1]
    assert sorted(table.cloneAtTimestamp("2999-01-01", uri + "_now").toDF().collect()) == left != rows
    row = table.restoreToVersion(0).first()
    assert row is not None
    assert (row["num_restored_files"], row["num_of_files_after_restore"]) == (1, len(table._table.files().read_all()))
    assert sorted(table.toDF().collect()) == rows
    again = table.restoreToTimestamp("2999-01-01").first()
    assert again is not None
    assert (again["num_restored_files"], again["num_removed_files"]) == (0, 0)
    with pytest.raises(deltic.TableExistsError):
        table.clone(uri + "_now")
    assert sorted(table.clone(uri + "_now", replace=True, properties={"mine": "1"}).toDF().collect()) == rows


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
    with pytest.raises(PySparkException, match=r"USER_RAISED_EXCEPTION\] no"):
        table.merge(broken, "target.id = source.id").whenMatchedUpdateAll().execute()
    assert deltic.Table(uri).snapshot().version == 0
