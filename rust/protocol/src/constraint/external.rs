//! Rules that another engine evaluates because deltic cannot: the engine that has the rows, such as Spark.
//!
//! They are found when a write is planned ([`Rules::external`](super::Rules::external)). The engine computes the columns
//! that the rows lack, and adds a column of booleans for each condition. The writer demands these columns, demands that every
//! boolean is TRUE, and removes the booleans.
//!
//! Invariant: rows without these columns are refused (`rules::external_conditions_are_demanded`).
//!
//! PROTOCOL.md: "CHECK Constraints", "Column Invariants", "Generated Columns", "Default Columns".

use std::collections::BTreeSet;

use arrow_array::{BooleanArray, RecordBatch};
use serde::{Deserialize, Serialize};

use super::condition::{Rule, advice, first_not_true, violation};
use crate::error::{Error, Kind, Result};
use crate::expression::resolve::resolve;
use crate::expression::{Column, Context, parse_expression};
use crate::schema::StructType;

/// The rules of one write that another engine evaluates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalRules {
    /// The conditions on its rows.
    pub conditions: Vec<ExternalCondition>,
    /// The columns of the table that it computes: all generated ones and all with a default that the rows lack.
    pub columns: Vec<ExternalColumn>,
}

impl ExternalRules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.columns.is_empty()
    }

    /// Whether the engine evaluates this rule.
    pub(super) fn has(&self, rule: &Rule) -> bool {
        self.conditions.iter().any(|condition| condition.rule == *rule)
            || self.columns.iter().any(|column| column.rule == *rule)
    }
}

/// A condition that another engine evaluates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalCondition {
    /// The rule that it is part of.
    pub rule: Rule,
    /// The SQL of the rule: the condition, or the expression that a generated column is equal to.
    pub sql: String,
    /// The column of the rows with its values.
    pub column: String,
    /// Why deltic does not evaluate it.
    pub refusal: Refusal,
}

/// A column of the table that another engine computes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalColumn {
    /// Its name.
    pub name: String,
    /// The rule that gives its values.
    pub rule: Rule,
    /// The SQL of the values.
    pub sql: String,
    /// Why deltic does not evaluate it, if it does not.
    pub refusal: Option<Refusal>,
}

/// Why deltic does not evaluate a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The message of the error, which names the rule, without advice.
    pub message: String,
    /// What is not supported; nothing if deltic cannot make sense of the SQL.
    pub features: Vec<String>,
}

impl Refusal {
    /// The refusal for an error, if another engine may be able to evaluate the rule; `None` for other errors.
    pub(super) fn of(error: &Error) -> Option<Self> {
        let features = match error.kind() {
            Kind::Unsupported { features } => features.clone(),
            Kind::Invalid => Vec::new(),
            Kind::NotFound
            | Kind::VersionNotFound { .. }
            | Kind::TableExists
            | Kind::Corrupt
            | Kind::Conflict(_)
            | Kind::Storage { .. }
            | Kind::Interrupted
            | Kind::Internal => return None,
        };
        let (message, advice) = (error.message(), advice());
        Some(Self { message: message.strip_suffix(&advice).unwrap_or(message).to_owned(), features })
    }
}

/// A condition that another engine has evaluated, and the columns that messages show.
#[derive(Debug)]
pub(super) struct Evaluated {
    condition: ExternalCondition,
    columns: Vec<Column>,
}

impl Evaluated {
    /// A condition on rows of a table with this schema (logical names).
    pub(super) fn new(condition: &ExternalCondition, schema: &StructType) -> Self {
        Self { columns: columns(condition, schema), condition: condition.clone() }
    }

    /// The columns of the table that messages show.
    pub(super) fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter()
    }

    /// Checks rows, for which the condition has these values.
    pub(super) fn check(&self, values: &BooleanArray, rows: &RecordBatch, context: Context) -> Result<()> {
        let ExternalCondition { rule, sql, .. } = &self.condition;
        let columns: Vec<&Column> = self.columns().collect();
        match first_not_true(values) {
            None => Ok(()),
            Some(row) => Err(violation((rule, sql), &columns, (rows, row), context)),
        }
    }
}

/// The columns that a condition names. In SQL that deltic cannot parse they are those whose names are words of it.
fn columns(condition: &ExternalCondition, schema: &StructType) -> Vec<Column> {
    let sql = &condition.sql;
    let mut paths: Vec<Vec<String>> = Vec::new();
    if let Rule::Generated(column) = &condition.rule {
        paths.push(vec![column.clone()]);
    }
    match parse_expression(sql) {
        Ok(parsed) => paths.extend(parsed.columns().into_iter().map(|name| name.0.clone())),
        Err(_) => {
            let lower = sql.to_lowercase();
            let words: BTreeSet<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            let is_named = |name: &str| words.contains(name) || lower.contains(&format!("`{name}`"));
            let named = schema.fields.iter().filter(|field| is_named(&field.name.to_lowercase()));
            paths.extend(named.map(|field| vec![field.name.clone()]));
        }
    }
    let mut found: Vec<Column> = Vec::new();
    for column in paths.iter().filter_map(|path| resolve(schema, path).ok()) {
        if !found.contains(&column) {
            found.push(column);
        }
    }
    found
}
