//! Scalars: their string forms, Arrow forms and order.

use std::cmp::Ordering;

use deltic_protocol::error::Kind;
use deltic_protocol::scalar::{Scalar, parse_decimal, parse_timestamp, parse_timestamp_ntz};
use deltic_protocol::schema::PrimitiveType;

fn check(data_type: &PrimitiveType, text: &str, expected: Option<Scalar>, printed: &str) {
    let parsed = Scalar::parse(text, data_type);
    assert_eq!(parsed, expected, "{text}");
    if let Some(value) = parsed {
        assert_eq!(value.to_string(), printed, "{text}");
    }
}

#[test]
fn dates() {
    let date = |text, days: Option<i32>, printed| check(&PrimitiveType::Date, text, days.map(Scalar::Date), printed);
    date("1970-01-01", Some(0), "1970-01-01");
    date("1969-12-31", Some(-1), "1969-12-31");
    date("2000-02-29", Some(11_016), "2000-02-29");
    date("2020-2-9", Some(18_301), "2020-02-09");
    date("9999-12-31", Some(2_932_896), "9999-12-31");
    date("+10000-01-01", Some(2_932_897), "+10000-01-01");
    date("10000-01-01", Some(2_932_897), "+10000-01-01");
    date("0001-01-01", Some(-719_162), "0001-01-01");
    date("0000-12-31", Some(-719_163), "0000-12-31");
    date("-0001-12-31", Some(-719_529), "-0001-12-31");
    date("+5881580-07-11", Some(i32::MAX), "+5881580-07-11");
    date("-5877641-06-23", Some(i32::MIN), "-5877641-06-23");
    for text in ["", "2020", "2020-01", "2020-02-30", "1900-02-29", "2020-00-01", "2020-13-01", "2020-01-01-01"] {
        date(text, None, "");
    }
    for text in ["+5881580-07-12", "-5877641-06-22", "99999999-01-01", "20-01-01", "x020-01-01", "2020-01-0é", "--1-1"]
    {
        date(text, None, "");
    }
}

#[test]
fn timestamps() {
    let at = |text, micros| assert_eq!(parse_timestamp(text), micros, "{text}");
    at("1970-01-01 00:00:00", Some(0));
    at("1970-01-01T00:00:00Z", Some(0));
    at("1970-01-01", Some(0));
    at("1970-01-01 00:00", Some(0));
    at("1970-01-01 00:00:00.000001", Some(1));
    at("1970-01-01 00:00:00.1", Some(100_000));
    at("1970-01-01 00:00:00.1234567", Some(123_456));
    at("1969-12-31T23:59:59.999999Z", Some(-1));
    at("1970-01-01T01:00:00+01:00", Some(0));
    at("1970-01-01T01:00:00.000+0100", Some(0));
    at("1970-01-01 01:00:00+01", Some(0));
    at("1970-01-01 01:00:00 +01:00", Some(0));
    at("1969-12-31T16:00:00.000-08:00", Some(0));
    at("1970-01-01T00:00:28+00:00:28", Some(0));
    at("1970-01-01 00:00:00 UTC", Some(0));
    at("+294247-01-10T04:00:54.775807Z", Some(i64::MAX));
    at("-290308-12-21T19:59:05.224192Z", Some(i64::MIN));
    for text in [
        "",
        "1970-01-01T",
        "1970-01-01T24:00:00",
        "1970-01-01T00:60:00",
        "1970-01-01T00:00:60",
        "1970-01-01T00:00:00.x",
        "1970-01-01T00:00:00+19:00",
        "1970-01-01T00:00:00+01:60",
        "1970-01-01T00:00:00 Europe/Berlin",
        "1970-01-01T00:00:00é",
        "+294247-01-10T04:00:54.775808Z",
        "-290308-12-21T19:59:05.224191Z",
        "+294247-01-10T04:00:54.775807-18:00",
        "1970-02-30 00:00:00",
    ] {
        at(text, None);
    }
    assert_eq!(parse_timestamp_ntz("1970-01-01 00:00:01"), Some(1_000_000));
    assert_eq!(parse_timestamp_ntz("1970-01-01T00:00:01Z"), None);
    assert_eq!(Scalar::Timestamp(0).to_string(), "1970-01-01T00:00:00.000000Z");
    assert_eq!(Scalar::TimestampNtz(-1).to_string(), "1969-12-31 23:59:59.999999");
}

#[test]
fn floats() {
    let double = |text, value: Option<f64>, printed| {
        check(&PrimitiveType::Double, text, value.map(Scalar::Double), printed);
    };
    double("1", Some(1.0), "1.0");
    double("0.001", Some(0.001), "0.001");
    double("1.0E-4", Some(1e-4), "1.0E-4");
    double("9999999", Some(9_999_999.0), "9999999.0");
    double("1e7", Some(1e7), "1.0E7");
    double("-1.5E300", Some(-1.5e300), "-1.5E300");
    double("-0.0", Some(-0.0), "-0.0");
    double("Infinity", Some(f64::INFINITY), "Infinity");
    double("-Infinity", Some(f64::NEG_INFINITY), "-Infinity");
    double("inf", Some(f64::INFINITY), "Infinity");
    double("one", None, "");
    assert!(Scalar::parse("NaN", &PrimitiveType::Double).unwrap().is_nan());
    assert_eq!(Scalar::Double(f64::NAN).to_string(), "NaN");
    check(&PrimitiveType::Float, "0.1", Some(Scalar::Float(0.1)), "0.1");
    check(&PrimitiveType::Float, "3.4028235E38", Some(Scalar::Float(f32::MAX)), "3.4028235E38");
}

#[test]
fn decimals() {
    assert_eq!(parse_decimal("1.50", 5, 2), Some(150));
    assert_eq!(parse_decimal("-1.5", 5, 2), Some(-150));
    assert_eq!(parse_decimal("15e-1", 5, 2), Some(150));
    assert_eq!(parse_decimal("1.500", 5, 2), Some(150));
    assert_eq!(parse_decimal("1.505", 5, 2), None);
    assert_eq!(parse_decimal("1000", 5, 2), None);
    assert_eq!(parse_decimal("1e2147483647", 38, 0), None);
    assert_eq!(parse_decimal("0e2147483647", 38, 38), Some(0));
    assert_eq!(parse_decimal(".", 5, 2), None);
    assert_eq!(parse_decimal("", 5, 2), None);
    assert_eq!(Scalar::Decimal { value: -5, precision: 5, scale: 2 }.to_string(), "-0.05");
}

#[test]
fn spaces_around_partition_values() {
    use PrimitiveType as P;
    let decimal = P::Decimal { precision: 5, scale: 2 };
    for kind in [P::Byte, P::Short, P::Integer, P::Long, P::Float, P::Double, decimal] {
        let read = |text: &str| Scalar::parse_partition(Some(text), &kind);
        assert_eq!(read("  7 ").unwrap(), read("7").unwrap(), "{kind}");
        for text in [" ", "1 2", "\t7", "7\u{a0}"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("is not a") && error.contains("in a partition value"), "{error}");
        }
    }
    assert_eq!(Scalar::parse_partition(Some(" true "), &P::Boolean).unwrap(), Scalar::Boolean(true));
    assert_eq!(Scalar::parse_partition(Some(" x "), &P::String).unwrap(), Scalar::String(" x ".into()));
    // Spark casts these, other readers do not or differently.
    for (text, kind) in [("7.0", P::Integer), ("t", P::Boolean), ("1", P::Boolean), ("2024-01", P::Date)] {
        assert!(Scalar::parse_partition(Some(text), &kind).is_err(), "{text}");
    }
}

#[test]
fn binary_partition_values() {
    let read = |text: &str| Scalar::parse_partition(Some(text), &PrimitiveType::Binary).unwrap();
    assert_eq!(read("abc"), Scalar::Binary(b"abc".to_vec()));
    assert_eq!(read("\u{1}\u{2}"), Scalar::Binary(vec![1, 2]));
    assert_eq!(read("é"), Scalar::Binary("é".as_bytes().to_vec()));
    // Escapes count only if the string has nothing else.
    assert_eq!(read("\\u0001\\u00fF"), Scalar::Binary(vec![1, 255]));
    assert_eq!(read("\\u0001x"), Scalar::Binary(b"\\u0001x".to_vec()));
    assert_eq!(read("\\u0101"), Scalar::Binary(b"\\u0101".to_vec()));
    assert_eq!(read("\\u00+1"), Scalar::Binary(b"\\u00+1".to_vec()));
    assert_eq!(read(""), Scalar::Null);

    let printed = |bytes: &[u8]| Scalar::Binary(bytes.to_vec()).print_partition();
    assert_eq!(printed(b"abc").unwrap().as_deref(), Some("abc"));
    assert_eq!(printed(b"").unwrap(), None);
    assert_eq!(*printed(&[0xff]).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(*printed(b"\\u0001").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(Scalar::parse_partition(None, &PrimitiveType::Long).unwrap(), Scalar::Null);
    assert_eq!(*Scalar::parse_partition(Some("x"), &PrimitiveType::Long).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn floats_have_the_order_of_spark() {
    let ascending = [f64::NEG_INFINITY, -1.0, 0.0, 1.0, f64::INFINITY, f64::NAN];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(Scalar::Double(*a).compare(&Scalar::Double(*b)), Some(i.cmp(&j)));
            assert_eq!(Scalar::Float(*a as f32).compare(&Scalar::Float(*b as f32)), Some(i.cmp(&j)));
        }
    }
    assert_eq!(Scalar::Double(-0.0).compare(&Scalar::Double(0.0)), Some(Ordering::Equal));
    assert_eq!(Scalar::Null.compare(&Scalar::Null), None);
    assert_eq!(Scalar::Long(1).compare(&Scalar::Integer(1)), None);
}

mod properties {
    use proptest::prelude::*;

    use super::super::predicate::{generate_pool, generate_types};
    use super::*;

    fn check_round_trip(value: &Scalar, data_type: &PrimitiveType) {
        let array = value.to_array(data_type, 2).unwrap();
        assert_eq!(format!("{:?}", Scalar::from_array(&array, 1).unwrap()), format!("{value:?}"));
        let column = Scalar::to_column(&[Scalar::Null, value.clone()], data_type).unwrap();
        assert_eq!(column.data_type(), array.data_type());
        assert_eq!(format!("{:?}", Scalar::from_array(&column, 1).unwrap()), format!("{value:?}"));
        assert_eq!(Scalar::from_array(&column, 0).unwrap(), Scalar::Null);
        let Ok(Some(text)) = value.print_partition() else { return };
        let read = Scalar::parse_partition(Some(&text), data_type).unwrap();
        // The sign of a NaN is not printed.
        assert!(value.compare(&read) == Some(Ordering::Equal), "{value:?} {text} {read:?}");
    }

    #[test]
    fn extreme_values_round_trip() {
        for data_type in generate_types() {
            for value in generate_pool(&data_type) {
                check_round_trip(&value, &data_type);
            }
        }
    }

    proptest! {
        #![proptest_config(crate::cases(3000))]

        #[test]
        fn partition_value_round_trips(
            long in any::<i64>(), days in any::<i32>(), float in any::<f32>(), double in any::<f64>(),
            digits in -10_i128.pow(38) + 1..10_i128.pow(38), scale in 0_u8..=38,
            text in ".{1,12}", bytes in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let decimal = PrimitiveType::Decimal { precision: 38, scale };
            for (value, data_type) in [
                (Scalar::Long(long), PrimitiveType::Long),
                (Scalar::Date(days), PrimitiveType::Date),
                (Scalar::Timestamp(long), PrimitiveType::Timestamp),
                (Scalar::TimestampNtz(long), PrimitiveType::TimestampNtz),
                (Scalar::Float(float), PrimitiveType::Float),
                (Scalar::Double(double), PrimitiveType::Double),
                (Scalar::Decimal { value: digits, precision: 38, scale }, decimal),
                (Scalar::Binary(text.as_bytes().to_vec()), PrimitiveType::Binary),
                (Scalar::String(text), PrimitiveType::String),
                (Scalar::Binary(bytes), PrimitiveType::Binary),
            ] {
                check_round_trip(&value, &data_type);
            }
        }

        /// Usual forms have a faster parser, which must agree with the general one.
        #[test]
        fn fast_parsers_agree_with_the_general_ones(
            year in 0..10_000, month in 0..14, day in 0..33, time in (0..25, 0..61, 0..61), fraction in "(\\.[0-9]{0,7})?",
            number in "-?[0-9]{0,20}(\\.[0-9]{0,8})?", precision in 1_u8..=38, scale in 0_u8..10,
        ) {
            let date = format!("{year:04}-{month:02}-{day:02}");
            let read = |text: &str| Scalar::parse(text, &PrimitiveType::Date);
            prop_assert_eq!(read(&date), read(&format!("+{date}")));
            let instant = format!("{date}T{:02}:{:02}:{:02}{fraction}", time.0, time.1, time.2);
            prop_assert_eq!(parse_timestamp(&format!("{instant}Z")), parse_timestamp(&format!("{instant}+00:00")));
            let decimal = |text: &str| parse_decimal(text, precision, scale.min(precision));
            prop_assert_eq!(decimal(&number), decimal(&format!("{number}e0")));
        }

        #[test]
        fn reading_text_never_panics(text in "[0-9+:TZ. eEuxna\\\\-]{0,30}|.{0,12}") {
            for data_type in generate_types() {
                let _ = Scalar::parse(&text, &data_type);
            }
        }
    }

    use arrow_array::Array;
}
