use proptest::prelude::*;

use super::{Draw, Table, evaluate_naively, keep, letters, parse};
use deltic_protocol::expression::{Expression, Name};
use deltic_protocol::predicate::Predicate;

fn numbers() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 1..120)
}

proptest! {
    #![proptest_config(crate::cases(4000))]

    #[test]
    fn print_parse_round_trip(numbers in numbers()) {
        let mut draw = Draw::new(numbers);
        let table = Table::draw(&mut draw, 0);
        let predicate = table.predicate(&mut draw, 4);
        let printed = predicate.to_string();
        // Compared in debug form, since NaN is not equal to itself.
        prop_assert_eq!(format!("{:?}", parse(&printed).unwrap()), format!("{predicate:?}"), "{}", printed);
    }

    #[test]
    fn odd_names_round_trip(path in proptest::collection::vec("[a-zA-Z0-9_`. '\"é\n]{1,8}|(?i)in|null|date|x", 1..4)) {
        let text = format!("{} IS NULL", Name(path.clone()));
        match parse(&text).unwrap() {
            Predicate(Expression::IsNull { operand, .. }) => prop_assert_eq!(*operand, Expression::Column(Name(path))),
            other => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn parsing_never_panics(text in "[aNnOoTtIiDdRr0-9=<>!'`\"()., \\-+eEX%é\n]{0,40}|.{0,40}") {
        if let Ok(predicate) = parse(&text) {
            prop_assert_eq!(format!("{:?}", parse(&predicate.to_string()).unwrap()), format!("{predicate:?}"));
        }
    }

    #[test]
    fn evaluate_is_exact(numbers in numbers()) {
        let mut draw = Draw::new(numbers);
        let table = Table::draw(&mut draw, 12);
        let predicate = table.predicate(&mut draw, 3);
        let bound = predicate.bind(&table.schema()).unwrap();
        let result = bound.evaluate(&table.batch()).unwrap();
        let naive: arrow_array::BooleanArray = table
            .rows
            .iter()
            .map(|row| {
                evaluate_naively(&predicate.0, &|name| {
                    let i = table.columns.iter().position(|column| column.name == *name).unwrap();
                    (row[i].clone(), table.columns[i].data_type.clone())
                })
            })
            .collect();
        prop_assert_eq!(letters(&result), letters(&naive), "{}\n{:?}\n{:#?}", predicate, bound, table);
        prop_assert_eq!(keep(&result).true_count(), naive.iter().filter(|v| *v == Some(true)).count());
    }
}
