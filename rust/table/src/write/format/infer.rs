//! Infers the typed columns of a file's variants from a sample of its first rows.
//!
//! A field is shredded if at least one in ten sampled rows has it with a value of its most common type. Arrays are shredded if
//! they have single values or arrays: each absent field of an object costs memory, which a row with many small objects in an
//! array would multiply. Types that other readers do not know, such as nanoseconds, are not shredded.
//!
//! Invariant: a sample counts no more than [`MOST_NODES`] paths and a schema has no more than [`MOST_COLUMNS`] columns,
//! whatever the values. Proved by the tests below and `tests/python/test_shredding.py`.
//!
//! PROTOCOL.md: "Writer Requirements for Variant Shredding".

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType as ArrowType, Field, Fields, TimeUnit};
use parquet_variant::Variant;

/// The largest sample of a column, in rows and in bytes of values.
const SAMPLED_ROWS: usize = 1000;
const SAMPLED_BYTES: usize = 4 * 1024 * 1024;

/// The most typed columns of one variant. A file with few rows has no more of them than sampled rows, or 16: each takes space
/// in the footer.
const MOST_COLUMNS: usize = 300;
const FEWEST_COLUMNS: usize = 16;

/// The most names in an unsorted metadata dictionary: the library searches it from the beginning for each field.
const MOST_UNSORTED: usize = 200;

/// The most levels of nested typed columns.
const MOST_DEPTH: usize = 16;

/// The most paths that a sample counts.
const MOST_NODES: usize = 4096;

/// The most bytes of a field name in the file's schema.
const LONGEST_NAME: usize = 128;

/// A field is shredded if one row in so many has its type.
const ONE_IN: usize = 10;

/// The types that are shredded. Values of other types stay in `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Boolean,
    Long,
    Decimal,
    Float,
    Double,
    Date,
    Timestamp,
    TimestampNtz,
    Binary,
    String,
    Object,
    Array,
}

/// Counts of the types of a column's values.
#[derive(Debug)]
pub(super) struct Sample {
    root: Node,
    rows: usize,
    bytes: usize,
    nodes: usize,
    /// Whether shredding a value would take time that grows with the square of its size.
    is_slow: bool,
}

/// Counts of the types at one path.
#[derive(Debug, Default)]
struct Node {
    kinds: BTreeMap<Kind, usize>,
    values: usize,
    fields: BTreeMap<String, Node>,
    element: Option<Box<Node>>,
    /// For decimals: the digits before and after the point.
    digits: (u8, u8),
}

impl Sample {
    pub(super) fn new() -> Self {
        Self { root: Node::default(), rows: 0, bytes: 0, nodes: 0, is_slow: false }
    }

    /// Whether no more values are needed.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= SAMPLED_ROWS || self.bytes >= SAMPLED_BYTES
    }

    /// Counts a value of so many bytes. One that is too large for the sample counts as a row of another type.
    pub(super) fn add(&mut self, value: &Variant<'_, '_>, bytes: usize) {
        self.rows += 1;
        if bytes > SAMPLED_BYTES - self.bytes.min(SAMPLED_BYTES) {
            return;
        }
        self.bytes += bytes;
        if let Variant::Object(object) = value {
            self.is_slow |= !object.metadata.is_sorted() && object.metadata.len() > MOST_UNSORTED;
        }
        self.root.add(value, 0, false, &mut self.nodes);
    }

    /// The type that the variants are shredded to and its number of columns, at most `most`. `None` if they are not shredded.
    pub(super) fn shredded_as(&self, most: usize) -> Option<(ArrowType, usize)> {
        let most = self.rows.clamp(FEWEST_COLUMNS, MOST_COLUMNS).min(most);
        let mut room = most;
        let data_type = self.root.data_type(self.rows, &mut room).filter(|_| !self.is_slow)?;
        Some((data_type, most - room))
    }
}

impl Node {
    fn add(&mut self, value: &Variant<'_, '_>, depth: usize, in_array: bool, nodes: &mut usize) {
        self.values += 1;
        let Some(kind) = kind_of(value) else { return };
        *self.kinds.entry(kind).or_default() += 1;
        match value {
            Variant::Decimal4(d) => self.widen(i128::from(d.integer()), d.scale()),
            Variant::Decimal8(d) => self.widen(i128::from(d.integer()), d.scale()),
            Variant::Decimal16(d) => self.widen(d.integer(), d.scale()),
            Variant::Object(object) if depth < MOST_DEPTH && !in_array => {
                for (name, value) in object.iter() {
                    if let Some(field) = self.fields.get_mut(name) {
                        field.add(&value, depth + 1, false, nodes);
                    } else if *nodes < MOST_NODES && !name.is_empty() && name.len() <= LONGEST_NAME {
                        *nodes += 1;
                        self.fields.entry(name.to_owned()).or_default().add(&value, depth + 1, false, nodes);
                    }
                }
            }
            Variant::List(list) if depth < MOST_DEPTH => {
                let element = self.element.get_or_insert_default();
                list.iter().for_each(|value| element.add(&value, depth + 1, true, nodes));
            }
            _ => {}
        }
    }

    fn widen(&mut self, unscaled: i128, scale: u8) {
        let digits = unscaled.unsigned_abs().checked_ilog10().map_or(0, |log| log as u8 + 1);
        self.digits = (self.digits.0.max(digits.saturating_sub(scale)), self.digits.1.max(scale));
    }

    /// The most common type, if one in ten of the `of` rows has it.
    fn data_type(&self, of: usize, room: &mut usize) -> Option<ArrowType> {
        let (kind, count) = self.kinds.iter().max_by_key(|(_, count)| **count)?;
        if count.saturating_mul(ONE_IN) < of || *room == 0 {
            return None;
        }
        let data_type = match kind {
            Kind::Object => return self.object_type(of, room),
            Kind::Array => {
                let element = self.element.as_ref()?;
                let data_type = element.data_type(element.values, room)?;
                ArrowType::List(Arc::new(Field::new("element", data_type, false)))
            }
            Kind::Boolean => ArrowType::Boolean,
            Kind::Long => ArrowType::Int64,
            Kind::Decimal => decimal_type(self.digits)?,
            Kind::Float => ArrowType::Float32,
            Kind::Double => ArrowType::Float64,
            Kind::Date => ArrowType::Date32,
            Kind::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::TimestampNtz => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Binary => ArrowType::Binary,
            Kind::String => ArrowType::Utf8,
        };
        *room = room.checked_sub(1)?;
        Some(data_type)
    }

    /// If there is no room for all fields, those that most objects have are taken first.
    fn object_type(&self, of: usize, room: &mut usize) -> Option<ArrowType> {
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by_key(|(_, field)| std::cmp::Reverse(field.values));
        // Case-insensitive readers would find two fields of the same name.
        let mut names = HashSet::new();
        let mut shredded = Vec::new();
        for (name, field) in fields {
            let lower = name.to_lowercase();
            if names.contains(&lower) {
                continue;
            }
            if let Some(data_type) = field.data_type(of, room) {
                names.insert(lower);
                shredded.push(Field::new(name, data_type, true));
            }
        }
        shredded.sort_by(|a, b| a.name().cmp(b.name()));
        (!shredded.is_empty()).then(|| ArrowType::Struct(Fields::from(shredded)))
    }
}

fn kind_of(value: &Variant<'_, '_>) -> Option<Kind> {
    Some(match value {
        Variant::BooleanTrue | Variant::BooleanFalse => Kind::Boolean,
        Variant::Int8(_) | Variant::Int16(_) | Variant::Int32(_) | Variant::Int64(_) => Kind::Long,
        Variant::Decimal4(_) | Variant::Decimal8(_) | Variant::Decimal16(_) => Kind::Decimal,
        Variant::Float(_) => Kind::Float,
        Variant::Double(_) => Kind::Double,
        Variant::Date(_) => Kind::Date,
        Variant::TimestampMicros(_) => Kind::Timestamp,
        Variant::TimestampNtzMicros(_) => Kind::TimestampNtz,
        Variant::Binary(_) => Kind::Binary,
        Variant::String(_) | Variant::ShortString(_) => Kind::String,
        Variant::Object(_) => Kind::Object,
        Variant::List(_) => Kind::Array,
        Variant::Null
        | Variant::TimestampNanos(_)
        | Variant::TimestampNtzNanos(_)
        | Variant::Time(_)
        | Variant::Uuid(_) => return None,
    })
}

/// The narrowest of the three widths of decimals in files. Whole numbers do not get the one of nine digits: the library treats
/// every integer as such a decimal, and would truncate wider ones.
fn decimal_type((before, behind): (u8, u8)) -> Option<ArrowType> {
    let widths = if behind == 0 { &[18, 38][..] } else { &[9, 18, 38] };
    let precision = *widths.iter().find(|precision| before.saturating_add(behind) <= **precision)?;
    Some(ArrowType::Decimal128(precision, i8::try_from(behind).ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use parquet_variant::{VariantBuilder, VariantDecimal4};

    use super::*;

    fn object(fields: &[(&str, Variant<'_, '_>)]) -> (Vec<u8>, Vec<u8>) {
        let mut builder = VariantBuilder::new();
        let mut object = builder.new_object();
        fields.iter().for_each(|(name, value)| object.insert(name, value.clone()));
        object.finish();
        builder.finish()
    }

    fn sampled(values: &[(Vec<u8>, Vec<u8>)]) -> Sample {
        let mut sample = Sample::new();
        for (metadata, value) in values {
            sample.add(&Variant::try_new(metadata, value).unwrap(), value.len());
        }
        sample
    }

    fn names(data_type: &ArrowType) -> Vec<String> {
        let fields = if let ArrowType::Struct(fields) = data_type { fields } else { &Fields::empty() };
        fields.iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect()
    }

    #[test]
    fn fields_are_shredded_as_their_most_common_type() {
        let price = |unscaled, scale| Variant::from(VariantDecimal4::try_new(unscaled, scale).unwrap());
        let mut values = vec![object(&[("a", 1_i8.into()), ("A", "other case".into()), ("p", price(12345, 2))]); 6];
        values.extend(vec![object(&[("a", "text".into()), ("p", price(1, 5)), ("n", Variant::Null)]); 4]);
        values.extend(vec![object(&[("", 1_i8.into())]); 5]);
        let (data_type, columns) = sampled(&values).shredded_as(MOST_COLUMNS).unwrap();
        assert_eq!(names(&data_type), ["a: Int64", "p: Decimal128(9, 5)"]);
        assert_eq!(columns, 2);
        // One in eleven is not enough.
        let rare =
            [vec![object(&[("a", 1_i8.into()), ("rare", true.into())])], vec![object(&[("a", 1_i8.into())]); 10]];
        assert_eq!(names(&sampled(&rare.concat()).shredded_as(MOST_COLUMNS).unwrap().0), ["a: Int64"]);
    }

    #[test]
    fn what_has_no_typed_column_stays_bytes() {
        for value in [object(&[]), object(&[("n", Variant::Null)])] {
            assert!(sampled(&vec![value; 20]).shredded_as(MOST_COLUMNS).is_none());
        }
        let mut builder = VariantBuilder::new();
        let mut list = builder.new_list();
        let mut inner = list.new_object();
        inner.insert("a", 1_i8);
        inner.finish();
        list.finish();
        assert!(sampled(&[builder.finish()]).shredded_as(MOST_COLUMNS).is_none());
        assert!(Sample::new().shredded_as(MOST_COLUMNS).is_none());
    }

    #[test]
    fn hostile_values_take_bounded_room() {
        let name = |i: usize| format!("field {i:0100}");
        let wide: Vec<String> = (0..20_000).map(name).collect();
        let fields: Vec<_> = wide.iter().map(|name| (name.as_str(), Variant::from(true))).collect();
        let sample = sampled(&[object(&fields)]);
        assert_eq!(sample.nodes, MOST_NODES);
        assert_eq!(sample.shredded_as(MOST_COLUMNS).unwrap().1, FEWEST_COLUMNS);
        let fewer = object(fields.get(..400).unwrap());
        let sample = sampled(&vec![fewer; SAMPLED_ROWS]);
        assert_eq!(sample.shredded_as(MOST_COLUMNS).unwrap().1, MOST_COLUMNS);
        assert_eq!(sample.shredded_as(7).unwrap().1, 7);
        let mut builder = VariantBuilder::new();
        let text = "x".repeat(SAMPLED_BYTES + 1);
        builder.append_value(text.as_str());
        assert!(sampled(&[builder.finish()]).shredded_as(MOST_COLUMNS).is_none());
    }
}
