"""What the results look like: lines while measuring, Markdown tables, and the plots beside them."""

import os
import platform
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tables
from cases import CASES, ENGINES, Case, Target
from plots import Curve, plot

Outcome = dict[str, Any]
PEERS = [engine for engine in ENGINES if engine != "deltic"]
LARGE = "1m"
# What an answer may say of how long single commits took.
MICROSECONDS = ("first_us", "last_us", "p99_us")
DASH, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"

HOW = """\
## How this is measured

    make bench          # all of this page: an hour or more, and some 10 GB of tables
    make bench-quick    # 100,000 files, a few minutes, prints its tables and writes nothing
    python benches/run.py --only plan-json,refresh --sizes 100k,1m --engines deltic,duckdb

Every run is a process of its own, on a warm page cache, on local disk; engines take turns, round by round. A cell is
the median of RUNS runs after a warm-up, least and greatest in brackets, then the peak memory of the process above what
it had after its imports. On 5,000,000 files the peers run once, on 1,000,000 the plain replay does, and whoever needs
more than a minute is cut off.
Every answer (files kept, their bytes where the engine tells, rows) is compared with that of a plain replay of the log
in Python (`python/plain.py`), and a wrong one fails the bench.

The tables are made by `tables.py` and `logs.py`, seeded: 8 columns with statistics (long, integer, double, string,
date, timestamp, decimal, and a field of a struct), a date partition column with 1,000 values, as many tombstones as 2 %
of the files, and a snappy checkpoint in the order delta-spark writes (hashed by path, so no row group can be skipped),
followed by 100 commits that each add and remove 50 files. A filter keeps a thousandth of the files.

- deltic: a plan includes its files as an Arrow table. A refresh is a new snapshot on the handle and the number of its
  files.
- deltalake: `DeltaTable` and `file_uris(file_pruning_predicate=...)`, `get_add_actions`, `update_incremental`,
  `create_checkpoint` (on a table already open, which is not counted; deltic's opening is).
- DuckDB delta: `EXPLAIN`, which plans and reads no data. There is no refresh, so the next plan stands for it, and its
  list of files has no sizes.
- SQL in DuckDB: the same reconciliation as a query over the files of the log; no protocol checks, no deletion vectors.
- plain replay: pyarrow and json.
- Not here: delta-lake-reader asks for pyarrow below 15 and has the same package name as deltalake; it also reads no
  more than nine commits after a checkpoint, so its answer for these tables would be wrong.
"""

RATES = [
    "## Rates of commits",
    "",
    "A cell is commits a second, median, least and greatest. deltic waits until a commit would survive a power cut;",
    'where it says "no fsync" it does not (`deltic.durability` = `none`), as deltalake never does. On a long log: the',
    "mean of the first and of the last 50 appends. Processes that contend: how long 99 % of the successful appends",
    "took at most, and how many failed. On the large table a handle has committed once before the clock runs.",
    "",
]


def say(text: str) -> None:
    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """What is being done; replaced by what follows on a terminal, left out elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# --- cells ---


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def median(outcome: Outcome) -> float | None:
    """Median seconds of an engine, if it finished."""
    if "over" in outcome or "error" in outcome or not outcome.get("runs"):
        return None
    return statistics.median(outcome["runs"])


def cell(case: Case, outcome: Outcome | None) -> str:
    if outcome is None:
        return DASH
    if "over" in outcome:
        return f"> {outcome['over']:.0f} s"
    if "error" in outcome:
        return "fails"
    if case.unit:
        rates = outcome["rates"]
        text = f"{statistics.median(rates):.0f}/s ({min(rates):.0f}{DASH}{max(rates):.0f})"
        if "first_us" in outcome:
            first, last = (duration(statistics.median(outcome[name]) / 1e6) for name in ("first_us", "last_us"))
            text += f", {first} then {last}"
        if "p99_us" in outcome:
            text += f", 99 % within {duration(statistics.median(outcome['p99_us']) / 1e6)}"
        return text + (f", {outcome['failed']} failed" if outcome["failed"] else "")
    spread = (
        f" ({duration(min(outcome['runs']))}{DASH}{duration(max(outcome['runs']))})" if len(outcome["runs"]) > 1 else ""
    )
    return f"{duration(statistics.median(outcome['runs']))}{spread}, +{size(max(outcome['peak'], 0))}"


def line(case: Case, table: str, by_engine: dict[str, Outcome]) -> str:
    """One case on one table, in one line; what went wrong below it."""
    cells = " | ".join(f"{engine} {cell(case, outcome)}" for engine, outcome in by_engine.items())
    errors = [f"\n    {engine}: {outcome['error']}" for engine, outcome in by_engine.items() if "error" in outcome]
    return f"{case.name}, {table}: {cells}" + "".join(errors)


# --- targets ---


def reached(
    case: Case, target: Target, by_engine: dict[str, Outcome], files: int
) -> list[tuple[str, str, bool | None]]:
    """What must be, what is, and whether that is enough; None where it was not measured."""
    own = by_engine.get("deltic", {})
    taken = median(own)
    lines: list[tuple[str, str, bool | None]] = []
    if target.seconds is not None:
        is_now = None if taken is None else taken <= target.seconds
        lines.append((f"≤ {duration(target.seconds)}", DASH if taken is None else duration(taken), is_now))
    for engine, least in target.ratios.items():
        peer = by_engine.get(engine, {})
        other = peer["over"] if "over" in peer else median(peer)
        ratio = None if taken is None or other is None else other / taken
        title = ENGINES[engine][2]
        is_now = None if ratio is None else ratio >= least
        lines.append((f"≥ {least:g}{TIMES} {title}", DASH if ratio is None else f"{ratio:.3g}{TIMES}", is_now))
    if target.peak is not None:
        is_now = None if taken is None else own["peak"] <= target.peak
        lines.append((f"peak ≤ +{size(target.peak)}", DASH if taken is None else f"+{size(own['peak'])}", is_now))
    if target.retained is not None:
        kept = None if taken is None or not files else statistics.median(own["retained"]) / files
        is_now = None if kept is None else kept <= target.retained
        lines.append((f"≤ {target.retained:.0f} B a file", DASH if kept is None else f"{kept:.0f} B", is_now))
    if target.growth is not None:
        pairs = zip(own.get("first_us", []), own.get("last_us", []), strict=True)
        grown = None if taken is None else statistics.median(last / first for first, last in pairs)
        is_now = None if grown is None else grown <= target.growth
        lines.append(
            (f"≤ {target.growth:g}{TIMES} the first", DASH if grown is None else f"{grown:.3g}{TIMES}", is_now)
        )
    return lines


def verdict(is_reached: bool | None) -> str:
    return DASH if is_reached is None else "reached" if is_reached else "**not yet**"


def large(case: Case, measured: dict[str, Any]) -> str | None:
    """The table that a case's targets are about: a million files, or the largest there is."""
    if f"{case.table}_{LARGE}" in measured:
        return f"{case.table}_{LARGE}"
    return list(measured)[-1] if measured else None


def target_table(results: dict[str, Any], quick: bool) -> list[str]:
    lines = ["| case | table | deltic | target | measured | |", "|---|---|---:|---|---:|---|"]
    for case in CASES:
        measured = results["cases"].get(case.name, {})
        name = large(case, measured)
        if case.target is None or name is None or (case.sized and not name.endswith(LARGE) and not quick):
            continue
        by_engine = measured[name]["engines"]
        for place, (must, now, enough) in enumerate(reached(case, case.target, by_engine, tables.files(name))):
            head = [case.title, f"`{name}`", cell(case, by_engine.get("deltic"))] if place == 0 else ["", "", ""]
            lines.append(f"| {' | '.join([*head, must, now, verdict(enough)])} |")
    return lines


def case_table(case: Case, measured: dict[str, Any]) -> list[str]:
    shown = [e for e in ENGINES if any(e in outcome["engines"] for outcome in measured.values())]
    peers = [engine for engine in shown if engine in ("deltalake", "duckdb") and "deltic" in shown]
    head = ["table", *(ENGINES[engine][2] for engine in shown), *(f"vs {ENGINES[engine][2]}" for engine in peers)]
    lines = [f"### {case.title}", "", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for name, outcome in measured.items():
        if "unavailable" in outcome:
            lines.append(f"| `{name}`: {outcome['unavailable']} |" + " |" * (len(head) - 1))
            continue
        by_engine = outcome["engines"]
        cells = [cell(case, by_engine.get(engine)) for engine in shown]
        own = median(by_engine.get("deltic", {}))
        for engine in peers:
            other = median(by_engine.get(engine, {}))
            cells.append(DASH if own is None or other is None else f"{other / own:.3g}{TIMES}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return [*lines, ""]


# --- pages ---


def machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [row.split(":", 1)[1].strip() for row in info.read_text().splitlines() if row.startswith("model name")]
        model = named[0] if named else model
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB of memory"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores ({model}){memory}"


def versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in dict.fromkeys(package for _, package, _ in ENGINES.values()):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} (not installed as a package)")
    return ", ".join(found)


def page(results: dict[str, Any], *, quick: bool) -> str:
    """All results as Markdown, without plots."""
    lines = ["# Results", "", f"{machine()}; {versions()}.", ""]
    lines += ["## Targets", ""]
    if quick:
        lines += ["The targets are for a million files; here they are compared with a smaller table.", ""]
    lines += [*target_table(results, quick), "", "## All cases", ""]
    for section in (False, True):
        found = [case for case in CASES if case.name in results["cases"] and case.name.startswith("rates-") == section]
        if section and found:
            lines += RATES
        for case in found:
            lines += case_table(case, results["cases"][case.name])
    return "\n".join(lines)


def curves(case: Case, measured: dict[str, Any]) -> list[Curve]:
    found = []
    for engine, (_, _, title) in ENGINES.items():
        points = [
            (tables.files(name), seconds)
            for name, outcome in measured.items()
            if (seconds := median(outcome["engines"].get(engine, {}))) is not None
        ]
        if len(points) > 1:
            found.append(Curve(title, sorted(points)))
    return found


def fewest_runs(results: dict[str, Any]) -> int:
    """How often a case was run at least."""
    tables_of_cases = (table for case in results["cases"].values() for table in case.values())
    return min((table["made_by"][1] for table in tables_of_cases if "made_by" in table), default=0)


def write(folder: Path, results: dict[str, Any]) -> None:
    """Write README.md and a plot for each case that was measured on several sizes."""
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    shown = []
    for case in CASES:
        if case.sized and (found := curves(case, results["cases"].get(case.name, {}))):
            (plots / f"{case.name}.svg").write_text(plot(case.title, found))
            shown.append(f"![{case.title}](plots/{case.name}.svg)")
    body = page(results, quick=False).split("## All cases")
    curves_of_cases = ["## Time over the number of files", "", *shown, ""]
    how = HOW.replace("RUNS", str(fewest_runs(results)))
    text = "\n".join([body[0] + how, *curves_of_cases, "## All cases" + body[1]])
    (folder / "README.md").write_text(text.rstrip() + "\n")
