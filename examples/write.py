"""Write a table: create it, append from pandas, polars and a stream, and see the error of a refused write.

Usage: python examples/write.py [table]
"""

import sys
import tempfile
from collections.abc import Iterator
from datetime import date

import pandas as pd
import polars as pl
import pyarrow as pa

import deltic


def readings(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches that are made one at a time, as by a sensor."""
    for day in range(1, 4):
        rows = [{"day": date(2026, 3, day), "place": "roof", "celsius": 10.0 + day}]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def main() -> None:
    uri = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + "/weather"
    schema = pa.schema([("day", pa.date32()), ("place", pa.string()), ("celsius", pa.float64())])
    table = deltic.Table(uri)
    print(deltic.create(table, schema, partition_by=["day"], name="weather"))

    frame = pd.DataFrame({"day": [date(2026, 3, 1)], "place": ["cellar"], "celsius": [8.5]})
    print(deltic.write(uri, frame))
    print(deltic.write(uri, pl.DataFrame({"day": [date(2026, 3, 2)], "place": ["cellar"], "celsius": [8.6]})))
    print(deltic.write(uri, pa.RecordBatchReader.from_batches(schema, readings(schema)), user_metadata="from the roof"))

    try:
        deltic.write(uri, pa.table({"day": ["yesterday"], "place": ["attic"], "celsius": [15.0]}))
    except deltic.InvalidInputError as error:
        print(f"refused, and nothing was written: {error}")

    print(table.scan(filter="celsius > 8.5").to_polars().sort("day", "place"))


if __name__ == "__main__":
    main()
