"""A PySpark pipeline on deltic: write a DataFrame in one commit, read back part of it, aggregate.

Usage: python examples/spark_pipeline.py [table]
"""

import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import deltic
import deltic.spark


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    uri = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + "/orders"
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

    orders = spark.range(10_000).select(
        F.col("id").alias("order"),
        (F.col("id") % 12 + 1).cast("int").alias("month"),
        (F.col("id") * 7 % 500 / 10).alias("amount"),
    )
    # All rows of a month go to one task, so that every partition gets one file.
    commit = deltic.spark.write(orders.repartition(12, "month"), uri, partition_by=["month"])
    print(f"version {commit.version}: {commit.num_added_files} files")

    spring = deltic.spark.read(spark, uri, columns=["month", "amount"], filter="month BETWEEN 3 AND 5")
    spring.groupBy("month").agg(F.round(F.sum("amount"), 2).alias("turnover")).orderBy("month").show()
    print(deltic.Table(uri).plan(filter="month BETWEEN 3 AND 5"))

    deltic.spark.register(spark)
    large = spark.read.format("deltic").option("filter", "amount > 49").load(uri)
    large.write.format("deltic").mode("append").save(uri + "_large")
    print(f"{deltic.Table(uri + '_large').scan().to_arrow().num_rows} large orders")
    spark.stop()


if __name__ == "__main__":
    main()
