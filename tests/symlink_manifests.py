"""Reads the symlink manifests in a table's folder."""

from __future__ import annotations

from pathlib import Path

FOLDER = "_symlink_format_manifest"


def manifests(uri: str) -> dict[str, list[str]]:
    """The sorted lines of each manifest, by its path below the manifest folder."""
    root = Path(uri, FOLDER)
    found = {p.parent.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in root.rglob("manifest")}
    return {folder: sorted(line for line in text.split("\n") if line) for folder, text in found.items()}
