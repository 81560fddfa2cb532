"""Random histories of a table: after each step every client must read the rows of a model.

Each step is executed by one client, chosen at random, and in the model. The seed determines the steps. A failure names
the seed and all steps.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from delta_spark import check_checksum
from history_model import (
    CHANGED,
    IDENTITY,
    PARTS,
    WIDER,
    Assignment,
    Both,
    Clause,
    Column,
    Condition,
    Is,
    Path,
    Row,
    State,
    Type,
    arrow_schema,
    counted,
    difference,
    feed,
    first_columns,
    holds,
    named,
    net,
    plain,
    quoted,
    some_assignments,
    some_condition,
    some_value,
    sql,
    sql_path,
    walk,
)
from history_writers import DeltaRs, Deltic, Spark
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import deltic

IDS = ("n", "_metadata.row_id", "_metadata.row_commit_version")
FEED = ("_commit_version", "_commit_timestamp")
TURNS, LOOKS = 0.4, 0.5
"""Probabilities that delta-spark executes a step, and that it checks the table after one."""
MAPPING = "delta.columnMapping.mode"
FLAGS = ("enableDeletionVectors", "enableChangeDataFeed", "enableRowTracking", "enableTypeWidening")


def is_wider(type: str, than: str) -> bool:
    return than in WIDER and (WIDER[than] == type or is_wider(type, WIDER[than]))


@dataclass
class History:
    """A table, its model, the steps, and the checks after each step."""

    spark: SparkSession | None
    """None for a history without delta-spark."""
    folder: str
    seed: int
    others: dict[str, Callable[[str], pa.Table | None]]
    """Other readers, which return None for a table that they do not support."""
    steps: list[str] = field(default_factory=list)
    past: dict[int, State] = field(default_factory=dict)
    """The expected state of each version that must be readable."""
    feeds: dict[int, Counter[Any]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    compared: Counter[str] = field(default_factory=Counter)
    fresh: int = 0
    greatest: int = -1
    within: Deltic | None = None
    """The writer of the open transaction, if one is open."""
    is_shallow: bool = False
    """Whether the table may refer to files of another table."""

    def run(self, count: int) -> None:
        """Create the table and take `count` steps; a failure names the seed and all steps."""
        try:
            self.create()
            self.walk(count)
        except Exception as error:
            steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps))
            context = f"seed {self.seed}, the table at {self.uri}, {self.state.properties}, after\n{steps}"
            raise AssertionError(f"{str(error)[:4000]}\n{context}") from error

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.uri = f"{self.folder}/table-{self.seed}"
        self.state = State(first_columns())
        self.partitions: list[str] = []
        self.clusters: list[str] = []

    def create(self) -> None:
        """Create an empty table with random features."""
        rng = self.rng
        mapping = rng.choice(["none", "none", "name", "id"])
        properties = {f"delta.{name}": rng.choice(["true", "false"]) for name in FLAGS}
        properties |= {MAPPING: mapping, "delta.checkpointInterval": str(rng.randrange(2, 9))}
        if rng.random() < 0.4:
            properties["delta.enableInCommitTimestamps"] = "true"
        if rng.random() < 0.4:
            properties["delta.checkpointPolicy"] = "v2"
        if rng.random() < 0.2:
            # Without features, so that delta-rs can write the table too.
            properties = {MAPPING: "none", "delta.checkpointInterval": "3"}
        if rng.random() < 0.3:
            properties["delta.dataSkippingNumIndexedCols"] = "12"
        self.partitions = rng.choice([[], [], ["p"], ["p", "q"], ["day"]])
        self.clusters = (
            rng.choice([["k"], ["n", "e"], ["d", "s.x"]]) if not self.partitions and rng.random() < 0.4 else []
        )
        self.state.properties = properties
        self.done(self.writer("create").create, self.partitions, self.clusters)
        self.settle(self.state.copy(), "schema")

    def deltic(self, verb: str) -> Deltic:
        self.steps.append(f"deltic: {verb}")
        return Deltic(self.uri, self.state, self.rng)

    def writer(self, verb: str) -> Any:
        """A random writer that supports the verb."""
        if self.within is not None:
            self.steps.append(f"  {verb}")
            return self.within
        takes = verb in DeltaRs.VERBS and not self.is_shallow and self.rng.random() < 0.25
        if takes and DeltaRs.writes(self.uri):
            self.steps.append(f"delta-rs: {verb}")
            return DeltaRs(self.uri)
        if self.spark is None or self.rng.random() >= TURNS:
            return self.deltic(verb)
        self.steps.append(f"delta-spark: {verb}")
        return Spark(self.spark, self.uri, self.state)

    def done(self, step: Callable[..., None], *arguments: Any) -> None:
        shown = [f"{one.num_rows} rows" if isinstance(one, pa.Table) else repr(one) for one in arguments]
        self.steps[-1] += f" {', '.join(shown)}"
        step(*arguments)

    def walk(self, count: int) -> None:
        """Take `count` random steps."""
        verbs = {
            self.append: 4,
            self.overwrite: 1,
            self.overwrite_partitions: 2 if self.partitions else 0,
            self.replace_where: 2,
            self.delete: 4,
            self.update: 4,
            self.merge: 5,
            self.optimize: 3,
            self.purge: 1,
            self.forget: 1,
            self.transaction: 2,
            self.compact_log: 1,
            self.restore: 3,
            self.vacuum: 2,
            self.clone: 1,
            self.add_column: 1,
            self.evolve: 1,
            self.rename: 1,
            self.drop: 1,
            self.widen: 1,
            self.set_properties: 2,
            self.checkpoint: 1,
        }
        self.take(self.append)
        for _ in range(count - 1):
            self.take(*self.rng.choices(list(verbs), list(verbs.values())))
        self.settle(self.state.copy(), "schema", last=True)

    def take(self, verb: Callable[[], str | None]) -> None:
        before = self.state.copy()
        kind = verb()
        if kind is not None:
            self.settle(before, kind)

    # The steps. Each returns how to check its change data feed: "rows" (each change), "net" (the sum of changes), or
    # "schema" (not at all). None means that the step was not possible.

    def rows(self, count: int, columns: list[Column] | None = None, **values: Callable[[], Any]) -> list[Row]:
        made = []
        for _ in range(count):
            self.fresh += 1
            row = {one.key: some_value(self.rng, one.type) for one in columns or self.state.columns}
            row |= {IDENTITY: self.fresh, CHANGED: None, "n": self.fresh, "p": self.rng.choice([*PARTS, None])}
            made.append({**row, **{name: value() for name, value in values.items()}})
        return made

    def append(self) -> str:
        rows = self.rows(self.rng.randrange(1, 15))
        self.done(self.writer("append").append, self.state.table(rows))
        self.state.rows += rows
        return "rows"

    def overwrite(self) -> str:
        rows = self.rows(self.rng.randrange(5, 15))
        self.done(self.writer("overwrite").overwrite, self.state.table(rows))
        self.state.rows = rows
        return "rows"

    def overwrite_partitions(self) -> str:
        rows = self.rows(self.rng.randrange(1, 4))
        keys = [self.key(row) for row in rows]
        self.done(self.writer("dynamic").overwrite_partitions, self.state.table(rows))
        self.state.keep(lambda row: self.key(row) not in keys)
        self.state.rows += rows
        return "rows"

    def key(self, row: Row) -> tuple[Any, ...]:
        # A date of a row from before its column was widened is the midnight that it is read as.
        types = {one.key: named(one.type, row[one.key]) for one in self.state.columns if one.key in self.partitions}
        return tuple(types[name] for name in self.partitions)

    def replace_where(self) -> str:
        """The new rows match the condition: they are in the replaced range of `n`, or in the replaced partition."""
        if self.rng.random() < 0.5:
            start = self.rng.randrange(self.fresh + 1)
            condition: Condition = Both("AND", Is(("n",), ">=", start), Is(("n",), "<", start + 8))
            numbers = self.rng.sample(range(start, start + 8), 8)
            rows = self.rows(self.rng.randrange(6), n=numbers.pop)
            self.fresh = max(self.fresh, start + 8)
        else:
            part = self.rng.choice(PARTS)
            condition = Is(("p",), "=", part)
            rows = self.rows(self.rng.randrange(6), p=lambda: part)
        text = sql(condition, self.state.columns)
        self.done(self.writer("replace_where").replace_where, self.state.table(rows), text)
        self.state.keep(lambda row: holds(condition, row) is not True)
        self.state.rows += rows
        return "rows"

    def condition(self) -> Condition:
        return some_condition(self.rng, self.state.rows, self.state.columns)

    def delete(self) -> str:
        writer, condition = self.writer("delete"), self.condition()
        if isinstance(writer, DeltaRs):
            # delta-rs compares NaN and -0.0 differently.
            condition = Is(("n",), "IN", tuple(row["n"] for row in self.state.rows[::4]) or (0,))
        self.done(writer.delete, sql(condition, self.state.columns))
        self.state.keep(lambda row: holds(condition, row) is not True)
        return "rows"

    def update(self) -> str:
        condition, changes = self.condition(), some_assignments(self.rng, self.state.columns)
        self.done(self.writer("update").update, changes, sql(condition, self.state.columns))
        self.state.update(condition, changes)
        return "rows"

    def merge(self) -> str:
        """Source rows that match except for the extra condition are not inserted, so that `n` stays unique."""
        rng, columns = self.rng, self.state.columns
        extra = self.condition() if rng.random() < 0.3 else None
        inserts = extra is None or rng.random() < 0.5
        choices = [row for row in self.state.rows if extra is None or not inserts or holds(extra, row) is True]
        some = rng.sample(choices, min(len(choices), rng.randrange(8)))
        numbers = [row["n"] for row in some]
        rows = [*self.rows(len(some), n=lambda: numbers.pop()), *self.rows(rng.randrange(4))]
        clauses: list[Clause] = []
        for when in ("MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"):
            if when == "NOT MATCHED" and not inserts:
                continue
            if rng.random() < 0.7 or not clauses:
                conditions = [self.condition() for _ in range(rng.randrange(3))]
                clauses += [self.clause(when, condition) for condition in conditions]
                clauses += [self.clause(when, None)] if when != "NOT MATCHED BY SOURCE" or not conditions else []
        left, right = (sql_path(columns, ("n",), alias) for alias in ("tgt", "src"))
        on = f"{left} = {right}" + (f" AND {sql(extra, columns, 'tgt')}" if extra is not None else "")
        self.done(self.writer("merge").merge, self.state.table(rows), on, tuple(clauses))
        self.state.merge(rows, extra, clauses)
        return "rows"

    def clause(self, when: str, condition: Condition | None) -> Clause:
        rng = self.rng
        if when == "NOT MATCHED":
            return Clause(when, condition, True)
        all_columns: list[tuple[Assignment, ...] | None] = [None] if when == "MATCHED" else []
        some = tuple(some_assignments(rng, self.state.columns))
        changes = rng.choice([*all_columns, some, ()])
        return Clause(when, condition, when == "MATCHED" and rng.random() < 0.5, changes)

    def optimize(self) -> str:
        full = bool(self.clusters) and self.rng.random() < 0.3
        keys = {one.key for one in self.state.columns}
        by = [key for key in self.rng.choice([[], ["k"], ["n", "e"], ["d", "text"]]) if key in keys]
        where = None
        if "p" in self.partitions and self.rng.random() < 0.4:
            where = sql(Is(("p",), "=", self.rng.choice(PARTS)), self.state.columns)
        self.done(self.writer("optimize").optimize, [] if self.clusters else by, full, where)
        return "rows"

    def transaction(self) -> str:
        """Several steps in one transaction of deltic. Each step sees the results of those before."""
        self.within = self.deltic("transaction")
        try:
            with deltic.Table(self.uri).transaction() as tx:
                self.within.open = tx
                verbs = self.rng.choices([self.append, self.delete, self.update, self.merge], k=3)
                if self.state.on("enableChangeDataFeed"):
                    # With a change data feed a transaction may change a row only once.
                    verbs = [self.rng.choice([self.delete, self.update, self.merge]), self.append]
                for verb in verbs:
                    verb()
                    self.same("deltic's transaction", counted(tx.scan().to_arrow().to_pylist()), self.state.counted())
        finally:
            self.within = None
        return "net"

    def forget(self) -> str:
        condition = self.condition()
        self.done(self.deltic("purge with a condition").forget, sql(condition, self.state.columns))
        self.state.keep(lambda row: holds(condition, row) is not True)
        return "rows"

    def compact_log(self) -> str | None:
        newest = max(self.past)
        if newest < 2:
            return None
        start = self.rng.randrange(max(newest - 5, 0), newest)
        self.done(self.deltic("compact the log").compact_log, start, self.rng.randrange(start + 1, newest + 1))
        return "schema"

    def purge(self) -> str:
        self.done(self.writer("purge").purge)
        return "rows"

    def restore(self) -> str | None:
        newest = max(self.past)
        choices = [
            version
            for version, state in self.past.items()
            if version < newest and (self.spark is None or state.properties[MAPPING] == self.state.properties[MAPPING])
        ]
        if not choices:
            return None
        version = self.rng.choice(choices)
        then = self.past[version]
        # Rows that were not tracked in between have got other ids since, and a file cannot have two.
        later, tracking = [state for number, state in self.past.items() if number > version], "enableRowTracking"
        tracked_again = then.on(tracking) and not all(state.on(tracking) for state in later)
        try:
            self.done(self.writer("restore").restore, version)
        except deltic.InvalidInputError as error:
            if not tracked_again or "have other ids now" not in str(error):
                raise
            return None
        widened = {path for path, _ in self.types().items() - self.types(then).items()} & self.types(then).keys()
        # The feed cannot be compared in two cases: removed rows are in files of wider types than the restored schema,
        # which no client can read; or a dropped column is restored, and the feed has its values from the files.
        comes_back = set(self.paths(then.columns)) - set(self.paths())
        self.state = then.copy()
        return "schema" if widened or comes_back else "net"

    def vacuum(self) -> str | None:
        kept, newest = self.rng.choice(sorted(self.times)), max(self.past)
        seconds, lite = time.time() - self.times[kept] + 2, self.rng.random() < 0.3
        writer = self.writer(f"vacuum to {kept}")
        if isinstance(writer, Spark):
            # delta-spark rounds the retention to whole hours, here to none.
            seconds = 0.0
        self.done(writer.vacuum, seconds, lite)
        # Not before the writer's cutoff, which it computed earlier.
        cutoff = time.time() - seconds
        for version in [one for one, at in self.times.items() if at < cutoff and one != newest]:
            del self.past[version], self.times[version]
        for version in [one for one in self.feeds if one <= min(self.past)]:
            del self.feeds[version]
        return "schema"

    def clone(self) -> str:
        """The history continues in the clone; the source stays."""
        target = f"{self.folder}/clone-{len(self.steps)}"
        writer = self.writer("clone") if self.is_cloned_by_spark() else self.deltic("clone")
        shallow = isinstance(writer, Spark) or self.rng.random() < 0.5
        self.done(writer.clone, target, shallow)
        self.uri, self.is_shallow = target, shallow or self.is_shallow
        self.past, self.feeds, self.times = {}, {}, {}
        if isinstance(writer, Spark):
            # delta-spark assigns new row ids in a clone.
            self.state.ids, self.greatest = {}, -1
        return "schema"

    def is_cloned_by_spark(self) -> bool:
        """Whether delta-spark clones the table: it refuses deletion vectors where the property forbids new ones."""
        has_vectors = "deletionVectors" in deltic.Table(self.uri).detail().table_features
        return self.state.on("enableDeletionVectors") or not has_vectors

    def nested(self, path: Path) -> str:
        return sql_path(self.state.columns, path)

    def add_column(self) -> str:
        rng, key = self.rng, f"c{len(self.steps)}"
        type: Type = rng.choice(["int", "string", "double", "float", "date"])
        above = rng.choice([(), (), ("s",)])
        above = above if "s" in {one.key for one in self.state.columns} else ()
        path = ".".join([*(quoted(one.name) for one in walk(self.state.columns, above)), quoted(key)])
        self.done(self.writer("add column").add_column, path, type)
        self.state.edit((*above, key), lambda columns: [*columns, Column(key, key, type)])
        return "schema"

    def evolve(self) -> str:
        """Append rows with a new column."""
        key = f"c{len(self.steps)}"
        columns = [*self.state.columns, Column(key, key, self.rng.choice(["int", "string", "double"]))]
        rows = self.rows(self.rng.randrange(1, 9), columns)
        writer = self.writer("append with a new column")
        self.state.columns = columns
        self.done(writer.append, self.state.table(rows), True)
        self.state.rows += rows
        return "schema"

    def paths(self, columns: list[Column] | None = None) -> list[Path]:
        columns = columns or self.state.columns
        found: list[Path] = [(one.key,) for one in columns]
        for one in columns:
            if isinstance(one.type, tuple):
                found += [(one.key, inner.key) for inner in one.type]
        return found

    def types(self, state: State | None = None) -> dict[Path, str]:
        columns = (state or self.state).columns
        leaves = {path: walk(columns, path)[-1].type for path in self.paths(columns)}
        return {path: type for path, type in leaves.items() if isinstance(type, str)}

    def rename(self) -> str | None:
        if self.state.properties[MAPPING] == "none":
            return None
        path, name = self.rng.choice(self.paths()), f"ö {len(self.steps)}"
        self.done(self.writer("rename").rename, self.nested(path), name)
        self.state.edit(
            path, lambda columns: [replace(one, name=name) if one.key == path[-1] else one for one in columns]
        )
        return "schema"

    def drop(self) -> str | None:
        kept = {"n", "p", "q", "k", "e", "s", *self.partitions, *self.clusters}
        kept |= {"d"} if "d" in self.clusters else set()
        choices = [path for path in self.paths() if path[-1] not in kept and path != ("s", "x")]
        if self.state.properties[MAPPING] == "none" or not choices:
            return None
        path = self.rng.choice(choices)
        self.done(self.writer("drop").drop, self.nested(path))
        self.state.drop(path)
        return "schema"

    def widen(self) -> str | None:
        choices = [path for path in self.paths() if walk(self.state.columns, path)[-1].type in WIDER]
        if not self.state.on("enableTypeWidening") or not choices:
            return None
        path = self.rng.choice(choices)
        type = WIDER[str(walk(self.state.columns, path)[-1].type)]
        self.done(self.writer("widen").widen, self.nested(path), type)
        self.state.edit(
            path, lambda columns: [replace(one, type=type) if one.key == path[-1] else one for one in columns]
        )
        return "schema"

    def set_properties(self) -> str:
        on = self.state.on
        choices = [
            {"delta.enableDeletionVectors": str(not on("enableDeletionVectors")).lower()},
            {"delta.enableChangeDataFeed": str(not on("enableChangeDataFeed")).lower()},
            {"delta.enableRowTracking": "true"},
            {"delta.enableTypeWidening": "true"},
            {"delta.enableInCommitTimestamps": "true"},
            {"delta.checkpointPolicy": self.rng.choice(["v2", "classic"])},
        ]
        if self.state.properties[MAPPING] == "none":
            choices.append({MAPPING: "name"})
        chosen = self.rng.choice(choices)
        if "delta.enableRowTracking" in chosen and not on("enableRowTracking"):
            self.state.ids = {}
        self.done(self.writer("set").properties, dict(chosen))
        self.state.properties |= chosen
        return "schema"

    def checkpoint(self) -> str:
        self.done(self.writer("checkpoint").checkpoint)
        return "schema"

    # The checks after a step.

    def settle(self, before: State, kind: str, last: bool = False) -> None:
        """Check the table after a step, and remember the version. delta-spark checks about every other step."""
        state, table = self.state, deltic.Table(self.uri)
        looks = last or self.rng.random() < LOOKS
        spark = Spark(self.spark, self.uri, state) if self.spark is not None and looks else None
        changes = difference(before, state) if kind == "net" else feed(before, state)
        snapshot = table.snapshot()
        state.commit(snapshot.version)
        self.same("deltic's rows", counted(snapshot.scan().to_arrow().to_pylist()), state.counted())
        wanted = from_arrow_schema(arrow_schema(state.columns)).simpleString()
        assert from_arrow_schema(snapshot.schema).simpleString() == wanted
        found = table.check(files=True)
        assert found.ok, found
        condition = self.condition()
        filtered = snapshot.scan(filter=sql(condition, state.columns)).to_arrow().to_pylist()
        rows = counted(plain(row, state.columns) for row in state.rows if holds(condition, row) is True)
        self.same(f"rows of {sql(condition, state.columns)}", counted(filtered), rows)
        for name, read in self.others.items():
            theirs = None if name in self.unable() else read(self.uri)
            if theirs is not None:
                self.same(f"{name}'s rows", counted(theirs.to_pylist()), state.counted())
        if before.on("enableChangeDataFeed") and state.on("enableChangeDataFeed") and kind != "schema":
            self.check_feed(spark, max(self.past, default=-1) + 1, snapshot.version, changes, kind)
        if state.on("enableRowTracking"):
            self.check_ids(table)
        if spark is not None:
            self.check_spark(spark, wanted)
        self.look_back(table, spark)
        self.past[snapshot.version], self.times[snapshot.version] = state.copy(), time.time()

    def unable(self) -> set[str]:
        """Readers with known bugs for this table.

        DuckDB 1.5.5 reads partition values of mapped columns as nulls, and takes absolute paths for relative ones.
        """
        mapped = bool(self.partitions) and self.state.properties[MAPPING] != "none"
        return {"DuckDB"} if mapped or self.is_shallow else set()

    def same(self, what: str, found: Counter[Any], wanted: Counter[Any]) -> None:
        self.compared[what.split("'")[0] if "'s " in what else "filters"] += 1
        more, less = list((found - wanted).items()), list((wanted - found).items())
        assert found == wanted, f"{what}: too many {more[:4]}\nmissing {less[:4]}"

    def check_spark(self, spark: Spark, schema: str) -> None:
        """Check that delta-spark reads the same columns, rows and row ids, and accepts the checksum."""
        state, frame = self.state, spark.read()
        assert frame.schema.simpleString() == schema
        tracks = state.on("enableRowTracking")
        ids = [f"{name} AS `{name}`" for name in IDS[1:]] if tracks else []
        found = frame.selectExpr("*", *ids).toArrow().to_pylist()
        wanted = [plain(row, state.columns) for row in state.rows]
        if tracks:
            wanted = [
                {**one, IDS[1]: state.ids[row[IDENTITY]], IDS[2]: row[CHANGED]}
                for one, row in zip(wanted, state.rows, strict=True)
            ]
        self.same("delta-spark's rows", counted(found), counted(wanted))
        check_checksum(spark.spark, self.uri, needed=False)

    def check_feed(self, spark: Spark | None, start: int, end: int, changes: Counter[Any], kind: str) -> None:
        if start > end:
            assert not changes
            return
        options = {"readChangeFeed": "true", "startingVersion": start, "endingVersion": end}
        read = {"deltic": deltic.Table(self.uri).changes(start, end).to_arrow()}
        if spark is not None:
            read["delta-spark"] = spark.read(**options).toArrow()
        for name, table in read.items():
            found = counted(table.drop_columns(list(FEED)).to_pylist())
            if kind == "net":
                self.same(f"{name}'s changes", net(found), changes)
            else:
                self.same(f"{name}'s changes", found, changes)
            if start == end:
                self.feeds[end] = found

    def check_ids(self, table: deltic.Table) -> None:
        """Check that row ids are stable and unique, and that commit versions are those of each row's last change."""
        state = self.state
        name = state.column("n").name
        rows = table.scan([name, *IDS[1:]]).to_arrow().to_pylist()
        found = {row[name]: (row[IDS[1]], row[IDS[2]]) for row in rows}
        assert len({row_id for row_id, _ in found.values()}) == len(found) == len(state.rows), found
        learns, cloned = not state.ids, not self.past
        for at, row in enumerate(state.rows):
            row_id, changed = found[row["n"]]
            known = state.ids.get(row[IDENTITY])
            if learns:
                state.rows[at] = {**row, CHANGED: changed}
            elif known is None:
                assert row_id > self.greatest, f"new row {row['n']} has the id {row_id}, which was assigned before"
            else:
                assert row_id == known, f"row {row['n']} had the id {known} and has {row_id}"
            if cloned and changed == 0:
                # Rows without a materialized commit version get the clone's first version.
                state.rows[at] = row = {**row, CHANGED: 0}
            assert learns or changed == row[CHANGED], f"row {row['n']} changed in {row[CHANGED]}, not {changed}"
        state.ids |= {row[IDENTITY]: found[row["n"]][0] for row in state.rows}
        self.greatest = max([self.greatest, *state.ids.values()])

    def check_diff(self, table: deltic.Table, version: int) -> None:
        """Check the diff of an older version and the newest, which does not use the feed."""
        before, after = self.past[version], self.state
        types = self.types(before)
        if any(is_wider(types[path], type) for path, type in self.types().items() if path in types):
            # After a restore to narrower types the diff is refused, since older values may not fit.
            return
        unmapped = before.properties[MAPPING] != "none" == after.properties[MAPPING]
        common = set(self.paths(before.columns)) & set(self.paths())
        names = [[walk(state.columns, path)[-1].name for path in common] for state in (before, after)]
        if unmapped and names[0] != names[1]:
            # Columns are identified by their names after column mapping was dropped, so renamed ones are null.
            return
        names = ["_change_type", *(one.name for one in after.columns)]
        found = counted(table.diff(version, rows=True).to_arrow().select(names).to_pylist())
        self.same(f"deltic's difference from {version}", net(found), difference(before, after))

    def look_back(self, table: deltic.Table, spark: Spark | None) -> None:
        """Check that an older version and its change data feed are unchanged."""
        if not self.past:
            return
        version = self.rng.choice(sorted(self.past))
        wanted = self.past[version].counted()
        rows = table.snapshot(version).scan().to_arrow().to_pylist()
        self.same(f"deltic's version {version}", counted(rows), wanted)
        if spark is not None and self.rng.random() < 0.5:
            rows = spark.read(versionAsOf=version).toArrow().to_pylist()
            self.same(f"delta-spark's version {version}", counted(rows), wanted)
        if self.rng.random() < 0.3:
            self.check_diff(table, version)
        if self.feeds:
            version = self.rng.choice(sorted(self.feeds))
            rows = table.changes(version, version).to_arrow().drop_columns(list(FEED)).to_pylist()
            self.same(f"deltic's changes of {version}", counted(rows), self.feeds[version])
