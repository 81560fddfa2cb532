"""Tables that deltic altered and delta-spark continues, and tables of delta-spark that deltic alters.

After each change delta-spark reads the rows, its `DESCRIBE DETAIL` agrees with deltic's, it appends a row with its
checksums validated, and deltic reads that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import MAPPED
from delta_spark import check_checksum
from sample import rows

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

pytestmark = pytest.mark.usefixtures("validating")

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "place": [{"city": "Ulm", "zip": 89}, {"city": "Rom", "zip": 1}],
        "tags": [[{"k": "a"}], []],
        "sizes": pa.array([[("s", 1.5)], []], pa.map_(pa.string(), pa.float32())),
        "part": ["x", "y"],
    }
)
WIDENING = {"delta.enableTypeWidening": "true"}

Change = Callable[[deltic.Table], object]

CHANGES: dict[str, list[Change]] = {
    "add": [
        lambda t: t.add_columns(
            [deltic.field("day", "date", comment="c"), pa.field("at", pa.timestamp("us"))], after="id"
        ),
        lambda t: t.add_columns(pa.field("place.country", pa.string())),
        lambda t: t.add_columns(pa.field("tags.element.v", pa.int64())),
    ],
    "rename and drop": [
        lambda t: t.set_properties(MAPPED),
        lambda t: t.rename_column("id", "the id"),
        lambda t: t.rename_column("place.zip", "code"),
        lambda t: t.rename_column("part", "half"),
        lambda t: t.drop_columns(["tags", "place.city"]),
        lambda t: t.add_columns(pa.field("tags", pa.struct([("x", pa.int64())]))),
    ],
    "alter": [
        lambda t: t.alter_column("id", comment="number", position=("after", "tags")),
        lambda t: t.alter_column("place.zip", position="first"),
    ],
    "widen": [
        lambda t: t.set_properties(WIDENING),
        lambda t: t.alter_column("id", type="long"),
        lambda t: t.alter_column("sizes.value", type="double"),
        lambda t: t.alter_column("place.zip", type="decimal(22,2)"),
    ],
    "replace columns": [
        lambda t: t.replace_columns(
            pa.schema(
                [ROWS.schema.field(n) for n in ("part", "sizes", "place", "id", "tags")] + [pa.field("n", pa.int8())]
            )
        ),
    ],
    "properties": [
        lambda t: t.set_properties({"delta.enableChangeDataFeed": "true", "delta.checkpointPolicy": "v2", "mine": "1"}),
        lambda t: t.unset_properties(["mine"]),
        lambda t: t.set_properties({"delta.enableInCommitTimestamps": "true"}),
        lambda t: t.set_description("described"),
        lambda t: t.add_feature("vacuumProtocolCheck"),
    ],
    "replace": [
        lambda t: deltic.create(t, ROWS.schema.remove(2), mode="replace", properties={**MAPPED, **WIDENING}),
        lambda t: deltic.create(t, ROWS.schema, "part", mode="create_or_replace"),
    ],
    "one commit": [lambda t: _together(t)],
}


def _together(table: deltic.Table) -> None:
    with table.transaction() as tx:
        tx.set_properties({**MAPPED, **WIDENING})
        tx.rename_column("id", "key")
        tx.alter_column("key", type="long")
        tx.add_columns(pa.field("id", pa.string()))
        tx.drop_columns("tags")


def check(spark: SparkSession, table: deltic.Table) -> None:
    """Check that delta-spark has the same rows and DESCRIBE DETAIL as deltic, and can append."""
    check_checksum(spark, table.uri, needed=False)
    frame = spark.read.format("delta").load(table.uri)
    assert rows(frame.toArrow()) == rows(table.scan().to_arrow())
    (theirs,) = spark.sql(f"DESCRIBE DETAIL delta.`{table.uri}`").collect()
    ours = table.detail()
    detail = ours.to_dict()
    for name in ("id", "name", "description", "partitionColumns", "clusteringColumns", "numFiles", "sizeInBytes"):
        assert detail[name] == theirs[name], name
    # delta-spark omits internal properties.
    assert theirs["properties"].items() <= ours.properties.items()
    features = {"clustering", "domainMetadata"} | set(ours.table_features)
    assert set(theirs["tableFeatures"]) <= features
    spark.sql(
        f"INSERT INTO delta.`{table.uri}` SELECT * FROM (SELECT * FROM delta.`{table.uri}` UNION ALL "
        f"SELECT {', '.join('NULL' for _ in frame.columns)}) ORDER BY 1 LIMIT 1"
    )
    check_checksum(spark, table.uri)
    assert rows(spark.read.format("delta").load(table.uri).toArrow()) == rows(table.scan().to_arrow())


def history_of_spark(spark: SparkSession, uri: str) -> list[tuple[str, dict[str, str]]]:
    history = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").collect()
    return [(row["operation"], row["operationParameters"]) for row in history]


@pytest.mark.some(3)
@pytest.mark.parametrize("name", CHANGES)
def test_delta_spark_continues_after_each_change(spark: SparkSession, uri: str, name: str) -> None:
    deltic.write(uri, ROWS, partition_by=["part"], name="n")
    table = deltic.Table(uri)
    for change in CHANGES[name]:
        change(table)
        check(spark, table)
    assert table.check().ok


def test_a_new_mapped_table_is_filled_by_delta_spark(spark: SparkSession, uri: str) -> None:
    for mode in ("name", "id"):
        table = deltic.Table(uri + mode)
        properties = {"delta.columnMapping.mode": mode, **WIDENING}
        deltic.create(table, ROWS.schema, ["part"], properties=properties, description="d")
        check(spark, table)
        spark.createDataFrame(ROWS).write.format("delta").mode("append").save(table.uri)
        check(spark, table)
        table.rename_column("place.city", "the town")
        table.drop_columns("tags")
        table.alter_column("id", type="double")
        check(spark, table)


def test_both_clients_change_the_clustering(spark: SparkSession, uri: str) -> None:
    ours, theirs = deltic.Table(uri), deltic.Table(uri + "2")
    deltic.write(ours, ROWS.drop_columns(["tags", "sizes"]))
    for columns in (["id", "place.zip"], "place.city", None, ["part"]):
        ours.cluster_by(columns)
        check(spark, ours)
    spark.sql(f"OPTIMIZE delta.`{ours.uri}`")
    check(spark, ours)
    spark.sql(
        f"CREATE TABLE delta.`{theirs.uri}` (id INT, place STRUCT<zip: INT>) USING delta CLUSTER BY (place.zip) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    theirs.rename_column("place.zip", "code")
    check(spark, theirs)
    theirs.cluster_by(["id", "place.code"])
    check(spark, theirs)
    spark.sql(f"ALTER TABLE delta.`{theirs.uri}` CLUSTER BY (place.code)")
    assert theirs.detail().clustering_columns == ["place.code"]
    deltic.create(ours, ROWS.schema.remove(2), cluster_by=["part"], mode="replace")
    check(spark, ours)
    deltic.create(ours, ROWS.schema, mode="replace")
    check(spark, ours)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_deltic_alters_what_delta_spark_made(spark: SparkSession, uri: str, mode: str) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id INT, place STRUCT<city: STRING, zip: SMALLINT>, tags ARRAY<STRUCT<k: INT>>, "
        f"part STRING) USING delta PARTITIONED BY (part) COMMENT 'theirs' TBLPROPERTIES "
        f"('delta.columnMapping.mode' = '{mode}', 'delta.enableTypeWidening' = 'true', "
        "'delta.enableRowTracking' = 'true')"
    )
    insert = (
        f"INSERT INTO delta.`{uri}` VALUES "
        "(1, named_struct('city', 'Ulm', 'zip', 89S), array(named_struct('k', 1)), 'x')"
    )
    spark.sql(insert)
    table = deltic.Table(uri)
    table.add_columns(pa.field("place.country", pa.string()))
    check(spark, table)
    table.rename_column("place", "where")
    table.rename_column("part", "half")
    check(spark, table)
    table.alter_column("where.zip", type="integer")
    table.alter_column("tags.element.k", type="long")
    table.alter_column("id", type="decimal(12,2)", comment="wide")
    check(spark, table)
    table.drop_columns(["where.city"])
    check(spark, table)
    # delta-spark alters the table again.
    spark.sql(f"ALTER TABLE delta.`{uri}` RENAME COLUMN half TO part")
    spark.sql(f"ALTER TABLE delta.`{uri}` ALTER COLUMN where.zip TYPE BIGINT")
    check(spark, table)


def test_history_has_the_operations_of_delta_spark(spark: SparkSession, tmp_path: Any) -> None:
    """Names and parameters of operations are those of delta-spark."""
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    columns = "id INT, place STRUCT<city: STRING, zip: INT>, part STRING"
    for uri in (ours, theirs):
        spark.sql(f"CREATE TABLE delta.`{uri}` ({columns}) USING delta PARTITIONED BY (part)")
    table = deltic.Table(ours)
    steps: list[tuple[Change, str]] = [
        (
            lambda t: t.add_columns([deltic.field("n", "long", comment="c"), pa.field("m", pa.int32())], after="id"),
            "ADD COLUMNS (n BIGINT COMMENT 'c' AFTER id, m INT AFTER n)",
        ),
        (lambda t: t.add_columns(pa.field("place.x", pa.float64())), "ADD COLUMNS (place.x DOUBLE)"),
        (lambda t: t.set_properties(MAPPED), "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
        (lambda t: t.rename_column("place.zip", "code"), "RENAME COLUMN place.zip TO code"),
        (lambda t: t.drop_columns(["place.x", "m"]), "DROP COLUMNS (place.x, m)"),
        (lambda t: t.set_properties(WIDENING), "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"),
        (lambda t: t.alter_column("id", type="long"), "ALTER COLUMN id TYPE BIGINT"),
        (lambda t: t.alter_column("id", comment="nice"), "ALTER COLUMN id COMMENT 'nice'"),
        (lambda t: t.alter_column("id", position="after n"), "ALTER COLUMN id AFTER n"),
        (lambda t: t.set_properties({"mine": "1"}), "SET TBLPROPERTIES ('mine' = '1')"),
        (lambda t: t.unset_properties(["mine"]), "UNSET TBLPROPERTIES ('mine')"),
    ]
    for change, sql in steps:
        change(table)
        spark.sql(f"ALTER TABLE delta.`{theirs}` {sql}")
        (operation, parameters), *_ = history_of_spark(spark, ours)
        (operation_of_theirs, parameters_of_theirs), *_ = history_of_spark(spark, theirs)
        assert (operation, _parsed(parameters)) == (operation_of_theirs, _parsed(parameters_of_theirs)), sql
    stored = [json.loads(deltic.Table(uri).snapshot().metadata["schemaString"]) for uri in (ours, theirs)]
    assert stored[0] == stored[1]


def _parsed(parameters: dict[str, str]) -> dict[str, Any]:
    """Parse JSON in parameters; drop delta-spark's members about column mapping, and `ifExists`.

    `UNSET TBLPROPERTIES` of delta-spark accepts a missing property, which deltic refuses.
    """
    parsed: dict[str, Any] = {}
    for key, value in parameters.items():
        try:
            parsed[key] = json.loads(value)
        except ValueError:
            parsed[key] = value
    parsed.pop("ifExists", None)
    if isinstance(column := parsed.get("column"), dict):
        column["metadata"] = {key: value for key, value in column["metadata"].items() if not key.startswith("delta.")}
    return parsed
