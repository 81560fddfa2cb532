//! Schemas: JSON form, Arrow form, physical names.

use arrow_schema::{DataType as ArrowType, Field, Fields, IntervalUnit, Schema, TimeUnit};
use deltic_protocol::error::Kind;
use deltic_protocol::schema::identity::{Identity, with_watermarks};
use deltic_protocol::schema::mapping::{ColumnMapping, field_id};
use deltic_protocol::schema::{ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, arrow, json};
use std::collections::HashMap;
use std::sync::Arc;

fn one_column(data_type: &str) -> String {
    format!(r#"{{"type":"struct","fields":[{{"name":"a","type":{data_type},"nullable":true,"metadata":{{}}}}]}}"#)
}

/// A type in JSON `=` its printed form, or kind and part of the message.
const TYPES: &str = r#"
"string"                                                        = string
"long"                                                          = long
"bigint"                                                        = long
"INTEGER"                                                       = integer
"int"                                                           = integer
"smallint"                                                      = short
"tinyint"                                                       = byte
"float"                                                         = float
"double"                                                        = double
"boolean"                                                       = boolean
"binary"                                                        = binary
"date"                                                          = date
"timestamp"                                                     = timestamp
"timestamp_ntz"                                                 = timestamp_ntz
"void"                                                          = void
"variant"                                                       = variant
"decimal"                                                       = decimal(10,0)
"decimal(5)"                                                    = decimal(5,0)
"decimal(38,38)"                                                = decimal(38,38)
" Decimal( 12 , 2 ) "                                           = decimal(12,2)
"decimal(39,0)"                                                 = decimal(39,0)
"decimal(5,6)"                                                  = decimal(5,6)
"decimal(0,0)"                                                  = decimal(0,0)
"decimal(5,-1)"                                                 = decimal(5,-1)
"decimal(5,1,1)"                                                = decimal(5,1,1)
"decimal()"                                                     = decimal()
"decimal(5,1"                                                   = decimal(5,1
"decimal 5,1)"                                                  = decimal 5,1)
"varchar(10)"                                                   = string
"char(3)"                                                       = string
"geometry"                                                      = geometry(OGC:CRS84)
"geometry(EPSG:3857)"                                           = geometry(EPSG:3857)
"geography(OGC:CRS84, vincenty)"                                = geography(OGC:CRS84, vincenty)
"geometry(projjson:a, b)"                                       = geometry(projjson:a, b)
"geography(projjson:a,b, karney)"                               = geography(projjson:a,b, karney)
"geography( EPSG:4326 )"                                        = geography(EPSG:4326, spherical)
"geography()"                                                   = geography(OGC:CRS84, spherical)
"interval"                                                      = interval
""                                                              = 
{"type":"integer"}                                              = integer
{"type":"array","elementType":"long","containsNull":true}       = array<long>
{"type":"array","elementType":"long"}                           = array<long>
{"type":"map","keyType":"string","valueType":"long"}            = map<string, long>
{"type":"struct","fields":[]}                                   = struct<>
{"type":"array"}                                                = Corrupt `elementType` is missing at `a`
{"type":"map","keyType":"string"}                               = Corrupt `valueType` is missing at `a`
{"type":"map","keyType":"string","valueType":{"type":"array"}}  = Corrupt `elementType` is missing at `a.value`
{"type":"struct"}                                               = Corrupt `fields` is missing at `a`
{"type":"struct","fields":{}}                                   = Corrupt not an array
{"type":"struct","fields":[1]}                                  = Corrupt not an object
{"type":"struct","fields":[{"type":"long"}]}                    = Corrupt `name` is missing at `a`
{"type":"struct","fields":[{"name":5,"type":"long"}]}           = Corrupt not a string
{"type":"struct","fields":[{"name":"b"}]}                       = Corrupt `type` is missing at `a.b`
{"type":"struct","fields":[{"name":"b","type":"long"}]}         = struct<b: long>
{"type":"struct","fields":[{"name":"b","type":"long","nullable":0,"metadata":[]}]} = struct<b: long>
{"type":{"type":"long"}}                                        = Corrupt has no name
{}                                                              = Corrupt has no name
null                                                            = Corrupt neither a name nor an object
5                                                               = Corrupt neither a name nor an object
["long"]                                                        = Corrupt neither a name nor an object
"interval year to month"                                        = interval year to month
{"type":"udt","class":"a.B","sqlType":"long"}                   = udt(a.B)
{"type":"udt","pyClass":null,"sqlType":"long"}                  = udt
{"type":"udt","sqlType":{"type":"array"}}                       = Corrupt `elementType` is missing at `a`
{"type":"lattice"}                                              = lattice
"#;

#[test]
fn types() {
    for line in TYPES.lines().filter(|line| !line.trim().is_empty()) {
        let (text, expected) = line.rsplit_once(" = ").unwrap();
        match json::parse(&one_column(text.trim())) {
            Ok(schema) => assert_eq!(schema.fields[0].data_type.to_string(), expected.trim(), "{text}"),
            Err(error) => {
                let (kind, part) = expected.trim().split_once(' ').unwrap();
                assert!(format!("{:?}", error.kind()).starts_with(kind), "{text}: {error}");
                assert!(error.message().contains(part), "{text}: {error}");
            }
        }
    }
}

/// Type `=` the type that it is stored as, `-` if unknown.
const FOREIGN: &str = r#"
"interval year"                                                 = integer
"interval month"                                                = integer
"Interval YEAR to Month"                                        = integer
"interval month to year"                                        = -
"interval day"                                                  = long
"interval day to second"                                        = long
"interval minute to second"                                     = long
"interval second to minute"                                     = -
"interval month to day"                                         = -
"interval"                                                      = -
"interval week"                                                 = -
"decimal(39,0)"                                                 = -
"float16"                                                       = -
{"type":"interval day"}                                         = long
{"type":"udt","class":"a.B","pyClass":null,"sqlType":"double"}  = double
{"type":"udt","class":"a.B","sqlType":{"type":"struct","fields":[{"name":"x","type":"float16"}]}} = struct<x: float16>
{"type":"udt","class":"a.B"}                                    = -
{"type":"udt","class":5,"sqlType":"double"}                     = -
{"type":"udt","class":"a.B","sqlType":null}                     = -
{"type":"lattice","of":"long"}                                  = -
"#;

#[test]
fn foreign_types_keep_their_definition() {
    for line in FOREIGN.lines().filter(|line| !line.trim().is_empty()) {
        let (text, expected) = line.rsplit_once(" = ").unwrap();
        let schema = json::parse(&one_column(text.trim())).unwrap();
        let DataType::Foreign(foreign) = &schema.fields[0].data_type else { panic!("{text}") };
        let stored = foreign.stored_as.as_ref().map_or("-".to_owned(), |stored| stored.to_string());
        assert_eq!(stored, expected.trim(), "{text}");
        let is_readable = foreign.stored_as.is_some() && !text.contains("float16");
        assert_eq!(schema.fields[0].data_type.unreadable().is_none(), is_readable, "{text}");
        assert_eq!(json::parse(&json::to_json(&schema)).unwrap(), schema, "{text}");
    }
}

#[test]
fn invalid_schemas() {
    for text in ["", "{", "[]", "null", r#""long""#, r#"{"type":"array","elementType":"long"}"#, "{}", "\u{feff}{}"] {
        assert_eq!(json::parse(text).unwrap_err().kind(), &Kind::Corrupt, "{text}");
    }
}

/// A column that nests `depth` types deep: structs, or arrays.
fn nested(depth: usize, structs: bool) -> DataType {
    (1..depth).fold(DataType::LONG, |inner, _| {
        if structs {
            DataType::Struct(Arc::new(StructType::new(vec![StructField::new("a", inner, true)])))
        } else {
            DataType::Array(Arc::new(ArrayType { element: inner, contains_null: true }))
        }
    })
}

#[test]
fn json_and_arrow_have_the_same_depth_limit() {
    for structs in [true, false] {
        let schema = |depth| StructType::new(vec![StructField::new("a", nested(depth, structs), true)]);
        let deepest = schema(json::MAX_DEPTH);
        assert_eq!(json::parse(&json::to_json(&deepest)).unwrap(), deepest);
        assert_eq!(arrow::from_arrow_schema(&arrow::to_arrow_schema(&deepest)).unwrap(), deepest);
        let deeper = schema(json::MAX_DEPTH + 1);
        let error = json::parse(&json::to_json(&deeper)).unwrap_err();
        assert_eq!(error.kind(), &Kind::Corrupt);
        assert!(error.message().contains("nests deeper than"), "{error}");
        let error = arrow::from_arrow_schema(&arrow::to_arrow_schema(&deeper)).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        assert!(error.message().contains("nests deeper than"), "{error}");
    }
    for open in ["[", "{\"type\":", r#"{"type":"array","elementType":"#] {
        assert_eq!(json::parse(&one_column(&open.repeat(50_000))).unwrap_err().kind(), &Kind::Corrupt);
    }
}

#[test]
fn fields_are_found_by_name() {
    let schema = StructType::new(["a", "B", "c", "C", "É"].map(|n| StructField::new(n, DataType::LONG, true)).to_vec());
    for (name, index) in [
        ("a", Some(0)),
        ("A", Some(0)),
        ("b", Some(1)),
        ("c", Some(2)),
        ("C", Some(3)),
        ("é", Some(4)),
        ("d", None),
        ("", None),
    ] {
        assert_eq!(schema.index_of(name), index, "{name}");
    }
    let twice = StructType::new(["aB", "Ab"].map(|n| StructField::new(n, DataType::LONG, true)).to_vec());
    assert_eq!(twice.index_of("ab"), None);
}

#[test]
fn arrow_types_with_another_delta_name() {
    let list = |field: Field| Arc::new(field);
    let micros = ArrowType::Timestamp(TimeUnit::Microsecond, None);
    for (arrow_type, expected) in [
        (ArrowType::LargeUtf8, "string"),
        (ArrowType::Utf8View, "string"),
        (ArrowType::Date64, "date"),
        (ArrowType::UInt8, "short"),
        (ArrowType::UInt16, "integer"),
        (ArrowType::UInt32, "long"),
        (ArrowType::Float16, "float"),
        (ArrowType::FixedSizeBinary(4), "binary"),
        (ArrowType::BinaryView, "binary"),
        (ArrowType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())), "timestamp"),
        (ArrowType::Timestamp(TimeUnit::Second, None), "timestamp_ntz"),
        (ArrowType::Decimal128(38, 38), "decimal(38,38)"),
        (ArrowType::Decimal32(9, 2), "decimal(9,2)"),
        (ArrowType::Dictionary(Box::new(ArrowType::Int8), Box::new(ArrowType::Utf8)), "string"),
        (ArrowType::FixedSizeList(list(Field::new("item", ArrowType::Int8, false)), 3), "array<byte>"),
        (ArrowType::LargeList(list(Field::new("x", micros, true))), "array<timestamp_ntz>"),
    ] {
        let schema = Schema::new(vec![Field::new("a", arrow_type, true)]);
        assert_eq!(arrow::from_arrow_schema(&schema).unwrap().fields[0].data_type.to_string(), expected);
    }
}

#[test]
fn arrow_schemas_that_delta_cannot_store() {
    let column = |t| vec![Field::new("a", t, true)];
    let inner = |t| ArrowType::Struct(Fields::from(vec![Field::new("b", t, true)]));
    for (fields, part) in [
        (column(ArrowType::UInt64), "cast it to long or decimal(20,0)"),
        (column(ArrowType::Time32(TimeUnit::Second)), "cast it to integer or string"),
        (column(ArrowType::Time64(TimeUnit::Microsecond)), "cast it to long or string"),
        (column(ArrowType::Duration(TimeUnit::Microsecond)), "cast it to long or string"),
        (column(ArrowType::Interval(IntervalUnit::MonthDayNano)), "store its parts (months, days, nanoseconds)"),
        (column(ArrowType::Decimal256(38, 2)), "a decimal of at most 38 digits"),
        (column(ArrowType::Decimal128(10, -2)), "scale from 0"),
        (column(ArrowType::Decimal128(0, 0)), "1 to 38 digits"),
        (column(ArrowType::Null), "give the column a type"),
        (column(inner(ArrowType::UInt64)), "column `a.b`"),
        (vec![Field::new("a", ArrowType::Int8, true), Field::new("A", ArrowType::Int8, true)], "two columns `A`"),
        (
            column(ArrowType::Struct(Fields::from(vec![
                Field::new("b", ArrowType::Int8, true),
                Field::new("b", ArrowType::Int8, true),
            ]))),
            "two columns `a.b`",
        ),
    ] {
        let error = arrow::from_arrow_schema(&Schema::new(fields)).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        assert!(error.message().contains(part), "{error}");
    }
}

/// A column whose type, or a type inside it, is marked as an extension type.
fn extended(name: &str, storage: ArrowType) -> Field {
    let metadata = HashMap::from([("ARROW:extension:name".to_owned(), name.to_owned())]);
    Field::new("v", storage, true).with_metadata(metadata)
}

#[test]
fn new_columns_of_geoarrow_are_refused_unless_their_type_is_marked() {
    let into = |field: Field, current: &StructType| {
        arrow::check_new_geometries(&Fields::from(vec![field]), current).map_err(|e| e.to_string())
    };
    let check = |field: Field| into(field, &StructType::default());
    for (name, storage) in [("geoarrow.wkb", ArrowType::Binary), ("geoarrow.wkt", ArrowType::Utf8)] {
        let field = extended(name, storage);
        assert!(
            check(field.clone()).unwrap_err().starts_with(&format!("column `v` has the Arrow extension type `{name}`"))
        );
        let list = Field::new("l", ArrowType::List(Arc::new(field.clone())), true);
        assert!(check(list).unwrap_err().contains("column `l` has"));
        let inside = Field::new("s", ArrowType::Struct(Fields::from(vec![field.clone()])), true);
        assert!(check(inside.clone()).unwrap_err().contains("column `s.v` has"));
        // A field inside a column of the table may be new, too.
        let with_field = |name: &str| {
            let inner = StructType::new(vec![StructField::new(name, DataType::Primitive(PrimitiveType::Binary), true)]);
            let lists = DataType::Array(Arc::new(ArrayType {
                element: DataType::Struct(Arc::new(inner.clone())),
                contains_null: true,
            }));
            StructType::new(vec![
                StructField::new("s", DataType::Struct(Arc::new(inner)), true),
                StructField::new("l", lists, true),
            ])
        };
        let list = Field::new("l", ArrowType::List(Arc::new(inside.clone().with_name("element"))), true);
        assert!(into(inside.clone(), &with_field("other")).unwrap_err().contains("column `s.v` has"));
        assert!(into(list.clone(), &with_field("other")).unwrap_err().contains("column `l.v` has"));
        into(inside, &with_field("v")).unwrap();
        into(list, &with_field("v")).unwrap();
        into(
            field.clone(),
            &StructType::new(vec![StructField::new("v", DataType::Primitive(PrimitiveType::Binary), true)]),
        )
        .unwrap();
    }
    let marked = extended("geoarrow.wkb", ArrowType::Binary);
    let mut metadata = marked.metadata().clone();
    metadata.insert("delta.type".to_owned(), "geometry(EPSG:3857)".to_owned());
    check(marked.with_metadata(metadata)).unwrap();
    check(extended("arrow.json", ArrowType::Utf8)).unwrap();
}

#[test]
fn extension_types_are_refused_unless_they_are_what_is_stored() {
    let check = |field: Field| arrow::from_arrow_schema(&Schema::new(vec![field]));
    for (name, storage) in [
        ("arrow.json", ArrowType::Utf8),
        ("arrow.uuid", ArrowType::FixedSizeBinary(16)),
        ("arrow.parquet.variant", ArrowType::Binary),
        ("geoarrow.wkt", ArrowType::Utf8),
        ("", ArrowType::Int64),
    ] {
        check(extended(name, storage)).unwrap();
    }
    for name in ["pandas.period", "arrow.bool8", "arrow.opaque", "polars.object"] {
        let inner = || Arc::new(extended(name, ArrowType::Int64));
        let entries = |value: Arc<Field>| Fields::from(vec![Arc::new(Field::new("k", ArrowType::Utf8, false)), value]);
        let entries = |value| Arc::new(Field::new("entries", ArrowType::Struct(entries(value)), false));
        for (storage, path) in [
            (ArrowType::List(inner()), "`c`"),
            (ArrowType::Struct(Fields::from(vec![inner()])), "`c.v`"),
            (ArrowType::Map(entries(inner()), false), "`c`"),
            (ArrowType::LargeList(Arc::new(Field::new("e", ArrowType::List(inner()), true))), "`c`"),
        ] {
            let error = check(Field::new("c", storage, true)).unwrap_err();
            assert_eq!(error.kind(), &Kind::Invalid);
            let words = [path, name, "cast it to its storage type (long)"];
            assert!(words.iter().all(|words| error.message().contains(words)), "{error}");
        }
    }
}

#[test]
fn typed_column_metadata_survives_arrow() {
    let text = r#"{"type":"struct","fields":[{"name":"a","type":"long","nullable":false,"metadata":{
        "comment":"5","delta.columnMapping.id":7,"delta.columnMapping.physicalName":"col-1",
        "delta.identity.start":-1,"delta.identity.allowExplicitInsert":false,"delta.generationExpression":"1",
        "delta.typeChanges":[{"fromType":"integer","toType":"long"}],"delta.columnMapping.nested.ids":{"a.element":8}
    }}]}"#;
    let schema = json::parse(text).unwrap();
    assert_eq!(arrow::from_arrow_schema(&arrow::to_arrow_schema(&schema)).unwrap(), schema);
}

#[test]
fn variants_are_distinguished_from_structs() {
    let schema = StructType::new(vec![StructField::new("v", DataType::Variant, true)]);
    assert_eq!(arrow::from_arrow_schema(&arrow::to_arrow_schema(&schema)).unwrap(), schema);
    assert_eq!(arrow::from_rows_schema(&arrow::to_rows_schema(&schema)).unwrap(), schema);
    let storage = arrow::to_arrow_type(&DataType::Variant);
    for (name, expected) in [
        ("arrow.parquet.variant", "variant"),
        ("parquet.variant", "variant"),
        ("arrow.json", "struct<metadata: binary, value: binary>"),
    ] {
        let read = arrow::from_rows_schema(&Schema::new(vec![extended(name, storage.clone())])).unwrap();
        assert_eq!(read.fields[0].data_type.to_string(), expected);
    }
    for (mark, expected) in [("true", "variant"), ("false", "struct<value: binary, metadata: binary>")] {
        let part = |name: &str| Field::new(name, ArrowType::Binary, false);
        let metadata = part("metadata").with_metadata(HashMap::from([("variant".to_owned(), mark.to_owned())]));
        let of_spark = ArrowType::Struct(vec![part("value"), metadata].into());
        let read = arrow::from_rows_schema(&Schema::new(vec![Field::new("v", of_spark, true)])).unwrap();
        assert_eq!(read.fields[0].data_type.to_string(), expected);
    }
}

/// All keys that Delta defines for column metadata, at two depths.
fn defined() -> StructType {
    let metadata = r#"{"comment":"5","__CHAR_VARCHAR_TYPE_STRING":"char(3)","mine":"x","CURRENT_DEFAULT":"1",
        "delta.columnMapping.id":7,"delta.columnMapping.physicalName":"col-1","delta.identity.start":-1,
        "delta.generationExpression":"1","delta.typeChanges":[],"delta.invariants":"{}"}"#;
    let field = |data_type: &str| format!(r#"{{"name":"a","type":{data_type},"nullable":true,"metadata":{metadata}}}"#);
    let inner = format!(r#"{{"type":"struct","fields":[{}]}}"#, field("\"long\""));
    let list = format!(r#"{{"type":"array","elementType":{inner},"containsNull":true}}"#);
    let map = format!(r#"{{"type":"map","keyType":"string","valueType":{list},"valueContainsNull":true}}"#);
    json::parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, field(&map))).unwrap()
}

#[test]
fn rows_keep_column_metadata_but_not_that_of_the_table() {
    let defined = defined();
    let kept = |schema: &StructType| {
        let text = json::to_json(schema);
        let keys = ["comment", "__CHAR_VARCHAR", "mine", "CURRENT_DEFAULT", "delta."];
        keys.map(|key| text.matches(key).count())
    };
    assert_eq!(kept(&defined), [2, 2, 2, 2, 12]);
    let rows = arrow::to_rows_schema(&defined);
    assert_eq!(kept(&arrow::from_arrow_schema(&rows).unwrap()), [2, 2, 0, 0, 0]);
    assert_eq!(kept(&arrow::from_rows_schema(&arrow::to_arrow_schema(&defined)).unwrap()), [2, 2, 0, 0, 0]);
    assert_eq!(kept(&arrow::from_arrow_schema(&arrow::to_arrow_schema(&defined)).unwrap()), [2, 2, 2, 2, 12]);
}

/// User keys of column metadata, at two depths, survive when rows are passed on to a write.
#[test]
fn user_metadata_of_columns_survives() {
    let given = |name: &str, field: &str| {
        json::parse(&one_column(field)).map(|mut schema| {
            schema.fields[0].name = name.to_owned();
            schema.fields[0].metadata = serde_json::from_str(r#"{"comment":"5","mine":1,"list":[null,"x"]}"#).unwrap();
            schema
        })
    };
    let inner = given("in", "\"long\"").unwrap();
    let mut schema = given("out", "\"string\"").unwrap();
    schema.fields[0].data_type = DataType::Struct(inner.into());
    let again = arrow::from_rows_schema(&arrow::to_source_schema(&schema)).unwrap();
    assert_eq!(again, schema);
    assert_eq!(arrow::from_rows_schema(&arrow::to_source_schema(&again)).unwrap(), schema);
}

/// A type `=` the metadata of GeoArrow's extension, `-` without the extension.
const GEOARROW: &str = r#"
geometry(OGC:CRS84)              = {"crs":"OGC:CRS84","crs_type":"authority_code"}
geometry(srid:4326)              = {"crs":"4326","crs_type":"srid"}
geometry(SRID:0)                 = none
geometry(projjson:my.crs)        = none
geometry(EngineeringCRS)         = {"crs":"EngineeringCRS"}
geography(EPSG:4326, spherical)  = {"crs":"EPSG:4326","crs_type":"authority_code","edges":"spherical"}
geography(srid:0, vincenty)      = {"edges":"vincenty"}
geography(OGC:CRS84, planar)     = -
"#;

#[test]
fn geometries_are_binary_with_geoarrow_metadata() {
    for line in GEOARROW.lines().filter(|line| !line.trim().is_empty()) {
        let (name, expected) = line.split_once(" = ").unwrap();
        let schema = json::parse(&one_column(&format!("\"{}\"", name.trim()))).unwrap();
        let field = arrow::to_arrow_field(&schema.fields[0]);
        assert_eq!(field.data_type(), &ArrowType::Binary);
        assert_eq!(field.metadata()["delta.type"], name.trim());
        let extension = field.metadata().get("ARROW:extension:name").map(String::as_str);
        assert_eq!(extension, (expected != "-").then_some("geoarrow.wkb"), "{name}");
        let parameters = field.metadata().get("ARROW:extension:metadata").map_or("none", String::as_str);
        assert!(parameters == expected || expected == "-", "{name}: {parameters}");
        assert_eq!(arrow::from_arrow_schema(&arrow::to_arrow_schema(&schema)).unwrap(), schema);
    }
}

#[test]
fn physical_names_replace_logical_ones_at_any_depth() {
    let field = |name: &str, id: i64, data_type: &str| {
        format!(
            r#"{{"name":"{name}","type":{data_type},"nullable":true,"metadata":
            {{"delta.columnMapping.id":{id},"delta.columnMapping.physicalName":"p{id}"}}}}"#
        )
    };
    let inner = format!(r#"{{"type":"struct","fields":[{}]}}"#, field("b", 2, "\"long\""));
    let outer = format!(r#"{{"type":"array","elementType":{inner},"containsNull":true}}"#);
    let schema = json::parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, field("a", 1, &outer))).unwrap();
    assert_eq!(field_id(&schema.fields[0]), Some(1));
    assert_eq!(ColumnMapping::None.physical_schema(&schema).unwrap(), schema);
    for mode in [ColumnMapping::Name, ColumnMapping::Id] {
        let physical = mode.physical_schema(&schema).unwrap();
        assert_eq!(DataType::Struct(Arc::new(physical)).to_string(), "struct<p1: array<struct<p2: long>>>");
    }
    let plain = json::parse(&one_column("\"long\"")).unwrap();
    assert_eq!(ColumnMapping::Name.physical_schema(&plain).unwrap_err().kind(), &Kind::Corrupt);
}

/// Start, step and watermark `=` the next number, `-` if there is none.
const COUNTING: &str = "
1 1 - = 1
1 1 0 = 1
1 1 7 = 8
5 2 - = 5
5 2 5 = 7
5 2 6 = 7
5 2 -3 = 5
10 -2 - = 10
10 -2 10 = 8
10 -2 7 = 6
10 -2 12 = 10
0 1 9223372036854775807 = -
0 2 9223372036854775806 = -
-9223372036854775808 9223372036854775807 - = -9223372036854775808
-9223372036854775808 9223372036854775807 -1 = 9223372036854775806
-9223372036854775808 9223372036854775807 9223372036854775806 = -
9223372036854775807 -9223372036854775808 9223372036854775807 = -1
0 -1 -9223372036854775808 = -
";

#[test]
fn identity_columns_count() {
    for line in COUNTING.lines().filter(|line| !line.is_empty()) {
        let (case, expected) = line.split_once(" = ").unwrap();
        let numbers: Vec<Option<i64>> = case.split(' ').map(|word| word.parse().ok()).collect();
        let identity = Identity {
            start: numbers[0].unwrap(),
            step: numbers[1].unwrap(),
            watermark: numbers[2],
            allows_explicit: false,
        };
        assert_eq!(identity.next(), expected.parse().ok(), "{line}");
    }
}

#[test]
fn identity_columns_in_a_schema() {
    let schema = |data_type: &str, metadata: &str| {
        let field = one_column(data_type).replace("\"metadata\":{}", &format!("\"metadata\":{{{metadata}}}"));
        json::parse(&field).unwrap()
    };
    let of = |data_type: &str, metadata: &str| {
        Identity::of(&schema(data_type, metadata).fields[0]).map_err(|e| e.message().to_owned())
    };
    let counts = r#""delta.identity.start":3,"delta.identity.step":-2,"delta.identity.allowExplicitInsert":true"#;
    let identity = Identity { start: 3, step: -2, watermark: None, allows_explicit: true };
    assert_eq!(of("\"long\"", counts), Ok(Some(identity)));
    assert_eq!(of("\"long\"", r#""delta.identity.highWaterMark":3"#), Ok(None));
    for (metadata, part) in [
        (r#""delta.identity.start":3"#, "has no `delta.identity.step`"),
        (r#""delta.identity.step":3"#, "has no `delta.identity.start`"),
        (r#""delta.identity.start":3,"delta.identity.step":0"#, "`delta.identity.step` 0"),
        (r#""delta.identity.start":"3","delta.identity.step":1"#, "`delta.identity.start` that is not a long"),
        (r#""delta.identity.start":3,"delta.identity.step":1.5"#, "`delta.identity.step` that is not a long"),
        (r#""delta.identity.start":3,"delta.identity.step":1,"delta.identity.highWaterMark":1e99"#, "highWaterMark"),
        (
            r#""delta.identity.start":3,"delta.identity.step":1,"delta.identity.allowExplicitInsert":1"#,
            "is not a boolean",
        ),
    ] {
        let message = of("\"long\"", metadata).unwrap_err();
        assert!(message.contains(part) && message.contains("`a`"), "{metadata}: {message}");
    }
    assert!(of("\"integer\"", counts).unwrap_err().contains("is integer; identity columns are long"));
    let moved = |schema: &StructType, to: i64| with_watermarks(schema, &[("a".to_owned(), to)].into()).unwrap();
    let after = moved(&schema("\"long\"", counts), -7);
    assert_eq!(Identity::of(&after.fields[0]).unwrap(), Some(Identity { watermark: Some(-7), ..identity }));
    // A watermark never goes back.
    assert_eq!(moved(&after, 1), after);
    assert_eq!(moved(&schema("\"long\"", ""), 1), schema("\"long\"", ""));
}

mod properties {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn primitive() -> impl Strategy<Value = PrimitiveType> {
        prop_oneof![
            Just(PrimitiveType::String),
            Just(PrimitiveType::Long),
            Just(PrimitiveType::Integer),
            Just(PrimitiveType::Short),
            Just(PrimitiveType::Byte),
            Just(PrimitiveType::Float),
            Just(PrimitiveType::Double),
            Just(PrimitiveType::Boolean),
            Just(PrimitiveType::Binary),
            Just(PrimitiveType::Date),
            Just(PrimitiveType::Timestamp),
            Just(PrimitiveType::TimestampNtz),
            (1..=38_u8)
                .prop_flat_map(|precision| (Just(precision), 0..=precision))
                .prop_map(|(precision, scale)| PrimitiveType::Decimal { precision, scale }),
        ]
    }

    /// Types that only the JSON form distinguishes everywhere.
    fn json_only() -> impl Strategy<Value = DataType> {
        prop_oneof![
            Just(DataType::Variant),
            Just(DataType::Primitive(PrimitiveType::Void)),
            "[A-Z]{2,5}:[0-9]{1,5}".prop_map(|crs| DataType::Primitive(PrimitiveType::Geometry { crs })),
            ("[A-Z]{2,5}:[0-9]{1,5}", "[a-z]{1,9}")
                .prop_map(|(crs, algorithm)| DataType::Primitive(PrimitiveType::Geography { crs, algorithm })),
        ]
    }

    fn data_type(leaf: BoxedStrategy<DataType>) -> impl Strategy<Value = DataType> {
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                (inner.clone(), any::<bool>()).prop_map(|(element, contains_null)| DataType::Array(Arc::new(
                    ArrayType { element, contains_null }
                ))),
                (inner.clone(), inner.clone(), any::<bool>()).prop_map(|(key, value, value_contains_null)| {
                    DataType::Map(Arc::new(MapType { key, value, value_contains_null }))
                }),
                fields(inner.boxed()).prop_map(|fields| DataType::Struct(Arc::new(StructType::new(fields)))),
            ]
        })
    }

    /// Fields whose names differ, also case-insensitively.
    fn fields(data_type: BoxedStrategy<DataType>) -> impl Strategy<Value = Vec<StructField>> {
        let metadata = prop::collection::btree_map("[a-z.]{1,8}", ".{0,8}".prop_map(Value::String), 0..3)
            .prop_map(|map| map.into_iter().collect::<Map<String, Value>>());
        prop::collection::vec((".{0,6}", data_type, any::<bool>(), metadata), 0..5).prop_map(|fields| {
            let named = |(i, (name, data_type, nullable, metadata)): (usize, (String, _, _, _))| StructField {
                name: format!("{name}{i}"),
                data_type,
                nullable,
                metadata,
            };
            fields.into_iter().enumerate().map(named).collect()
        })
    }

    proptest! {
        #[test]
        fn schema_json_round_trips(
            fields in fields(data_type(prop_oneof![4 => primitive().prop_map(DataType::Primitive), 1 => json_only()].boxed()).boxed()),
        ) {
            let schema = StructType::new(fields);
            let printed = json::to_json(&schema);
            prop_assert_eq!(json::parse(&printed).unwrap(), schema);
        }

        #[test]
        fn arrow_round_trips(fields in fields(data_type(primitive().prop_map(DataType::Primitive).boxed()).boxed())) {
            let schema = StructType::new(fields);
            prop_assert_eq!(arrow::from_arrow_schema(&arrow::to_arrow_schema(&schema)).unwrap(), schema);
        }

        #[test]
        fn geometry_columns_survive_arrow(data_type in json_only()) {
            let geo = matches!(
                data_type,
                DataType::Primitive(PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. })
            );
            let inside = StructType::new(vec![StructField::new("g", data_type.clone(), true)]);
            let array = ArrayType { element: data_type.clone(), contains_null: false };
            let map = MapType { key: data_type.clone(), value: data_type.clone(), value_contains_null: true };
            let list = ArrayType { element: DataType::Struct(Arc::new(inside)), contains_null: true };
            let columns = [data_type, DataType::Array(Arc::new(array)), DataType::Map(Arc::new(map)), DataType::Array(Arc::new(list))];
            let columns = columns.into_iter().enumerate();
            let schema = StructType::new(columns.map(|(i, t)| StructField::new(format!("c{i}"), t, true)).collect());
            let back = arrow::from_arrow_schema(&arrow::to_arrow_schema(&schema));
            prop_assert!(!geo || back.unwrap() == schema);
        }

        #[test]
        fn hostile_text(
            text in ".{0,80}",
            fields in fields(data_type(primitive().prop_map(DataType::Primitive).boxed()).boxed()),
            at in any::<prop::sample::Index>(),
            with in "[\"{}\\[\\],:a0-]",
        ) {
            let _ = json::parse(&text);
            let _ = json::parse(&one_column(&text));
            let _ = json::parse(&one_column(&Value::String(text).to_string()));
            // A valid schema with one character changed gets further in the parser.
            let mut characters: Vec<char> = json::to_json(&StructType::new(fields)).chars().collect();
            let at = at.index(characters.len());
            characters[at] = with.chars().next().unwrap();
            let changed: String = characters.into_iter().collect();
            if let Ok(schema) = json::parse(&changed) {
                prop_assert_eq!(json::parse(&json::to_json(&schema)).unwrap(), schema);
            }
        }
    }
}
