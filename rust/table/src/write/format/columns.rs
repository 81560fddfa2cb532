//! The leaves of a data file: the column of each, and how it is encoded if a caller has chosen that.
//!
//! Columns have their logical names, with `element`, `key` and `value` for the inside of arrays and maps. An option
//! for a column with nested ones applies to all of them, unless there is one with a longer path.
//!
//! Proved by `write::columns_are_encoded_as_chosen`.

use std::collections::BTreeMap;

use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, StructType, is_same_name, path};
use parquet::basic::{Encoding, Type as Physical};
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::write::options::{BloomFilter, ColumnOptions, Compression};

/// Name of the typed column of a shredded variant.
const TYPED_VALUE: &str = "typed_value";

/// A leaf of a file.
pub(super) struct LeafName {
    /// The logical names of its path.
    pub(super) names: Vec<String>,
    /// Whether it belongs to the typed columns of a shredded variant, which no caller can name.
    is_shredded: bool,
}

/// The names of the leaves of a file with the columns of `schema`, in the file's order.
pub(super) fn leaf_names(
    file: &SchemaDescriptor,
    schema: &StructType,
    mapping: ColumnMapping,
) -> Result<Vec<LeafName>> {
    let names = |column: &ColumnDescriptor| {
        let mut leaf = LeafName { names: Vec::new(), is_shredded: false };
        add_names(column.path().parts(), schema, mapping, &mut leaf)?;
        Ok(leaf)
    };
    file.columns().iter().map(|column| names(column)).collect()
}

fn add_names(parts: &[String], schema: &StructType, mapping: ColumnMapping, leaf: &mut LeafName) -> Result<()> {
    let Some((name, rest)) = parts.split_first() else { return Ok(()) };
    for field in &schema.fields {
        if mapping.physical_name(field)? == name {
            leaf.names.push(field.name.clone());
            return add_inner_names(rest, &field.data_type, mapping, leaf);
        }
    }
    leaf.names.extend(parts.iter().cloned());
    Ok(())
}

fn add_inner_names(parts: &[String], data_type: &DataType, mapping: ColumnMapping, leaf: &mut LeafName) -> Result<()> {
    match (data_type, parts) {
        (DataType::Struct(inner), parts) => add_names(parts, inner, mapping, leaf),
        (DataType::Array(array), [_, element, rest @ ..]) => {
            leaf.names.push(element.clone());
            add_inner_names(rest, &array.element, mapping, leaf)
        }
        (DataType::Map(map), [_, part, rest @ ..]) => {
            leaf.names.push(part.clone());
            add_inner_names(rest, if part == "key" { &map.key } else { &map.value }, mapping, leaf)
        }
        (_, parts) => {
            leaf.is_shredded = matches!((data_type, parts), (DataType::Variant, [first, ..]) if first == TYPED_VALUE);
            leaf.names.extend(parts.iter().cloned());
            Ok(())
        }
    }
}

/// The writer properties of a file, with the options of its columns. `leaves`: their names.
///
/// # Errors
/// `Invalid` for a column that the file does not have, and for an encoding that the column cannot have.
pub(super) fn with_column_options(
    mut properties: WriterPropertiesBuilder,
    (file, leaves): (&SchemaDescriptor, &[LeafName]),
    options: &BTreeMap<String, ColumnOptions>,
    codec: Compression,
) -> Result<WriterPropertiesBuilder> {
    let mut chosen = Vec::with_capacity(options.len());
    for (name, options) in options {
        chosen.push((path_of(name, leaves)?, name, options));
    }
    // Options of longer paths come later, and later ones take precedence.
    chosen.sort_by_key(|(path, ..)| path.len());
    for (path, name, options) in chosen {
        for (leaf, column) in leaves.iter().zip(file.columns()).filter(|(leaf, _)| is_inside(&leaf.names, &path)) {
            // Options of a variant apply to its binary columns.
            let of_typed = ColumnOptions { encoding: None, bloom_filter: None, ..options.clone() };
            let options = if leaf.is_shredded { &of_typed } else { options };
            properties = with_options(properties, column, options, codec).map_err(|e| {
                Error::invalid(format!("column_options of `{name}`: {} (`{}`)", e.message(), leaf.names.join(".")))
            })?;
        }
    }
    Ok(properties)
}

/// The path of a column by the name that a caller gives.
fn path_of(name: &str, leaves: &[LeafName]) -> Result<Vec<String>> {
    let whole = vec![name.to_owned()];
    let is_column = |path: &[String]| leaves.iter().any(|leaf| is_inside(&leaf.names, path));
    if is_column(&whole) {
        return Ok(whole);
    }
    let path = path::parse(name).map_err(|e| Error::invalid(format!("column_options: {}", e.message())))?;
    match is_column(&path) {
        true => Ok(path),
        false => Err(Error::invalid(format!(
            "column_options names `{name}`, and data files have no such column; they have the table's columns without those \
             that it is partitioned by"
        ))),
    }
}

/// Whether a leaf is the column at a path, or inside it. Names differ by more than case.
fn is_inside(leaf: &[String], path: &[String]) -> bool {
    path.len() <= leaf.len() && leaf.iter().zip(path).all(|(a, b)| is_same_name(a, b))
}

fn with_options(
    mut properties: WriterPropertiesBuilder,
    column: &ColumnDescriptor,
    options: &ColumnOptions,
    codec: Compression,
) -> Result<WriterPropertiesBuilder> {
    let path = || column.path().clone();
    if options.compression.is_some() || options.compression_level.is_some() {
        let codec = options.compression.as_deref().map_or(Ok(codec), Compression::parse)?;
        properties = properties.set_column_compression(path(), codec.at_level(options.compression_level)?);
    }
    if let Some(encoding) = &options.encoding {
        properties = properties.set_column_encoding(path(), encoding_of(encoding, column)?);
    }
    if let Some(dictionary) = options.dictionary.or(options.encoding.as_ref().map(|_| false)) {
        properties = properties.set_column_dictionary_enabled(path(), dictionary);
    }
    if let Some(BloomFilter { fpp, ndv }) = &options.bloom_filter {
        if column.physical_type() == Physical::BOOLEAN {
            return Err(Error::invalid("booleans have no bloom filter"));
        }
        properties = properties.set_column_bloom_filter_enabled(path(), true);
        if let Some(fpp) = fpp {
            if !(*fpp > 0.0 && *fpp < 1.0) {
                return Err(Error::invalid(format!("fpp of a bloom filter is between 0 and 1, not {fpp}")));
            }
            properties = properties.set_column_bloom_filter_fpp(path(), *fpp);
        }
        match ndv {
            Some(0) => return Err(Error::invalid("ndv of a bloom filter must be at least 1")),
            Some(ndv) => properties = properties.set_column_bloom_filter_max_ndv(path(), *ndv),
            None => {}
        }
    }
    Ok(properties)
}

/// An encoding by its name in Parquet's specification, checked against the column's physical type.
fn encoding_of(name: &str, column: &ColumnDescriptor) -> Result<Encoding> {
    use Physical as P;
    let upper = name.to_ascii_uppercase();
    let (encoding, takes): (Encoding, &[Physical]) = match upper.as_str() {
        "PLAIN" => return Ok(Encoding::PLAIN),
        "RLE" => (Encoding::RLE, &[P::BOOLEAN]),
        "DELTA_BINARY_PACKED" => (Encoding::DELTA_BINARY_PACKED, &[P::INT32, P::INT64]),
        "DELTA_LENGTH_BYTE_ARRAY" => (Encoding::DELTA_LENGTH_BYTE_ARRAY, &[P::BYTE_ARRAY]),
        "DELTA_BYTE_ARRAY" => (Encoding::DELTA_BYTE_ARRAY, &[P::BYTE_ARRAY, P::FIXED_LEN_BYTE_ARRAY]),
        "BYTE_STREAM_SPLIT" => {
            (Encoding::BYTE_STREAM_SPLIT, &[P::FLOAT, P::DOUBLE, P::INT32, P::INT64, P::FIXED_LEN_BYTE_ARRAY])
        }
        _ => {
            return Err(Error::invalid(format!(
                "`{name}` is not an encoding that deltic writes; use plain, rle, delta_binary_packed, \
                 delta_length_byte_array, delta_byte_array or byte_stream_split, and `dictionary` for a dictionary"
            )));
        }
    };
    let physical = column.physical_type();
    match takes.contains(&physical) {
        true => Ok(encoding),
        false => {
            Err(Error::invalid(format!("the encoding {upper} is not for values that Parquet stores as {physical}")))
        }
    }
}
