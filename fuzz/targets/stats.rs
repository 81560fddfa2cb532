//! Statistics: each line of the input is the JSON string of one file, read for columns of every type.
//!
//! Bounds for skipping must contain the written bounds, whichever form they had in between.

use std::sync::LazyLock;

use arrow_array::{Array, ArrayRef, StringArray};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::json::parse;
use deltic_protocol::schema::{DataType, PrimitiveType, StructType};
use deltic_protocol::stats::json::complete;
use deltic_protocol::stats::read::{Leaf, LeafBounds, StatsColumns, from_json, from_json_as_written, from_struct};
use deltic_protocol::stats::typed::StatsLayout;

/// Files read at once.
const FILES: usize = 3;

static SCHEMA: LazyLock<StructType> = LazyLock::new(|| {
    let types = "long integer short byte float double boolean string binary date timestamp timestamp_ntz \
                 decimal(9,2) decimal(38,0) decimal(38,38)";
    let mut fields: Vec<String> =
        types.split_whitespace().map(|t| format!(r#"{{"name":"{t}","type":"{t}","nullable":true}}"#)).collect();
    let inner = r#"{"type":"struct","fields":[{"name":"x","type":"long","nullable":true}]}"#;
    fields.push(format!(r#"{{"name":"inner","type":{inner},"nullable":true}}"#));
    let changes = r#"{"delta.typeChanges":[{"fromType":"float","toType":"double"}]}"#;
    fields.push(format!(r#"{{"name":"was_float","type":"double","nullable":true,"metadata":{changes}}}"#));
    parse(&format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))).unwrap()
});

static LEAVES: LazyLock<Vec<Leaf>> = LazyLock::new(|| {
    let leaf = |path: &[&str], data_type: &DataType| Leaf {
        path: path.iter().map(|name| (*name).to_owned()).collect(),
        data_type: data_type.as_primitive().unwrap().clone(),
        was_float: path == ["was_float"],
    };
    let leaves = SCHEMA.fields.iter().map(|field| match &field.data_type {
        DataType::Struct(inner) => leaf(&[&field.name, "x"], &inner.fields[0].data_type),
        primitive => leaf(&[&field.name], primitive),
    });
    leaves.collect()
});

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let files: Vec<Option<&str>> = text.split('\n').take(FILES).map(|line| Some(line).filter(|l| *l != "-")).collect();
    let text = StringArray::from(files.clone());

    let written = from_json_as_written(&text, &LEAVES).unwrap();
    let safe = from_json(&text, &LEAVES).unwrap();
    check_shape(&written, files.len());
    check_shape(&safe, files.len());
    assert_eq!(safe.num_records, written.num_records);
    assert_eq!(safe.tight_bounds, written.tight_bounds);
    for (leaf, (safe, written)) in LEAVES.iter().zip(safe.leaves.iter().zip(&written.leaves)) {
        assert_eq!(safe.null_count, written.null_count);
        assert_eq!(safe.min.logical_nulls(), written.min.logical_nulls());
        assert_eq!(safe.max.logical_nulls(), written.max.logical_nulls());
        check_contains(leaf, safe, written);
    }

    // What is known of a file does not depend on the files beside it.
    for (row, file) in files.iter().enumerate().filter(|_| files.len() > 1) {
        let alone = from_json(&StringArray::from(vec![*file]), &LEAVES).unwrap();
        assert_eq!(alone.num_records, safe.num_records.slice(row, 1));
        for (alone, together) in alone.leaves.iter().zip(&safe.leaves) {
            assert_eq!(&alone.min, &together.min.slice(row, 1));
            assert_eq!(&alone.max, &together.max.slice(row, 1));
            assert_eq!(alone.null_count, together.null_count.slice(row, 1));
        }
    }

    // The columns of a checkpoint, and the text that is made from those.
    let layout = StatsLayout::new(&SCHEMA, &|_| true);
    let typed = layout.columns(Some(&text), None, files.len()).unwrap();
    let from_typed = from_struct(&typed, &LEAVES).unwrap();
    check_shape(&from_typed, files.len());
    assert_eq!(from_typed.num_records, written.num_records);
    let again = complete(None::<&StringArray>, &typed).unwrap();
    let again = from_json_as_written(&again, &LEAVES).unwrap();
    assert_eq!(again.num_records, written.num_records);
    for (leaf, written) in LEAVES.iter().zip(written.leaves.iter().enumerate()) {
        let (index, written) = written;
        check_contains(leaf, &from_typed.leaves[index], written);
        check_contains(leaf, &again.leaves[index], written);
        assert_eq!(from_typed.leaves[index].null_count, written.null_count);
        assert_eq!(again.leaves[index].null_count, written.null_count);
    }
}

fn check_shape(stats: &StatsColumns, files: usize) {
    assert_eq!(stats.num_records.len(), files);
    assert_eq!(stats.tight_bounds.len(), files);
    assert_eq!(stats.leaves.len(), LEAVES.len());
    assert!(stats.num_records.iter().flatten().all(|count| count >= 0));
    for leaf in &stats.leaves {
        assert_eq!((leaf.min.len(), leaf.max.len(), leaf.null_count.len()), (files, files, files));
        assert!(leaf.null_count.iter().flatten().all(|count| count >= 0));
    }
}

/// The last millisecond of the year 9999, which as a maximum stands for all of it.
const LAST_MILLISECOND: i64 = 253_402_300_799_999_000;

/// Whether `wide` has no bound inside of one of `narrow`. A bound that is unknown has no end.
fn check_contains(leaf: &Leaf, wide: &LeafBounds, narrow: &LeafBounds) {
    let known = |bound: &ArrayRef, row: usize| match leaf.data_type {
        PrimitiveType::Binary => Scalar::Null,
        _ => Scalar::from_array(bound, row).unwrap(),
    };
    for row in 0..wide.min.len() {
        let (least, least_written) = (known(&wide.min, row), known(&narrow.min, row));
        assert!(least.compare(&least_written).is_none_or(|o| o.is_le()), "{leaf:?}: {least} > {least_written}");
        let (most, most_written) = (known(&wide.max, row), known(&narrow.max, row));
        if matches!(most, Scalar::Timestamp(LAST_MILLISECOND) | Scalar::TimestampNtz(LAST_MILLISECOND)) {
            continue;
        }
        assert!(most.compare(&most_written).is_none_or(|o| o.is_ge()), "{leaf:?}: {most} < {most_written}");
    }
}
