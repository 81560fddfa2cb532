"""`deltic.read_task_group`: parts of a plan, read in other processes."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

import deltic


@pytest.fixture
def months(uri: str) -> deltic.Table:
    for month in range(1, 7):
        deltic.write(uri, pa.table({"month": [month] * 4, "km": [1, 2, 3, 4]}), partition_by=["month"])
    return deltic.Table(uri)


@pytest.mark.slow
def test_the_groups_together_are_the_rows_of_the_plan(months: deltic.Table) -> None:
    plan = months.plan(columns=["km"], filter="month > 2 AND km < 3")
    groups = plan.task_groups(3)
    assert len(groups) == 3
    deltic.write(months, pa.table({"month": [9], "km": [1]}))
    parts = [deltic.read_task_group(months.uri, group) for group in groups]
    assert all(part.schema == plan.schema for part in parts)
    assert sorted(pa.concat_tables(part.read_all() for part in parts)["km"].to_pylist()) == [1] * 4 + [2] * 4


@pytest.mark.slow
def test_other_processes_read_task_groups(months: deltic.Table) -> None:
    groups = pickle.loads(pickle.dumps(months.plan().task_groups(2)))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        counts = list(pool.map(_count, [months] * 2, groups))
    assert sum(counts) == 24
    assert all(counts)


def _count(table: deltic.Table, group: bytes) -> int:
    return deltic.read_task_group(table, group).read_all().num_rows


@pytest.mark.slow
def test_batches_have_the_size_that_was_asked_for(months: deltic.Table) -> None:
    (group,) = months.plan().task_groups(1)
    batches = list(deltic.read_task_group(months, group, batch_size=3))
    assert max(batch.num_rows for batch in batches) <= 3
    assert sum(batch.num_rows for batch in batches) == 24


def test_wrong_groups_are_refused(months: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match=r"group must be bytes, one of Plan\.task_groups, not str"):
        deltic.read_task_group(months, "group")  # type: ignore[arg-type]
    with pytest.raises(deltic.DelticError):
        deltic.read_task_group(months, b"no group").read_all()
    (group,) = months.plan().task_groups(1)
    with pytest.raises(deltic.InvalidInputError, match="batch_size"):
        deltic.read_task_group(months, group, batch_size=0)


def test_a_file_that_is_gone_is_named(months: deltic.Table) -> None:
    (group,) = months.plan(filter="month = 3").task_groups(1)
    (path,) = Path(months.uri.removeprefix("file://")).glob("month=3/*.parquet")
    path.unlink()
    with pytest.raises(deltic.CorruptTableError, match=path.name):
        deltic.read_task_group(months, group).read_all()
