//! Rows that a merge inserts.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::SchemaRef;

use crate::error::{Error, Result};
use crate::row_update::{Bind, Computed, NewValue, Target, find, first_null, in_key};
use crate::schema::arrow::{cast_strictly, to_arrow_type, to_rows_schema};
use crate::schema::identity::is_identity;
use crate::schema::{StructField, StructType};

/// Metadata of columns whose values the table itself can give.
const FILLED: [&str; 3] = ["CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"];

/// The columns that a merge gives values for in inserted rows. The table gives values to the others.
#[derive(Debug, Clone)]
pub struct RowInsert {
    columns: Vec<(StructField, Computed)>,
    /// Columns that may not be null, and to which neither the clause nor the table gives a value. They are among the columns.
    without_value: Vec<String>,
    schema: SchemaRef,
    now: Option<i64>,
}

impl RowInsert {
    /// The bytes of constants in each inserted row.
    pub fn constant_bytes(&self) -> usize {
        self.columns.iter().map(|(_, value)| value.constant_bytes()).fold(0, usize::saturating_add)
    }

    /// Prepares inserts into a table. `bind`: binds expressions. A column that gets its default is left out.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it does not exist, is given twice, or cannot have the value.
    pub fn new(values: Vec<(String, NewValue)>, table: Target<'_>, bind: Bind<'_>) -> Result<Self> {
        let mut columns: Vec<(StructField, Computed)> = Vec::with_capacity(values.len());
        let mut named = Vec::with_capacity(values.len());
        for (key, value) in values {
            let (at, _, field) = find(table.schema, &key)?;
            if at.len() != 1 {
                let message = format!("cannot insert `{key}`: rows are inserted with whole columns; give the struct");
                return Err(Error::invalid(message));
            }
            if named.contains(&at) {
                return Err(Error::invalid(format!("`{key}` is given twice")));
            }
            named.push(at);
            if value.is_default() {
                continue;
            }
            let computed = Computed::new(value, &field.name, (&field.data_type, table.missing), bind);
            let computed = computed.map_err(|e| in_key(&key, &e))?;
            columns.push((field.clone(), computed));
        }
        let is_left = |field: &&StructField| {
            let is_filled = FILLED.iter().any(|key| field.metadata.contains_key(*key));
            !is_filled && !columns.iter().any(|(given, _)| given.name == field.name)
        };
        let left: Vec<&StructField> = table.schema.fields.iter().filter(is_left).collect();
        let without_value = left.iter().filter(|field| !field.nullable).map(|field| field.name.clone()).collect();
        // A partition column without a value is NULL in the inserted rows.
        for field in left.into_iter().filter(|f| !f.nullable || table.partition_columns.contains(&f.name)) {
            let null = new_null_array(&to_arrow_type(&field.data_type), 1);
            columns.push((field.clone(), Computed::Value(null)));
        }
        // NULL in a NOT NULL column is reported later, with the row that has it.
        let given = columns.iter().map(|(field, _)| StructField { nullable: true, ..field.clone() }).collect();
        let schema = Arc::new(to_rows_schema(&StructType::new(given)));
        Ok(Self { columns, without_value, schema, now: table.now })
    }

    /// The schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The rows to insert for the source rows in `on`.
    ///
    /// # Errors
    /// `Invalid`, naming the row of the source, if a value cannot be computed or the column cannot have it.
    pub fn rows(&self, on: &RecordBatch, number: &dyn Fn(usize) -> u64) -> Result<RecordBatch> {
        let of_source = |e: Error| match e.message().strip_prefix("row ") {
            Some(rest) => Error::new(e.kind().clone(), format!("the source's row {rest}")),
            None => e,
        };
        let mut columns = Vec::with_capacity(self.columns.len());
        for ((field, value), wanted) in self.columns.iter().zip(self.schema.fields()) {
            let mut values = value.values(on, (self.now, None), number).map_err(of_source)?;
            if let Some(row) = first_null(&values).filter(|_| !field.nullable && !is_identity(field)) {
                let message = match self.without_value.contains(&field.name) {
                    true => format!(
                        "the merge's clause that inserts rows gives no value for the column `{}`, which may not be null; \
                         add it to the values of when_not_matched_insert",
                        field.name
                    ),
                    false => format!(
                        "the source's row {}: the column `{}` is not nullable, and would be NULL",
                        number(row),
                        field.name
                    ),
                };
                return Err(Error::invalid(message));
            }
            if values.data_type() != wanted.data_type() {
                values = cast_strictly(&values, wanted.data_type())?;
            }
            columns.push(values);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(on.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema(), columns, &options)?)
    }
}
