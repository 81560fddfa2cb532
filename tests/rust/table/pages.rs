//! Small Parquet files whose pages claim gigabytes are refused before memory is allocated.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use deltic_pages::limits::{PageLimits, check};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::log::segment::{Checkpoint, CheckpointKind, LogFile};
use deltic_protocol::schema::TableSchema;
use deltic_store::Storage;
use deltic_table::checkpoint::read::{AddColumns, OpenCheckpoint};
use deltic_table::checkpoint_writer::checkpoint;
use deltic_table::log::LogSource;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::task::{FileTask, ReadSpec};
use futures::TryStreamExt;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

use super::sample::{Sample, add, metadata, parquet, protocol};

const GIGABYTES: i32 = i32::MAX;

/// A zigzag varint, as in Thrift's compact protocol and in Parquet's delta encoding.
fn number(value: i64) -> Vec<u8> {
    unsigned((value << 1 ^ value >> 63) as u64)
}

fn unsigned(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A struct of 32-bit numbers, fields 1 to n.
fn numbers(values: &[i32]) -> Vec<u8> {
    let fields = values.iter().flat_map(|value| [vec![0x15], number(i64::from(*value))].concat());
    fields.chain([0]).collect()
}

/// Header and body of a page; `inner` is the header of its kind, in field 5 or 7.
fn page(kind: i32, uncompressed: i32, inner: &[u8], body: &[u8]) -> Vec<u8> {
    let mut head = numbers(&[kind, uncompressed, body.len() as i32]);
    head.pop();
    head.push(if kind == 0 { 0x2c } else { 0x4c });
    [&head, inner, &[0], body].concat()
}

/// A page of values without nulls or repetition.
fn data_page(uncompressed: i32, values: i32, encoding: Encoding, body: &[u8]) -> Vec<u8> {
    page(0, uncompressed, &numbers(&[values, encoding as i32, 3, 3]), body)
}

fn dictionary(entries: i32, body: &[u8]) -> Vec<u8> {
    page(2, body.len() as i32, &numbers(&[entries, 0]), body)
}

/// A file with one column chunk, which the footer names for all leaves of the message.
struct File {
    message: &'static str,
    codec: Compression,
    rows: i64,
    chunk: Vec<u8>,
    has_dictionary: bool,
}

impl File {
    fn column(&self, leaf: usize) -> ColumnChunkMetaData {
        let schema = SchemaDescriptor::new(Arc::new(parse_message_type(self.message).unwrap()));
        ColumnChunkMetaData::builder(schema.column(leaf))
            .set_compression(self.codec)
            .set_num_values(self.rows)
            .set_data_page_offset(4)
            .set_dictionary_page_offset(self.has_dictionary.then_some(4))
            .set_total_compressed_size(self.chunk.len() as i64)
            .set_total_uncompressed_size(self.chunk.len() as i64)
            .build()
            .unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type(self.message).unwrap())));
        let group = RowGroupMetaData::builder(schema.clone())
            .set_num_rows(self.rows)
            .set_total_byte_size(self.chunk.len() as i64)
            .set_column_metadata((0..schema.num_columns()).map(|leaf| self.column(leaf)).collect())
            .build()
            .unwrap();
        let file = FileMetaData::new(1, self.rows, None, None, schema, None);
        let mut bytes = [b"PAR1".as_slice(), &self.chunk].concat();
        let metadata = ParquetMetaData::new(file, vec![group]);
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish().unwrap();
        bytes.extend(footer);
        bytes
    }
}

const TEXT: &str = "message m { required binary t (STRING); }";
const LONG: &str = "message m { required int64 t; }";
const PATH: &str = "message m { required group add { required binary path (STRING); } }";
const ZSTD: fn() -> Compression = || Compression::ZSTD(ZstdLevel::default());

/// Cases: a name, a file, and part of the message.
fn hostile(text: &'static str) -> Vec<(&'static str, File, &'static str)> {
    let file = |codec, chunk| File { message: text, codec, rows: 1, chunk, has_dictionary: false };
    let head = |count: u64| [unsigned(128), unsigned(4), unsigned(count), number(0)].concat();
    let with_lengths = |encoding, body: &[u8]| data_page(body.len() as i32, 1, encoding, body);
    let mut cases = Vec::new();
    for codec in [Compression::SNAPPY, Compression::LZ4_RAW, Compression::GZIP(Default::default()), ZSTD()] {
        cases.push((
            "a large page",
            file(codec, data_page(GIGABYTES, 1, Encoding::PLAIN, &[0; 900])),
            "claims to become",
        ));
    }
    let doubled = [&data_page(8, 1, Encoding::PLAIN, &[0; 8])[..4], &[0x05, 4], &number(i64::from(GIGABYTES)), &[0]];
    cases.push(("a size twice", file(ZSTD(), doubled.concat()), "cannot be read"));
    cases.push((
        "lengths in front",
        file(Compression::UNCOMPRESSED, with_lengths(Encoding::DELTA_LENGTH_BYTE_ARRAY, &head(1 << 40))),
        "more lengths than values",
    ));
    cases.push((
        "prefixes",
        file(Compression::UNCOMPRESSED, with_lengths(Encoding::DELTA_BYTE_ARRAY, &head(1 << 40))),
        "more lengths than values",
    ));
    let second = [head(1), head(1 << 33)].concat();
    cases.push((
        "suffixes",
        file(Compression::UNCOMPRESSED, with_lengths(Encoding::DELTA_BYTE_ARRAY, &second)),
        "more lengths than values",
    ));
    cases
}

fn dictionaries(message: &'static str) -> File {
    let chunk = [dictionary(GIGABYTES, &[0; 8]), data_page(2, 1, Encoding::RLE_DICTIONARY, &[0, 2])].concat();
    File { message, codec: Compression::UNCOMPRESSED, rows: 1, chunk, has_dictionary: true }
}

fn check_refused(what: &str, error: &Error, words: &str) {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    assert_eq!(error.kind(), &Kind::Corrupt, "{what}: {text}");
    assert!(text.contains(words), "{what}: `{text}` does not contain `{words}`");
}

/// A store that no other test writes to.
fn own_storage() -> Result<Storage, Error> {
    Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &HashMap::new())
}

/// The rows of each batch.
async fn read(bytes: Vec<u8>, data_type: &str) -> Result<Vec<usize>, Error> {
    let storage = own_storage()?;
    let task = FileTask { path: "f.parquet".to_owned(), size: bytes.len() as u64, ..FileTask::default() };
    storage.put(&task.path, Bytes::from(bytes)).await?;
    let field = serde_json::json!({"name": "t", "type": data_type, "nullable": true, "metadata": {}});
    let spec = ReadSpec {
        schema: TableSchema::parse(serde_json::json!({"type": "struct", "fields": [field]}).to_string())?,
        partition_columns: Vec::new(),
        column_mapping: "none".to_owned(),
        columns: vec!["t".to_owned()],
        filter: None,
        row_tracking: None,
        may_lack_row_ids: false,
    };
    let batches = Reader::new(storage, spec)?.read(vec![task], ReadOptions::default());
    batches.map_ok(|batch| batch.num_rows()).try_collect().await
}

async fn read_checkpoint(bytes: Vec<u8>) -> Result<usize, Error> {
    let storage = own_storage()?;
    let name = "00000000000000000003.checkpoint.parquet";
    let size = bytes.len() as u64;
    storage.put(&format!("_delta_log/{name}"), Bytes::from(bytes)).await?;
    let files = vec![LogFile::parse(name, size, 0).unwrap()];
    let open = OpenCheckpoint::open(
        &LogSource::of(&storage),
        &Checkpoint { version: 3, files, kind: CheckpointKind::Classic },
    )
    .await?;
    let columns = AddColumns { members: vec!["path", "tags"], ..AddColumns::default() };
    open.adds(&columns).try_fold(0, async |rows, adds| Ok(rows + adds.len())).await
}

#[tokio::test]
async fn hostile_pages_are_corrupt() {
    for (what, file, words) in hostile(TEXT) {
        let bytes = file.bytes();
        assert!(bytes.len() < 1300, "{what}: {}", bytes.len());
        check_refused(what, &read(bytes, "string").await.unwrap_err(), words);
    }
    for (message, data_type) in [(TEXT, "string"), (LONG, "long")] {
        let error = read(dictionaries(message).bytes(), data_type).await.unwrap_err();
        check_refused("a dictionary", &error, "claims 2147483647 values");
    }
}

#[tokio::test]
async fn hostile_pages_of_checkpoints_are_corrupt() {
    for (what, file, words) in hostile(PATH) {
        check_refused(what, &read_checkpoint(file.bytes()).await.unwrap_err(), words);
    }
    let error = read_checkpoint(dictionaries(PATH).bytes()).await.unwrap_err();
    check_refused("a dictionary", &error, "claims 2147483647 values");
    // A single page of this size would be possible.
    let one = data_page(60 << 20, 1, Encoding::PLAIN, &[0; 20]);
    let file = File { message: PATH, codec: ZSTD(), rows: 1, chunk: one.repeat(200), has_dictionary: false };
    check_refused("many pages", &read_checkpoint(file.bytes()).await.unwrap_err(), "impossible for 1 rows");
}

/// Rows of the next two files: nearly as many as a file of any size may have.
const MANY: i32 = 60_000;

/// Paths with the same index into a dictionary of one long string and many short ones.
fn shared(place: u8) -> File {
    let long = [&100_000_u32.to_le_bytes()[..], &[b'x'; 100_000]].concat();
    let short = [&1_u32.to_le_bytes()[..], b"y"].concat();
    let codes = [&[7][..], &unsigned(MANY as u64 * 2), &[place]].concat();
    let data = data_page(codes.len() as i32, MANY, Encoding::RLE_DICTIONARY, &codes);
    let chunk = [dictionary(100, &[long, short.repeat(99)].concat()), data].concat();
    File { message: PATH, codec: Compression::UNCOMPRESSED, rows: MANY.into(), chunk, has_dictionary: true }
}

/// Paths that each extend the one before.
fn growing() -> File {
    // One block of equal deltas.
    let same = |value: i64| [unsigned(1 << 16), unsigned(1), unsigned(MANY as u64), number(value), vec![0, 0]].concat();
    let body = [same(1 << 20), same(2), vec![b'x'; 2 * MANY as usize]].concat();
    let chunk = data_page(body.len() as i32, MANY, Encoding::DELTA_BYTE_ARRAY, &body);
    File { message: PATH, codec: Compression::UNCOMPRESSED, rows: MANY.into(), chunk, has_dictionary: false }
}

#[tokio::test]
async fn a_few_bytes_do_not_become_gigabytes_of_strings() {
    let error = read_checkpoint(shared(0).bytes()).await.unwrap_err();
    check_refused("a long text for all", &error, "the strings of 60000 rows claim to be 6000");
    // A long string that is not used is accepted.
    assert_eq!(read_checkpoint(shared(1).bytes()).await.unwrap(), MANY as usize);
    let error = read_checkpoint(growing().bytes()).await.unwrap_err();
    check_refused("what grows", &error, "impossible for 60000 rows");
    let twice = dictionary(1, &[1, 0, 0, 0, b'x']).repeat(2);
    let twice = File { message: PATH, codec: ZSTD(), rows: 1, chunk: twice, has_dictionary: true };
    check_refused("two dictionaries", &read_checkpoint(twice.bytes()).await.unwrap_err(), "more than one dictionary");
}

#[tokio::test]
async fn overlapping_column_chunks_are_corrupt() {
    let text = [&1000_u32.to_le_bytes()[..], &[b'a'; 1000]].concat();
    let file = |message| {
        let chunk = data_page(text.len() as i32, 1, Encoding::PLAIN, &text);
        File { message, codec: Compression::UNCOMPRESSED, rows: 1, chunk, has_dictionary: false }
    };
    assert_eq!(read_checkpoint(file(PATH).bytes()).await.unwrap(), 1);
    let twice =
        file("message m { required group add { required binary path (STRING); required binary tags (STRING); } }");
    check_refused(
        "one chunk for two",
        &read_checkpoint(twice.bytes()).await.unwrap_err(),
        "column chunks of the Parquet file overlap",
    );
}

#[tokio::test]
async fn pages_that_end_before_their_row_group_are_corrupt() {
    let text = [&1_u32.to_le_bytes()[..], b"a"].concat();
    let file = |rows| {
        let chunk = data_page(5, 1, Encoding::PLAIN, &text);
        File { message: PATH, codec: Compression::UNCOMPRESSED, rows, chunk, has_dictionary: false }
    };
    assert_eq!(read_checkpoint(file(1).bytes()).await.unwrap(), 1);
    check_refused("a page is missing", &read_checkpoint(file(3).bytes()).await.unwrap_err(), "2 rows fewer than");
}

/// The decoder of the parquet crate panics on a string of negative length.
#[tokio::test]
async fn a_panic_of_the_decoder_is_a_corrupt_file() {
    let lengths = |first: i64| [unsigned(128), unsigned(4), unsigned(1), number(first)].concat();
    let body = [lengths(0), lengths(-1)].concat();
    let chunk = data_page(body.len() as i32, 1, Encoding::DELTA_BYTE_ARRAY, &body);
    let file = File { message: PATH, codec: Compression::UNCOMPRESSED, rows: 1, chunk, has_dictionary: false };
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")]]);
    let columns = [("x", "long")];
    let state = [protocol(1, 2), metadata(&columns, &[], serde_json::json!({})), add("a")];
    let part = |at: u64| format!("00000000000000000001.checkpoint.{at:010}.0000000002.parquet");
    sample.put(&part(1), parquet(&state));
    sample.put(&part(2), file.bytes());
    let error = checkpoint(&sample.log, 0).await.unwrap_err();
    check_refused("a panic", &error, "decoding the Parquet file failed");
    assert!(error.to_string().contains(&part(2)), "{error}");
}

/// A column of fixed length with 400 nulls.
fn nulls(message: &'static str) -> Vec<u8> {
    // Definition levels: their length, and one run of zeros.
    let levels = [&[3, 0, 0, 0][..], &unsigned(400 << 1), &[0]].concat();
    let chunk = data_page(levels.len() as i32, 400, Encoding::PLAIN, &levels);
    File { message, codec: Compression::UNCOMPRESSED, rows: 400, chunk, has_dictionary: false }.bytes()
}

#[tokio::test]
async fn wide_columns_take_memory_in_proportion_to_the_file() {
    let narrow = nulls("message m { optional fixed_len_byte_array(12) t; }");
    assert_eq!(read(narrow, "binary").await.unwrap(), [400]);
    let wide = nulls("message m { optional fixed_len_byte_array(1048577) t; }");
    let rows = read(wide, "binary").await.unwrap();
    assert_eq!((rows.iter().sum::<usize>(), rows.iter().max()), (400, Some(&63)));
    let absurd = nulls("message m { optional fixed_len_byte_array(134217727) t; }");
    check_refused("a wide column", &read(absurd, "binary").await.unwrap_err(), "takes 134217727 bytes");

    let list = "message m { required group t (LIST) { repeated group list { optional fixed_len_byte_array(1000000) \
                element; } } }";
    let chunk = data_page(8, 1 << 20, Encoding::PLAIN, &[0; 8]);
    let list = File { message: list, codec: Compression::UNCOMPRESSED, rows: 1, chunk, has_dictionary: false };
    let refused = check(&Bytes::from(list.chunk.clone()), &list.column(0)).unwrap_err().to_string();
    assert!(refused.contains("impossible for their size"), "{refused}");

    let path = nulls("message m { required group add { optional fixed_len_byte_array(134217727) path; } }");
    check_refused("a wide path", &read_checkpoint(path).await.unwrap_err(), "impossible for 400 rows");
}

#[test]
fn files_of_writers_are_within_the_limits() {
    let texts: Vec<String> = (0..3000).map(|i| format!("{}/{i:06}", "x".repeat(i % 90))).collect();
    let same = vec!["s".repeat(5000); 3000];
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        ZSTD(),
    ];
    let encodings = [Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY];
    for (codec, version) in
        codecs.iter().flat_map(|c| [(c, WriterVersion::PARQUET_1_0), (c, WriterVersion::PARQUET_2_0)])
    {
        for (encoding, values) in encodings.iter().flat_map(|e| [(Some(*e), &texts), (None, &texts), (Some(*e), &same)])
        {
            let properties = WriterProperties::builder().set_compression(*codec).set_writer_version(version);
            let properties = match encoding {
                Some(encoding) => properties.set_dictionary_enabled(false).set_encoding(encoding),
                None => properties.set_dictionary_enabled(true),
            };
            let schema = Arc::new(parse_message_type("message m { optional binary t (STRING); }").unwrap());
            let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let levels: Vec<i16> = (0..values.len() * 2).map(|i| i16::from(i % 2 == 0)).collect();
            let values: Vec<ByteArray> = values.iter().map(|v| v.as_str().into()).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
            let bytes = Bytes::from(writer.into_inner().unwrap());
            let reader = SerializedFileReader::new(bytes.clone()).unwrap();
            let column = reader.metadata().row_group(0).column(0);
            let (start, length) = column.byte_range();
            let chunk = bytes.slice(start as usize..(start + length) as usize);
            let texts: usize = values.iter().map(|text| text.len()).sum();
            let PageLimits { values, bytes, dictionary, dictionary_encoded, prefixes, .. } =
                check(&chunk, column).unwrap_or_else(|e| panic!("{codec:?} {encoding:?}: {e}"));
            assert_eq!(values, 6000);
            assert_eq!((dictionary > 0, dictionary_encoded > 0), (encoding.is_none(), encoding.is_none()), "{codec:?}");
            assert!(
                dictionary_encoded > 0 || bytes + prefixes >= texts as u64,
                "{codec:?} {encoding:?}: {bytes} and {prefixes}"
            );
            assert!(bytes <= column.uncompressed_size() as u64, "{codec:?} {encoding:?}: {bytes}");
            for end in 0..chunk.len().min(400) {
                let _ = check(&chunk.slice(..end), column);
            }
        }
    }
}
