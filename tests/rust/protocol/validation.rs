//! Valid metadata, and valid changes of metadata.

use std::collections::BTreeMap;

use deltic_protocol::action::Metadata;
use deltic_protocol::error::Kind;
use deltic_protocol::schema::arrow::{from_arrow_schema, to_arrow_schema};
use deltic_protocol::schema::evolve::replace;
use deltic_protocol::schema::json;
use deltic_protocol::validation::{check_change, check_new};
use serde_json::{Value, json};

/// Columns as `name type[!] [id physical]`, separated by commas; `!` is not nullable, `{…}` and `[…]` nest.
fn schema_of(columns: &str) -> String {
    let field = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (name, mut data_type) = (words[0], words[1]);
        let nullable = !data_type.ends_with('!');
        data_type = data_type.trim_end_matches('!');
        let mut metadata = json!({});
        if let [_, _, id, physical] = words[..] {
            metadata = json!({"delta.columnMapping.id": id.parse::<i64>().unwrap(),
                "delta.columnMapping.physicalName": physical});
        }
        let data_type = match data_type.strip_prefix("struct:") {
            Some(inner) => {
                let inner = inner.split('+').map(|f| {
                    let (name, data_type) = f.split_once(':').unwrap();
                    json!({"name": name, "type": data_type, "nullable": true, "metadata": {}})
                });
                json!({"type": "struct", "fields": inner.collect::<Vec<Value>>()})
            }
            None => json!(data_type),
        };
        json!({"name": name, "type": data_type, "nullable": nullable, "metadata": metadata})
    };
    let fields: Vec<Value> = columns.split(',').map(str::trim).filter(|c| !c.is_empty()).map(field).collect();
    json!({"type": "struct", "fields": fields}).to_string()
}

fn configuration(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(key, value)| (format!("delta.{key}"), value.to_owned())).collect()
}

const MAPPED: &str = "columnMapping.mode=name; columnMapping.maxColumnId=2";

const DATED: &str = "inCommitTimestampEnablementVersion=5; inCommitTimestampEnablementTimestamp=9";

const TRACKED_AND_NOT: &str = "enableRowTracking=true; rowTrackingSuspended=true";

#[test]
fn new_metadata() {
    let cases = [
        ("a long, b string", "b", "", "ok"),
        ("a long, b string", "B", "", "ok"),
        ("", "", "", "at least one column"),
        ("a long, A string", "", "", "there twice"),
        ("s struct:x:long+X:long", "", "", "there twice"),
        ("a long, b string", "c", "", "not in the schema"),
        ("a long, b string", "b b", "", "there twice"),
        ("a long, b string", "a b", "", "every column"),
        ("a long, s struct:x:long", "s", "", "without children"),
        ("a;b long", "", "", "has the character ';'"),
        ("_commit_version long", "", "", "ok"),
        ("_commit_version long", "", "enableChangeDataFeed=true", "reserved in a table with a change data feed"),
        ("a long", "", TRACKED_AND_NOT, "cannot both be true"),
        ("a long 1 x, b long 2 y", "", MAPPED, "ok"),
        ("a;b long 1 x, b long 2 y", "", MAPPED, "ok"),
        ("a long 1 x, b long 1 y", "", MAPPED, "have one id, 1"),
        ("a long 1 x, b long 2 x", "", MAPPED, "have one physical name"),
        ("a long 1 x, b long 3 y", "", MAPPED, "larger than"),
        ("a long 1 x, b long 0 y", "", MAPPED, "no valid"),
        ("a long 1 x, b long", "", MAPPED, "no valid"),
        ("a long 1 x", "", "columnMapping.mode=id", "must be set"),
    ];
    for (columns, partition_by, properties, expected) in cases {
        let mut partition_by: Vec<String> = partition_by.split_whitespace().map(str::to_owned).collect();
        let outcome = json::parse(&schema_of(columns))
            .and_then(|schema| check_new(&schema, &mut partition_by, &configuration(properties)));
        match outcome {
            Ok(()) => assert_eq!(expected, "ok", "{columns} | {properties}"),
            Err(e) => assert!(e.message().contains(expected), "{columns} | {properties}: {e}"),
        }
    }
}

#[test]
fn names_with_a_nul_are_refused_even_with_column_mapping() {
    for (mode, id) in [("", ""), (MAPPED, " 1 x")] {
        let schema = schema_of(&format!("a\0b long{id}"));
        let error = check_new(&json::parse(&schema).unwrap(), &mut [], &configuration(mode)).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        assert!(error.message().contains(r"`a\0b` has a NUL character"), "{error}");
    }
}

#[test]
fn column_metadata_of_unsupported_features_is_refused() {
    for (key, feature) in [
        ("delta.columnMapping.id", "columnMapping"),
        ("delta.columnMapping.physicalName", "columnMapping"),
        ("delta.typeChanges", "typeWidening"),
        ("delta.unheard", "delta.unheard"),
    ] {
        let plain = metadata("a long, s struct:x:long", "");
        let mut keyed = plain.clone();
        let members = format!(r#""metadata":{{"{key}":"1"}}"#);
        keyed.schema_string = keyed.schema_string.replacen(r#""metadata":{}"#, &members, 1);
        let schema = keyed.schema().unwrap();
        let new = check_new(&schema, &mut [], &BTreeMap::new()).unwrap_err();
        for error in [new, check_change(&plain, &keyed).unwrap_err()] {
            assert_eq!(error.kind(), &Kind::Unsupported { features: vec![feature.to_owned()] });
            assert!(error.message().contains(key) && error.message().contains('`'), "{error}");
        }
        // A column may keep the key.
        check_change(&keyed, &keyed).unwrap();
    }
}

#[test]
fn existing_names_are_not_checked() {
    let before = |columns: &str| {
        let mut metadata = metadata("z long", "");
        // `schema_of` cannot parse these names.
        let fields: Vec<Value> = columns
            .split(',')
            .map(|name| json!({"name": name, "type": "long", "nullable": true, "metadata": {}}))
            .collect();
        let inner = json!({"type": "struct", "fields": fields});
        let list = json!({"type": "array", "elementType": inner, "containsNull": true});
        let nested = json!({"name": "n m", "type": list, "nullable": true, "metadata": {}});
        let all: Vec<Value> = fields.iter().cloned().chain([nested]).collect();
        metadata.schema_string = json!({"type": "struct", "fields": all}).to_string();
        metadata
    };
    let old = before("Order ID,x;y,x;Y,");
    check_change(&old, &old).unwrap();
    for (columns, expected) in [
        ("Order ID,x;y,x;Y,,plain", "ok"),
        ("Order ID,x;y,x;Y,,new one", "the column name `new one` has the character ' '"),
        ("Order ID,x;y,x;Y,,order id", "there twice"),
    ] {
        match check_change(&old, &before(columns)) {
            Ok(()) => assert_eq!(expected, "ok"),
            Err(error) => assert!(error.message().contains(expected), "{error}"),
        }
    }
}

fn metadata(columns: &str, properties: &str) -> Metadata {
    serde_json::from_value(json!({"id": "t", "schemaString": schema_of(columns), "partitionColumns": [],
        "configuration": configuration(properties)}))
    .unwrap()
}

#[test]
fn changes_of_metadata() {
    let cases = [
        ("a long", "", "a long, b string", "", "ok"),
        ("a long!", "", "a long", "", "ok"),
        ("a long", "", "a long!", "", "stays nullable"),
        ("a long", "", "a long, b long!", "", "must be nullable"),
        ("a long, b long", "", "a long", "", "would be gone"),
        ("a integer", "", "a long", "", "cannot go from the type"),
        ("s struct:x:long", "", "s struct:x:long+y:long", "", "ok"),
        ("s struct:x:long", "", "s struct:y:long", "", "would be gone"),
        ("a long", "", "a long 1 a", "columnMapping.mode=name; columnMapping.maxColumnId=1", "ok"),
        ("a long", "", "a long 1 a", "columnMapping.mode=id; columnMapping.maxColumnId=1", "cannot go from none to id"),
        ("a long 1 x, b long 2 y", MAPPED, "a long 1 x, b long 2 y", "", "cannot go from name to none"),
        ("a long 1 x, b long 2 y", MAPPED, "c long 1 x", MAPPED, "ok"),
        ("a long", "", "a long", DATED, "ok"),
        ("a long", DATED, "a long", "", "ok"),
        ("a long", DATED, "a long", "inCommitTimestampEnablementVersion=5", "belong together"),
        ("a long", "", "a long", "inCommitTimestampEnablementTimestamp=9", "belong together"),
        // An incomplete pair can be completed.
        ("a long", "inCommitTimestampEnablementTimestamp=9", "a long", DATED, "ok"),
        ("a long", "", "a long", "rowTrackingSuspended=true", "ok"),
        ("a long", "enableRowTracking=true", "a long", TRACKED_AND_NOT, "cannot both be true"),
        (
            "a long 1 x, b long 2 y",
            MAPPED,
            "a long 1 x",
            "columnMapping.mode=name; columnMapping.maxColumnId=1",
            "cannot become smaller",
        ),
    ];
    for (columns, properties, new_columns, new_properties, expected) in cases {
        let outcome = check_change(&metadata(columns, properties), &metadata(new_columns, new_properties));
        match outcome {
            Ok(()) => assert_eq!(expected, "ok", "{columns} to {new_columns}"),
            Err(e) => {
                assert_eq!(e.kind(), &Kind::Invalid, "{e}");
                assert!(e.message().contains(expected), "{columns} to {new_columns}: {e}");
            }
        }
    }
    let before = metadata("a long", "");
    let other = Metadata { id: "u".to_owned(), ..before.clone() };
    assert!(check_change(&before, &other).unwrap_err().message().contains("keeps its id"));
}

#[test]
fn replaced_columns_keep_their_metadata() {
    let parse = |columns: &str| json::parse(&schema_of(columns)).unwrap();
    let mut before = parse("a long, s struct:x:long");
    before.fields[0].metadata.insert("comment".to_owned(), json!("old"));
    before.fields[0].metadata.insert("delta.typeChanges".to_owned(), json!([]));
    let mut after = parse("a long, s struct:x:long+y:long, b long");
    after.fields[0].metadata.insert("comment".to_owned(), json!("new"));
    let kept = replace(&before, &after);
    assert_eq!(kept.fields[0].metadata.len(), 2);
    assert_eq!(kept.fields[0].metadata["comment"], json!("new"));
    assert_eq!(kept.fields[1..], after.fields[1..]);
}

#[test]
fn metadata_values_survive_arrow_strings() {
    let parse = |columns: &str| json::parse(&schema_of(columns)).unwrap();
    let values = json!({"n": 7, "float": 1.5, "flag": true, "none": null, "list": [1, "b"], "object": {"k": 1},
        "text": "7", "quoted": "\"7\"", "comment": "old"});
    let mut before = parse("a long, b long");
    before.fields[0].metadata = values.as_object().unwrap().clone();
    let through_text = from_arrow_schema(&to_arrow_schema(&before)).unwrap();
    assert_eq!(replace(&before, &through_text), before);
    // A different value replaces the old one.
    let mut after = through_text;
    let others = [("n", json!("8")), ("text", json!("\"7\"")), ("quoted", json!("7")), ("comment", json!("new"))];
    for (key, value) in others {
        after.fields[0].metadata.insert(key.to_owned(), value.clone());
        assert_eq!(replace(&before, &after).fields[0].metadata[key], value, "{key}");
    }
}
