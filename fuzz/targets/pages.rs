//! Pages decoded directly and by the parquet crate: the results are equal if both succeed, however damaged the file is.
//!
//! An input is a Parquet file, as for the target `checkpoint_parquet`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::NullBuffer;
use bytes::Bytes;
use deltic_pages::decode::{self, Chunk, DictionaryEncoded, FrontCoder};
use deltic_pages::{footer, limits};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

/// Rows of a file that are worth a comparison.
const MAX_ROWS: i64 = 1 << 16;

pub(crate) fn run(data: &[u8]) {
    let file = file(data);
    let Some(metadata) = metadata(&file) else { return };
    for group in 0..metadata.metadata().num_row_groups() {
        for leaf in 0..metadata.parquet_schema().num_columns() {
            compare(&file, &metadata, group, leaf);
        }
    }
}

/// The file's bytes.
fn file(data: &[u8]) -> Bytes {
    match data.split_first_chunk::<2>() {
        Some((length, rest)) if !data.starts_with(b"PAR1") => {
            let (body, metadata) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
            let length = u32::try_from(metadata.len()).unwrap().to_le_bytes();
            Bytes::from([body, metadata, &length, b"PAR1"].concat())
        }
        Some(_) | None => Bytes::copy_from_slice(data),
    }
}

fn metadata(file: &Bytes) -> Option<ArrowReaderMetadata> {
    let length = usize::try_from(footer::metadata_length(file).ok()?).ok()?;
    let end = file.len().checked_sub(usize::try_from(footer::TRAILER).ok()?)?;
    let metadata = footer::parse(file.get(end.checked_sub(length)?..end)?).ok()?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ArrowReaderMetadata::try_new(Arc::new(metadata), options).ok()
}

/// One leaf of one row group, if its pages claim no more than its bytes justify.
fn compare(file: &Bytes, metadata: &ArrowReaderMetadata, group: usize, leaf: usize) {
    let Some(column) = metadata.metadata().row_group(group).columns().get(leaf) else { return };
    let rows = metadata.metadata().row_group(group).num_rows();
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let span = usize::try_from(start).ok().zip(usize::try_from(column.compressed_size()).ok());
    let span = span.and_then(|(start, length)| Some(start..start.checked_add(length)?));
    let Some(bytes) = span.filter(|span| span.end <= file.len()).map(|span| file.slice(span)) else { return };
    if !(0..MAX_ROWS).contains(&rows) || limits::check(&bytes, column).is_err() {
        return;
    }
    let level = |level: i16| u32::try_from(level).unwrap_or_default();
    let chunk = Chunk {
        bytes: &bytes,
        codec: column.compression(),
        physical: column.column_type(),
        max_definition: level(column.column_descr().max_def_level()),
        max_repetition: level(column.column_descr().max_rep_level()),
        rows: usize::try_from(rows).unwrap_or_default(),
        compressed: bytes.len(),
        size: usize::try_from(column.uncompressed_size()).unwrap_or_default(),
    };
    if chunk.max_repetition > 0 {
        return;
    }
    let Some(general) = general(file.clone(), metadata.clone(), group, leaf) else { return };
    if let Ok(direct) = decode::array(chunk, general.data_type(), None) {
        assert_eq!(&direct, &general);
    }
    let mut coder = FrontCoder::default();
    if coder.read(chunk, true).is_ok() {
        let strings = coder.finish();
        if let Ok(direct) = strings.strings(0..strings.rows(), strings.rows())
            && let Some(general) = general.as_string_opt()
        {
            assert_eq!(&direct, general);
        }
    }
    if let Ok(numbers) = DictionaryEncoded::read(chunk)
        && let Ok(direct) = numbers.numbers(0..numbers.rows(), numbers.rows())
        && let Some(general) = general.as_primitive_opt()
    {
        assert_eq!(&direct, general);
    }
}

/// The values of a leaf by the parquet crate, null where a struct above it is; `None` if it cannot decode them. It may
/// panic over damaged pages, on a thread of its own, as it does in the product.
fn general(file: Bytes, metadata: ArrowReaderMetadata, group: usize, leaf: usize) -> Option<ArrayRef> {
    let decode = move || {
        let mask = ProjectionMask::leaves(metadata.parquet_schema(), [leaf]);
        let rows = metadata.metadata().row_group(group).num_rows();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_batch_size(usize::try_from(rows).ok()?.max(1))
            .build();
        let batch = reader.ok()?.next()?.ok()?;
        let (mut array, mut nulls) = (batch.columns().first()?.clone(), None);
        loop {
            nulls = NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref());
            let Some(inner) = array.as_struct_opt() else { break };
            array = inner.columns().first()?.clone();
        }
        let whole = usize::try_from(rows).is_ok_and(|rows| rows == array.len());
        let data = array.to_data().into_builder().nulls(nulls).build().ok()?;
        whole.then(|| make_array(data))
    };
    std::thread::spawn(decode).join().ok().flatten()
}
