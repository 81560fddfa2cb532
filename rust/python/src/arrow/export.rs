//! Arrow data that deltic returns to Python: schemas, batches, and lazy streams of batches.
//!
//! A stream can be consumed in two ways. Any Arrow library can use `__arrow_c_stream__`: its callbacks come from
//! arbitrary threads, with or without the GIL, so they use no Python object, and an error is only a text. And deltic's own
//! Python code uses `read_next`, batch by batch: with typed exceptions, and with Ctrl-C.
//!
//! Invariants: every batch has exactly the types the stream has announced, because consumers follow its pointers by
//! the announced types; no panic crosses the C interface, where it would abort the process; a stream is never polled,
//! nor dropped, in a child forked from the process that opened it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_protocol::schema::arrow::table_type_name;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::capsules::{ARRAY_CAPSULE, SCHEMA_CAPSULE, STREAM_CAPSULE};
use super::gil::without_gil;
use crate::errors::{Failure, Result, panic_text, to_arrow};
use crate::runtime::Runtime;

/// The names and types of columns, for any library that reads `__arrow_c_schema__`.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct ArrowSchema(SchemaRef);

impl ArrowSchema {
    /// Wraps `schema` for Python.
    pub(crate) fn new(schema: impl Into<SchemaRef>) -> Self {
        Self(schema.into())
    }
}

#[entry]
#[pymethods]
impl ArrowSchema {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        format!("ArrowSchema({})", columns_text(&self.0))
    }
}

/// One record batch, for any library that reads `__arrow_c_array__` or `__arrow_c_stream__`. Can be read repeatedly.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct ArrowBatch(RecordBatch);

impl ArrowBatch {
    /// Wraps `batch` for Python.
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self(batch)
    }
}

#[entry]
#[pymethods]
impl ArrowBatch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // The interface lets a producer keep to its own types.
        let array = FFI_ArrowArray::new(&StructArray::from(self.0.clone()).to_data());
        Ok((schema_capsule(py, self.0.schema_ref())?, PyCapsule::new_with_value(py, array, ARRAY_CAPSULE)?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        ArrowStream::from_batches(py, self.0.schema(), vec![self.0.clone()])?.__arrow_c_stream__(py, requested_schema)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.0.schema_ref())
    }

    /// Names and types of the columns.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(self.0.schema())
    }

    /// How many rows there are.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("ArrowBatch({} rows; {})", self.0.num_rows(), columns_text(self.0.schema_ref()))
    }
}

/// Record batches that are computed while they are read, for any library that reads `__arrow_c_stream__`. They can be read
/// once.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct ArrowStream {
    schema: SchemaRef,
    state: Mutex<State>,
}

/// Where the reader of the rows is. It is taken out of the lock while a batch is awaited: the lock is never held without
/// the GIL.
enum State {
    Here(BatchReader),
    Awaited,
    Given,
}

impl ArrowStream {
    /// A stream of batches with `schema`, which `runtime` polls while somebody reads.
    pub(crate) fn from_stream(
        schema: SchemaRef,
        batches: impl Stream<Item = std::result::Result<RecordBatch, Error>> + Send + 'static,
        runtime: Runtime,
    ) -> Self {
        let reader = BatchReader { schema: Arc::clone(&schema), source: Source::Open(batches.boxed()), runtime };
        Self { schema, state: Mutex::new(State::Here(reader)) }
    }

    /// A stream of batches that exist already.
    pub(crate) fn from_batches(py: Python<'_>, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self> {
        let batches = futures::stream::iter(batches.into_iter().map(Ok));
        Ok(Self::from_stream(schema, batches, Runtime::of_process(py)?))
    }

    /// Takes the reader out, for the only consumer.
    pub(super) fn take(&self) -> Result<BatchReader> {
        self.exchange(State::Given)
    }

    fn exchange(&self, replacement: State) -> Result<BatchReader> {
        let mut state = self.lock();
        match mem::replace(&mut *state, replacement) {
            State::Here(reader) => Ok(reader),
            State::Given => {
                *state = State::Given;
                Err(Error::invalid("this stream has been read already; a stream can be read once, make a new one")
                    .into())
            }
            State::Awaited => {
                *state = State::Awaited;
                Err(Error::invalid("another thread is reading this stream; let one thread read it").into())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[entry]
#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // The interface lets a producer keep to its own types.
        Ok(PyCapsule::new_with_value(py, self.take()?.into_ffi(), STREAM_CAPSULE)?)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    /// Names and types of the columns; known before anything is read.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(Arc::clone(&self.schema))
    }

    /// The next batch, or None at the end. Raises deltic's exceptions; after Ctrl-C reading can continue.
    fn read_next(&self, py: Python<'_>) -> Result<Option<ArrowBatch>> {
        let mut reader = self.exchange(State::Awaited)?;
        let runtime = reader.runtime.clone();
        let batch = match reader.check_process() {
            Ok(()) => catch_unwind(AssertUnwindSafe(|| runtime.block_on(py, reader.read()).map_err(Failure::from))),
            Err(error) => Ok(Ok(Some(Err(error)))),
        };
        *self.lock() = State::Here(reader);
        let batch = batch.unwrap_or_else(|panic| resume_unwind(panic));
        Ok(batch?.transpose()?.map(ArrowBatch))
    }

    fn __repr__(&self) -> String {
        format!("ArrowStream({})", columns_text(&self.schema))
    }
}

/// A stream of batches that is pulled from ordinary threads.
pub(super) struct BatchReader {
    schema: SchemaRef,
    source: Source,
    runtime: Runtime,
}

enum Source {
    Open(BoxStream<'static, std::result::Result<RecordBatch, Error>>),
    Ended,
    Failed,
}

impl BatchReader {
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The C struct that consumers pull from; its callbacks use no Python object.
    pub(super) fn into_ffi(self) -> FFI_ArrowArrayStream {
        FFI_ArrowArrayStream::new(Box::new(ForConsumers::new(self)))
    }

    /// Refuses a stream that another process opened, whose threads do not exist here.
    pub(super) fn check_process(&mut self) -> std::result::Result<(), Error> {
        if self.runtime.is_of_this_process() { Ok(()) } else { Err(self.refuse_in_child()) }
    }

    /// The next batch. Blocks this thread, on which Python need not be attached.
    pub(super) fn pull(&mut self) -> Option<std::result::Result<RecordBatch, Error>> {
        if let Err(error) = self.check_process() {
            return Some(Err(error));
        }
        let runtime = self.runtime.clone();
        runtime.wait(self.read())
    }

    /// [`BatchReader::pull`] for asynchronous code.
    pub(super) async fn read(&mut self) -> Option<std::result::Result<RecordBatch, Error>> {
        if let Err(error) = self.check_process() {
            return Some(Err(error));
        }
        let stream = match &mut self.source {
            Source::Open(stream) => stream,
            Source::Ended => return None,
            Source::Failed => {
                return Some(Err(Error::invalid(
                    "this stream has failed before; what follows is lost, make a new one",
                )));
            }
        };
        let batch = match AssertUnwindSafe(stream.next()).catch_unwind().await {
            Ok(None) => {
                self.close(Source::Ended);
                return None;
            }
            Ok(Some(batch)) => batch.and_then(|batch| conform(&self.schema, batch)),
            Err(panic) => Err(Error::internal(format!("a reader panicked: {}", panic_text(&*panic)))),
        };
        if batch.is_err() {
            self.close(Source::Failed);
        }
        Some(batch)
    }

    fn refuse_in_child(&mut self) -> Error {
        self.close(Source::Failed);
        Error::invalid("this stream was opened before the process forked; open it in the process that reads it")
    }

    /// Drops the stream, unless its threads are in another process.
    fn close(&mut self, source: Source) {
        let Source::Open(stream) = mem::replace(&mut self.source, source) else { return };
        if self.runtime.is_of_this_process() {
            let _entered = self.runtime.enter();
            // A stream whose poll panicked may panic again when dropped, and this can run inside a C callback.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(stream)));
        } else {
            mem::forget(stream);
        }
    }
}

impl Drop for BatchReader {
    fn drop(&mut self) {
        self.close(Source::Ended);
    }
}

/// A [`BatchReader`] behind the C callbacks. A consumer that relies on the GIL to call them one after the other may call them
/// on two threads while the GIL is released: one waits for the other.
struct ForConsumers {
    schema: SchemaRef,
    reader: Mutex<BatchReader>,
}

impl ForConsumers {
    fn new(reader: BatchReader) -> Self {
        Self { schema: Arc::clone(&reader.schema), reader: Mutex::new(reader) }
    }

    fn lock(&self) -> MutexGuard<'_, BatchReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Iterator for ForConsumers {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let this = &*self;
        // Rows may need the GIL on another thread, which would wait for this one.
        let pulled = catch_unwind(AssertUnwindSafe(|| without_gil(|| this.lock().pull())));
        let batch = pulled.unwrap_or_else(|panic| {
            this.lock().close(Source::Failed);
            Some(Err(Error::internal(format!("a reader panicked: {}", panic_text(&*panic)))))
        });
        batch.map(|batch| batch.map_err(to_arrow))
    }
}

impl RecordBatchReader for ForConsumers {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Gives `batch` the announced schema, with its field names; the types must be the announced ones.
fn conform(schema: &SchemaRef, batch: RecordBatch) -> std::result::Result<RecordBatch, Error> {
    if Arc::ptr_eq(schema, batch.schema_ref()) {
        return Ok(batch);
    }
    let (_, columns, rows) = batch.into_parts();
    let options = RecordBatchOptions::new().with_match_field_names(false).with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|source| Error::internal("a batch differs from the schema of its stream").caused_by(source))
}

fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> Result<Bound<'py, PyCapsule>> {
    let reason = "a column name has a NUL character, with which Arrow's interface ends names; rename the column";
    let refused = |e| Error::unsupported("names with a NUL character", reason).caused_by(e);
    let schema = FFI_ArrowSchema::try_from(schema).map_err(refused)?;
    Ok(PyCapsule::new_with_value(py, schema, SCHEMA_CAPSULE)?)
}

/// The columns as text, no more than fit on a screen.
fn columns_text(schema: &Schema) -> String {
    const SHOWN: usize = 20;
    let mut columns: Vec<String> = schema
        .fields()
        .iter()
        .take(SHOWN)
        .map(|field| format!("{}: {}", field.name(), table_type_name(field.data_type())))
        .collect();
    if let Some(hidden) = schema.fields().len().checked_sub(SHOWN).filter(|hidden| *hidden > 0) {
        columns.push(format!("and {hidden} more"));
    }
    columns.join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
pub(super) mod tests {
    use arrow_array::record_batch;
    use arrow_schema::{DataType, Field};

    use super::*;

    /// A reader of `batches` in announced `schema`.
    pub(in crate::arrow) fn reader(
        schema: &SchemaRef,
        batches: impl Iterator<Item = std::result::Result<RecordBatch, Error>> + Send + 'static,
    ) -> BatchReader {
        let source = Source::Open(futures::stream::iter(batches).boxed());
        BatchReader { schema: Arc::clone(schema), source, runtime: Runtime::start().unwrap() }
    }

    pub(in crate::arrow) fn numbers() -> RecordBatch {
        record_batch!(("id", Int64, [Some(1), None, Some(3)])).unwrap()
    }

    /// What each pull of a consumer gives, up to the end.
    fn outcome(reader: BatchReader) -> Vec<String> {
        let shown = ForConsumers::new(reader).map(|batch| match batch {
            Ok(batch) => format!("{} rows", batch.num_rows()),
            Err(error) => error.to_string(),
        });
        shown.take(3).collect()
    }

    #[test]
    fn batches_take_the_announced_names_and_keep_their_types() {
        let announced = Arc::new(Schema::new(vec![Field::new("other", DataType::Int64, true)]));
        let batch = ForConsumers::new(reader(&announced, [Ok(numbers())].into_iter())).next().unwrap().unwrap();
        assert_eq!(batch.schema(), announced);

        for wrong in [Field::new("id", DataType::Int32, true), Field::new("id", DataType::Int64, false)] {
            let announced = Arc::new(Schema::new(vec![wrong]));
            let shown = outcome(reader(&announced, [Ok(numbers()), Ok(numbers())].into_iter()));
            assert!(shown[0].contains("DelticError: a batch differs from the schema of its stream"), "{shown:?}");
            assert!(shown[1].contains("has failed before"), "{shown:?}");
        }
    }

    #[test]
    fn a_panic_is_an_error_and_ends_the_stream() {
        let mut pulled = 0;
        let batches = std::iter::from_fn(move || {
            pulled += 1;
            if pulled == 2 {
                panic!("lost the thread");
            }
            Some(Ok(numbers()))
        });
        let shown = outcome(reader(&numbers().schema(), batches));
        assert_eq!(shown[0], "3 rows");
        assert!(shown[1].contains("a reader panicked: lost the thread"), "{shown:?}");
        assert!(shown[2].contains("has failed before"), "{shown:?}");
    }

    #[test]
    fn wide_schemas_are_abridged() {
        let field = |i: usize| Field::new(format!("c{i}"), DataType::Int64, true);
        let wide = Schema::new((0..22).map(field).collect::<Vec<_>>());
        assert!(columns_text(&wide).ends_with("c19: long, and 2 more"));
        assert_eq!(columns_text(&Schema::new(vec![field(0)])), "c0: long");
    }
}
