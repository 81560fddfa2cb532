"""Passing exceptions and Arrow data between Rust and Python, and waiting without the GIL."""

import copy
import pickle
import re
from pathlib import Path

import pytest

from deltic import errors

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CLASSES = [getattr(errors, name) for name in errors.__all__]
BUILT_IN = {
    errors.TableNotFoundError: FileNotFoundError,
    errors.VersionNotFoundError: LookupError,
    errors.TableExistsError: FileExistsError,
    errors.UnsupportedFeatureError: NotImplementedError,
    errors.InvalidInputError: ValueError,
    errors.StorageError: OSError,
}
EXTRA = {
    errors.UnsupportedFeatureError: {"features": ("rowTracking",)},
    errors.StorageError: {"retryable": True},
    **{cls: {"winning_version": 7} for cls in CLASSES if issubclass(cls, errors.CommitConflictError)},
}


def test_rust_raises_the_classes_that_exist():
    source = (ROOT / "rust/python/src/errors.rs").read_text()
    raised = set(re.findall(r'=> "(\w+Error)"', source))
    assert raised | {"CommitConflictError"} == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_have_base_classes_and_messages(cls):
    assert issubclass(cls, errors.DelticError)
    assert issubclass(cls, BUILT_IN.get(cls, Exception))
    assert cls.__doc__

    bare = cls("it broke")
    assert str(bare) == "it broke"
    assert repr(bare) == f"{cls.__name__}('it broke')"
    assert (bare.table, bare.version, bare.path) == (None, None, None)
    assert getattr(bare, "errno", None) is None


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling(cls):
    error = cls("it broke", table="s3://bucket/t", version=6, path="a.parquet", **EXTRA.get(cls, {}))
    error.note = "kept"
    pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in [*pickled, copy.copy(error), copy.deepcopy(error)]:
        assert type(twin) is cls
        assert str(twin) == "it broke"
        assert vars(twin) == vars(error)
