//! Conditions on rows.

use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::expression::{BoundExpression, Column, Context, Expression, evaluate_at, parse_expression, value_at};
use crate::schema::{DataType, PrimitiveType, StructType};

/// Most columns of a row that a message shows.
const MAX_SHOWN: usize = 8;

/// What a caller can do about SQL that deltic does not evaluate.
pub const ENGINE_ADVICE: &str = "in Spark, deltic.spark.write, update and merge let Spark evaluate this";

/// A condition that every row of a table must make TRUE.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    rule: Rule,
    sql: String,
    condition: BoundExpression,
}

/// A rule of a table, by which messages name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The CHECK constraint of a name.
    Check(String),
    /// The invariant of a column or of a field in one, by its path.
    Invariant(String),
    /// The expression of a generated column.
    Generated(String),
    /// The default of a column.
    Default(String),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(name) => write!(f, "the CHECK constraint `{name}`"),
            Self::Invariant(column) => write!(f, "the invariant of column `{column}`"),
            Self::Generated(column) => write!(f, "the expression of the generated column `{column}`"),
            Self::Default(column) => write!(f, "the default of the column `{column}`"),
        }
    }
}

/// `delta.invariants` of a column.
#[derive(Deserialize)]
struct Invariant {
    expression: InvariantExpression,
}

#[derive(Deserialize)]
struct InvariantExpression {
    expression: String,
}

impl Constraint {
    /// A CHECK constraint of a table with this schema (logical names).
    ///
    /// # Errors
    /// `Invalid`, naming the constraint, for SQL that cannot be read, an unknown column and for what is no
    /// condition; `Unsupported`, naming constraint and function, for what deltic does not evaluate.
    pub fn parse(name: &str, sql: &str, schema: &StructType) -> Result<Self> {
        Self::bound(Rule::Check(name.to_owned()), sql, schema)
    }

    /// Whether the value given for a generated column is the one that its expression gives.
    pub(super) fn generated(column: &str, sql: &str, value: Expression, schema: &StructType) -> Result<Self> {
        let rule = Rule::Generated(column.to_owned());
        let given = Expression::Column(crate::expression::Name(vec![column.to_owned()]));
        let equal = Expression::NullSafeEqual { left: Box::new(given), right: Box::new(value) };
        let condition = equal.bind(schema).map_err(|e| in_sql(&rule, sql, &e))?;
        Ok(Self { rule, sql: sql.to_owned(), condition })
    }

    pub(super) fn bound(rule: Rule, sql: &str, schema: &StructType) -> Result<Self> {
        let parsed = parse_expression(sql).and_then(|parsed| parsed.bind(schema));
        let condition = parsed.map_err(|e| in_sql(&rule, sql, &e))?;
        match condition.data_type() {
            DataType::Primitive(PrimitiveType::Boolean | PrimitiveType::Void) => {}
            other => {
                return Err(Error::invalid(format!("{rule} ({sql}) is not a condition but a value of type {other}")));
            }
        }
        Ok(Self { rule, sql: sql.to_owned(), condition })
    }

    /// As it was written.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The condition.
    pub fn condition(&self) -> &BoundExpression {
        &self.condition
    }

    /// Checks rows, whose columns have logical names and the Arrow types of their types.
    ///
    /// # Errors
    /// `Invalid`, naming the constraint, its SQL and the first row for which it is FALSE, NULL or an error, with the values
    /// of the columns that it mentions.
    pub fn check(&self, batch: &RecordBatch, context: Context) -> Result<()> {
        let values = evaluate_at(&self.condition, batch, context).map_err(|e| in_sql(&self.rule, &self.sql, &e))?;
        let violated = match values.as_boolean_opt() {
            Some(conditions) => first_not_true(conditions),
            // NULL, whatever the row.
            None => (batch.num_rows() > 0).then_some(0),
        };
        let violation = |row| violation((&self.rule, &self.sql), &self.condition.columns(), (batch, row), context);
        violated.map_or(Ok(()), |row| Err(violation(row)))
    }
}

/// The first row for which a condition is FALSE or NULL.
pub(super) fn first_not_true(conditions: &BooleanArray) -> Option<usize> {
    if conditions.null_count() == 0 && conditions.true_count() == conditions.len() {
        return None;
    }
    (0..conditions.len()).find(|row| conditions.is_null(*row) || !conditions.value(*row))
}

/// The error of a row that violates a rule, with the values of these columns.
pub(super) fn violation(
    (rule, sql): (&Rule, &str),
    columns: &[&Column],
    (batch, row): (&RecordBatch, usize),
    context: Context,
) -> Error {
    let number = context.first_row.saturating_add(row as u64);
    let mut values: Vec<String> =
        columns.iter().take(MAX_SHOWN).map(|column| format!("{column} = {}", value_at(batch, column, row))).collect();
    if columns.len() > MAX_SHOWN {
        values.push("…".to_owned());
    }
    let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
    Error::invalid(match rule {
        Rule::Generated(_) => format!(
            "row {number} (the first is 0) has another value than {rule} ({sql}) gives{values}; leave the column out, \
             and it is computed"
        ),
        Rule::Check(_) | Rule::Invariant(_) | Rule::Default(_) => {
            format!("{rule} ({sql}) is violated by row {number} (the first is 0) of the data{values}")
        }
    })
}

/// The SQL of the invariant of a column or of a field in it, as its metadata has it.
pub(super) fn invariant_sql(path: &str, json: &str) -> Result<String> {
    let parsed: Invariant = serde_json::from_str(json).map_err(|e| {
        Error::corrupt(format!("`delta.invariants` of the column `{path}` is not an invariant: {json}")).caused_by(e)
    })?;
    Ok(parsed.expression.expression)
}

/// The advice at the end of an error about SQL that deltic does not evaluate.
pub(super) fn advice() -> String {
    format!("; deltic cannot write the table; {ENGINE_ADVICE}")
}

/// Adds the rule and its SQL to an error.
pub(super) fn in_sql(what: &impl fmt::Display, sql: &str, error: &Error) -> Error {
    let message = error.message();
    match error.kind() {
        kind @ Kind::Unsupported { .. } => Error::new(kind.clone(), format!("{what} ({sql}): {message}{}", advice())),
        kind => Error::new(kind.clone(), format!("{what} ({sql}): {message}")),
    }
}
