"""The corpus: tables of other writers, with a manifest of what each must return.

The tables are no part of the project. They are in the folder DELTIC_CORPUS or ../shared/corpus; without them their
tests are skipped. With DELTIC_CORPUS_REQUIRED, as in CI (`.ci/run`), these tests fail.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

CORPUS = Path(os.environ.get("DELTIC_CORPUS", ROOT / ".." / "shared" / "corpus")).resolve()
MANIFEST = CORPUS / "MANIFEST.json"
ENTRIES: list[dict[str, Any]] = json.loads(MANIFEST.read_text()) if MANIFEST.is_file() else []

Test = Callable[..., None]


def for_each(names: str, cases: Sequence[Any], ids: Sequence[str]) -> Callable[[Test], Test]:
    """Run a test for each case of the corpus. Without cases it is skipped, or fails if the corpus is required.

    An empty `parametrize` would skip it in either case.
    """

    def decorate(test: Test) -> Test:
        if cases:
            return pytest.mark.parametrize(names, cases, ids=ids)(test)

        def no_corpus() -> None:
            missing = f"no tables written by others in {CORPUS}"
            if os.environ.get("DELTIC_CORPUS_REQUIRED"):
                pytest.fail(missing)
            pytest.skip(missing)

        return no_corpus

    return decorate
