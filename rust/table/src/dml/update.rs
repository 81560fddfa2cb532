//! UPDATE: rows that make a condition TRUE get new values.
//!
//! If the table's properties ask for deletion vectors, the rows are marked, and the updated ones written to new files.
//! Otherwise, and if every row of a file changes, files are rewritten, in the order of their rows. Rows keep their ids.
//!
//! Proved by `dml::updates_keep_order_and_ids`, and by `tests/python/test_update.py`, which compares with a model.
//!
//! PROTOCOL.md: "Writer Requirements for Row Tracking", "Writer Requirements for AddCDCFile".

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType as ArrowType, Field, FieldRef, Schema};
use deltic_protocol::expression::MissingFields;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::row_update::{NewValue, RowUpdate, Target, find as find_column};
use deltic_protocol::schema::arrow::{cast_strictly, to_rows_schema};
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, StructField, StructType, is_same_name};

use super::file_changes::{StepTimes, choose};
use super::find::{RowAction, UPDATE, find};
use super::preview::Preview;
use super::update_writer::{NarrowUpdate, UpdateWriter};
use crate::error::{Error, Result};
use crate::transaction::builder::Transaction;
use crate::write::char_lengths::CharLengths;
use crate::write::conform::Conformer;
use crate::write::rules::WriteRules;
use crate::write::writer::Clock;

impl Transaction {
    /// Sets columns of the rows that make `filter` TRUE, or of all rows without a filter. Returns how many. Given values
    /// have one row, in any Arrow type that the column takes.
    ///
    /// # Errors
    /// `Invalid` if the table is append-only, and for columns, filters and values that do not fit, naming the row if there
    /// is one; `Unsupported` for rows that the transaction has changed before, on a table with a change data feed; those of
    /// reading and writing. The transaction is unchanged then.
    pub async fn update(&mut self, set: Vec<(String, NewValue)>, filter: Option<&str>, clock: Clock) -> Result<u64> {
        let updated = self.update_rows(set, filter, clock).await;
        updated.map_err(|e| e.in_table(self.storage().location()))
    }

    async fn update_rows(&mut self, set: Vec<(String, NewValue)>, filter: Option<&str>, clock: Clock) -> Result<u64> {
        if self.already_committed_version().is_some() {
            return Ok(0);
        }
        let begun_ms = clock();
        let snapshot = self.removable().await?;
        let writer = update_writer(snapshot.shape(), set, &self.write_rules_at(begun_ms)?)?;
        let mut found = Box::pin(find(self, &snapshot, filter, (RowAction::Update, begun_ms))).await?;
        let found_ms = clock();
        let chosen = choose(self, &mut found, begun_ms)?;
        let progress = chosen.progress(UPDATE, 0);
        let specs = chosen.specs(self, &snapshot)?;
        let storage = self.storage().clone();
        let replaced = Box::pin(chosen.replace((&storage, specs.as_ref()), (Some(&writer), clock), &progress)).await?;
        let updated = chosen.matching_rows;
        chosen.end_step(self, (found, replaced), StepTimes { begun_ms, found_ms, clock })?;
        self.count_updated(updated);
        Ok(updated)
    }

    /// Counts updated rows.
    pub(super) fn count_updated(&mut self, updated: u64) {
        self.count_rows(|counts| {
            counts.updated_rows = Some(counts.updated_rows.unwrap_or_default().saturating_add(updated));
        });
    }

    /// What [`Transaction::update`] would do. Values are not computed, so an error in computing them is not found.
    ///
    /// # Errors
    /// As [`Transaction::update`], except those of writing.
    pub async fn update_preview(
        &mut self,
        set: Vec<(String, NewValue)>,
        filter: Option<&str>,
        clock: Clock,
    ) -> Result<Preview> {
        let preview = async {
            let snapshot = self.removable().await?;
            let now_ms = clock();
            update_writer(snapshot.shape(), set, &self.write_rules_at(now_ms)?)?;
            self.preview(&snapshot, filter, (RowAction::Update, now_ms)).await
        };
        let preview = Box::pin(preview).await;
        preview.map_err(|e| e.in_table(self.storage().location()))
    }
}

/// Computes the updated rows; checks the assignments against the table.
pub(super) fn update_writer(
    shape: &TableShape,
    set: Vec<(String, NewValue)>,
    rules: &WriteRules,
) -> Result<UpdateWriter> {
    let set = set.into_iter().map(|(key, value)| {
        let value = match value {
            NewValue::Value(value) => NewValue::Value(conformed_value(&shape.schema, &key, value)?),
            computed => computed,
        };
        Ok((key, value))
    });
    let target = Target {
        schema: &shape.schema,
        partition_columns: &shape.partition_columns,
        constraints: &rules.constraints,
        external: None,
        now: rules.now,
        missing: MissingFields::Refused,
    };
    let set: Vec<(String, NewValue)> = set.collect::<Result<_>>()?;
    let update = RowUpdate::new(set.clone(), target, &|parsed| parsed.bind(&shape.schema))?;
    let fields = |at: BTreeSet<usize>| -> Vec<StructField> {
        at.iter().filter_map(|at| shape.schema.fields.get(*at)).cloned().collect()
    };
    let names = |fields: &[StructField]| fields.iter().map(|field| field.name.clone()).collect();
    let mut needed = update.needed_columns();
    // The lengths of strings are checked in all columns of an updated row.
    needed.extend(CharLengths::of(&shape.schema)?.columns());
    let needed = StructType::new(fields(needed));
    let narrow = NarrowUpdate {
        needed: names(&needed.fields),
        changed: names(&fields(update.changes().collect())),
        update: RowUpdate::new(set, Target { schema: &needed, ..target }, &|parsed| parsed.bind(&needed))?.into(),
    };
    Ok(UpdateWriter::new(Arc::new(update)).with_narrow(narrow))
}

/// A caller's value in the type of the column at `key`.
pub(super) fn conformed_value(schema: &StructType, key: &str, value: ArrayRef) -> Result<ArrayRef> {
    let (_, _, field) = find_column(schema, key)?;
    if value.len() != 1 {
        return Err(Error::invalid(format!("cannot set `{key}`: there are {} values, and one is needed", value.len())));
    }
    // NULL passes here: if it is not allowed, the error comes later, with the row.
    let alone = StructType::new(vec![StructField::new(&field.name, field.data_type.clone(), true)]);
    let to = to_rows_schema(&alone).field(0).data_type().clone();
    if *value.data_type() == to {
        return Ok(value);
    }
    if value.logical_null_count() == 1 {
        return Ok(arrow_array::new_null_array(&to, 1));
    }
    if let Some(path) = missing_field(&field.data_type, value.data_type()) {
        return Err(Error::invalid(format!(
            "cannot set `{key}`: the value has no field `{path}`; add it, as None if NULL is meant, or set only the fields \
             that change, each by its path"
        )));
    }
    let given = Schema::new(vec![Field::new(&field.name, value.data_type().clone(), true)]);
    let given = RecordBatch::try_new(given.into(), vec![value])?;
    let conformed = Conformer::new(&alone, ColumnMapping::None)?.conform(&given);
    let conformed =
        conformed.map_err(|e| Error::new(e.kind().clone(), format!("cannot set `{key}`: {}", e.message())))?;
    let column = conformed.columns().first().ok_or_else(|| Error::internal("a value was lost"))?;
    cast_strictly(column, &to)
}

/// The path of a field of a struct that values of an Arrow type lack, at any depth.
fn missing_field(of: &DataType, given: &ArrowType) -> Option<String> {
    let inside = |name: &str, found: Option<String>| found.map(|path| format!("{name}.{path}"));
    match (of, given) {
        (DataType::Struct(of), ArrowType::Struct(given)) => of.fields.iter().find_map(|field| {
            let is_same = |other: &&FieldRef| is_same_name(other.name(), &field.name);
            match given.iter().find(is_same) {
                None => Some(field.name.clone()),
                Some(given) => inside(&field.name, missing_field(&field.data_type, given.data_type())),
            }
        }),
        (
            DataType::Array(of),
            ArrowType::List(given)
            | ArrowType::LargeList(given)
            | ArrowType::ListView(given)
            | ArrowType::LargeListView(given)
            | ArrowType::FixedSizeList(given, _),
        ) => inside("element", missing_field(&of.element, given.data_type())),
        (DataType::Map(of), ArrowType::Map(entries, _)) => match entries.data_type() {
            ArrowType::Struct(entries) if entries.len() == 2 => {
                let part = |name: &str, of: &DataType, at: usize| {
                    inside(name, missing_field(of, entries.get(at)?.data_type()))
                };
                part("key", &of.key, 0).or_else(|| part("value", &of.value, 1))
            }
            _ => None,
        },
        _ => None,
    }
}
