"""What the interoperability tests share. Each suite runs in a process of its own: see the Makefile."""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from sample import every_type

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def flights() -> pa.Table:
    """Rows of every type, with two columns fit to partition by, one of which holds nulls and awkward text."""
    table = every_type(120)
    origins = [["EWR", "JFK", "a b/c=d%", None][i % 4] for i in range(120)]
    return table.append_column("origin", pa.array(origins)).append_column(
        "month", pa.array([i % 3 for i in range(120)])
    )


FILTERS = [
    "month = 1",
    "month = 1 AND integer > 50000",
    "origin = 'JFK' OR id < 3",
    "origin IS NULL",
    "id BETWEEN 30 AND 40",
    "string LIKE 'row 1%'",
    "date >= DATE '2013-03-01'",
    "NOT (month = 1)",
    "byte = -128",
    "big_decimal > 10",
    "boolean AND double < 10.5",
]
"""Text that means the same to every engine."""
