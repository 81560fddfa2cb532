"""The result of `Table.repair` (`RepairResult`, `RepairStep`).

PROTOCOL.md: "Version Checksum File", "Last Checkpoint File Schema", "Checkpoints".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from deltic.display.strings import html_table, printable

__all__ = ["RepairResult", "RepairStep"]


@dataclass(frozen=True)
class RepairStep:
    """One fault, and its repair.

    `kind`: `"checkpoint"`, `"last_checkpoint"`, `"checksum"`, `"data_file"`, `"deletion_vector"`, or `"log"` for
    commits that are missing or torn. `message`: the fault and the repair. `paths`: the files, relative to the table or
    absolute. `mends`: whether it is repaired, or in a dry run would be; False if a person has to decide.
    """

    kind: str
    message: str
    paths: list[str]
    mends: bool

    def __str__(self) -> str:
        verb = "mends" if self.mends else "cannot mend"
        return printable(f"{verb} {self.kind}: {self.message}")


@dataclass(frozen=True, repr=False)
class RepairResult:
    """What a repair did, or with `dry_run=True` would do.

    `version`: the newest version, which was checked; with `recover_to` the last readable one. `committed`: the version
    that removed missing files, None if there were none. `steps`: the faults, in the order of their repair; empty if
    there are none. `moved_to`: the folder, relative to the table, to which files of the log were moved, None if none
    were.
    """

    dry_run: bool
    version: int
    committed: int | None
    steps: tuple[RepairStep, ...]
    moved_to: str | None

    @classmethod
    def parse(cls, text: str, dry_run: bool) -> RepairResult:
        """Parse a result of the core."""
        parsed = json.loads(text)
        steps = tuple(RepairStep(**step) for step in parsed["steps"])
        return cls(dry_run, parsed["version"], parsed["committed"], steps, parsed["moved_to"])

    @property
    def ok(self) -> bool:
        """Whether no fault is left; in a dry run, whether none would be left."""
        return all(step.mends for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        return {**vars(self), "steps": [dict(vars(step)) for step in self.steps], "ok": self.ok}

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        lines = [("looked at", f"version {self.version}")]
        for step in self.steps:
            verb = "cannot mend" if not step.mends else "would mend" if self.dry_run else "mended"
            lines.append((verb, f"{step.kind}: {step.message}"))
            lines += [("", path) for path in step.paths[:_MOST_PATHS]]
            if len(step.paths) > _MOST_PATHS:
                lines.append(("", f"… {len(step.paths) - _MOST_PATHS:,} more"))
        if self.committed is not None:
            lines.append(("committed", f"version {self.committed}"))
        if self.moved_to is not None:
            lines.append(("moved to", self.moved_to))
        if not self.steps:
            lines.append(("found", "nothing that is wrong"))
        return [(name, printable(value)) for name, value in lines]

    def __repr__(self) -> str:
        kind = "(dry run)" if self.dry_run else "()"
        return f"RepairResult{kind}" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        return html_table("Repair" + (" (dry run)" if self.dry_run else ""), self.lines())


_MOST_PATHS = 20
