//! Files in storage that no commit refers to yet.
//!
//! They are deleted with the writer that made them, unless they are claimed by a commit.

use futures::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Result;
use crate::write::plan::DataFile;
use deltic_store::{Storage, decode_path};

/// Files deleted at a time.
const DELETING: usize = 32;

/// Keys of files that exist, or may. Dropped, it deletes them in the background, as far as storage lets it.
pub(crate) struct Unclaimed {
    storage: Storage,
    keys: Vec<String>,
    /// Goes when all is done.
    doing: Option<oneshot::Sender<()>>,
}

impl Unclaimed {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, keys: Vec::new(), doing: None }
    }

    /// Takes in a file, before it exists.
    pub(crate) fn push(&mut self, key: String) {
        self.keys.push(key);
    }

    /// Adds files that were written.
    ///
    /// # Errors
    /// `Corrupt` for a path that is none, which the writer rules out.
    pub(crate) fn hold(&mut self, files: &[DataFile]) -> Result<()> {
        files.iter().try_for_each(|file| {
            self.push(decode_path(&file.add.path)?);
            Ok(())
        })
    }

    /// Leaves the files to the caller: they are not deleted any more.
    pub(crate) fn claim(mut self) {
        self.keys.clear();
    }

    /// Deletes the files, even if the caller stops waiting.
    pub(crate) async fn delete(mut self) {
        let released = self.released();
        drop(self);
        released.await;
    }

    /// Ends when the files are claimed or deleted. Only the last caller is notified.
    pub(super) fn released(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let (doing, done) = oneshot::channel();
        self.doing = Some(doing);
        async move {
            // Nothing is sent: the channel closes when the sender is dropped.
            let _ = done.await;
        }
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let (keys, doing) = (std::mem::take(&mut self.keys), self.doing.take());
        if let (false, Ok(runtime)) = (keys.is_empty(), Handle::try_current()) {
            let storage = self.storage.clone();
            runtime.spawn(async move {
                let delete = |key: String| {
                    let storage = storage.clone();
                    // A file that stays is an orphan that vacuum finds.
                    async move { drop(storage.delete(&key).await) }
                };
                stream::iter(keys).map(delete).buffer_unordered(DELETING).for_each(|()| async {}).await;
                drop(doing);
            });
        }
    }
}
