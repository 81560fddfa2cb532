//! The filter of a scan. It is serialized as its SQL text; within one process the bound predicate is kept with it.

use std::sync::Arc;

use deltic_protocol::error::Result;
use deltic_protocol::predicate::{BoundPredicate, parse};
use deltic_protocol::schema::StructType;
use serde::{Deserialize, Serialize};

/// A condition that must be TRUE for rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ScanFilter {
    text: String,
    bound: Option<Arc<BoundPredicate>>,
}

impl ScanFilter {
    /// Binds a condition to a table's columns.
    ///
    /// # Errors
    /// `Invalid` if it does not parse, or does not fit the columns.
    pub fn bind(text: &str, columns: &StructType) -> Result<Self> {
        let bound = Some(Arc::new(parse(text)?.bind(columns)?));
        Ok(Self { text: text.to_owned(), bound })
    }

    /// As [`ScanFilter::bind`]; `None` if there is no condition.
    pub(crate) fn bind_some(text: Option<&str>, columns: &StructType) -> Result<Option<Self>> {
        text.map(|text| Self::bind(text, columns)).transpose()
    }

    /// The SQL text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The bound predicate; in the process that planned the scan, the one that was bound then.
    ///
    /// # Errors
    /// As [`ScanFilter::bind`].
    pub fn bound(&self, columns: &StructType) -> Result<Arc<BoundPredicate>> {
        match &self.bound {
            Some(bound) => Ok(bound.clone()),
            None => Ok(Arc::new(parse(&self.text)?.bind(columns)?)),
        }
    }
}

impl From<String> for ScanFilter {
    fn from(text: String) -> Self {
        Self { text, bound: None }
    }
}

impl From<ScanFilter> for String {
    fn from(filter: ScanFilter) -> Self {
        filter.text
    }
}

impl PartialEq for ScanFilter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
