//! Nested columns with nulls at all levels survive a write and a read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::DataType as ArrowType;
use deltic_protocol::schema::arrow::{to_arrow_schema, to_arrow_type};
use deltic_protocol::schema::{ArrayType, DataType, MapType, StructField, StructType};
use deltic_store::Storage;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::task::{FileTask, ReadSpec};
use deltic_table::write::writer::{DataWriter, WriteSpec};
use futures::TryStreamExt;
use proptest::prelude::*;

const ROWS: usize = 12;

/// A value of any type.
#[derive(Debug, Clone, PartialEq)]
enum Datum {
    Null,
    Long(i64),
    String(String),
    Struct(Vec<Datum>),
    List(Vec<Datum>),
    Map(Vec<(Datum, Datum)>),
}

/// Pseudorandom numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn datum(&mut self, data_type: &DataType, nullable: bool) -> Datum {
        if nullable && self.below(3) == 0 {
            return Datum::Null;
        }
        match data_type {
            DataType::Primitive(_) if *data_type == DataType::LONG => {
                Datum::Long(i64::try_from(self.below(1000)).unwrap())
            }
            DataType::Primitive(_) => Datum::String(format!("s{}", self.below(10))),
            DataType::Struct(inner) => {
                Datum::Struct(inner.fields.iter().map(|f| self.datum(&f.data_type, f.nullable)).collect())
            }
            DataType::Array(array) => {
                Datum::List((0..self.below(4)).map(|_| self.datum(&array.element, array.contains_null)).collect())
            }
            DataType::Map(map) => Datum::Map(
                (0..self.below(3))
                    .map(|_| (self.datum(&map.key, false), self.datum(&map.value, map.value_contains_null)))
                    .collect(),
            ),
            DataType::Variant | DataType::Foreign(_) => unreachable!(),
        }
    }

    /// The array of `data`. Values under a null are null or random.
    fn array(&mut self, data: &[&Datum], data_type: &DataType) -> ArrayRef {
        let arrow = to_arrow_type(data_type);
        let nulls = || NullBuffer::from_iter(data.iter().map(|datum| **datum != Datum::Null));
        match (data_type, &arrow) {
            (DataType::Struct(inner), ArrowType::Struct(fields)) => {
                let columns = inner.fields.iter().enumerate().map(|(at, field)| {
                    let children: Vec<Datum> = data
                        .iter()
                        .map(|datum| match datum {
                            Datum::Struct(children) => children[at].clone(),
                            _ => self.hidden(&field.data_type),
                        })
                        .collect();
                    self.array(&children.iter().collect::<Vec<_>>(), &field.data_type)
                });
                let columns = columns.collect();
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, Some(nulls()), data.len()).unwrap())
            }
            (DataType::Array(array), ArrowType::List(element)) => {
                let lists: Vec<Vec<Datum>> = data
                    .iter()
                    .map(|datum| match datum {
                        Datum::List(elements) => elements.clone(),
                        _ => (0..self.below(3)).map(|_| self.datum(&array.element, array.contains_null)).collect(),
                    })
                    .collect();
                let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
                let values = self.array(&lists.iter().flatten().collect::<Vec<_>>(), &array.element);
                Arc::new(ListArray::try_new(Arc::clone(element), offsets, values, Some(nulls())).unwrap())
            }
            (DataType::Map(map), ArrowType::Map(entries, sorted)) => {
                let ArrowType::Struct(fields) = entries.data_type() else { unreachable!() };
                let maps: Vec<Vec<(Datum, Datum)>> = data
                    .iter()
                    .map(|datum| match datum {
                        Datum::Map(entries) => entries.clone(),
                        _ => Vec::new(),
                    })
                    .collect();
                let offsets = OffsetBuffer::from_lengths(maps.iter().map(Vec::len));
                let keys: Vec<&Datum> = maps.iter().flatten().map(|(key, _)| key).collect();
                let values: Vec<&Datum> = maps.iter().flatten().map(|(_, value)| value).collect();
                let columns = vec![self.array(&keys, &map.key), self.array(&values, &map.value)];
                let inner = StructArray::try_new(fields.clone(), columns, None).unwrap();
                Arc::new(MapArray::try_new(Arc::clone(entries), offsets, inner, Some(nulls()), *sorted).unwrap())
            }
            (_, ArrowType::Int64) => {
                let mut longs = Int64Builder::new();
                data.iter().for_each(|datum| match datum {
                    Datum::Long(value) => longs.append_value(*value),
                    _ => longs.append_null(),
                });
                Arc::new(longs.finish())
            }
            _ => {
                let mut strings = StringBuilder::new();
                data.iter().for_each(|datum| match datum {
                    Datum::String(value) => strings.append_value(value),
                    _ => strings.append_null(),
                });
                Arc::new(strings.finish())
            }
        }
    }

    fn hidden(&mut self, data_type: &DataType) -> Datum {
        if self.below(2) == 0 { Datum::Null } else { self.datum(data_type, true) }
    }
}

fn data(array: &ArrayRef, row: usize) -> Datum {
    if array.is_null(row) {
        return Datum::Null;
    }
    let all = |values: &ArrayRef| (0..values.len()).map(|row| data(values, row)).collect::<Vec<_>>();
    match array.data_type() {
        ArrowType::Int64 => Datum::Long(array.as_primitive::<Int64Type>().value(row)),
        ArrowType::Utf8 => Datum::String(array.as_string::<i32>().value(row).to_owned()),
        ArrowType::Struct(_) => Datum::Struct(array.as_struct().columns().iter().map(|c| data(c, row)).collect()),
        ArrowType::List(_) => Datum::List(all(&array.as_list::<i32>().value(row))),
        ArrowType::Map(..) => {
            let entries = array.as_map().value(row);
            Datum::Map(all(entries.column(0)).into_iter().zip(all(entries.column(1))).collect())
        }
        other => panic!("{other}"),
    }
}

fn types() -> impl Strategy<Value = DataType> {
    let leaf = prop_oneof![Just(DataType::LONG), Just(DataType::STRING)];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let fields = prop::collection::vec((inner.clone(), any::<bool>()), 1..4);
        let fields = fields.prop_map(|fields| {
            let field = |(at, (data_type, nullable))| StructField::new(format!("f{at}"), data_type, nullable);
            DataType::Struct(Arc::new(StructType::new(fields.into_iter().enumerate().map(field).collect())))
        });
        let list = (inner.clone(), any::<bool>())
            .prop_map(|(element, contains_null)| DataType::Array(Arc::new(ArrayType { element, contains_null })));
        let key = prop_oneof![Just(DataType::STRING), inner.clone()];
        let map = (key, inner, any::<bool>()).prop_map(|(key, value, value_contains_null)| {
            DataType::Map(Arc::new(MapType { key, value, value_contains_null }))
        });
        prop_oneof![3 => fields, 2 => list, 1 => map]
    })
}

/// Writes `rows` of the column `c`, in row groups of a few rows, and reads them back.
fn round_trip(schema: &StructType, rows: &[RecordBatch]) -> Vec<RecordBatch> {
    let dir = tempfile::tempdir().unwrap();
    let options = HashMap::from([("deltic.durability".to_owned(), "none".to_owned())]);
    let storage = Storage::open(dir.path().to_str().unwrap(), &options).unwrap();
    let mut spec = WriteSpec::new(schema.clone().into(), Vec::new());
    spec.max_rows_per_group = 5;
    let read = ReadSpec {
        schema: spec.schema.clone(),
        partition_columns: Vec::new(),
        column_mapping: "none".to_owned(),
        columns: schema.fields.iter().map(|field| field.name.clone()).collect(),
        filter: None,
        row_tracking: None,
        may_lack_row_ids: false,
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut writer = DataWriter::new(storage.clone(), &spec, || 0).unwrap();
        for batch in rows {
            writer.write(batch).await.unwrap();
        }
        let task = |add: deltic_protocol::action::Add| FileTask {
            path: add.path,
            size: u64::try_from(add.size).unwrap(),
            ..FileTask::default()
        };
        let tasks = writer.finish().await.unwrap().into_iter().map(|file| task(file.add)).collect();
        let reader = Reader::new(storage, read).unwrap();
        reader.read(tasks, ReadOptions { batch_rows: 7, ..ReadOptions::default() }).try_collect().await.unwrap()
    })
}

/// Checks that the values of a column of this type survive a write and a read.
fn check(data_type: DataType, nullable: bool, expected: &[Datum], random: &mut Random) {
    let schema = StructType::new(vec![StructField::new("c", data_type.clone(), nullable)]);
    // A row in front is cut off, so that the batch is a slice.
    let first = random.datum(&data_type, nullable);
    let values: Vec<&Datum> = std::iter::once(&first).chain(expected).collect();
    let array = random.array(&values, &data_type);
    let batch = RecordBatch::try_new(Arc::new(to_arrow_schema(&schema)), vec![array]).unwrap();
    let read = round_trip(&schema, &[batch.slice(1, expected.len())]);
    let found: Vec<Datum> =
        read.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| data(batch.column(0), row))).collect();
    assert_eq!(found, expected, "{data_type}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nested_values_round_trip(data_type in types(), nullable: bool, seed: u64) {
        let mut random = Random(seed);
        let rows: Vec<Datum> = (0..ROWS).map(|_| random.datum(&data_type, nullable)).collect();
        check(data_type, nullable, &rows, &mut random);
    }
}

/// Null structs that contain required structs, in lists and maps.
#[test]
fn required_fields_of_null_structs_are_null() {
    let required = |name: &str, data_type| StructField::new(name, data_type, false);
    let one = |field| DataType::Struct(Arc::new(StructType::new(vec![field])));
    let element = one(required("s", one(required("x", DataType::LONG))));
    let value = Datum::Struct(vec![Datum::Struct(vec![Datum::Long(1)])]);
    let list = DataType::Array(Arc::new(ArrayType { element: element.clone(), contains_null: true }));
    let rows = [Datum::List(vec![Datum::Null, value.clone()]), Datum::Null, Datum::List(vec![])];
    check(list, true, &rows, &mut Random(1));
    let map = MapType { key: DataType::STRING, value: element.clone(), value_contains_null: true };
    let rows = [Datum::Map(vec![(Datum::String("k".to_owned()), Datum::Null)]), Datum::Map(vec![]), Datum::Null];
    check(DataType::Map(Arc::new(map)), true, &rows, &mut Random(1));
    // Lists of lists, and a required list in a null struct.
    let inner = DataType::Array(Arc::new(ArrayType { element: element.clone(), contains_null: true }));
    let holder = one(required("l", inner.clone()));
    let lists = DataType::Array(Arc::new(ArrayType { element: inner, contains_null: true }));
    let rows = [Datum::List(vec![Datum::Null, Datum::List(vec![Datum::Null, value.clone()])]), Datum::List(vec![])];
    check(lists, false, &rows, &mut Random(1));
    let rows = [Datum::Null, Datum::Struct(vec![Datum::List(vec![Datum::Null, value.clone()])])];
    check(holder, true, &rows, &mut Random(1));
    check(one(required("s", element)), true, &[Datum::Null, Datum::Struct(vec![value])], &mut Random(1));
}
