//! The fuzz targets of this crate over their corpora: what fuzzing has found once stays found.
//!
//! The seeds that are not text are written here: `DELTIC_ACCEPT=1 cargo test -p deltic-table corpora`.

use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::ColumnPath;
use serde_json::{Value, json};

use super::sample::{add, add_with, metadata, protocol, remove, small_parquet, vector};

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[path = "../../../fuzz/targets/checkpoint_parquet.rs"]
mod checkpoint_parquet;
#[path = "../../../fuzz/targets/names.rs"]
mod names;
#[path = "../../../fuzz/targets/settings.rs"]
mod settings;

#[test]
fn checkpoint_parquet() {
    replay::replay("checkpoint_parquet", checkpoint_parquet::run);
}

#[test]
fn names() {
    replay::replay("names", names::run);
}

#[test]
fn settings() {
    replay::replay("settings", settings::run);
}

/// The file as the target takes it: without trailer, the length of its body before it.
fn framed(file: &[u8]) -> Vec<u8> {
    let (rest, trailer) = file.split_at(file.len() - 8);
    let metadata = u32::from_le_bytes(trailer[..4].try_into().unwrap()) as usize;
    let body = u16::try_from(rest.len() - metadata).unwrap();
    [&body.to_le_bytes(), rest].concat()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let plain = || {
        let builder = WriterProperties::builder().set_created_by(String::new());
        builder.set_dictionary_enabled(false).set_statistics_enabled(EnabledStatistics::None)
    };
    let write = |actions: &[Value], builder: WriterPropertiesBuilder| small_parquet(actions, builder.build());
    let state = [protocol(1, 2), metadata(&[("l", "long"), ("p", "string")], &["p"], json!({"k": "v"}))];
    let adds = [
        add_with("a", json!({"partitionValues": {"p": "1"}, "stats": "{\"numRecords\":1,\"minValues\":{\"l\":1}}"})),
        add_with("b", json!({"partitionValues": {"p": null}})),
    ];
    let stats = json!({"numRecords": 2, "minValues": {"l": 1}, "maxValues": {"l": 9}, "nullCount": {"l": 0}});
    let typed = [add_with("a", json!({"stats_parsed": stats})), add("b")];
    let others = [
        json!({"txn": {"appId": "a", "version": 1, "lastUpdated": 2}}),
        json!({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": false}}),
    ];
    // Its sidecar is itself.
    let top = |size: usize| {
        let path = "../00000000000000000003.checkpoint.parquet";
        let sidecar = json!({"sidecar": {"path": path, "sizeInBytes": size, "modificationTime": 1}});
        write(&[json!({"checkpointMetadata": {"version": 3}}), sidecar, add("a")], plain())
    };
    let all = [&state[..], &adds, &[remove("c")], &others].concat();
    let table = [&state[..], &adds].concat();
    let many: Vec<Value> = (0..200).map(|i| add(&format!("part-{:05}", i / 3))).collect();
    let app_id = ColumnPath::from(vec!["txn".to_owned(), "appId".to_owned()]);
    vec![
        ("whole", write(&table, plain())),
        ("state", framed(&write(&state, plain()))),
        ("table", framed(&write(&table, plain()))),
        ("all", framed(&write(&all, plain()))),
        ("adds", framed(&write(&adds, plain()))),
        ("typed", framed(&write(&typed, plain()))),
        ("vector", framed(&write(&[add_with("a", json!({"deletionVector": vector(1)}))], plain()))),
        ("removes", framed(&write(&[remove("a"), remove("b")], plain()))),
        ("others", framed(&write(&others, plain()))),
        ("sidecar", framed(&top(top(0).len()))),
        ("statistics", framed(&write(&adds, plain().set_statistics_enabled(EnabledStatistics::Page)))),
        ("dictionary", framed(&write(&many, plain().set_dictionary_enabled(true)))),
        ("groups", framed(&write(&typed, plain().set_max_row_group_row_count(Some(1))))),
        ("pages", framed(&write(&many, plain().set_data_page_row_count_limit(50).set_write_batch_size(50)))),
        ("version_2", framed(&write(&adds, plain().set_writer_version(WriterVersion::PARQUET_2_0)))),
        ("snappy", framed(&write(&adds, plain().set_compression(Compression::SNAPPY)))),
        ("gzip", framed(&write(&adds, plain().set_compression(Compression::GZIP(GzipLevel::default()))))),
        ("zstd", framed(&write(&many, plain().set_compression(Compression::ZSTD(ZstdLevel::default()))))),
        ("lz4", framed(&write(&adds, plain().set_compression(Compression::LZ4_RAW)))),
        ("brotli", framed(&write(&adds, plain().set_compression(Compression::BROTLI(Default::default()))))),
        ("delta", framed(&write(&others[..1], plain().set_column_encoding(app_id, Encoding::DELTA_BYTE_ARRAY)))),
    ]
}

/// Their bytes are the encoder's affair, so they are written and not compared.
#[test]
fn the_seeds_are_read() {
    for (name, seed) in seeds() {
        if std::env::var_os("DELTIC_ACCEPT").is_some() {
            let file = replay::corpus("checkpoint_parquet").join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &seed).unwrap();
        }
        checkpoint_parquet::run(&seed);
    }
}
