//! The clauses of a merge, and their checks against the columns of both sides.

use std::sync::Arc;

use deltic_protocol::constraint::ExternalRules;
use deltic_protocol::expression::{BoundExpression, MissingFields};
use deltic_protocol::row_merge::{RowInsert, Sides, VisibleSides};
use deltic_protocol::row_update::{NewValue, RowUpdate, Target};
use deltic_protocol::schema::evolve;
use deltic_protocol::schema::identity::is_identity;
use deltic_protocol::schema::path;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType, is_same_name};

use super::super::update::conformed_value;
use crate::error::{Error, Result};

/// The rows to which a clause applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Rows of the target that a row of the source matches.
    Matched,
    /// Rows of the source that match no row of the target.
    NotMatched,
    /// Rows of the target that no row of the source matches.
    NotMatchedBySource,
}

impl When {
    fn words(self) -> &'static str {
        match self {
            Self::Matched => "WHEN MATCHED",
            Self::NotMatched => "WHEN NOT MATCHED",
            Self::NotMatchedBySource => "WHEN NOT MATCHED BY SOURCE",
        }
    }

    fn visible_sides(self) -> VisibleSides {
        match self {
            Self::Matched => VisibleSides::Both,
            Self::NotMatched => VisibleSides::Source,
            Self::NotMatchedBySource => VisibleSides::Target,
        }
    }
}

/// What a clause does with its rows.
#[derive(Debug, Clone)]
pub enum ClauseAction {
    /// Columns get these values in rows that are updated or inserted.
    Set(Vec<(String, NewValue)>),
    /// The same, with the values of all columns of the source, except some.
    All {
        /// The columns of the target that are left out.
        except: Vec<String>,
    },
    /// Rows are deleted.
    Delete,
}

/// A clause of a merge.
#[derive(Debug, Clone)]
pub struct Clause {
    /// The rows to which it applies.
    pub when: When,
    /// A condition that must also be TRUE of them.
    pub condition: Option<String>,
    /// What it does with them.
    pub action: ClauseAction,
    /// The rules of the table that another engine has evaluated for the rows that it updates: the source has the values.
    pub external: Option<ExternalRules>,
}

/// The action of a clause for rows of the target, matched or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetAction {
    /// The update at this index of [`Clauses::updates`].
    Update(usize),
    Delete,
}

/// A clause whose condition, if it has one, and action are checked against the columns of both sides.
#[derive(Debug)]
pub(super) struct BoundClause<T> {
    pub(super) condition: Option<BoundExpression>,
    pub(super) action: T,
}

/// All clauses, those of each kind in their order.
#[derive(Debug, Default)]
pub(super) struct Clauses {
    pub(super) matched: Vec<BoundClause<TargetAction>>,
    pub(super) unmatched: Vec<BoundClause<RowInsert>>,
    pub(super) unmatched_by_source: Vec<BoundClause<TargetAction>>,
    pub(super) updates: Vec<RowUpdate>,
}

impl Clauses {
    /// `sides`: the sides before and after the merge adds or widens columns. Conditions are evaluated on rows as they are read.
    ///
    /// # Errors
    /// `Invalid`, naming the clause, for columns that the sides lack and values that do not fit; `Unsupported` for
    /// expressions that deltic cannot evaluate.
    pub(super) fn new(
        clauses: Vec<Clause>,
        sides: (&Sides, &Sides),
        target: Target<'_>,
        evolves: bool,
    ) -> Result<Self> {
        check(&clauses)?;
        let mut all = Self::default();
        for clause in clauses {
            let words = clause.when.words();
            all.push(clause, sides, target, evolves)
                .map_err(|e| Error::new(e.kind().clone(), format!("{words}: {}", e.message())))?;
        }
        Ok(all)
    }

    fn push(
        &mut self,
        clause: Clause,
        (before, sides): (&Sides, &Sides),
        target: Target<'_>,
        evolves: bool,
    ) -> Result<()> {
        let visible = clause.when.visible_sides();
        let condition = clause.condition.map(|sql| before.condition(&sql, visible)).transpose()?;
        let bind = |parsed| sides.bind(parsed, visible);
        let missing = match (&clause.action, clause.when) {
            _ if !evolves => MissingFields::Refused,
            (ClauseAction::All { .. }, When::Matched) => MissingFields::Kept,
            _ => MissingFields::Null,
        };
        let target = Target { missing, external: clause.external.as_ref(), ..target };
        let set = match clause.action {
            ClauseAction::Set(set) => Some(named(set, sides)?),
            ClauseAction::All { except } => Some(all_columns(&except, sides, (clause.when, evolves))?),
            ClauseAction::Delete => None,
        };
        match (clause.when, set) {
            (When::NotMatched, Some(set)) => {
                let insert = RowInsert::new(set, target, &bind)?;
                self.unmatched.push(BoundClause { condition, action: insert });
            }
            (When::NotMatched, None) => {
                return Err(Error::invalid(
                    "a clause for rows that match no row of the target \
                                                                   cannot delete; insert them, or use another \
                                                                   clause",
                ));
            }
            (when, set) => {
                let action = match set {
                    Some(set) => {
                        self.updates.push(RowUpdate::new(set, target, &bind)?);
                        TargetAction::Update(self.updates.len() - 1)
                    }
                    None => TargetAction::Delete,
                };
                let clauses = if when == When::Matched { &mut self.matched } else { &mut self.unmatched_by_source };
                clauses.push(BoundClause { condition, action });
            }
        }
        Ok(())
    }

    /// Whether the only clause for matched rows deletes without a condition: then a row may match several times.
    pub(super) fn only_deletes(&self) -> bool {
        matches!(self.matched.as_slice(), [BoundClause { condition: None, action: TargetAction::Delete }])
    }
}

/// Refuses clauses after one of the same kind without a condition: no row would reach them.
fn check(clauses: &[Clause]) -> Result<()> {
    if clauses.is_empty() {
        return Err(Error::invalid(
            "a merge without clauses does nothing; add clauses, such as when_matched_update_all",
        ));
    }
    for when in [When::Matched, When::NotMatched, When::NotMatchedBySource] {
        let of: Vec<&Clause> = clauses.iter().filter(|clause| clause.when == when).collect();
        if let Some((_, before)) = of.split_last()
            && before.iter().any(|clause| clause.condition.is_none())
        {
            let message = format!(
                "{}: a clause without a condition takes all rows, and others follow it; put it last",
                when.words()
            );
            return Err(Error::invalid(message));
        }
    }
    Ok(())
}

/// Assignments by names without the alias of the target; values in the types of their columns.
fn named(set: Vec<(String, NewValue)>, sides: &Sides) -> Result<Vec<(String, NewValue)>> {
    let one = |(key, value): (String, NewValue)| {
        let key = sides.assigned(&key).to_owned();
        let value = match value {
            NewValue::Value(value) => NewValue::Value(conformed_value(&sides.target, &key, value)?),
            computed => computed,
        };
        Ok((key, value))
    };
    set.into_iter().map(one).collect()
}

/// Every column that both sides have. Without schema evolution the source must have all columns.
fn all_columns(except: &[String], sides: &Sides, (when, evolves): (When, bool)) -> Result<Vec<(String, NewValue)>> {
    if when == When::NotMatchedBySource {
        return Err(Error::invalid("there is no row of the source to take values from"));
    }
    for name in except {
        if sides.target.index_of(sides.assigned(name)).is_none() {
            return Err(Error::invalid(format!("there is no column `{name}` in the target to leave out")));
        }
    }
    let is_excluded = |name: &str| except.iter().any(|other| is_same_name(sides.assigned(other), name));
    let mut set = Vec::new();
    for field in &sides.target.fields {
        let is_void = field.data_type == DataType::Primitive(PrimitiveType::Void);
        if is_excluded(&field.name) || is_void {
            continue;
        }
        match sides.source.field(&field.name) {
            // The table itself computes identity columns.
            Some(_) if is_identity(field) && when == When::Matched => {}
            Some(given) => {
                set.push((field.name.clone(), NewValue::Parsed(sides.column(true, &given.name))));
            }
            None if evolves || has_computed_value(field) => {}
            None => {
                return Err(Error::invalid(format!(
                    "the source has no column `{}`; give it, name it in except_columns, or merge with_schema_evolution",
                    field.name
                )));
            }
        }
    }
    Ok(set)
}

/// Whether the table computes the values of a column that rows lack: a default, a generated or an identity column.
fn has_computed_value(field: &StructField) -> bool {
    ["CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"]
        .iter()
        .any(|key| field.metadata.contains_key(*key))
}

/// The columns of the table after the merge, if the merge adds any, or widens types (only if `widens`).
pub(super) fn evolved(clauses: &[Clause], sides: &Sides, widens: bool) -> Option<StructType> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    for clause in clauses {
        match &clause.action {
            ClauseAction::All { except } => {
                let fields = sides.source.fields.iter().map(|field| &field.name);
                let is_excluded = |name: &str| except.iter().any(|other| is_same_name(sides.assigned(other), name));
                paths.extend(fields.filter(|name| !is_excluded(name)).map(|name| vec![name.clone()]));
            }
            ClauseAction::Set(set) => {
                for (key, value) in set {
                    let path = path_of(sides.assigned(key), sides);
                    if let (Some(path), NewValue::Expression(sql)) = (path, value)
                        && sides.is_source_column(sql, &path)
                    {
                        paths.push(path);
                    }
                }
            }
            ClauseAction::Delete => {}
        }
    }
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    let evolved = evolve::merge(&sides.target, &fields_at(&sides.source, &paths), widens);
    (evolved != sides.target).then_some(evolved)
}

/// The path of an assigned column or field; none if it cannot be read.
fn path_of(key: &str, sides: &Sides) -> Option<Vec<String>> {
    match sides.target.index_of(key).or_else(|| sides.source.index_of(key)) {
        Some(_) => Some(vec![key.to_owned()]),
        None => path::parse(key).ok(),
    }
}

/// The columns of the source at these paths, nullable, in their order. Of a struct with paths inside it only those fields.
fn fields_at(columns: &StructType, paths: &[&[String]]) -> StructType {
    let of = |field: &StructField| {
        let inside = paths.iter().filter_map(|path| path.split_first());
        let inside = inside.filter(|(name, _)| is_same_name(name, &field.name)).map(|(_, rest)| rest);
        let inside: Vec<&[String]> = inside.collect();
        if inside.is_empty() || field.data_type == DataType::Primitive(PrimitiveType::Void) {
            return None;
        }
        let data_type = match &field.data_type {
            DataType::Struct(fields) if inside.iter().all(|path| !path.is_empty()) => {
                DataType::Struct(Arc::new(fields_at(fields, &inside)))
            }
            whole => whole.clone(),
        };
        Some(StructField { nullable: true, data_type, ..field.clone() })
    };
    StructType::new(columns.fields.iter().filter_map(of).collect())
}
