//! Arrow data of another library: a batch with the types, buffers and counts of the input is checked and then written.
//!
//! The first byte is the number of columns, the next the number of rows; each array is a byte for its type, one for each of
//! its length, offset and nulls, and then its buffers and children. Input that has ended reads as zeros.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode};
use deltic_store::Storage;
use deltic_table::error::{Error, Kind, Result};
use deltic_table::log::LogSource;
use deltic_table::transaction::builder::{HandleCache, Ids, Transaction, WriteOptions};
use deltic_table::write::incoming::checked_batch;
use deltic_table::write::writer::DataWriter;

/// Types without children come first.
const FLAT: u8 = 14;
const ALL: u8 = 23;
const DEPTH: u8 = 3;

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap()
});

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// Numbers near zero, as offsets and keys are.
    fn small<T: From<i8>>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| T::from(self.byte().cast_signed())).collect()
    }

    fn length(&mut self) -> usize {
        usize::from(self.byte() % 9)
    }

    fn field(&mut self, name: &str, data: &ArrayData) -> Field {
        Field::new(name, data.data_type().clone(), self.byte().is_multiple_of(2))
    }
}

struct Fixed;

impl Ids for Fixed {
    fn unique(&self) -> String {
        "arrow".to_owned()
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let (columns, rows) = (1 + input.byte() % 3, input.length());
    let arrays: Vec<ArrayData> = (0..columns).map(|_| array(&mut input, DEPTH)).collect();
    let fields: Vec<Field> =
        arrays.iter().enumerate().map(|(at, array)| input.field(&format!("c{at}"), array)).collect();
    let schema = Arc::new(Schema::new(fields));
    let rows = built(&mut input, DataType::Struct(schema.fields().clone()), rows, vec![], arrays);
    match checked_batch(&rows, &schema) {
        Err(error) => check_error(&error),
        Ok(batch) => {
            assert_eq!(batch.num_rows(), rows.len());
            // What was checked is whole: it can be copied, which follows every offset, key and view.
            for column in batch.columns() {
                column.to_data().validate_full().unwrap();
            }
            if let Err(error) = RUNTIME.block_on(write(&schema, batch)) {
                check_error(&error);
            }
        }
    }
}

/// Whatever a caller hands in, the fault is the caller's.
fn check_error(error: &Error) {
    assert!(matches!(error.kind(), Kind::Invalid | Kind::Unsupported { .. }), "{error}");
}

async fn write(schema: &SchemaRef, batch: RecordBatch) -> Result<()> {
    let storage = Storage::open("memory://arrow", &HashMap::new())?;
    let (known, options) = (HandleCache::default(), WriteOptions::default());
    let mut transaction = Transaction::write(&LogSource::of(&storage), known, schema, &options, &Fixed, 0).await?;
    let rows = batch.num_rows() as u64;
    let plan = transaction.plan_write(schema)?;
    let writer = DataWriter::new(storage, &plan.spec, || 0)?;
    let files = writer.write_all(futures::stream::iter([Ok(batch)])).await?;
    assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), rows);
    transaction.append(files);
    transaction.abandon().await;
    Ok(())
}

fn array(input: &mut Input<'_>, depth: u8) -> ArrayData {
    let kinds = if depth == 0 { FLAT } else { ALL };
    let kind = input.byte() % kinds;
    let length = input.length();
    match kind {
        0..FLAT => flat(input, kind, length),
        _ => nested(input, kind, length, depth - 1),
    }
}

fn flat(input: &mut Input<'_>, kind: u8, length: usize) -> ArrayData {
    let offsets = length + 4;
    let (data_type, buffers) = match kind {
        0 => (DataType::Int64, vec![Buffer::from_vec(input.small::<i64>(offsets))]),
        1 => (DataType::Utf8, vec![Buffer::from_vec(input.small::<i32>(offsets)), values(input)]),
        2 => (DataType::Binary, vec![Buffer::from_vec(input.small::<i32>(offsets)), values(input)]),
        3 => (DataType::LargeUtf8, vec![Buffer::from_vec(input.small::<i64>(offsets)), values(input)]),
        4 => (DataType::LargeBinary, vec![Buffer::from_vec(input.small::<i64>(offsets)), values(input)]),
        5 => (DataType::Utf8View, views(input, length)),
        6 => (DataType::BinaryView, views(input, length)),
        7 => (DataType::Boolean, vec![values(input)]),
        8 => (DataType::FixedSizeBinary(i32::from(input.byte().cast_signed())), vec![values(input)]),
        9 => (DataType::Decimal128(9, 2), vec![Buffer::from_vec(input.small::<i128>(offsets))]),
        10 => (DataType::Date32, vec![Buffer::from_vec(input.small::<i32>(offsets))]),
        11 => (
            DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            vec![Buffer::from_vec(input.small::<i64>(offsets))],
        ),
        12 => (DataType::Float64, vec![Buffer::from_vec(input.small::<f64>(offsets))]),
        _ => (DataType::Null, vec![]),
    };
    built(input, data_type, length, buffers, vec![])
}

fn nested(input: &mut Input<'_>, kind: u8, length: usize, depth: u8) -> ArrayData {
    let child = array(input, depth);
    let field = Arc::new(input.field("item", &child));
    let offsets = length + 4;
    let (data_type, buffers, children) = match kind {
        14 => {
            let data_type = DataType::Dictionary(Box::new(DataType::Int8), Box::new(child.data_type().clone()));
            (data_type, vec![Buffer::from_vec(input.small::<i8>(offsets))], vec![child])
        }
        15 => (DataType::List(field), vec![Buffer::from_vec(input.small::<i32>(offsets))], vec![child]),
        16 => (DataType::LargeList(field), vec![Buffer::from_vec(input.small::<i64>(offsets))], vec![child]),
        17 => (DataType::Struct(Fields::from(vec![field])), vec![], vec![child]),
        18 => {
            let data_type = DataType::FixedSizeList(field, i32::from(input.byte().cast_signed()));
            (data_type, vec![], vec![child])
        }
        19 => {
            let (keys, entries) = (array(input, 0), input.length());
            let names = vec![input.field("key", &keys), input.field("value", &child)];
            let entries = built(input, DataType::Struct(names.into()), entries, vec![], vec![keys, child]);
            let field = Arc::new(input.field("entries", &entries));
            (DataType::Map(field, false), vec![Buffer::from_vec(input.small::<i32>(offsets))], vec![entries])
        }
        20 => {
            let count = input.length();
            let ends = vec![Buffer::from_vec(input.small::<i32>(count + 4))];
            let ends = built(input, DataType::Int32, count, ends, vec![]);
            let names = (Arc::new(Field::new("run_ends", DataType::Int32, false)), field);
            (DataType::RunEndEncoded(names.0, names.1), vec![], vec![ends, child])
        }
        21 => {
            let other = array(input, 0);
            let names = [field, Arc::new(input.field("other", &other))];
            let Ok(names) = UnionFields::try_new([0, 1], names) else { return other };
            let ids = Buffer::from_vec(input.small::<i8>(offsets));
            match input.byte().is_multiple_of(2) {
                true => {
                    let places = Buffer::from_vec(input.small::<i32>(offsets));
                    (DataType::Union(names, UnionMode::Dense), vec![ids, places], vec![child, other])
                }
                false => (DataType::Union(names, UnionMode::Sparse), vec![ids], vec![child, other]),
            }
        }
        _ => {
            let (places, sizes) = (input.small::<i32>(offsets), input.small::<i32>(offsets));
            (DataType::ListView(field), vec![Buffer::from_vec(places), Buffer::from_vec(sizes)], vec![child])
        }
    };
    built(input, data_type, length, buffers, children)
}

fn values(input: &mut Input<'_>) -> Buffer {
    let count = usize::from(input.byte() % 64);
    Buffer::from_vec(input.bytes(count))
}

fn views(input: &mut Input<'_>, length: usize) -> Vec<Buffer> {
    let words = (0..length + 4).map(|_| {
        let (size, prefix) = (input.byte(), input.bytes(4));
        let (buffer, start, tail) = (input.byte(), input.byte(), input.byte());
        let mut view = [0; 16];
        view[0] = size;
        view[4..8].copy_from_slice(&prefix);
        (view[8], view[12], view[15]) = (buffer, start, tail);
        u128::from_le_bytes(view)
    });
    vec![Buffer::from_vec(words.collect::<Vec<_>>()), values(input), values(input)]
}

/// The array, which nobody has looked at. Its bitmap is as long as the C interface takes it to be.
fn built(
    input: &mut Input<'_>,
    data_type: DataType,
    length: usize,
    buffers: Vec<Buffer>,
    children: Vec<ArrayData>,
) -> ArrayData {
    let (offset, has_nulls) = (usize::from(input.byte() % 4), input.byte());
    let mut builder = ArrayData::builder(data_type.clone()).len(length).offset(offset).buffers(buffers);
    let may_have = !matches!(data_type, DataType::Null | DataType::Union(..) | DataType::RunEndEncoded(..));
    if may_have && !has_nulls.is_multiple_of(2) {
        builder = builder.null_bit_buffer(Some(Buffer::from_vec(input.bytes((length + offset).div_ceil(8)))));
        if has_nulls > 128 {
            builder = builder.null_count(usize::from(has_nulls % 8).min(length));
        }
    }
    // SAFETY: it is only given to what checks it.
    unsafe { builder.child_data(children).build_unchecked() }
}
