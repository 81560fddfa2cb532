"""DuckDB's delta extension reads what deltic wrote. The tests are skipped if its wheel is not installed."""

import pyarrow as pa
import pytest
from conftest import FILTERS, with_reused_sidecars
from sample import rows

import deltic

duckdb = pytest.importorskip("duckdb")


@pytest.mark.parametrize("partition_by", [None, ["month"]])
def test_duckdb_reads_what_deltic_wrote(
    connection: "duckdb.DuckDBPyConnection", uri: str, flights: pa.Table, partition_by: list[str] | None
) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=partition_by)
    read = connection.execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()
    assert rows(read) == rows(flights)
    for filter in FILTERS:
        theirs = connection.execute(f"SELECT id FROM delta_scan('{uri}') WHERE {filter}").to_arrow_table()
        ours = deltic.Table(uri).scan(columns=["id"], filter=filter).to_arrow()
        assert rows(theirs) == rows(ours), filter


def test_duckdb_reads_reused_sidecars(connection: "duckdb.DuckDBPyConnection", uri: str, flights: pa.Table) -> None:
    left = with_reused_sidecars(uri, flights)
    assert rows(connection.execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()) == rows(left)


def test_duckdb_reads_a_scan_lazily_and_pushes_nothing_wrong(uri: str, flights: pa.Table) -> None:
    deltic.write(uri, flights, partition_by=["month"])
    connection = duckdb.connect()
    connection.register("scan", deltic.Table(uri).scan(filter="month = 1"))
    query = "SELECT count(*), min(month), max(month) FROM scan WHERE id < 60"
    assert connection.execute(query).fetchone() == (20, 1, 1)
