//! The names of Arrow types as Arrow's documentation and its Python package spell them, for messages about types that Delta
//! does not have.

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionMode};

use super::json::MAX_DEPTH;

/// Arrow's own name of a type: `uint64`, `time64[us]`, `list<item: duration[ns]>`.
pub(super) fn arrow_name(data_type: &DataType) -> String {
    name_at(data_type, 0)
}

fn name_at(data_type: &DataType, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "…".to_owned();
    }
    let inside = |field: &Field| format!("{}: {}", field.name(), name_at(field.data_type(), depth + 1));
    let name = match data_type {
        DataType::Null => "null",
        DataType::Boolean => "bool",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float16 => "halffloat",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 => "string",
        DataType::LargeUtf8 => "large_string",
        DataType::Utf8View => "string_view",
        DataType::Binary => "binary",
        DataType::LargeBinary => "large_binary",
        DataType::BinaryView => "binary_view",
        DataType::Date32 => "date32[day]",
        DataType::Date64 => "date64[ms]",
        DataType::Interval(IntervalUnit::YearMonth) => "month_interval",
        DataType::Interval(IntervalUnit::DayTime) => "day_time_interval",
        DataType::Interval(IntervalUnit::MonthDayNano) => "month_day_nano_interval",
        DataType::FixedSizeBinary(size) => return format!("fixed_size_binary[{size}]"),
        DataType::Timestamp(unit, None) => return format!("timestamp[{}]", short(*unit)),
        DataType::Timestamp(unit, Some(zone)) => return format!("timestamp[{}, tz={zone}]", short(*unit)),
        DataType::Time32(unit) => return format!("time32[{}]", short(*unit)),
        DataType::Time64(unit) => return format!("time64[{}]", short(*unit)),
        DataType::Duration(unit) => return format!("duration[{}]", short(*unit)),
        DataType::Decimal32(precision, scale) => return format!("decimal32({precision}, {scale})"),
        DataType::Decimal64(precision, scale) => return format!("decimal64({precision}, {scale})"),
        DataType::Decimal128(precision, scale) => return format!("decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => return format!("decimal256({precision}, {scale})"),
        DataType::List(item) => return format!("list<{}>", inside(item)),
        DataType::LargeList(item) => return format!("large_list<{}>", inside(item)),
        DataType::ListView(item) => return format!("list_view<{}>", inside(item)),
        DataType::LargeListView(item) => return format!("large_list_view<{}>", inside(item)),
        DataType::FixedSizeList(item, size) => return format!("fixed_size_list<{}>[{size}]", inside(item)),
        DataType::Struct(fields) => {
            return format!("struct<{}>", fields.iter().map(|field| inside(field)).collect::<Vec<_>>().join(", "));
        }
        DataType::Map(entries, _) => return format!("map<{}>", inside(entries)),
        DataType::Dictionary(indices, values) => {
            let (values, indices) = (name_at(values, depth + 1), name_at(indices, depth + 1));
            return format!("dictionary<values={values}, indices={indices}>");
        }
        DataType::RunEndEncoded(ends, values) => {
            return format!("run_end_encoded<{}, {}>", inside(ends), inside(values));
        }
        DataType::Union(fields, mode) => {
            let mode = match mode {
                UnionMode::Sparse => "sparse",
                UnionMode::Dense => "dense",
            };
            let members: Vec<String> = fields.iter().map(|(_, field)| inside(field)).collect();
            return format!("{mode}_union<{}>", members.join(", "));
        }
    };
    name.to_owned()
}

fn short(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
