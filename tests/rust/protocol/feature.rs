//! Features and table properties: reading, writing, refusal, and defaults of new tables.

use std::collections::BTreeMap;

use deltic_protocol::action::{Metadata, Protocol};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::feature::{self, FEATURES, check_readable, check_writable, protocol_for};
use deltic_protocol::property::{self, PROPERTIES, Properties, RowTracking, check_settable, parse_interval};
use deltic_protocol::schema::json;

use super::docs_tables;

/// Parses `3,7 r:a,b w:c`; `r:` is an empty list.
pub(super) fn protocol(text: &str) -> Protocol {
    let mut words = text.split_whitespace();
    let (reader, writer) = words.next().unwrap().split_once(',').unwrap();
    let mut protocol = Protocol {
        min_reader_version: reader.parse().unwrap(),
        min_writer_version: writer.parse().unwrap(),
        reader_features: None,
        writer_features: None,
    };
    for word in words {
        let (list, names) = word.split_once(':').unwrap();
        let names = names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if list == "r" { protocol.reader_features = Some(names) } else { protocol.writer_features = Some(names) }
    }
    protocol
}

pub(super) fn print(protocol: &Protocol) -> String {
    let list = |name: &str, features: &Option<Vec<String>>| {
        features.as_ref().map_or(String::new(), |f| format!(" {name}:{}", f.join(",")))
    };
    format!(
        "{},{}{}{}",
        protocol.min_reader_version,
        protocol.min_writer_version,
        list("r", &protocol.reader_features),
        list("w", &protocol.writer_features)
    )
}

/// `key=value; key=value`
fn configuration(text: &str) -> BTreeMap<String, String> {
    text.split(';')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

fn outcome(result: Result<(), Error>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => match error.kind() {
            Kind::Unsupported { features } => features.join(" "),
            kind => format!("{kind:?} {}", error.message()),
        },
    }
}

/// Protocol `=` the unsupported features, `ok`, or kind and part of the message.
const READABLE: &str = "
1,1                                                    = ok
1,2                                                    = ok
2,5                                                    = ok
1,7 w:anything,at,all                                  = ok
0,0                                                    = ok
4,7 r: w:                                              = reader version 4
4,7                                                    = reader version 4
3,7 r: w:                                              = ok
3,7                                                    = Corrupt lists no readerFeatures
3,5 r:                                                 = ok
3,7 r:deletionVectors,columnMapping,timestampNtz,v2Checkpoint,vacuumProtocolCheck w: = ok
3,7 r:typeWidening,typeWidening-preview,variantType,variantType-preview w:           = ok
3,7 r:timestampWithoutTimezone w:                      = ok
3,7 r:appendOnly w:                                    = ok
3,7 r:zebra,deletionVectors,apple w:                   = apple zebra
3,7 r:DeletionVectors w:                               = DeletionVectors
3,7 r:variantType,variantShredding,variantShredding-preview w:                       = ok
3,7 r:geospatial,geospatial-dev,geospatial-preview w:  = ok
3,7 r:catalogManaged w:                                = catalogManaged
3,7 r:catalogOwned-preview w:                          = catalogOwned-preview
3,7 r:timestampNanos,adaptiveMetadata-preview,redirectReaderWriter-preview w: = adaptiveMetadata-preview redirectReaderWriter-preview timestampNanos
1,2 r:zebra                                            = zebra
1,2 r:deletionVectors                                  = ok
";

#[test]
fn readable() {
    for (protocol_text, expected) in lines(READABLE) {
        let actual = outcome(check_readable(&protocol(protocol_text)));
        assert!(matches(&actual, expected), "{protocol_text}: {actual}");
    }
    let error = check_readable(&protocol("3,7 r:catalogManaged w:")).unwrap_err();
    assert!(error.message().contains("open it through its catalog"), "{error}");
}

fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(|line| {
        let (case, expected) = line.rsplit_once(" = ").unwrap();
        (case.trim(), expected.trim())
    })
}

fn matches(actual: &str, expected: &str) -> bool {
    match expected.split_once(' ') {
        Some((kind @ ("Corrupt" | "Invalid"), part)) => actual.starts_with(kind) && actual.contains(part),
        _ => actual == expected,
    }
}

const PLAIN: &str = r#"{"name":"a","type":"long","nullable":true,"metadata":{}}"#;

fn schema_string(field: &str) -> String {
    let field = match field.trim() {
        "" => PLAIN.to_owned(),
        "ntz" => PLAIN.replace("long", "timestamp_ntz"),
        "variant" => PLAIN.replace("long", "variant"),
        "geometry" => PLAIN.replace("long", "geometry(OGC:CRS84)"),
        "variants" => PLAIN.replace("\"long\"", r#"{"type":"array","elementType":"variant","containsNull":true}"#),
        nested if nested.starts_with("nested ") => {
            let inner = PLAIN.replace("{}", &format!("{{\"{}\":\"1\"}}", &nested[7..]));
            let inner = format!(r#"{{"type":"struct","fields":[{inner}]}}"#);
            let map = format!(r#"{{"type":"map","keyType":"string","valueType":{inner},"valueContainsNull":true}}"#);
            PLAIN.replace("\"long\"", &map)
        }
        key => PLAIN.replace("{}", &format!("{{\"{key}\":\"1\"}}")),
    };
    format!(r#"{{"type":"struct","fields":[{field}]}}"#)
}

fn metadata(column: &str, properties: &str) -> Metadata {
    let mut configuration = configuration(properties);
    let partition_columns = configuration.remove("partitioned").map(|name| vec![name]).unwrap_or_default();
    Metadata {
        id: "x".to_owned(),
        name: None,
        description: None,
        format: Default::default(),
        schema_string: schema_string(column),
        partition_columns,
        created_time: None,
        configuration,
    }
}

/// Protocol `|` column `|` properties `=` outcome of an append.
const WRITABLE: &str = "
# legacy versions, by what is used
1,1 | |                                                          = ok
1,2 | |                                                          = ok
1,3 | |                                                          = ok
1,4 | | delta.enableChangeDataFeed=true                          = ok
2,5 | | delta.columnMapping.mode=none                            = ok
1,6 | | delta.appendOnly=true                                    = ok
1,2 | delta.invariants |                                         = ok
1,1 | delta.invariants |                                         = invariants
1,2 | nested delta.invariants |                                  = ok
1,3 | | delta.constraints.positive=a > 0                         = ok
1,2 | | delta.constraints.positive=a > 0                         = checkConstraints
1,4 | delta.generationExpression |                               = ok
1,3 | delta.generationExpression |                               = generatedColumns
2,5 | | delta.columnMapping.mode=name                            = ok
2,5 | | delta.columnMapping.mode=id                              = ok
2,5 | | delta.columnMapping.mode=other                           = Corrupt none, name or id
1,6 | delta.identity.start |                                     = ok
1,5 | delta.identity.start |                                     = identityColumns
1,6 | nested delta.identity.step | delta.constraints.x=y         = identityColumns
# used without being allowed
1,1 | | delta.constraints.positive=a > 0                         = checkConstraints
1,2 | | delta.enableRowTracking=true                             = rowTracking
1,2 | | delta.columnMapping.mode=name                            = columnMapping
1,6 | | delta.columnMapping.mode=name                            = columnMapping
1,7 w:columnMapping | | delta.columnMapping.mode=name            = columnMapping
3,7 r: w:columnMapping | | delta.columnMapping.mode=id           = columnMapping
1,2 | | delta.enableTypeWidening=true                            = typeWidening
3,7 r: w:typeWidening | | delta.enableTypeWidening=true          = typeWidening
1,2 | delta.identity.start |                                     = identityColumns
1,2 | CURRENT_DEFAULT |                                          = allowColumnDefaults
1,2 | ntz |                                                      = Corrupt needs the feature `timestampNtz`
1,2 | geometry |                                                 = Corrupt needs the feature `geospatial`
1,2 | variant |                                                  = Corrupt needs the feature `variantType`
# listed
1,7 w: | |                                                       = ok
1,7 | |                                                          = Corrupt lists no writerFeatures
1,8 w: | |                                                       = writer version 8
3,5 r: | |                                                       = Corrupt which must be 7
3,7 w: | |                                                       = Corrupt lists no readerFeatures
3,7 r:zebra w:zebra | |                                          = zebra
1,7 w:zebra,apple,appendOnly | |                                 = apple zebra
3,7 r:deletionVectors w: | |                                     = ok
1,7 w:appendOnly,invariants,checkConstraints,changeDataFeed,generatedColumns,identityColumns | | = ok
1,7 w:domainMetadata,allowColumnDefaults,inCommitTimestamp,icebergCompatV1,icebergCompatV2,checkpointProtection | | = ok
3,7 r:columnMapping w:columnMapping | |                          = ok
3,7 r:columnMapping w:columnMapping | | delta.columnMapping.mode=id = ok
2,7 w:columnMapping | | delta.columnMapping.mode=name            = ok
3,7 r:deletionVectors w:deletionVectors | | delta.enableDeletionVectors=true = ok
3,7 r:v2Checkpoint w:v2Checkpoint | | delta.checkpointPolicy=v2  = ok
3,7 r:vacuumProtocolCheck w:vacuumProtocolCheck | |              = ok
3,7 r:timestampNtz w:timestampNtz | ntz |                        = ok
3,7 r:timestampWithoutTimezone w:timestampWithoutTimezone | ntz | = ok
3,7 r:variantType w:variantType | |                              = ok
3,7 r:variantType w:variantType | variant |                      = ok
3,7 r:variantType-preview w:variantType-preview | variants |     = ok
3,7 r:variantType,variantShredding w:variantType,variantShredding | variant | = ok
3,7 r:variantShredding-preview w:variantShredding-preview | |    = ok
3,7 r:variantShredding w:variantShredding | variant |            = Corrupt needs the feature `variantType`
3,7 r:geospatial w:geospatial | geometry |                       = ok
3,7 r:geospatial-preview w:geospatial-preview | geometry |       = ok
3,7 r:geospatial-dev w:geospatial-dev | |                        = ok
3,7 r:typeWidening w:typeWidening | |                            = ok
3,7 r:typeWidening w:typeWidening | | delta.enableTypeWidening=true = ok
3,7 r:typeWidening-preview w:typeWidening-preview | | delta.enableTypeWidening=TRUE = ok
1,7 w:allowColumnDefaults | CURRENT_DEFAULT |                    = ok
1,7 w:inCommitTimestamp | | delta.enableInCommitTimestamps=true  = ok
1,7 w: | | delta.enableInCommitTimestamps=true                   = inCommitTimestamp
1,7 w:inCommitTimestamp | | delta.enableInCommitTimestamps=yes   = Corrupt true or false
1,7 w:icebergCompatV1 | | delta.enableIcebergCompatV1=true       = icebergCompatV1
1,7 w: | | delta.enableIcebergCompatV2=true                      = icebergCompatV2
1,7 w:icebergWriterCompatV1 | |                                  = ok
1,7 w: | | delta.enableIcebergWriterCompatV1=true                = icebergWriterCompatV1
1,7 w:icebergNativeV4-preview | |                                = icebergNativeV4-preview
1,7 w:checkpointProtection | | delta.requireCheckpointProtectionBeforeVersion=0 = ok
1,7 w:checkpointProtection | | delta.requireCheckpointProtectionBeforeVersion=9 = ok
1,7 w:materializePartitionColumns | |                            = ok
1,7 w:materializePartitionColumns | | partitioned=a              = ok
1,7 w:columnMappingUsageTracking,collations,collations-preview,domainMetadata | | = ok
1,7 w:appendOnly | | partitioned=a                               = ok
1,7 w:rowTracking,domainMetadata | |                             = ok
1,7 w:rowTracking,domainMetadata | | delta.enableRowTracking=true = ok
1,7 w:rowTracking,domainMetadata | | delta.rowTrackingSuspended=true = ok
1,7 w:rowTracking,domainMetadata | | delta.enableRowTracking=true; delta.rowTrackingSuspended=true = rowTracking
1,7 w:rowTracking | |                                            = rowTracking
1,7 w:clustering,domainMetadata | |                              = ok
1,7 w:clustering,domainMetadata | | partitioned=a                = clustering
1,7 w:clustering | |                                             = clustering
1,7 w:identityColumns | delta.identity.start |                   = ok
1,7 w:coordinatedCommits-preview,redirectWriterOnly-preview | |  = coordinatedCommits-preview redirectWriterOnly-preview
3,7 r:catalogManaged w:catalogManaged,inCommitTimestamp | |      = catalogManaged
";

#[test]
fn writable() {
    for (case, expected) in lines(WRITABLE) {
        let parts: Vec<&str> = case.split('|').map(str::trim).collect();
        let [protocol_text, column, properties] = parts[..] else { panic!("{case}") };
        let metadata = metadata(column, properties);
        let schema = json::parse(&metadata.schema_string).unwrap();
        let actual = outcome(check_writable(&protocol(protocol_text), &metadata, &schema));
        assert!(matches(&actual, expected), "{case}: {actual}");
    }
}

#[test]
fn a_refusal_gives_all_reasons() {
    let metadata = metadata("nested delta.invariants", "delta.constraints.positive=a > 0");
    let schema = metadata.schema().unwrap();
    let error = check_writable(&protocol("1,7 w:rowTracking,zebra"), &metadata, &schema).unwrap_err();
    assert_eq!(
        error.message(),
        "deltic cannot write to this table because of `checkConstraints` (the table has the constraint `positive`, and the \
         protocol does not list it), `invariants` (column `a.a` has an invariant, and the protocol does not list it), \
         `rowTracking` (the protocol does not list `domainMetadata`, which it \
         needs), \
         `zebra` (not known to this version of deltic; upgrade it)"
    );
}

/// Properties of Iceberg tables.
const ICEBERG: [(&str, &str); 4] = [
    ("V1", "delta.enableIcebergCompatV1=true"),
    ("V2", "delta.enableIcebergCompatV2=true"),
    ("V3", "delta.enableIcebergCompatV3=true; delta.enableRowTracking=true"),
    ("W1", "delta.enableIcebergCompatV2=true; delta.enableIcebergWriterCompatV1=true"),
];

/// Version `|` column mapping mode `|` type of the column `|` its other metadata `|` other features and properties `=` part
/// of the reason why the table cannot be written, or `ok`.
const ICEBERG_RULES: &str = r#"
V1 | name | "long" | | = ok
V1 | id | {"type":"struct","fields":[]} | | = ok
V1 | none | "long" | | = columns are not mapped
V1 | name | {"type":"array","elementType":"long","containsNull":true} | | = column `a` is array<long>
V1 | name | "void" | | = column `a` is void
V1 | name | "variant" | | variantType = column `a` is variant
V1 | name | "long" | | deletionVectors = ok
V1 | name | "long" | | deletionVectors; delta.enableDeletionVectors=true = `delta.enableDeletionVectors` is true
V1 | name | "long" | "delta.typeChanges":[{"fromType":"short","toType":"long"},{"fromType":"decimal(4,1)","toType":"decimal(9,1)"}] | typeWidening = ok
V1 | name | "double" | "delta.typeChanges":[{"fromType":"integer","toType":"double"}] | typeWidening = changed from integer to double
V2 | name | "decimal(9,2)" | "delta.typeChanges":[{"fromType":"decimal(5,1)","toType":"decimal(9,2)"}] | typeWidening = changed from decimal(5,1)
V3 | name | "long" | "delta.typeChanges":[{"fromType":"date","toType":"timestamp_ntz"}] | typeWidening = changed from date
V3 | name | "long" | "delta.typeChanges":[{"fromType":7}] | typeWidening = changed from something else
V2 | name | "byte" | | = ok
V2 | name | {"type":"array","elementType":"long","containsNull":true} | | = column `a` has no nested id for `col-1.element`
V2 | name | {"type":"array","elementType":"long","containsNull":true} | "delta.columnMapping.nested.ids":{"col-1.element":7} | = ok
V2 | name | {"type":"map","keyType":"long","valueType":{"type":"array","elementType":"long","containsNull":true},"valueContainsNull":true} | "delta.columnMapping.nested.ids":{"col-1.key":7,"col-1.value":8} | = nested id for `col-1.value.element`
V2 | name | "variant" | | variantType = column `a` is variant
V2 | name | "long" | | icebergCompatV1; delta.enableIcebergCompatV1=true = `icebergCompatV1` is enabled too
V2 | name | "long" | | deletionVectors; delta.enableDeletionVectors=true = `delta.enableDeletionVectors` is true
V3 | name | "variant" | | variantType = ok
V3 | name | "long" | | deletionVectors; delta.enableDeletionVectors=true = ok
V3 | name | "void" | | = column `a` is void
V3 | name | "long" | | ; delta.enableRowTracking=false = row tracking is not enabled
W1 | id | "long" | | = ok
W1 | name | "long" | | = columns are not mapped by id
W1 | id | "short" | | = column `a` is short
W1 | id | "long" | | ; delta.enableIcebergCompatV2=false = `icebergCompatV2` is not enabled
W1 | id | "long" | | allowColumnDefaults = the protocol lists `allowColumnDefaults`
W1 | id | "long" | | clustering = ok
W1 | id | "long" | | changeDataFeed; delta.enableChangeDataFeed=true = `delta.enableChangeDataFeed` is true
W1 | id | "long" | "delta.identity.start":1 | identityColumns = column `a` is an identity
W1 | id | "long" | "delta.columnMapping.physicalName":"a" | = another physical name
"#;

#[test]
fn iceberg_rules() {
    for (case, expected) in lines(ICEBERG_RULES) {
        let parts: Vec<&str> = case.split('|').map(str::trim).collect();
        let [version, mode, data_type, more, rest] = parts[..] else { panic!("{case}") };
        let (features, properties) = rest.split_once(';').unwrap_or((rest, ""));
        let compat = if version == "W1" { "icebergCompatV2,icebergWriterCompatV1" } else { "icebergCompat" };
        let compat = if version == "W1" { compat.to_owned() } else { format!("{compat}{version}") };
        let tracking = if version == "V3" { ",rowTracking" } else { "" };
        let features = features.trim();
        let readers = |name: &str| feature::find(name).is_some_and(|f| f.is_for_readers());
        let readers = if readers(features) { format!(",{features}") } else { String::new() };
        let protocol = protocol(&format!(
            "3,7 r:columnMapping{readers} w:columnMapping,domainMetadata,{compat}{tracking},{features}"
        ));
        let own = ICEBERG.iter().find(|(name, _)| *name == version).unwrap().1;
        let mut metadata = metadata("", &format!("{own}; delta.columnMapping.mode={mode};{properties}"));
        let names = r#""delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1""#;
        let names = if more.is_empty() { names.to_owned() } else { format!("{names},{more}") };
        let field = format!(r#"{{"name":"a","type":{data_type},"nullable":true,"metadata":{{{names}}}}}"#);
        metadata.schema_string = format!(r#"{{"type":"struct","fields":[{field}]}}"#);
        let actual = match check_writable(&protocol, &metadata, &metadata.schema().unwrap()) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.message().to_owned(),
        };
        assert!(actual == expected || actual.contains(expected) && expected != "ok", "{case}: {actual}");
        let partitions = feature::materializes_partition_columns(&protocol, &metadata).unwrap();
        assert!(partitions || properties.contains("CompatV2=false"), "{case}");
    }
}

/// Protocol `|` properties to set `=` the new protocol, `-` if unchanged.
const UPGRADES: &str = "
1,2 | delta.appendOnly=true; my.own=1 = -
1,1 | my.own=1 = -
1,1 | delta.appendOnly=true = 1,2
1,1 | delta.appendOnly=false = -
1,1 | delta.feature.invariants=supported = 1,2
1,1 | delta.appendOnly=true; delta.enableChangeDataFeed=true = 1,7 w:appendOnly,changeDataFeed,invariants
1,7 w: | delta.appendOnly=true = 1,7 w:appendOnly,invariants
1,7 w: | delta.appendOnly=false = -
1,7 w: | delta.feature.appendOnly=supported = 1,7 w:appendOnly,invariants
1,7 w:appendOnly | delta.appendOnly=true = -
3,7 r:deletionVectors w:deletionVectors | delta.appendOnly=TRUE = 3,7 r:deletionVectors w:appendOnly,deletionVectors,invariants
1,2 | delta.enableDeletionVectors=true = 3,7 r:deletionVectors w:appendOnly,deletionVectors,invariants
1,2 | delta.enableChangeDataFeed=true = 1,7 w:appendOnly,changeDataFeed,invariants
1,4 | delta.enableChangeDataFeed=true = -
1,4 | delta.checkpointPolicy=v2 = 3,7 r:v2Checkpoint w:appendOnly,changeDataFeed,checkConstraints,generatedColumns,invariants,v2Checkpoint
1,7 w: | delta.logRetentionDuration=1 day = -
1,7 w: | delta.feature.rowTracking=supported = 1,7 w:appendOnly,domainMetadata,invariants,rowTracking
1,7 w:appendOnly | delta.enableInCommitTimestamps=true = 1,7 w:appendOnly,inCommitTimestamp,invariants
3,7 r:deletionVectors w:deletionVectors | delta.feature.domainMetadata=supported = 3,7 r:deletionVectors w:appendOnly,deletionVectors,domainMetadata,invariants
2,5 | delta.enableDeletionVectors=true = 3,7 r:columnMapping,deletionVectors w:appendOnly,changeDataFeed,checkConstraints,columnMapping,deletionVectors,generatedColumns,invariants
1,2 | delta.feature.zebra=supported = Invalid does not exist
1,2 | delta.feature.icebergCompatV2=supported = Invalid `icebergCompatV2` needs `columnMapping`
1,2 | delta.feature.icebergCompatV3=supported = Invalid needs `columnMapping` and `rowTracking`
1,2 | delta.feature.icebergCompatV1=supported; delta.feature.columnMapping=supported = 3,7 r:columnMapping w:appendOnly,columnMapping,icebergCompatV1,invariants
2,5 | delta.feature.icebergCompatV2=supported = 3,7 r:columnMapping w:appendOnly,changeDataFeed,checkConstraints,columnMapping,generatedColumns,icebergCompatV2,invariants
3,7 r:columnMapping w:columnMapping | delta.feature.icebergCompatV3=supported = Invalid needs `rowTracking`, which
# what was there before is not judged
1,7 w:icebergCompatV1 | delta.feature.domainMetadata=supported = 1,7 w:appendOnly,domainMetadata,icebergCompatV1,invariants
1,2 | delta.feature.clustering=supported = 1,7 w:appendOnly,clustering,domainMetadata,invariants
";

#[test]
fn upgrades() {
    for (case, expected) in lines(UPGRADES) {
        let (before, properties) = case.split_once('|').unwrap();
        let schema = json::parse(&schema_string("")).unwrap();
        let actual = match feature::upgraded(&protocol(before.trim()), (&schema, &schema), &configuration(properties)) {
            Ok(Some(protocol)) => print(&protocol),
            Ok(None) => "-".to_owned(),
            Err(error) => outcome(Err(error)),
        };
        assert!(matches(&actual, expected), "{case}: {actual}");
    }
}

/// Column `|` properties `=` protocol of a new table, or outcome.
const NEW_TABLES: &str = "
| = 1,2
| delta.appendOnly=true; my.own=1; other=2; Deltoid=3            = 1,2
ntz | = 3,7 r:timestampNtz w:appendOnly,invariants,timestampNtz
variant | = 3,7 r:variantType w:appendOnly,invariants,variantType
geometry | = 3,7 r:geospatial w:appendOnly,geospatial,invariants
| delta.enableChangeDataFeed=true                                = 1,7 w:appendOnly,changeDataFeed,invariants
| delta.enableChangeDataFeed=false                               = 1,2
| delta.enableDeletionVectors=true                               = 3,7 r:deletionVectors w:appendOnly,deletionVectors,invariants
| delta.enableDeletionVectors=TRUE; delta.enableChangeDataFeed=true = 3,7 r:deletionVectors w:appendOnly,changeDataFeed,deletionVectors,invariants
| delta.checkpointPolicy=v2                                      = 3,7 r:v2Checkpoint w:appendOnly,invariants,v2Checkpoint
| delta.minWriterVersion=4                                       = 1,4
| delta.minReaderVersion=2                                       = 2,5
| delta.minWriterVersion=7                                       = 1,7 w:appendOnly,invariants
| delta.minReaderVersion=3                                       = 3,7 r: w:appendOnly,invariants
| delta.minWriterVersion=4; delta.enableDeletionVectors=true     = 3,7 r:deletionVectors w:appendOnly,changeDataFeed,checkConstraints,deletionVectors,generatedColumns,invariants
| delta.minReaderVersion=2; delta.enableChangeDataFeed=true      = 3,7 r:columnMapping w:appendOnly,changeDataFeed,checkConstraints,columnMapping,generatedColumns,invariants
| delta.minWriterVersion=8                                       = Invalid from 1 to 7
| delta.minReaderVersion=x                                       = Invalid whole number
| delta.feature.vacuumProtocolCheck=supported                    = 3,7 r:vacuumProtocolCheck w:appendOnly,invariants,vacuumProtocolCheck
| delta.feature.timestampWithoutTimezone=supported               = 3,7 r:timestampNtz w:appendOnly,invariants,timestampNtz
| delta.feature.domainMetadata=enabled                           = 1,7 w:appendOnly,domainMetadata,invariants
| delta.feature.domainMetadata=no                                = Invalid may only be `supported`
| delta.feature.zebra=supported                                  = Invalid does not exist
| delta.feature.icebergCompatV1=supported                        = Invalid needs `columnMapping`
| delta.feature.icebergCompatV1=supported; delta.minReaderVersion=2 = 3,7 r:columnMapping w:appendOnly,changeDataFeed,checkConstraints,columnMapping,generatedColumns,icebergCompatV1,invariants
| delta.feature.rowTracking=supported                            = 1,7 w:appendOnly,domainMetadata,invariants,rowTracking
| delta.feature.catalogManaged=supported                         = catalogManaged
| delta.feature.variantShredding=supported                       = 3,7 r:variantShredding,variantType w:appendOnly,invariants,variantShredding,variantType
| delta.enableRowTracking=true                                   = 1,7 w:appendOnly,domainMetadata,invariants,rowTracking
| delta.enableRowTracking=false; delta.rowTrackingSuspended=true = 1,2
| delta.enableRowTracking=true; delta.rowTrackingSuspended=true  = Invalid cannot both be true
| delta.enableInCommitTimestamps=true                            = 1,7 w:appendOnly,inCommitTimestamp,invariants
| delta.enableTypeWidening=true                                  = 3,7 r:typeWidening w:appendOnly,invariants,typeWidening
delta.identity.start |                                           = 1,7 w:appendOnly,identityColumns,invariants
| delta.enableVariantShredding=true                              = 3,7 r:variantShredding,variantType w:appendOnly,invariants,variantShredding,variantType
| delta.enableMaterializePartitionColumnsFeature=true            = 1,7 w:appendOnly,invariants,materializePartitionColumns
| delta.columnMapping.mode=name                                  = 3,7 r:columnMapping w:appendOnly,columnMapping,invariants
| delta.columnMapping.mode=none                                  = 1,2
| delta.constraints.x=a > 0                                      = 1,7 w:appendOnly,checkConstraints,invariants
| delta.compatibility.symlinkFormatManifest.enabled=true         = 1,2
| delta.universalFormat.enabledFormats=iceberg                   = universalFormat
| delta.enableIcebergCompatV2=true                               = Invalid `icebergCompatV2` needs `columnMapping`
delta.generationExpression |                                     = 1,7 w:appendOnly,generatedColumns,invariants
CURRENT_DEFAULT |                                                = 1,7 w:allowColumnDefaults,appendOnly,invariants
| delta.appendonly=true                                          = Invalid did you mean `delta.appendOnly`
| Delta.x=true                                                   = Invalid there is no table property `Delta.x`
| delta.=true                                                    = Invalid there is no table property
| delta.checkpointIntervall=5                                    = Invalid did you mean `delta.checkpointInterval`
| delta.checkpointInterval=0                                     = Invalid at least 1
| delta.logRetentionDuration=interval 1 month                    = Invalid months and years
| delta.appendOnly=yes                                           = Invalid true or false
| delta.columnMapping.maxColumnId=5                              = Invalid set by writers, not by hand
| delta.constraints.=x                                           = Invalid there is no table property
";

#[test]
fn new_tables() {
    for (case, expected) in lines(NEW_TABLES) {
        let (column, properties) = case.split_once('|').unwrap();
        let schema = json::parse(&schema_string(column)).unwrap();
        let actual = match protocol_for(&schema, &configuration(properties)) {
            Ok(protocol) => print(&protocol),
            Err(error) => outcome(Err(error)),
        };
        assert!(matches(&actual, expected), "{case}: {actual}");
    }
}

#[test]
fn protocol_instructions_are_not_stored() {
    let properties = configuration(
        "delta.minReaderVersion=2; delta.feature.v2Checkpoint=supported; delta.appendOnly=true; mine=1; \
         delta.ignoreProtocolDefaults=true",
    );
    let stored = property::stored(&properties);
    assert_eq!(stored.keys().collect::<Vec<_>>(), ["delta.appendOnly", "mine"]);
    assert!(property::is_instruction("delta.minWriterVersion") && !property::is_instruction("delta.appendOnly"));
}

#[test]
fn properties_set_by_writers_cannot_be_unset() {
    for property in PROPERTIES {
        let by_hand = property.about.starts_with("set by");
        match property::check_unset(property.name) {
            Ok(()) => assert!(!by_hand, "{}", property.name),
            Err(e) => assert!(by_hand && e.kind() == &Kind::Invalid && e.message().contains(property.about), "{e}"),
        }
    }
    property::check_unset("my.own").unwrap();
}

const INTERVALS: &str = "
interval 1 week                                = 604800000
INTERVAL 2 Weeks 3 days                        = 1468800000
1 day                                          = 86400000
interval 30 days                               = 2592000000
interval  1   hour 30 minutes 5 seconds        = 5405000
interval 7 milliseconds 1999 microseconds      = 8
interval 999 microseconds                      = 0
interval 0 days                                = 0
interval 1 month                               = months
interval 1 years                               = months
interval                                       = interval 7 days
interval 1                                     = numbers with units
interval day                                   = numbers with units
interval -1 day                                = numbers with units
interval 1.5 days                              = numbers with units
interval 1 fortnight                           = units may be
interval 1 dayss                               = units may be
interval 1 day interval                        = numbers with units
interval 99999999999999999999 days             = too long
interval 9223372036854775807 weeks             = too long
interval 9223372036854775807 microseconds 1 microsecond = too long
";

#[test]
fn intervals() {
    for (text, expected) in lines(INTERVALS) {
        match parse_interval(text) {
            Ok(millis) => assert_eq!(millis.to_string(), expected, "{text}"),
            Err(why) => assert!(why.contains(expected), "{text}: {why}"),
        }
    }
    assert!(parse_interval("").is_err());
}

/// All accessors of properties, with their values as strings.
fn read_all(map: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    macro_rules! read {
        ($($name:ident),*) => {
            vec![$((stringify!($name), match Properties::new(map).$name() {
                Ok(value) => format!("{value:?}"),
                Err(error) => { assert_eq!(error.kind(), &Kind::Corrupt); error.message().to_owned() }
            })),*]
        };
    }
    read!(
        checkpoint_interval,
        checkpoint_write_stats_as_json,
        checkpoint_write_stats_as_struct,
        checkpoint_policy,
        data_skipping_num_indexed_cols,
        data_skipping_stats_columns,
        string_prefix_length,
        deleted_file_retention,
        log_retention,
        expired_log_cleanup,
        set_transaction_retention,
        append_only,
        isolation_level,
        change_data_feed,
        deletion_vectors,
        column_mapping_mode,
        in_commit_timestamps,
        target_file_size,
        compression,
        page_version,
        random_prefix_length
    )
}

fn read_one(name: &str, properties: &str) -> String {
    read_all(&configuration(properties)).into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// Accessor `|` properties `=` value, or part of the message.
const VALUES: &str = "
checkpoint_interval |                                                       = 10
checkpoint_interval | delta.checkpointInterval=25                           = 25
checkpoint_interval | delta.checkpointInterval=0                            = `delta.checkpointInterval` is `0`, which is wrong: it must be at least 1
checkpoint_interval | delta.checkpointInterval=-5                           = may not be negative
checkpoint_interval | delta.checkpointInterval=99999999999999999999         = whole number
checkpoint_write_stats_as_json |                                            = true
checkpoint_write_stats_as_struct |                                          = true
checkpoint_write_stats_as_struct | delta.checkpoint.writeStatsAsStruct=False = false
checkpoint_policy | delta.checkpointPolicy=V2                               = TwoLevel
checkpoint_policy | delta.checkpointPolicy=v3                               = classic or v2
data_skipping_num_indexed_cols |                                            = Some(32)
data_skipping_num_indexed_cols | delta.dataSkippingNumIndexedCols=-1        = None
data_skipping_num_indexed_cols | delta.dataSkippingNumIndexedCols=0         = Some(0)
data_skipping_num_indexed_cols | delta.dataSkippingNumIndexedCols=-2        = -1 (all columns)
string_prefix_length |                                                      = 32
deleted_file_retention |                                                    = 604800000
log_retention |                                                             = 2592000000
log_retention | delta.logRetentionDuration=interval 1 hour                  = 3600000
set_transaction_retention |                                                 = None
set_transaction_retention | delta.setTransactionRetentionDuration=2 days    = Some(172800000)
isolation_level |                                                           = Serializable
isolation_level | delta.isolationLevel=WriteSerializable                    = WriteSerializable
isolation_level | delta.isolationLevel=snapshotisolation                    = SnapshotIsolation
isolation_level | delta.isolationLevel=none                                 = it may be Serializable
column_mapping_mode | delta.columnMapping.mode=Name                         = Name
in_commit_timestamps |                                                      = None
in_commit_timestamps | delta.inCommitTimestampEnablementVersion=5           = None
in_commit_timestamps | delta.enableInCommitTimestamps=true                  = Some(InCommitTimestamps { since: None })
in_commit_timestamps | delta.enableInCommitTimestamps=true; delta.inCommitTimestampEnablementVersion=5; delta.inCommitTimestampEnablementTimestamp=9 = Some(InCommitTimestamps { since: Some((5, 9)) })
in_commit_timestamps | delta.enableInCommitTimestamps=true; delta.inCommitTimestampEnablementVersion=5 = only one is set
in_commit_timestamps | delta.enableInCommitTimestamps=true; delta.inCommitTimestampEnablementVersion=-5; delta.inCommitTimestampEnablementTimestamp=9 = may not be negative
target_file_size |                                                          = None
target_file_size | delta.targetFileSize=104857600                           = Some(104857600)
target_file_size | delta.targetFileSize=100 MB                              = Some(104857600)
target_file_size | delta.targetFileSize=1gb                                 = Some(1073741824)
target_file_size | delta.targetFileSize=0                                   = number of bytes
target_file_size | delta.targetFileSize=mb                                  = number of bytes
target_file_size | delta.targetFileSize=1 parsec                            = number of bytes
target_file_size | delta.targetFileSize=18446744073709551615tb              = number of bytes
compression |                                                               = Zstd
compression | delta.parquet.compression.codec=SNAPPY                        = Snappy
compression | delta.parquet.compression.codec=none                          = Uncompressed
compression | delta.parquet.compression.codec=lzo                           = it may be
page_version | delta.parquet.format.version=1.0.0                           = One
page_version | delta.parquet.format.version=2.12.0                          = Two
page_version | delta.parquet.format.version=2                               = 2.<minor>.<patch>
random_prefix_length |                                                      = None
random_prefix_length | delta.randomPrefixLength=4                           = None
random_prefix_length | delta.randomizeFilePrefixes=true                     = Some(2)
random_prefix_length | delta.columnMapping.mode=name                        = Some(2)
random_prefix_length | delta.randomizeFilePrefixes=true; delta.randomPrefixLength=255 = Some(255)
random_prefix_length | delta.randomizeFilePrefixes=true; delta.randomPrefixLength=256 = 1 to 255
random_prefix_length | delta.randomizeFilePrefixes=true; delta.randomPrefixLength=0 = at least 1
data_skipping_stats_columns |                                               = None
data_skipping_stats_columns | delta.dataSkippingStatsColumns=a              = Some([[\"a\"]])
data_skipping_stats_columns | delta.dataSkippingStatsColumns=a, b.c ,`d.e`.`f``g` , h i = Some([[\"a\"], [\"b\", \"c\"], [\"d.e\", \"f`g\"], [\"h i\"]])
data_skipping_stats_columns | delta.dataSkippingStatsColumns=               = Some([])
data_skipping_stats_columns | delta.dataSkippingStatsColumns=`a             = not closed
data_skipping_stats_columns | delta.dataSkippingStatsColumns=`a`b           = must be followed by
data_skipping_stats_columns | delta.dataSkippingStatsColumns=`a`é           = must be followed by
data_skipping_stats_columns | delta.dataSkippingStatsColumns=a,,b           = commas between
data_skipping_stats_columns | delta.dataSkippingStatsColumns=a.             = commas between
data_skipping_stats_columns | delta.dataSkippingStatsColumns=a`b`           = commas between
data_skipping_stats_columns | delta.dataSkippingStatsColumns=``             = is empty
";

#[test]
fn property_values() {
    for (case, expected) in lines(VALUES) {
        let (name, properties) = case.split_once('|').unwrap();
        let actual = read_one(name.trim(), properties);
        let is_message = actual.starts_with("the table propert") || actual.starts_with("of the table");
        assert!(actual == expected || (is_message && actual.contains(expected)), "{case}: {actual}");
    }
}

#[test]
fn documented_defaults_are_the_defaults() {
    let absent = read_all(&BTreeMap::new());
    for property in PROPERTIES.iter().filter(|p| p.default != "unset") {
        let map = BTreeMap::from([(property.name.to_owned(), property.default.to_owned())]);
        assert_eq!(read_all(&map), absent, "{}", property.name);
        if let Err(error) = check_settable(&map) {
            assert!(error.message().contains("not by hand"), "{error}");
        }
    }
    let names: Vec<&str> = PROPERTIES.iter().map(|p| p.name).collect();
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len());
}

/// Protocol `|` properties `=` the materialized columns, `None` without row tracking, or part of the message.
const ROW_TRACKING: &str = "
1,7 w:rowTracking,domainMetadata | delta.enableRowTracking=true = - -
1,7 w:rowTracking,domainMetadata | delta.enableRowTracking=true; delta.rowTracking.materializedRowIdColumnName=i; delta.rowTracking.materializedRowCommitVersionColumnName=v = i v
1,7 w:rowTracking,domainMetadata | delta.rowTracking.materializedRowIdColumnName=i = None
1,7 w:rowTracking,domainMetadata | delta.enableRowTracking=false = None
1,7 w:rowTracking,domainMetadata | delta.enableRowTracking=maybe = true or false
1,7 w:domainMetadata | delta.enableRowTracking=true = None
1,2 | delta.enableRowTracking=true = None
";

#[test]
fn row_tracking_needs_its_feature() {
    for (case, expected) in lines(ROW_TRACKING) {
        let (text, properties) = case.split_once('|').unwrap();
        let map = configuration(properties);
        let actual = match Properties::new(&map).row_tracking(&protocol(text.trim())) {
            Ok(Some(RowTracking { row_id_column: id, row_commit_version_column: version })) => {
                format!("{} {}", id.as_deref().unwrap_or("-"), version.as_deref().unwrap_or("-"))
            }
            Ok(None) => "None".to_owned(),
            Err(error) => error.message().to_owned(),
        };
        assert!(actual == expected || actual.contains(expected), "{case}: {actual}");
    }
}

#[test]
fn an_unlisted_column_mapping_counts_if_the_schema_follows_it() {
    let field = |name: &str, physical: &str| {
        format!(
            r#"{{"name":"{name}","type":"long","nullable":true,"metadata":{{"delta.columnMapping.physicalName":"{physical}"}}}}"#
        )
    };
    let schema =
        |fields: &[String]| json::parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))).unwrap();
    let plain = schema(&[PLAIN.to_owned()]);
    let mapped = schema(&[field("a", "x"), field("b", "y")]);
    let inner = format!(r#"{{"type":"struct","fields":[{}]}}"#, field("a", "x"));
    let outer = format!(r#"{{"name":"s","type":{inner},"nullable":true,"metadata":{{}}}}"#);
    let mixed = [schema(&[PLAIN.to_owned(), field("b", "y")]), schema(&[outer])];
    for (text, mode, of_plain, of_mapped) in [
        ("1,2", "name", "None", "Unlisted"),
        ("1,2", "id", "None", "Id"),
        ("1,2", "none", "None", "None"),
        ("1,2", "other", "None", "None"),
        ("2,5", "name", "Name", "Name"),
        ("2,7 w:columnMapping", "name", "Name", "Name"),
        ("3,7 r:columnMapping w:columnMapping", "id", "Id", "Id"),
        ("3,7 r: w:columnMapping", "name", "None", "Unlisted"),
        ("3,7 r:deletionVectors w:columnMapping", "id", "None", "Id"),
    ] {
        let map = configuration(&format!("delta.columnMapping.mode={mode}"));
        for (schema, expected) in [(&plain, of_plain), (&mapped, of_mapped)] {
            let mode = Properties::new(&map).column_mapping(&protocol(text), schema).unwrap();
            assert_eq!(format!("{mode:?}"), expected, "{text} {mode:?}");
        }
    }
    let map = configuration("delta.columnMapping.mode=name");
    for schema in &mixed {
        let error = Properties::new(&map).column_mapping(&protocol("3,7 r: w:"), schema).unwrap_err();
        assert_eq!(outcome(Err(error)), "columnMapping");
    }
    // The form in which it is passed on is not a valid value of the property.
    let map = configuration("delta.columnMapping.mode=name, not listed");
    assert!(Properties::new(&map).column_mapping_mode().is_err());
}

#[test]
fn feature_names_are_unique() {
    let names: std::collections::BTreeSet<&str> = FEATURES.iter().map(|f| f.name).collect();
    assert_eq!(names.len(), FEATURES.len());
    assert_eq!(feature::find("timestampWithoutTimezone").unwrap().name, "timestampNtz");
    assert!(feature::find("").is_none());
}

/// With `DELTIC_UPDATE_DOCS` set, it writes the tables into the page instead.
#[test]
fn the_documentation_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol-support.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut expected = page.clone();
    for (block, table) in [
        ("features", feature::docs_table()),
        ("unlisted", docs_tables::unlisted_features()),
        ("properties", docs_tables::properties()),
    ] {
        let (before, rest) = expected.split_once(&format!("<!-- {block}: generated -->\n")).unwrap();
        let (_, after) = rest.split_once(&format!("<!-- {block}: end -->")).unwrap();
        expected = format!("{before}<!-- {block}: generated -->\n{table}<!-- {block}: end -->{after}");
    }
    if std::env::var_os("DELTIC_UPDATE_DOCS").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        assert!(page == expected, "docs/protocol-support.md is out of date; run `make docs`");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn any_features() -> impl Strategy<Value = Vec<String>> {
        let known = prop::sample::select(FEATURES.iter().map(|f| f.name.to_owned()).collect::<Vec<_>>());
        prop::collection::vec(prop_oneof![3 => known, 1 => "[a-zA-Z-]{1,12}"], 0..5)
    }

    /// Properties that can be set, with values that can be set.
    fn any_properties() -> impl Strategy<Value = BTreeMap<String, String>> {
        let settable: Vec<(String, String)> = PROPERTIES
            .iter()
            .flat_map(|p| {
                ["true", "false", "v2", "classic", "name", "none", "7", "3", "2", "1", "interval 3 days", "a, b.c"]
                    .map(|value| (p.name.to_owned(), value.to_owned()))
            })
            .chain(FEATURES.iter().map(|f| (format!("delta.feature.{}", f.name), "supported".to_owned())))
            .filter(|(key, value)| check_settable(&BTreeMap::from([(key.clone(), value.clone())])).is_ok())
            .collect();
        prop::collection::vec(prop::sample::select(settable), 0..5).prop_map(|pairs| pairs.into_iter().collect())
    }

    proptest! {
        #![proptest_config(crate::cases(500))]

        #[test]
        fn unknown_features_are_refused(readers in any_features(), writers in any_features(), reader in 0..5, writer in 0..9) {
            let protocol = Protocol {
                min_reader_version: reader,
                min_writer_version: writer,
                reader_features: Some(readers.clone()),
                writer_features: Some(writers.clone()),
            };
            let unknown = |names: &[String]| names.iter().any(|name| feature::find(name).is_none());
            let read = check_readable(&protocol);
            if unknown(&readers) || reader > 3 {
                prop_assert!(read.is_err());
            }
            let metadata = metadata("", "");
            let write = check_writable(&protocol, &metadata, &metadata.schema().unwrap());
            if read.is_err() || unknown(&writers) || writer > 7 || (reader == 3 && writer < 7) {
                prop_assert!(write.is_err());
            }
            if let Err(error) = read {
                let nameless = matches!(error.kind(), Kind::Unsupported { features } if features.is_empty());
                prop_assert!(!nameless);
            }
        }

        #[test]
        fn new_tables_are_readable_and_writable(
            properties in any_properties(),
            column in prop::sample::select(vec!["", "ntz", "geometry", "delta.invariants"]),
        ) {
            let schema = json::parse(&schema_string(column)).unwrap();
            match protocol_for(&schema, &properties) {
                Ok(protocol) => {
                    check_readable(&protocol).unwrap();
                    let mut metadata = metadata(column, "");
                    metadata.configuration = property::stored(&properties);
                    if feature::check_rules(&protocol, &metadata, &schema).is_err() {
                        return Ok(());
                    }
                    check_writable(&protocol, &metadata, &schema).unwrap();
                    // The protocol requires feature lists exactly at versions 3 and 7, and reader features in both.
                    prop_assert_eq!(protocol.reader_features.is_some(), protocol.min_reader_version == 3);
                    prop_assert_eq!(protocol.writer_features.is_some(), protocol.min_writer_version == 7);
                    for name in protocol.reader_features.iter().flatten() {
                        prop_assert!(protocol.writer_features.iter().flatten().any(|f| f == name));
                    }
                }
                Err(error) => prop_assert!(matches!(error.kind(), Kind::Unsupported { .. } | Kind::Invalid), "{}", error),
            }
        }

        #[test]
        fn hostile_values(key in "(delta\\.)?.{0,30}", value in ".{0,60}") {
            let map = BTreeMap::from([(key.clone(), value.clone())]);
            let _ = check_settable(&map);
            let _ = protocol_for(&json::parse(&schema_string("")).unwrap(), &map);
            for property in PROPERTIES {
                let map = BTreeMap::from([(property.name.to_owned(), value.clone())]);
                let settable = check_settable(&map);
                read_all(&map);
                if let Err(error) = settable {
                    prop_assert_eq!(error.kind(), &Kind::Invalid);
                }
            }
        }

        #[test]
        fn intervals_add_up(parts in prop::collection::vec((0..1000_i64, 0..7_usize), 1..5)) {
            let units = [("weeks", 604_800_000_000_i64), ("days", 86_400_000_000), ("hours", 3_600_000_000),
                ("minutes", 60_000_000), ("seconds", 1_000_000), ("milliseconds", 1_000), ("microseconds", 1)];
            let text: Vec<String> = parts.iter().map(|(n, unit)| format!("{n} {}", units[*unit].0)).collect();
            let micros: i64 = parts.iter().map(|(n, unit)| n * units[*unit].1).sum();
            prop_assert_eq!(parse_interval(&text.join(" ")), Ok(micros / 1000));
        }
    }
}
