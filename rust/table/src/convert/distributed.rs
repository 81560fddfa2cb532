//! CONVERT by several processes: one lists files and commits, others read the footers.
//!
//! Plain bytes travel: a [`FootersTask`], which has all that reading footers needs except access to the store, and what they
//! say.
//!
//! Proved by `tests/spark/test_maintenance.py`.

use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::{StructType, TableSchema};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::conversion::{CONCURRENT_FOOTERS, Conversion, ConvertOptions, Converted};
use super::existing::Existing;
use super::footers::{Footer, Footers, Settings};
use crate::committers::Committer;
use crate::envelope::{pack, unpack};
use crate::storage::Storage;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::Ids;

/// The kinds of what travels.
const TASK: &str = "footers task";
const READ: &str = "footers that were read";

/// Files whose footers are to be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FootersTask {
    location: String,
    /// Which one of its round.
    number: usize,
    settings: Settings,
    files: Vec<Existing>,
}

/// What the footers say, in the order of the files.
#[derive(Debug, Serialize, Deserialize)]
struct FootersRead {
    number: usize,
    /// Of each file its rows, its columns if they are asked for, and its statistics.
    footers: Vec<(u64, Option<TableSchema>, String)>,
}

impl FootersTask {
    /// Reads what [`DistributedConvert::next_tasks`] gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(TASK, bytes)
    }

    /// Where the table is to be.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Reads the footers; what [`DistributedConvert::take`] takes.
    ///
    /// # Errors
    /// As [`convert`](super::convert), for a file.
    pub async fn carry_out(self, storage: Storage) -> Result<Vec<u8>> {
        let Self { location, number, settings, files } = self;
        let footers = &Footers::with(&storage, settings);
        let read = |file: Existing| async move { footers.read(&file).await };
        let read = stream::iter(files).map(read).buffered(CONCURRENT_FOOTERS).try_collect();
        let read: Vec<Footer> = read.await.map_err(|e: Error| e.in_table(location))?;
        let plain = |Footer { rows, schema, stats }| (rows, schema.map(TableSchema::from), stats);
        let footers = read.into_iter().map(plain).collect();
        pack(READ, &FootersRead { number, footers })
    }
}

/// A CONVERT whose footers other processes read.
pub struct DistributedConvert {
    conversion: Conversion,
    /// The files of the round under way, by task.
    current: Vec<Vec<Existing>>,
}

impl DistributedConvert {
    /// Begins to list the files.
    ///
    /// # Errors
    /// As [`convert`](super::convert).
    pub async fn begin(storage: &Storage, options: ConvertOptions, ids: &dyn Ids) -> Result<Self> {
        Ok(Self { conversion: Conversion::begin(storage, options, ids).await?, current: Vec::new() })
    }

    /// At most so many tasks of so many files each, in the byte form of [`FootersTask`]; none when there are no more files.
    ///
    /// # Errors
    /// Those of listing files.
    pub async fn next_tasks(&mut self, tasks: usize, files_per_task: usize) -> Result<Vec<Vec<u8>>> {
        let in_table = |e: Error| e.in_table(self.conversion.storage.location());
        let files = self.conversion.files.by_ref().take(tasks.saturating_mul(files_per_task));
        let files: Vec<Existing> = files.try_collect().await.map_err(in_table)?;
        // As many tasks for few files as for many.
        let size = files.len().div_ceil(tasks.max(1)).max(1);
        self.current = files.chunks(size).map(<[Existing]>::to_vec).collect();
        let task = |(number, files): (usize, &Vec<Existing>)| {
            let settings = self.conversion.footers.settings().clone();
            let location = self.conversion.storage.location().to_owned();
            pack(TASK, &FootersTask { location, number, settings, files: files.clone() })
        };
        self.current.iter().enumerate().map(task).collect()
    }

    /// Takes in what each task of the round read.
    ///
    /// # Errors
    /// `Invalid` if it is not what each of them read, once, and for a file that does not fit those before it.
    pub fn take(&mut self, read: &[impl AsRef<[u8]>]) -> Result<()> {
        let files = std::mem::take(&mut self.current);
        let mut footers = vec![None; files.len()];
        let wrong = || Error::invalid("these are not the footers that were asked for; pass what each task gave, once");
        for bytes in read {
            let of_task: FootersRead = unpack(READ, bytes.as_ref())?;
            let place = footers.get_mut(of_task.number).filter(|place| place.is_none()).ok_or_else(wrong)?;
            *place = Some(of_task.footers);
        }
        for (files, footers) in files.into_iter().zip(footers) {
            let footers = footers.filter(|footers| footers.len() == files.len()).ok_or_else(wrong)?;
            for (file, (rows, schema, stats)) in files.into_iter().zip(footers) {
                let schema = schema.map(|schema| StructType::clone(&schema));
                self.conversion.take(file, Footer { rows, schema, stats })?;
            }
        }
        Ok(())
    }

    /// Commits.
    ///
    /// # Errors
    /// As [`convert`](super::convert).
    pub async fn commit(self, ids: &dyn Ids, with: (&dyn Committer, &dyn RetryPolicy)) -> Result<Converted> {
        self.conversion.commit(ids, with).await
    }
}
