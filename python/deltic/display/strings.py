"""Display: strings without control characters, readable sizes, tables for notebooks.

A table's names, paths and messages come from anyone who can write to it. Printed unchanged, they could move the cursor,
set the window's title or reverse the direction of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["a", "counted", "html_rows", "html_table", "printable", "printable_message", "size", "some"]

_MOST_SHOWN = 10


def printable(text: object) -> str:
    r"""The string with characters that are not printable escaped as in Python, such as `\x1b` and `\u202e`.

    Escaped are the characters for which `str.isprintable` is false: controls (C0, C1, DEL), line ends, directions of
    text, invisible characters and lone surrogates.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in plain)


def printable_message(text: object) -> str:
    r"""As `printable`, but keeps line ends before two blanks: a message may have an expression on its own lines."""
    return "\n  ".join(printable(line) for line in str(text).split("\n  "))


def size(count: int) -> str:
    """A number of bytes with three or four digits, in powers of 1,000."""
    scaled = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if scaled < 1000:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1000
    return f"{scaled:.1f} TB"


def counted(count: int, noun: str) -> str:
    """A number and a noun: `1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Sequence[str]) -> str:
    """A list of names as Python writes it, the first ten of them."""
    shown = ", ".join(repr(name) for name in names[:_MOST_SHOWN])
    left = len(names) - _MOST_SHOWN
    return f"[{shown}, … {left:,} more]" if left > 0 else f"[{shown}]"


def a(noun: str) -> str:
    """The noun with its article."""
    return f"{'an' if noun[:1] in 'AEIOUaeiou' else 'a'} {noun}"


def html_table(title: str, rows: Iterable[tuple[object, object]]) -> str:
    """A heading and a table of two columns, escaped."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(printable(name))}</th>'
        f'<td style="text-align:left">{escape(printable(value))}</td></tr>'
        for name, value in rows
    )
    return f"<div><strong>{escape(printable(title))}</strong><table>{cells}</table></div>"


def html_rows(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A heading and a table with as many columns as `head` has names, escaped."""
    names = "".join(f'<th style="text-align:left">{escape(printable(name))}</th>' for name in head)
    cells = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(printable(value))}</td>' for value in row) + "</tr>"
        for row in rows
    )
    return f"<div><strong>{escape(printable(title))}</strong><table><tr>{names}</tr>{cells}</table></div>"
