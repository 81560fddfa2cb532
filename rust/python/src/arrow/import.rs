//! Data and schemas that Python code hands in, from whatever library speaks the Arrow PyCapsule interface.
//!
//! The C structs are followed as the interface specifies; a producer in the same process that breaks it can break
//! the process. What can be checked cheaply is: structs that were released already, missing callbacks, the number,
//! size and alignment of buffers, lengths of children, first and last offsets, nulls where the schema denies them, and
//! text by a module of its own. Not checked, because it would read every value: the offsets in between of other types.
//!
//! Batches are pulled without the GIL; a producer written in Python takes it when it is called. What may take its time is
//! pulled on a thread of its own; what is in memory, on the thread that wants it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use deltic_protocol::error::Error;
use deltic_protocol::schema::arrow::check_extension_at;
use futures::stream::{BoxStream, Stream, StreamExt};
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString};
use tokio::sync::mpsc;

use super::export::{ArrowStream, BatchReader};
use super::text::check_text;
use super::{ARRAY_CAPSULE, SCHEMA_CAPSULE, STREAM_CAPSULE};
use crate::errors::{Result, panic_text};

/// Batches in memory that are pulled before others have their turn.
const BATCHES_AT_ONCE: usize = 64;

/// Batches of a foreign stream that wait to be taken, beside the one that is being pulled.
const BATCHES_AHEAD: usize = 1;

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
        return Ok(ImportedStream { schema: Arc::clone(reader.schema()), source: Source::Own(reader) });
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
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract().map_err(|_| {
            Error::invalid(format!("`__arrow_c_array__` gave {} instead of two capsules", type_text(&pair)))
        })?;
        let schema = to_schema(&field_of(&capsule_of(&schema)?)?)?;
        let pointer = pointer_in::<FFI_ArrowArray>(&capsule_of(&array)?, ARRAY_CAPSULE)?;
        // SAFETY: as above, for an array.
        let array = unsafe { FFI_ArrowArray::from_raw(pointer.as_ptr()) };
        if array.is_released() {
            return Err(used_already().into());
        }
        let batch = import_batch(array, &schema)?;
        return Ok(ImportedStream { schema, source: Source::One(batch) });
    }
    let text = format!(
        "cannot read rows from {}; pass a pyarrow Table, RecordBatch or RecordBatchReader, a polars DataFrame, a \
         pandas DataFrame (pandas 2.2 or newer), a DuckDB relation, or anything else that has `__arrow_c_stream__` or \
         `__arrow_c_array__`",
        type_text(object)
    );
    Err(Error::invalid(text).into())
}

/// Rows that come from Python code. Pull them from any thread, without the GIL.
pub(crate) struct ImportedStream {
    schema: SchemaRef,
    source: Source,
}

enum Source {
    /// Another library's stream.
    Foreign(FFI_ArrowArrayStream),
    /// A stream of deltic's own, taken back whole, with its typed errors.
    Own(BatchReader),
    One(RecordBatch),
    Ended,
}

impl ImportedStream {
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
        Ok(Self { schema, source: Source::Foreign(stream) })
    }

    /// Names and types of the columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch, under [`Self::schema`]. Blocks this thread.
    pub(crate) fn pull(&mut self) -> Option<Imported<RecordBatch>> {
        let batch = match &mut self.source {
            Source::Foreign(stream) => pull_foreign(stream, &self.schema).transpose(),
            Source::Own(reader) => return reader.pull(),
            Source::One(batch) => {
                let batch = batch.clone();
                self.source = Source::Ended;
                return Some(Ok(batch));
            }
            Source::Ended => return None,
        };
        if !matches!(batch, Some(Ok(_))) {
            self.source = Source::Ended;
        }
        batch
    }

    /// The batches for asynchronous code. What may take its time is pulled on a thread of its own: a producer may
    /// itself wait for a read of deltic's, which needs the blocking threads of the runtime.
    pub(crate) fn into_stream(self, in_memory: bool) -> BoxStream<'static, Imported<RecordBatch>> {
        match self.source {
            Source::Own(reader) => {
                let batches = futures::stream::unfold(reader, |mut reader| async move {
                    reader.read().await.map(|batch| (batch, reader))
                });
                batches.boxed()
            }
            _ if in_memory => self.into_ready().boxed(),
            _ => self.into_awaited().boxed(),
        }
    }

    /// Now and then the thread is given up, for signals are looked at then.
    fn into_ready(self) -> impl Stream<Item = Imported<RecordBatch>> + Send + 'static {
        futures::stream::unfold((self, 1_usize), |(mut reader, at)| async move {
            if at.is_multiple_of(BATCHES_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            reader.pull().map(|batch| (batch, (reader, at.wrapping_add(1))))
        })
    }

    /// Starts the thread when it is polled first. The thread ends with its next batch when the stream is dropped.
    fn into_awaited(self) -> impl Stream<Item = Imported<RecordBatch>> + Send + 'static {
        let batches = async move {
            let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
            let started = thread::Builder::new().name("deltic-source".to_owned()).spawn(move || self.feed(&sender));
            if let Err(source) = started {
                let text = "cannot start a thread to read the data; the limit on threads may be too low";
                return futures::stream::iter([Err(Error::storage(true, text).caused_by(source))]).boxed();
            }
            futures::stream::unfold(receiver, |mut receiver| async move {
                receiver.recv().await.map(|batch| (batch, receiver))
            })
            .boxed()
        };
        futures::stream::once(batches).flatten()
    }

    /// Sends the batches until they end, one fails, or nobody listens.
    fn feed(mut self, out: &mpsc::Sender<Imported<RecordBatch>>) {
        loop {
            let pulled = catch_unwind(AssertUnwindSafe(|| self.pull()));
            let batch = pulled.unwrap_or_else(|panic| {
                Some(Err(Error::internal(format!("reading the data panicked: {}", panic_text(&*panic)))))
            });
            let Some(batch) = batch else { return };
            let failed = batch.is_err();
            if out.blocking_send(batch).is_err() || failed {
                return;
            }
        }
    }
}

impl Iterator for ImportedStream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    /// [`ImportedStream::pull`]; the error is an [`ArrowError::ExternalError`] with deltic's inside.
    fn next(&mut self) -> Option<Self::Item> {
        self.pull().map(|batch| batch.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for ImportedStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn pull_foreign(stream: &mut FFI_ArrowArrayStream, schema: &SchemaRef) -> Imported<Option<RecordBatch>> {
    let get_next = stream.get_next().ok_or_else(|| incomplete("get_next"))?;
    let mut array = FFI_ArrowArray::empty();
    // SAFETY: the callback is called with the live stream it was read from, exclusively borrowed, and writes one array.
    let code = unsafe { get_next(&raw mut *stream, &raw mut array) };
    match code {
        0 if array.is_released() => Ok(None),
        0 => import_batch(array, schema).map(Some),
        code => Err(producer_error(stream, code)),
    }
}

/// What the producer says about its failed call. For a producer in Python that is the text of its exception.
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

fn import_batch(array: FFI_ArrowArray, schema: &SchemaRef) -> Imported<RecordBatch> {
    let data_type = DataType::Struct(schema.fields().clone());
    let batch = caught(|| {
        // SAFETY: the producer vouches that the array has the type it announced. `validate` checks what can be checked
        // without reading all of it, before any array is made from it.
        let data = unsafe { from_ffi_and_data_type(array, data_type) }?;
        data.validate()?;
        let rows = StructArray::from(data);
        if rows.null_count() > 0 {
            let text = format!("{} rows are null as a whole, which a table cannot hold; drop them", rows.null_count());
            return Err(ArrowError::InvalidArgumentError(text));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(schema), rows.into_parts().1, &options)
    })?;
    check_text(&batch)?;
    Ok(batch)
}

fn import_field(schema: &FFI_ArrowSchema) -> Imported<Field> {
    if schema.release().is_none() {
        return Err(used_already());
    }
    let field = caught(|| Field::try_from(schema))?;
    check_dictionaries(schema, "")?;
    Ok(field)
}

/// Refuses dictionaries of extension types: their field, once imported, says nothing of it.
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

/// Arrow's import asserts what the interface promises; a broken promise is the caller's error, not a crash.
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
    use arrow_array::{
        ArrayRef, BinaryArray, DictionaryArray, Int8Array, ListArray, RecordBatchIterator, record_batch,
    };
    use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
    use arrow_schema::Fields;

    use super::super::export::tests::{numbers, reader};
    use super::*;

    /// The error of reading `batches` that claim to be of `announced`.
    fn refusal(announced: Fields, batches: Vec<RecordBatch>) -> String {
        let announced = Arc::new(Schema::new(announced));
        let batches = RecordBatchIterator::new(batches.into_iter().map(Ok), announced);
        let mut stream = ImportedStream::from_ffi(FFI_ArrowArrayStream::new(Box::new(batches))).unwrap();
        let refusal = stream.pull().unwrap().unwrap_err().to_string();
        assert!(stream.pull().is_none(), "a failed stream is over");
        refusal
    }

    #[test]
    fn batches_and_errors_cross_and_the_stream_ends() {
        let batches =
            [Ok(numbers()), Ok(numbers().slice(1, 2)), Err(Error::corrupt("torn \0 page").in_file("a.parquet"))];
        let ours = reader(&numbers().schema(), batches.into_iter());
        let mut stream = ImportedStream::from_ffi(ours.into_ffi()).unwrap();
        assert_eq!(stream.schema(), &numbers().schema());
        assert_eq!(stream.pull().unwrap().unwrap(), numbers());
        assert_eq!(stream.pull().unwrap().unwrap(), numbers().slice(1, 2));
        let error = stream.pull().unwrap().unwrap_err().to_string();
        assert!(error.contains("CorruptTableError: torn \u{fffd} page [file a.parquet]"), "{error}");
        assert!(stream.pull().is_none());
    }

    #[test]
    fn own_streams_keep_typed_errors() {
        let kind = deltic_protocol::error::Kind::Storage { retryable: true };
        let own = || {
            let ours = reader(&numbers().schema(), [Err(Error::storage(true, "slow down"))].into_iter());
            ImportedStream { schema: numbers().schema(), source: Source::Own(ours) }
        };
        let error = own().next().unwrap().unwrap_err();
        assert_eq!(Error::from(error).kind(), &kind);
        let runtime = crate::runtime::Runtime::start().unwrap();
        let error = runtime.wait(own().into_stream(false).next()).unwrap().unwrap_err();
        assert_eq!(error.kind(), &kind);
    }

    #[test]
    fn broken_promises_are_errors() {
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        let too_few = refusal([field("id", DataType::Int64), field("b", DataType::Int64)].into(), vec![numbers()]);
        assert!(too_few.contains("not valid"), "{too_few}");
        let other_layout = refusal([field("id", DataType::Utf8)].into(), vec![numbers()]);
        assert!(other_layout.contains("not valid"), "{other_layout}");
        let not_null = refusal([Arc::new(Field::new("id", DataType::Int64, false))].into(), vec![numbers()]);
        assert!(not_null.contains("non-nullable"), "{not_null}");
    }

    #[test]
    fn rows_that_are_null_as_a_whole_are_refused() {
        let rows = StructArray::from(record_batch!(("id", Int64, [1, 2])).unwrap());
        let (fields, columns, _) = rows.into_parts();
        let rows = StructArray::new(fields.clone(), columns, Some(NullBuffer::from(vec![true, false])));
        let refused = import_batch(FFI_ArrowArray::new(&rows.to_data()), &Arc::new(Schema::new(fields)));
        assert!(refused.unwrap_err().to_string().contains("1 rows are null"));
    }

    /// A column of type `text` that is made of `binary`, which has the same layout, whatever its bytes are.
    fn imported(text: &DataType, binary: &ArrayRef) -> Imported<RecordBatch> {
        let rows =
            StructArray::from(vec![(Arc::new(Field::new("t", binary.data_type().clone(), true)), binary.clone())]);
        let announced = Schema::new(vec![Field::new("t", text.clone(), true)]);
        import_batch(FFI_ArrowArray::new(&rows.to_data()), &Arc::new(announced))
    }

    #[test]
    fn text_that_is_no_utf8_is_refused_by_its_column() {
        use DataType::{Binary, BinaryView, Dictionary, Int8, LargeBinary, LargeUtf8, Utf8, Utf8View};
        let check = |text: DataType, binary: &ArrayRef, refused: Option<&str>| {
            let outcome = imported(&text, binary);
            let Some(path) = refused else { return assert_eq!(outcome.unwrap().num_rows(), binary.len(), "{text}") };
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), &deltic_protocol::error::Kind::Invalid, "{text}: {error}");
            assert!(error.message().starts_with(&format!("the column `{path}` is text")), "{text}: {error}");
        };
        let bytes = |values: &[Option<&[u8]>]| -> ArrayRef { Arc::new(BinaryArray::from_iter(values.iter().copied())) };
        let long = "ein Café, länger als die Ansicht";
        let good = bytes(&[Some(b"a"), None, Some("é".as_bytes()), Some(long.as_bytes()), Some(b"")]);
        let bad = bytes(&[Some(b"a"), Some(b"caf\xe9 noir, served with a madeleine")]);
        let short = bytes(&[Some(b"caf\xe9")]);
        // Each value is half a character, and both together are one.
        let halves = bytes(&[Some(b"\xc3"), Some(b"\xa9")]);
        for (binary, text) in [(Binary, Utf8), (LargeBinary, LargeUtf8), (BinaryView, Utf8View)] {
            let cast = |array: &ArrayRef| arrow_cast::cast(array, &binary).unwrap();
            check(text.clone(), &cast(&good), None);
            for wrong in [&bad, &short, &halves] {
                check(text.clone(), &cast(wrong), Some("t"));
            }
            // Of a larger array only the slice counts, and nothing that lies under a null.
            check(text.clone(), &cast(&bad).slice(0, 1), None);
            let (lengths, values) = (OffsetBuffer::from_lengths([1, 1, 2]), Buffer::from(&b"a\xe9\xc3\xa9"[..]));
            let hidden = BinaryArray::new(lengths, values, Some(NullBuffer::from(vec![true, false, true])));
            check(text, &cast(&(Arc::new(hidden) as ArrayRef)), None);
        }
        let keyed =
            |array: &ArrayRef| -> ArrayRef { Arc::new(DictionaryArray::new(Int8Array::from(vec![0]), array.clone())) };
        let text = Dictionary(Box::new(Int8), Box::new(Utf8));
        check(text.clone(), &keyed(&good), None);
        check(text, &keyed(&bad), Some("t"));
        let within = |array: &ArrayRef| -> ArrayRef {
            let item = Arc::new(Field::new("item", Binary, true));
            let list = ListArray::new(item, OffsetBuffer::from_lengths([1, array.len() - 1]), array.clone(), None);
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("l", list.data_type().clone(), true)),
                Arc::new(list) as ArrayRef,
            )]))
        };
        let list = DataType::List(Arc::new(Field::new("item", Utf8, true)));
        let text = DataType::Struct([Arc::new(Field::new("l", list, true))].into());
        check(text.clone(), &within(&good), None);
        check(text.clone(), &within(&bad), Some("t.l.element"));
        check(text, &within(&bad).slice(0, 1), None);
    }

    #[test]
    fn released_structs_are_refused() {
        let refused = ImportedStream::from_ffi(FFI_ArrowArrayStream::empty()).err().unwrap();
        assert!(refused.to_string().contains("consumed already"));
        assert!(import_field(&FFI_ArrowSchema::empty()).unwrap_err().to_string().contains("consumed already"));
    }

    #[test]
    fn blocking_streams_feed_asynchronous_code() {
        let runtime = crate::runtime::Runtime::start().unwrap();
        for in_memory in [false, true] {
            let failed = Err(ArrowError::ComputeError("torn page".to_owned()));
            let batches = [Ok(numbers()), Ok(numbers()), failed].into_iter();
            let foreign = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new(batches, numbers().schema())));
            let stream = ImportedStream::from_ffi(foreign).unwrap().into_stream(in_memory);
            let batches = runtime.wait(stream.collect::<Vec<_>>());
            assert_eq!(batches.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
        }
    }

    /// A foreign stream whose every batch waits for a blocking thread of `runtime`, as a read of deltic's does.
    fn reading_stream(runtime: &crate::runtime::Runtime) -> ImportedStream {
        let runtime = runtime.clone();
        let batches = (0..3).map(move |_| {
            let read = runtime.handle().spawn_blocking(numbers);
            runtime.wait(read).map_err(|e| ArrowError::ComputeError(e.to_string()))
        });
        let batches = RecordBatchIterator::new(batches, numbers().schema());
        ImportedStream::from_ffi(FFI_ArrowArrayStream::new(Box::new(batches))).unwrap()
    }

    #[test]
    fn many_streams_that_read_themselves_do_not_wait_for_one_another() {
        let runtime = crate::runtime::Runtime::start().unwrap();
        // Dropped, a runtime whose threads wait for each other would wait for them in turn.
        std::mem::forget(runtime.clone());
        let streams = (0..200).map(|_| reading_stream(&runtime).into_stream(false).count());
        let counted = futures::future::join_all(streams);
        let limit = std::time::Duration::from_secs(60);
        let counted = runtime.wait(async { tokio::time::timeout(limit, counted).await });
        assert_eq!(counted.unwrap(), [3; 200]);
    }

    #[test]
    fn a_stream_that_nobody_polls_or_that_is_dropped_pulls_no_more() {
        let runtime = crate::runtime::Runtime::start().unwrap();
        let pulled = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (counter, alive) = (Arc::clone(&pulled), Arc::new(()));
        let held = Arc::clone(&alive);
        let batches = std::iter::repeat_with(move || {
            let _ = &held;
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(numbers())
        });
        let batches = RecordBatchIterator::new(batches, numbers().schema());
        let foreign = FFI_ArrowArrayStream::new(Box::new(batches));
        let mut stream = ImportedStream::from_ffi(foreign).unwrap().into_stream(false);
        assert_eq!(pulled.load(std::sync::atomic::Ordering::Relaxed), 0);
        assert!(runtime.wait(stream.next()).unwrap().is_ok());
        drop(stream);
        for _ in 0..1000 {
            if Arc::strong_count(&alive) == 1 {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(Arc::strong_count(&alive), 1, "the thread of the dropped stream goes on");
        assert!(pulled.load(std::sync::atomic::Ordering::Relaxed) <= 2 + BATCHES_AHEAD);
    }
}
