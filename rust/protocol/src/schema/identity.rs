//! Identity columns: which numbers they give out, and their high watermarks.
//!
//! A column counts from its start by its step, beyond its high watermark, which is in the schema. Numbers that are
//! written explicitly do not change the watermark, as in delta-spark.
//!
//! Proved by `schema::identity_columns_count`.
//!
//! PROTOCOL.md: "Identity Columns".

use std::collections::BTreeMap;

use serde_json::json;

use super::{DataType, PrimitiveType, StructField, StructType};
use crate::error::{Error, Result};

const START: &str = "delta.identity.start";
const STEP: &str = "delta.identity.step";
const HIGH_WATERMARK: &str = "delta.identity.highWaterMark";
const ALLOW_EXPLICIT_INSERT: &str = "delta.identity.allowExplicitInsert";

/// The definition of an identity column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The first number.
    pub start: i64,
    /// From one number to the next; not zero.
    pub step: i64,
    /// The high watermark: the last number in the direction of counting that was given out.
    pub watermark: Option<i64>,
    /// Whether rows may have explicit numbers.
    pub allows_explicit: bool,
}

impl Identity {
    /// The identity of a column, if it is an identity column.
    ///
    /// # Errors
    /// `Corrupt` if its metadata are invalid.
    pub fn of(field: &StructField) -> Result<Option<Self>> {
        if !is_identity(field) {
            return Ok(None);
        }
        let corrupt = |what: &str| Error::corrupt(format!("the identity column `{}` {what}", field.name));
        let number = |key: &str| match field.metadata.get(key) {
            None => Ok(None),
            Some(value) => {
                value.as_i64().map(Some).ok_or_else(|| corrupt(&format!("has a `{key}` that is not a long")))
            }
        };
        let needed = |key: &str| number(key)?.ok_or_else(|| corrupt(&format!("has no `{key}`")));
        if field.data_type != DataType::Primitive(PrimitiveType::Long) {
            return Err(corrupt(&format!("is {}; identity columns are long", field.data_type)));
        }
        let step = needed(STEP)?;
        if step == 0 {
            return Err(corrupt(&format!("has the `{STEP}` 0")));
        }
        let allows_explicit = match field.metadata.get(ALLOW_EXPLICIT_INSERT) {
            None => false,
            Some(value) => value
                .as_bool()
                .ok_or_else(|| corrupt(&format!("has a `{ALLOW_EXPLICIT_INSERT}` that is not a boolean")))?,
        };
        Ok(Some(Self { start: needed(START)?, step, watermark: number(HIGH_WATERMARK)?, allows_explicit }))
    }

    /// The next number to give out, if there is one left.
    pub fn next(&self) -> Option<i64> {
        let Some(watermark) = self.watermark else { return Some(self.start) };
        let (start, step) = (i128::from(self.start), i128::from(self.step));
        // The watermark may be a number that the column itself would not give out, or one before its start.
        let distance = (i128::from(watermark) - start) * step.signum();
        let steps = distance.div_euclid(step.abs()) + 1;
        i64::try_from(start + steps.max(0) * step).ok()
    }

    /// The later of two numbers in the direction of counting.
    pub fn further(&self, a: i64, b: i64) -> i64 {
        if self.step > 0 { a.max(b) } else { a.min(b) }
    }
}

/// Whether a column's metadata says that it is an identity.
pub fn is_identity(field: &StructField) -> bool {
    [START, STEP, ALLOW_EXPLICIT_INSERT].iter().any(|key| field.metadata.contains_key(*key))
}

/// `schema` with new high watermarks of columns.
///
/// # Errors
/// As [`Identity::of`].
pub fn with_watermarks(schema: &StructType, given: &BTreeMap<String, i64>) -> Result<StructType> {
    let field = |field: &StructField| -> Result<StructField> {
        let mut field = field.clone();
        if let (Some(number), Some(identity)) = (given.get(&field.name), Identity::of(&field)?) {
            let furthest = identity.watermark.map_or(*number, |watermark| identity.further(*number, watermark));
            field.metadata.insert(HIGH_WATERMARK.to_owned(), json!(furthest));
        }
        Ok(field)
    };
    schema.fields.iter().map(field).collect::<Result<_>>().map(StructType::new)
}
