//! The order of the rows in a bin.
//!
//! A table with clustering columns is clustered, along a Hilbert curve through them. Any other table is compacted, with rows in
//! their old order, or ordered along a Z-order curve through columns that the caller names.
//!
//! PROTOCOL.md: "Clustered Table".

use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::schema::{DataType, PrimitiveType, StructType, path};
use serde::{Deserialize, Serialize};

use super::options::OptimizeOptions;
use crate::error::{Error, Result};

pub(super) mod curve;
pub(super) mod ranges;
pub(super) mod sent;

use curve::{Curve, MAX_DIMENSIONS};

/// The order of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Layout {
    /// The old order.
    Compact,
    /// Along a curve.
    Curve(CurveLayout),
}

/// An order along a curve through columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CurveLayout {
    pub(super) curve: Curve,
    /// Logical paths of the columns.
    pub(super) columns: Vec<Vec<String>>,
    /// Physical paths of the same.
    pub(super) physical: Vec<Vec<String>>,
}

impl Layout {
    /// The layout that the table and the caller ask for. `clustering`: physical paths of the table's clustering columns.
    ///
    /// # Errors
    /// `Invalid` if both name columns, or for a column that the table lacks, or by which rows cannot be ordered;
    /// `Unsupported` if rows cannot be ordered by a clustering column.
    pub(super) fn of(shape: &TableShape, clustering: &[Vec<String>], options: &OptimizeOptions) -> Result<Self> {
        match (clustering.is_empty(), options.zorder_by.is_empty()) {
            (true, true) if options.full => Err(Error::invalid(
                "full=True clusters all files of a clustered table anew, and this table has no clustering columns",
            )),
            (true, true) => Ok(Self::Compact),
            (true, false) if options.full => {
                Err(Error::invalid("full=True is for clustered tables; Z-order takes all files anyway"))
            }
            (true, false) => z_order(shape, &options.zorder_by).map(Self::Curve),
            (false, true) => clustered(shape, clustering).map(Self::Curve),
            (false, false) => Err(Error::invalid(
                "the table has clustering columns, by which OPTIMIZE orders its rows; leave zorder_by out",
            )),
        }
    }

    /// Refuses a curve without columns, or with too many, as it may come from another process.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Compact => Ok(()),
            Self::Curve(layout) => layout.check(),
        }
    }

    /// Its name in results and in the history.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Curve(CurveLayout { curve: Curve::ZOrder, .. }) => "zorder",
            Self::Curve(CurveLayout { curve: Curve::Hilbert, .. }) => "hilbert",
        }
    }

    /// The columns of its curve, with dots inside structs.
    pub(super) fn columns(&self) -> Vec<String> {
        match self {
            Self::Compact => Vec::new(),
            Self::Curve(layout) => layout.columns.iter().map(|path| path.join(".")).collect(),
        }
    }
}

impl CurveLayout {
    /// As [`Layout::check`].
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn check(&self) -> Result<()> {
        let is_curve = (1..=MAX_DIMENSIONS).contains(&self.columns.len()) && !self.columns.iter().any(Vec::is_empty);
        is_curve.then_some(()).ok_or_else(|| Error::invalid("rows cannot be ordered along a curve of these columns"))
    }
}

fn z_order(shape: &TableShape, names: &[String]) -> Result<CurveLayout> {
    let mut layout = CurveLayout { curve: Curve::ZOrder, columns: Vec::new(), physical: Vec::new() };
    for name in names {
        let path = find(&shape.schema, name)?;
        if path.first().is_some_and(|column| shape.is_partition_column(column)) {
            let message = format!("the rows of a file have one value of the partition column `{name}`; leave it out");
            return Err(Error::invalid(message));
        }
        if layout.columns.contains(&path) {
            return Err(Error::invalid(format!("zorder_by names the column `{name}` twice")));
        }
        // Every column that has an order can have statistics.
        layout.physical.extend(shape.leaf(&path)?.map(|leaf| leaf.path));
        layout.columns.push(path);
    }
    if layout.columns.len() > MAX_DIMENSIONS {
        let message = format!("zorder_by takes at most {MAX_DIMENSIONS} columns, of which three or four are of use");
        return Err(Error::invalid(message));
    }
    Ok(layout)
}

fn clustered(shape: &TableShape, clustering: &[Vec<String>]) -> Result<CurveLayout> {
    let logical = |physical: &Vec<String>| {
        let path = shape.mapping.logical_path(&shape.schema, physical).ok_or_else(|| {
            let column = physical.join(".");
            Error::corrupt(format!("the table is clustered by a column that it does not have, `{column}`"))
        })?;
        check_ordered(&shape.schema, &path).map_err(|e| Error::unsupported("clustering", e.to_string()))?;
        Ok(path)
    };
    let columns = clustering.iter().map(logical).collect::<Result<Vec<_>>>()?;
    if columns.len() > MAX_DIMENSIONS {
        let message = format!(
            "the table is clustered by {} columns, and more than {MAX_DIMENSIONS} do not fit a curve; cluster it by fewer",
            columns.len()
        );
        return Err(Error::unsupported("clustering", message));
    }
    Ok(CurveLayout { curve: Curve::Hilbert, columns, physical: clustering.to_vec() })
}

/// The path of a column that a caller names.
fn find(schema: &StructType, name: &str) -> Result<Vec<String>> {
    let parts = match schema.field(name) {
        Some(_) => vec![name.to_owned()],
        None => path::parse(name).map_err(|e| Error::invalid(format!("zorder_by: {}", e.message())))?,
    };
    let (mut inside, mut path) = (Some(schema), Vec::with_capacity(parts.len()));
    for part in parts {
        let field = inside.and_then(|fields| fields.field(&part)).ok_or_else(|| schema.unknown_column(name))?;
        path.push(field.name.clone());
        inside = if let DataType::Struct(fields) = &field.data_type { Some(fields) } else { None };
    }
    check_ordered(schema, &path)?;
    Ok(path)
}

/// Refuses a column whose values have no order.
fn check_ordered(schema: &StructType, path: &[String]) -> Result<()> {
    let mut inside = Some(schema);
    let mut found = None;
    for part in path {
        let field = inside.and_then(|fields| fields.fields.iter().find(|field| &field.name == part));
        inside = field.and_then(|f| if let DataType::Struct(fields) = &f.data_type { Some(&**fields) } else { None });
        found = field.map(|field| &field.data_type);
    }
    let has_order = match found {
        Some(DataType::Primitive(primitive)) => {
            !matches!(primitive, PrimitiveType::Void | PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. })
        }
        Some(_) | None => false,
    };
    match has_order {
        true => Ok(()),
        false => {
            let column = path.join(".");
            Err(Error::invalid(format!("rows cannot be ordered by `{column}`: values of its type have no order")))
        }
    }
}
