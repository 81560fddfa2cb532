"""The format of one result: durations, sizes, rates, and marks of results from other conditions."""

import statistics
from typing import Any

from case import Case

Outcome = dict[str, Any]
# Members of an answer with durations of parts of the run.
MICROSECONDS = ("first_us", "last_us", "p99_us", "filter_us")
DASH, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
# Marks of a result from an earlier run, and of a peer that ran less often than requested.
EARLIER, ONCE = "\N{DAGGER}", "\N{DEGREE SIGN}"


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def median(outcome: Outcome | None) -> float | None:
    """The median seconds of an engine, if it finished."""
    if outcome is None or "over" in outcome or "error" in outcome or not outcome.get("runs"):
        return None
    return float(statistics.median(outcome["runs"]))


def cost(case: Case, outcome: Outcome | None) -> float | None:
    """What is compared: seconds, or for rates seconds for each unit, since engines may have done different numbers."""
    seconds = median(outcome)
    return seconds if seconds is None or outcome is None or not case.unit else 1 / statistics.median(outcome["rates"])


def is_earlier(outcome: Outcome | None) -> bool:
    return outcome is not None and bool(outcome.get("kept"))


def marks(outcome: Outcome) -> str:
    return (f" {EARLIER}" if is_earlier(outcome) else "") + (f" {ONCE}" if "fewer" in outcome else "")


def ratio_text(value: float | None, peer: Outcome | None = None) -> str:
    """A ratio of durations, a lower bound if the peer was cut off."""
    if value is None:
        return DASH
    text = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    at_least = "> " if peer is not None and "over" in peer else ""
    return f"{at_least}{text}{TIMES}" + (f" {EARLIER}" if is_earlier(peer) else "")


def cell(case: Case, outcome: Outcome | None) -> str:
    if outcome is None:
        return DASH
    if "over" in outcome:
        return f"cut off at {outcome['over']:.0f} s{marks(outcome)}"
    if "error" in outcome:
        return "fails"
    if case.unit:
        return _rate(outcome) + marks(outcome)
    runs = outcome["runs"]
    spread = f" ({duration(min(runs))}{DASH}{duration(max(runs))})" if len(runs) > 1 else ""
    text = f"{duration(statistics.median(runs))}{spread}"
    if "filter_us" in outcome:
        text += f", {duration(statistics.median(outcome['filter_us']) / 1e6)} of it the filter's columns"
    return f"{text}, +{size(max(outcome['peak'], 0))}{marks(outcome)}"


def _rate(outcome: Outcome) -> str:
    rates = outcome["rates"]
    text = f"{statistics.median(rates):.0f}/s"
    if len(rates) > 1:
        text += f" ({min(rates):.0f}{DASH}{max(rates):.0f})"
    if "first_us" in outcome:
        first, last = (duration(statistics.median(outcome[name]) / 1e6) for name in ("first_us", "last_us"))
        text += f", {first} then {last}"
    if "p99_us" in outcome:
        text += f", 99 % within {duration(statistics.median(outcome['p99_us']) / 1e6)}"
    return text + (f", {outcome['failed']} failed" if outcome["failed"] else "")


def line(case: Case, table: str, by_engine: dict[str, Outcome]) -> str:
    """One case on one table in one line, followed by errors."""
    cells = " | ".join(f"{engine} {cell(case, outcome)}" for engine, outcome in by_engine.items())
    errors = [f"\n    {engine}: {outcome['error']}" for engine, outcome in by_engine.items() if "error" in outcome]
    return f"{case.name}, {table}: {cells}" + "".join(errors)
