//! The operation metrics of a commit (`operationMetrics`), under the names that other clients use.

use serde_json::{Map, Value, json};

use super::Transaction;
use super::options::Overwrites;

impl Transaction {
    /// The metrics of the transaction; none if it is not about rows.
    pub(super) fn metrics(&self, now_ms: i64) -> Map<String, Value> {
        if let Some(metrics) = &self.rearranged {
            return metrics.clone();
        }
        let mut metrics = self.options.metrics.clone();
        let removed = self.removed.num_removed() as u64;
        let changes_rows = self.writes
            || self.rows.is_asked_for()
            || !self.added.is_empty()
            || self.overwrites != Overwrites::Nothing
            || removed > 0;
        if self.set_files.is_some() || !changes_rows {
            return metrics;
        }
        self.rows.metrics(removed, &self.added, now_ms, &mut metrics);
        if self.rows.is_merge() {
            return metrics;
        }
        let mut count = |name: &str, value: u64| drop(metrics.insert(name.to_owned(), json!(value.to_string())));
        let totals = self.added.totals();
        if totals.files > 0 || self.writes || !self.rows.is_asked_for() {
            count("numFiles", totals.files);
            count("numOutputRows", totals.rows);
            count("numOutputBytes", totals.bytes);
        }
        if self.overwrites != Overwrites::Nothing || removed > 0 {
            count("numRemovedFiles", removed);
        }
        metrics
    }
}
