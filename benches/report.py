"""The output of results: lines during measurement, Markdown tables and plots."""

import os
import platform
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tables
from case import ENGINES, OWN, Case
from cases import CASES
from cells import EARLIER, ONCE, Outcome, cell, cost, is_earlier, median, ratio_text
from plots import Curve, plot
from targets import earlier, target_table

# The number of deltic's runs by default.
USUAL_RUNS = 5
METHOD = "This page is written by `make bench`. [METHOD.md](METHOD.md) says how it is measured."

RATES = [
    "## Rates of commits",
    "",
    "A cell is commits a second, median, least and greatest. deltic waits until a commit would survive a power cut;",
    'where it says "no fsync" it does not (`deltic.durability` = `none`), as deltalake never does. On a long log: the',
    "mean of the first and of the last 50 appends. Processes that contend: how long 99 % of the successful appends",
    "took at most, and how many failed. On the large table a handle has committed once before the clock runs.",
    "",
]


READING = [
    "## Selective scans",
    "",
    "All eight columns of a thousandth of the rows, by a filter: rows next to each other in one file, or some on every",
    "page of all ten. polars reads the Parquet files without their log.",
    "",
]
WRITING = [
    "## Writing",
    "",
    "Rows in memory (of Arrow, or made by Spark) become files, by all with the same codec. pyarrow, DuckDB, polars and",
    "Spark's Parquet write files without a log.",
    "",
]
CHANGING = [
    "## Changing rows",
    "",
    "deltalake writes files again, also where rows may be marked in deletion vectors. The control of processes that",
    "change one file is one file for each; that of the scan is the table without vectors.",
    "",
]
MAINTENANCE = ["## Maintenance", ""]
MACHINE = ["## The machine", "", "What the floors are made of besides decoding, measured in the same run.", ""]
# Sections by the prefix of case names.
SECTIONS = {
    "": [],
    "rates": RATES,
    "reading": READING,
    "writing": WRITING,
    "changing": CHANGING,
    "maintenance": MAINTENANCE,
    "machine": MACHINE,
}


def say(text: str) -> None:
    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """Show the current work on a terminal, where the next output replaces it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def by_size(measured: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(measured.items(), key=lambda named: tables.files(named[0]))


def case_table(case: Case, measured: dict[str, Any]) -> list[str]:
    shown = [e for e in ENGINES if any(e in outcome["engines"] for outcome in measured.values())]
    unread = () if case.family else ("sql", "plain")
    peers = [engine for engine in shown if engine not in (*OWN, *unread) and "deltic" in shown]
    floor = [engine for engine in ("floor", "control") if engine in shown and "deltic" in shown]
    head = ["table", *(ENGINES[engine][2] for engine in shown), *(f"vs {ENGINES[engine][2]}" for engine in peers)]
    head += [f"deltic / {engine}" for engine in floor]
    lines = [f"### {case.title}", "", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for name, outcome in by_size(measured):
        if "unavailable" in outcome:
            lines.append(f"| `{name}`: {outcome['unavailable']} |" + " |" * (len(head) - 1))
            continue
        by_engine = outcome["engines"]
        cells = [cell(case, by_engine.get(engine)) for engine in shown]
        own = cost(case, by_engine.get("deltic"))
        for engine in [*peers, *floor]:
            peer = by_engine.get(engine)
            other = peer["over"] if peer is not None and "over" in peer else cost(case, peer)
            least = None if own is None or other is None else own / other if engine in OWN else other / own
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
    lines = ["# Results", "", f"{machine()}; {versions()}.{measured_between(results)}{measured_of(results)}", ""]
    lines += ([] if quick else [METHOD, ""]) + [*notes(results, quick=quick), "## Targets", ""]
    if quick:
        lines += ["The targets are for a million files; here they are compared with a smaller table.", ""]
    lines += [*target_table(results, quick), "", "## All cases", ""]
    for section, title in SECTIONS.items():
        found = [case for case in CASES if results["cases"].get(case.name) and section_of(case) == section]
        lines += title if found else []
        for case in found:
            lines += case_table(case, results["cases"][case.name])
    return "\n".join(lines)


def section_of(case: Case) -> str:
    kind = case.name.partition("-")[0]
    return kind if kind in SECTIONS else ""


def outcomes(results: dict[str, Any]) -> list[Outcome]:
    found = (table["engines"].values() for case in results["cases"].values() for table in case.values())
    return [outcome for engines in found for outcome in engines]


def measured_between(results: dict[str, Any]) -> str:
    when = sorted(outcome["when"] for outcome in outcomes(results) if "when" in outcome and not is_earlier(outcome))
    if not when:
        return ""
    first, last = (datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M") for moment in (when[0], when[-1]))
    return f" Measured from {first} to {last} UTC."


def measured_of(results: dict[str, Any]) -> str:
    commit = results.get("commit")
    return f" The code is that of commit `{commit}`." if commit else ""


def notes(results: dict[str, Any], *, quick: bool) -> list[str]:
    """The number of runs if it is not the default, and the meaning of marks that occur in the results."""
    lines = []
    measured = (table for case in results["cases"].values() for table in case.values())
    often = {table["made_by"][1] for table in measured if "made_by" in table} - {USUAL_RUNS}
    if often and not quick:
        times = " or ".join(str(runs) for runs in sorted(often))
        lines += [f"deltic and the floor ran {times} times each, not {USUAL_RUNS} times (`--runs`).", ""]
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


def write(folder: Path, results: dict[str, Any]) -> None:
    """Write README.md, and a plot for each case with several sizes."""
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
    text = "\n".join([body[0].rstrip(), "", *curves_of_cases, "## All cases" + body[1]])
    (folder / "README.md").write_text(text.rstrip() + "\n")
