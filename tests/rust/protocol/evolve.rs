//! Schema evolution: text cases of steps, and their records in metadata.
//!
//! Columns are `name type[!] [#id physical] ["other metadata as JSON"]`, separated by commas; `{…}` is a struct, `[…]` an
//! array, `<key: value>` a map, and `!` means not nullable.

use std::fmt::Write;
use std::sync::Arc;

use deltic_protocol::error::Error;
use deltic_protocol::schema::assign::{Names, assign, assign_nested, strip};
use deltic_protocol::schema::evolve::{
    ColumnChange, Difference, Position, add, alter, differences, drop_column, find, merge, rename, replace,
};
use deltic_protocol::schema::mapping::{FIELD_ID, MatchBy, PHYSICAL_NAME};
use deltic_protocol::schema::widen::{Record, is_automatic, is_in_iceberg, is_widening};
use deltic_protocol::schema::{ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, json, path};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::predicate::check_cases;

/// A parser of the notation.
pub(super) struct Text<'a>(pub(super) &'a str);

impl Text<'_> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start();
        let found = rest.strip_prefix(token);
        self.0 = found.unwrap_or(rest);
        found.is_some()
    }

    fn word(&mut self) -> String {
        let rest = self.0.trim_start();
        if let Some(quoted) = rest.strip_prefix('`') {
            let (name, rest) = quoted.split_once('`').unwrap();
            self.0 = rest;
            return name.to_owned();
        }
        let mut depth = 0;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && c != ')' && (c.is_whitespace() || ",!{}[]<>:#\"".contains(c))
        });
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.0 = rest;
        word.to_owned()
    }

    fn schema(&mut self) -> StructType {
        let mut fields = Vec::new();
        while !self.0.trim().is_empty() && !self.0.trim_start().starts_with('}') {
            fields.push(self.field());
            self.take(",");
        }
        StructType::new(fields)
    }

    fn field(&mut self) -> StructField {
        let name = self.word();
        let (data_type, nullable) = self.data_type();
        let mut field = StructField::new(name, data_type, nullable);
        if self.take("#") {
            let id: i64 = self.word().parse().unwrap();
            field.metadata.insert(FIELD_ID.to_owned(), json!(id));
            field.metadata.insert(PHYSICAL_NAME.to_owned(), json!(self.word()));
        }
        if self.0.trim_start().starts_with('"') {
            let mut more = serde_json::Deserializer::from_str(self.0.trim_start()).into_iter::<String>();
            let text = more.next().unwrap().unwrap();
            self.0 = &self.0.trim_start()[more.byte_offset()..];
            field.metadata.extend(serde_json::from_str::<serde_json::Map<String, Value>>(&text).unwrap());
        }
        field
    }

    pub(super) fn data_type(&mut self) -> (DataType, bool) {
        let data_type = if self.take("{") {
            let inner = self.schema();
            assert!(self.take("}"), "{}", self.0);
            DataType::Struct(Arc::new(inner))
        } else if self.take("[") {
            let (element, contains_null) = self.data_type();
            assert!(self.take("]"), "{}", self.0);
            DataType::Array(Arc::new(ArrayType { element, contains_null }))
        } else if self.take("<") {
            let (key, _) = self.data_type();
            assert!(self.take(":"), "{}", self.0);
            let (value, value_contains_null) = self.data_type();
            assert!(self.take(">"), "{}", self.0);
            DataType::Map(Arc::new(MapType { key, value, value_contains_null }))
        } else {
            let word = self.word();
            let schema = json!({"type": "struct", "fields": [{"name": "a", "type": word, "metadata": {}}]});
            json::parse(&schema.to_string()).unwrap().fields.remove(0).data_type
        };
        (data_type, !self.take("!"))
    }
}

pub(super) fn schema_of(text: &str) -> StructType {
    Text(text).schema()
}

pub(super) fn print(schema: &StructType) -> String {
    schema.fields.iter().map(print_field).collect::<Vec<_>>().join(", ")
}

fn print_field(field: &StructField) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = if field.name.chars().all(plain) { field.name.clone() } else { format!("`{}`", field.name) };
    let mut text = format!("{name} {}", print_type(&field.data_type, field.nullable));
    let mut metadata = field.metadata.clone();
    if let (Some(id), Some(physical)) = (metadata.remove(FIELD_ID), metadata.remove(PHYSICAL_NAME)) {
        write!(text, " #{id} {}", physical.as_str().unwrap()).unwrap();
    }
    if !metadata.is_empty() {
        write!(text, " {}", json!(Value::Object(metadata).to_string())).unwrap();
    }
    text
}

fn print_type(data_type: &DataType, nullable: bool) -> String {
    let text = match data_type {
        DataType::Struct(inner) => format!("{{{}}}", print(inner)),
        DataType::Array(array) => format!("[{}]", print_type(&array.element, array.contains_null)),
        DataType::Map(map) => {
            format!("<{}: {}>", print_type(&map.key, true), print_type(&map.value, map.value_contains_null))
        }
        other => other.to_string(),
    };
    if nullable { text } else { text + "!" }
}

/// Applies one step: its name, then its argument.
fn step(schema: &StructType, line: &str) -> Result<StructType, Error> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut unique = 0;
    let mut next = || {
        unique += 1;
        format!("u{unique}")
    };
    let largest = || rest.parse().unwrap();
    Ok(match verb {
        "add" => {
            let (column, position) = rest.split_once(" | ").unwrap_or((rest, ""));
            let position = Some(position).filter(|p| !p.is_empty()).map(Position::parse).transpose()?;
            // The name is a path, possibly quoted with back-ticks.
            let (name, data_type) = column.rsplit_once(" := ").unwrap();
            let column = StructField { name: name.to_owned(), ..schema_of(&format!("x {data_type}")).fields.remove(0) };
            add(schema, &column, position.as_ref())?
        }
        "rename" => {
            let (old, new) = rest.split_once(" TO ").unwrap();
            rename(schema, &path::parse(old)?, new)?.0
        }
        "drop" => drop_column(schema, &path::parse(rest)?)?,
        "alter" => {
            let (column, change) = rest.split_once(" | ").unwrap();
            alter(schema, &path::parse(column)?, &column_change(change)?)?
        }
        "merge" => merge(schema, &schema_of(rest), false),
        "widen" => merge(schema, &schema_of(rest), true),
        "replace" => replace(schema, &schema_of(rest)),
        "record" => Record { match_by: MatchBy::Name, version: None }.changes(schema, &schema_of(rest)),
        "record-ids" => Record { match_by: MatchBy::Id, version: Some(7) }.changes(schema, &schema_of(rest)),
        "assign" => {
            let (schema, largest) = assign(schema, largest(), Names::Unique(&mut next))?;
            check_largest(&schema, largest);
            schema
        }
        "assign-logical" => assign(schema, largest(), Names::Logical)?.0,
        "assign-nested" => assign_nested(schema, largest())?.0,
        "strip" => strip(schema),
        other => panic!("{other}"),
    })
}

/// One change of a column.
pub(super) fn column_change(text: &str) -> Result<ColumnChange, Error> {
    let mut altered = ColumnChange::default();
    match text.split_once(' ').unwrap_or((text, "")) {
        ("type", data_type) => altered.data_type = Some(Text(data_type).data_type().0),
        ("nullable", flag) => altered.nullable = Some(flag == "true"),
        ("comment", comment) => altered.comment = Some(comment.to_owned()),
        ("default", sql) => altered.default = Some(Some(sql.to_owned()).filter(|sql| !sql.is_empty())),
        ("position", position) => altered.position = Some(Position::parse(position)?),
        ("nothing", _) => {}
        other => panic!("{other:?}"),
    }
    Ok(altered)
}

fn check_largest(schema: &StructType, largest: i32) {
    assert_eq!(assign(schema, largest, Names::Logical).unwrap(), (schema.clone(), largest), "all ids are assigned");
}

fn run(case: &str) -> String {
    let (first, steps) = case.split_once('\n').unwrap_or((case, ""));
    let mut schema = schema_of(first);
    assert_eq!(print(&schema), first, "the schema is not in the printed notation");
    for line in steps.lines() {
        match step(&schema, line) {
            Ok(next) => schema = next,
            Err(error) => return format!("{:?}: {error}", error.kind()),
        }
    }
    // The schema survives JSON.
    assert_eq!(json::parse(&json::to_json(&schema)).unwrap(), schema);
    print(&schema)
}

#[test]
fn cases() {
    check_cases("evolve", run);
}

#[test]
fn columns_are_found_in_any_case() {
    let schema = schema_of("A {b [{C long}]}, m <string: {v long}>, a long");
    for (given, expected) in
        [("a", "a"), ("A.b", "A.b"), ("A.B.ELEMENT.c", "A.b.element.C"), ("M.Value.V", "m.value.v")]
    {
        assert_eq!(path::print(&find(&schema, &path::parse(given).unwrap()).unwrap().path), expected);
    }
}

#[test]
fn every_difference_is_listed() {
    let before = schema_of("a long #1 a, s {x integer #3 x, y long! #4 y} #2 s, l [long] #5 l, m <string: long> #6 m");
    let after =
        schema_of("b long! #1 a, s {x long #3 x, z long #7 z} #2 s, l [long!] #5 l, m <string: {k long #8 k}> #6 m");
    let shown = |identity| -> Vec<String> {
        let shown = |difference: &Difference| match difference {
            Difference::Added { path, field } => format!("+{} {}", path::print(path), field.data_type),
            Difference::Dropped { path } => format!("-{}", path::print(path)),
            Difference::Renamed { path, name } => format!("{}={name}", path::print(path)),
            Difference::Tightened { path } => format!("{}!", path::print(path)),
            Difference::Retyped { path, from, to } => format!("{} {from}>{to}", path::print(path)),
        };
        differences(&before, &after, identity).iter().map(shown).collect()
    };
    let common = ["l.element!", "m.value long>struct<k: long>"];
    let inside = ["s.x integer>long", "-s.y", "+s.z long"];
    assert_eq!(shown(MatchBy::Id), [&["a=b", "a!"][..], &inside, &common].concat());
    assert_eq!(shown(MatchBy::Name), [&["-a"][..], &inside, &common, &["+b long"]].concat());
    assert!(differences(&before, &before, MatchBy::Id).is_empty());
}

fn primitive(text: &str) -> PrimitiveType {
    Text(text).data_type().0.as_primitive().unwrap().clone()
}

/// From `>` to, and whether it is automatic (`auto`) and allowed in Iceberg (`iceberg`).
const WIDENINGS: &str = "
byte>short auto iceberg
byte>integer auto iceberg
byte>long auto iceberg
short>integer auto iceberg
short>long auto iceberg
integer>long auto iceberg
float>double auto iceberg
byte>double
short>double
integer>double
date>timestamp_ntz auto
byte>decimal(10,0)
integer>decimal(12,2)
long>decimal(20,0)
long>decimal(22,2)
decimal(10,2)>decimal(11,2) auto iceberg
decimal(10,2)>decimal(12,4) auto
";

const NO_WIDENINGS: &str = "
long>integer
long>double
integer>float
float>integer
double>float
string>binary
integer>string
date>timestamp
timestamp>timestamp_ntz
integer>decimal(9,0)
integer>decimal(11,2)
long>decimal(19,0)
decimal(10,2)>decimal(10,2)
decimal(10,2)>decimal(10,3)
decimal(10,2)>decimal(12,1)
decimal(10,2)>decimal(11,4)
decimal(10,0)>long
long>long
";

#[test]
fn only_the_widenings_of_the_protocol() {
    let lines = |text: &'static str| text.lines().filter(|line| !line.is_empty());
    for line in lines(WIDENINGS) {
        let words: Vec<&str> = line.split(' ').collect();
        let (from, to) = words[0].split_once('>').unwrap();
        let (from, to) = (primitive(from), primitive(to));
        assert!(is_widening(&from, &to), "{line}");
        assert_eq!(is_automatic(&from, &to), words.contains(&"auto"), "{line}");
        assert_eq!(is_in_iceberg(&from, &to), words.contains(&"iceberg"), "{line}");
    }
    for line in lines(NO_WIDENINGS) {
        let (from, to) = line.split_once('>').unwrap();
        let (from, to) = (primitive(from), primitive(to));
        assert!(!is_widening(&from, &to) && !is_automatic(&from, &to) && !is_in_iceberg(&from, &to), "{line}");
    }
}

proptest! {
    /// Including names with back-ticks.
    #[test]
    fn paths_survive_being_printed(path in prop::collection::vec("[a-zA-Z_0-9 .,`é\"]{1,6}", 1..4)) {
        prop_assert_eq!(path::parse(&path::print(&path)).unwrap(), path);
    }

    #[test]
    fn hostile_paths_do_not_panic(text in ".{0,20}", column in "[a-c.`]{0,6}") {
        let schema = schema_of("a {b [{c long}]}, b <string: {a long}>");
        for text in [text, column] {
            if let Ok(path) = path::parse(&text) {
                let _found = find(&schema, &path);
                let _renamed = rename(&schema, &path, &text);
                let _dropped = drop_column(&schema, &path);
            }
        }
    }
}
