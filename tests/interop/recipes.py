"""Tables that delta-spark creates during the tests, one recipe for each kind of table.

A recipe is a function that runs SQL through a `Maker`. `@` stands for the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filters import quoted
from recording import ROW_TRACKING, Maker, Unsupported

COLUMNS = {
    "byte": ("TINYINT", "cast(pmod(id * 7, 256) - 128 as tinyint)"),
    "short": ("SMALLINT", "cast(id * 31 - 5000 as smallint)"),
    "int": ("INT", "if(id % 29 = 5, -2147483648, cast(id * 1000 as int))"),
    "long": ("BIGINT", "if(id % 31 = 3, 9223372036854775807, id * 1000000000007)"),
    "float": (
        "FLOAT",
        "case id % 23 when 1 then float('NaN') when 2 then float('-0.0') when 4 then float('-Infinity') "
        "when 5 then float(0) else cast(id as float) / 3 end",
    ),
    "double": (
        "DOUBLE",
        "case when id < 90 and id % 19 = 1 then double('NaN') when id % 19 = 2 then double('-0.0') "
        "when id % 19 = 3 then double('Infinity') when id % 19 = 4 then 5e-324 else id / 7e0 end",
    ),
    "small": ("DECIMAL(9,2)", "cast(id * 1.25 - 50 as decimal(9,2))"),
    "big": (
        "DECIMAL(38,10)",
        "if(id % 37 = 6, 9999999999999999999999999999.9999999999, cast(id * 12345678901.0000000001 as decimal(38,10)))",
    ),
    "flag": ("BOOLEAN", "id % 3 = 0"),
    "text": (
        "STRING",
        "case id % 13 when 0 then '' when 1 then concat('žluťoučký 🐎 ', id) "
        "when 2 then concat(repeat('long ', 10), id) when 3 then 'it\\'s \"so\" \\\\ 50%_!' "
        "when 4 then concat(repeat('\U0010ffff', 40), id) "
        "else concat('row ', id) end",
    ),
    "bytes": ("BINARY", "case id % 11 when 0 then X'' when 1 then X'FFFF' else cast(concat('b', id) as binary) end"),
    "day": (
        "DATE",
        "case id % 41 when 10 then DATE'0001-01-01' when 11 then DATE'9999-12-31' when 12 then DATE'1582-10-04' "
        "else date_add(DATE'2020-01-01', cast(id as int)) end",
    ),
    "at": (
        "TIMESTAMP",
        "case id % 43 when 20 then TIMESTAMP'0001-01-01 00:00:00' when 21 then TIMESTAMP'9999-12-31 23:59:59.999999' "
        "when 22 then TIMESTAMP'1969-12-31 23:59:59.999999' else timestamp_micros(1600000000000000 + id * 1000123) end",
    ),
    "ntz": ("TIMESTAMP_NTZ", "cast(timestamp_micros(1500000000000000 + id * 999999) as timestamp_ntz)"),
    "place": (
        "STRUCT<x: INT, deep: STRUCT<name: STRING, day: DATE>>",
        "named_struct('x', if(id % 6 = 0, null, cast(id as int)), 'deep', if(id % 5 = 0, null, "
        "named_struct('name', concat('n', id), 'day', date_add(DATE'2000-01-01', cast(id as int)))))",
    ),
    "list": ("ARRAY<INT>", "if(id % 4 = 0, array(), array(cast(id as int), null))"),
    "pairs": ("MAP<STRING, DOUBLE>", "map('a', id / 2e0, 'b', null)"),
}
"""Columns besides `id`: their type, and an expression over `id` for their values. One row in twelve is null."""


def ddl(*names: str) -> str:
    return ", ".join(["id BIGINT", *(f"{name} {COLUMNS[name][0]}" for name in names or COLUMNS)])


def select(start: int, end: int, *names: str, files: int = 2) -> str:
    """A query for the rows with ids from `start` to `end`, in `files` files."""
    values = [
        f"if(id % 12 = {place % 12}, null, {COLUMNS[name][1]}) AS {name}" for place, name in enumerate(names or COLUMNS)
    ]
    return f"SELECT {', '.join(['id', *values])} FROM range({start}, {end}, 1, {files})"


RECIPES: dict[str, Callable[[Maker], None]] = {}
"""All recipes by name."""


def recipe(build: Callable[[Maker], None]) -> Callable[[Maker], None]:
    RECIPES[build.__name__] = build
    return build


def grow(maker: Maker, count: int, *names: str, size: int = 30, start: int = 0, files: int = 2) -> None:
    """Append rows in `count` commits."""
    for begin in range(start, start + count * size, size):
        maker.run(f"INSERT INTO @ {select(begin, begin + size, *names, files=files)}")


def create(maker: Maker, columns: str, *properties: str, clause: str = "") -> None:
    """Create the table. Properties are given as `name=value`, without the prefix `delta.`."""
    pairs = [f"'delta.{name}' = '{value}'" for name, _, value in (text.partition("=") for text in properties)]
    wanted = f"TBLPROPERTIES ({', '.join(pairs)})" if pairs else ""
    maker.run(f"CREATE TABLE @ ({columns}) USING delta {clause} {wanted}")


@recipe
def checkpoints(maker: Maker) -> None:
    """Checkpoints of every kind, with commits between them that add files, remove files, or do neither."""
    kinds = [
        "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpoint.writeStatsAsJson' = 'true'",
        "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpoint.writeStatsAsJson' = 'false'",
        "'delta.checkpoint.writeStatsAsStruct' = 'false', 'delta.checkpoint.writeStatsAsJson' = 'true'",
        "'delta.checkpoint.writeStatsAsStruct' = 'false', 'delta.checkpoint.writeStatsAsJson' = 'false'",
    ]
    create(maker, ddl(), "checkpointInterval=2", "enableDeletionVectors=false")
    for index, kind in enumerate(kinds):
        if index:
            maker.run(f"ALTER TABLE @ SET TBLPROPERTIES ({kind})")
        grow(maker, 1, start=30 * index)
    maker.set("checkpoint.partSize", 3)
    maker.run(
        f"ALTER TABLE @ SET TBLPROPERTIES ({kinds[0]})",
        "DELETE FROM @ WHERE id % 10 = 3",
        "ALTER TABLE @ SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
    )
    maker.set("checkpointV2.topLevelFileFormat", "json")
    maker.run("UPDATE @ SET text = 'changed', int = 7 WHERE id BETWEEN 20 AND 40")
    maker.set("checkpointV2.topLevelFileFormat", "parquet")
    grow(maker, 2, start=120)
    maker.run("DELETE FROM @ WHERE id = 100")
    log = Path(maker.made.uri, "_delta_log")
    for kind in ("*2.checkpoint.parquet", "*checkpoint.*.*.parquet", "*checkpoint.*.json", "*checkpoint.*-*.parquet"):
        assert list(log.glob(kind)), f"no checkpoint like {kind}"


@recipe
def log_compaction(maker: Maker) -> None:
    raise Unsupported("delta-spark reads compacted log files and writes none")


@recipe
def deletion_vectors(maker: Maker) -> None:
    columns = ("int", "double", "text", "day", "place")
    create(maker, ddl(*columns), "checkpointInterval=4", "enableDeletionVectors=true")
    grow(maker, 2, *columns, size=60)
    maker.run(
        "DELETE FROM @ WHERE id % 10 = 3",
        "UPDATE @ SET text = concat(text, '+'), double = -double WHERE id % 7 = 2",
        f"""MERGE INTO @ AS t USING ({select(100, 140, *columns)}) AS s ON t.id = s.id
            WHEN MATCHED AND s.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id < 5 THEN DELETE""",
        "DELETE FROM @ WHERE id BETWEEN 20 AND 45",
        "REORG TABLE @ APPLY (PURGE)",
        "RESTORE TABLE @ TO VERSION AS OF 4",
        "DELETE FROM @ WHERE place.x % 2 = 0",
    )


@recipe
def columns_by_name(maker: Maker) -> None:
    columns = (
        "id BIGINT, `a.b` INT, `c d` STRING, `ünï``🐎` DATE, `x,;{{}}()=` DOUBLE, "
        "s STRUCT<`p.q`: INT, `r s`: STRUCT<`.`: STRING>>, list ARRAY<STRUCT<`k v`: INT>>, gone STRING, `part 1` STRING"
    ).replace("{{}}", "{}")
    row = (
        "SELECT id, if(id % 9 = 0, null, cast(id as int)), concat('text ', id), "
        "date_add(DATE'2020-01-01', cast(id as int)), id / 3e0, named_struct("
        "'p.q', cast(id * 2 as int), 'r s', if(id % 5 = 0, null, named_struct('.', concat('deep', id)))), "
        "array(named_struct('k v', cast(id as int))), concat('gone', id), "
        "element_at(array('a/b', 'c=d e', null, '%41'), cast(id % 4 + 1 as int))"
    )
    properties = ("columnMapping.mode=name", "checkpointInterval=5")
    create(maker, columns, *properties, clause="PARTITIONED BY (`part 1`)")
    maker.run(
        f"INSERT INTO @ {row} FROM range(0, 40, 1, 1)",
        "ALTER TABLE @ RENAME COLUMN `c d` TO `c.d`",
        "ALTER TABLE @ RENAME COLUMN s.`r s` TO `t u`",
        "ALTER TABLE @ DROP COLUMNS (gone, s.`p.q`)",
        "ALTER TABLE @ ADD COLUMNS (gone INT, s.`p.q` STRING)",
        "ALTER TABLE @ RENAME COLUMN `part 1` TO `part.1`",
        "INSERT INTO @ SELECT id, 1, 'new', null, 0.5, named_struct('t u', named_struct('.', 'deep'), 'p.q', 'text'), "
        "null, 'x', cast(id as int) FROM range(100, 120, 1, 1)",
        "DELETE FROM @ WHERE id % 6 = 1",
    )


@recipe
def columns_by_id(maker: Maker) -> None:
    columns = "id BIGINT, a STRING, s STRUCT<x: INT, y: STRING>, m MAP<STRING, STRUCT<v: INT>>, `q.r` INT"
    row = "SELECT id, concat('a', id), named_struct('x', cast(id as int), 'y', 'y'), map('k', named_struct('v', 1)), 5"
    create(maker, columns, "columnMapping.mode=id", "checkpointInterval=3")
    maker.run(
        f"INSERT INTO @ {row} FROM range(0, 40, 1, 2)",
        "ALTER TABLE @ RENAME COLUMN a TO b",
        "ALTER TABLE @ RENAME COLUMN s.x TO z",
        "ALTER TABLE @ DROP COLUMN `q.r`",
        "ALTER TABLE @ ADD COLUMNS (a INT, s.x STRING)",
        "INSERT INTO @ SELECT id, 'b', named_struct('z', 1, 'y', 'n', 'x', 'text'), null, 9 FROM range(50, 60, 1, 1)",
    )


@recipe
def columns_mapped_later(maker: Maker) -> None:
    create(maker, ddl("int", "text", "place"))
    grow(maker, 1, "int", "text", "place")
    maker.run(
        "ALTER TABLE @ SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE @ RENAME COLUMN text TO int_text",
        "ALTER TABLE @ RENAME COLUMN place.deep TO deeper",
        "ALTER TABLE @ DROP COLUMN int",
        "ALTER TABLE @ ADD COLUMN (text STRING)",
        "INSERT INTO @ SELECT id, 'new', named_struct('x', 1, 'deeper', null), 'text' FROM range(50, 60, 1, 1)",
    )


WIDENED = [
    ("part", "SMALLINT", "INT", "id % 3"),
    ("byte_short", "TINYINT", "SMALLINT", "id"),
    ("byte_long", "TINYINT", "BIGINT", "-id"),
    ("short_int", "SMALLINT", "INT", "id * 300"),
    ("int_long", "INT", "BIGINT", "id * 1000"),
    ("float_double", "FLOAT", "DOUBLE", "if(id % 5 = 0, double('NaN'), id / 3e0)"),
    ("small_decimal", "DECIMAL(9,2)", "DECIMAL(20,4)", "id * 1.25"),
    ("far_decimal", "DECIMAL(18,0)", "DECIMAL(38,4)", "id * 100000000000"),
    ("int_double", "INT", "DOUBLE", "id * 7"),
    ("int_decimal", "INT", "DECIMAL(12,2)", "id * 9"),
    ("long_decimal", "BIGINT", "DECIMAL(24,4)", "id * 99"),
    ("day", "DATE", "TIMESTAMP_NTZ", "date_add(DATE'1969-12-01', cast(id as int))"),
    ("place", "STRUCT<x: INT>", "STRUCT<x: BIGINT>", "if(id % 6 = 0, null, named_struct('x', id))"),
    ("list", "ARRAY<SMALLINT>", "ARRAY<INT>", "array(id, null)"),
    ("pairs", "MAP<TINYINT, FLOAT>", "MAP<INT, DOUBLE>", "map(id, id / 2e0)"),
]
"""Columns whose type is widened: the types before and after, and values of both."""


@recipe
def type_widening(maker: Maker) -> None:
    maker.set("typeWidening.allowAutomaticWidening", "always")
    columns = ", ".join(["id BIGINT", *(f"{name} {narrow}" for name, narrow, _, _ in WIDENED)])
    properties = ("enableTypeWidening=true", "feature.timestampNtz=supported", "checkpointInterval=3")
    create(maker, columns, *properties, clause="PARTITIONED BY (part)")
    narrow = ", ".join(f"cast({value} as {narrow}) AS {name}" for name, narrow, _, value in WIDENED)
    wide = ", ".join(f"cast({value} as {wide}) AS {name}" for name, _, wide, value in WIDENED)
    maker.run(f"INSERT INTO @ SELECT id, {narrow} FROM range(0, 40, 1, 2)")
    maker.append(f"SELECT id, {wide} FROM range(40, 80, 1, 2)", mergeSchema="true")
    maker.run(
        "INSERT INTO @ (id, part, byte_long, int_long, float_double, far_decimal, day) SELECT id, 70000, "
        "id * 1000000000000, -id * 1000000000000, 1e300, id + 0.5, timestamp_ntz'2020-01-01 12:34:56.789012' "
        "FROM range(80, 90)",
        "UPDATE @ SET far_decimal = far_decimal + 0.5 WHERE id % 8 = 1",
    )


@recipe
def row_tracking(maker: Maker) -> None:
    maker.made.columns = ROW_TRACKING
    columns = ("int", "text", "day")
    create(maker, ddl(*columns), "enableRowTracking=true", "enableDeletionVectors=true", "checkpointInterval=4")
    grow(maker, 2, *columns)
    maker.run(
        "UPDATE @ SET text = 'changed' WHERE id % 9 = 4",
        "DELETE FROM @ WHERE id % 10 = 3",
        f"""MERGE INTO @ AS t USING ({select(50, 70, *columns)}) AS s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET t.int = -s.id WHEN NOT MATCHED THEN INSERT *""",
        "OPTIMIZE @",
        "UPDATE @ SET day = null WHERE id < 20",
    )


@recipe
def row_tracking_later(maker: Maker) -> None:
    create(maker, ddl("int", "text"), "enableDeletionVectors=false", "columnMapping.mode=name")
    grow(maker, 2, "int", "text", size=20)
    maker.run("ALTER TABLE @ SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    maker.made.columns = ROW_TRACKING
    maker.run("UPDATE @ SET text = 'changed' WHERE id % 9 = 4", "OPTIMIZE @ ZORDER BY (int)")


@recipe
def rules_for_columns(maker: Maker) -> None:
    # To the protocol a CHAR is a string, so deltic does not pad it. By default Spark pads the column and literals.
    maker.spark.conf.set("spark.sql.readSideCharPadding", "false")
    maker.made.unfiltered = frozenset({"fixed"})
    create(
        maker,
        "id BIGINT, number BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 3), day DATE, "
        "year INT GENERATED ALWAYS AS (year(day)), chosen INT DEFAULT 7, present INT NOT NULL, fixed CHAR(4), "
        "short_text VARCHAR(5), nothing VOID",
        "feature.allowColumnDefaults=supported",
        clause="PARTITIONED BY (year)",
    )
    row = "(id, day, present, fixed, short_text) SELECT id, date_add(DATE'2019-12-20', cast(id as int)), 1, 'ab', 'abc'"
    maker.run(
        f"INSERT INTO @ {row} FROM range(30)",
        "ALTER TABLE @ ADD CONSTRAINT small CHECK (id < 1000 AND present > 0)",
        f"INSERT INTO @ {row} FROM range(30, 50)",
    )


@recipe
def clustering(maker: Maker) -> None:
    columns = ("int", "text", "day", "place")
    create(maker, ddl(*columns), "checkpointInterval=4", clause="CLUSTER BY (int, place.x)")
    grow(maker, 2, *columns)
    maker.look_at_clustering()
    maker.run("OPTIMIZE @", "ALTER TABLE @ CLUSTER BY (day)")
    maker.look_at_clustering()
    grow(maker, 1, *columns, start=60)
    maker.run("OPTIMIZE @ FULL", "ALTER TABLE @ CLUSTER BY NONE")
    maker.look_at_clustering()


@recipe
def changes(maker: Maker) -> None:
    columns = ("int", "float", "text", "day", "place")
    create(maker, ddl(*columns), "enableDeletionVectors=true", "checkpointInterval=3")
    grow(maker, 1, *columns)
    maker.run("ALTER TABLE @ SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    grow(maker, 1, *columns, start=30)
    maker.run(
        "DELETE FROM @ WHERE id % 10 = 3",
        "UPDATE @ SET text = concat(text, '+'), int = null WHERE id % 7 = 2",
        f"""MERGE INTO @ AS t USING ({select(50, 70, *columns)}) AS s ON t.id = s.id
            WHEN MATCHED AND s.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *""",
        "ALTER TABLE @ ADD COLUMN (later INT)",
        "DELETE FROM @ WHERE id BETWEEN 30 AND 59",
        "OPTIMIZE @",
        f"INSERT OVERWRITE @ SELECT *, 5 FROM ({select(60, 90, *columns)})",
    )
    for start, end in [(2, 10), (3, 3), (4, 6), (8, 10)]:
        maker.changes(start, end)


@recipe
def changes_without_deletion_vectors(maker: Maker) -> None:
    properties = ("enableChangeDataFeed=true", "enableDeletionVectors=false", "columnMapping.mode=name")
    create(maker, ddl("int", "text", "day"), *properties, clause="PARTITIONED BY (int)")
    row = "SELECT id, cast(id % 3 as int) int, concat('row ', id) text, date_add(DATE'2020-01-01', cast(id as int)) day"
    maker.run(
        f"INSERT INTO @ {row} FROM range(0, 30, 1, 1)",
        "UPDATE @ SET text = 'changed', int = 9 WHERE id % 7 = 2",
        "DELETE FROM @ WHERE int = 1",
        "DELETE FROM @ WHERE id % 5 = 2",
        f"""MERGE INTO @ AS t USING ({row} FROM range(20, 40, 1, 1)) AS s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET t.text = 'merged' WHEN NOT MATCHED THEN INSERT *""",
    )
    for start, end in [(0, 5), (2, 3), (5, 5)]:
        maker.changes(start, end)


@recipe
def commit_times(maker: Maker) -> None:
    create(maker, ddl("int", "text"), "enableInCommitTimestamps=true", "checkpointInterval=2")
    grow(maker, 4, "int", "text", size=10, files=1)
    maker.look_back()


@recipe
def commit_times_later(maker: Maker) -> None:
    create(maker, ddl("int", "text"), "checkpointInterval=3")
    grow(maker, 2, "int", "text", size=10, files=1)
    maker.run("ALTER TABLE @ SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    grow(maker, 2, "int", "text", size=10, start=20, files=1)
    maker.look_back()


def variants(maker: Maker, *properties: str) -> None:
    maker.made.variants = frozenset({"v"})
    create(maker, "id BIGINT, v VARIANT, text STRING", *properties)
    value = """case id % 9 when 0 then null when 1 then parse_json('null') when 2 then parse_json('[1, "a", null, {}]')
        when 3 then to_variant_object(named_struct('d', DATE'2020-01-01', 'n', 1.25, 't', TIMESTAMP'2020-01-01'))
        when 4 then parse_json('"just text"') when 5 then parse_json('12345678901234567890.5')
        else parse_json(concat('{"a": ', id, ', "b": {"c": ["x", ', id % 2 = 0, '], "l": "', repeat('z', 80), '"}}'))
        end"""
    maker.run(
        f"INSERT INTO @ SELECT id, {value}, concat('t', id) FROM range(0, 60, 1, 2)", "DELETE FROM @ WHERE id % 7 = 1"
    )
    kept = "SELECT id, parse_json(concat('{\"a\": ', id, ', \"s\": \"', id, '\"}')), 'same' FROM range(60, 90, 1, 1)"
    maker.run(f"INSERT INTO @ {kept}")


@recipe
def variant(maker: Maker) -> None:
    variants(maker)


@recipe
def shredded_variant(maker: Maker) -> None:
    from pyarrow.parquet import read_schema

    variants(maker, "enableVariantShredding=true")
    files = Path(maker.made.uri).glob("*.parquet")
    if not any(read_schema(file).field("v").type.get_field_index("typed_value") >= 0 for file in files):
        raise Unsupported("no file has a shredded variant")


@recipe
def partitions_of_every_type(maker: Maker) -> None:
    names = ("byte", "short", "int", "long", "float", "double", "small", "big", "flag", "text", "day", "at", "ntz")
    values = [
        f"if(k % 12 = {place % 12}, null, {COLUMNS[name][1]}) AS {name}".replace("id", "k")
        for place, name in enumerate(names)
    ]
    everything = ", ".join([*values, "cast(concat('b', k) as binary) bytes"])
    source = f"SELECT id, {everything} FROM (SELECT id, {{}} k FROM range({{}}, {{}}, 1, 1))"
    create(
        maker,
        f"{ddl(*names)}, bytes BINARY",
        "checkpointInterval=2",
        clause=f"PARTITIONED BY ({', '.join(names)}, bytes)",
    )
    maker.run(
        f"INSERT INTO @ {source.format('id % 24', 0, 48)}",
        f"INSERT INTO @ {source.format('id % 24 + 12', 48, 72)}",
        "DELETE FROM @ WHERE text IS NULL OR long > 20000000000000",
    )


@recipe
def partitions_of_odd_text(maker: Maker) -> None:
    odd = ["", " ", "a b", "a/b", "a%b", "%2F", "a=b", "a:b", "é🐎", 'say "so"', "it's", "\\", "x\ty", "new\nline"]
    odd += ["#?&+", "null", "..", "~"]
    texts = ", ".join(quoted(text).theirs for text in odd)
    create(maker, "id BIGINT, text STRING, `ünï/:#` STRING, value DOUBLE", clause="PARTITIONED BY (text, `ünï/:#`)")
    text = f"element_at(array(null, {texts}), cast(id % {len(odd) + 1} + 1 as int))"
    source = f"SELECT id, {text}, if(id % 2 = 0, null, 'z'), id / 4e0"
    maker.run(f"INSERT INTO @ {source} FROM range(0, 70, 1, 1)", "DELETE FROM @ WHERE text IN ('a/b', '%2F') OR id = 9")
    maker.run("UPDATE @ SET text = '100%' WHERE id < 10")


@recipe
def deep_types(maker: Maker) -> None:
    create(
        maker,
        "id BIGINT, a ARRAY<ARRAY<STRUCT<x: INT, m: MAP<STRING, ARRAY<DATE>>>>>, "
        "m MAP<STRUCT<k: INT, l: STRING>, MAP<STRING, STRUCT<d: DECIMAL(20,3), t: TIMESTAMP>>>, "
        "s STRUCT<one: STRUCT<two: STRUCT<three: STRUCT<n: BIGINT, t: TIMESTAMP, f: DOUBLE>, list: ARRAY<INT>>>, "
        "other: STRING>",
        "checkpointInterval=2",
    )
    row = """SELECT id, case id % 4 when 0 then null when 1 then array() when 2 then array(null, array()) else
        array(array(named_struct('x', cast(id as int), 'm', map('k', array(DATE'2020-01-01', null))), null)) end,
        if(id % 5 = 0, null, map(named_struct('k', cast(id as int), 'l', 'l'),
          map('a', named_struct('d', cast(id as decimal(20,3)), 't', timestamp_micros(id)), 'b', null))),
        if(id % 7 = 0, null, named_struct(
          'one', if(id % 3 = 0, null, named_struct(
            'two', if(id % 4 = 1, null, named_struct(
              'three', named_struct(
                'n', id, 't', timestamp_micros(id * 1000001), 'f', if(id % 6 = 2, double('NaN'), id / 2e0)),
              'list', array(cast(id as int)))))),
          'other', if(id % 2 = 0, null, concat('o', id))))"""
    maker.run(
        f"INSERT INTO @ {row} FROM range(0, 60, 1, 3)",
        "ALTER TABLE @ ADD COLUMNS (s.one.two.three.late STRING)",
        "UPDATE @ SET s.one.two.three.late = 'now' WHERE id % 5 = 4",
    )


@recipe
def collations(maker: Maker) -> None:
    # This release writes no table feature for collations: other readers see a plain string column.
    maker.set("schema.typeCheck.enabled", "false")
    maker.made.unfiltered = frozenset({"text"})
    maker.attempt("CREATE TABLE @ (id BIGINT, text STRING COLLATE UTF8_LCASE) USING delta", "UNSUPPORTED_DATA_TYPES")
    maker.run("INSERT INTO @ SELECT id, if(id % 2 = 0, 'A', 'a') FROM range(20)")


@recipe
def geospatial(maker: Maker) -> None:
    maker.set("geo.preview.enabled", "true")
    maker.made.unfiltered = frozenset({"shape", "place"})
    maker.made.spatial = frozenset({"shape", "place"})
    maker.attempt("CREATE TABLE @ (id BIGINT, shape GEOMETRY(4326), place GEOGRAPHY(4326)) USING delta", "GEOSPATIAL")
    point = "unhex(concat('0101000000', lpad(hex(id), 32, '0')))"
    maker.run(f"INSERT INTO @ SELECT id, ST_GeomFromWKB({point}, 4326), ST_GeogFromWKB({point}) FROM range(20)")


@recipe
def replaced(maker: Maker) -> None:
    create(maker, ddl("int", "text"), "checkpointInterval=2")
    grow(maker, 1, "int", "text")
    maker.run(
        f"CREATE OR REPLACE TABLE @ USING delta PARTITIONED BY (flag) AS {select(0, 40, 'double', 'flag', 'int')}",
        f"INSERT INTO @ REPLACE WHERE id >= 30 {select(30, 50, 'double', 'flag', 'int')}",
    )
    maker.append(select(0, 20, "text"), mode="overwrite", overwriteSchema="true")
    maker.run("RESTORE TABLE @ TO VERSION AS OF 3")


@recipe
def cloned(maker: Maker) -> None:
    source = f"delta.`{maker.made.uri}-source`"
    columns = ("int", "text", "flag")
    maker.spark.sql(f"CREATE TABLE {source} USING delta PARTITIONED BY (flag) AS {select(0, 60, *columns)}")
    maker.spark.sql(f"DELETE FROM {source} WHERE id % 10 = 3")
    maker.run(f"CREATE TABLE @ SHALLOW CLONE {source}", "DELETE FROM @ WHERE id % 10 = 4")
    grow(maker, 1, *columns, start=60)


@recipe
def converted(maker: Maker) -> None:
    rows = select(0, 60, "int", "text", "at", "place")
    frame = maker.spark.sql(f"SELECT *, if(id % 4 = 0, null, concat('a b/', id % 3)) AS part FROM ({rows})")
    frame.write.partitionBy("part").parquet(maker.made.uri)
    maker.run(f"CONVERT TO DELTA parquet.`{maker.made.uri}` PARTITIONED BY (part STRING)")
    maker.run("UPDATE @ SET text = 'changed' WHERE id % 9 = 4")


@recipe
def chosen_statistics(maker: Maker) -> None:
    create(maker, ddl(), "dataSkippingNumIndexedCols=3")
    grow(maker, 1)
    maker.run("ALTER TABLE @ SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'text,place.deep.name,double')")
    grow(maker, 1, start=30)


@recipe
def iceberg_compatible(maker: Maker) -> None:
    columns = ("int", "text", "at", "place", "list", "pairs")
    create(maker, ddl(*columns), "enableIcebergCompatV2=true", "columnMapping.mode=name", "enableDeletionVectors=false")
    grow(maker, 1, *columns)
    maker.run("ALTER TABLE @ RENAME COLUMN text TO words", "UPDATE @ SET words = 'changed' WHERE id % 9 = 4")
