//! Pages made by hand with false claims are refused, or take no more memory than their rows justify.

use super::*;

/// A page with these members in its header: kind, bytes, values, encoding. Levels are runs.
fn page(kind: u8, values: u32, encoding: u8, data: &[u8]) -> Vec<u8> {
    // Thrift's compact protocol: a byte has the difference to the next member's number and its type; numbers are
    // zigzag-encoded.
    let number = |bytes: &mut Vec<u8>, number: u32| {
        let mut left = u64::from(number) << 1;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
    };
    let mut bytes = vec![0x15, kind << 1, 0x15];
    number(&mut bytes, data.len() as u32);
    bytes.push(0x15);
    number(&mut bytes, data.len() as u32);
    // The members of a data page are the fifth field, those of a dictionary the seventh.
    bytes.extend([if kind == 0 { 0x2c } else { 0x4c }, 0x15]);
    number(&mut bytes, values);
    bytes.extend([0x15, encoding << 1]);
    if kind == 0 {
        bytes.extend([0x15, 3 << 1, 0x15, 3 << 1]);
    }
    bytes.extend([0, 0]);
    bytes.extend(data);
    bytes
}

/// A run of the same level or code.
fn run(values: u32, value: u8) -> Vec<u8> {
    let (mut bytes, mut left) = (Vec::new(), u64::from(values) << 1);
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.extend([left as u8, value]);
    bytes
}

fn counted(bytes: Vec<u8>) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
}

fn chunk(bytes: &[u8], levels: (u32, u32), rows: usize) -> Chunk<'_> {
    let (max_definition, max_repetition) = levels;
    let (codec, physical) = (Compression::UNCOMPRESSED, PhysicalType::BYTE_ARRAY);
    Chunk { bytes, codec, physical, max_definition, max_repetition, rows, compressed: bytes.len(), size: bytes.len() }
}

#[test]
fn a_page_that_claims_more_than_there_can_be_is_not_believed() {
    let string = |string: &[u8]| counted(string.to_vec());
    let claims = |values: u32| {
        let data = [counted(run(values, 0)), counted(run(values, 1)), vec![1], run(values, 0)].concat();
        [page(2, 1, 0, &string(b"p")), page(0, values, 8, &data)].concat()
    };
    let honest = claims(4);
    let found = entries(chunk(&honest, (1, 1), 4), chunk(&honest, (1, 1), 4), &[["p", "p"]]).unwrap();
    assert_eq!((found[0].strings.as_slice(), found[0].codes.as_slice()), (&["p".to_owned()][..], &[0; 4][..]));
    // Half a gigabyte of slots.
    let hostile = claims(1 << 29);
    let found = entries(chunk(&hostile, (1, 1), 4), chunk(&hostile, (1, 1), 4), &[["p", "p"]]);
    assert_eq!(found.map(|_| ()), Err(Failure::Unsupported));

    let long = vec![b'x'; 32 * 1024];
    let data = [counted(run(1 << 16, 1)), vec![1], run(1 << 16, 0)].concat();
    let bytes = [page(2, 1, 0, &string(&long)), page(0, 1 << 16, 8, &data)].concat();
    let leaf = chunk(&bytes, (1, 0), 1 << 16);
    let whole = array(leaf, &DataType::Utf8, None).map(|_| ());
    for found in [whole, trimmed(leaf).map(|_| ()), strings_by_page(leaf, None, |_| ()).map(|_| ())] {
        assert!(
            matches!(found, Err(Failure::Corrupt(what)) if what.contains("longer than a file of this size")),
            "{found:?}"
        );
    }
}

#[test]
fn one_string_may_be_that_of_many_rows() {
    const ROWS: u32 = 600_000;
    let string = "d".repeat(120);
    let data = [counted(run(ROWS, 1)), vec![1], run(ROWS, 0)].concat();
    let bytes = [page(2, 1, 0, &counted(string.clone().into_bytes())), page(0, ROWS, 8, &data)].concat();
    let leaf = chunk(&bytes, (1, 0), ROWS as usize);
    let found = array(leaf, &DataType::Utf8, None).unwrap();
    assert!(found.as_string::<i32>().iter().all(|found| found == Some(&string)));
    let visited =
        strings_by_page(leaf, None, |strings| strings.iter().filter(|found| **found == Some(&string)).count());
    assert_eq!(visited.unwrap(), [ROWS as usize]);
}

#[test]
fn a_long_string_before_short_ones_takes_no_room_for_them() {
    let (long, short) = ("x".repeat(1 << 20), |row: usize| format!("y{row:04}"));
    let strings =
        |strings: Vec<String>| -> Vec<u8> { strings.into_iter().flat_map(|string| counted(string.into())).collect() };
    let of_page = |rows: u32, plain: Vec<u8>| page(0, rows, 0, &[counted(run(rows, 1)), plain].concat());
    let bytes = [of_page(1, strings(vec![long])), of_page(1000, strings((0..1000).map(short).collect()))].concat();
    let whole = trimmed(chunk(&bytes, (1, 0), 1001)).unwrap().strings(1..1001, 1000).unwrap();
    assert!(whole.iter().enumerate().all(|(row, found)| found == Some(&short(row))));
    assert!(whole.values().capacity() <= (1 << 20) + 5000, "{}", whole.values().capacity());
}

#[test]
fn pages_whose_strings_share_nothing_with_those_before_take_what_their_strings_take() {
    // Two strings for each page, of different lengths, which begin differently from those of the page before.
    let strings = |number: u8| [vec![number], vec![number, b'y', number]];
    let of_page = |number: u8| page(0, 2, 0, &[counted(run(2, 1)), strings(number).map(counted).concat()].concat());
    let bytes: Vec<u8> = (1..=100).flat_map(of_page).chain(page(0, 1 << 20, 0, &counted(run(1 << 20, 0)))).collect();
    let found = trimmed(chunk(&bytes, (1, 0), 200 + (1 << 20))).unwrap();
    // The ends of all rows, with some room to grow, and a bit for each row.
    assert!(found.bytes() < 100 * 1024 + (2 * 4 + 1) * (1 << 20), "{} bytes", found.bytes());
    let whole = found.strings(0..200, 200).unwrap();
    let expected: Vec<String> = (1..=100).flat_map(strings).map(|string| String::from_utf8(string).unwrap()).collect();
    assert!(whole.iter().map(Option::unwrap).eq(expected.iter().map(String::as_str)));
}

#[test]
fn no_more_is_kept_of_numbers_than_rows_have() {
    // A dictionary of so many numbers, rows that all have the first of them, and so many bytes after that.
    let numbers = |distinct: u32, behind: usize| {
        let plain: Vec<u8> = (0..distinct).flat_map(|number| i64::from(number).to_le_bytes()).collect();
        let codes = [counted(run(3, 1)), vec![1], run(3, 0), vec![0; behind]].concat();
        [page(2, distinct, 0, &plain), page(0, 3, 8, &codes)].concat()
    };
    for (distinct, behind, is_kept) in [(3, 0, true), (3, 64, true), (4, 0, false), (3, 100, false)] {
        let numbers = numbers(distinct, behind);
        let number = Chunk { physical: PhysicalType::INT64, ..chunk(&numbers, (1, 0), 3) };
        let found = DictionaryEncoded::read(number).map(|found| found.rows());
        assert_eq!(found, if is_kept { Ok(3) } else { Err(Failure::Unsupported) }, "{distinct}, {behind}");
    }
}

/// If each string were compared with all others, this would take hours.
#[test]
fn many_values_that_stand_in_no_dictionary_are_numbered() {
    const ROWS: u32 = 200_000;
    let levels = [counted(run(ROWS, 0)), counted(run(ROWS, 1))].concat();
    let keys = [page(2, 1, 0, &counted(b"p".to_vec())), page(0, ROWS, 8, &[&levels[..], &[1], &run(ROWS, 0)].concat())];
    let strings: Vec<String> = (0..ROWS).map(|row| (row / 2).to_string()).collect();
    let plain: Vec<u8> = strings.iter().flat_map(|string| counted(string.clone().into_bytes())).collect();
    let (keys, values) = (keys.concat(), page(0, ROWS, 0, &[levels, plain].concat()));
    let rows = ROWS as usize;
    let found = entries(chunk(&keys, (1, 1), rows), chunk(&values, (1, 1), rows), &[["p", "p"]]).unwrap();
    assert_eq!(found[0].strings.len(), rows / 2);
    assert!(found[0].codes.iter().zip(&strings).all(|(code, string)| found[0].strings[*code as usize] == *string));
}

#[test]
fn a_dictionary_serves_all_pages_behind_it() {
    let string = |string: &str| counted(string.into());
    let coded = page(0, 1, 8, &[counted(run(1, 1)), vec![1], run(1, 0)].concat());
    let plain = page(0, 1, 0, &[counted(run(1, 1)), string("b")].concat());
    let dictionary = page(2, 1, 0, &string("a"));
    for (pages, expected) in [
        (vec![&dictionary, &coded, &plain, &plain], Ok(vec!["a", "b", "b"])),
        (vec![&dictionary, &coded, &coded, &plain], Ok(vec!["a", "a", "b"])),
        (vec![&dictionary, &coded, &plain, &coded], Ok(vec!["a", "b", "a"])),
    ] {
        let bytes = pages.into_iter().flatten().copied().collect::<Vec<u8>>();
        let found = trimmed(chunk(&bytes, (1, 0), 3)).map(|found| found.strings(0..3, 3).unwrap());
        assert_eq!(found, expected.map(StringArray::from));
    }
}
