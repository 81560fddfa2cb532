//! The lengths of `char(n)` and `varchar(n)` columns.
//!
//! Spark stores such a column as a string, and its type as a string of SQL in the metadata of the top-level field, also
//! if the column is an array, a map or a struct of them: `array<varchar(3)>`. A length that cannot be parsed is
//! refused, since every writer has to check it (`write::char_lengths`).

use std::fmt;

use super::{DataType, PrimitiveType, StructField, StructType};
use crate::error::{Error, Result};

/// The metadata key that has the type.
pub const CHAR_VARCHAR_TYPE: &str = "__CHAR_VARCHAR_TYPE_STRING";

/// The length of a string type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharLength {
    /// At most this many characters; Spark adds spaces to shorter strings when it reads them.
    Char(usize),
    /// At most this many characters.
    Varchar(usize),
}

impl CharLength {
    /// The most characters that a string may have.
    pub fn most(self) -> usize {
        let (Self::Char(most) | Self::Varchar(most)) = self;
        most
    }
}

impl fmt::Display for CharLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char(n) => write!(f, "char({n})"),
            Self::Varchar(n) => write!(f, "varchar({n})"),
        }
    }
}

/// The lengths in a type that has any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lengths {
    /// Of a string.
    String(CharLength),
    /// Of a struct's fields, by their position.
    Struct(Vec<(usize, Self)>),
    /// Of an array's elements.
    Array(Box<Self>),
    /// Of a map's keys and values.
    Map(Option<Box<Self>>, Option<Box<Self>>),
}

impl Lengths {
    /// The lengths in the metadata of a field and of the fields inside it; `None` if there are none.
    ///
    /// # Errors
    /// `Unsupported`, naming the column, if the type in the metadata cannot be parsed, or is another one than the column's.
    pub fn of(field: &StructField) -> Result<Option<Self>> {
        let Some(given) = field.metadata.get(CHAR_VARCHAR_TYPE) else { return Self::within(&field.data_type) };
        let parsed = given.as_str().and_then(Parser::whole);
        parsed.and_then(|parsed| parsed.lengths(&field.data_type).ok()).ok_or_else(|| {
            let shown: String = given.to_string().chars().take(80).collect();
            Error::unsupported(
                "charVarchar",
                format!(
                    "the column `{}` is {} and its metadata `{CHAR_VARCHAR_TYPE}` is {shown}, which is not that type with \
                     lengths of char and varchar; correct the metadata",
                    field.name, field.data_type
                ),
            )
        })
    }

    fn within(data_type: &DataType) -> Result<Option<Self>> {
        Ok(match data_type {
            DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => None,
            DataType::Struct(fields) => Self::of_fields(fields)?,
            DataType::Array(array) => Self::within(&array.element)?.map(|inner| Self::Array(Box::new(inner))),
            DataType::Map(map) => Self::map(Self::within(&map.key)?, Self::within(&map.value)?),
        })
    }

    fn of_fields(schema: &StructType) -> Result<Option<Self>> {
        let mut fields = Vec::new();
        for (position, field) in schema.fields.iter().enumerate() {
            fields.extend(Self::of(field)?.map(|lengths| (position, lengths)));
        }
        Ok((!fields.is_empty()).then_some(Self::Struct(fields)))
    }

    fn map(key: Option<Self>, value: Option<Self>) -> Option<Self> {
        (key.is_some() || value.is_some()).then(|| Self::Map(key.map(Box::new), value.map(Box::new)))
    }
}

/// A type as parsed from its SQL.
enum Parsed {
    Length(CharLength),
    Struct(Vec<(String, Self)>),
    Array(Box<Self>),
    Map(Box<Self>, Box<Self>),
    /// Any other type, which has no lengths.
    Other,
}

/// The error that the SQL has another type than the column.
struct Mismatch;

impl Parsed {
    fn binds(&self) -> bool {
        match self {
            Self::Other => false,
            Self::Length(_) => true,
            Self::Struct(fields) => fields.iter().any(|(_, field)| field.binds()),
            Self::Array(element) => element.binds(),
            Self::Map(key, value) => key.binds() || value.binds(),
        }
    }

    /// Fields that the SQL does not name were added later and have no lengths. A field with a length in the SQL must exist.
    fn lengths(&self, data_type: &DataType) -> Result<Option<Lengths>, Mismatch> {
        match (self, data_type) {
            (Self::Other, _) => Ok(None),
            (Self::Length(length), DataType::Primitive(PrimitiveType::String)) => Ok(Some(Lengths::String(*length))),
            (Self::Struct(parsed), DataType::Struct(schema)) => {
                let mut fields = Vec::new();
                for (name, parsed) in parsed {
                    let found = schema.fields.iter().enumerate().find(|(_, field)| field.name == *name);
                    match found {
                        Some((position, field)) => {
                            fields.extend(parsed.lengths(&field.data_type)?.map(|lengths| (position, lengths)));
                        }
                        None if parsed.binds() => return Err(Mismatch),
                        None => {}
                    }
                }
                Ok((!fields.is_empty()).then_some(Lengths::Struct(fields)))
            }
            (Self::Array(element), DataType::Array(array)) => {
                Ok(element.lengths(&array.element)?.map(|inner| Lengths::Array(Box::new(inner))))
            }
            (Self::Map(key, value), DataType::Map(map)) => {
                Ok(Lengths::map(key.lengths(&map.key)?, value.lengths(&map.value)?))
            }
            (Self::Length(_) | Self::Struct(_) | Self::Array(_) | Self::Map(..), _) => Err(Mismatch),
        }
    }
}

/// Deepest nesting of types; deeper ones are refused, because the parser is recursive.
const MAX_DEPTH: usize = 100;

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn whole(sql: &'a str) -> Option<Parsed> {
        let mut parser = Self { rest: sql, depth: 0 };
        let parsed = parser.data_type()?;
        parser.rest.trim().is_empty().then_some(parsed)
    }

    fn data_type(&mut self) -> Option<Parsed> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let word = self.until(&['<', '>', '(', ',']).trim().to_ascii_lowercase();
        let parsed = match (word.as_str(), self.rest.chars().next()) {
            ("array", Some('<')) => {
                self.expect('<')?;
                Parsed::Array(Box::new(self.data_type()?))
            }
            ("map", Some('<')) => {
                self.expect('<')?;
                let key = self.data_type()?;
                self.expect(',')?;
                Parsed::Map(Box::new(key), Box::new(self.data_type()?))
            }
            ("struct", Some('<')) => {
                self.expect('<')?;
                Parsed::Struct(self.fields()?)
            }
            (_, Some('<')) => return None,
            ("char" | "character" | "varchar", _) => {
                self.expect('(')?;
                let length = self.until(&[')']).trim().parse::<usize>().ok().filter(|n| *n > 0)?;
                self.expect(')')?;
                let is_fixed = word != "varchar";
                Parsed::Length(if is_fixed { CharLength::Char(length) } else { CharLength::Varchar(length) })
            }
            // A name with odd characters that is not quoted ends here.
            (word, _) if word.is_empty() || !word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ' ')) => {
                return None;
            }
            (_, Some('(')) => {
                self.until(&[')']);
                self.expect(')')?;
                Parsed::Other
            }
            _ => Parsed::Other,
        };
        if matches!(parsed, Parsed::Array(_) | Parsed::Map(..) | Parsed::Struct(_)) {
            self.expect('>')?;
        }
        self.depth -= 1;
        Some(parsed)
    }

    fn fields(&mut self) -> Option<Vec<(String, Parsed)>> {
        let mut fields = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with('>') {
                return Some(fields);
            }
            let name = match self.rest.starts_with('`') {
                true => self.quoted()?,
                false => self.until(&[':']).to_owned(),
            };
            self.expect(':')?;
            fields.push((name, self.data_type()?));
            if self.rest.trim_start().starts_with(',') {
                self.expect(',')?;
            }
        }
    }

    /// A name in back-ticks, in which two back-ticks mean one.
    fn quoted(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            self.expect('`')?;
            name.push_str(self.until(&['`']));
            self.expect('`')?;
            if !self.rest.starts_with('`') {
                return Some(name);
            }
            name.push('`');
        }
    }

    fn until(&mut self, ends: &[char]) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn expect(&mut self, character: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(character)?;
        Some(())
    }
}
