"""A DataFrame in many queries: each query returns its own rows, though Spark may reuse plans."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltic
import deltic.spark


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    deltic.spark.register(spark)


@pytest.fixture(params=["pushed", "not pushed"])
def numbers(spark: SparkSession, uri: str, request: pytest.FixtureRequest) -> Iterator[DataFrame]:
    """0 to 9 in five files, with and without the session setting for filter pushdown."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, str(request.param == "pushed").lower())
    deltic.spark.write(spark.range(0, 10, 1, 5), uri)
    yield spark.read.format("deltic").load(uri)
    spark.conf.unset(name)


def test_actions_one_after_the_other(numbers: DataFrame) -> None:
    assert numbers.where("id < 3").count() == 3
    assert numbers.count() == 10
    assert numbers.where("id > 7").count() == 2
    assert [row.id for row in numbers.where("id < 3").orderBy("id").collect()] == [0, 1, 2]
    assert numbers.select(F.sum("id")).collect()[0][0] == 45


def test_unions_and_self_joins(numbers: DataFrame) -> None:
    few, many = numbers.where("id < 3"), numbers.where("id > 1")
    assert few.union(many).count() == 11
    assert few.union(numbers).count() == 13
    assert few.join(many, "id").count() == 1
    assert few.alias("a").join(numbers.alias("b"), F.expr("b.id > a.id")).count() == 9 + 8 + 7
    assert few.crossJoin(many.select(F.col("id").alias("other"))).count() == 24
    assert numbers.join(few, "id", "left_anti").count() == 7
    assert few.intersect(many).count() == 1
    assert numbers.exceptAll(few).count() == 7


def test_subqueries_of_one_view(spark: SparkSession, numbers: DataFrame) -> None:
    numbers.createOrReplaceTempView("numbers")
    query = "SELECT (SELECT count(*) FROM numbers WHERE id < 1) + (SELECT count(*) FROM numbers WHERE id > 7) AS n"
    assert spark.sql(query).collect()[0].n == 3
    assert spark.sql("SELECT * FROM numbers WHERE id IN (SELECT id + 8 FROM numbers WHERE id < 5)").count() == 2
    assert spark.sql("WITH few AS (SELECT * FROM numbers WHERE id < 3) SELECT * FROM few a, few b").count() == 9


def test_caches(numbers: DataFrame) -> None:
    few = numbers.where("id < 3").cache()
    assert few.count() == 3
    assert numbers.count() == 10
    assert numbers.where("id > 1").join(few, "id").count() == 1
    whole = numbers.cache()
    assert whole.where("id > 7").count() == 2
    assert whole.count() == 10
    few.unpersist()
    whole.unpersist()
    assert numbers.where("id < 3").count() == 3
    assert numbers.count() == 10


def test_the_filter_option_stays_with_its_dataframe(spark: SparkSession, uri: str, numbers: DataFrame) -> None:
    few = spark.read.format("deltic").option("filter", "id < 3").load(uri)
    assert few.union(numbers).count() == 13
    assert few.join(numbers, "id").count() == 3
    assert few.where("id > 0").count() == 2
    assert few.count() == 3
    assert numbers.count() == 10


def test_deltic_spark_read(spark: SparkSession, uri: str, numbers: DataFrame) -> None:
    few = deltic.spark.read(spark, uri, filter="id < 3")
    whole = deltic.spark.read(spark, uri)
    assert few.union(whole.where("id > 7")).count() == 5
    assert whole.where("id < 3").count() == 3
    assert whole.count() == 10
    assert few.join(whole, "id").count() == 3
    assert numbers.join(few, "id").count() == 3
