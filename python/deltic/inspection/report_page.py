"""Makes an HTML page about a table: its facts, checks, history, files, and what maintenance would do.

The page has no script, no requests, no external font or image, and a policy in its head that forbids them. Everything
that comes from the table is escaped. Settings of the store are not on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

import pyarrow as pa

from deltic.display.charts import bars, columns, legend
from deltic.display.instant import shown_instant, shown_time
from deltic.display.strings import counted, printable, size
from deltic.inspection.layout import Layout, partition_labels, skipped
from deltic.results.check import Check
from deltic.results.detail import Detail
from deltic.results.history import metrics_of
from deltic.results.vacuum import VacuumMode, VacuumResult
from deltic.types.names import type_name

__all__ = ["COMMITS", "Facts", "page"]

COMMITS = 200
"""The most commits that are read for the history."""

_MOST_ROWS = 20
_FIRST_ROWS = 8
_MOST_COLUMNS = 200
_SPANS = 40
_SERIES = 5
_LONGEST = 160


@dataclass(frozen=True)
class Facts:
    """The contents of the page. `vacuum` is what a vacuum of `vacuum_mode` would do, or why it cannot."""

    detail: Detail
    schema: pa.Schema
    layout: Layout
    check: Check
    history: list[dict[str, Any]]
    vacuum_mode: VacuumMode | None
    vacuum: VacuumResult | str | None
    made: datetime


def page(facts: Facts) -> str:
    """The page as HTML."""
    detail = facts.detail
    title = detail.name or detail.location.rstrip("/").rpartition("/")[2] or detail.location
    sections = [
        _section("Health", _health(facts)),
        _section("History", _history(facts.history)),
        _section("File sizes", _file_sizes(facts.layout)),
        _section("Skipping", _skipping(facts.layout)),
        _section("Partitions", _partitions(facts.layout)),
        _section("Deletion vectors", _vectors(facts.layout)),
        _section("Maintenance", _maintenance(facts)),
        _section("Columns", _columns(facts)),
        _section("Properties and protocol", _properties(detail)),
    ]
    described = f"<p>{_text(detail.description)}</p>" if detail.description else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />{_POLICY}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<header><h1>{_text(title)}</h1><p class="place">{_text(detail.location)}</p>'
        f"{described}{_cards(facts)}</header>"
        f"{''.join(sections)}"
        f"<footer>Version {detail.version}, looked at {shown_time(facts.made)} by deltic. "
        f"{_looked_at(facts)}</footer></main></body></html>\n"
    )


def _looked_at(facts: Facts) -> str:
    listed = facts.vacuum_mode == "full"
    return "The log was read, and the table's folder listed for VACUUM." if listed else "Only the log was read."


def _text(value: object) -> str:
    shown = printable(value)
    return escape(shown if len(shown) <= _LONGEST * 4 else f"{shown[: _LONGEST * 4]}…")


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "plain") -> str:
    names = "".join(f"<th>{_text(name)}</th>" for name in head)
    cells = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows)
    return f'<div class="wide {kind}"><table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table></div>'


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _cards(facts: Facts) -> str:
    detail, layout = facts.detail, facts.layout
    figures = [
        ("rows", "unknown" if detail.num_rows is None else f"{detail.num_rows:,}"),
        ("files", f"{detail.num_files:,}"),
        ("size", size(detail.size_in_bytes)),
        ("version", f"{detail.version:,}"),
        ("changed", shown_time(detail.last_modified)),
    ]
    if layout.partitions is not None:
        figures.insert(3, ("partitions", f"{layout.partitions.num_rows:,}"))
    cards = "".join(f"<div><strong>{_text(value)}</strong><span>{name}</span></div>" for name, value in figures)
    return f'<div class="cards">{cards}</div>'


def _health(facts: Facts) -> str:
    found = [*_of_the_log(facts.check), *_of_the_files(facts.layout)]
    marks = {True: ("good", "✓"), False: ("poor", "!")}
    items = "".join(
        f'<li class="{marks[good][0]}"><b>{marks[good][1]}</b><span>{_text(message)}</span></li>'
        for good, message in found
    )
    return f'<ul class="health">{items}</ul>'


def _of_the_log(check: Check) -> list[tuple[bool, str]]:
    if check.ok:
        return [(True, "What the log records twice agrees: checksum, checkpoint, last checkpoint.")]
    more = len(check.findings) - _MOST_ROWS
    lines = [(False, str(finding)) for finding in check.findings[:_MOST_ROWS]]
    return lines if more <= 0 else [*lines, (False, f"… and {more:,} more differences")]


def _of_the_files(layout: Layout) -> list[tuple[bool, str]]:
    found = []
    gain = layout.optimize
    fewer = 0 if gain is None else gain.files_to_rewrite - gain.expected_files
    is_below = "file is" if layout.num_files == 1 else "files are"
    message = f"{layout.small_files:,} of {layout.num_files:,} {is_below} below {size(layout.small_file_size)}."
    if many := fewer >= 10 and fewer * 5 >= layout.num_files:
        message += f" OPTIMIZE would leave {counted(fewer, 'file')} fewer."
    found.append((not many, message))
    rows = (layout.num_rows or 0) + layout.deleted_rows
    if layout.deleted_rows:
        share = layout.deleted_rows / rows if layout.num_rows is not None and rows else 1.0
        message = f"Deletion vectors hold {counted(layout.deleted_rows, 'row')}, which readers read past."
        found.append((share <= 0.05, message))
    if layout.partition_skew is not None:
        message = f"The largest partition has {layout.partition_skew:.1f} times the bytes of the median one."
        found.append((layout.partition_skew <= 10, message))
    return found


def _history(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return _note("The log has no commits any more.")
    kinds = [name for name, _ in Counter(map(_operation, entries)).most_common()]
    named = kinds if len(kinds) <= _SERIES + 1 else [*kinds[:_SERIES], "other"]
    times = [int(entry["timestamp"]) for entry in entries]
    first, last = min(times), max(times)
    spans = [[0] * len(named) for _ in range(min(_SPANS, max(len(entries), 1)))]
    for entry, at in zip(entries, times, strict=True):
        span = (at - first) * (len(spans) - 1) // (last - first) if last > first else 0
        kind = _operation(entry)
        spans[span][named.index(kind if kind in named else "other")] += 1
    width = (last - first) / max(len(spans) - 1, 1)
    drawn = columns(
        [
            (f"{shown_instant(first + at * width)}: {counted(sum(counts), 'commit')}", counts)
            for at, counts in enumerate(spans)
        ]
    )
    ends = (
        f'<div class="ends"><span>{_text(shown_instant(first))}</span><span>{_text(shown_instant(last))}</span></div>'
    )
    rows = [
        (entry["version"], shown_instant(entry["timestamp"]), _operation(entry), metrics_of(entry))
        for entry in entries[:_MOST_ROWS]
    ]
    newest = f"The newest {len(entries):,} commits" if len(entries) >= COMMITS else counted(len(entries), "commit")
    head = _note(f"{newest} by the time at which they were made.")
    names = ("version", "time", "operation", "metrics")
    newer, older = rows[:_FIRST_ROWS], rows[_FIRST_ROWS:]
    shown = _table(names, newer, "history")
    if older:
        summary = f"<summary>{counted(len(older), 'commit')} before</summary>"
        shown += f"<details>{summary}{_table(names, older, 'history')}</details>"
    return head + drawn + ends + legend(named) + shown


def _operation(entry: dict[str, Any]) -> str:
    # Writers may put anything into a commit info.
    found = entry.get("operation")
    return found if isinstance(found, str) and found else "?"


def _file_sizes(layout: Layout) -> str:
    if layout.min_file_size is None or layout.median_file_size is None or layout.max_file_size is None:
        return _note("The table has no files.")
    least, middle, most = map(size, (layout.min_file_size, layout.median_file_size, layout.max_file_size))
    return _note(f"From {least} to {most}, median {middle}.") + bars(layout.sizes())


def _skipping(layout: Layout) -> str:
    found = layout.columns.slice(0, _MOST_ROWS).to_pylist()
    if not found or not layout.num_files:
        return _note("No column has bounds or partition values.")
    drawn = bars(
        [(row["column"], row["share_skipped"], f"{100 * row['share_skipped']:.1f} %") for row in found], most=1.0
    )
    rows = [
        (
            row["column"],
            row["kind"],
            skipped(row, layout.num_files),
            "" if row["depth"] is None else f"{row['depth']:,.1f}, at most {row['max_depth']:,}",
            "" if row["overlaps"] is None else f"{row['overlaps']:,.1f}",
        )
        for row in found
    ]
    message = "The share of files that a query for one value of a column skips, over the bounds of all files."
    more = layout.columns.num_rows - _MOST_ROWS
    rest = _note(f"… and {counted(more, 'more column')}") if more > 0 else ""
    head = ("column", "by", "skipped", "files in range", "overlapping files")
    return _note(message) + drawn + _table(head, rows) + rest


def _partitions(layout: Layout) -> str:
    if layout.partitions is None:
        return ""
    first = layout.partitions.slice(0, _MOST_ROWS)
    labels = partition_labels(first)
    counts = first.drop_columns(["partition"]).to_pylist()
    drawn = bars(
        (label, row["bytes"], f"{size(row['bytes'])}, {counted(row['files'], 'file')}")
        for label, row in zip(labels, counts, strict=True)
    )
    shown = f"The largest {len(counts):,} of {layout.partitions.num_rows:,} partitions, by bytes."
    return _note(shown) + drawn


def _vectors(layout: Layout) -> str:
    if not layout.files_with_vectors:
        return _note("No file has one.")
    has = "has" if layout.files_with_vectors == 1 else "have"
    message = f"{layout.files_with_vectors:,} of {counted(layout.num_files, 'file')} {has} one"
    rows = (layout.num_rows or 0) + layout.deleted_rows
    share = f", {100 * layout.deleted_rows / rows:.1f} % of all" if layout.num_rows is not None and rows else ""
    return _note(f"{message}, with {counted(layout.deleted_rows, 'deleted row')}{share}.")


def _maintenance(facts: Facts) -> str:
    layout, vacuum = facts.layout, facts.vacuum
    rows = []
    if layout.optimize is None:
        rows.append(("OPTIMIZE", f"refused: {layout.optimize_refused}"))
    else:
        rows += [(f"OPTIMIZE: {name}", value) for name, value in layout.optimize.lines()]
    if isinstance(vacuum, VacuumResult):
        rows += [(f"VACUUM: {name}", value) for name, value in vacuum.lines()]
    elif vacuum is not None:
        rows.append(("VACUUM", f"refused: {vacuum}"))
    return _table(("dry run", "what it would do"), rows)


def _columns(facts: Facts) -> str:
    partitions = set(facts.detail.partition_columns)
    rows = [
        (
            field.name,
            type_name(field),
            ", ".join(
                label
                for label, holds in (("not null", not field.nullable), ("partition", field.name in partitions))
                if holds
            ),
        )
        for field in list(facts.schema)[:_MOST_COLUMNS]
    ]
    more = len(facts.schema) - _MOST_COLUMNS
    return _table(("column", "type", ""), rows) + (_note(f"… and {counted(more, 'more column')}") if more > 0 else "")


def _properties(detail: Detail) -> str:
    rows: list[tuple[object, object]] = [
        ("id", detail.id),
        ("created", shown_time(detail.created_at)),
        ("clustered by", ", ".join(detail.clustering_columns) or "nothing"),
        ("protocol", f"reader {detail.min_reader_version}, writer {detail.min_writer_version}"),
        ("features", ", ".join(detail.table_features)),
        *((key, _MASK if _SECRET.search(key) else value) for key, value in sorted(detail.properties.items())),
    ]
    return _table(("name", "value"), rows)


_MASK = "••••••"
_SECRET = re.compile(r"secret|password|token|credential|access.?key", re.IGNORECASE)

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\" />"
    '<meta name="referrer" content="no-referrer" />'
)
_STYLE = """
:root{color-scheme:light dark;--ground:#f6f7f9;--panel:#fff;--ink:#1d2430;--soft:#5c6675;--line:#e2e6ec;--good:#1f8a5b;
--poor:#b25c00;--deltic-0:#3b76c4;--deltic-1:#d9822b;--deltic-2:#2f9e6e;--deltic-3:#b8529b;--deltic-4:#7d6bd6;
--deltic-5:#8a8f98}
@media (prefers-color-scheme:dark){:root{--ground:#12161c;--panel:#1a2029;--ink:#e4e9f0;--soft:#98a3b3;--line:#2b3340;
--good:#4cc38a;--poor:#f0a24b;--deltic-0:#6aa5ef;--deltic-1:#f0a24b;--deltic-2:#4cc38a;--deltic-3:#dc84c3;
--deltic-4:#a597f0;--deltic-5:#a3a9b3}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 40px}
h1{margin:0;font-size:28px;line-height:1.2;overflow-wrap:anywhere}
h2{margin:0 0 12px;font-size:17px}
.place{margin:4px 0 0;color:var(--soft);font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;
overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin:20px 0}
.cards div,section{background:var(--panel);border:1px solid var(--line);border-radius:10px}
.cards div{padding:12px 14px}
.cards strong{display:block;font-size:19px;font-variant-numeric:tabular-nums}
.cards span,.note,footer,.ends{color:var(--soft);font-size:13px}
section{padding:18px 20px;margin:14px 0}
.note{margin:0 0 12px}
.ends{display:flex;justify-content:space-between;border-top:1px solid var(--line);padding-top:4px;margin-bottom:8px}
.health{list-style:none;margin:0;padding:0}
.health li{display:flex;gap:10px;padding:4px 0;overflow-wrap:anywhere}
.health b{flex:none;width:20px;text-align:center}
.good b{color:var(--good)}
.poor b{color:var(--poor)}
.deltic-bars,.deltic-legend{font-size:13px;font-variant-numeric:tabular-nums}
.deltic-bars svg{display:block;background:var(--ground);border-radius:3px}
.wide{overflow-x:auto;margin-top:14px}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;vertical-align:top;padding:6px 14px 6px 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600;white-space:nowrap}
td{overflow-wrap:break-word;max-width:56ch;font-variant-numeric:tabular-nums;min-width:64px}
tbody tr:last-child td{border-bottom:0}
.history table{min-width:620px}
.history td:nth-child(-n+3){white-space:nowrap}
summary{cursor:pointer;color:var(--soft);font-size:13px;margin-top:10px}
footer{margin-top:22px}
@media (max-width:520px){main{padding:18px 12px 28px}section{padding:14px}h1{font-size:22px}
.cards{grid-template-columns:1fr 1fr;gap:8px}.cards strong{font-size:16px}}
"""
