use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StructArray};
use deltic_protocol::error::Kind;
use deltic_protocol::expression::{evaluate, parse_expression};
use deltic_protocol::predicate::{Predicate, parse};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::DataType;
use deltic_protocol::schema::arrow::{to_arrow_fields, to_arrow_schema, to_arrow_type};
use proptest::prelude::*;

use super::super::predicate::{Draw, generate_pool, letters};
use super::generate::expression;
use super::schema;

fn numbers() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 1..160)
}

fn rows(draw: &mut Draw) -> RecordBatch {
    let schema = schema();
    let values = |draw: &mut Draw, data_type: &DataType| -> ArrayRef {
        let primitive = data_type.as_primitive().unwrap();
        let one = |draw: &mut Draw| if draw.once_in(4) { Scalar::Null } else { draw.pick(&generate_pool(primitive)) };
        let values: Vec<Scalar> = (0..9).map(|_| one(draw)).map(|v| fitted(v, primitive)).collect();
        Scalar::to_column(&values, primitive).unwrap()
    };
    let columns = schema.fields.iter().map(|field| match &field.data_type {
        DataType::Struct(inner) => {
            let child = values(draw, &inner.fields[0].data_type);
            Arc::new(StructArray::new(to_arrow_fields(inner), vec![child], None)) as ArrayRef
        }
        other => values(draw, other),
    });
    let columns = columns.collect();
    RecordBatch::try_new(Arc::new(to_arrow_schema(&schema)), columns).unwrap()
}

/// Gives decimals of the pool the type of the column.
fn fitted(value: Scalar, of: &deltic_protocol::schema::PrimitiveType) -> Scalar {
    match (value, of) {
        (Scalar::Decimal { value, .. }, deltic_protocol::schema::PrimitiveType::Decimal { precision, scale }) => {
            let most = 10_i128.pow(u32::from(*precision)) - 1;
            Scalar::Decimal { value: value.clamp(-most, most), precision: *precision, scale: *scale }
        }
        (other, _) => other,
    }
}

proptest! {
    #![proptest_config(crate::cases(3000))]

    #[test]
    fn print_parse_round_trip(numbers in numbers()) {
        let tree = expression(&mut Draw::new(numbers), 4);
        let printed = tree.to_string();
        let parsed = match parse_expression(&printed) {
            Ok(parsed) => parsed,
            Err(error) => return Err(TestCaseError::fail(format!("{printed}: {error}"))),
        };
        prop_assert_eq!(format!("{parsed:?}"), format!("{tree:?}"), "{}", printed);
        // The same as a filter.
        let predicate = Predicate(tree);
        if let Ok(parsed) = parse(&predicate.to_string()) {
            prop_assert_eq!(format!("{parsed:?}"), format!("{predicate:?}"), "{}", predicate);
        }
    }

    #[test]
    fn evaluation_gives_its_type_or_an_error(numbers in numbers()) {
        let mut draw = Draw::new(numbers);
        let tree = expression(&mut draw, 4);
        let batch = rows(&mut draw);
        let bound = match tree.bind(&schema()) {
            Ok(bound) => bound,
            Err(error) => {
                prop_assert!(matches!(error.kind(), Kind::Invalid | Kind::Unsupported { .. }), "{tree}: {error}");
                return Ok(());
            }
        };
        match evaluate(&bound, &batch) {
            Ok(values) => {
                prop_assert_eq!(values.len(), batch.num_rows());
                prop_assert_eq!(values.data_type(), &to_arrow_type(bound.data_type()), "{}", tree);
                // Row by row the values are the same.
                for row in 0..batch.num_rows() {
                    let one = evaluate(&bound, &batch.slice(row, 1)).unwrap();
                    prop_assert_eq!(&one.to_data(), &values.slice(row, 1).to_data(), "{}", tree);
                }
            }
            Err(error) => {
                prop_assert!(matches!(error.kind(), Kind::Invalid), "{tree}: {error}");
                let fails = (0..batch.num_rows()).any(|row| evaluate(&bound, &batch.slice(row, 1)).is_err());
                prop_assert!(fails, "{tree}: the batch fails, but no row does: {error}");
            }
        }
    }

    /// A filter has the rows of the expression, but for what a literal with a fraction means beside a column.
    #[test]
    fn a_filter_is_the_expression(numbers in numbers()) {
        let mut draw = Draw::new(numbers);
        let tree = expression(&mut draw, 4);
        let batch = rows(&mut draw);
        let parts = format!("{tree:?}").to_lowercase();
        let has_fraction = ["float", "double", "decimal", "divide"].iter().any(|word| parts.contains(word));
        let (Ok(filter), Ok(bound)) = (Predicate(tree.clone()).bind(&schema()), tree.bind(&schema())) else {
            return Ok(());
        };
        let (Ok(kept), Ok(values), false) = (filter.evaluate(&batch), evaluate(&bound, &batch), has_fraction) else {
            return Ok(());
        };
        // NULL as a filter is a NULL of no type.
        if let Some(values) = values.as_boolean_opt() {
            prop_assert_eq!(letters(&kept), letters(values), "{}\n{:?}", tree, filter);
        }
    }

    #[test]
    fn parsing_never_panics(text in "[aCnWoTtIiDdREST0-9=<>!'`\"()., |:*/%\\-+eLBX\\\\é\n]{0,50}|.{0,40}") {
        if let Ok(tree) = parse_expression(&text) {
            prop_assert_eq!(format!("{:?}", parse_expression(&tree.to_string()).unwrap()), format!("{tree:?}"));
        }
    }
}
