//! Pruning: which containers are kept for which bounds.

use arrow_array::{ArrayRef, Int64Array};
use arrow_buffer::BooleanBuffer;
use deltic_protocol::error::{Kind, Result};
use deltic_protocol::predicate::{Column, parse};
use deltic_protocol::prune::{Bounds, always, keep};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

use super::predicate::{check_cases, compact, parse_literal};

/// Bounds of some columns.
#[derive(Debug, Default)]
struct Known {
    containers: usize,
    rows: Option<Vec<Option<i64>>>,
    columns: Vec<KnownColumn>,
}

#[derive(Debug)]
struct KnownColumn {
    name: String,
    min: Option<Vec<Scalar>>,
    max: Option<Vec<Scalar>>,
    nulls: Option<Vec<Option<i64>>>,
    exact: bool,
}

impl Known {
    fn column(&self, column: &Column) -> Option<&KnownColumn> {
        self.columns.iter().find(|known| known.name == column.to_string())
    }

    fn array(values: Option<&Vec<Scalar>>, column: &Column) -> Result<Option<ArrayRef>> {
        values.map(|values| Scalar::to_column(values, column.primitive()?)).transpose()
    }
}

impl Bounds for Known {
    fn containers(&self) -> usize {
        self.containers
    }

    fn min(&self, column: &Column) -> Result<Option<ArrayRef>> {
        Self::array(self.column(column).and_then(|known| known.min.as_ref()), column)
    }

    fn max(&self, column: &Column) -> Result<Option<ArrayRef>> {
        Self::array(self.column(column).and_then(|known| known.max.as_ref()), column)
    }

    fn null_count(&self, column: &Column) -> Result<Option<Int64Array>> {
        Ok(self.column(column).and_then(|known| known.nulls.clone()).map(Int64Array::from))
    }

    fn row_count(&self) -> Result<Option<Int64Array>> {
        Ok(self.rows.clone().map(Int64Array::from))
    }

    fn is_exact(&self, column: &Column) -> bool {
        self.column(column).is_some_and(|known| known.exact)
    }
}

struct Case {
    schema: StructType,
    known: Known,
}

/// Parses lines `column <name> <type> [exact]`, each followed by its `min`, `max` and `nulls`; `rows`; and predicates, which
/// begin with `?`. Lines of values have one value per container; `?` is unknown, strings are quoted.
fn read_case(input: &str) -> (Case, Vec<&str>) {
    let (mut known, mut fields, mut predicates) = (Known::default(), Vec::new(), Vec::new());
    let mut types: Vec<PrimitiveType> = Vec::new();
    let counts = |words: &[&str]| Some(words.iter().map(|w| w.parse().ok()).collect::<Vec<Option<i64>>>());
    for line in input.lines() {
        if let Some(predicate) = line.strip_prefix("? ") {
            predicates.push(predicate);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |word: &&str| match (*word, types.last().unwrap()) {
            ("?", _) => Scalar::Null,
            (word, PrimitiveType::Binary) => parse_literal(word),
            (word, data_type) => Scalar::parse(word.trim_matches('\''), data_type).unwrap(),
        };
        match words.as_slice() {
            ["rows", rest @ ..] => {
                known.containers = rest.len();
                known.rows = counts(rest);
            }
            ["min", rest @ ..] => {
                let min = rest.iter().map(value).collect();
                known.columns.last_mut().unwrap().min = Some(min);
            }
            ["max", rest @ ..] => {
                let max = rest.iter().map(value).collect();
                known.columns.last_mut().unwrap().max = Some(max);
            }
            ["nulls", rest @ ..] => known.columns.last_mut().unwrap().nulls = counts(rest),
            ["column", name, data_type, rest @ ..] => {
                let primitive = primitive(data_type);
                fields.push(StructField::new(*name, DataType::Primitive(primitive.clone()), true));
                types.push(primitive);
                let exact = rest == ["exact"];
                let column = KnownColumn { name: (*name).to_owned(), min: None, max: None, nulls: None, exact };
                known.columns.push(column);
            }
            other => panic!("{other:?}"),
        }
    }
    (Case { schema: StructType::new(fields), known }, predicates)
}

fn primitive(name: &str) -> PrimitiveType {
    let all = [
        PrimitiveType::Integer,
        PrimitiveType::Long,
        PrimitiveType::Double,
        PrimitiveType::Float,
        PrimitiveType::String,
        PrimitiveType::Binary,
        PrimitiveType::Boolean,
        PrimitiveType::Date,
        PrimitiveType::Timestamp,
        PrimitiveType::Decimal { precision: 5, scale: 2 },
    ];
    all.into_iter().find(|p| p.to_string() == name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Per container: `A` if all rows match for certain, `k` if it is kept, `.` if it is dropped.
fn verdict(kept: &BooleanBuffer, certain: &BooleanBuffer) -> String {
    let letter = |(kept, certain): (bool, bool)| match (kept, certain) {
        (true, true) => 'A',
        (true, false) => 'k',
        (false, _) => '.',
    };
    kept.iter().zip(certain.iter()).map(letter).collect()
}

#[test]
fn prune_cases() {
    check_cases("prune", |input| {
        let (case, predicates) = read_case(input);
        let answer = |text: &&str| {
            let bound = parse(text).unwrap().bind(&case.schema).unwrap();
            let verdict = verdict(&keep(&bound, &case.known).unwrap(), &always(&bound, &case.known).unwrap());
            format!("{verdict}  {text}")
        };
        predicates.iter().map(answer).collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn inconsistent_bounds_are_internal_errors() {
    let schema = StructType::new(vec![StructField::new("i", DataType::INTEGER, true)]);
    let bound = parse("i = 1").unwrap().bind(&schema).unwrap();
    let column = |min: Vec<Scalar>, nulls: Vec<Option<i64>>| Known {
        containers: 2,
        rows: None,
        columns: vec![KnownColumn {
            name: "i".to_owned(),
            min: Some(min),
            max: None,
            nulls: Some(nulls),
            exact: false,
        }],
    };
    let long = column(vec![Scalar::Integer(1); 3], vec![None; 2]);
    assert_eq!(*keep(&bound, &long).unwrap_err().kind(), Kind::Internal);
    let short = column(vec![Scalar::Integer(1); 2], vec![None; 1]);
    assert_eq!(*keep(&bound, &short).unwrap_err().kind(), Kind::Internal);
    let rows = Known { rows: Some(vec![Some(1)]), ..column(vec![Scalar::Integer(1); 2], vec![None; 2]) };
    assert_eq!(*keep(&bound, &rows).unwrap_err().kind(), Kind::Internal);

    struct Typed;
    impl Bounds for Typed {
        fn containers(&self) -> usize {
            1
        }
        fn min(&self, _: &Column) -> Result<Option<ArrayRef>> {
            Scalar::Long(1).to_array(&PrimitiveType::Long, 1).map(Some)
        }
        fn max(&self, _: &Column) -> Result<Option<ArrayRef>> {
            Ok(None)
        }
        fn null_count(&self, _: &Column) -> Result<Option<Int64Array>> {
            Ok(None)
        }
        fn row_count(&self) -> Result<Option<Int64Array>> {
            Ok(None)
        }
    }
    let error = keep(&bound, &Typed).unwrap_err();
    assert_eq!(*error.kind(), Kind::Internal);
    assert!(error.to_string().contains("Int64"), "{error}");
}

mod properties {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::super::predicate::{Draw, Table, generate_pool};
    use super::*;

    const ROWS: usize = 4;

    /// Bounds of consecutive groups of rows: the true ones, then shortened, widened and left out at random.
    fn bounds(draw: &mut Draw, table: &Table) -> Known {
        let groups: Vec<&[Vec<Scalar>]> = table.rows.chunks(ROWS).collect();
        let columns = (0..table.columns.len()).map(|i| known_column(draw, table, &groups, i)).collect();
        let rows = groups.iter().map(|g| (!draw.once_in(5)).then_some(g.len() as i64)).collect();
        Known { containers: groups.len(), rows: (!draw.once_in(8)).then_some(rows), columns }
    }

    fn known_column(draw: &mut Draw, table: &Table, groups: &[&[Vec<Scalar>]], i: usize) -> KnownColumn {
        let column = &table.columns[i];
        let exact = draw.once_in(3);
        let limit = |draw: &mut Draw, wanted: Ordering| {
            let values = groups.iter().map(|group| {
                let values = group.iter().map(|row| &row[i]).filter(|value| **value != Scalar::Null);
                let counted = values.filter(|value| exact || !value.is_nan());
                let true_bound = counted.cloned().reduce(|a, b| if b.compare(&a) == Some(wanted) { b } else { a });
                let Some(true_bound) = true_bound else { return Scalar::Null };
                let other = draw.pick(&generate_pool(&column.data_type));
                let bound =
                    if draw.once_in(4) && other.compare(&true_bound) == Some(wanted) { other } else { true_bound };
                match bound {
                    _ if draw.once_in(6) => Scalar::Null,
                    // A writer that includes NaN may write it even if it omits other bounds.
                    _ if !exact && draw.once_in(10) && column.data_type == PrimitiveType::Double => {
                        Scalar::Double(f64::NAN)
                    }
                    Scalar::String(text) if !exact => Scalar::String(text.chars().take(draw.below(4)).collect()),
                    Scalar::Binary(bytes) if !exact => Scalar::Binary(bytes.into_iter().take(draw.below(3)).collect()),
                    bound => bound,
                }
            });
            let values = values.collect::<Vec<_>>();
            (!draw.once_in(8)).then_some(values)
        };
        let (min, max) = (limit(draw, Ordering::Less), limit(draw, Ordering::Greater));
        let nulls = groups.iter().map(|group| {
            let count = group.iter().filter(|row| row[i] == Scalar::Null).count() as i64;
            (!draw.once_in(5)).then_some(count)
        });
        let nulls = nulls.collect::<Vec<_>>();
        KnownColumn { name: column.name.to_string(), min, max, nulls: (!draw.once_in(8)).then_some(nulls), exact }
    }

    proptest! {
        #![proptest_config(crate::cases(6000))]

        #[test]
        fn prune_never_drops_a_match(numbers in proptest::collection::vec(any::<u32>(), 1..200)) {
            let mut draw = Draw::new(numbers);
            let predicate_depth = draw.below(3);
            let table = Table::draw(&mut draw, 3 * ROWS);
            let known = bounds(&mut draw, &table);
            let bound = table.predicate(&mut draw, predicate_depth).bind(&table.schema()).unwrap();
            let matches = bound.evaluate(&table.batch()).unwrap();
            let (kept, certain) = (keep(&bound, &known).unwrap(), always(&bound, &known).unwrap());
            for group in 0..known.containers {
                let rows = group * ROWS..(group + 1) * ROWS;
                let any = rows.clone().any(|row| matches.is_valid(row) && matches.value(row));
                let all = rows.clone().all(|row| matches.is_valid(row) && matches.value(row));
                let rows = &table.rows[rows];
                prop_assert!(kept.value(group) || !any, "dropped {group}: {}\n{known:#?}\n{rows:?}", compact(&bound));
                prop_assert!(all || !certain.value(group), "not all {group}: {}\n{known:#?}\n{rows:?}", compact(&bound));
            }
        }
    }

    use arrow_array::Array;
}
