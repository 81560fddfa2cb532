"""The result of `Table.check`. PROTOCOL.md: "Version Checksum File", "Last Checkpoint File Schema", "Checkpoints"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from deltic.display.strings import html_rows, printable

__all__ = ["Check", "Finding"]


@dataclass(frozen=True)
class Finding:
    """One contradiction in a table: two records of the same fact differ.

    `kind`: `"checksum"`, `"last_checkpoint"`, `"checkpoint"`, `"data_file"` or `"deletion_vector"`. `message`: what
    differs. `path`: the file, relative to the table or absolute; None if it is not about one file. At most a hundred
    findings of a kind are listed, then their number.
    """

    kind: str
    message: str
    path: str | None

    def __str__(self) -> str:
        place = "" if self.path is None else f" {self.path}:"
        return printable(f"{self.kind}:{place} {self.message}")


@dataclass(frozen=True)
class Check:
    """What a check of one version found; `findings` is empty when `ok`."""

    version: int
    ok: bool
    findings: tuple[Finding, ...]

    @classmethod
    def parse(cls, text: str) -> Check:
        """Parse a result of the core."""
        parsed = json.loads(text)
        findings = tuple(Finding(f["kind"], f["message"], f["path"]) for f in parsed["findings"])
        return cls(parsed["version"], not findings, findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        return {**vars(self), "findings": [dict(vars(finding)) for finding in self.findings]}

    def __repr__(self) -> str:
        head = f"Check(version={self.version}, ok={self.ok}"
        lines = [f"\n  {finding}" for finding in self.findings]
        return f"{head}, findings={len(lines)}){''.join(lines)}" if lines else f"{head})"

    def _repr_html_(self) -> str:
        title = f"Check of version {self.version}: {'nothing differs' if self.ok else 'something differs'}"
        rows = [(finding.kind, finding.path or "", finding.message) for finding in self.findings]
        return html_rows(title, ("kind", "file", "difference"), rows)
