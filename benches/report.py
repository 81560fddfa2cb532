"""The page of results: lines while measuring, Markdown tables, and the plots beside them."""

import os
import platform
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tables
from cases import CASES, ENGINES, Case
from cells import EARLIER, ONCE, Outcome, cell, is_earlier, median, ratio_text
from plots import Curve, plot
from targets import earlier, target_table

HOW = """\
## How this is measured

    make bench          # all of this page; the first time it also builds some 10 GB of tables and asks the plain replay
    make bench-quick    # 100,000 files, a few minutes, prints its tables and writes nothing
    python benches/run.py --only plan-json,refresh --sizes 100k,1m --engines deltic,duckdb
    python benches/run.py --keep-peers    # while working on deltic: peers as they were the last time
    python benches/run.py --estimate      # what would be measured, in which order, and how long it would take

Every run is a process of its own, on a warm page cache, on local disk; engines take turns, round by round. Importing
numpy, which all do, would start threads for linear algebra that spin for a while; it is told not to. A cell is the
median of RUNS or more runs after a warm-up, least and greatest in brackets, then the peak memory of the process above
what it had after its imports. Memory for each file of a table that is kept is what the process holds at rest, when it
has held no less for fifteen seconds. deltic runs at most three times on 5,000,000 files, the floor three times always,
the peers once on 5,000,000 files and three times where there is no target. A peer whose first run takes more than 4 s
has three, one that takes more than 20 s has that one, and one that needs more than a minute is cut off; the plain
replay runs once from 100,000 files on, and not on 5,000,000. What a run writes stays until the bench ends, if it is
small: a file system without a journal searches what was deleted in the last minutes whenever it makes a file, and runs
would pay for those before them.

What is most asked for is measured first, and how long the rest will take is said before each step. `--budget MINUTES`
(30 if not given, 0 for no bound) saves time where all would take longer: first the peers on 5,000,000 files are not
run again, if they were before, then peers run once, those first that no target is about, and of these the slowest.
No case is left out for it. Cells of peers that ran less than was asked have a ONCE_MARK. A run that was stopped goes
on where it was, as long as deltic's build is the same.

Every answer (files kept, their bytes where the engine tells, rows) is compared with that of a plain replay of the log
in Python (`python/plain.py`), and a wrong one fails the bench. DuckDB tells after a plan how many files it kept, which
takes much longer than the plan: it is asked in one run of each case, not on 5,000,000 files, and that time counts
nowhere. The replay's answers are kept beside the tables, for no build of deltic changes them, and so is the time it
took. The other peers run anew, in turn with deltic, save those that were cut off the last time, and all with
`--keep-peers`. Whatever comes from an earlier run, of the same versions, tables and runs on the same kind of machine,
has a EARLIER_MARK.

The floor is what the bytes alone cost here, with Arrow C++ on every processor, column by column. Of a plan: it reads
and decompresses the pages that the filter needs, then those of path, size and time, and reads the later commits; it
decodes nothing and keeps nothing. No page can be entered in its middle, and of these tables nearly all pages hold
files that are kept. (Its Snappy is the library's own, page by page; deltic decompresses two pages of texts at once,
which is quicker.) Whoever lists all files decodes these columns, too, and keeps them. Opening is a footer, a refresh
a listing and one commit, a checkpoint the writing of columns already decoded, an append two encoded files and their
fsync. It is no answer, so nothing is compared or joined. A target that asks for less than the quickest run of its
floor is forbidden by it; then deltic must come within 1.5 times that run. (A floor that deltic is below by as much
would be none.) A target in milliseconds was set on a machine where deltalake took so many seconds, and a slower
machine slows both: beside the time itself, the ratio of the two is asked for (10 ms of 3.5 s are a 350th). All
figures are of this one machine, and say nothing of another. Nor are they the same in every run: on a virtual machine
fresh memory costs more where the host has taken it back, for whoever needs it.

The tables are made by `tables.py` and `logs.py`, seeded: 8 columns with statistics (long, integer, double, string,
date, timestamp, decimal, and a field of a struct), a date partition column with 1,000 values, as many tombstones as 2 %
of the files, and a snappy checkpoint in the order delta-spark writes (hashed by path, so no row group can be skipped),
followed by 100 commits that each add and remove 50 files. A filter keeps a thousandth of the files.

- deltic: a plan includes its files as an Arrow table. A refresh is a new snapshot on the handle; the number of its
  files, which without a checksum takes as long as listing them, is asked for when the clock has stopped.
- deltalake: `DeltaTable` and `file_uris(file_pruning_predicate=...)`, `get_add_actions`, `update_incremental`,
  `create_checkpoint` (on a table already open, which is not counted; deltic's opening is). It writes statistics as
  text alone; deltic also writes them typed, its files sorted by partition, unless the table asks for text alone.
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


MACHINE = ["## The machine", "", "What the floors are made of besides decoding, measured in the same run.", ""]


def say(text: str) -> None:
    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """What is being done; replaced by what follows on a terminal, left out elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def by_size(measured: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(measured.items(), key=lambda named: tables.files(named[0]))


def case_table(case: Case, measured: dict[str, Any]) -> list[str]:
    shown = [e for e in ENGINES if any(e in outcome["engines"] for outcome in measured.values())]
    peers = [engine for engine in shown if engine in ("deltalake", "duckdb") and "deltic" in shown]
    floor = ["floor"] if "floor" in shown and "deltic" in shown else []
    head = ["table", *(ENGINES[engine][2] for engine in shown), *(f"vs {ENGINES[engine][2]}" for engine in peers)]
    head += ["deltic / floor"] * len(floor)
    lines = [f"### {case.title}", "", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for name, outcome in by_size(measured):
        if "unavailable" in outcome:
            lines.append(f"| `{name}`: {outcome['unavailable']} |" + " |" * (len(head) - 1))
            continue
        by_engine = outcome["engines"]
        cells = [cell(case, by_engine.get(engine)) for engine in shown]
        own = median(by_engine.get("deltic"))
        for engine in [*peers, *floor]:
            peer = by_engine.get(engine)
            other = peer["over"] if peer is not None and "over" in peer else median(peer)
            least = None if own is None or other is None else own / other if engine == "floor" else other / own
            cells.append(ratio_text(least, peer))
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
    lines = ["# Results", "", f"{machine()}; {versions()}.{measured_between(results)}", "", *notes(results)]
    lines += ["## Targets", ""]
    if quick:
        lines += ["The targets are for a million files; here they are compared with a smaller table.", ""]
    lines += [*target_table(results, quick), "", "## All cases", ""]
    titles = {"": [], "rates": RATES, "machine": MACHINE}
    for section, title in titles.items():
        found = [case for case in CASES if results["cases"].get(case.name) and section_of(case) == section]
        lines += title if found else []
        for case in found:
            lines += case_table(case, results["cases"][case.name])
    return "\n".join(lines)


def section_of(case: Case) -> str:
    kind = case.name.partition("-")[0]
    return kind if kind in ("rates", "machine") else ""


def outcomes(results: dict[str, Any]) -> list[Outcome]:
    found = (table["engines"].values() for case in results["cases"].values() for table in case.values())
    return [outcome for engines in found for outcome in engines]


def measured_between(results: dict[str, Any]) -> str:
    when = sorted(outcome["when"] for outcome in outcomes(results) if "when" in outcome and not is_earlier(outcome))
    if not when:
        return ""
    first, last = (datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M") for moment in (when[0], when[-1]))
    return f" Measured from {first} to {last} UTC."


def notes(results: dict[str, Any]) -> list[str]:
    """What the marks in these results mean, where there are any."""
    lines = []
    if found := earlier(results):
        lines += [f"{EARLIER} from an earlier run, not in turn with deltic: {', '.join(found)}.", ""]
    if any("fewer" in outcome for outcome in outcomes(results)):
        lines += [f"{ONCE} one run only, to save time.", ""]
    return lines


def curves(case: Case, measured: dict[str, Any]) -> list[Curve]:
    found = []
    for engine, (_, _, title) in ENGINES.items():
        points = [
            (tables.files(name), seconds)
            for name, outcome in measured.items()
            if (seconds := median(outcome["engines"].get(engine))) is not None
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
    how = HOW.replace("RUNS", str(fewest_runs(results))).replace("ONCE_MARK", ONCE).replace("EARLIER_MARK", EARLIER)
    text = "\n".join([body[0] + how, *curves_of_cases, "## All cases" + body[1]])
    (folder / "README.md").write_text(text.rstrip() + "\n")
