"""What a case is: a line of the results, the engines that may have it, and what deltic must reach."""

from dataclasses import dataclass, field

# Module of each engine, the package whose version is shown, and what it is called.
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
# They run as often as is asked for, and are not cut off: deltic, and what it is held against on the same machine.
OWN = ("deltic", "floor", "control")


# For variants whose curve says nothing new.
TWO_SIZES = ("100k", "1m")


@dataclass(frozen=True)
class Target:
    """What deltic must reach: time, times as fast as a peer, memory, memory for each file, growth, no failure."""

    seconds: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    peak: float | None = None
    retained: float | None = None
    # How many times as slow as the first appends the last may be.
    growth: float | None = None
    # Sizes of two tables, and how many times as long the second may take.
    curve: tuple[str, str, float] | None = None
    # Processes that contend may not give up.
    all_succeed: bool = False
    # Peers beside which it is shown, with nothing asked.
    beside: tuple[str, ...] = ()


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
    # For what takes a peer minutes: it runs once, and is given as many seconds.
    once_within: float | None = None
    sizes: tuple[str, ...] = ("10k", "100k", "1m", "5m")
    # Peers that run out of memory on the largest table.
    too_large_for: tuple[str, ...] = ()
    # The prefix of the engines' modules that have it: "work_" for those that write rows, change them and maintain.
    family: str = ""
    # Seconds after which a peer is cut off where the harness's limit is too short for it.
    cut_off: float = 0
    # Minutes that all runs of all engines should take, until it is known how many they do.
    minutes: float = 0

    # Runs once, without a warm-up: it takes minutes, and what is asked of it is its memory.
    once: bool = False

    @property
    def sized(self) -> bool:
        return not self.quick_table

    def module(self, engine: str) -> str:
        """The engine's module, if it has one for this family."""
        return self.family + ENGINES[engine][0]
