//! All rules of a table.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};

use super::column::{
    ColumnDefault, DEFAULT, DefaultValue, GENERATION, GeneratedColumn, check_readable_generation, sql_of,
};
use super::condition::{Constraint, Rule, invariant_sql};
use super::external::{Evaluated, ExternalColumn, ExternalCondition, ExternalRules, Refusal};
use crate::error::{Error, Result};
use crate::expression::{Column, Context};
use crate::property::Properties;
use crate::schema::{DataType, StructType};

/// The prefix of properties that are CHECK constraints.
const CONSTRAINT: &str = "delta.constraints.";
/// Metadata of a column with a condition.
const INVARIANT: &str = "delta.invariants";

/// The CHECK constraints among a table's properties, by name.
pub fn check_constraints(properties: Properties<'_>) -> BTreeMap<String, String> {
    let named = properties.keys().filter_map(|key| {
        let name = key.get(..CONSTRAINT.len()).filter(|head| head.eq_ignore_ascii_case(CONSTRAINT));
        name.and(key.get(CONSTRAINT.len()..)).zip(properties.get(key))
    });
    named.map(|(name, sql)| (name.to_owned(), sql.to_owned())).collect()
}

/// What rows must satisfy, and what columns they are given.
#[derive(Debug)]
pub struct Rules {
    constraints: Vec<Constraint>,
    /// By the position of the column.
    generated: BTreeMap<usize, GeneratedColumn>,
    /// By the position of the column. Whether there is a value matters only where it is needed.
    defaults: BTreeMap<usize, Result<DefaultValue>>,
    /// Conditions that another engine has evaluated.
    external: Vec<Evaluated>,
}

/// Where the values of a column are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The data has them, or they are null.
    Given,
    /// The column's default.
    Default,
    /// The column's expression.
    Generated,
}

impl Rules {
    /// Those of a table with this schema (logical names) and these CHECK constraints, for a write at a time in microseconds
    /// since the epoch.
    ///
    /// # Errors
    /// Those of [`Constraint::parse`] and [`GeneratedColumn::parse`]. A default that cannot be evaluated is an error only
    /// where it is needed.
    pub fn of(schema: &StructType, checks: &BTreeMap<String, String>, now: Option<i64>) -> Result<Self> {
        Self::beside(&ExternalRules::default(), schema, checks, now)
    }

    /// As [`Rules::of`], where another engine evaluates some of them.
    ///
    /// # Errors
    /// As [`Rules::of`].
    pub fn beside(
        external: &ExternalRules,
        schema: &StructType,
        checks: &BTreeMap<String, String>,
        now: Option<i64>,
    ) -> Result<Self> {
        let mut rules = Self::collect(schema, checks, now, &mut Unknown::Refused(external))?;
        rules.external = external.conditions.iter().map(|condition| Evaluated::new(condition, schema)).collect();
        Ok(rules)
    }

    /// The rules that the engine that has the rows must evaluate, since deltic cannot. `given`: the names of the rows'
    /// columns. If there are any, the engine computes all columns that the rows lack, since the rules may depend on them.
    ///
    /// # Errors
    /// `Invalid`, naming the column, for a generated column that is not determined by other columns; `Corrupt` and
    /// `Unsupported` for metadata that no engine can obey.
    pub fn external(
        schema: &StructType,
        checks: &BTreeMap<String, String>,
        now: Option<i64>,
        given: &[&str],
    ) -> Result<ExternalRules> {
        let mut unknown = Unknown::Listed(Vec::new());
        Self::collect(schema, checks, now, &mut unknown)?;
        let Unknown::Listed(mut unknown) = unknown else { return Ok(ExternalRules::default()) };
        let given: BTreeSet<String> = given.iter().map(|name| name.to_lowercase()).collect();
        let is_given = |name: &String| given.contains(&name.to_lowercase());
        // A default is not needed for values that are given.
        unknown.retain(|(rule, _, _)| !matches!(rule, Rule::Default(column) if is_given(column)));
        if unknown.is_empty() {
            return Ok(ExternalRules::default());
        }
        let mut columns = Vec::new();
        for field in schema.fields.iter().filter(|field| !is_given(&field.name)) {
            let name = field.name.clone();
            let (rule, sql) = match (sql_of(field, GENERATION)?, sql_of(field, DEFAULT)?) {
                (Some(sql), _) => (Rule::Generated(name.clone()), sql.to_owned()),
                (None, Some(sql)) => (Rule::Default(name.clone()), sql.to_owned()),
                (None, None) => continue,
            };
            let refusal = unknown.iter().find(|(of, _, _)| *of == rule).map(|(_, _, refusal)| refusal.clone());
            columns.push(ExternalColumn { name, rule, sql, refusal });
        }
        unknown.retain(|(rule, _, _)| columns.iter().all(|column| column.rule != *rule));
        let prefix = free_prefix(schema.fields.iter().map(|field| field.name.to_lowercase()).chain(given.clone()));
        let conditions = unknown.into_iter().enumerate().map(|(number, (rule, sql, refusal))| {
            let column = format!("{prefix}{number}");
            ExternalCondition { rule, sql, column, refusal }
        });
        Ok(ExternalRules { conditions: conditions.collect(), columns })
    }

    fn collect(
        schema: &StructType,
        checks: &BTreeMap<String, String>,
        now: Option<i64>,
        unknown: &mut Unknown<'_>,
    ) -> Result<Self> {
        let mut constraints = Vec::new();
        for (name, sql) in checks {
            let rule = Rule::Check(name.clone());
            constraints.extend(unknown.or_none(rule, sql, || Constraint::parse(name, sql, schema))?);
        }
        let mut invariants = Vec::new();
        find_invariants(schema, "", &mut invariants)?;
        for (path, json) in invariants {
            let (rule, sql) = (Rule::Invariant(path.clone()), invariant_sql(&path, &json)?);
            constraints.extend(unknown.or_none(rule.clone(), &sql, || Constraint::bound(rule, &sql, schema))?);
        }
        refuse_generated_inside(schema)?;
        let (mut generated, mut defaults) = (BTreeMap::new(), BTreeMap::new());
        for (at, field) in schema.fields.iter().enumerate() {
            if let Some(sql) = sql_of(field, GENERATION)? {
                check_readable_generation(field, sql, schema)?;
                let rule = Rule::Generated(field.name.clone());
                let column = unknown.or_none(rule, sql, || GeneratedColumn::parse(field, sql, schema))?;
                generated.extend(column.map(|column| (at, column)));
            } else if let Some(sql) = sql_of(field, DEFAULT)? {
                let rule = Rule::Default(field.name.clone());
                let value = || ColumnDefault::parse(field, sql).and_then(|default| default.value(now));
                defaults.extend(unknown.or_none(rule, sql, value).transpose().map(|value| (at, value)));
            }
        }
        Ok(Self { constraints, generated, defaults, external: Vec::new() })
    }

    /// Whether rows are taken as they are given.
    pub fn is_empty(&self) -> bool {
        self.constraints.is_empty() && self.generated.is_empty() && self.defaults.is_empty() && self.external.is_empty()
    }

    /// Where the values of the column at a position are from if the data does not have it.
    pub fn source(&self, column: usize) -> Source {
        match (self.generated.contains_key(&column), self.defaults.contains_key(&column)) {
            (true, _) => Source::Generated,
            (_, true) => Source::Default,
            _ => Source::Given,
        }
    }

    /// The default of the column at a position, for so many rows.
    ///
    /// # Errors
    /// What [`ColumnDefault`] says of it.
    pub fn default_values(&self, column: usize, rows: usize) -> Result<ArrayRef> {
        match self.defaults.get(&column) {
            Some(Ok(value)) => value.repeated(rows),
            Some(Err(error)) => Err(Error::new(error.kind().clone(), error.message())),
            None => Err(Error::internal("a column without a default is to have its default")),
        }
    }

    /// The values of the generated column at a position.
    ///
    /// # Errors
    /// Those of [`GeneratedColumn::values`].
    pub fn generated_values(&self, column: usize, rows: &RecordBatch, context: Context) -> Result<ArrayRef> {
        let generated = self.generated.get(&column).ok_or_else(|| Error::internal("a column is not generated"))?;
        generated.values(rows, context)
    }

    /// Checks whole rows, whose columns have logical names; `computed` are the positions of columns that were not given.
    ///
    /// # Errors
    /// Those of [`Constraint::check`].
    pub fn check(&self, rows: &RecordBatch, computed: &[usize], context: Context) -> Result<()> {
        for (at, generated) in &self.generated {
            if !computed.contains(at) {
                generated.given().check(rows, context)?;
            }
        }
        self.constraints.iter().try_for_each(|constraint| constraint.check(rows, context))
    }

    /// Checks rows as [`Rules::check`] does, by the values that another engine has computed for each of its conditions.
    ///
    /// # Errors
    /// As [`Rules::check`]; `Internal` if values of a condition are missing.
    pub fn check_external(&self, rows: &RecordBatch, values: &[BooleanArray], context: Context) -> Result<()> {
        if values.len() != self.external.len() {
            return Err(Error::internal("the conditions that another engine evaluates have no values"));
        }
        self.external.iter().zip(values).try_for_each(|(condition, values)| condition.check(values, rows, context))
    }

    /// Positions of the columns that generated ones depend on.
    pub fn dependencies(&self) -> Vec<usize> {
        sorted(self.generated.values().flat_map(|generated| generated.expression().columns()))
    }

    /// Positions of the columns that the rules read.
    pub fn columns(&self) -> Vec<usize> {
        let of_constraints = self.constraints.iter().flat_map(|constraint| constraint.condition().columns());
        let of_generated = self.generated.values().flat_map(|generated| generated.given().condition().columns());
        let of_external = self.external.iter().flat_map(Evaluated::columns).cloned().collect::<Vec<_>>();
        let own: Vec<Column> = of_constraints.chain(of_generated).cloned().collect();
        sorted(own.iter().chain(&of_external))
    }
}

/// A rule that deltic cannot evaluate, with its SQL.
type UnknownRule = (Rule, String, Refusal);

/// What becomes of the rules that deltic cannot evaluate.
enum Unknown<'a> {
    /// They are errors, except these, which another engine evaluates.
    Refused(&'a ExternalRules),
    /// They are listed.
    Listed(Vec<UnknownRule>),
}

impl Unknown<'_> {
    /// What `parse` makes of a rule; `None` if another engine evaluates it.
    fn or_none<T>(&mut self, rule: Rule, sql: &str, parse: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        let unknown = match self {
            Self::Refused(external) if external.has(&rule) => return Ok(None),
            Self::Refused(_) => return parse().map(Some),
            Self::Listed(unknown) => unknown,
        };
        parse().map(Some).or_else(|error| match Refusal::of(&error) {
            Some(refusal) => {
                unknown.push((rule, sql.to_owned(), refusal));
                Ok(None)
            }
            None => Err(error),
        })
    }
}

/// A prefix that none of these names, in lower case, has.
fn free_prefix(names: impl Iterator<Item = String>) -> String {
    let (names, mut prefix) = (names.collect::<Vec<_>>(), "_deltic_condition_".to_owned());
    while names.iter().any(|name| name.starts_with(&prefix)) {
        prefix.insert(0, '_');
    }
    prefix
}

/// The positions of columns, each once.
fn sorted<'a>(columns: impl Iterator<Item = &'a Column>) -> Vec<usize> {
    columns.map(|column| column.index).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Refuses a schema and properties that ask of rows what cannot be checked or computed.
///
/// # Errors
/// Those of [`Constraint::parse`], [`GeneratedColumn::parse`] and [`ColumnDefault::parse`].
pub fn check(schema: &StructType, properties: Properties<'_>) -> Result<()> {
    Rules::of(schema, &check_constraints(properties), None)?;
    for field in &schema.fields {
        if let Some(sql) = sql_of(field, DEFAULT)? {
            ColumnDefault::parse(field, sql)?;
        }
    }
    Ok(())
}

/// Only whole columns are generated.
fn refuse_generated_inside(schema: &StructType) -> Result<()> {
    let mut found = None;
    schema.each_field("", &mut |path, field| {
        let is_inside = !schema.fields.iter().any(|column| std::ptr::eq(column, field));
        if is_inside && field.metadata.contains_key(GENERATION) {
            found.get_or_insert_with(|| path.to_owned());
        }
    });
    match found {
        None => Ok(()),
        Some(path) => {
            let message = format!("the column `{path}` inside another one is generated, which no writer can do");
            Err(Error::unsupported("generatedColumns", message))
        }
    }
}

/// The columns with invariants, and fields inside structs.
fn find_invariants(schema: &StructType, above: &str, found: &mut Vec<(String, String)>) -> Result<()> {
    for field in &schema.fields {
        let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
        if let Some(json) = sql_of(field, INVARIANT)? {
            found.push((path.clone(), json.to_owned()));
        }
        match &field.data_type {
            DataType::Struct(inner) => find_invariants(inner, &path, found)?,
            nested => refuse_invariants_inside(nested, &path)?,
        }
    }
    Ok(())
}

/// A condition on elements is one that no row has a value for.
fn refuse_invariants_inside(data_type: &DataType, path: &str) -> Result<()> {
    let mut refused = None;
    data_type.each(&mut |part| {
        if let DataType::Struct(inner) = part {
            inner.each_field(path, &mut |path, field| {
                if field.metadata.contains_key(INVARIANT) {
                    refused.get_or_insert_with(|| path.to_owned());
                }
            });
        }
    });
    match refused {
        None => Ok(()),
        Some(path) => Err(Error::unsupported(
            "invariants",
            format!("the field `{path}` inside an array or a map has an invariant, which cannot be checked"),
        )),
    }
}
