"""The documentation pages whose Python blocks the tests run, and the output that the pages show."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def python_of(name: str) -> tuple[str, list[str]]:
    """All Python blocks of a page as one program, and the expected output from the comments behind each print.

    The comment of a print in a loop lists all of its lines.
    """
    page = (DOCS / name).read_text()
    source = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    printed = [match.group(1) for match in re.finditer(r"^ *print\(.*\)  # (.*)$", source, re.MULTILINE)]
    assert len(printed) == len(re.findall(r"^ *print\(", source, re.MULTILINE)), (
        "each print needs a comment with its output"
    )
    return source, [line for lines in printed for line in lines.split(", then ")]
