"""What is measured: for each case the table it needs, the function of an engine's module that does it, and its target.

The functions are generators: up to the first `yield` they prepare, then the clock runs until the second one; what they
yield last is the answer, compared with that of the plain replay.
"""

from dataclasses import dataclass, field

# Module of each engine, the package whose version is shown, and what it is called.
ENGINES = {
    "deltic": ("by_deltic", "deltic", "deltic"),
    "deltalake": ("by_deltalake", "deltalake", "deltalake"),
    "duckdb": ("by_duckdb", "duckdb-extension-delta", "DuckDB delta"),
    "sql": ("by_sql", "duckdb", "SQL in DuckDB"),
    "plain": ("by_plain", "pyarrow", "plain replay"),
}


# For variants whose curve says nothing new.
TWO_SIZES = ("100k", "1m")


@dataclass(frozen=True)
class Target:
    """What deltic must reach on a million files: time, times as fast as a peer, memory, memory for each file."""

    seconds: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    peak: float | None = None
    retained: float | None = None


@dataclass(frozen=True)
class Case:
    """One line of the results. `table` is a kind, which every size has, or a table's whole name."""

    name: str
    title: str
    does: str
    table: str
    quick_table: str = ""
    by_day: bool = False
    typed: bool = False
    oracle: str | None = None
    target: Target | None = None
    # For rates: what is counted, and how many of it in one run (where the answer does not say how many were `done`).
    unit: str = ""
    count: int = 0
    sizes: tuple[str, ...] = ("10k", "100k", "1m", "5m")

    @property
    def sized(self) -> bool:
        return not self.quick_table


def _planning() -> list[Case]:
    return [
        Case("open", "Open: version and schema known", "open_table", "json", oracle="open_table", target=Target(0.010)),
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
        Case("plan-sidecars", "Plan, statistics filter, V2 checkpoint by deltic", "plan", "sidecars", oracle="plan"),
        Case(
            *("plan-again", "Second plan on a snapshot, same column, other range", "plan_again", "json"),
            oracle="plan_again",
            target=Target(0.010),
        ),
        Case("refresh", "Refresh after one new commit", "refresh", "json", oracle="refresh", target=Target(0.005)),
        Case(
            *("checkpoint", "Write a checkpoint", "checkpoint", "json"),
            oracle="list_files",
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


def _commits() -> list[Case]:
    appends = {"unit": "commits/s", "count": 200}
    return [
        Case("append-path", "200 tiny appends, by path", "append_by_path", "rows_100k", "rows_100k", **appends),
        Case("append-handle", "200 tiny appends, on a handle", "append_by_handle", "rows_100k", "rows_100k", **appends),
        Case(
            *("append-together", "4 processes of 50 appends at once", "append_together", "rows_100k", "rows_100k"),
            unit="commits/s",
        ),
        Case("append-large", "Append to the large table, by path", "append_to_large", "json"),
    ]


CASES = [*_planning(), *_rows(), *_commits()]
