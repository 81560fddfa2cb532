"""Delta Lake tables for Python and PySpark, read and written by a Rust core.

Open a table with `Table`, make one with `create` or `write`, and use `deltic.spark` from PySpark:

>>> import tempfile
>>> import deltic, pyarrow as pa
>>> uri = tempfile.mkdtemp() + "/flights"
>>> deltic.write(uri, pa.table({"month": [7, 7, 8], "distance": [2475, 733, 1400]}), partition_by=["month"]).version
0
>>> deltic.Table(uri).scan(columns=["distance"], filter="month = 7 AND distance > 2000").to_arrow().to_pydict()
{'distance': [2475]}

Rows that are returned are a pyarrow object or have `__arrow_c_stream__`; rows that are passed may be anything with
`__arrow_c_stream__`. Every error is a `DelticError`; see `deltic.errors`. Only `deltic.spark` imports PySpark.
"""

import sys as _sys
from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import NoReturn as _NoReturn

from deltic.conversion.convert import ConvertResult, convert
from deltic.dml.merge import Merge
from deltic.dml.values import Literal, Preview, lit
from deltic.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    CorruptTableError,
    DelticError,
    InvalidInputError,
    MetadataChangedError,
    ProtocolChangedError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltic.hints.names import TOP as _TOP
from deltic.hints.names import no_attribute as _no_attribute
from deltic.inspection.difference import ColumnChange, Diff
from deltic.inspection.layout import Layout
from deltic.monitoring.progress_bars import Progress, progress
from deltic.reading.scan import Changes, Plan, Scan
from deltic.reading.snapshot import Snapshot
from deltic.results.check import Check, Finding
from deltic.results.detail import Detail
from deltic.results.explanation import Explanation
from deltic.results.manifests import ManifestsResult
from deltic.results.optimize import OptimizeResult
from deltic.results.purge import PurgeResult, RetainedRows
from deltic.results.repair import RepairResult, RepairStep
from deltic.results.restore import RestoreResult
from deltic.results.vacuum import VacuumResult
from deltic.table.table import Table
from deltic.tasks import read_task_group
from deltic.transaction.alter import field
from deltic.transaction.transaction import Commit, Transaction, TransactionScan
from deltic.write import create, write

try:
    __version__ = _version("deltic")
except _PackageNotFoundError:  # imported from a source tree, without an installed package
    __version__ = "0"


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not _TYPE_CHECKING:  # type checkers would accept every name

    def __getattr__(name: str) -> _NoReturn:
        _no_attribute("module 'deltic'", _TOP, name, _sys.modules[__name__])


__all__ = [
    "Changes",
    "Check",
    "ColumnChange",
    "Commit",
    "CommitConflictError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentTransactionError",
    "ConvertResult",
    "CorruptTableError",
    "DelticError",
    "Detail",
    "Diff",
    "Explanation",
    "Finding",
    "InvalidInputError",
    "Layout",
    "Literal",
    "ManifestsResult",
    "Merge",
    "MetadataChangedError",
    "OptimizeResult",
    "Plan",
    "Preview",
    "Progress",
    "ProtocolChangedError",
    "PurgeResult",
    "RepairResult",
    "RepairStep",
    "RestoreResult",
    "RetainedRows",
    "Scan",
    "Snapshot",
    "StorageError",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "Transaction",
    "TransactionScan",
    "UnsupportedFeatureError",
    "VacuumResult",
    "VersionNotFoundError",
    "convert",
    "create",
    "field",
    "lit",
    "progress",
    "read_task_group",
    "write",
]
