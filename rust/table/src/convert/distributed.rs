//! CONVERT by several processes: the driver lists files and commits; tasks read the footers.
//!
//! Driver and tasks exchange plain bytes: a [`FootersTask`], which has all that reading footers needs except access to the
//! store, and the contents of the footers.
//!
//! Proved by `tests/spark/test_maintenance.py`.

use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::{StructType, TableSchema};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::conversion::{CONCURRENT_FOOTERS, Conversion, ConvertOptions, Converted};
use super::existing::Existing;
use super::footers::{Footer, Footers, Settings};
use crate::commit::RetryPolicy;
use crate::committers::Committer;
use crate::envelope::{pack, unpack};
use crate::log::LogSource;
use crate::transaction::builder::Ids;
use deltic_store::Storage;

/// The kinds of these bytes, in their envelopes.
const TASK: &str = "footers task";
const READ: &str = "footers that were read";

/// The most files whose footers one task set reads: their contents are in memory.
const FILES_PER_TASK_SET: usize = 50_000;

/// A task: files whose footers are to be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FootersTask {
    location: String,
    /// The id of its task set.
    task_set_id: String,
    /// Its index in the task set.
    number: usize,
    settings: Settings,
    files: Vec<Existing>,
}

/// The contents of the footers, in the order of the files.
#[derive(Debug, Serialize, Deserialize)]
struct FootersRead {
    task_set_id: String,
    number: usize,
    /// The different schemas of its files.
    schemas: Vec<TableSchema>,
    /// For each file: its row count, the index of its schema if schemas are wanted, and its statistics.
    footers: Vec<(u64, Option<usize>, String)>,
}

impl FootersTask {
    /// Reads what [`DistributedConvert::next_tasks`] gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(TASK, bytes)
    }

    /// Location of the new table.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Reads the footers. Returns the result for [`DistributedConvert::take`].
    ///
    /// # Errors
    /// As [`convert`](super::convert), for a file.
    pub async fn carry_out(self, storage: Storage) -> Result<Vec<u8>> {
        let Self { location, task_set_id, number, settings, files } = self;
        let footers = &Footers::with(&storage, settings);
        let read = |file: Existing| async move { footers.read(&file).await };
        let read = stream::iter(files).map(read).buffered(CONCURRENT_FOOTERS).try_collect();
        let read: Vec<Footer> = read.await.map_err(|e: Error| e.in_table(location))?;
        let (mut schemas, mut footers): (Vec<StructType>, _) = (Vec::new(), Vec::with_capacity(read.len()));
        for Footer { rows, schema, stats } in read {
            let schema_index = schema.map(|schema| {
                schemas.iter().position(|other| *other == schema).unwrap_or_else(|| {
                    schemas.push(schema);
                    schemas.len() - 1
                })
            });
            footers.push((rows, schema_index, stats));
        }
        let schemas = schemas.into_iter().map(TableSchema::from).collect();
        pack(READ, &FootersRead { task_set_id, number, schemas, footers })
    }
}

/// A CONVERT whose footers are read by tasks in other processes.
pub struct DistributedConvert {
    conversion: Conversion,
    /// The beginning of the ids of its task sets.
    id: String,
    /// How many task sets have been returned so far.
    task_sets: u64,
    step: Step,
}

/// What was done last.
enum Step {
    /// There may be more files.
    Between,
    /// The files of the task set under way, by task.
    Reading(Vec<Vec<Existing>>),
    /// All files were added.
    AllRead,
    /// A step failed, so that files are missing.
    Failed,
}

impl DistributedConvert {
    /// Begins to list the files.
    ///
    /// # Errors
    /// As [`convert`](super::convert).
    pub async fn begin(log: &LogSource, options: ConvertOptions, ids: &dyn Ids) -> Result<Self> {
        let conversion = Conversion::begin(log, options, ids).await?;
        Ok(Self { conversion, id: ids.unique(), task_sets: 0, step: Step::Between })
    }

    /// The next task set: at most so many tasks with at most so many files each, in the byte form of [`FootersTask`]; none
    /// when there are no more files.
    ///
    /// # Errors
    /// `Invalid` while a task set is running, or after one failed; errors of listing files.
    pub async fn next_tasks(&mut self, tasks: usize, files_per_task: usize) -> Result<Vec<Vec<u8>>> {
        match &self.step {
            Step::Between => {}
            Step::AllRead => return Ok(Vec::new()),
            Step::Reading(_) => return Err(self.refused("pass the results of the previous tasks first")),
            Step::Failed => return Err(self.refused("it failed before; begin another conversion")),
        }
        self.step = Step::Failed;
        let in_table = |e: Error| e.in_table(self.conversion.log.location());
        let (tasks, files_per_task) = (tasks.max(1), files_per_task.max(1));
        let max_files = tasks.saturating_mul(files_per_task).min(FILES_PER_TASK_SET);
        let files = self.conversion.files.by_ref().take(max_files);
        let files: Vec<Existing> = files.try_collect().await.map_err(in_table)?;
        if files.is_empty() {
            self.step = Step::AllRead;
            return Ok(Vec::new());
        }
        self.task_sets += 1;
        // The files are divided evenly, so that few files also make as many tasks as possible.
        let groups: Vec<_> = files.chunks(files.len().div_ceil(tasks)).map(<[Existing]>::to_vec).collect();
        let task = |(number, files): (usize, &Vec<Existing>)| {
            let settings = self.conversion.footers.settings().clone();
            let location = self.conversion.log.location().to_owned();
            pack(
                TASK,
                &FootersTask { location, task_set_id: self.task_set_id(), number, settings, files: files.clone() },
            )
        };
        let packed = groups.iter().enumerate().map(task).collect::<Result<_>>()?;
        self.step = Step::Reading(groups);
        Ok(packed)
    }

    /// Adds what each task of the set read.
    ///
    /// # Errors
    /// `Invalid` if no task set is under way, if `read` is not what each of its tasks read, once, and for a file that does not
    /// fit those before it. The conversion has failed then.
    pub fn take(&mut self, read: &[impl AsRef<[u8]>]) -> Result<()> {
        let files = match std::mem::replace(&mut self.step, Step::Failed) {
            Step::Reading(files) => files,
            other => {
                self.step = other;
                return Err(self.refused("no tasks are under way; ask for the next ones first"));
            }
        };
        let mut footers: Vec<Option<FootersRead>> = std::iter::repeat_with(|| None).take(files.len()).collect();
        let task_set_id = self.task_set_id();
        let wrong = || Error::invalid("these are not the results of the tasks; pass the result of each task once");
        for bytes in read {
            let of_task: FootersRead = unpack(READ, bytes.as_ref())?;
            let slot =
                footers.get_mut(of_task.number).filter(|slot| slot.is_none() && of_task.task_set_id == task_set_id);
            *slot.ok_or_else(wrong)? = Some(of_task);
        }
        for (files, read) in files.into_iter().zip(footers) {
            let FootersRead { schemas, footers, .. } =
                read.filter(|read| read.footers.len() == files.len()).ok_or_else(wrong)?;
            for (file, (rows, schema_index, stats)) in files.into_iter().zip(footers) {
                let schema = match schema_index {
                    Some(schema_index) => Some(StructType::clone(schemas.get(schema_index).ok_or_else(wrong)?)),
                    None => None,
                };
                self.conversion.take(file, Footer { rows, schema, stats })?;
            }
        }
        self.step = Step::Between;
        Ok(())
    }

    /// Refuses to go on while files are missing.
    ///
    /// # Errors
    /// `Invalid` until [`DistributedConvert::next_tasks`] has returned none.
    pub fn check_all_read(&self) -> Result<()> {
        match &self.step {
            Step::AllRead => Ok(()),
            Step::Failed => Err(self.refused("it failed before; begin another conversion")),
            Step::Between | Step::Reading(_) => {
                Err(self.refused("there may be more files; commit when there are no more tasks"))
            }
        }
    }

    /// The id of the task set under way.
    fn task_set_id(&self) -> String {
        format!("{}-{}", self.id, self.task_sets)
    }

    fn refused(&self, instead: &str) -> Error {
        let message = format!("the conversion cannot do this now: {instead}");
        Error::invalid(message).in_table(self.conversion.log.location())
    }

    /// Commits.
    ///
    /// # Errors
    /// As [`DistributedConvert::check_all_read`] and [`convert`](super::convert).
    pub async fn commit(self, ids: &dyn Ids, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Converted> {
        self.check_all_read()?;
        self.conversion.commit(ids, committer, retry).await
    }
}
