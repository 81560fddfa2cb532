"""The cases that read a few rows, write rows, change them or maintain tables, at any scale: see `work_tables`.

The prefix of a name is its section of the results: `reading-`, `writing-`, `changing-`, `maintenance-`.
"""

from case import Case, Target


def work(
    name: str,
    title: str,
    does: str,
    table: str,
    target: Target,
    minutes: float,
    *,
    unit: str = "",
    once: bool = False,
    cut_off: float = 600,
) -> Case:
    """A case. `minutes`: the estimate for all runs of all engines. `cut_off`: seconds after which a peer is cut off."""
    return Case(
        *(name, title, does, table),
        quick_table=_hundredth(table),
        target=target,
        unit=unit,
        family="work_",
        cut_off=cut_off,
        minutes=minutes,
        once=once,
    )


def _hundredth(table: str) -> str:
    kind, _, scale = table.partition("@")
    return f"{kind}@{float(scale or 1) / 100:g}"


READING = [
    work(
        *("reading-sorted", "Read 0.1 % of 10 M rows that are sorted, one after the other", "read_sorted", "wide@0.5"),
        Target(ratios={"polars": 1}, beside=("duckdb",)),
        minutes=3,
    ),
    work(
        *("reading-random", "Read 0.1 % of 10 M rows, some everywhere", "read_random", "wide@0.5"),
        Target(ratios={"polars": 1}, beside=("duckdb",)),
        minutes=4,
    ),
]

WRITING = [
    work(
        *("writing-flat", "Write 20 M rows of 8 columns, no fsync", "write_flat", "wide"),
        Target(ratios={"pyarrow": 1, "sql": 1, "deltalake": 1, "polars": 0.7}, peak=600e6),
        minutes=12,
    ),
    work(
        *("writing-flat-fsync", "The same, and wait until the rows are on the disk", "write_flat_synced", "wide"),
        Target(beside=("pyarrow",)),
        minutes=4,
    ),
    work(
        *("writing-partitions", "Write 20 M rows into 1,000 partitions, no fsync", "write_parts", "wide"),
        Target(ratios={"deltalake": 1.5, "polars": 0.8}, peak=500e6),
        minutes=15,
    ),
    work(
        *("writing-spark", "Write 20 M rows from Spark", "write_from_spark", "wide"),
        Target(ratios={"parquet": 0.9, "spark": 1}),
        minutes=12,
    ),
]

CHANGING = [
    work(
        *("changing-merge-clustered", "MERGE of 10,000 rows into 100 M in 1,000 files, keys in ten of them"),
        *("merge_clustered", "keyed"),
        Target(ratios={"deltalake": 5, "spark": 2}, peak=500e6),
        minutes=10,
    ),
    work(
        *("changing-merge-spread", "MERGE of 10,000 rows into 100 M in 1,000 files, keys in all of them"),
        *("merge_spread", "keyed"),
        Target(ratios={"deltalake": 5, "spark": 2}, peak=500e6),
        minutes=25,
    ),
    work(
        *("changing-update-vectors", "UPDATE of 0.1 % of 20 M rows in all 200 files, deletion vectors"),
        *("update_marked", "fifth"),
        Target(ratios={"deltalake": 3, "spark": 1.5}),
        minutes=8,
    ),
    work(
        *("changing-update-files", "UPDATE of 0.1 % of 20 M rows in all 200 files, written again"),
        *("update_rewritten", "fifth"),
        Target(ratios={"deltalake": 3, "spark": 1.5}),
        minutes=10,
    ),
    work(
        *("changing-delete-partition", "DELETE of one partition of 1,000, 100,000 files", "delete_day", "many"),
        Target(ratios={"deltalake": 20}),
        minutes=6,
    ),
    work(
        *("changing-delete-row", "DELETE of one row of a table of 100,000 files, by path", "delete_row", "many"),
        Target(ratios={"deltalake": 20}),
        minutes=6,
    ),
    work(
        *("changing-delete-row-handle", "The same, on a handle", "delete_row_by_handle", "many"),
        Target(0.050, ratios={"deltalake": 20}),
        minutes=6,
    ),
    work(
        *("changing-together", "8 processes of 50 updates of rows of one file", "update_together", "contended"),
        Target(all_succeed=True, beside=("control", "deltalake")),
        minutes=5,
        unit="commits/s",
    ),
    work(
        *("changing-scan", "Scan 20 M rows, deletion vectors on all 200 files", "scan_marked", "marked"),
        Target(ratios={"control": 0.87}, beside=("duckdb",)),
        minutes=3,
    ),
]

MAINTENANCE = [
    work(
        *("maintenance-compact", "Compact 10,000 files of 100 KB", "compact", "small"),
        Target(ratios={"deltalake": 2, "spark": 2}, peak=800e6),
        minutes=15,
    ),
    work(
        *("maintenance-zorder", "Z-order 20 M rows by 2 columns", "zorder", "wide"),
        Target(ratios={"deltalake": 2, "spark": 2}, peak=800e6),
        minutes=20,
    ),
    *(
        work(
            *(f"maintenance-vacuum-{mode}{short}", f"VACUUM {mode.upper()} of {title}", f"vacuum_{mode}{where}", table),
            Target(ratios={"deltalake": 5, "spark": 5}) if not where else Target(ratios={"deltalake": 5}),
            minutes=minutes,
            cut_off=120 if where else 600,
        )
        for mode in ("lite", "full")
        for short, title, where, table, minutes in (
            ("", "1 M removed files on a disk", "", "removed", 10),
            ("-100k", "100,000 removed files on a disk", "", "removed@0.1", 3),
            ("-store", "100,000 removed files on a store that takes 20 ms", "_store", "removed@0.1", 8),
        )
    ),
    work(
        *("maintenance-vacuum-full-50m", "VACUUM FULL of 50 M files on a simulated store", "vacuum_simulated_store"),
        "removed@0.1",
        Target(peak=300e6),
        minutes=10,
        once=True,
    ),
    work(
        *("maintenance-convert", "Convert 100,000 Parquet files", "convert", "many"),
        Target(ratios={"deltalake": 3, "spark": 3}),
        minutes=10,
    ),
]

WORK = [*READING, *WRITING, *CHANGING, *MAINTENANCE]
