//! The inventory of a vacuum: any table with the columns `path`, `length`, `isDir` and `modificationTime`, which is read once,
//! in batches.

use std::future::ready;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Schema, TimeUnit};
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
        let is_folder = self.folders(batch.column(self.is_folder))?;
        let paths = converted(batch.column(self.path), "path", &DataType::Utf8, is_string)?;
        let lengths = converted(batch.column(self.length), "length", &DataType::Int64, is_number)?;
        let times = milliseconds(batch.column(self.time))?;
        let (paths, lengths) = (paths.as_string::<i32>(), lengths.as_primitive::<Int64Type>());
        let times = times.as_primitive::<Int64Type>();
        let mut files = Vec::with_capacity(batch.num_rows());
        for row in (0..batch.num_rows()).filter(|row| !is_folder.value(*row)) {
            if paths.is_null(row) || times.is_null(row) {
                let row = before + row;
                return Err(Error::invalid(format!("row {row} of the inventory lacks its path or modificationTime")));
            }
            let size = if lengths.is_valid(row) { u64::try_from(lengths.value(row)).unwrap_or_default() } else { 0 };
            files.push(FileMeta { path: paths.value(row).to_owned(), size, modified_ms: times.value(row) });
        }
        Ok(files)
    }

    fn folders(&self, column: &ArrayRef) -> CoreResult<BooleanArray> {
        let is_flag = |of: &DataType| *of == DataType::Boolean || is_number(of);
        let flags = converted(column, "isDir", &DataType::Boolean, is_flag)?;
        if flags.null_count() > 0 {
            return Err(Error::invalid("the inventory has rows whose isDir is null"));
        }
        Ok(flags.as_boolean().clone())
    }
}

/// Modification times, as milliseconds: numbers are milliseconds already, timestamps have their own unit.
fn milliseconds(times: &ArrayRef) -> CoreResult<ArrayRef> {
    let times = match times.data_type() {
        DataType::Timestamp(_, zone) => {
            let to = DataType::Timestamp(TimeUnit::Millisecond, zone.clone());
            converted(times, "modificationTime", &to, |_| true)?
        }
        _ => Arc::clone(times),
    };
    let is_time = |of: &DataType| matches!(of, DataType::Timestamp(..)) || is_number(of);
    converted(&times, "modificationTime", &DataType::Int64, is_time)
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
    cast_with_options(column, to, &options)
        .map_err(|e| Error::invalid(format!("the inventory does not fit: the column '{name}': {e}")))
}

fn is_string(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Also strings, which are parsed.
fn is_number(of: &DataType) -> bool {
    of.is_numeric() || is_string(of)
}
