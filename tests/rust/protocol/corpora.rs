//! Runs the fuzz targets on their corpora, as regression tests.
//!
//! Binary seeds are written here: `DELTIC_ACCEPT=1 cargo test -p deltic-protocol corpora`.

use deltic_protocol::deletion_vector::{DeletionVector, encode_path};

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[path = "../../../fuzz/targets/commit_json.rs"]
mod commit_json;
#[path = "../../../fuzz/targets/crc.rs"]
mod crc;
#[path = "../../../fuzz/targets/deletion_vector.rs"]
mod deletion_vector;
#[path = "../../../fuzz/targets/last_checkpoint.rs"]
mod last_checkpoint;
#[path = "../../../fuzz/targets/predicate.rs"]
mod predicate;
#[path = "../../../fuzz/targets/schema_string.rs"]
mod schema_string;
#[path = "../../../fuzz/targets/stats.rs"]
mod stats;

use replay::{corpus, replay};

#[test]
fn commit_json() {
    replay("commit_json", commit_json::run);
}

#[test]
fn crc() {
    replay("crc", crc::run);
}

#[test]
fn deletion_vector() {
    replay("deletion_vector", deletion_vector::run);
}

#[test]
fn last_checkpoint() {
    replay("last_checkpoint", last_checkpoint::run);
}

#[test]
fn predicate() {
    replay("predicate", predicate::run);
}

#[test]
fn schema_string() {
    replay("schema_string", schema_string::run);
}

#[test]
fn stats() {
    replay("stats", stats::run);
}

/// The seeds of the target `deletion_vector`, by name.
fn deletion_vector_seeds() -> Vec<(String, Vec<u8>)> {
    let vectors: [(&str, DeletionVector); 5] = [
        ("empty", DeletionVector::default()),
        ("few", [3, 4, 7, 11, 18, 29].into_iter().collect()),
        ("run", (100..3000).collect()),
        ("dense", (0..9000).filter(|row| row % 2 == 0).collect()),
        ("wide", [0, 70_000, 1 << 32, 5 << 32, (7 << 32) + 1].into_iter().collect()),
    ];
    let mut seeds = Vec::new();
    for (name, vector) in &vectors {
        let framed = |kind: u8, bytes: &[u8]| {
            let cardinality = u32::try_from(vector.cardinality()).unwrap().to_le_bytes();
            [&[kind][..], &cardinality, bytes].concat()
        };
        let bytes = vector.to_bytes();
        let size = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let region = [&size, bytes.as_slice(), &crc32fast::hash(&bytes).to_be_bytes()].concat();
        let inline = vector.to_inline().unwrap();
        let text = format!(" i\n\n{}\n{}\n{}", inline.size_in_bytes, inline.cardinality, inline.path_or_inline_dv);
        seeds.push((format!("inline_{name}"), framed(b'i', &bytes)));
        seeds.push((format!("file_{name}"), framed(b'f', &bytes)));
        if bytes.len() < 100 {
            seeds.push((format!("region_{name}"), framed(b'r', &region)));
            seeds.push((format!("text_{name}"), text.into_bytes()));
        }
    }
    // The older format: little-endian as delta-spark reads it, big-endian as in the example of PROTOCOL.md.
    let bitmap = &vectors[1].1.to_bytes()[16..];
    for (name, number) in [("little", u32::to_le_bytes as fn(u32) -> [u8; 4]), ("big", u32::to_be_bytes)] {
        let length = number(u32::try_from(bitmap.len()).unwrap());
        let array = [&number(1_681_511_376), &number(1), &length, bitmap].concat();
        seeds.push((format!("inline_array_{name}"), [&b"i\x06\0\0\0"[..], &array].concat()));
    }
    for (name, prefix) in [("relative", ""), ("relative_prefix", "ab"), ("relative_escape", "../x")] {
        let text = format!(" u\n4\n40\n6\n{}", encode_path(prefix, &[7; 16]));
        seeds.push((format!("text_{name}"), text.into_bytes()));
    }
    seeds.push(("text_absolute".to_owned(), b" p\n1\n40\n6\nfile:/tmp/dv%20x.bin".to_vec()));
    seeds.push(("text_short_block".to_owned(), b" i\n\n2\n1\n##093".to_vec()));
    seeds
}

#[test]
fn deletion_vector_seeds_are_up_to_date() {
    for (name, bytes) in deletion_vector_seeds() {
        let file = corpus("deletion_vector").join(name);
        if std::env::var_os("DELTIC_ACCEPT").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "{}", file.display());
    }
}
