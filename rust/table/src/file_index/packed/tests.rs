//! Unpacking gives what was packed, and packed columns are small.

use arrow_array::builder::{Decimal128Builder, StringBuilder};
use arrow_array::{BinaryArray, BooleanArray, Date32Array, Int16Array, StringArray, TimestampMicrosecondArray};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Checks that any rows of a packed column equal those of the column.
fn check(values: &Values, rows: usize) {
    let packed = Packed::of(values).unwrap();
    let same = |unpacked: &Values, expected: &Values| assert_eq!(arrays(unpacked), arrays(expected));
    for (start, length) in [(0, rows), (rows / 2, rows - rows / 2), (rows / 3, rows / 3), (rows, 0)] {
        same(&packed.range(start, length).unwrap(), &values.slice(start, length).unwrap());
    }
    for step in [1, 2, 7, 1500] {
        let chosen = BooleanBuffer::collect_bool(rows, |row| row % step == step / 2);
        let mask = BooleanArray::new(chosen.clone(), None);
        let filtered = |array: &ArrayRef| filter(array, &mask).unwrap();
        let found = arrays(&packed.select(&chosen).unwrap());
        assert_eq!(found, arrays(values).iter().map(filtered).collect::<Vec<_>>());
    }
}

/// All arrays of a column, floats as their bits: floats that compare equal may have different bits.
fn arrays(values: &Values) -> Vec<ArrayRef> {
    let arrays: Vec<ArrayRef> = match values {
        Values::Rows(rows) => vec![Arc::new(BooleanArray::new(rows.clone(), None))],
        Values::Array(array) => vec![array.clone()],
        Values::Encoded(few) => vec![few.all().unwrap()],
        Values::Bounds { min, max, counts } => {
            let counts = counts.iter().flat_map(|counts| [counts.nulls.clone(), counts.records.clone()]);
            [min.clone(), max.clone()].into_iter().chain(counts.map(|counts| Arc::new(counts) as _)).collect()
        }
    };
    let bits = |array: ArrayRef| match array.as_primitive_opt::<Float64Type>() {
        Some(floats) => Arc::new(floats.unary::<_, Int64Type>(|float| float.to_bits().cast_signed())) as ArrayRef,
        None => array,
    };
    arrays.into_iter().map(bits).collect()
}

fn check_array(array: impl Array + 'static) {
    let rows = array.len();
    check(&Values::Array(Arc::new(array)), rows);
}

/// A column with a few kinds of values, so that there are runs, ranges and exceptions, over a few blocks.
fn column<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<Option<T>>> {
    let few = proptest::collection::vec(proptest::option::weighted(0.9, value), 1..40);
    let order = prop_oneof![Just(0), 1..50_usize];
    (few, 0..2100_usize, order)
        .prop_map(|(few, rows, step)| (0..rows).map(|row| few[(row * step + row / 900) % few.len()].clone()).collect())
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -5..300_i64,
        (0..1_000_000_i64).prop_map(|v| v * 1_000_000),
        select(vec![0, i64::MIN, i64::MAX, -1, 1_700_000_000_000]),
    ]
}

fn float() -> impl Strategy<Value = f64> {
    let decimal = (-100_000..100_000_i64).prop_map(|v| v as f64 / 100.0);
    let few = select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::MIN, f64::MIN_POSITIVE, 1e300, 0.1]);
    prop_oneof![6 => decimal, 1 => any::<u64>().prop_map(f64::from_bits), 1 => few]
}

fn text() -> impl Strategy<Value = String> {
    let uuid = any::<u128>().prop_map(|bits| uuid::Uuid::from_u128(bits).to_string());
    let odd = "[0-9a-fA-F/_é-]{0,45}";
    let few = select(vec![
        "",
        "/",
        "a/",
        "//",
        "-",
        "0",
        "00000000-0000-0000-0000-00000000000g",
        "\u{10FFFF}",
        "9999999999999999999999",
    ]);
    prop_oneof![
        4 => (0..30_u32, 0..100_000_u32, uuid.clone()).prop_map(|(d, n, u)| format!("d=2020-01-{d:02}/part-{n:05}-{u}.c000.parquet")),
        1 => uuid.clone(),
        1 => uuid.prop_map(|uuid| uuid.to_uppercase()),
        2 => (0..5000_u32).prop_map(|n| format!("customer {n}")),
        2 => odd,
        1 => ".{0,20}",
        1 => few.prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_packed_is_unpacked(
        integers in column(integer()),
        others in column(integer()),
        floats in column(float()),
        texts in column(text()),
        distinct in proptest::collection::vec(text(), 0..300),
        decimals in column(prop_oneof![(-5..5_i128).prop_map(|v| v * 10_i128.pow(30)), -9_i128..1_000]),
        narrow in any::<bool>(),
    ) {
        check_array(Int64Array::from(integers.clone()));
        check_array(TimestampMicrosecondArray::from(integers.clone()).with_timezone("UTC"));
        check_array(Date32Array::from_iter(integers.iter().map(|v| v.map(|v| v as i32))));
        check_array(Int16Array::from_iter(integers.iter().map(|v| v.map(|v| v as i16))));
        check_array(BinaryArray::from_iter(texts.iter().map(|v| v.as_ref().map(String::as_bytes))));
        check_array(BooleanArray::from_iter(integers.iter().map(|v| v.map(|v| v > 0))));
        check_array(Float64Array::from(floats));
        let mut column = StringBuilder::new();
        texts.iter().for_each(|text| column.append_option(text.as_ref()));
        check_array(column.finish());
        check_array(StringArray::from_iter_values(&distinct));
        let mut column = Decimal128Builder::new().with_precision_and_scale(38, 4).unwrap();
        decimals.iter().for_each(|v| column.append_option(v.filter(|v| !narrow || v.abs() < 1_000)));
        check_array(column.finish());
        // Bounds that are far from each other, near, and with counts.
        let rows = integers.len().min(others.len());
        let (min, max) = (Int64Array::from(integers[..rows].to_vec()), Int64Array::from(others[..rows].to_vec()));
        let near = min.unary::<_, Int64Type>(|v| v.wrapping_add(v & 7));
        let counts = Counts { nulls: max.clone(), records: Int64Array::new_null(rows) };
        check(&Values::Bounds { min: Arc::new(min.clone()), max: Arc::new(max.clone()), counts: None }, rows);
        check(&Values::Bounds { min: Arc::new(min), max: Arc::new(near), counts: Some(counts) }, rows);
        check(&Values::Rows(others.iter().map(Option::is_some).collect()), others.len());
    }
}

#[test]
fn paths_take_half_a_byte_for_each_digit() {
    let uuid = |row: u128| uuid::Uuid::from_u128(row.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
    let path = |row: u32| {
        let day = row.wrapping_mul(2_654_435_761) % 28 + 1;
        format!("day=2024-02-{day:02}/part-{:05}-{}.c000.snappy.parquet", row % 200, uuid(u128::from(row)))
    };
    let paths: ArrayRef = Arc::new(StringArray::from_iter_values((0..50_000).map(path)));
    let each = |bytes: usize| bytes as f64 / 50_000.0;
    assert!(each(paths.get_array_memory_size()) > 80.0);
    let packed = Packed::of(&Values::Array(paths)).unwrap().bytes();
    assert!(each(packed) < 30.0, "{packed}");
}

#[test]
fn a_strange_path_does_not_cost_all_others() {
    let normal = |row: u32| format!("part-{row:05}.parquet");
    let uuids = "d1f3b9a0-0000-4000-8000-00000000000f-".repeat(2_000);
    for strange in ["1a".repeat(100_000), uuids, "1a".repeat(500)] {
        let paths = StringArray::from_iter_values((0..5_000).map(normal).chain([strange.clone()]));
        let packed = Packed::of(&Values::Array(Arc::new(paths.clone()))).unwrap().bytes();
        assert!(packed < strange.len() + 50_000, "{packed}");
        check_array(paths);
    }
}

#[test]
fn numbers_take_the_bits_of_their_spread() {
    let rows = 50_000_i64;
    let check = |values: Values, most: f64| {
        let packed = Packed::of(&values).unwrap().bytes() as f64 / rows as f64;
        assert!(packed < most, "{packed} bytes a row");
    };
    let array = |array: Int64Array| Values::Array(Arc::new(array));
    check(array(Int64Array::from_iter_values((0..rows).map(|_| 1000))), 0.1);
    check(array(Int64Array::from_iter_values((0..rows).map(|row| 1_700_000_000_000 + row * 7919 % 1024))), 1.4);
    check(array(Int64Array::new_null(rows as usize)), 0.1);
    let keys = Int64Array::from_iter_values((0..rows).map(|row| row * 7919 % rows * 1_000_000));
    let ends: Int64Array = keys.unary(|key| key + 999_999);
    check(Values::Bounds { min: Arc::new(keys), max: Arc::new(ends), counts: None }, 2.2);
    let prices = Float64Array::from_iter_values((0..rows).map(|row| (row * 7919 % 5000) as f64 / 100.0));
    check(Values::Array(Arc::new(prices)), 1.8);
}
