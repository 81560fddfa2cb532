//! Files in storage that no commit names yet.
//!
//! They are deleted when the writer that made them is dropped, unless a commit takes them ([`Unclaimed::claim`]). This has
//! nothing to do with the claims of DynamoDB.

use futures::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Result;
use crate::write::plan::DataFile;
use deltic_store::{Storage, decode_path};

/// How many files are deleted at a time.
const DELETING: usize = 32;

/// Keys of files that exist, or may exist. When this is dropped, they are deleted in the background, as far as the store
/// allows.
pub(crate) struct Unclaimed {
    storage: Storage,
    keys: Vec<String>,
    /// Dropped when the files are claimed or deleted.
    doing: Option<oneshot::Sender<()>>,
}

impl Unclaimed {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, keys: Vec::new(), doing: None }
    }

    /// Adds a file, before it exists.
    pub(crate) fn push(&mut self, key: String) {
        self.keys.push(key);
    }

    /// Adds files that were written.
    ///
    /// # Errors
    /// `Corrupt` for an invalid path, which the writer rules out.
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
                    // A file that cannot be deleted stays as an orphan, which a vacuum deletes.
                    async move { drop(storage.delete(&key).await) }
                };
                stream::iter(keys).map(delete).buffer_unordered(DELETING).for_each(|()| async {}).await;
                drop(doing);
            });
        }
    }
}
