//! The operation metrics of a commit (`operationMetrics`), under the names that other clients use.

use serde_json::{Map, Value, json};

use super::Transaction;
use super::options::Overwrites;

impl Transaction {
    /// The metrics of the transaction; none if it is not about rows.
    pub(super) fn metrics(&self, now_ms: i64) -> Map<String, Value> {
        if let Some(metrics) = &self.files.optimize_metrics {
            return metrics.clone();
        }
        let mut metrics = self.options.metrics.clone();
        let removed = self.files.removed.num_removed() as u64;
        let changes_rows = self.write.is_write
            || self.files.rows.has_row_step()
            || !self.files.added.is_empty()
            || self.write.overwrites != Overwrites::Nothing
            || removed > 0;
        if self.files.only_file_actions.is_some() || !changes_rows {
            return metrics;
        }
        self.files.rows.metrics(removed, &self.files.added, now_ms, &mut metrics);
        if self.files.rows.is_merge() {
            return metrics;
        }
        let mut count = |name: &str, value: u64| drop(metrics.insert(name.to_owned(), json!(value.to_string())));
        let totals = self.files.added.totals();
        if totals.files > 0 || self.write.is_write || !self.files.rows.has_row_step() {
            count("numFiles", totals.files);
            count("numOutputRows", totals.rows);
            count("numOutputBytes", totals.bytes);
        }
        if self.write.overwrites != Overwrites::Nothing || removed > 0 {
            count("numRemovedFiles", removed);
        }
        metrics
    }
}
