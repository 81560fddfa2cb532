"""Read a table: its details, a query with its plan, a stream with bounded memory, an earlier version.

Usage: python examples/read.py [table]      without a table, a small one is made first
"""

import sys
import tempfile

import pyarrow as pa

import deltic


def sample() -> str:
    uri = tempfile.mkdtemp() + "/trips"
    for month in (1, 2, 3):
        trips = pa.table(
            {"month": [month] * 4, "km": [1.5, 3.0, 12.5, 40.0 * month], "paid": [True, None, False, True]}
        )
        deltic.write(uri, trips, partition_by=["month"])
    return uri


def main() -> None:
    table = deltic.Table(sys.argv[1] if len(sys.argv) > 1 else sample())
    snapshot = table.snapshot()
    print(f"version {snapshot.version}, {snapshot.num_files} files, partitioned by {snapshot.partition_columns}")
    print(snapshot.schema)

    if "km" in snapshot.schema.names:
        # The filter is SQL. It skips files first, and is then applied to each row.
        query = "month >= 2 AND km > 10 AND paid IS NOT NULL"
        print(snapshot.plan(filter=query))
        print(snapshot.scan(columns=["month", "km"], filter=query).to_pandas())

    # A reader has a few batches in memory at a time, however large the table is.
    rows = 0
    for batch in snapshot.scan().to_reader():
        rows += batch.num_rows
    print(f"{rows} rows")

    print(f"version 0 had {table.snapshot(version=0).num_files} files")
    for entry in table.history(limit=3):
        print(entry["version"], entry.get("operation"))


if __name__ == "__main__":
    main()
