//! Alterations of tables, as text cases.
//!
//! A case begins with the schema in the notation of `evolve.rs`. Lines that begin with `protocol`, `partitioned`,
//! `clustered` or `property` describe the table; each other line is an alteration.

use std::collections::BTreeMap;

use deltic_protocol::action::{Metadata, Protocol};
use deltic_protocol::alter::{Alteration, Altered, Before, MetadataChange, alter};
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::feature::check_readable;
use deltic_protocol::schema::json;

use super::evolve::{column_change, print, schema_of};
use super::feature::{print as print_protocol, protocol};
use super::predicate::check_cases;

struct Table {
    protocol: Protocol,
    metadata: Metadata,
    clustering: Vec<Vec<String>>,
    unique: u64,
}

impl Table {
    fn new(schema: &str) -> Self {
        let metadata = Metadata {
            id: "id".to_owned(),
            name: None,
            description: None,
            format: Default::default(),
            schema_string: json::to_json(&schema_of(schema)),
            partition_columns: Vec::new(),
            created_time: None,
            configuration: BTreeMap::new(),
        };
        Self { protocol: protocol("1,2"), metadata, clustering: Vec::new(), unique: 0 }
    }

    /// Applies a line that describes the initial table; `false` if the line is an alteration.
    fn describe(&mut self, line: &str) -> bool {
        match line.split_once(' ') {
            Some(("protocol", text)) => self.protocol = protocol(text),
            Some(("partitioned", columns)) => self.metadata.partition_columns = words(columns),
            Some(("clustered", path)) => self.clustering.push(path.split('.').map(str::to_owned).collect()),
            Some(("property", text)) => self.metadata.configuration.extend(properties(text)),
            _ => return false,
        }
        true
    }

    fn alter(&mut self, line: &str) -> Result<Altered, Error> {
        let before =
            Before { protocol: &self.protocol, metadata: &self.metadata, clustering: &self.clustering, version: 7 };
        let unique = &mut self.unique;
        let altered = alter(before, &alteration(line)?, &mut || {
            *unique += 1;
            format!("u{unique}")
        })?;
        self.metadata = altered.metadata.clone();
        self.protocol = altered.protocol.clone().unwrap_or_else(|| self.protocol.clone());
        self.clustering = altered.clustering.clone().unwrap_or_else(|| self.clustering.clone());
        Ok(altered)
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn properties(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split("; ").filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn alteration(line: &str) -> Result<Alteration, Error> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Ok(match verb {
        "add" => {
            let (columns, after) = rest.split_once(" | after ").unwrap_or((rest, ""));
            Alteration::AddColumns { columns: schema_of(columns).fields, after: some(after) }
        }
        "rename" => {
            let (column, name) = rest.split_once(" TO ").unwrap();
            Alteration::RenameColumn { column: column.to_owned(), name: name.to_owned() }
        }
        "drop" => Alteration::DropColumns(words(rest)),
        "alter" => {
            let (column, change) = rest.split_once(" | ").unwrap();
            Alteration::AlterColumn { column: column.to_owned(), change: column_change(change)? }
        }
        "replace" => Alteration::ReplaceColumns(schema_of(rest)),
        "set" => Alteration::SetProperties(properties(rest)),
        "unset" => Alteration::UnsetProperties(words(rest)),
        "name" => Alteration::SetName(some(rest)),
        "describe" => Alteration::SetDescription(some(rest)),
        "constrain" => {
            let (name, expression) = rest.split_once(": ").unwrap_or((rest, ""));
            Alteration::AddConstraint { name: name.to_owned(), expression: expression.to_owned() }
        }
        "cluster" => Alteration::ClusterBy(words(rest)),
        "unconstrain" => Alteration::DropConstraint(rest.to_owned()),
        "all" => {
            let schema = some(rest).map(|columns| schema_of(&columns));
            Alteration::Set(MetadataChange { schema, ..MetadataChange::default() })
        }
        other => panic!("{other}"),
    })
}

fn run(case: &str) -> String {
    let (first, lines) = case.split_once('\n').unwrap();
    let mut table = Table::new(first);
    let (mut shown, mut operation) = (String::new(), String::new());
    for line in lines.lines() {
        if table.describe(line) {
            continue;
        }
        match table.alter(line) {
            Ok(altered) => {
                operation = format!("{} {}", altered.operation, serde_json::Value::Object(altered.parameters))
            }
            Err(error) => {
                return match error.kind() {
                    Kind::Unsupported { features } => format!("Unsupported {}: {error}", features.join(" ")),
                    kind => format!("{kind:?}: {error}"),
                };
            }
        }
    }
    check_readable(&table.protocol).unwrap();
    shown.push_str(&print(&table.metadata.schema().unwrap()));
    if !table.metadata.partition_columns.is_empty() {
        shown.push_str(&format!("\npartitioned {}", table.metadata.partition_columns.join(" ")));
    }
    for (key, value) in &table.metadata.configuration {
        shown.push_str(&format!("\n{key}={value}"));
    }
    shown.extend(table.clustering.iter().map(|path| format!("\nclustered {}", path.join("."))));
    for (what, text) in [("name", &table.metadata.name), ("description", &table.metadata.description)] {
        shown.extend(text.iter().map(|text| format!("\n{what} {text}")));
    }
    shown.push_str(&format!("\nprotocol {}", print_protocol(&table.protocol)));
    format!("{shown}\n{operation}")
}

#[test]
fn cases() {
    check_cases("alter", run);
}
