//! Steps that change the table and leave its rows alone.
//!
//! Each is settled for itself on what the steps before it left, so that several are one commit. Rows are read and files
//! are removed before the first, and rows are added after the last.
//!
//! PROTOCOL.md: "Change Metadata", "Protocol Evolution".

use deltic_protocol::alter::{Alteration, Before, MetadataChange, alter};
use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use serde_json::{Map, Value, json};

use super::{Ids, Transaction};
use crate::error::{Error, Result};

/// What several steps are called together.
const SEVERAL: &str = "TRANSACTION";

impl Transaction {
    /// Changes the table's metadata, adding to the protocol what that needs.
    ///
    /// # Errors
    /// `Invalid` if no table may have such metadata or go to it from what it has, or if rows were written under the old one;
    /// `Unsupported` if deltic could not write the table then.
    pub fn alter(&mut self, alteration: &Alteration, ids: &dyn Ids) -> Result<()> {
        if self.replayed.is_some() {
            return Ok(());
        }
        if !self.added.is_empty() || !self.rows.is_empty() {
            let message =
                "rows were written under the old metadata in this transaction; change the metadata before that";
            return Err(self.placed(Error::invalid(message)));
        }
        self.altered(alteration, ids).map_err(|e| self.placed(e))
    }

    fn altered(&mut self, alteration: &Alteration, ids: &dyn Ids) -> Result<()> {
        let (protocol, metadata) = self.after()?;
        let version = self.base.as_ref().map_or(0, |base| base.state.version.saturating_add(1));
        let clustering = self.base.as_ref().map_or(&[][..], |base| &base.state.clustering);
        let before = Before { protocol, metadata, clustering, version };
        let altered = alter(before, alteration, &mut || ids.unique())?;
        let after = Properties::of(&altered.metadata);
        let enables = after.is_true("delta.enableRowTracking")?
            && !Properties::of(metadata).is_true("delta.enableRowTracking")?;
        if enables && !self.has_ids && self.base.is_some() {
            let message = "row tracking is enabled on a table by giving ids to the files that it has, which takes several \
                           commits: call `Table.enable_row_tracking`";
            return Err(Error::invalid(message));
        }
        let schema = altered.metadata.schema()?;
        feature::check_writable(altered.protocol.as_ref().unwrap_or(protocol), &altered.metadata, &schema)?;
        self.protocol = altered.protocol.or(self.protocol.take());
        self.metadata = Some(altered.metadata);
        (self.shape, self.planned) = (None, None);
        if !matches!(alteration, Alteration::Set(_)) {
            self.told.push((altered.operation, altered.parameters));
        }
        Ok(())
    }

    /// Changes the table's metadata as a whole.
    ///
    /// # Errors
    /// As [`Transaction::alter`].
    pub fn set_metadata(&mut self, change: MetadataChange, ids: &dyn Ids) -> Result<()> {
        self.alter(&Alteration::Set(change), ids)
    }

    /// Name and parameters of the operation: the caller's, or else those of its steps.
    pub(super) fn take_operation(&mut self) -> (String, Map<String, Value>) {
        let (operation, parameters) =
            (std::mem::take(&mut self.options.operation), std::mem::take(&mut self.parameters));
        let mut told = std::mem::take(&mut self.told);
        let (name, steps) = match (told.pop(), told.is_empty()) {
            (None, _) => (SEVERAL, Map::new()),
            (Some((name, parameters)), true) => (name, parameters),
            (Some(last), false) => {
                let all = told.into_iter().chain([last]);
                let steps: Vec<Value> = all
                    .map(|(name, parameters)| json!({"operation": name, "operationParameters": parameters}))
                    .collect();
                (SEVERAL, Map::from_iter([("operations".to_owned(), json!(json!(steps).to_string()))]))
            }
        };
        let operation = if operation.is_empty() { name.to_owned() } else { operation };
        (operation, if parameters.is_empty() { steps } else { parameters })
    }
}
