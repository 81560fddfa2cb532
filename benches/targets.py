"""The table of targets: what deltic must reach, what it reaches, and the floor of the machine.

A target below the quickest run of the floor cannot be reached on this machine. Then deltic must be within 1.5 times the
floor. A floor that is more than 1.5 times as slow as deltic is ignored.
"""

import statistics
from dataclasses import dataclass
from typing import Any

import tables
from case import ENGINES, Case
from cases import CASES
from cells import DASH, TIMES, Outcome, cell, cost, duration, is_earlier, median, ratio_text, size

LARGE = "1m"
NEAR_THE_FLOOR = 1.5


@dataclass(frozen=True)
class Reached:
    """One target: the goal, the result, whether it is reached (None: not measured), and the allowed seconds."""

    must: str
    now: str
    enough: bool | None
    allowed: float | None = None
    # Shown for comparison, without a goal.
    is_shown_only: bool = False

    def verdict(self, taken: float | None, floor: float | None) -> str:
        if self.is_shown_only:
            return DASH
        if self.enough is None:
            return "not measured" if self.now == DASH else "cut off too early to say"
        if self.enough:
            return "reached"
        if self.allowed is None or floor is None or taken is None or self.allowed >= floor:
            return "**not yet**"
        if taken * NEAR_THE_FLOOR < floor:  # the floor is ignored
            return "**not yet**"
        beyond = f"{duration(self.allowed)} is below the floor, {duration(floor)}; {taken / floor:.2g}{TIMES} the floor"
        return beyond if taken <= NEAR_THE_FLOOR * floor else f"{beyond}, **not yet 1.5{TIMES}**"


def reached(case: Case, measured: dict[str, Any], name: str) -> list[Reached]:
    """All targets of a case on one table."""
    target = case.target
    assert target is not None
    by_engine: dict[str, Outcome] = measured[name]["engines"]
    own = by_engine.get("deltic", {})
    taken = median(own)
    found: list[Reached] = []
    if target.seconds is not None:
        enough = None if taken is None else taken <= target.seconds
        now = DASH if taken is None else duration(taken)
        found.append(Reached(f"≤ {duration(target.seconds)}", now, enough, target.seconds))
    for engine, least in target.ratios.items():
        found.append(_beside(engine, by_engine.get(engine), cost(case, own), least, case))
    for engine in target.beside:
        found.append(_beside(engine, by_engine.get(engine), cost(case, own), None, case))
    if target.peak is not None:
        enough = None if taken is None else own["peak"] <= target.peak
        found.append(
            Reached(f"peak ≤ +{size(target.peak)}", DASH if taken is None else f"+{size(own['peak'])}", enough)
        )
    if target.retained is not None:
        found.append(_retained(target.retained, own, by_engine.get("floor", {}), tables.files(name)))
    if target.growth is not None:
        pairs = zip(own.get("first_us", []), own.get("last_us", []), strict=True)
        grown = None if taken is None else statistics.median(last / first for first, last in pairs)
        enough = None if grown is None else grown <= target.growth
        found.append(Reached(f"≤ {target.growth:g}{TIMES} the first", ratio_text(grown), enough))
    if target.curve is not None:
        found.append(_curve(case, measured, *target.curve))
    if target.all_succeed:
        failed = own.get("failed")
        now = DASH if failed is None else f"{failed} failed"
        found.append(Reached("none fails", now, None if failed is None else failed == 0))
    return found


def _beside(engine: str, peer: Outcome | None, taken: float | None, least: float | None, case: Case) -> Reached:
    other = peer["over"] if peer is not None and "over" in peer else cost(case, peer)
    ratio = None if taken is None or other is None else other / taken
    title, now = ENGINES[engine][2], ratio_text(ratio, peer)
    if least is None:
        return Reached(f"beside {title}", now, None, is_shown_only=True)
    # The time of a peer that was cut off is only a lower bound, so a small ratio proves nothing.
    enough = None if ratio is None or (ratio < least and "over" in (peer or {})) else ratio >= least
    return Reached(f"≥ {least:g}{TIMES} {title}", now, enough, None if other is None else other / least)


def _retained(most: float, own: Outcome, floor: Outcome, files: int) -> Reached:
    held = None if median(own) is None or not files else statistics.median(own["retained"]) / files
    now = DASH if held is None else f"{held:.0f} B"
    paths = floor.get("answer", {}).get("path_bytes")
    if held is not None and paths is not None:
        now += f" (a path has {paths / files:.0f} B)"
    return Reached(f"≤ {most:.0f} B a file", now, None if held is None else held <= most)


def _curve(case: Case, measured: dict[str, Any], small: str, great: str, most: float) -> Reached:
    names = (f"{case.table}_{small}", f"{case.table}_{great}")
    first, last = (median(measured.get(name, {}).get("engines", {}).get("deltic")) for name in names)
    ratio = None if first is None or last is None else last / first
    must = f"on {great.upper()} ≤ {most:g}{TIMES} that on {small}"
    return Reached(must, ratio_text(ratio), None if ratio is None else ratio <= most)


def large(case: Case, measured: dict[str, Any], *, quick: bool) -> str | None:
    """The table of a case's targets: the one with a million files, or the only one."""
    name = f"{case.table}_{LARGE}" if case.sized and not quick else next(iter(measured), None)
    return name if name in measured and "unavailable" not in measured[name] else None


def target_table(results: dict[str, Any], quick: bool) -> list[str]:
    head = ["case", "table", "deltic", "floor", "deltic / floor", "target", "measured", ""]
    lines = [f"| {' | '.join(head)} |", "|---|---|---:|---:|---:|---|---:|---|"]
    for case in CASES:
        if case.target is None:
            continue
        measured = results["cases"].get(case.name, {})
        name = large(case, measured, quick=quick)
        if name is None and quick:
            continue
        if name is None:
            kind = f"`{case.table}_{LARGE}`" if case.sized else f"`{case.table}`"
            lines.append(f"| {case.title} | {kind} | {' | '.join([DASH] * 5)} | not measured |")
            continue
        by_engine = measured[name]["engines"]
        own, floor = median(by_engine.get("deltic")), median(by_engine.get("floor"))
        least = None if floor is None else min(by_engine["floor"]["runs"])
        above = ratio_text(None if own is None or floor is None else own / floor)
        cells = [
            case.title,
            f"`{name}`",
            cell(case, by_engine.get("deltic")),
            cell(case, by_engine.get("floor")),
            above,
        ]
        for demand in reached(case, measured, name):
            lines.append(f"| {' | '.join([*cells, demand.must, demand.now, demand.verdict(own, least)])} |")
            cells = [""] * len(cells)
    return lines


def earlier(results: dict[str, Any]) -> list[str]:
    """The engines whose results were not measured in turn with those of deltic, and where."""
    found: dict[str, set[str]] = {}
    for measured in results["cases"].values():
        for outcome in measured.values():
            for engine, result in outcome["engines"].items():
                if is_earlier(result):
                    found.setdefault(ENGINES[engine][2], set()).add(result["when"][:10])
    return [f"{title} ({', '.join(sorted(days))})" for title, days in found.items()]
