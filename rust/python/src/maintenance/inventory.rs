//! The inventory of a vacuum: any table with the columns `path`, `length`, `isDir` and `modificationTime`, which is read once,
//! in batches.

use std::future::ready;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Schema, TimeUnit};
use arrow_select::filter::filter;
use deltic_store::FileMeta;
use deltic_table::error::{Error, Result as CoreResult};
use deltic_table::maintenance::Inventory;
use futures::TryStreamExt;
use pyo3::prelude::*;

use crate::arrow::{Batches, consume_batches, reader_from_py};
use crate::errors::Result;

/// Writes the files of an inventory to a temporary file.
pub(super) fn inventory_of(py: Python<'_>, table: &Bound<'_, PyAny>) -> Result<Inventory> {
    let rows = reader_from_py(table)?;
    let columns = Columns::of(rows.schema())?;
    let write = move |rows: Batches| async move {
        let mut before = 0;
        let files = rows.and_then(move |batch| {
            let files = columns.files(&batch, before);
            before += batch.num_rows();
            ready(files)
        });
        Inventory::of(files).await
    };
    consume_batches(py, rows, false, write, ready(()))
}

/// The positions of the columns of an inventory.
struct Columns {
    path: usize,
    length: usize,
    is_folder: usize,
    time: usize,
}

impl Columns {
    fn of(schema: &Schema) -> CoreResult<Self> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if let Some((_, name)) = names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|n| n == *name))
        {
            return Err(Error::invalid(format!("the inventory has the column '{name}' twice")));
        }
        let position = |name: &str| {
            let missing = || Error::invalid(format!("the inventory lacks the column '{name}'"));
            names.iter().position(|found| *found == name).ok_or_else(missing)
        };
        let (path, length) = (position("path")?, position("length")?);
        Ok(Self { path, length, is_folder: position("isDir")?, time: position("modificationTime")? })
    }

    /// The files of a batch. `before`: the number of rows before it.
    fn files(&self, batch: &RecordBatch, before: usize) -> CoreResult<Vec<FileMeta>> {
        let is_file = self.files_only(batch.column(self.is_folder))?;
        let of_files = |column: usize| filter(batch.column(column), &is_file).map_err(Error::from);
        let paths = converted(&of_files(self.path)?, "path", &DataType::Utf8, is_string)?;
        let lengths = converted(&of_files(self.length)?, "length", &DataType::Int64, is_number)?;
        let times = milliseconds(&of_files(self.time)?)?;
        let (paths, lengths) = (paths.as_string::<i32>(), lengths.as_primitive::<Int64Type>());
        let times = times.as_primitive::<Int64Type>();
        let mut files = Vec::with_capacity(paths.len());
        for (file, row) in is_file.values().set_indices().enumerate() {
            if paths.is_null(file) || times.is_null(file) {
                let row = before + row;
                return Err(Error::invalid(format!("row {row} of the inventory lacks its path or modificationTime")));
            }
            let size = if lengths.is_valid(file) { u64::try_from(lengths.value(file)).unwrap_or_default() } else { 0 };
            files.push(FileMeta { path: paths.value(file).to_owned(), size, modified_ms: times.value(file) });
        }
        Ok(files)
    }

    /// Whether each row is a file.
    fn files_only(&self, column: &ArrayRef) -> CoreResult<BooleanArray> {
        let is_flag = |of: &DataType| *of == DataType::Boolean || is_number(of);
        let flags = converted(column, "isDir", &DataType::Boolean, is_flag)?;
        if flags.null_count() > 0 {
            return Err(Error::invalid("the inventory has rows whose isDir is null"));
        }
        Ok(BooleanArray::new(!flags.as_boolean().values(), None))
    }
}

/// Times before it, in March 1973, are taken for seconds.
const FIRST_MILLISECONDS: i64 = 100_000_000_000;

/// Modification times, as milliseconds: numbers are milliseconds already, timestamps have their own unit.
fn milliseconds(times: &ArrayRef) -> CoreResult<ArrayRef> {
    if let DataType::Timestamp(_, zone) = times.data_type() {
        let to = DataType::Timestamp(TimeUnit::Millisecond, zone.clone());
        let times = converted(times, "modificationTime", &to, |_| true)?;
        return converted(&times, "modificationTime", &DataType::Int64, |_| true);
    }
    let times = converted(times, "modificationTime", &DataType::Int64, is_number)?;
    let mut known = times.as_primitive::<Int64Type>().iter().flatten();
    match known.find(|time| (1..FIRST_MILLISECONDS).contains(time)) {
        Some(seconds) => Err(Error::invalid(format!(
            "the inventory does not fit: the modificationTime {seconds} would be in 1973 or before, so it is not in \
             milliseconds; give milliseconds since 1970, or timestamps"
        ))),
        None => Ok(times),
    }
}

/// The values of a column as another type.
fn converted(column: &ArrayRef, name: &str, to: &DataType, fits: impl Fn(&DataType) -> bool) -> CoreResult<ArrayRef> {
    let found = match column.data_type() {
        DataType::Dictionary(_, values) => values,
        plain => plain,
    };
    if !fits(found) && *found != DataType::Null {
        return Err(Error::invalid(format!("the inventory does not fit: the column '{name}' is of type {found}")));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |from: &ArrayRef, to: &DataType| {
        cast_with_options(from, to, &options)
            .map_err(|e| Error::invalid(format!("the inventory does not fit: the column '{name}': {e}")))
    };
    let values = cast(column, to)?;
    // The conversion to integers cuts fractions off.
    let may_have_fractions = *to == DataType::Int64 && (found.is_floating() || found.is_decimal());
    if may_have_fractions && *cast(&values, found)? != *cast(column, found)? {
        return Err(Error::invalid(format!("the inventory does not fit: the column '{name}' has fractions")));
    }
    Ok(values)
}

fn is_string(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Also strings, which are parsed.
fn is_number(of: &DataType) -> bool {
    of.is_numeric() || is_string(of)
}
