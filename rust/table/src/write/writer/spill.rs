//! The temporary file for rows of partitions without an open file.
//!
//! It is an Arrow IPC file, in which each record batch is a run: consecutive rows of one partition. It has no
//! name if the system allows that, and disappears when its handle is closed, also after an error or in a killed process.
//! Memory holds some 30 bytes for each run.
//!
//! Proved by `write::many_partitions::each_partition_has_one_file_in_bounded_memory`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use deltic_protocol::error::{Error, Result};

use crate::write::pieces::memory;

/// The most bytes of rows after which a run ends.
const RUN: usize = 4 * 1024 * 1024;

/// Bytes that are written at a time.
const WRITTEN_AT_ONCE: usize = 1024 * 1024;

/// A temporary file that takes runs.
pub(super) struct SpillFile {
    writer: FileWriter<BufWriter<File>>,
    schema: SchemaRef,
    runs: u32,
    /// Bytes of rows after which a run ends.
    run_bytes: usize,
}

/// The runs of one partition, in the order of its rows.
#[derive(Default)]
pub(super) struct Runs {
    numbers: VecDeque<u32>,
    bytes: usize,
}

/// A temporary file that is being read.
pub(super) struct SpilledRows {
    reader: FileReader<File>,
    schema: SchemaRef,
}

impl SpillFile {
    /// Makes one in the folder for temporary files. `run_bytes`: bytes of rows after which a run ends, at most a few MiB.
    ///
    /// # Errors
    /// `Storage` if it cannot be made.
    pub(super) fn new(schema: &SchemaRef, run_bytes: usize) -> Result<Self> {
        Self::in_file(tempfile::tempfile().map_err(refused)?, schema, run_bytes)
    }

    fn in_file(file: File, schema: &SchemaRef, run_bytes: usize) -> Result<Self> {
        let file = BufWriter::with_capacity(WRITTEN_AT_ONCE, file);
        let writer = FileWriter::try_new(file, schema).map_err(failed)?;
        Ok(Self { writer, schema: SchemaRef::clone(schema), runs: 0, run_bytes: run_bytes.min(RUN) })
    }

    /// Appends rows of one partition after those in `to`.
    ///
    /// # Errors
    /// `Storage` if the disk is full, or fails.
    pub(super) fn push(&mut self, batches: Vec<RecordBatch>, to: &mut Runs) -> Result<()> {
        let (mut run, mut bytes) = (Vec::new(), 0_usize);
        let mut batches = batches.into_iter().peekable();
        while let Some(batch) = batches.next() {
            bytes = bytes.saturating_add(memory(&batch));
            run.push(batch);
            if bytes >= self.run_bytes || batches.peek().is_none() {
                self.write(&concat_batches(&self.schema, &run)?, to)?;
                (run, bytes) = (Vec::new(), 0);
            }
        }
        Ok(())
    }

    fn write(&mut self, run: &RecordBatch, to: &mut Runs) -> Result<()> {
        self.writer.write(run).map_err(failed)?;
        let next = self.runs.checked_add(1);
        to.numbers.push_back(self.runs);
        to.bytes = to.bytes.saturating_add(memory(run));
        self.runs = next.ok_or_else(|| Error::internal("a temporary file has too many runs of rows"))?;
        Ok(())
    }

    /// The same file, to be read.
    ///
    /// # Errors
    /// As [`SpillFile::push`].
    pub(super) fn finish(self) -> Result<SpilledRows> {
        let file = self.writer.into_inner().map_err(failed)?;
        let file = file.into_inner().map_err(|e| refused(e.into_error()))?;
        Ok(SpilledRows { reader: FileReader::try_new(file, None).map_err(failed)?, schema: self.schema })
    }
}

impl Runs {
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Bytes of the rows in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The index of the first run in the file.
    pub(super) fn first(&self) -> Option<u32> {
        self.numbers.front().copied()
    }
}

impl SpilledRows {
    /// Reads and removes runs from `runs`, at least one, until they have so many bytes.
    ///
    /// # Errors
    /// `Storage` if the file cannot be read.
    pub(super) fn take(&mut self, runs: &mut Runs, bytes: usize) -> Result<Vec<RecordBatch>> {
        let (mut batches, mut taken) = (Vec::new(), 0_usize);
        while let Some(number) = runs.numbers.pop_front() {
            let batch = self.read(number)?;
            taken = taken.saturating_add(memory(&batch));
            batches.push(batch);
            if taken >= bytes {
                break;
            }
        }
        Ok(batches)
    }

    fn read(&mut self, number: u32) -> Result<RecordBatch> {
        self.reader.set_index(number as usize).map_err(failed)?;
        let batch =
            self.reader.next().ok_or_else(|| Error::internal("a run of rows is missing in a temporary file"))?;
        Ok(RecordBatch::try_new(SchemaRef::clone(&self.schema), batch.map_err(failed)?.columns().to_vec())?)
    }
}

fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => refused(error),
        other => Error::internal("rows could not be written to a temporary file").caused_by(other),
    }
}

fn refused(error: std::io::Error) -> Error {
    let folder = std::env::temp_dir();
    Error::storage(
        false,
        format!(
            "the rows of many partitions exceed memory_limit, and could not be written to a temporary file in `{}` \
             ({error}): make room there, name another folder in the environment variable TMPDIR, or raise \
             memory_limit",
            folder.display()
        ),
    )
    .caused_by(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};
    use deltic_protocol::error::Kind;

    use super::*;

    fn rows(count: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("n", numbers)]).unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told() {
        let full = std::fs::OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let mut file = SpillFile::in_file(full, &rows(0).schema(), RUN).unwrap();
        let mut runs = Runs::default();
        let pushed = (0..10).try_for_each(|_| file.push(vec![rows(100_000)], &mut runs));
        let error = pushed.unwrap_err();
        assert!(error.message().contains("No space left on device"), "{error}");
        assert!(error.message().contains("TMPDIR"), "{error}");
        assert_eq!(error.kind(), &Kind::Storage { retryable: false });
    }

    #[test]
    fn runs_come_back_in_order() {
        let mut file = SpillFile::new(&rows(0).schema(), RUN).unwrap();
        let (mut one, mut other) = (Runs::default(), Runs::default());
        file.push(vec![rows(3), rows(2)], &mut one).unwrap();
        file.push(vec![rows(0), rows(1)], &mut other).unwrap();
        file.push(vec![rows(4)], &mut one).unwrap();
        let mut read = file.finish().unwrap();
        let counts = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>();
        assert_eq!(counts(read.take(&mut other, usize::MAX).unwrap()), [1]);
        assert_eq!(counts(read.take(&mut one, 1).unwrap()), [5]);
        assert_eq!(counts(read.take(&mut one, 1).unwrap()), [4]);
        assert!(read.take(&mut one, 1).unwrap().is_empty() && one.is_empty());
    }
}
