"""Messages about values and columns that do not fit say what helps in that case."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import deltic
from deltic import InvalidInputError

STRUCT = pa.struct([("a", pa.int64()), ("b", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def structs(uri: str) -> deltic.Table:
    row = {"id": 1, "st": {"a": 1, "b": 2}, "list": [{"a": 1, "b": 2}]}
    schema = pa.schema([("id", pa.int64()), ("st", STRUCT), ("list", pa.list_(STRUCT))])
    deltic.write(uri, pa.Table.from_pylist([row], schema))
    return deltic.Table(uri)


@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("st", {"b": 7}, "a"),
        ("st", {"A": 7}, "b"),
        ("list", [{"a": 7}], "element.b"),
        ("list", [{"a": 7}, None], "element.b"),
    ],
)
def test_a_struct_that_lacks_a_field_is_not_set(structs: deltic.Table, column: str, value: Any, path: str) -> None:
    before = structs.scan().to_arrow()
    with pytest.raises(InvalidInputError, match=rf"cannot set `{column}`: the value has no field `{path}`; add it"):
        structs.update({column: deltic.lit(value)})
    merge = structs.merge(pa.table({"id": [1]}), "source.id = target.id")
    with pytest.raises(InvalidInputError, match=rf"the value has no field `{path}`"):
        merge.when_matched_update({column: deltic.lit(value)}).execute()
    assert structs.scan().to_arrow() == before


def test_complete_structs_and_single_fields_are_set(structs: deltic.Table) -> None:
    structs.update({"st": deltic.lit({"b": 7, "a": None}), "list": deltic.lit([])})
    assert structs.scan().to_arrow().to_pylist() == [{"id": 1, "st": {"a": None, "b": 7}, "list": []}]
    structs.update({"st.a": deltic.lit(8)})
    structs.update({"list": deltic.lit(None)})
    assert structs.scan().to_arrow().to_pylist() == [{"id": 1, "st": {"a": 8, "b": 7}, "list": None}]


def test_a_struct_of_the_source_names_what_it_lacks(structs: deltic.Table) -> None:
    for fields, advice in (
        ({"b": 7}, "the value lacks the field `a`: add what is missing"),
        ({"a": 1, "b": 7, "x": 1, "y": 1}, "the column lacks the fields `x`, `y`: leave out"),
        ({"a": date(2026, 1, 1), "b": 7}, "of the field `a`: there is no CAST between these types"),
    ):
        merge = structs.merge(pa.table({"id": [1], "s": [fields]}), "source.id = target.id")
        with pytest.raises(InvalidInputError, match=advice) as refused:
            merge.when_matched_update({"st": "source.s"}).execute()
        assert "write a CAST" not in str(refused.value)


def test_there_is_no_cast_to_a_variant(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), deltic.field("v", "variant")])
    deltic.create(uri, schema)
    deltic.write(uri, pa.table({"id": [1]}))
    with pytest.raises(InvalidInputError, match="no CAST to a variant"):
        deltic.Table(uri).update({"v": "'text'"})


def test_a_float_is_cast_to_a_decimal_first(uri: str) -> None:
    deltic.create(uri, pa.schema([("d", pa.decimal128(10, 2))]))
    column = pa.array([0.1])
    with pytest.raises(
        InvalidInputError, match=r"0\.1: .*cast the column to decimal\(10, 2\), which rounds"
    ) as refused:
        deltic.write(uri, pa.table({"d": column}))
    for how in (".cast(pa.decimal128(10, 2))", ".astype(pd.ArrowDtype(pa.decimal128(10, 2)))"):
        assert how in str(refused.value)
    deltic.write(uri, pa.table({"d": column.cast(pa.decimal128(10, 2))}))
    frame = pd.DataFrame({"d": [0.1]})
    deltic.write(uri, frame.assign(d=frame["d"].astype(pd.ArrowDtype(pa.decimal128(10, 2)))))
    assert deltic.Table(uri).scan().to_arrow()["d"].to_pylist() == [Decimal("0.10")] * 2


def test_other_columns_and_partitions_name_the_schema_mode_that_fits(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    wide = pa.table({"n": [1], "y": [2]})
    for mode, is_offered in (("append", False), ("overwrite", True)):
        with pytest.raises(InvalidInputError, match='schema_mode="merge"') as refused:
            deltic.write(uri, wide, mode)  # type: ignore[arg-type]
        assert ('schema_mode="overwrite"' in str(refused.value)) == is_offered
        with pytest.raises(InvalidInputError, match="leave partition_by out") as refused:
            deltic.write(uri, wide.select(["n"]), mode, partition_by="n")  # type: ignore[arg-type]
        assert ('schema_mode="overwrite"' in str(refused.value)) == is_offered
    with pytest.raises(InvalidInputError, match='schema_mode="merge"') as refused:
        deltic.write(uri, wide, "overwrite", replace_where="n = 1")
    assert 'schema_mode="overwrite"' not in str(refused.value)


def test_column_mapping_is_offered_for_a_name_with_a_space(uri: str) -> None:
    data = pa.table({"a b": [1]})
    with pytest.raises(InvalidInputError, match=r'properties=\{"delta\.columnMapping\.mode": "name"\}'):
        deltic.write(uri, data)
    deltic.write(uri, data, properties={"delta.columnMapping.mode": "name"})


@pytest.mark.parametrize(
    "change",
    [lambda tx: tx.delete("id = 2"), lambda tx: tx.update({"id": "20"}, "id = 2")],
    ids=["delete", "update"],
)
def test_two_writers_of_one_row_are_told_so(uri: str, change: Callable[[Any], Any]) -> None:
    deltic.write(uri, pa.table({"id": [1, 2, 3]}), properties=VECTORS)
    table = deltic.Table(uri)
    lost = pytest.raises(deltic.ConcurrentDeleteDeleteError, match="another writer changed the same rows")
    with lost, table.transaction("T") as tx:
        change(tx)
        table.delete("id = 2")
    assert table.scan().to_arrow()["id"].to_pylist() == [1, 3]


def test_a_writer_of_a_whole_file_is_told_of_changed_rows(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2, 3]}), properties=VECTORS)
    table = deltic.Table(uri)
    lost = pytest.raises(deltic.ConcurrentDeleteReadError, match="another writer changed rows")
    with lost, table.transaction("T") as tx:
        tx.delete()
        table.delete("id = 2")
    assert table.scan().to_arrow()["id"].to_pylist() == [1, 3]


def test_an_insert_without_a_column_that_may_not_be_null_names_the_clause(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("a", pa.int64(), nullable=False)])
    deltic.write(uri, pa.table({"id": [1], "a": [1]}, schema=schema))
    table = deltic.Table(uri)
    merge = table.merge(pa.table({"id": [1, 2]}), "source.id = target.id")
    with pytest.raises(InvalidInputError, match=r"clause that inserts.* `a`, .*values of when_not_matched_insert"):
        merge.when_not_matched_insert({"id": "source.id"}).execute()
    merge = table.merge(pa.table({"id": [1, 2]}), "source.id = target.id")
    with pytest.raises(InvalidInputError, match="the source's row 1: the column `a` is not nullable"):
        merge.when_not_matched_insert({"id": "source.id", "a": "NULL"}).execute()
    # Nothing is inserted, so nothing is missing.
    merge = table.merge(pa.table({"id": [1]}), "source.id = target.id")
    assert merge.when_not_matched_insert({"id": "source.id"}).execute().metrics["numTargetRowsInserted"] == 0
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "a": 1}]
