"""Writes the parts of the documentation that are generated from Python code; a test checks that they are current.

Run it with `make docs`, which also runs the Rust tests that write the tables of `protocol-support.md` and of
`commit-protocol.md`.
"""

import inspect
import re
from pathlib import Path

from deltic import errors

DOCS = Path(__file__).resolve().parent


def error_tree() -> str:
    """The exception classes as a tree, each with the first sentence of its docstring."""
    classes = [getattr(errors, name) for name in errors.__all__]
    lines = []

    def visit(cls: type[BaseException], depth: int) -> None:
        builtin = [base.__name__ for base in cls.__bases__ if base.__module__ == "builtins" and base is not Exception]
        article = "an" if builtin and builtin[0][0] in "AEIOU" else "a"
        also = f" (also {article} `{builtin[0]}`)" if builtin else ""
        own = sorted(name for name in inspect.get_annotations(cls) if not name.startswith("_"))
        attributes = f" Attributes: {', '.join(f'`.{name}`' for name in own)}." if own else ""
        first = re.split(r"(?<=\.)\s", inspect.getdoc(cls) or "", maxsplit=1)[0]
        lines.append(f"{'  ' * depth}- **`{cls.__name__}`**{also}. {first}{attributes}")
        for child in sorted((other for other in classes if other.__bases__[0] is cls), key=lambda c: c.__name__):
            visit(child, depth + 1)

    visit(errors.DelticError, 0)
    return "\n".join(lines) + "\n"


# The benchmarks that the README shows.
SHOWN = [
    "Open: version and schema known",
    "List all files with size and partition values",
    "Plan, partition filter",
    "Plan, statistics filter, JSON statistics only",
    "Plan, statistics filter, typed statistics",
    "Second plan on a snapshot, same column, other range",
    "Refresh after one new commit",
    "Write a checkpoint",
    "Append to the large table, on a handle",
]
BESIDE = ["deltic", "deltalake", "DuckDB delta"]


def figures() -> str:
    """Medians and peak memory of a few cases on a million files, from the results page of the benchmarks."""
    page = (DOCS.parent / "benches" / "README.md").read_text()
    lines = [f"| 1,000,000 files | {' | '.join(BESIDE)} |", "|---" + "|---:" * len(BESIDE) + "|"]
    for title in SHOWN:
        case = page.split(f"\n### {title}\n", 1)[1].split("\n###", 1)[0]
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in case.strip().splitlines())
        of_million = next(dict(zip(head, row, strict=True)) for row in rows if row[0].endswith("_1m`"))
        cells = [re.sub(r" \([^)]*\)| †", "", of_million.get(engine, "\N{EN DASH}")) for engine in BESIDE]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    machine = page.splitlines()[2].split("; ")[0]
    below = f"{machine}. Median time (° one run), and peak memory above that after the imports."
    return "\n".join([*lines, "", below, ""])


GENERATED = {"errors.md": error_tree, "../README.md": figures}


def with_generated(page: str, text: str) -> str:
    """A page with the text between its markers replaced."""
    start, end = "<!-- generated -->\n", "<!-- /generated -->"
    before, rest = page.split(start)
    _, after = rest.split(end)
    return before + start + text + end + after


def main() -> None:
    """Write every page's generated part."""
    for name, make in GENERATED.items():
        path = DOCS / name
        path.write_text(with_generated(path.read_text(), make()))


if __name__ == "__main__":
    main()
