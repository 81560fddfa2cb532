//! Computes the rows of an UPDATE: new values in some columns.
//!
//! A column is named by its path. If a field of a struct that is NULL is assigned, the struct is no longer NULL. A new value
//! is an expression over the old row, stored as CAST in ANSI mode converts it, or a constant. Columns
//! that the table generates are computed again.
//!
//! Invariant: other values do not change, and the new rows have the schema of the old ones
//! (`row_update::only_assigned_columns_change`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StructArray, UInt64Array, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::Fields;
use arrow_select::nullif::nullif;
use arrow_select::take::take;

use crate::constraint::{ExternalCondition, ExternalRules, Rules, Source};
use crate::error::{Error, Result};
use crate::expression::resolve::resolve;
use crate::expression::{
    Assignment, BoundExpression, Context, Conversion, Expression, MissingFields, Name, evaluate_at, parse_value,
};
use crate::scalar::partition::normalise;
use crate::schema::arrow::{cast_strictly, to_arrow_type};
use crate::schema::identity::is_identity;
use crate::schema::path;
use crate::schema::{DataType, StructField, StructType};

/// The new value of a column.
#[derive(Debug, Clone)]
pub enum NewValue {
    /// An expression over the old row, in the syntax of filters.
    Expression(String),
    /// A parsed expression.
    Parsed(Expression),
    /// One value, in the Arrow type of the column.
    Value(ArrayRef),
}

impl NewValue {
    /// Whether it is the column's default.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self, Self::Expression(sql) if sql.trim().eq_ignore_ascii_case("DEFAULT"))
    }
}

/// A function that binds expressions.
pub type Bind<'a> = &'a dyn Fn(Expression) -> Result<BoundExpression>;

/// The assigned columns, and their new values.
#[derive(Debug, Clone)]
pub struct RowUpdate {
    assigned: Vec<Assigned>,
    /// Generated columns that are not assigned.
    generated: Vec<usize>,
    /// Columns that partition the table, whose values are stored as strings.
    partitions: Vec<usize>,
    rules: Arc<Rules>,
    /// The columns with the values of the conditions that another engine has evaluated.
    conditions: Vec<BoundExpression>,
    /// The time in microseconds since the epoch.
    now: Option<i64>,
}

/// The table whose rows are updated.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Its columns (logical names).
    pub schema: &'a StructType,
    /// Logical names of those that partition it.
    pub partition_columns: &'a [String],
    /// Its CHECK constraints, by name.
    pub constraints: &'a BTreeMap<String, String>,
    /// The rules that another engine evaluates: the rows that expressions name columns of have its values, and the columns that
    /// it computes are assigned.
    pub external: Option<&'a ExternalRules>,
    /// The current time in microseconds since the epoch, if it may be asked for.
    pub now: Option<i64>,
    /// What becomes of the fields that an assigned struct lacks.
    pub missing: MissingFields,
}

#[derive(Debug, Clone)]
struct Assigned {
    /// Positions, top-down.
    at: Vec<usize>,
    /// The name as written.
    name: String,
    nullable: bool,
    value: Computed,
}

#[derive(Debug, Clone)]
pub(crate) enum Computed {
    Assignment(Box<Assignment>),
    Value(ArrayRef),
}

impl Computed {
    /// The new value of the column `name`, if it is not the column's default.
    pub(crate) fn new(
        value: NewValue,
        name: &str,
        (to, missing): (&DataType, MissingFields),
        bind: Bind<'_>,
    ) -> Result<Self> {
        let parsed = match value {
            NewValue::Value(value) => return Ok(Self::Value(value)),
            NewValue::Expression(sql) => parse_value(&sql)?,
            NewValue::Parsed(parsed) => parsed,
        };
        let assignment = Assignment::completing(bind(parsed)?, name, to, Conversion::Cast, missing)?;
        Ok(Self::Assignment(Box::new(assignment)))
    }

    /// The bytes of constants in each row.
    pub(crate) fn constant_bytes(&self) -> usize {
        match self {
            Self::Assignment(assignment) => assignment.expression().literal_bytes(),
            Self::Value(value) => value.to_data().get_slice_memory_size().unwrap_or_default(),
        }
    }

    /// The values for rows. `old`: the values of the column in the old rows. `number`: the number of a row in messages.
    pub(crate) fn values(
        &self,
        rows: &RecordBatch,
        (now, old): (Option<i64>, Option<&ArrayRef>),
        number: &dyn Fn(usize) -> u64,
    ) -> Result<ArrayRef> {
        match self {
            Self::Assignment(assignment) => assignment.values_numbered(rows, (now, old), number),
            Self::Value(value) => Ok(take(value, &UInt64Array::from(vec![0; rows.num_rows()]), None)?),
        }
    }
}

/// Finds a column by its path, as a caller writes it. Returns its positions top-down, its names, and the field.
///
/// # Errors
/// `Invalid` if there is none.
pub fn find<'a>(schema: &'a StructType, text: &str) -> Result<(Vec<usize>, Name, &'a StructField)> {
    let path = match schema.index_of(text) {
        Some(_) => vec![text.to_owned()],
        None => path::parse(text).map_err(|e| in_key(text, &e))?,
    };
    let column = resolve(schema, &path).map_err(|e| in_key(text, &e))?;
    let (mut at, mut level, mut found) = (Vec::new(), Some(schema), None);
    for name in &column.path {
        let inside = level.and_then(|level| Some((level, level.index_of(name)?)));
        let field = inside.and_then(|(level, index)| Some((index, level.fields.get(index)?)));
        let (index, field) = field.ok_or_else(|| Error::internal("a column was found that does not exist"))?;
        at.push(index);
        level = if let DataType::Struct(inner) = &field.data_type { Some(inner) } else { None };
        found = Some(field);
    }
    let field = found.ok_or_else(|| Error::internal("a path is empty"))?;
    Ok((at, Name(column.path), field))
}

impl RowUpdate {
    /// Prepares an update of a table. `bind`: binds expressions; in an UPDATE they name the table's columns.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it does not exist, is assigned twice, is numbered by the table, or cannot have
    /// the value; `Unsupported` for functions that deltic does not evaluate.
    pub fn new(set: Vec<(String, NewValue)>, table: Target<'_>, bind: Bind<'_>) -> Result<Self> {
        if set.is_empty() {
            return Err(Error::invalid("nothing is to be set; name at least one column"));
        }
        let schema = table.schema;
        let (rules, conditions) = rules_of(table, bind)?;
        let mut assigned: Vec<Assigned> = Vec::new();
        for (key, value) in set {
            let (at, name, field) = find(schema, &key)?;
            let name = name.to_string();
            if let Some(other) = assigned.iter().find(|other| other.at.starts_with(&at) || at.starts_with(&other.at)) {
                let message = match other.at == at {
                    true => format!("`{key}` is set twice"),
                    false => format!("`{key}` and `{}` cannot both be set: one is inside the other", other.name),
                };
                return Err(Error::invalid(message));
            }
            if at.len() == 1 && is_identity(field) {
                let message = format!("the table numbers its rows in the column `{name}`, which cannot be set");
                return Err(Error::invalid(message));
            }
            let value = match value.is_default() {
                true => default_of(&rules, &at, field).map(Computed::Value),
                false => Computed::new(value, &name, (&field.data_type, table.missing), bind),
            };
            let value = value.map_err(|e| in_key(&key, &e))?;
            assigned.push(Assigned { at, name, nullable: field.nullable, value });
        }
        for column in table.external.iter().flat_map(|external| &external.columns) {
            if !assigned.iter().any(|assigned| assigned.at.first() == schema.index_of(&column.name).as_ref()) {
                return Err(Error::internal(format!("{} was not computed", column.rule)));
            }
        }
        let is_left = |at: &usize| !assigned.iter().any(|assigned| assigned.at.first() == Some(at));
        let generated = (0..schema.fields.len()).filter(|at| rules.source(*at) == Source::Generated);
        let generated = generated.filter(is_left).collect();
        let partitions = table.partition_columns.iter().filter_map(|name| schema.index_of(name)).collect();
        Ok(Self { assigned, generated, partitions, rules: Arc::new(rules), conditions, now: table.now })
    }

    /// The bytes of constants in each updated row.
    pub fn constant_bytes(&self) -> usize {
        self.assigned.iter().map(|assigned| assigned.value.constant_bytes()).fold(0, usize::saturating_add)
    }

    /// Positions of the columns that may change.
    pub fn changes(&self) -> impl Iterator<Item = usize> {
        self.assigned.iter().filter_map(|assigned| assigned.at.first().copied()).chain(self.generated.iter().copied())
    }

    /// Positions of the columns that are needed to compute and check the new rows, in order; those that may change are among
    /// them.
    pub fn needed_columns(&self) -> BTreeSet<usize> {
        let expressions = self.assigned.iter().filter_map(|assigned| match &assigned.value {
            Computed::Assignment(assignment) => Some(assignment.expression()),
            Computed::Value(_) => None,
        });
        let read = expressions.flat_map(|expression| expression.columns()).map(|column| column.index);
        self.changes().chain(self.rules.columns()).chain(self.rules.dependencies()).chain(read).collect()
    }

    /// The new rows for those of `old`, which has the columns of the table in their order. `on`: the same rows with the columns
    /// that expressions name. `number`: the number of a row in messages.
    ///
    /// # Errors
    /// `Invalid`, naming the row, if a value cannot be computed, the column cannot have it, or the row breaks a rule.
    pub fn apply(&self, old: &RecordBatch, on: &RecordBatch, number: &dyn Fn(usize) -> u64) -> Result<RecordBatch> {
        let mut columns = old.columns().to_vec();
        for assigned in &self.assigned {
            let Some((first, inside)) = assigned.at.split_first() else { continue };
            let whole = old.columns().get(*first).filter(|_| inside.is_empty());
            let values = assigned.value.values(on, (self.now, whole), number)?;
            let values = if self.partitions.contains(first) { normalise(&values)? } else { values };
            refuse_null(&values, &assigned.name, assigned.nullable, number)?;
            let column = columns.get_mut(*first).ok_or_else(missing)?;
            *column = put(column, inside, values, &assigned.name, number)?;
        }
        for (column, field) in columns.iter_mut().zip(old.schema_ref().fields()) {
            if column.data_type() != field.data_type() {
                // The types differ only in the metadata of fields inside them.
                *column = cast_strictly(column, field.data_type())?;
            }
        }
        let batch = |columns| {
            let options = RecordBatchOptions::new().with_row_count(Some(old.num_rows()));
            RecordBatch::try_new_with_options(old.schema(), columns, &options)
        };
        let mut rows = batch(columns)?;
        if !self.generated.is_empty() {
            let mut columns = rows.columns().to_vec();
            let context = Context { now: self.now, first_row: 0 };
            for at in &self.generated {
                let values = self.rules.generated_values(*at, &rows, context)?;
                let values = if self.partitions.contains(at) { normalise(&values)? } else { values };
                let field = rows.schema_ref().fields().get(*at).ok_or_else(missing)?;
                refuse_null(&values, field.name(), field.is_nullable(), number)?;
                *columns.get_mut(*at).ok_or_else(missing)? = values;
            }
            rows = batch(columns)?;
        }
        self.check(&rows, on, number)?;
        Ok(rows)
    }

    /// Checks the changed rows against the rules of the table.
    fn check(&self, rows: &RecordBatch, on: &RecordBatch, number: &dyn Fn(usize) -> u64) -> Result<()> {
        let context = Context { now: self.now, first_row: 0 };
        let mut values = Vec::with_capacity(self.conditions.len());
        for condition in &self.conditions {
            let of_rows = evaluate_at(condition, on, context)?;
            let of_rows = of_rows.as_boolean_opt().cloned();
            values.push(of_rows.ok_or_else(|| Error::internal("the values of a condition are not booleans"))?);
        }
        let check = |rows: &RecordBatch, values: &[BooleanArray], context| {
            self.rules.check(rows, &self.generated, context)?;
            self.rules.check_external(rows, values, context)
        };
        let Err(error) = check(rows, &values, context) else { return Ok(()) };
        // Check again one by one, for a message with the number of the row.
        for row in 0..rows.num_rows() {
            let context = Context { first_row: number(row), ..context };
            let values: Vec<BooleanArray> = values.iter().map(|values| values.slice(row, 1)).collect();
            check(&rows.slice(row, 1), &values, context)?;
        }
        Err(error)
    }
}

/// The rules of a table, and the columns with the values of those conditions that another engine evaluates.
fn rules_of(table: Target<'_>, bind: Bind<'_>) -> Result<(Rules, Vec<BoundExpression>)> {
    let Some(external) = table.external else {
        return Ok((Rules::of(table.schema, table.constraints, table.now)?, Vec::new()));
    };
    let column = |of: &ExternalCondition| bind(Expression::Column(Name(vec![of.column.clone()])));
    let conditions = external.conditions.iter().map(column).collect::<Result<_>>()?;
    Ok((Rules::beside(external, table.schema, table.constraints, table.now)?, conditions))
}

pub(crate) fn in_key(key: &str, error: &Error) -> Error {
    Error::new(error.kind().clone(), format!("cannot set `{key}`: {}", error.message()))
}

/// The default of a column, as one value.
fn default_of(rules: &Rules, at: &[usize], field: &StructField) -> Result<ArrayRef> {
    match (at, at.first().map(|first| rules.source(*first))) {
        ([first], Some(Source::Default)) => rules.default_values(*first, 1),
        ([_], Some(Source::Generated)) => Err(Error::invalid("the table computes the column; leave it out")),
        _ => Ok(new_null_array(&to_arrow_type(&field.data_type), 1)),
    }
}

pub(crate) fn missing() -> Error {
    Error::internal("rows to be updated lack a column")
}

/// Refuses NULL in a column that is not nullable.
fn refuse_null(values: &ArrayRef, name: &str, nullable: bool, number: &dyn Fn(usize) -> u64) -> Result<()> {
    match first_null(values).filter(|_| !nullable) {
        None => Ok(()),
        Some(row) => {
            let row = number(row);
            Err(Error::invalid(format!("row {row}: the column {name} is not nullable, and would be NULL")))
        }
    }
}

pub(crate) fn first_null(values: &ArrayRef) -> Option<usize> {
    let nulls = values.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    nulls.iter().position(|is_valid| !is_valid)
}

/// A column with new values of a field inside it. Structs around the field that were NULL are no longer, and their other
/// fields are NULL.
fn put(
    column: &ArrayRef,
    at: &[usize],
    values: ArrayRef,
    name: &str,
    number: &dyn Fn(usize) -> u64,
) -> Result<ArrayRef> {
    let Some((first, inside)) = at.split_first() else { return Ok(values) };
    let parent = column.as_struct_opt().ok_or_else(missing)?;
    let (fields, mut children, nulls) = (parent.fields().clone(), parent.columns().to_vec(), parent.nulls().cloned());
    if let Some(nulls) = nulls.as_ref().filter(|nulls| nulls.null_count() > 0) {
        children = children.iter().map(|child| null_where(child, nulls)).collect::<Result<_>>()?;
    }
    let (child, field) = children.get_mut(*first).zip(fields.get(*first)).ok_or_else(missing)?;
    let made = put(child, inside, values, name, number)?;
    // The types differ only in the metadata and nullability of inner fields.
    *child = if made.data_type() == field.data_type() { made } else { cast_strictly(&made, field.data_type())? };
    check_nulls(&fields, &children, name, number)?;
    Ok(Arc::new(StructArray::try_new_with_length(fields, children, None, parent.len())?))
}

/// `child`, but NULL wherever its parent is.
fn null_where(child: &ArrayRef, parent: &NullBuffer) -> Result<ArrayRef> {
    Ok(nullif(child, &BooleanArray::new(!parent.inner(), None))?)
}

/// Refuses a struct that was NULL and now has NULL in a NOT NULL field.
fn check_nulls(fields: &Fields, children: &[ArrayRef], name: &str, number: &dyn Fn(usize) -> u64) -> Result<()> {
    for (field, child) in fields.iter().zip(children).filter(|(field, _)| !field.is_nullable()) {
        if let Some(row) = first_null(child) {
            return Err(Error::invalid(format!(
                "row {}: {name} is set inside a struct that is NULL, whose field `{}` is not nullable; set the whole struct",
                number(row),
                field.name()
            )));
        }
    }
    Ok(())
}
