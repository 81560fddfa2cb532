"""The source of a merge is spilled beyond `memory_limit`: same result, bounded memory, no temporary file left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sample import open_files

import deltic
from deltic import InvalidInputError, StorageError, Table

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="open files and memory are read from /proc")

ROWS = 6_000
PLACE = pa.struct([("city", pa.string()), ("codes", pa.list_(pa.int64()))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("text", pa.string_view()),
        ("place", PLACE),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("price", pa.float32()),
        ("nothing", pa.null()),
        ("note", pa.large_string()),
    ]
)


def source_row(n: int) -> dict[str, Any]:
    return {
        "id": None if n % 97 == 0 else n,
        "kind": ["update", "delete", "add", None][n % 4],
        "text": None if n % 5 == 0 else f"{n:0>400}",
        "place": None if n % 7 == 0 else {"city": f"city {n}", "codes": None if n % 3 == 0 else [n, None, n + 1]},
        "tags": None if n % 11 == 0 else [(f"tag {n}", n), ("other", None)],
        "price": n / 4,
        "nothing": None,
        "note": f"note {n}",
    }


def batches(rows: int = ROWS, at_once: int = 500) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, at_once):
        yield pa.RecordBatch.from_pylist([source_row(n) for n in range(first, first + at_once)], SCHEMA)


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def target(uri: str, properties: dict[str, str] | None) -> Table:
    old = [{**source_row(n), "text": "old", "kind": "old", "id": n} for n in range(ROWS // 2, ROWS * 3 // 2)]
    schema = pa.schema([field for field in SCHEMA if field.name not in ("nothing", "note")])
    deltic.write(uri, pa.Table.from_pylist(old, schema), properties=properties)
    return Table(uri)


def merged(
    uri: str, source: object, properties: dict[str, str] | None, spilled: Path | None = None
) -> tuple[Any, dict[str, int]]:
    """The rows and metrics after a merge. With `spilled` the source is spilled to that folder."""
    options = {} if spilled is None else {"memory_limit": "1 MB"}
    table = target(uri, properties)
    merge = (
        table.merge(source, "source.id = target.id", **options)
        .when_matched_delete("source.kind = 'delete'")
        .when_matched_update({"price": "source.price + 1", "text": "source.text"}, "source.kind = 'add'")
        .when_matched_update_all()
        .when_not_matched_insert({"id": "id", "text": "source.text", "note": "source.note"}, "kind = 'update'")
        .when_not_matched_insert_all("kind IS NOT NULL")
        .when_not_matched_by_source_update({"text": "'gone'"}, "target.id < 7000")
        .when_not_matched_by_source_delete()
        .with_schema_evolution()
    )
    preview = merge.preview()
    assert spilled is None or open_files(spilled) == 1
    metrics = merge.execute().metrics
    assert preview.rows_inserted == metrics["numTargetRowsInserted"] > 0
    assert table.check(files=True).ok
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: json.dumps(row, default=str))
    return rows, {name: n for name, n in metrics.items() if name.startswith(("numTargetRows", "numSourceRows"))}


@pytest.mark.slow
@pytest.mark.parametrize("properties", [None, {"delta.enableDeletionVectors": "true"}], ids=["copies", "vectors"])
def test_a_spilled_source_has_the_same_result(uri: str, temporary: Path, properties: dict[str, str] | None) -> None:
    expected = merged(f"{uri}-0", reader().read_all(), properties)
    assert open_files(temporary) == 0
    held = merged(f"{uri}-1", reader(), properties)
    assert held == expected
    spilled = merged(f"{uri}-2", reader(), properties, temporary)
    assert spilled == expected
    assert spilled[1]["numSourceRows"] == ROWS
    assert all(n > 0 for name, n in spilled[1].items() if not name.endswith("Copied"))
    # The same for a source whose columns are cast.
    assert merged(f"{uri}-3", reader().read_all(), properties, temporary) == expected
    assert open_files(temporary) == 0
    assert list(temporary.iterdir()) == []


def test_variants_keep_their_type(uri: str, temporary: Path) -> None:
    variants = f"{uri}-variants"
    parts = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", parts, metadata={"delta.type": "variant"})])
    deltic.create(variants, schema)
    values = pa.table({"id": range(4_000), "v": [json.dumps({"n": n, "s": "x" * 500}) for n in range(4_000)]})
    deltic.write(variants, values)
    deltic.create(uri, schema)
    deltic.write(uri, values.slice(0, 10).set_column(1, "v", [["{}"] * 10]))
    rows = Table(variants).scan()
    Table(uri).merge(
        rows, "source.id = target.id", memory_limit="1 MB"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert list(temporary.iterdir()) == []
    assert Table(uri).scan().to_arrow().sort_by("id").equals(Table(variants).scan().to_arrow().sort_by("id"))
    assert Table(uri).snapshot().schema == Table(variants).snapshot().schema


def test_rows_are_named_by_their_number(uri: str) -> None:
    deltic.write(uri, pa.table({"t": pa.array([0], pa.timestamp("us", "UTC"))}))
    schema = pa.schema([("t", pa.timestamp("ns", "UTC"))])
    times = [0] * 300_000
    times[250_000] = 1
    source = pa.RecordBatchReader.from_batches(schema, pa.table([times], schema=schema).to_batches(10_000))
    merge = Table(uri).merge(source, "source.t = target.t", memory_limit="1 MB").when_matched_delete()
    with pytest.raises(InvalidInputError, match=r"the source: .*row 250000 "):
        merge.execute()


def test_a_table_of_pyarrow_is_not_copied(uri: str, temporary: Path) -> None:
    deltic.write(uri, pa.table({"id": [1], "s": ["old"]}))
    rows = pa.table({"id": range(10_000), "s": ["x" * 1_000] * 10_000})
    temporary.rmdir()
    merge = Table(uri).merge(rows, "source.id = target.id", memory_limit="1 MB").when_matched_update_all()
    assert merge.execute().metrics["numTargetRowsUpdated"] == 1


@LINUX
@pytest.mark.parametrize(
    "interrupt", [RuntimeError("the source is gone"), KeyboardInterrupt()], ids=["error", "ctrl-c"]
)
def test_a_source_that_fails_leaves_nothing(uri: str, temporary: Path, interrupt: BaseException) -> None:
    def fails() -> Iterator[pa.RecordBatch]:
        yield from batches()
        # The file is unlinked, so that a killed process leaves nothing.
        assert (open_files(temporary), list(temporary.iterdir())) == (1, [])
        raise interrupt

    table = target(uri, None)
    merge = table.merge(
        pa.RecordBatchReader.from_batches(SCHEMA, fails()), "source.id = target.id", memory_limit="1 MB"
    )
    with pytest.raises(type(interrupt)):
        merge.when_matched_update_all().execute()
    # A second run would merge only the rest of the source.
    with pytest.raises(InvalidInputError, match="read in part"):
        merge.execute()
    assert table.snapshot().version == 0
    assert open_files(temporary) == 0
    assert list(temporary.iterdir()) == []


def test_a_missing_temporary_folder_is_an_error(uri: str, temporary: Path) -> None:
    table = target(uri, None)
    temporary.rmdir()
    merge = table.merge(reader(), "source.id = target.id", memory_limit="1 MB").when_matched_update_all()
    with pytest.raises(StorageError, match="TMPDIR") as raised:
        merge.execute()
    assert str(temporary) in str(raised.value)
    assert not raised.value.retryable
    temporary.mkdir()
    with pytest.raises(InvalidInputError, match="read in part"):
        merge.execute()
    assert table.snapshot().version == 0


ONCE = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))])


def some_times(odd: int) -> list[pa.RecordBatch]:
    """Rows in two batches. With `odd` nanoseconds their times are not whole microseconds."""
    return [
        pa.record_batch(
            [pa.array([first], pa.int64()), pa.array([first * 1_000 + odd], pa.timestamp("ns"))], schema=ONCE
        )
        for first in (0, 1)
    ]


@pytest.mark.parametrize("makes", ["reader", "generator", "table", "list"])
def test_a_refused_source_is_not_merged_partly(uri: str, makes: str) -> None:
    deltic.write(uri, pa.table({"id": [0, 1, 2], "at": pa.array([1, 2, 3], pa.timestamp("us"))}))
    rows = some_times(1)
    source = {
        "reader": lambda: pa.RecordBatchReader.from_batches(ONCE, rows),
        "generator": lambda: iter(rows),
        "table": lambda: pa.Table.from_batches(rows),
        "list": lambda: rows,
    }[makes]()
    merge = Table(uri).merge(source, "source.id = target.id").when_not_matched_by_source_delete()
    with pytest.raises(InvalidInputError, match="`at`"):
        merge.preview()
    with pytest.raises(InvalidInputError, match="`at`" if makes in ("table", "list") else "read in part"):
        merge.execute()
    assert Table(uri).scan().count() == 3


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (pa.record_batch({"id": [1], "v": ["x"], "w": [2]}), "3 columns"),
        (pa.record_batch({"id": [1]}), "1 columns"),
        (pa.record_batch({"id": [1], "v": [1.5]}), "announced"),
        (pa.record_batch({"id": [1], "u": ["x"]}), "announced `v`"),
    ],
    ids=["more", "fewer", "type", "name"],
)
def test_batches_with_another_schema_are_refused(uri: str, batch: pa.RecordBatch, says: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "v": ["old"]}))
    first = pa.record_batch({"id": [5], "v": ["new"]})
    source = pa.RecordBatchReader.from_batches(first.schema, iter([first, batch]))
    with pytest.raises(InvalidInputError, match=says):
        Table(uri).merge(source, "source.id = target.id").when_not_matched_insert_all().execute()
    assert Table(uri).scan().count() == 1


FULL = """
import resource, sys
import pyarrow as pa
import deltic
sys.path[:0] = sys.argv[2:]
from test_merge_memory import SCHEMA, batches, reader, target
table = target(sys.argv[1], None)
# What the system says of a file that is too long: data files are not.
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
try:
    table.merge(reader(), "source.id = target.id", memory_limit="1 MB").when_not_matched_insert_all().execute()
except deltic.StorageError as error:
    print(error)
"""


@pytest.mark.slow
@LINUX
def test_a_full_disk_is_an_error(uri: str, temporary: Path) -> None:
    done = run(FULL, uri, str(Path(__file__).parent), str(Path(__file__).parents[1]))
    assert "TMPDIR" in done
    assert "File too large" in done
    assert str(temporary) in done
    assert Table(uri).snapshot().version == 0
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("limit", ["1 MB", None])
def test_limits_are_checked(uri: str, limit: str | None) -> None:
    table = target(uri, None)
    with pytest.raises(InvalidInputError, match="memory_limit must be at least 1 MB"):
        table.merge(reader(), "source.id = target.id", memory_limit=1000).when_matched_delete().execute()
    with pytest.raises(InvalidInputError, match="memory_limit must be"):
        table.merge(reader(), "source.id = target.id", memory_limit="much")
    with table.transaction() as tx:
        done = tx.merge(reader(), "source.id = target.id", memory_limit=limit).when_matched_delete().execute()
        assert done["numTargetRowsDeleted"] > 0


# Each measurement runs in its own process, since the peak is that of the process. Cached pages of files do not count.
WATCH = """
import sys, threading, time
import pyarrow as pa
import deltic

uri, limit = sys.argv[1], sys.argv[2]
MiB = 1 << 20

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

def watch():
    global most
    while not done:
        most = max(most, anonymous())
        time.sleep(0.002)
"""

PEAK = (
    WATCH
    + """
KIND = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("id", pa.int64()), ("kind", KIND), ("s", pa.list_(pa.string_view()))])

def batches():
    for first in range(0, 40_000, 400):
        kind = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["k" * 4_000])
        text = pa.array([[f"{n:0>4000}"] for n in range(first, first + 400)], SCHEMA.field("s").type)
        yield pa.record_batch([range(first, first + 400), kind, text], schema=SCHEMA)

table = deltic.Table(uri)
deltic.write(uri, pa.table({"id": range(0, 40_000, 2)}))
before = most = anonymous()
done = False
watcher = threading.Thread(target=watch)
watcher.start()
merge = table.merge(pa.RecordBatchReader.from_batches(SCHEMA, batches()), "source.id = target.id", memory_limit=limit)
merge.when_matched_update_all().when_not_matched_insert_all().with_schema_evolution().execute()
done = True
watcher.join()
print((most - before) // MiB)
"""
)

# Four million rows are updated: by an UPDATE, by a MERGE without source rows, or by one in which a single row of the
# source matches all.
MANY_TARGET_ROWS = (
    WATCH
    + """
table = deltic.Table(uri)
deltic.write(uri, pa.table({"id": pa.array(range(4_000_000), pa.int64())}))
none, one = (pa.table({"id": pa.array(ids, pa.int64())}) for ids in ([], [0]))
before = most = anonymous()
done = False
watcher = threading.Thread(target=watch)
watcher.start()
if limit == "update":
    done = table.update({"id": "id + 1"})
elif limit == "no source row":
    merge = table.merge(none, "source.id = target.id")
    done = merge.when_not_matched_by_source_update({"id": "target.id + 1"}).execute()
else:
    merge = table.merge(one, "target.id >= source.id")
    done = merge.when_matched_update({"id": "target.id + 1"}).execute()
watcher.join()
print((most - before) // MiB)
"""
)


@LINUX
@pytest.mark.slow
def test_memory_is_bounded(uri: str) -> None:
    """A source of 320 MB: an update assigns its strings to 20,000 small rows, and an insert adds more rows."""
    held, spilled = int(run(PEAK, f"{uri}-0", "1 GB")), int(run(PEAK, f"{uri}-1", "1 MB"))
    assert held > 300
    assert spilled < 200, f"{spilled} MiB, and {held} MiB without a limit"


@LINUX
@pytest.mark.slow
def test_updated_rows_take_few_bytes(uri: str) -> None:
    """Positions are in bitmaps, and rows of the source in 12 bytes (while rows are found, up to twice that)."""
    ways = ("update", "no source row", "one source row")
    update, none, one = (int(run(MANY_TARGET_ROWS, f"{uri}-{at}", way)) for at, way in enumerate(ways))
    assert none < update + 80, f"{none} MiB, and {update} MiB for an update"
    assert one < update + 200, f"{one} MiB, and {update} MiB for an update"


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
