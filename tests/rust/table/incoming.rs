//! Validation of Arrow batches from other libraries.

#![allow(unsafe_code)]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int8Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, Schema};
use deltic_table::error::{Kind, Result};
use deltic_table::write::incoming::checked_batch;

fn data(data_type: DataType, length: usize, buffers: Vec<Buffer>, children: Vec<ArrayData>) -> ArrayData {
    let builder = ArrayData::builder(data_type).len(length).buffers(buffers).child_data(children);
    // SAFETY: it is only passed to the validation.
    unsafe { builder.build_unchecked() }
}

/// Validates columns as if they came from another library.
fn checked(columns: Vec<(Field, ArrayData)>) -> Result<RecordBatch> {
    let length = columns[0].1.len();
    let (fields, children): (Vec<Field>, Vec<ArrayData>) = columns.into_iter().unzip();
    let rows = data(DataType::Struct(fields.clone().into()), length, vec![], children);
    checked_batch(&rows, &Arc::new(Schema::new(fields)))
}

fn column(array: ArrayData) -> Result<ArrayRef> {
    let field = Field::new("c", array.data_type().clone(), true);
    checked(vec![(field, array)]).map(|batch| Arc::clone(batch.column(0)))
}

fn i32s(values: &[i32]) -> Buffer {
    Buffer::from_slice_ref(values)
}

fn field(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, true))
}

fn numbers(count: i64) -> ArrayData {
    Int64Array::from_iter_values(0..count).to_data()
}

fn keyed(keys: Vec<i8>) -> ArrayData {
    let strings = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    data(strings, keys.len(), vec![Buffer::from_vec(keys)], vec![StringArray::from(vec!["a"]).to_data()])
}

fn listed(offsets: &[i32], elements: ArrayData) -> ArrayData {
    let list = DataType::List(field(elements.data_type().clone()));
    data(list, offsets.len() - 1, vec![i32s(offsets)], vec![elements])
}

fn mapped(offsets: &[i32], keys: ArrayData) -> ArrayData {
    let fields = [Field::new("key", keys.data_type().clone(), false), Field::new("value", DataType::Int64, true)];
    let length = keys.len();
    let values = numbers(i64::try_from(length).unwrap());
    let entries = data(DataType::Struct(Fields::from(fields.to_vec())), length, vec![], vec![keys, values]);
    let map = DataType::Map(Arc::new(Field::new("entries", entries.data_type().clone(), false)), false);
    data(map, offsets.len() - 1, vec![i32s(offsets)], vec![entries])
}

fn view(length: u32, prefix: [u8; 4], buffer: u32, offset: u32) -> u128 {
    let words = [length, u32::from_le_bytes(prefix), buffer, offset];
    words.iter().rev().fold(0, |view, word| view << 32 | u128::from(*word))
}

fn viewed(data_type: DataType, views: Vec<u128>) -> ArrayData {
    let bytes = Buffer::from(&b"a value that is long"[..]);
    data(data_type, views.len(), vec![Buffer::from_vec(views), bytes], vec![])
}

fn miscounted() -> ArrayData {
    let nulls = NullBuffer::from(vec![true, false, false]);
    let builder = ArrayData::builder(DataType::Int64).len(3).add_buffer(Buffer::from_vec(vec![1_i64, 2, 3]));
    // SAFETY: as above.
    unsafe { builder.null_bit_buffer(Some(nulls.inner().inner().clone())).null_count(1).build_unchecked() }
}

fn broken() -> Vec<(&'static str, ArrayData, &'static str)> {
    use DataType::{Binary, BinaryView, Int32, Int64, Utf8, Utf8View};
    let text = || Buffer::from(&b"abcdef"[..]);
    let ends = Arc::new(Field::new("run_ends", Int32, false));
    let runs = |ends_at: Vec<i32>| {
        let children = vec![arrow_array::Int32Array::from(ends_at).to_data(), numbers(2)];
        data(
            DataType::RunEndEncoded(Arc::clone(&ends), Arc::new(Field::new("values", Int64, true))),
            4,
            vec![],
            children,
        )
    };
    let union = |ids: Vec<i8>, offsets: &[i32]| {
        let fields =
            arrow_schema::UnionFields::try_new([0, 1], [Field::new("a", Int64, true), Field::new("b", Int64, true)]);
        let dense = DataType::Union(fields.unwrap(), arrow_schema::UnionMode::Dense);
        data(dense, ids.len(), vec![Buffer::from_vec(ids), i32s(offsets)], vec![numbers(2), numbers(2)])
    };
    let fixed = DataType::FixedSizeList(field(Int64), 2);
    let structs = DataType::Struct(Fields::from(vec![Field::new("x", Int64, true)]));
    vec![
        ("key", keyed(vec![0, 99]), "`c`"),
        ("negative key", keyed(vec![0, -1]), "`c`"),
        (
            "string offsets back",
            data(Utf8, 3, vec![i32s(&[0, 4, 2, 6]), text()], vec![]),
            "row 1 of the batch decrease",
        ),
        (
            "binary offsets back",
            data(Binary, 3, vec![i32s(&[0, 4, 2, 6]), text()], vec![]),
            "row 1 of the batch decrease",
        ),
        ("binary offsets far", data(Binary, 2, vec![i32s(&[0, 99, 6]), text()], vec![]), "`c`"),
        ("negative offset", data(Binary, 2, vec![i32s(&[-3, 0, 6]), text()], vec![]), "`c`"),
        ("list offsets back", listed(&[0, 3, 1, 4], numbers(4)), "row 1 of the batch decrease"),
        ("list offsets far", listed(&[0, 1, 9], numbers(4)), "`c`"),
        ("map offsets back", mapped(&[0, 2, 1, 3], numbers(3)), "row 1 of the batch decrease"),
        ("null key of a map", mapped(&[0, 1], Int64Array::from(vec![None]).to_data()), "a key of a map is null"),
        ("within a list", listed(&[0, 2], keyed(vec![0, 7])), "`c.element`"),
        ("within a map", mapped(&[0, 2], keyed(vec![0, 7])), "`c.key`"),
        (
            "within a struct",
            data(
                DataType::Struct(Fields::from(vec![Field::new("x", keyed(vec![]).data_type().clone(), true)])),
                1,
                vec![],
                vec![keyed(vec![7])],
            ),
            "`c.x`",
        ),
        (
            "within a fixed list",
            data(DataType::FixedSizeList(field(keyed(vec![]).data_type().clone()), 1), 1, vec![], vec![keyed(vec![7])]),
            "`c.element`",
        ),
        ("short child", data(structs, 3, vec![], vec![numbers(2)]), ""),
        ("short fixed list", data(fixed, 3, vec![], vec![numbers(5)]), ""),
        ("view of no buffer", viewed(Utf8View, vec![view(20, *b"a va", 1, 0)]), "row 0"),
        ("view beyond", viewed(BinaryView, vec![view(20, *b"a va", 0, 1)]), "row 0"),
        ("view of other bytes", viewed(BinaryView, vec![view(20, *b"else", 0, 0)]), "row 0"),
        ("view with a tail", viewed(Utf8View, vec![view(1, *b"ab\0\0", 0, 0)]), "row 0"),
        ("run ends back", runs(vec![4, 2]), "`c`"),
        ("run ends short", runs(vec![1, 2]), ""),
        ("union id", union(vec![0, 5], &[0, 0]), "`c`"),
        ("union offset", union(vec![0, 1], &[0, 9]), "`c`"),
    ]
}

#[test]
fn invalid_arrays_are_refused_by_column() {
    for (name, array, message) in broken() {
        let error = column(array).expect_err(name);
        assert_eq!(*error.kind(), Kind::Invalid, "{name}: {error}");
        assert!(error.message().contains("not valid") && error.message().contains(message), "{name}: {error}");
    }
}

#[test]
fn nulls_in_required_fields_are_refused() {
    let numbers = Int64Array::from(vec![Some(1), None]).to_data();
    let error = checked(vec![(Field::new("id", DataType::Int64, false), numbers.clone())]).unwrap_err();
    assert!(error.message().contains("`id`") && error.message().contains("row 1"), "{error}");
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, false)));
    let error = column(data(list, 1, vec![i32s(&[0, 2])], vec![numbers])).unwrap_err();
    assert!(error.message().contains("`c.element`"), "{error}");
}

#[test]
fn impossible_types_are_refused() {
    let negative = DataType::FixedSizeList(field(DataType::Int64), -1);
    let key = DataType::Dictionary(Box::new(DataType::Utf8), Box::new(DataType::Utf8));
    let entries = DataType::Map(field(DataType::Int64), false);
    for data_type in [negative, key, entries, DataType::FixedSizeBinary(-2)] {
        let rows = ArrayData::new_empty(&DataType::Struct(Fields::empty()));
        let schema = Arc::new(Schema::new(vec![Field::new("c", data_type.clone(), true)]));
        let builder = rows.into_builder().data_type(DataType::Struct(schema.fields().clone()));
        // SAFETY: as above.
        let error = checked_batch(&unsafe { builder.build_unchecked() }, &schema).unwrap_err();
        assert!(error.message().contains("`c`"), "{data_type}: {error}");
    }
}

/// Data outside of a slice is not validated.
#[test]
fn only_slices_are_validated() {
    let list = listed(&[0, 1, 3, 4], Int64Array::from_iter_values(0..4).to_data()).slice(1, 1);
    let list = column(list).unwrap();
    assert_eq!(list.as_list::<i32>().values().len(), 2);
    assert_eq!(list.as_list::<i32>().value(0).as_primitive::<Int64Type>().values(), &[1, 2]);

    let list = column(listed(&[0, 1, 2], keyed(vec![0, 99])).slice(0, 1)).unwrap();
    assert_eq!(list.as_list::<i32>().values().len(), 1);
    column(listed(&[0, 1, 2], keyed(vec![0, 99])).slice(1, 1)).unwrap_err();

    let fixed = DataType::FixedSizeList(field(DataType::Int64), 2);
    let fixed = column(data(fixed, 3, vec![], vec![numbers(6)]).slice(1, 2)).unwrap();
    assert_eq!(fixed.as_fixed_size_list().value(1).as_primitive::<Int64Type>().values(), &[4, 5]);

    let map = column(mapped(&[0, 1, 3], numbers(3)).slice(1, 1)).unwrap();
    assert_eq!(map.as_map().keys().as_primitive::<Int64Type>().values(), &[1, 2]);

    let structs =
        StructArray::from(vec![(field(DataType::Int64), Arc::new(Int64Array::from(vec![7, 8, 9])) as ArrayRef)]);
    let structs = column(structs.to_data().slice(2, 1)).unwrap();
    assert_eq!(structs.as_struct().column(0).as_primitive::<Int64Type>().values(), &[9]);

    let empty = column(ArrayData::new_empty(&DataType::List(field(DataType::Utf8)))).unwrap();
    assert_eq!(empty.len(), 0);
}

#[test]
fn strings_that_are_not_utf8_are_refused_by_column() {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    /// `binary` as strings, which have the same layout.
    fn cast(array: &ArrayRef, strings: &DataType) -> ArrayData {
        // SAFETY: it is only passed to the validation.
        unsafe { array.to_data().into_builder().data_type(strings.clone()).build_unchecked() }
    }
    let bytes = |values: &[Option<&[u8]>]| -> ArrayRef { Arc::new(BinaryArray::from_iter(values.iter().copied())) };
    let long = "ein Café, länger als die Ansicht";
    let good = bytes(&[Some(b"a"), None, Some("é".as_bytes()), Some(long.as_bytes()), Some(b"")]);
    let bad = bytes(&[Some(b"a"), Some(b"caf\xe9 noir, served with a madeleine")]);
    let short = bytes(&[Some(b"caf\xe9")]);
    // Each value is half of a character.
    let halves = bytes(&[Some(b"\xc3"), Some(b"\xa9")]);
    for (binary, strings) in [(Binary, Utf8), (LargeBinary, LargeUtf8), (BinaryView, Utf8View)] {
        let of = |array: &ArrayRef| arrow_cast::cast(array, &binary).unwrap();
        assert_eq!(column(cast(&of(&good), &strings)).unwrap().len(), 5, "{strings}");
        for wrong in [&bad, &short, &halves] {
            let error = column(cast(&of(wrong), &strings)).unwrap_err();
            assert!(error.message().contains("`c`") && error.message().contains("UTF-8"), "{strings}: {error}");
        }
        // Only the slice of an array is validated, and no value under a null.
        column(cast(&of(&bad).slice(0, 1), &strings)).unwrap();
        let (lengths, values) = (OffsetBuffer::from_lengths([1, 1, 2]), Buffer::from(&b"a\xe9\xc3\xa9"[..]));
        let hidden = BinaryArray::new(lengths, values, Some(NullBuffer::from(vec![true, false, true])));
        let found = column(cast(&of(&(Arc::new(hidden) as ArrayRef)), &strings)).unwrap();
        found.to_data().validate_full().unwrap();
        let found = arrow_cast::cast(&found, &Utf8).unwrap();
        let values: Vec<Option<&str>> = found.as_string::<i32>().iter().collect();
        assert_eq!(values, [Some("a"), None, Some("é")], "{strings}");
    }
    let strings = cast(&bad, &Utf8);
    let error = column(listed(&[0, 1, 2], strings.clone())).unwrap_err();
    assert!(error.message().contains("`c.element`"), "{error}");
    column(listed(&[0, 1, 2], strings).slice(0, 1)).unwrap();
}

#[test]
fn valid_arrays_stay_unchanged() {
    let keys = Int8Array::from(vec![Some(0), None, Some(1)]);
    let coded = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["a", "b"])));
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let map = MapArray::from(mapped(&[0, 1, 1, 3], numbers(3)));
    let columns: [(&str, ArrayRef); 3] = [("d", Arc::new(coded)), ("l", Arc::new(list)), ("m", Arc::new(map))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let rows = StructArray::from(batch.clone()).to_data();
    assert_eq!(checked_batch(&rows, &batch.schema()).unwrap(), batch);
    assert_eq!(checked_batch(&rows.slice(1, 2), &batch.schema()).unwrap(), batch.slice(1, 2));
}

/// The null count of the producer is not used.
#[test]
fn a_wrong_null_count_changes_no_row() {
    assert_eq!(column(miscounted()).unwrap().null_count(), 2);
    let list = column(listed(&[0, 3], miscounted())).unwrap();
    assert_eq!(list.as_list::<i32>().values().null_count(), 2);
}
