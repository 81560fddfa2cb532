//! Parses updates and merges that Python passes.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use deltic_protocol::constraint::ExternalRules;
use deltic_protocol::error::Error;
use deltic_protocol::row_update::NewValue;
use deltic_table::dml::{Clause, ClauseAction, MergeRequest, RowAction, RowChange, SourceRows, When};
use futures::TryStreamExt;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::arrow::{Batches, consume_batches, reader_from_py};
use crate::errors::Result;

/// A column and its expression as SQL; none if it gets a value.
type Assigned = (String, Option<String>);

/// A merge, as JSON.
#[derive(Deserialize)]
struct Request {
    on: String,
    source_alias: String,
    target_alias: String,
    evolves: bool,
    operation: Option<RowAction>,
    clauses: Vec<Asked>,
}

/// A clause, as JSON.
#[derive(Deserialize)]
struct Asked {
    when: String,
    condition: Option<String>,
    /// None if rows are deleted, or get all columns.
    set: Option<Vec<Assigned>>,
    /// Columns that are left out of all columns.
    except: Option<Vec<String>>,
    /// The rules of the table that Spark has evaluated for the rows.
    external: Option<ExternalRules>,
}

/// All rows of the data that Python passes.
pub(crate) fn all_rows(py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let rows = reader_from_py(data)?;
    let schema = Arc::clone(rows.schema());
    let read = |rows: Batches| async move { rows.try_collect::<Vec<RecordBatch>>().await };
    Ok((schema, consume_batches(py, rows, true, read, std::future::ready(()))?))
}

/// The values of the single row that Python passes.
fn values_of(py: Python<'_>, values: &Bound<'_, PyAny>) -> Result<std::vec::IntoIter<ArrayRef>> {
    let (_, rows) = all_rows(py, values)?;
    let values: Vec<ArrayRef> =
        rows.iter().filter(|rows| rows.num_rows() == 1).flat_map(RecordBatch::columns).map(Arc::clone).collect();
    Ok(values.into_iter())
}

fn assign(set: Vec<Assigned>, values: &mut impl Iterator<Item = ArrayRef>) -> Result<Vec<(String, NewValue)>> {
    let one = |(column, sql): Assigned| {
        let value = match sql {
            Some(sql) => NewValue::Expression(sql),
            None => match values.next() {
                Some(value) => NewValue::Value(value),
                None => return Err(Error::internal("a column is set to a value that is not there").into()),
            },
        };
        Ok((column, value))
    };
    set.into_iter().map(one).collect()
}

/// Columns and their new values: expressions, or values from the single row of `values`, in the order of the columns.
pub(crate) fn assignments(
    py: Python<'_>,
    set: Vec<Assigned>,
    values: &Bound<'_, PyAny>,
) -> Result<Vec<(String, NewValue)>> {
    assign(set, &mut values_of(py, values)?)
}

/// Parses the request of a merge.
pub(crate) fn request_of(py: Python<'_>, json: &str, values: &Bound<'_, PyAny>) -> Result<MergeRequest> {
    let request: Request =
        serde_json::from_str(json).map_err(|e| Error::internal("a merge is not readable").caused_by(e))?;
    let mut values = values_of(py, values)?;
    let mut clauses = Vec::with_capacity(request.clauses.len());
    for Asked { when, condition, set, except, external } in request.clauses {
        let when = match when.as_str() {
            "matched" => When::Matched,
            "not matched" => When::NotMatched,
            "not matched by source" => When::NotMatchedBySource,
            _ => return Err(Error::internal("a clause is of no kind").into()),
        };
        let action = match (set, except) {
            (Some(set), _) => ClauseAction::Set(assign(set, &mut values)?),
            (None, Some(except)) => ClauseAction::All { except },
            (None, None) => ClauseAction::Delete,
        };
        clauses.push(Clause { when, condition, action, external });
    }
    let Request { on, source_alias, target_alias, evolves, operation, .. } = request;
    Ok(MergeRequest {
        on,
        source_alias,
        target_alias,
        clauses,
        evolves,
        operation: operation.unwrap_or(RowAction::Merge),
    })
}

/// A [`RowChange`] as Python passes it: its kind, its request as JSON, the values that columns are set
/// to, and the source of a merge.
pub(crate) type PassedRowChange<'py> = (String, String, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// Parses a row change. `source_rows`: which rows of a merge's source are passed.
pub(crate) fn row_change_of(
    py: Python<'_>,
    (kind, asked, values, source): &PassedRowChange<'_>,
    source_rows: SourceRows,
) -> Result<RowChange> {
    let unreadable = || Error::internal("a row change is not readable");
    match (kind.as_str(), source) {
        ("delete", None) => Ok(RowChange::Delete),
        ("update", None) => {
            let set = serde_json::from_str(asked).map_err(|e| unreadable().caused_by(e))?;
            Ok(RowChange::Update(assignments(py, set, values)?))
        }
        ("merge", Some(source)) => {
            let (source, request) = (all_rows(py, source)?, Box::new(request_of(py, asked, values)?));
            Ok(RowChange::Merge { source, source_rows, request })
        }
        _ => Err(unreadable().into()),
    }
}
