//! The two sides of a merge, and which column of which side a name means.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::expression::resolve::resolve;
use crate::expression::{BoundExpression, Expression, Name, parse_value};
use crate::schema::{DataType, PrimitiveType, StructField, StructType, is_same_name};

/// Which sides an expression may name columns of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibleSides {
    /// Both.
    Both,
    /// The source: for rows that are inserted.
    Source,
    /// The target: for rows that no row of the source matches.
    Target,
}

/// The columns of both sides (logical names), and the aliases of the sides.
#[derive(Debug, Clone)]
pub struct Sides {
    /// The columns of the table.
    pub target: StructType,
    /// The columns of the source.
    pub source: StructType,
    /// The alias of the table.
    pub target_alias: String,
    /// The alias of the source.
    pub source_alias: String,
}

impl Sides {
    /// # Errors
    /// `Invalid` if both aliases are the same, or one is empty.
    pub fn new(target: StructType, source: StructType, source_alias: &str, target_alias: &str) -> Result<Self> {
        for (alias, what) in [(source_alias, "source_alias"), (target_alias, "target_alias")] {
            if alias.trim().is_empty() {
                return Err(Error::invalid(format!("{what} is empty; leave it out, or give a name")));
            }
        }
        if is_same_name(source_alias, target_alias) {
            let message = format!("source and target are both called `{target_alias}`; give them different aliases");
            return Err(Error::invalid(message));
        }
        let (target_alias, source_alias) = (target_alias.to_owned(), source_alias.to_owned());
        Ok(Self { target, source, target_alias, source_alias })
    }

    /// Both sides, with other columns of the target.
    #[must_use]
    pub fn with_target(&self, target: StructType) -> Self {
        Self { target, ..self.clone() }
    }

    /// Both sides as structs, under their aliases.
    pub fn both(&self) -> StructType {
        let side = |name: &str, columns: &StructType| {
            StructField::new(name, DataType::Struct(Arc::new(columns.clone())), false)
        };
        StructType::new(vec![side(&self.target_alias, &self.target), side(&self.source_alias, &self.source)])
    }

    /// A column of the source, or of the table.
    pub fn column(&self, of_source: bool, name: &str) -> Expression {
        let alias = if of_source { &self.source_alias } else { &self.target_alias };
        Expression::Column(Name(vec![alias.clone(), name.to_owned()]))
    }

    /// The columns of a side that an expression reads, which must be bound.
    pub fn columns_of<'a>(&self, of_source: bool, bound: &'a BoundExpression) -> Vec<&'a str> {
        let alias = if of_source { &self.source_alias } else { &self.target_alias };
        let mut found: Vec<&str> = Vec::new();
        for column in bound.columns() {
            if let [side, name, ..] = column.path.as_slice()
                && side == alias
                && !found.contains(&name.as_str())
            {
                found.push(name);
            }
        }
        found
    }

    /// The expression with the alias of the side in every name.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it does not exist, if both sides have it, or if its side is not visible.
    pub fn qualified(&self, expression: Expression, visible: VisibleSides) -> Result<Expression> {
        let mut names = HashMap::new();
        for name in expression.columns() {
            names.insert(name.clone(), self.resolve(name, visible)?);
        }
        Ok(expression.rename(&|name| names.get(name).cloned()))
    }

    /// Binds a parsed expression to both sides.
    ///
    /// # Errors
    /// As [`Sides::qualified`], and those of binding.
    pub fn bind(&self, expression: Expression, visible: VisibleSides) -> Result<BoundExpression> {
        self.qualified(expression, visible)?.bind(&self.both())
    }

    /// A condition of a clause.
    ///
    /// # Errors
    /// As [`Sides::bind`]; `Invalid` for a value that is not a condition.
    pub fn condition(&self, sql: &str, visible: VisibleSides) -> Result<BoundExpression> {
        self.bind_condition(parse_value(sql)?, visible)
    }

    /// As [`Sides::condition`], for a parsed condition.
    pub(super) fn bind_condition(&self, condition: Expression, visible: VisibleSides) -> Result<BoundExpression> {
        let bound = self.bind(condition, visible)?;
        match bound.data_type() {
            DataType::Primitive(PrimitiveType::Boolean | PrimitiveType::Void) => Ok(bound),
            other => Err(Error::invalid(format!("`{bound}` is not a condition but a value of type {other}"))),
        }
    }

    /// The name of an assigned column of the table, without its alias.
    pub fn assigned<'a>(&self, key: &'a str) -> &'a str {
        let is_column = self.target.field(&self.target_alias).is_some();
        match key.split_once('.') {
            Some((alias, rest)) if is_same_name(alias, &self.target_alias) && !is_column => rest,
            _ => key,
        }
    }

    /// Whether a value is the column or field of the source at this path.
    pub fn is_source_column(&self, sql: &str, path: &[String]) -> bool {
        let is = |names: &[String]| {
            names.len() == path.len() && names.iter().zip(path).all(|(one, other)| is_same_name(one, other))
        };
        let Ok(Expression::Column(name)) = parse_value(sql) else { return false };
        match name.0.split_first() {
            Some((alias, rest)) if is_same_name(alias, &self.source_alias) => is(rest),
            Some((first, _)) => is(&name.0) && self.target.index_of(first).is_none(),
            None => false,
        }
    }

    fn resolve(&self, name: &Name, visible: VisibleSides) -> Result<Name> {
        let Some((first, rest)) = name.0.split_first() else { return Ok(name.clone()) };
        let (target, source) = (visible != VisibleSides::Source, visible != VisibleSides::Target);
        for (alias, columns, is_visible) in
            [(&self.target_alias, &self.target, target), (&self.source_alias, &self.source, source)]
        {
            if !rest.is_empty() && is_same_name(first, alias) {
                if !is_visible {
                    let why = if target { "no row of the source matches there" } else { "there is no such row yet" };
                    return Err(Error::invalid(format!("`{name}` has no value here: {why}")));
                }
                let found = resolve(columns, rest).map_err(|e| Error::invalid(format!("{alias}: {}", e.message())))?;
                return Ok(Name([vec![alias.clone()], found.path].concat()));
            }
        }
        let of = |alias: &str, columns: &StructType| {
            columns
                .index_of(first)
                .map(|_| resolve(columns, &name.0).map(|c| [vec![alias.to_owned()], c.path].concat()))
        };
        let in_target = of(&self.target_alias, &self.target).filter(|_| target);
        let in_source = of(&self.source_alias, &self.source).filter(|_| source);
        match (in_target, in_source) {
            (Some(found), None) | (None, Some(found)) => found.map(Name),
            (Some(_), Some(_)) => Err(Error::invalid(format!(
                "both sides have a column `{first}`: write `{}.{first}` or `{}.{first}`",
                self.source_alias, self.target_alias
            ))),
            (None, None) => {
                let sides: Vec<&str> = [(target, &self.target_alias), (source, &self.source_alias)]
                    .into_iter()
                    .filter_map(|(is_visible, alias)| is_visible.then_some(alias.as_str()))
                    .collect();
                let columns = if target { &self.target } else { &self.source };
                let near = resolve(columns, &name.0).err().map(|e| e.message().to_owned()).unwrap_or_default();
                let near = near.split_once("; ").map(|(_, near)| format!("; {near}")).unwrap_or_default();
                Err(Error::invalid(format!("there is no column `{first}` in {}{near}", sides.join(" or "))))
            }
        }
    }
}
