"""All cases: the table of each, the function of an engine's module that runs it, and its target.

The functions are generators. They prepare up to the first `yield`, and the time from there to the second one is
measured. What they yield last is the answer, which is compared with that of the plain replay.
"""

from case import TWO_SIZES, Case, Target
from work_cases import WORK


def _planning() -> list[Case]:
    return [
        Case(
            *("open", "Open: version and schema known", "open_table", "json"),
            oracle="open_table",
            target=Target(0.010, ratios={"deltalake": 350}, curve=("10k", "5m", 1.5)),
        ),
        Case(
            *("list", "List all files with size and partition values", "list_files", "json"),
            oracle="list_files",
            target=Target(ratios={"deltalake": 15}),
        ),
        Case(
            *("plan-day", "Plan, partition filter", "plan", "json"),
            by_day=True,
            oracle="plan",
            target=Target(ratios={"duckdb": 20}),
        ),
        Case(
            *("plan-day-typed", "Plan, partition filter, typed partition values", "plan", "typed"),
            by_day=True,
            typed=True,
            oracle="plan",
        ),
        Case(
            *("plan-json", "Plan, statistics filter, JSON statistics only", "plan", "json"),
            oracle="plan",
            target=Target(ratios={"duckdb": 5, "deltalake": 12}),
        ),
        Case(
            *("plan-typed", "Plan, statistics filter, typed statistics", "plan", "typed"),
            typed=True,
            oracle="plan",
            target=Target(ratios={"duckdb": 15, "deltalake": 100}),
        ),
        Case(
            *("plan-both", "Plan, statistics filter, both kinds", "plan", "both"),
            typed=True,
            oracle="plan",
            sizes=TWO_SIZES,
        ),
        Case(
            *("plan-zstd", "Plan, statistics filter, JSON, checkpoint in zstd", "plan", "zstd"),
            oracle="plan",
            sizes=TWO_SIZES,
        ),
        Case(
            *("plan-vectors", "Plan, statistics filter, JSON, deletion vectors on 10 %", "plan", "vectors"),
            oracle="plan",
            sizes=TWO_SIZES,
        ),
        Case(
            *("plan-sidecars", "Plan, statistics filter, V2 checkpoint by deltic", "plan", "sidecars"),
            oracle="plan",
            target=Target(curve=("100k", "5m", 3)),
        ),
        Case(
            *("plan-again", "Second plan on a snapshot, same column, other range", "plan_again", "json"),
            oracle="plan_again",
            target=Target(0.010, ratios={"deltalake": 190}, beside=("duckdb",)),
        ),
        Case(
            *("refresh", "Refresh after one new commit", "refresh", "json"),
            oracle="refresh",
            target=Target(0.005, curve=("10k", "5m", 1.5)),
        ),
        Case(
            *("checkpoint", "Write a checkpoint", "checkpoint", "json"),
            typed=True,
            oracle="list_files",
            target=Target(ratios={"deltalake": 2}, peak=400e6),
            too_large_for=("deltalake",),
        ),
        Case(
            *("checkpoint-text", "Write a checkpoint, statistics as text alone", "checkpoint", "json"),
            oracle="list_files",
            sizes=TWO_SIZES,
            target=Target(ratios={"deltalake": 2}, peak=400e6),
        ),
        Case(
            *("commits-day", "Plan 1,000 commits without checkpoint, partition filter", "plan", "commits", "commits"),
            by_day=True,
            oracle="plan",
            target=Target(ratios={"duckdb": 8}),
        ),
        Case(
            *("commits-json", "Plan 1,000 commits without checkpoint, statistics filter", "plan", "commits", "commits"),
            oracle="plan",
            target=Target(ratios={"duckdb": 8}),
        ),
        Case(
            *("memory-none", "Plan, statistics filter, nothing kept in memory", "plan_uncached", "json"),
            oracle="plan",
            target=Target(peak=100e6),
        ),
        Case(
            *("memory-all", "Plan on every column, and keep what was read", "every_column", "json"),
            oracle="plan",
            target=Target(retained=150),
        ),
    ]


def _rows() -> list[Case]:
    return [
        Case("read-all", "Read all rows", "read_all", "rows_5m", "rows_100k"),
        Case("read-some", "Read one column by filter", "read_some", "rows_5m", "rows_100k"),
        Case("write-rows", "Write the rows as a new table", "write_rows", "rows_5m", "rows_100k"),
    ]


def _rates() -> list[Case]:
    """Cases named `rates-…`, which have their own section."""
    small = ("rows_100k", "rows_100k")
    appends = {"unit": "commits/s", "count": 200}
    together = "4 processes of 50 appends at once"
    return [
        Case(
            *("rates-path", "200 tiny appends, by path", "append_by_path", *small),
            target=Target(beside=("deltalake",)),
            **appends,
        ),
        Case(
            *("rates-handle", "200 tiny appends, on a handle", "append_by_handle", *small),
            target=Target(ratios={"deltalake": 5}),
            **appends,
        ),
        Case(
            *("rates-path-none", "200 tiny appends, by path, no fsync", "append_by_path_unsynced", *small),
            target=Target(beside=("deltalake",)),
            **appends,
        ),
        Case(
            *("rates-handle-none", "200 tiny appends, on a handle, no fsync", "append_by_handle_unsynced", *small),
            target=Target(ratios={"deltalake": 10}),
            **appends,
        ),
        Case(
            *("rates-flat", "1,000 tiny appends on a handle: each of the first and the last 50", "append_long", *small),
            target=Target(growth=1.5),
            once_within=600,
            unit="commits/s",
            count=1_000,
        ),
        Case(
            *("rates-together", together, "append_together", *small),
            target=Target(all_succeed=True, beside=("deltalake",)),
            unit="commits/s",
        ),
        Case(
            *("rates-together-none", f"{together}, no fsync", "append_together_unsynced", *small),
            target=Target(all_succeed=True, beside=("deltalake",)),
            unit="commits/s",
        ),
        Case(
            *("rates-large-path", "Append to the large table, by path", "append_to_large", "json"),
            target=Target(0.020, ratios={"deltalake": 305}, peak=30e6),
            too_large_for=("deltalake",),
        ),
        Case(
            *("rates-large-handle", "Append to the large table, on a handle", "append_to_large_by_handle", "json"),
            target=Target(0.020, ratios={"deltalake": 135}, peak=30e6),
            too_large_for=("deltalake",),
        ),
    ]


def _machine() -> list[Case]:
    """Cases named `machine-…`: components of the floors of other cases."""
    return [
        Case("machine-memory", "Touch 100 MB of fresh memory", "fresh_memory", "json_10k", "json_10k"),
        Case("machine-file", "Write and fsync a file of 4 KB", "synced_file", "json_10k", "json_10k"),
    ]


CASES = [*_planning(), *_rows(), *_rates(), *WORK, *_machine()]
