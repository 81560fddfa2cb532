//! Runs the fuzz targets of this crate on their corpora, as regression tests.
//!
//! Binary seeds are written here: `DELTIC_ACCEPT=1 cargo test -p deltic-table corpora`.

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
#[path = "../../../fuzz/targets/pages.rs"]
mod pages;
#[path = "../../../fuzz/targets/settings.rs"]
mod settings;

#[path = "../../../fuzz/targets/arrow_data.rs"]
mod arrow_data;

#[test]
fn arrow_data() {
    replay::replay("arrow_data", arrow_data::run);
}

/// Seeds with a column of each type, alone and nested, with different bytes as buffers.
fn arrow_seeds() -> Vec<(String, Vec<u8>)> {
    const KINDS: u8 = 23;
    const FLAT: u8 = 14;
    let mut seeds = Vec::new();
    for kind in 0..KINDS {
        for (name, tail) in
            [("zeros", vec![0; 64]), ("ascending", (0..64).collect()), ("descending", (0..64).rev().collect())]
        {
            let mut seed = vec![0, 3, kind, 3];
            if kind >= FLAT {
                // A child of the requested type: numbers, then field, then the buffers of the array.
                seed.extend([0, 8]);
                seed.extend([1; 14]);
            }
            seed.extend(tail);
            seeds.push((format!("{kind:02}_{name}"), seed));
        }
    }
    seeds
}

#[test]
fn arrow_seeds_are_up_to_date() {
    for (name, bytes) in arrow_seeds() {
        let file = replay::corpus("arrow_data").join(name);
        if std::env::var_os("DELTIC_ACCEPT").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "{}", file.display());
    }
}

/// Many pseudorandom inputs, the same in each run.
#[test]
fn arrow_data_of_random_bytes_is_refused_or_written() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56).to_le_bytes()[0]
        };
        let length = usize::from(byte()) + 8;
        // Small numbers are more likely to give valid input.
        let input: Vec<u8> = (0..length).map(|_| if byte() < 160 { byte() % 8 } else { byte() }).collect();
        let outcome = std::panic::catch_unwind(|| arrow_data::run(&input));
        assert!(outcome.is_ok(), "{input:?}");
    }
}

#[test]
fn checkpoint_parquet() {
    replay::replay("checkpoint_parquet", checkpoint_parquet::run);
}

#[test]
fn names() {
    replay::replay("names", names::run);
}

#[test]
fn pages() {
    replay::replay("pages", pages::run);
    replay::replay("checkpoint_parquet", pages::run);
}

#[test]
fn settings() {
    replay::replay("settings", settings::run);
}

/// A file in the form of the target: the length of its body, then the file without its trailer.
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
    // A checkpoint that names itself as sidecar.
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

/// The bytes of the seeds depend on the encoder, so they are not compared.
#[test]
fn seeds_do_not_panic() {
    for (name, seed) in seeds() {
        if std::env::var_os("DELTIC_ACCEPT").is_some() {
            let file = replay::corpus("checkpoint_parquet").join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &seed).unwrap();
        }
        checkpoint_parquet::run(&seed);
        pages::run(&seed);
    }
}
