"""The documentation pages whose Python blocks the tests run, and the output that the pages show."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def python_of(name: str) -> tuple[str, list[str]]:
    """All blocks of a page as one program, and the lines that it says it prints; what a loop prints is said once."""
    page = (DOCS / name).read_text()
    source = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    told = [match.group(1) for match in re.finditer(r"^ *print\(.*\)  # (.*)$", source, re.MULTILINE)]
    assert len(told) == len(re.findall(r"^ *print\(", source, re.MULTILINE)), "say behind each print what it prints"
    return source, [line for lines in told for line in lines.split(", then ")]
