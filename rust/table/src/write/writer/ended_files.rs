//! The files of a finished writer. They are deleted unless a commit claims them.

use deltic_protocol::error::Result;

use crate::write::plan::DataFile;
use crate::write::unclaimed::Unclaimed;
use deltic_store::Syncing;

/// All files of a finished writer.
pub struct EndedFiles {
    pub(super) files: Vec<DataFile>,
    pub(super) syncing: Syncing,
    pub(super) stored: Unclaimed,
}

impl EndedFiles {
    /// Hands the files over to the caller, with the syncs that make them durable.
    pub fn claim(self) -> (Vec<DataFile>, Syncing) {
        self.stored.claim();
        (self.files, self.syncing)
    }

    /// The files, once they would survive a power cut.
    pub async fn durable(self) -> Result<Vec<DataFile>> {
        match self.syncing.wait().await {
            Ok(()) => {
                self.stored.claim();
                Ok(self.files)
            }
            Err(error) => {
                self.stored.delete().await;
                Err(error)
            }
        }
    }
}
