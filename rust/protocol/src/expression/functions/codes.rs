//! Functions of codes: bytes as digits and characters, hashes of the SHA family, and the distance and sound of words.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BinaryArray, Int32Array, StringArray};

use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::signature::{Arguments, Definition, Slot};
use crate::expression::kernel::{Evaluated, bounded, unexpected};
use crate::schema::PrimitiveType as P;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition::fixed("hex", &[Slot::LongOrBytes], P::String, hex),
    Definition::fixed("unhex", &[Slot::String], P::Binary, unhex),
    Definition::fixed("bin", &[Slot::Long], P::String, bin),
    Definition::fixed("sha1", &[Slot::Bytes], P::String, |a| {
        of_bytes(a, |bytes, _| Some(digits(&Sha1::digest(bytes), LOWER)))
    }),
    Definition::fixed("sha2", &[Slot::Bytes, Slot::Int], P::String, sha2),
    Definition::fixed("char", &[Slot::Long], P::String, char_of),
    Definition::fixed("levenshtein", &[Slot::String, Slot::String], P::Integer, levenshtein),
    Definition::fixed("soundex", &[Slot::String], P::String, soundex),
];

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

fn digits(bytes: &[u8], alphabet: &[u8; 16]) -> String {
    let each =
        |byte: &u8| [byte >> 4, byte & 15].map(|digit| alphabet.get(usize::from(digit)).copied().unwrap_or_default());
    bytes.iter().flat_map(each).map(char::from).collect()
}

/// A string computed from each row's bytes and the number in the second argument.
fn of_bytes(arguments: &Arguments<'_>, of: impl Fn(&[u8], usize) -> Option<String>) -> Evaluated {
    let array = arguments.array(0)?;
    let bytes = array.as_binary_opt::<i32>().ok_or_else(|| unexpected(array))?;
    let mut total = 0_usize;
    let made: StringArray = arguments.each(|row| {
        let made = of(bytes.value(row), row);
        total = total.saturating_add(made.as_ref().map_or(0, String::len));
        bounded(total).map(|()| made)
    })?;
    Ok(Arc::new(made))
}

fn hex(arguments: &Arguments<'_>) -> Evaluated {
    match arguments.array(0)?.as_primitive_opt::<Int64Type>() {
        Some(numbers) => Ok(Arc::new(arguments.strings(|row| Ok(format!("{:X}", numbers.value(row))))?)),
        None => of_bytes(arguments, |bytes, _| Some(digits(bytes, UPPER))),
    }
}

/// The bytes of hexadecimal digits. An odd first digit is a byte of its own. NULL if there are other characters.
fn unhex(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let bytes = |text: &str| {
        let values = text.chars().map(|c| c.to_digit(16).and_then(|v| u8::try_from(v).ok()));
        let mut values: Vec<u8> = values.collect::<Option<_>>()?;
        if values.len() % 2 == 1 {
            values.insert(0, 0);
        }
        Some(values.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect::<Vec<u8>>())
    };
    Ok(Arc::new(arguments.each::<_, BinaryArray>(|row| Ok(bytes(texts.value(row))))?))
}

fn bin(arguments: &Arguments<'_>) -> Evaluated {
    let numbers = arguments.primitive::<Int64Type>(0)?;
    Ok(Arc::new(arguments.strings(|row| Ok(format!("{:b}", numbers.value(row))))?))
}

/// 0 bits mean 256. NULL if there is no hash of that length.
fn sha2(arguments: &Arguments<'_>) -> Evaluated {
    let bits = arguments.int(1)?;
    of_bytes(arguments, |bytes, row| match bits.value(row) {
        224 => Some(digits(&Sha224::digest(bytes), LOWER)),
        0 | 256 => Some(digits(&Sha256::digest(bytes), LOWER)),
        384 => Some(digits(&Sha384::digest(bytes), LOWER)),
        512 => Some(digits(&Sha512::digest(bytes), LOWER)),
        _ => None,
    })
}

/// The character of a number's lowest eight bits; an empty string for a negative number.
fn char_of(arguments: &Arguments<'_>) -> Evaluated {
    let numbers = arguments.primitive::<Int64Type>(0)?;
    let of = |number: i64| if number < 0 { String::new() } else { char::from((number & 0xff) as u8).to_string() };
    Ok(Arc::new(arguments.strings(|row| Ok(of(numbers.value(row))))?))
}

/// Most pairs of characters that are compared for two strings, which takes about a second.
const MAX_PAIRS: usize = 1 << 30;
/// Most characters of a string: each takes memory.
const MAX_CHARACTERS: usize = 1 << 24;

/// How many characters must be inserted, deleted or replaced to make one string the other.
fn levenshtein(arguments: &Arguments<'_>) -> Evaluated {
    let (left, right) = (arguments.string(0)?, arguments.string(1)?);
    let distance = |a: &str, b: &str| {
        let b: Vec<char> = b.chars().collect();
        let mut costs: Vec<usize> = (0..=b.len()).collect();
        for (row, from) in a.chars().enumerate() {
            let (mut diagonal, mut before) = (row, row + 1);
            for (cost, to) in costs.iter_mut().skip(1).zip(&b) {
                let changed = diagonal + usize::from(from != *to);
                diagonal = *cost;
                before = changed.min(before + 1).min(*cost + 1);
                *cost = before;
            }
            if let Some(first) = costs.first_mut() {
                *first = row + 1;
            }
        }
        costs.last().copied().unwrap_or_default()
    };
    let of = |row: usize| {
        let (a, b) = (left.value(row), right.value(row));
        // A string has at most as many characters as bytes, so the cheaper test comes first.
        if a.len().saturating_mul(b.len()) > MAX_PAIRS || a.len().max(b.len()) > MAX_CHARACTERS {
            let (one, other) = (a.chars().count(), b.chars().count());
            if one.saturating_mul(other) > MAX_PAIRS || one.max(other) > MAX_CHARACTERS {
                return Err(format!(
                    "levenshtein of two strings of {one} and {other} characters takes too long; a string may have \
                     {MAX_CHARACTERS} characters, and the product of both lengths may be {MAX_PAIRS}"
                ));
            }
        }
        Ok(i32::try_from(distance(a, b)).ok())
    };
    Ok(Arc::new(arguments.each::<_, Int32Array>(of)?))
}

/// The soundex code of each letter. Letters with `7` are ignored; letters with `0` separate equal codes.
const SOUNDS: &[u8; 26] = b"01230127022455012623017202";

fn soundex(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let sound = |byte: u8| {
        let letter = byte.to_ascii_uppercase();
        letter.checked_sub(b'A').and_then(|at| SOUNDS.get(usize::from(at)).copied())
    };
    let code = |text: &str| {
        let mut bytes = text.bytes();
        let first = bytes.next().and_then(|byte| Some((byte, sound(byte)?)));
        let Some((first, mut last)) = first else { return text.to_owned() };
        let mut made = vec![first.to_ascii_uppercase()];
        for byte in bytes {
            let Some(of) = sound(byte) else {
                last = b'0';
                continue;
            };
            if of == b'7' {
                continue;
            }
            if of != b'0' && of != last {
                made.push(of);
                if made.len() == 4 {
                    break;
                }
            }
            last = of;
        }
        made.resize(4, b'0');
        made.into_iter().map(char::from).collect()
    };
    Ok(Arc::new(arguments.strings(|row| Ok(code(texts.value(row))))?))
}
