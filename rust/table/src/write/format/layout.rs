//! The schema and the Parquet properties of data files.
//!
//! All files of a writer have the same, unless variants are shredded: then each file has its own typed columns, and so its
//! own Parquet schema, sorting columns and column properties.
//!
//! PROTOCOL.md: "Data Files", "Column Mapping" (field ids).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::property::PageVersion;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::stats::collect::IndexedColumns;
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::schema::types::SchemaDescriptor;

use super::annotations::annotated;
use super::columns::{leaf_names, with_column_options};
use super::shred::{Shredding, has_variants};
use super::sort::SortOrder;
use crate::write::plan::{WriteSpec, not_hidden, physical_indexed};

/// Parquet libraries check the writer of a file before they trust its statistics, and expect this form.
const CREATED_BY: &str = concat!("deltic version ", env!("CARGO_PKG_VERSION"));

/// The format of all files of a writer.
#[derive(Debug)]
pub(in crate::write) struct FileFormat {
    /// The layout of files without shredded variants.
    pub(super) layout: Arc<Layout>,
    /// The columns as table types, for the statistics.
    pub(in crate::write) schema: StructType,
    pub(in crate::write) indexed: IndexedColumns,
    pub(super) prefix_length: usize,
    pub(super) rows_of_group: usize,
    pub(super) sort: Option<SortOrder>,
    /// If variants are shredded, the logical columns and the specification, from which the layout of each file is made.
    pub(super) shreds: Option<(StructType, WriteSpec)>,
}

/// The schema and the properties of one file.
#[derive(Debug)]
pub(in crate::write) struct Layout {
    /// The Arrow schema of the file: physical names, field ids, no partition columns.
    pub(in crate::write) arrow: SchemaRef,
    /// The same as a Parquet schema.
    pub(in crate::write) parquet: SchemaDescriptor,
    pub(super) properties: WriterPropertiesPtr,
    pub(super) shredding: Option<Shredding>,
}

impl FileFormat {
    /// The format of files with the columns `logical`, which `arrow` has under physical names.
    ///
    /// # Errors
    /// `Invalid` for options that the columns do not allow.
    pub(in crate::write) fn new(arrow: SchemaRef, logical: &StructType, spec: &WriteSpec) -> Result<Self> {
        let mapping = ColumnMapping::parse(&spec.column_mapping)?;
        let schema = mapping.physical_schema(logical)?;
        let sort = SortOrder::new(&arrow, sort_positions(logical, spec)?)?;
        let layout = Layout::new(arrow, (&schema, logical), spec, sort.as_ref())?;
        let hidden = spec.hidden_columns.len();
        let indexed = not_hidden(physical_indexed(&spec.indexed_columns, logical, mapping)?, &schema, hidden)
            .and(&spec.clustering);
        let shreds = spec.shreds_variants && schema.fields.iter().any(|field| has_variants(&field.data_type));
        Ok(Self {
            layout: Arc::new(layout),
            schema,
            indexed,
            prefix_length: spec.string_prefix_length,
            rows_of_group: spec.max_rows_per_group.max(1),
            sort,
            shreds: shreds.then(|| (logical.clone(), spec.clone())),
        })
    }

    /// Whether rows are sorted, so that they must be gathered first.
    pub(in crate::write) fn sorts(&self) -> bool {
        self.sort.is_some()
    }

    /// The layout of a file that begins with these rows.
    ///
    /// # Errors
    /// `Invalid` for variants that cannot be shredded.
    pub(super) fn layout_for(&self, first: &[RecordBatch]) -> Result<Arc<Layout>> {
        let Some((logical, spec)) = &self.shreds else { return Ok(Arc::clone(&self.layout)) };
        let Some(shredding) = Shredding::infer(&self.layout.arrow, &self.schema, first)? else {
            return Ok(Arc::clone(&self.layout));
        };
        let arrow = Arc::clone(&shredding.arrow);
        let layout = Layout::new(arrow, (&self.schema, logical), spec, self.sort.as_ref())?;
        Ok(Arc::new(Layout { shredding: Some(shredding), ..layout }))
    }
}

impl Layout {
    fn new(
        arrow: SchemaRef,
        (schema, logical): (&StructType, &StructType),
        spec: &WriteSpec,
        sort: Option<&SortOrder>,
    ) -> Result<Self> {
        let mapping = ColumnMapping::parse(&spec.column_mapping)?;
        let parquet = ArrowSchemaConverter::new().schema_root("spark_schema").convert(&arrow).map_err(failed)?;
        let parquet = match annotated(parquet.root_schema(), schema).map_err(failed)? {
            Some(root) => SchemaDescriptor::new(root),
            None => parquet,
        };
        let version = match spec.page_version {
            PageVersion::One => WriterVersion::PARQUET_1_0,
            PageVersion::Two => WriterVersion::PARQUET_2_0,
        };
        let chooses = !spec.sort_by.is_empty() || !spec.column_options.is_empty();
        let leaves = if chooses { leaf_names(&parquet, logical, mapping)? } else { Vec::new() };
        let leaf_of = |column: usize| {
            let name = &logical.fields.get(column)?.name;
            leaves.iter().position(|leaf| leaf.names.first() == Some(name))
        };
        let declared = sort.map(|sort| sort.declared(&arrow, leaf_of)).filter(|columns| !columns.is_empty());
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_writer_version(version)
            .set_compression(spec.compression.at_level(spec.compression_level)?)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_sorting_columns(declared);
        let properties = with_column_options(properties, (&parquet, &leaves), &spec.column_options, spec.compression)?;
        Ok(Self { arrow, parquet, properties: properties.build().into(), shredding: None })
    }
}

/// Positions of the columns to sort by. Columns that the file does not have are left out: all its rows have the same value.
fn sort_positions(logical: &StructType, spec: &WriteSpec) -> Result<Vec<usize>> {
    let mut positions = Vec::with_capacity(spec.sort_by.len());
    for name in &spec.sort_by {
        let Some(field) = spec.schema.field(name) else {
            return Err(Error::invalid(format!("sort_by names `{name}`, and the table has no such column")));
        };
        positions.extend(logical.fields.iter().position(|stored| stored.name == field.name));
    }
    Ok(positions)
}

pub(super) fn failed(source: ParquetError) -> Error {
    Error::internal("a batch of the table's schema could not be encoded as Parquet").caused_by(source)
}
