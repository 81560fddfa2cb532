//! Which files a filter matches in full: `remove_where` removes only such files.

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::action::json::{Wanted, parse_commit, print_commit};
use deltic_protocol::action::{Action, Add};
use deltic_protocol::log_bounds::{LogBounds, TableShape};
use deltic_protocol::predicate::BoundPredicate;
use deltic_protocol::prune;
use deltic_protocol::stats::text::whole_adds;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};

/// The columns of a file that removing it needs.
pub(crate) fn remove_columns(stats: Vec<Vec<String>>) -> AddColumns {
    let members = vec!["path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion"];
    let num_records = !stats.is_empty();
    AddColumns { members, stats, num_records, ..AddColumns::default() }
}

/// The files that hold matching rows and no others. Those that `is_gone` says are removed already may hold others.
pub(super) fn require_fully_matching(
    adds: &AddBatch,
    shape: &TableShape,
    predicate: &BoundPredicate,
    is_gone: impl Fn(&str) -> bool,
) -> Result<Vec<usize>> {
    let columns = predicate.columns();
    let partitions = columns.iter().all(|c| c.path.first().is_some_and(|name| shape.is_partition_column(name)));
    let bounds = match partitions {
        true => LogBounds::of_partitions(adds, shape, &columns)?,
        false => LogBounds::of_statistics(adds, shape, &columns, true)?,
    };
    let (some, all) = (prune::keep(predicate, &bounds)?, prune::always(predicate, &bounds)?);
    let mut rows = Vec::new();
    for row in some.set_indices() {
        if !all.value(row) && !is_gone(adds.path().value(row)) {
            let message = "the filter may not cover the whole file, and only whole files can be removed; \
                           narrow it to partitions, or name the files";
            return Err(Error::invalid(message).in_file(adds.path().value(row)));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Files as columns, with the statistics of their actions.
pub(super) fn batch_of(files: impl Iterator<Item = Add>) -> Result<AddBatch> {
    let actions: Vec<Action> = files.map(Action::Add).collect();
    Ok(parse_commit(&print_commit(&actions)?.into(), Origin::Commit(0), Wanted::All)?.adds)
}

/// The actions that add files of the table again, without changing data and with all their statistics.
pub(crate) fn add_again(adds: &AddBatch, rows: impl Iterator<Item = usize>) -> Result<Vec<Add>> {
    let again = |add: Result<Add, deltic_protocol::error::Error>| Ok(Add { data_change: false, ..add? });
    whole_adds(adds, rows)?.map(again).collect()
}
