"""A case: one line of the results, its engines, and its target."""

from dataclasses import dataclass, field

# The module of each engine, the package whose version is shown, and its name in the results.
ENGINES = {
    "deltic": ("by_deltic", "deltic", "deltic"),
    "deltalake": ("by_deltalake", "deltalake", "deltalake"),
    "spark": ("by_spark", "pyspark", "delta-spark"),
    "duckdb": ("by_duckdb", "duckdb-extension-delta", "DuckDB delta"),
    "sql": ("by_sql", "duckdb", "SQL in DuckDB"),
    "polars": ("by_polars", "polars", "polars"),
    "pyarrow": ("by_pyarrow", "pyarrow", "pyarrow"),
    "parquet": ("by_parquet", "pyspark", "Spark's Parquet"),
    "plain": ("by_plain", "pyarrow", "plain replay"),
    "floor": ("by_floor", "pyarrow", "floor"),
    "control": ("by_control", "deltic", "control"),
}
# deltic and the references on the same machine: they make all requested runs, and are not cut off.
OWN = ("deltic", "floor", "control")


# For variants with a similar curve.
TWO_SIZES = ("100k", "1m")


@dataclass(frozen=True)
class Target:
    """Goals for deltic: time, ratio to a peer, memory, memory for each file, growth with size, no failures."""

    seconds: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    peak: float | None = None
    retained: float | None = None
    # The largest allowed ratio of the last appends to the first.
    growth: float | None = None
    # Two table sizes, and the largest allowed ratio of their times.
    curve: tuple[str, str, float] | None = None
    # Concurrent processes must not give up.
    all_succeed: bool = False
    # Peers that are shown for comparison, without a goal.
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One line of the results. `table` is a kind that exists in every size, or the name of a table."""

    name: str
    title: str
    does: str
    table: str
    quick_table: str = ""
    by_day: bool = False
    typed: bool = False
    oracle: str | None = None
    target: Target | None = None
    # For rates: the unit, and the number of units in one run unless the answer has `done`.
    unit: str = ""
    count: int = 0
    # If peers take minutes: they run once, with this limit in seconds.
    once_within: float | None = None
    sizes: tuple[str, ...] = ("10k", "100k", "1m", "5m")
    # Peers that run out of memory on the largest table.
    too_large_for: tuple[str, ...] = ()
    # The prefix of the engines' modules: "work_" for cases that write rows, change them or maintain tables.
    family: str = ""
    # Seconds after which a peer is cut off, if the default limit is too short.
    cut_off: float = 0
    # Estimated minutes of all runs of all engines, until they have been timed.
    minutes: float = 0

    # Runs once without a warm-up: it takes minutes, and its target is about memory.
    once: bool = False

    @property
    def sized(self) -> bool:
        return not self.quick_table

    def module(self, engine: str) -> str:
        """The name of the engine's module for this family, which need not exist."""
        return self.family + ENGINES[engine][0]
