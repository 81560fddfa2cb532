//! Imports data and schemas that Python code passes, from any library with the Arrow PyCapsule interface.
//!
//! The C structs are followed as the interface specifies; a producer in the same process that breaks it can break
//! the process. What can be checked is, before it is used: structs that were released already, missing callbacks, and what
//! Arrow's format promises of an array, by `deltic_table::write::incoming`. How much memory there is behind a pointer is not
//! known and cannot be checked.
//!
//! Batches are pulled on the Python thread that called, so that Ctrl-C reaches a producer written in Python and nothing of
//! it outlives the call: see [`super::feed`]. A reader of pyarrow's is asked for its batches by Python, because an
//! exception does not cross a C stream.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use deltic_protocol::error::Error;
use deltic_protocol::schema::arrow::check_extension_at;
use deltic_table::write::incoming::checked_batch;
use pyo3::exceptions::{PyAttributeError, PyException, PyKeyboardInterrupt, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString};

use super::capsules::{ARRAY_CAPSULE, SCHEMA_CAPSULE, STREAM_CAPSULE};
use super::export::{ArrowStream, BatchReader};
use super::imported_arrays::ImportedArrays;
use crate::errors::{Failure, Result, panic_text, to_py};

type Imported<T> = std::result::Result<T, Error>;

/// The schema of anything with `__arrow_c_schema__`: schemas of pyarrow, polars and deltic have it, and some tables.
pub(crate) fn schema_from_py(object: &Bound<'_, PyAny>) -> Result<Schema> {
    let Some(capsule) = call(object, intern!(object.py(), "__arrow_c_schema__"))? else {
        let text = format!(
            "cannot take a schema from {}; pass a pyarrow.Schema or anything else that has `__arrow_c_schema__`",
            type_text(object)
        );
        return Err(Error::invalid(text).into());
    };
    let capsule = capsule_of(&capsule)?;
    Ok(to_schema(&field_of(&capsule)?)?.as_ref().clone())
}

/// The rows of anything with `__arrow_c_stream__` or `__arrow_c_array__`.
pub(crate) fn reader_from_py(object: &Bound<'_, PyAny>) -> Result<ImportedStream> {
    let py = object.py();
    if let Ok(own) = object.cast::<ArrowStream>() {
        let reader = own.get().take()?;
        return Ok(ImportedStream::of(Arc::clone(reader.schema()), Source::Own(reader)));
    }
    if object.hasattr(intern!(py, "read_next_batch"))? && object.hasattr(intern!(py, "schema"))? {
        let schema = Arc::new(schema_from_py(&object.getattr(intern!(py, "schema"))?)?);
        return Ok(ImportedStream::of(schema, Source::Reader(object.clone().unbind())));
    }
    if let Some(capsule) = call(object, intern!(py, "__arrow_c_stream__"))? {
        let pointer = pointer_in::<FFI_ArrowArrayStream>(&capsule_of(&capsule)?, STREAM_CAPSULE)?;
        // SAFETY: the capsule's name says what it points to, and the capsule is alive. This moves the stream out and
        // marks the capsule's own struct as released, so it is released once, by us.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
        // A producer may compute before it knows its schema, on threads that need the GIL.
        return Ok(py.detach(|| ImportedStream::from_ffi(stream))?);
    }
    if let Some(pair) = call(object, intern!(py, "__arrow_c_array__"))? {
        let (schema, array) = schema_and_array(&pair)?;
        let mut rows = ImportedStream::of(schema, Source::Ended);
        rows.source = Source::One(import_batch(array, &rows.schema, &rows.imported)?);
        return Ok(rows);
    }
    let text = format!(
        "cannot read rows from {}; pass a pyarrow Table, RecordBatch or RecordBatchReader, a polars DataFrame, a \
         pandas DataFrame (pandas 2.2 or newer), a DuckDB relation, or anything else that has `__arrow_c_stream__` or \
         `__arrow_c_array__`",
        type_text(object)
    );
    Err(Error::invalid(text).into())
}

/// The schema and the rows in the result of `__arrow_c_array__`.
fn schema_and_array(pair: &Bound<'_, PyAny>) -> Imported<(SchemaRef, FFI_ArrowArray)> {
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair
        .extract()
        .map_err(|_| Error::invalid(format!("`__arrow_c_array__` gave {} instead of two capsules", type_text(pair))))?;
    let schema = to_schema(&field_of(&capsule_of(&schema)?)?)?;
    let pointer = pointer_in::<FFI_ArrowArray>(&capsule_of(&array)?, ARRAY_CAPSULE)?;
    // SAFETY: the capsule's name says what it points to, and the capsule is alive. This moves the array out and marks the
    // capsule's own struct as released, so it is released once, by us.
    let array = unsafe { FFI_ArrowArray::from_raw(pointer.as_ptr()) };
    if array.is_released() { Err(used_already()) } else { Ok((schema, array)) }
}

/// Rows that come from Python code.
pub(crate) struct ImportedStream {
    pub(super) schema: SchemaRef,
    pub(super) source: Source,
    pub(super) imported: ImportedArrays,
}

pub(super) enum Source {
    /// Another library's stream.
    Foreign(FFI_ArrowArrayStream),
    /// A `pyarrow.RecordBatchReader`.
    Reader(Py<PyAny>),
    /// A stream of deltic's own, used directly, with its typed errors.
    Own(BatchReader),
    One(RecordBatch),
    Ended,
}

impl ImportedStream {
    fn of(schema: SchemaRef, source: Source) -> Self {
        Self { schema, source, imported: ImportedArrays::default() }
    }

    fn from_ffi(mut stream: FFI_ArrowArrayStream) -> Imported<Self> {
        if stream.release().is_none() {
            return Err(used_already());
        }
        let get_schema = stream.get_schema().ok_or_else(|| incomplete("get_schema"))?;
        let mut schema = FFI_ArrowSchema::empty();
        // SAFETY: the callback is called with the live stream it was read from, and writes one schema.
        let code = unsafe { get_schema(&raw mut stream, &raw mut schema) };
        if code != 0 {
            return Err(producer_error(&mut stream, code));
        }
        let schema = to_schema(&import_field(&schema)?)?;
        Ok(Self::of(schema, Source::Foreign(stream)))
    }

    /// Names and types of the columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch of a stream that needs no interpreter. Blocks this thread.
    pub(super) fn pull_detached(&mut self) -> Option<Imported<RecordBatch>> {
        let pulled = match &mut self.source {
            Source::Foreign(stream) => pull_foreign(stream, &self.schema, &self.imported).transpose(),
            Source::Own(reader) => return reader.pull(),
            Source::One(batch) => {
                let batch = batch.clone();
                self.source = Source::Ended;
                return Some(Ok(batch));
            }
            Source::Reader(_) => Some(Err(Error::internal("a reader of pyarrow's is pulled by Python"))),
            Source::Ended => return None,
        };
        if !matches!(pulled, Some(Ok(_))) {
            self.source = Source::Ended;
        }
        pulled
    }

    /// The next batch, for the thread that called from Python. The GIL is released while it is not needed.
    pub(crate) fn pull(&mut self, py: Python<'_>) -> Result<Option<RecordBatch>> {
        let Source::Reader(reader) = &self.source else {
            let pulled = py.detach(|| self.pull_detached()).transpose();
            return pulled.map_err(|error| interrupted(py, error));
        };
        let pulled = self.pull_reader(reader.bind(py));
        if !matches!(pulled, Ok(Some(_))) {
            self.source = Source::Ended;
        }
        pulled
    }

    fn pull_reader(&self, reader: &Bound<'_, PyAny>) -> Result<Option<RecordBatch>> {
        let py = reader.py();
        let batch = match reader.call_method0(intern!(py, "read_next_batch")) {
            Ok(batch) => batch,
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => return Ok(None),
            Err(error) => return Err(raised(py, error)),
        };
        let pair = batch.call_method0(intern!(py, "__arrow_c_array__"))?;
        let (schema, array) = schema_and_array(&pair)?;
        let (announced, imported) = (&self.schema, &self.imported);
        let batch = py.detach(|| {
            check_announced(&schema, announced)?;
            import_batch(array, announced, imported)
        });
        Ok(Some(batch?))
    }
}

/// Finds out whether a failed pull of another library's stream was Ctrl-C: if a signal handler has something to raise, or
/// if the producer's Python code was interrupted, of which a C stream passes on only the text.
fn interrupted(py: Python<'_>, error: Error) -> Failure {
    match interrupt_in(py, &error.to_string()) {
        Some(raised) => {
            raised.set_cause(py, Some(to_py(error)));
            Failure::Python(raised)
        }
        None => error.into(),
    }
}

/// The exception of Ctrl-C, if a failure with this text was caused by it.
fn interrupt_in(py: Python<'_>, text: &str) -> Option<PyErr> {
    let is_named = || text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "KeyboardInterrupt");
    py.check_signals().err().or_else(|| is_named().then(|| PyKeyboardInterrupt::new_err(())))
}

/// The failure for an exception of a producer written in Python: deltic's own errors, and those that are no `Exception`
/// (Ctrl-C), are passed on; others are the cause of an error of deltic's.
fn raised(py: Python<'_>, error: PyErr) -> Failure {
    let is_own = || -> PyResult<bool> {
        let class = py.import(intern!(py, "deltic.errors"))?.getattr(intern!(py, "DelticError"))?;
        error.value(py).is_instance(&class)
    };
    if !error.is_instance_of::<PyException>(py) || is_own().unwrap_or(false) {
        return Failure::Python(error);
    }
    // A pyarrow reader may itself read a C stream.
    if let Some(interrupt) = interrupt_in(py, &error.to_string()) {
        interrupt.set_cause(py, Some(error));
        return Failure::Python(interrupt);
    }
    let raised = to_py(Error::invalid(format!("the data could not be read: {error}")));
    raised.set_cause(py, Some(error));
    Failure::Python(raised)
}

/// Refuses a batch whose memory is not laid out as that of the announced types.
pub(crate) fn check_announced(schema: &SchemaRef, announced: &SchemaRef) -> Imported<()> {
    if schema.fields() == announced.fields() {
        return Ok(());
    }
    let (found, wanted) = (schema.fields(), announced.fields());
    if found.len() != wanted.len() {
        let text = format!("a batch has {} columns, but its reader announced {}", found.len(), wanted.len());
        return Err(Error::invalid(text));
    }
    match found.iter().zip(wanted).find(|(found, wanted)| !is_laid_out_as(found.data_type(), wanted.data_type())) {
        None => Ok(()),
        Some((found, wanted)) => Err(Error::invalid(format!(
            "the column `{}` of a batch has the type {}, but its reader announced {}",
            wanted.name(),
            found.data_type(),
            wanted.data_type()
        ))),
    }
}

/// Whether types differ only in names, metadata and nullability.
fn is_laid_out_as(found: &DataType, wanted: &DataType) -> bool {
    use DataType::{Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, RunEndEncoded, Struct};
    let same = |a: &Field, b: &Field| is_laid_out_as(a.data_type(), b.data_type());
    match (found, wanted) {
        (List(a), List(b)) | (LargeList(a), LargeList(b)) => same(a, b),
        (ListView(a), ListView(b)) | (LargeListView(a), LargeListView(b)) => same(a, b),
        (FixedSizeList(a, n), FixedSizeList(b, m)) => n == m && same(a, b),
        (Map(a, _), Map(b, _)) => same(a, b),
        (Struct(a), Struct(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Dictionary(a, b), Dictionary(c, d)) => a == c && is_laid_out_as(b, d),
        (RunEndEncoded(a, b), RunEndEncoded(c, d)) => same(a, c) && same(b, d),
        _ => found == wanted,
    }
}

fn pull_foreign(
    stream: &mut FFI_ArrowArrayStream,
    schema: &SchemaRef,
    imported: &ImportedArrays,
) -> Imported<Option<RecordBatch>> {
    let get_next = stream.get_next().ok_or_else(|| incomplete("get_next"))?;
    let mut array = FFI_ArrowArray::empty();
    // SAFETY: the callback is called with the live stream it was read from, exclusively borrowed, and writes one array.
    let code = unsafe { get_next(&raw mut *stream, &raw mut array) };
    match code {
        0 if array.is_released() => Ok(None),
        0 => import_batch(array, schema, imported).map(Some),
        code => Err(producer_error(stream, code)),
    }
}

/// The producer's message about its failed call. For a producer in Python that is the text of its exception.
fn producer_error(stream: &mut FFI_ArrowArrayStream, code: c_int) -> Error {
    let text = stream.get_last_error().and_then(|get_last_error| {
        // SAFETY: called with the live stream it was read from, right after a call that failed, as the interface asks.
        let text = NonNull::new(unsafe { get_last_error(&raw mut *stream) }.cast_mut())?;
        // SAFETY: not null, NUL-terminated, and valid until the next call on the stream; copied before that.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    });
    let text =
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| std::io::Error::from_raw_os_error(code).to_string());
    Error::invalid(format!("the data could not be read: {text}"))
}

fn import_batch(array: FFI_ArrowArray, schema: &SchemaRef, imported: &ImportedArrays) -> Imported<RecordBatch> {
    let (array, data_type) = (imported.count(array), DataType::Struct(schema.fields().clone()));
    // SAFETY: the producer guarantees that the array has the announced type. All that can be checked is checked before any
    // array is made from it.
    let data = caught(|| unsafe { from_ffi_and_data_type(array, data_type) })?;
    checked_batch(&data, schema)
}

fn import_field(schema: &FFI_ArrowSchema) -> Imported<Field> {
    if schema.release().is_none() {
        return Err(used_already());
    }
    let field = caught(|| Field::try_from(schema))?;
    check_dictionaries(schema, "")?;
    Ok(field)
}

/// Refuses dictionaries of extension types: the imported field would not show the extension type.
fn check_dictionaries(schema: &FFI_ArrowSchema, path: &str) -> Imported<()> {
    if let Some(values) = schema.dictionary() {
        check_extension_at(&caught(|| Field::try_from(values))?, path)?;
        return check_dictionaries(values, path);
    }
    let is_struct = schema.format() == "+s";
    schema.children().try_for_each(|child| match child.name().filter(|_| is_struct) {
        Some(name) if path.is_empty() => check_dictionaries(child, name),
        Some(name) => check_dictionaries(child, &format!("{path}.{name}")),
        None => check_dictionaries(child, path),
    })
}

fn to_schema(field: &Field) -> Imported<SchemaRef> {
    match field.data_type() {
        DataType::Struct(fields) => Ok(Arc::new(Schema::new_with_metadata(fields.clone(), field.metadata().clone()))),
        other => Err(Error::invalid(format!("expected rows with named columns, got a single column of type {other}"))),
    }
}

/// Arrow's import of the C structs asserts what the interface promises; a broken promise is the caller's error, not a crash.
fn caught<T>(import: impl FnOnce() -> std::result::Result<T, ArrowError>) -> Imported<T> {
    let invalid = |text: &dyn std::fmt::Display| Error::invalid(format!("the Arrow data is not valid: {text}"));
    match catch_unwind(AssertUnwindSafe(import)) {
        Ok(imported) => imported.map_err(|error| invalid(&error)),
        Err(panic) => Err(invalid(&panic_text(&*panic))),
    }
}

fn used_already() -> Error {
    Error::invalid("this Arrow data has been consumed already; pass data that nothing else has read")
}

fn incomplete(callback: &str) -> Error {
    Error::invalid(format!("the Arrow stream has no `{callback}`; the library that made it is at fault"))
}

/// Calls the method `name`, if the object has it.
fn call<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match object.getattr(name) {
        Ok(method) => method.call0().map(Some),
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> Imported<Bound<'py, PyCapsule>> {
    let capsule = object.cast::<PyCapsule>();
    capsule.cloned().map_err(|_| Error::invalid(format!("expected an Arrow capsule, got {}", type_text(object))))
}

fn pointer_in<T>(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> Imported<NonNull<T>> {
    let pointer = capsule.pointer_checked(Some(name)).map(NonNull::cast::<T>);
    pointer.ok().filter(|pointer| pointer.is_aligned()).ok_or_else(|| {
        Error::invalid(format!(
            "expected a capsule named `{}`; the library that made it is at fault",
            name.to_string_lossy()
        ))
    })
}

fn field_of(capsule: &Bound<'_, PyCapsule>) -> Imported<Field> {
    let pointer = pointer_in::<FFI_ArrowSchema>(capsule, SCHEMA_CAPSULE)?;
    // SAFETY: the capsule's name says what it points to, it is aligned, and the borrowed capsule keeps it alive and,
    // because the GIL is held, unchanged meanwhile.
    import_field(unsafe { pointer.as_ref() })
}

fn type_text(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "this object".to_owned(), |name| format!("a `{name}`"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatchIterator, StructArray, record_batch};
    use arrow_buffer::NullBuffer;
    use arrow_schema::Fields;

    use super::super::export::tests::{numbers, reader};
    use super::*;

    /// The error of reading `batches` that claim to be of `announced`.
    fn refusal(announced: Fields, batches: Vec<RecordBatch>) -> String {
        let announced = Arc::new(Schema::new(announced));
        let batches = RecordBatchIterator::new(batches.into_iter().map(Ok), announced);
        let mut stream = ImportedStream::from_ffi(FFI_ArrowArrayStream::new(Box::new(batches))).unwrap();
        let refusal = stream.pull_detached().unwrap().unwrap_err().to_string();
        assert!(stream.pull_detached().is_none(), "a failed stream is over");
        refusal
    }

    #[test]
    fn batches_and_errors_cross_and_the_stream_ends() {
        let batches =
            [Ok(numbers()), Ok(numbers().slice(1, 2)), Err(Error::corrupt("torn \0 page").in_file("a.parquet"))];
        let ours = reader(&numbers().schema(), batches.into_iter());
        let mut stream = ImportedStream::from_ffi(ours.into_ffi()).unwrap();
        assert_eq!(stream.schema(), &numbers().schema());
        assert_eq!(stream.pull_detached().unwrap().unwrap(), numbers());
        assert_eq!(stream.pull_detached().unwrap().unwrap(), numbers().slice(1, 2));
        let error = stream.pull_detached().unwrap().unwrap_err().to_string();
        assert!(error.contains("CorruptTableError: torn \\x00 page [file a.parquet]"), "{error}");
        assert!(stream.pull_detached().is_none());
    }

    #[test]
    fn own_streams_keep_typed_errors() {
        let ours = reader(&numbers().schema(), [Err(Error::storage(true, "slow down"))].into_iter());
        let error = ImportedStream::of(numbers().schema(), Source::Own(ours)).pull_detached().unwrap().unwrap_err();
        assert_eq!(error.kind(), &deltic_protocol::error::Kind::Storage { retryable: true });
    }

    #[test]
    fn broken_promises_are_errors() {
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        let too_few = refusal([field("id", DataType::Int64), field("b", DataType::Int64)].into(), vec![numbers()]);
        assert!(too_few.contains("not valid"), "{too_few}");
        let other_layout = refusal([field("id", DataType::Utf8)].into(), vec![numbers()]);
        assert!(other_layout.contains("not valid"), "{other_layout}");
        let not_null = refusal([Arc::new(Field::new("id", DataType::Int64, false))].into(), vec![numbers()]);
        assert!(not_null.contains("`id`") && not_null.contains("row 1"), "{not_null}");
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"caf\xe9"[..]]));
        let bytes = RecordBatch::try_from_iter([("s", bytes)]).unwrap();
        let not_utf8 = refusal([field("s", DataType::Utf8)].into(), vec![bytes]);
        assert!(not_utf8.contains("`s`") && not_utf8.contains("not UTF-8"), "{not_utf8}");
    }

    #[test]
    fn memory_is_counted_until_it_is_given_back() {
        let imported = ImportedArrays::default();
        let rows = || StructArray::from(record_batch!(("id", Int64, [1, 2])).unwrap());
        let array = FFI_ArrowArray::new(&rows().to_data());
        let batch = import_batch(array, &Arc::new(Schema::new(rows().fields().clone())), &imported).unwrap();
        assert!(imported.has_unreleased());
        let column = batch.column(0).slice(1, 1);
        drop(batch);
        assert!(imported.has_unreleased(), "a column is left");
        drop(column);
        assert!(!imported.has_unreleased());
    }

    #[test]
    fn rows_that_are_null_as_a_whole_are_refused() {
        let rows = StructArray::from(record_batch!(("id", Int64, [1, 2])).unwrap());
        let (fields, columns, _) = rows.into_parts();
        let rows = StructArray::new(fields.clone(), columns, Some(NullBuffer::from(vec![true, false])));
        let array = FFI_ArrowArray::new(&rows.to_data());
        let refused = import_batch(array, &Arc::new(Schema::new(fields)), &ImportedArrays::default());
        assert!(refused.unwrap_err().to_string().contains("1 rows are themselves null"));
    }

    #[test]
    fn released_structs_are_refused() {
        let refused = ImportedStream::from_ffi(FFI_ArrowArrayStream::empty()).err().unwrap();
        assert!(refused.to_string().contains("consumed already"));
        assert!(import_field(&FFI_ArrowSchema::empty()).unwrap_err().to_string().contains("consumed already"));
    }

    #[test]
    fn batches_are_laid_out_as_announced() {
        let list = |name: &str, data_type: DataType, nullable: bool| {
            DataType::List(Arc::new(Field::new(name, data_type, nullable)))
        };
        assert!(is_laid_out_as(&list("item", DataType::Int32, true), &list("element", DataType::Int32, false)));
        assert!(!is_laid_out_as(&list("item", DataType::Int32, true), &list("item", DataType::Int64, true)));
        let schema = |data_type| Arc::new(Schema::new(vec![Field::new("x", data_type, true)]));
        let refused = check_announced(&schema(DataType::Int32), &schema(DataType::Int64)).unwrap_err().to_string();
        assert!(refused.contains("the column `x` of a batch has the type Int32, but its reader announced Int64"));
    }
}
