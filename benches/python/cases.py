"""What is measured, for deltic and its peers: a function for each case and engine, given a table and a scratch folder.

A case returns a number that every engine must agree on, so that no one is fast by doing less.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[str, Path], int]


@dataclass(frozen=True)
class Case:
    """One line of the results: what is done, to which table, by whom."""

    name: str
    full: str
    quick: str
    engines: dict[str, Run]


def _open_deltic(uri: str, scratch: Path) -> int:
    import deltic

    return deltic.Table(uri).snapshot().version


def _open_deltalake(uri: str, scratch: Path) -> int:
    import deltalake

    return deltalake.DeltaTable(uri, without_files=True).version()


def _list_deltic(uri: str, scratch: Path) -> int:
    import deltic

    return deltic.Table(uri).files().read_all().num_rows


def _list_deltalake(uri: str, scratch: Path) -> int:
    import deltalake

    return deltalake.DeltaTable(uri).get_add_actions(flatten=True).num_rows


def _plan_deltic(uri: str, scratch: Path) -> int:
    import deltic

    return deltic.Table(uri).plan(filter="day = DATE '2025-03-03' AND id < 2000000000").files_kept


def _plan_deltalake(uri: str, scratch: Path) -> int:
    import deltalake

    return len(deltalake.DeltaTable(uri).file_uris([("day", "=", "2025-03-03")]))


def _read_deltic(uri: str, scratch: Path) -> int:
    import deltic

    return sum(batch.num_rows for batch in deltic.Table(uri).scan().to_reader())


def _read_deltalake(uri: str, scratch: Path) -> int:
    import deltalake

    return sum(batch.num_rows for batch in deltalake.DeltaTable(uri).to_pyarrow_dataset().to_batches())


def _filter_deltic(uri: str, scratch: Path) -> int:
    import deltic

    scan = deltic.Table(uri).scan(columns=["price"], filter="part = 3 AND place = 'place 42'")
    return scan.to_arrow().num_rows


def _filter_deltalake(uri: str, scratch: Path) -> int:
    import deltalake
    import pyarrow.dataset as ds

    chosen = (ds.field("part") == 3) & (ds.field("place") == "place 42")
    return deltalake.DeltaTable(uri).to_pyarrow_dataset().to_table(columns=["price"], filter=chosen).num_rows


def _append_deltic(uri: str, scratch: Path) -> int:
    import deltic

    rows = deltic.Table(uri).scan().to_arrow()
    deltic.write(str(scratch / "copy"), rows, partition_by=["part"])
    return rows.num_rows


def _append_deltalake(uri: str, scratch: Path) -> int:
    import deltalake

    import deltic

    rows = deltic.Table(uri).scan().to_arrow()
    deltalake.write_deltalake(str(scratch / "copy"), rows, partition_by=["part"])
    return rows.num_rows


CASES = [
    Case("open", "files_1m", "files_10k", {"deltic": _open_deltic, "deltalake": _open_deltalake}),
    Case("list all files", "files_100k", "files_10k", {"deltic": _list_deltic, "deltalake": _list_deltalake}),
    Case("plan one day", "files_1m", "files_10k", {"deltic": _plan_deltic, "deltalake": _plan_deltalake}),
    Case("read all rows", "rows_5m", "rows_100k", {"deltic": _read_deltic, "deltalake": _read_deltalake}),
    Case("read by filter", "rows_5m", "rows_100k", {"deltic": _filter_deltic, "deltalake": _filter_deltalake}),
    Case("copy", "rows_5m", "rows_100k", {"deltic": _append_deltic, "deltalake": _append_deltalake}),
]
