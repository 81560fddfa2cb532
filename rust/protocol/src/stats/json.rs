//! Serialises statistics as JSON, from the columns of a checkpoint that has no JSON statistics.
//!
//! All columns are serialised, also columns that the table no longer has. Bounds that JSON or other readers could misread are
//! left out, as when statistics are collected: infinities, NaN, years outside 1 to 9999, bounds of binary columns; and together with
//! a bound the other one. Timestamps have milliseconds in JSON; finer ones are rounded outwards.
//!
//! PROTOCOL.md: "Per-file Statistics".

use std::collections::BTreeMap;

use arrow_array::array::StringArrayType;
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringArray, StructArray};
use arrow_cast::cast;
use arrow_schema::{DataType as ArrowType, FieldRef, TimeUnit};

use serde_json::value::RawValue;

use super::collect::{print_date, print_instant};
use crate::action::Add;
use crate::action::batch::AddBatch;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// The JSON statistics if there are any, or else the typed statistics serialised; null if there are neither.
pub fn complete<'t>(text: Option<impl StringArrayType<'t> + Copy>, typed: &StructArray) -> Result<StringArray> {
    let given = |row: usize| text.filter(|t| row < t.len() && t.is_valid(row)).map(|t| t.value(row));
    let mut printer = None;
    let mut out = StringBuilder::new();
    let mut buffer = String::new();
    for row in 0..typed.len() {
        if let Some(text) = given(row) {
            out.append_value(text);
            continue;
        }
        if typed.is_null(row) {
            out.append_null();
            continue;
        }
        buffer.clear();
        let printed = printer.get_or_insert_with(|| Printer::of_statistics(typed)).print(row, &mut buffer)?;
        out.append_option(printed.then_some(buffer.as_str()));
    }
    Ok(out.finish())
}

/// The files at `rows` with all members, and with JSON statistics in whatever form the log has them: for files that
/// are added to the log again.
///
/// # Errors
/// `Corrupt` if the log does not say the size of one of them.
pub fn whole_adds<'a>(
    adds: &'a AddBatch,
    rows: impl Iterator<Item = usize> + 'a,
) -> Result<impl Iterator<Item = Result<Add>> + 'a> {
    let typed = adds.structure("stats_parsed");
    let printed = typed.map(|typed| complete(adds.stats()?.as_ref(), typed)).transpose()?;
    let whole = move |row: usize| {
        let mut add = adds.sized_add(row)?;
        let completed = printed.as_ref().filter(|stats| stats.is_valid(row)).map(|stats| stats.value(row).to_owned());
        add.stats = add.stats.or(completed);
        Ok(add)
    };
    Ok(rows.map(whole))
}

/// The statistics of a file with deleted rows: its bounds are still valid for the other rows, but may not be tight.
/// Statistics that cannot be read are replaced by the number of rows alone.
///
/// # Errors
/// `Internal` if they cannot be serialised (cannot happen).
pub fn wide(stats: Option<&str>, num_records: u64) -> Result<String> {
    let parsed = stats.and_then(|stats| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(stats).ok());
    let raw = |value: serde_json::Value| serde_json::value::to_raw_value(&value);
    let printed = || {
        let mut members = parsed.unwrap_or_default();
        members.insert("numRecords".to_owned(), raw(num_records.into())?);
        members.insert("tightBounds".to_owned(), raw(false.into())?);
        serde_json::to_string(&members)
    };
    printed().map_err(|e| Error::internal("statistics cannot be serialised").caused_by(e))
}

/// A struct that prints as an object, or a column of values.
enum Printer {
    Object(StructArray, Vec<(String, Self)>),
    /// `other` has the bounds on the other side, if these are bounds.
    Value {
        array: ArrayRef,
        upper: bool,
        other: Option<ArrayRef>,
    },
}

impl Printer {
    fn of_statistics(typed: &StructArray) -> Self {
        let mut members = Vec::new();
        for name in ["numRecords", "minValues", "maxValues", "nullCount", "tightBounds"] {
            let other = match name {
                "minValues" => typed.column_by_name("maxValues"),
                "maxValues" => typed.column_by_name("minValues"),
                _ => None,
            };
            let column = typed.column_by_name(name);
            members.extend(column.and_then(|c| Self::of(c, name == "maxValues", other)).map(|p| (key(name), p)));
        }
        Self::Object(typed.clone(), members)
    }

    /// `None` for a column that statistics cannot have.
    fn of(column: &ArrayRef, upper: bool, other: Option<&ArrayRef>) -> Option<Self> {
        if let ArrowType::Struct(fields) = column.data_type() {
            let columns = column.as_struct();
            let others = other.and_then(|other| other.as_struct_opt());
            let member = |(f, c): (&FieldRef, _)| {
                let other = others.and_then(|others| others.column_by_name(f.name()));
                Some((key(f.name()), Self::of(c, upper, other)?))
            };
            let members = fields.iter().zip(columns.columns()).filter_map(member).collect();
            return Some(Self::Object(columns.clone(), members));
        }
        Some(Self::Value { array: printable(column)?, upper, other: other.and_then(printable) })
    }

    /// Whether there was anything to print.
    fn print(&self, row: usize, out: &mut String) -> Result<bool> {
        match self {
            Self::Object(columns, members) => {
                if columns.is_null(row) {
                    return Ok(false);
                }
                out.push('{');
                let mut any = false;
                for (key, member) in members {
                    let start = out.len();
                    out.push_str(if any { "," } else { "" });
                    out.push_str(key);
                    if member.print(row, out)? {
                        any = true;
                    } else {
                        out.truncate(start);
                    }
                }
                out.push('}');
                Ok(any)
            }
            Self::Value { array, upper, other } => {
                let other = other.as_ref().filter(|other| other.is_valid(row));
                let other = other.map(|other| Scalar::from_array(other, row)).transpose()?;
                // Readers use a single bound for both, so if one cannot be printed, the other is left out too.
                let is_alone = other.is_some_and(|other| value(other, !upper).is_none());
                let text = value(Scalar::from_array(array, row)?, *upper).filter(|_| !is_alone);
                out.push_str(text.as_deref().unwrap_or_default());
                Ok(text.is_some())
            }
        }
    }
}

/// The values cast to a type that can be printed.
fn printable(column: &ArrayRef) -> Option<ArrayRef> {
    Some(match column.data_type() {
        ArrowType::Timestamp(TimeUnit::Microsecond, _)
        | ArrowType::Boolean
        | ArrowType::Int8
        | ArrowType::Int16
        | ArrowType::Int32
        | ArrowType::Int64
        | ArrowType::Float32
        | ArrowType::Float64
        | ArrowType::Decimal128(..)
        | ArrowType::Utf8
        | ArrowType::Date32 => column.clone(),
        ArrowType::Timestamp(_, zone) => {
            cast(column, &ArrowType::Timestamp(TimeUnit::Microsecond, zone.clone())).ok()?
        }
        ArrowType::LargeUtf8 | ArrowType::Utf8View => cast(column, &ArrowType::Utf8).ok()?,
        _ => return None,
    })
}

fn key(name: &str) -> String {
    format!("{}:", serde_json::Value::from(name))
}

fn value(value: Scalar, upper: bool) -> Option<String> {
    match value {
        Scalar::Null | Scalar::Binary(_) => None,
        Scalar::Float(v) => v.is_finite().then(|| format!("{v:?}")),
        Scalar::Double(v) => v.is_finite().then(|| format!("{v:?}")),
        Scalar::String(v) => Some(serde_json::Value::from(v).to_string()),
        Scalar::Date(days) => print_date(i64::from(days)),
        Scalar::Timestamp(micros) => print_instant(micros, upper, "Z"),
        Scalar::TimestampNtz(micros) => print_instant(micros, upper, ""),
        Scalar::Boolean(_)
        | Scalar::Byte(_)
        | Scalar::Short(_)
        | Scalar::Integer(_)
        | Scalar::Long(_)
        | Scalar::Decimal { .. } => Some(value.to_string()),
    }
}
