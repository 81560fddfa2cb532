//! Protocol and metadata of RESTORE and CLONE.

use deltic_protocol::action::Metadata;
use deltic_protocol::alter::{copied, restored};
use deltic_protocol::feature::merged;
use deltic_protocol::schema::identity::Identity;

use super::feature::{print, protocol};

/// The newest protocol, an older one, and both merged.
const PROTOCOLS: &[(&str, &str, &str)] = &[
    ("1,2", "1,2", "1,2"),
    ("1,4", "1,2", "1,4"),
    ("1,2", "2,5", "2,5"),
    ("1,7 w:appendOnly,invariants", "1,2", "1,7 w:appendOnly,invariants"),
    (
        "1,2",
        "3,7 r:deletionVectors w:appendOnly,deletionVectors,invariants",
        "3,7 r:deletionVectors w:appendOnly,deletionVectors,invariants",
    ),
    ("1,7 w:appendOnly", "1,2", "1,7 w:appendOnly,invariants"),
    (
        "3,7 r:deletionVectors w:deletionVectors",
        "1,7 w:domainMetadata",
        "3,7 r:deletionVectors w:deletionVectors,domainMetadata",
    ),
    (
        "1,7 w:rowTracking,domainMetadata",
        "3,7 r:timestampNtz w:timestampNtz",
        "3,7 r:timestampNtz w:domainMetadata,rowTracking,timestampNtz",
    ),
    (
        "1,7 w:appendOnly,invariants",
        "2,5",
        "3,7 r:columnMapping w:appendOnly,changeDataFeed,checkConstraints,columnMapping,generatedColumns,invariants",
    ),
];

#[test]
fn merged_protocols_have_all_features() {
    for (newest, older, expected) in PROTOCOLS {
        assert_eq!(&print(&merged(&protocol(newest), &protocol(older))), expected, "{newest} and {older}");
    }
}

fn metadata(fields: &str, properties: &[(&str, &str)]) -> Metadata {
    Metadata {
        id: "old".to_owned(),
        name: Some("name".to_owned()),
        description: None,
        format: Default::default(),
        schema_string: format!(r#"{{"type":"struct","fields":[{fields}]}}"#),
        partition_columns: Vec::new(),
        created_time: Some(1),
        configuration: properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

fn column(name: &str, members: &str) -> String {
    format!(r#"{{"name":"{name}","type":"long","nullable":true,"metadata":{{{members}}}}}"#)
}

fn identity(step: i64, watermark: Option<i64>, more: &str) -> String {
    let mark = watermark.map(|mark| format!(r#","delta.identity.highWaterMark":{mark}"#)).unwrap_or_default();
    format!(
        r#""delta.identity.start":1,"delta.identity.step":{step},"delta.identity.allowExplicitInsert":false{mark}{more}"#
    )
}

#[test]
fn identity_watermarks_never_go_back() {
    let protocol = protocol("1,6");
    let cases = [
        (1, Some(9), Some(4), Some(9)),
        (1, Some(9), None, Some(9)),
        (1, None, Some(4), Some(4)),
        (-1, Some(-9), Some(-4), Some(-9)),
        (-1, Some(-2), Some(-4), Some(-4)),
    ];
    for (step, newest, old, expected) in cases {
        let of = |mark| metadata(&column("id", &identity(step, mark, "")), &[]);
        let (_, metadata) = restored((&protocol, &of(newest)), (&protocol, &of(old)), false).unwrap();
        let schema = metadata.schema().unwrap();
        let field = schema.fields.first().unwrap();
        assert_eq!(Identity::of(field).unwrap().unwrap().watermark, expected, "{step} {newest:?} {old:?}");
    }
}

#[test]
fn identity_columns_are_matched_by_physical_name() {
    let protocol = protocol("2,6");
    let mapped = [("delta.columnMapping.mode", "name"), ("delta.columnMapping.maxColumnId", "1")];
    let physical = r#","delta.columnMapping.id":1,"delta.columnMapping.physicalName":"p""#;
    let of = |name: &str, mark| metadata(&column(name, &identity(1, Some(mark), physical)), &mapped);
    let (_, metadata) = restored((&protocol, &of("new", 8)), (&protocol, &of("old", 3)), false).unwrap();
    let schema = metadata.schema().unwrap();
    assert_eq!(Identity::of(schema.fields.first().unwrap()).unwrap().unwrap().watermark, Some(8));
}

#[test]
fn identity_columns_are_matched_by_name_after_column_mapping_was_dropped() {
    let mapped = [("delta.columnMapping.mode", "name"), ("delta.columnMapping.maxColumnId", "1")];
    let physical = r#","delta.columnMapping.id":1,"delta.columnMapping.physicalName":"p""#;
    let newest = metadata(&column("id", &identity(1, Some(8), "")), &[]);
    let old = metadata(&column("id", &identity(1, Some(3), physical)), &mapped);
    let (_, metadata) = restored((&protocol("1,6"), &newest), (&protocol("2,6"), &old), false).unwrap();
    let schema = metadata.schema().unwrap();
    assert_eq!(Identity::of(schema.fields.first().unwrap()).unwrap().unwrap().watermark, Some(8));
}

#[test]
fn properties_of_the_history_stay() {
    let protocol = protocol("1,7 w:checkpointProtection,inCommitTimestamp");
    let plain = metadata(&column("x", ""), &[("mine", "1")]);
    let dated = [
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.inCommitTimestampEnablementTimestamp", "5"),
        ("delta.inCommitTimestampEnablementVersion", "3"),
        ("delta.requireCheckpointProtectionBeforeVersion", "4"),
    ];
    let newest = metadata(&column("x", ""), &dated);
    let (changed, back) = restored((&protocol, &newest), (&protocol, &plain), false).unwrap();
    let expected = metadata(&column("x", ""), &[&dated[..], &[("mine", "1")]].concat());
    assert_eq!((changed, back), (None, expected));
    // A clone begins a new history.
    let (changed, copy) = copied((&protocol, &newest), None, "new".to_owned()).unwrap();
    let enabled = metadata(&column("x", ""), &dated[..1]);
    assert_eq!((changed.as_ref(), copy), (Some(&protocol), Metadata { id: "new".to_owned(), name: None, ..enabled }));
    let (changed, copy) = copied((&protocol, &plain), Some((&protocol, &newest)), "new".to_owned()).unwrap();
    let expected = metadata(&column("x", ""), &[&dated[..], &[("mine", "1")]].concat());
    assert_eq!((changed, copy), (None, expected));
}
