//! The extension module `deltic._deltic`.
//!
//! Only the registration is here. The classes are documented in `python/deltic`, which wraps them.

mod alter;
mod arrow;
mod changes;
mod check;
mod clock;
mod duckdb;
mod errors;
mod events;
mod expression;
mod finalizing;
mod maintenance;
mod progress;
mod row_changes;
mod row_tasks;
mod runtime;
mod table;
mod trace;
mod transaction;
mod work;
mod write;

use deltic_protocol::property::PROPERTIES;
use mimalloc::MiMalloc;
use pyo3::prelude::*;

/// Decoding allocates and frees large buffers all the time. The C library's allocator would return each to the system, which
/// clears it again.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[pymodule]
fn _deltic(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::record_panic_location();
    events::listen();
    duckdb::register();
    arrow::wait_for_arrays_at_exit(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<arrow::ArrowSchema>()?;
    module.add_class::<arrow::ArrowBatch>()?;
    module.add_class::<arrow::ArrowStream>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<table::Snapshot>()?;
    module.add_class::<table::Plan>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::TransactionScan>()?;
    module.add_function(wrap_pyfunction!(progress::listen_to_progress, module)?)?;
    module.add_function(wrap_pyfunction!(trace::begin_trace, module)?)?;
    module.add_function(wrap_pyfunction!(trace::end_trace, module)?)?;
    module.add_function(wrap_pyfunction!(expression::names::column_names, module)?)?;
    module.add_function(wrap_pyfunction!(expression::evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(expression::names::without_alias, module)?)?;
    module.add_function(wrap_pyfunction!(table::read_task_group, module)?)?;
    module.add_function(wrap_pyfunction!(transaction::begin, module)?)?;
    module.add_function(wrap_pyfunction!(transaction::plan_write, module)?)?;
    module.add_function(wrap_pyfunction!(transaction::resume, module)?)?;
    module.add_function(wrap_pyfunction!(transaction::drop_feature, module)?)?;
    module.add_function(wrap_pyfunction!(transaction::enable_row_tracking, module)?)?;
    module.add_class::<row_tasks::source_conformer::SourceConformer>()?;
    module.add_class::<row_tasks::DistributedRowChange>()?;
    module.add_function(wrap_pyfunction!(row_tasks::plan_row_change, module)?)?;
    module.add_function(wrap_pyfunction!(row_tasks::change_rows, module)?)?;
    module.add_function(wrap_pyfunction!(row_tasks::row_rules, module)?)?;
    module.add_function(wrap_pyfunction!(row_tasks::task_rows, module)?)?;
    module.add("FAILED_HASH", deltic_table::dml::FAILED_HASH)?;
    module.add("PROPERTIES", PROPERTIES.iter().map(|property| property.name).collect::<Vec<_>>())?;
    module.add_class::<row_tasks::divided_source::MergeKeys>()?;
    module.add_class::<row_tasks::divided_source::SourceSummary>()?;
    module.add_class::<row_tasks::divided_source::MergeInserter>()?;
    module.add_function(wrap_pyfunction!(row_tasks::divided_source::merge_keys, module)?)?;
    module.add_function(wrap_pyfunction!(row_tasks::divided_source::key_hashes, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::optimize, module)?)?;
    module.add_class::<maintenance::distributed::DistributedOptimize>()?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::optimize_distributed, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::rewrite_files, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::sample_rows, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::split_rows, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::write_interval, module)?)?;
    module.add_class::<maintenance::distributed::DistributedConvert>()?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::convert_distributed, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::read_footers, module)?)?;
    module.add_class::<maintenance::distributed::DistributedVacuum>()?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::vacuum_distributed, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::distributed::sweep_files, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::purge, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::repair, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::write_manifests, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::vacuum::vacuum, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::convert::convert, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::convert::iceberg_metadata, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::convert::iceberg_metadata_files, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::convert::read_named_file, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::copies::restore, module)?)?;
    module.add_function(wrap_pyfunction!(maintenance::copies::clone, module)?)?;
    module.add_function(wrap_pyfunction!(write::create, module)?)?;
    module.add_function(wrap_pyfunction!(write::write_files, module)?)?;
    module.add_function(wrap_pyfunction!(write::delete_files, module)?)?;
    module.add_function(wrap_pyfunction!(write::external_layout, module)?)?;
    module.add_function(wrap_pyfunction!(write::external_rules, module)?)?;
    module.add_function(wrap_pyfunction!(write::take_external, module)?)?;
    module.add_function(wrap_pyfunction!(write::delete_external, module)?)?;
    Ok(())
}
