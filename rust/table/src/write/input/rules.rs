//! Rules of the table for written rows: generated columns are computed, constraints are checked.
//!
//! Columns that the data lacks are added to it before it is converted to the table's schema: defaults as they are, generated
//! columns from the columns that they depend on, in the table's types. Conditions are checked on the stored values,
//! partition values included, under logical names. What another engine has evaluated comes as columns of the rows.
//!
//! Invariant: rows that were accepted satisfy every rule of the table (`write::rules`).
//!
//! PROTOCOL.md: "CHECK Constraints", "Column Invariants", "Generated Columns", "Default Columns".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, NullArray, RecordBatch, RecordBatchOptions, StructArray, new_empty_array,
};
use arrow_schema::{DataType as ArrowType, Field, FieldRef, Schema};
use deltic_protocol::constraint::{ExternalRules, Rules, Source};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::expression::Context;
use deltic_protocol::scalar::partition::normalise_columns;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};
use serde::{Deserialize, Serialize};

use super::conform::Conformer;
use super::identity::is_given;

/// Rows that are checked at a time, so that the intermediate results of expressions stay small.
const ROWS_AT_ONCE: usize = 64 * 1024;

/// Rules for written rows that the schema does not have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteRules {
    /// The CHECK constraints, by name.
    pub constraints: BTreeMap<String, String>,
    /// The current time of the write in microseconds since the epoch: one for all its rows, on every executor.
    pub now: Option<i64>,
    /// The rules that the engine that has the rows evaluates.
    pub external: ExternalRules,
}

/// The rules of a table, bound to its columns.
#[derive(Debug)]
pub struct RowRules {
    rules: Rules,
    schema: StructType,
    now: Option<i64>,
    /// The columns that generated ones depend on.
    sources: Option<Conformer>,
    /// Positions of the columns that conditions read.
    read: Vec<usize>,
    partition_columns: Vec<String>,
    external: ExternalRules,
}

/// Rows with the columns that the table defines.
#[derive(Debug)]
pub struct Filled {
    /// The rows, without the conditions.
    pub rows: RecordBatch,
    /// Positions of the columns that deltic computed.
    computed: Vec<usize>,
    /// The values of the conditions that another engine evaluated.
    conditions: Vec<BooleanArray>,
}

impl RowRules {
    /// The rules of a table with this schema (logical names); none if there are none.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported`, naming the constraint or the column, for a rule that deltic cannot check or compute.
    pub fn new(schema: &StructType, rules: Option<&WriteRules>, partition_columns: &[String]) -> Result<Option<Self>> {
        let Some(WriteRules { constraints, now, external }) = rules else { return Ok(None) };
        let rules = Rules::beside(external, schema, constraints, *now)?;
        if rules.is_empty() && external.is_empty() {
            return Ok(None);
        }
        let depended: Vec<StructField> =
            rules.dependencies().into_iter().filter_map(|at| schema.fields.get(at)).cloned().collect();
        let stored = depended.iter().any(|field| field.data_type != DataType::Primitive(PrimitiveType::Void));
        let sources = match stored {
            true => Some(Conformer::new(&StructType::new(depended), ColumnMapping::None)?),
            false => None,
        };
        Ok(Some(Self {
            read: rules.columns(),
            rules,
            schema: schema.clone(),
            now: *now,
            sources,
            partition_columns: partition_columns.to_vec(),
            external: external.clone(),
        }))
    }

    /// No rows, with the columns that another engine will have added to rows: those that it computes, and its conditions.
    ///
    /// # Errors
    /// Those of Arrow (cannot happen).
    pub fn with_external_columns(&self, none: RecordBatch) -> Result<RecordBatch> {
        let mut added = Vec::new();
        for column in &self.external.columns {
            let field = self.schema.fields.iter().find(|field| field.name == column.name);
            let data_type = field.map(|field| to_arrow_type(&field.data_type));
            added.extend(data_type.map(|data_type| (column.name.as_str(), new_empty_array(&data_type))));
        }
        let conditions = &self.external.conditions;
        added.extend(conditions.iter().map(|of| (of.column.as_str(), new_empty_array(&ArrowType::Boolean))));
        with_columns(none, added)
    }

    /// The rows without the conditions of another engine, and their values.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, if the rows lack what the engine was to evaluate.
    fn take_conditions(&self, batch: RecordBatch) -> Result<(RecordBatch, Vec<BooleanArray>)> {
        if self.external.is_empty() {
            return Ok((batch, Vec::new()));
        }
        let lacking = |rule: &dyn std::fmt::Display, sql: &str| {
            Error::invalid(format!(
                "the rows have no values of {rule} ({sql}), which another engine was to evaluate for this write plan; \
                 write them with that engine, by deltic.spark.write"
            ))
        };
        let fields = batch.schema_ref().fields();
        if let Some(column) = self.external.columns.iter().find(|column| !is_given(&column.name, fields)) {
            return Err(lacking(&column.rule, &column.sql));
        }
        let mut kept: Vec<usize> = (0..fields.len()).collect();
        let mut conditions = Vec::with_capacity(self.external.conditions.len());
        for condition in &self.external.conditions {
            let at = fields.iter().position(|field| *field.name() == condition.column);
            let values = at.and_then(|at| batch.columns().get(at)).and_then(|array| array.as_boolean_opt());
            conditions.push(values.cloned().ok_or_else(|| lacking(&condition.rule, &condition.sql))?);
            kept.retain(|position| Some(*position) != at);
        }
        Ok((batch.project(&kept)?, conditions))
    }

    /// The rows with the columns that the table computes and the data does not have.
    ///
    /// # Errors
    /// `Invalid`, naming column and row, if a column cannot be computed; naming the rule, if another engine was to evaluate
    /// it and did not.
    pub fn fill(&self, batch: RecordBatch, first_row: u64) -> Result<Filled> {
        let (batch, conditions) = self.take_conditions(batch)?;
        let missing = |at: &usize| {
            let field = self.schema.fields.get(*at);
            field.is_some_and(|field| !is_given(&field.name, batch.schema_ref().fields()))
        };
        let all = || 0..self.schema.fields.len();
        let of = |source: Source| all().filter(move |at| self.rules.source(*at) == source);
        let defaults: Vec<usize> = of(Source::Default).filter(missing).collect();
        let generated: Vec<usize> = of(Source::Generated).filter(missing).collect();
        let mut added = Vec::with_capacity(defaults.len());
        for at in &defaults {
            added.push((*at, self.rules.default_values(*at, batch.num_rows())?));
        }
        let batch = self.with(batch, added)?;
        if generated.is_empty() {
            return Ok(Filled { rows: batch, computed: generated, conditions });
        }
        let sources = self.sources(&batch, first_row)?;
        let context = Context { now: self.now, first_row };
        let mut added = Vec::with_capacity(generated.len());
        for at in &generated {
            added.push((*at, self.rules.generated_values(*at, &sources, context)?));
        }
        Ok(Filled { rows: self.with(batch, added)?, computed: generated, conditions })
    }

    /// The columns that generated ones depend on, in the table's types.
    fn sources(&self, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let Some(conformer) = &self.sources else {
            return Ok(RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?);
        };
        let fields = batch.schema_ref().fields();
        let is_source = |field: &FieldRef| {
            let mut names = self.rules.dependencies().into_iter().filter_map(|at| self.schema.fields.get(at));
            names.any(|column| is_given(&column.name, &[Arc::clone(field)].into()))
        };
        let kept: Vec<usize> = fields.iter().enumerate().filter(|(_, f)| is_source(f)).map(|(at, _)| at).collect();
        let sources = conformer.conform_from(&batch.project(&kept)?, first_row)?;
        let fields = sources.schema();
        let is_partition = |at: &usize| self.partition_columns.contains(fields.field(*at).name());
        let positions: Vec<usize> = (0..fields.fields().len()).filter(is_partition).collect();
        normalise_columns(sources, &positions)
    }

    fn with(&self, batch: RecordBatch, added: Vec<(usize, ArrayRef)>) -> Result<RecordBatch> {
        let name = |at: usize| self.schema.fields.get(at).map(|field| field.name.as_str());
        with_columns(batch, added.into_iter().filter_map(|(at, array)| Some((name(at)?, array))).collect())
    }

    /// Checks rows as they are stored.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, the first row that breaks it and the values of the columns that it reads.
    pub fn check(&self, stored: &RecordBatch, filled: &Filled, first_row: u64) -> Result<()> {
        let rows = self.logical(stored)?;
        let mut at = 0;
        while at < rows.num_rows() {
            let some = rows.slice(at, ROWS_AT_ONCE.min(rows.num_rows() - at));
            let context = Context { now: self.now, first_row: first_row.saturating_add(at as u64) };
            self.rules.check(&some, &filled.computed, context)?;
            let values: Vec<_> = filled.conditions.iter().map(|values| values.slice(at, some.num_rows())).collect();
            self.rules.check_external(&some, &values, context)?;
            at += some.num_rows();
        }
        Ok(())
    }

    /// The columns that conditions read, under logical names. Files do not have void columns.
    fn logical(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let mut next = stored.columns().iter();
        for (at, field) in self.schema.fields.iter().enumerate() {
            let array = logical_array(&field.data_type, &mut next, stored.num_rows())?;
            if self.read.contains(&at) {
                fields.push(Field::new(&field.name, array.data_type().clone(), true));
                columns.push(array);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(stored.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }
}

/// Rows with further columns.
fn with_columns(batch: RecordBatch, added: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    if added.is_empty() {
        return Ok(batch);
    }
    let schema = batch.schema();
    let (mut fields, mut columns) = (schema.fields().to_vec(), batch.columns().to_vec());
    for (name, array) in added {
        fields.push(Arc::new(Field::new(name, array.data_type().clone(), true)));
        columns.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
}

/// The stored values of a column, with the fields of structs under their logical names.
fn logical_array<'a>(
    data_type: &DataType,
    stored: &mut impl Iterator<Item = &'a ArrayRef>,
    rows: usize,
) -> Result<ArrayRef> {
    let missing = || Error::internal("rows have fewer columns than the table stores");
    match data_type {
        DataType::Primitive(PrimitiveType::Void) => Ok(Arc::new(NullArray::new(rows))),
        DataType::Struct(inner) => {
            let array = stored.next().ok_or_else(missing)?;
            let of = array.as_struct_opt().ok_or_else(|| Error::internal("a struct is stored as something else"))?;
            let (mut fields, mut columns, mut within) = (Vec::new(), Vec::new(), of.columns().iter());
            for field in &inner.fields {
                let column = logical_array(&field.data_type, &mut within, rows)?;
                fields.push(Field::new(&field.name, column.data_type().clone(), true));
                columns.push(column);
            }
            Ok(Arc::new(StructArray::try_new_with_length(fields.into(), columns, of.nulls().cloned(), rows)?))
        }
        _ => stored.next().cloned().ok_or_else(missing),
    }
}
