//! Functions of strings. Positions count characters, from 1.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, BooleanArray, Int32Array, StringArray};

use super::signature::{Arguments, Definition, ResultType, Slot};
use crate::error::Result;
use crate::expression::kernel::{Evaluated, bounded, each, unexpected};
use crate::schema::PrimitiveType as P;

const fn define(
    name: &'static str,
    least: usize,
    slots: &'static [Slot],
    result_type: P,
    run: fn(&Arguments<'_>) -> Evaluated,
) -> Definition {
    Definition { name, least, slots, repeats: false, result_type: ResultType::Fixed(result_type), run }
}

pub(super) static FUNCTIONS: &[Definition] = &[
    define("length", 1, &[Slot::StringOrBytes], P::Integer, length),
    define("octet_length", 1, &[Slot::StringOrBytes], P::Integer, octet_length),
    define("upper", 1, &[Slot::String], P::String, |a| map(a, |text| text.to_uppercase())),
    define("lower", 1, &[Slot::String], P::String, |a| map(a, |text| text.to_lowercase())),
    define("initcap", 1, &[Slot::String], P::String, |a| map(a, initcap)),
    define("reverse", 1, &[Slot::String], P::String, |a| map(a, |text| text.chars().rev().collect())),
    define("btrim", 1, &[Slot::String, Slot::String], P::String, |a| trim(a, 0, 1, true, true)),
    // With two arguments, the first one has the characters to trim.
    define("ltrim", 1, &[Slot::String, Slot::String], P::String, |a| trim(a, 1, 0, true, false)),
    define("rtrim", 1, &[Slot::String, Slot::String], P::String, |a| trim(a, 1, 0, false, true)),
    Definition {
        name: "substring",
        least: 2,
        slots: &[Slot::StringOrBytes, Slot::Int, Slot::Int],
        repeats: false,
        result_type: ResultType::First,
        run: substring,
    },
    define("left", 2, &[Slot::String, Slot::Int], P::String, left),
    define("right", 2, &[Slot::String, Slot::Int], P::String, right),
    Definition {
        name: "concat",
        least: 0,
        slots: &[Slot::StringOrBytes],
        repeats: true,
        result_type: ResultType::With(|types, _| Ok(types.first().cloned().unwrap_or(P::String))),
        run: concat,
    },
    Definition {
        name: "concat_ws",
        least: 1,
        slots: &[Slot::String],
        repeats: true,
        result_type: ResultType::Fixed(P::String),
        run: concat_ws,
    },
    define("replace", 2, &[Slot::String, Slot::String, Slot::String], P::String, replace),
    define("repeat", 2, &[Slot::String, Slot::Int], P::String, repeat),
    define("lpad", 2, &[Slot::String, Slot::Int, Slot::String], P::String, |a| pad(a, true)),
    define("rpad", 2, &[Slot::String, Slot::Int, Slot::String], P::String, |a| pad(a, false)),
    define("instr", 2, &[Slot::String, Slot::String], P::Integer, |a| locate(a, 0, 1)),
    define("locate", 2, &[Slot::String, Slot::String, Slot::Int], P::Integer, |a| locate(a, 1, 0)),
    define("startswith", 2, &[Slot::String, Slot::String], P::Boolean, |a| {
        test(a, |text, part| text.starts_with(part))
    }),
    define("endswith", 2, &[Slot::String, Slot::String], P::Boolean, |a| test(a, |text, part| text.ends_with(part))),
    define("contains", 2, &[Slot::String, Slot::String], P::Boolean, |a| test(a, |text, part| text.contains(part))),
    define("split_part", 3, &[Slot::String, Slot::String, Slot::Int], P::String, split_part),
    define("ascii", 1, &[Slot::String], P::Integer, ascii),
    define("bit_length", 1, &[Slot::StringOrBytes], P::Integer, bit_length),
    define("space", 1, &[Slot::Int], P::String, space),
    define("substring_index", 3, &[Slot::String, Slot::String, Slot::Int], P::String, substring_index),
    define("find_in_set", 2, &[Slot::String, Slot::String], P::Integer, find_in_set),
    define("translate", 3, &[Slot::String, Slot::String, Slot::String], P::String, translate),
];

fn map(arguments: &Arguments<'_>, of: impl Fn(&str) -> String) -> Evaluated {
    let text = arguments.string(0)?;
    Ok(Arc::new(arguments.strings(|row| Ok(of(text.value(row))))?))
}

fn test(arguments: &Arguments<'_>, of: impl Fn(&str, &str) -> bool) -> Evaluated {
    let (text, part) = (arguments.string(0)?, arguments.string(1)?);
    Ok(Arc::new(arguments.each::<_, BooleanArray>(|row| Ok(Some(of(text.value(row), part.value(row)))))?))
}

/// Length in characters of strings, in bytes of bytes.
fn length(arguments: &Arguments<'_>) -> Evaluated {
    let array = arguments.array(0)?;
    let lengths: Int32Array = match array.as_string_opt::<i32>() {
        Some(text) => arguments.each(|row| Ok(i32::try_from(text.value(row).chars().count()).ok()))?,
        None => return octet_length(arguments),
    };
    Ok(Arc::new(lengths))
}

fn octet_length(arguments: &Arguments<'_>) -> Evaluated {
    let array = arguments.array(0)?;
    let lengths: Int32Array = match (array.as_string_opt::<i32>(), array.as_binary_opt::<i32>()) {
        (Some(text), _) => arguments.each(|row| Ok(Some(text.value_length(row))))?,
        (_, Some(bytes)) => arguments.each(|row| Ok(Some(bytes.value_length(row))))?,
        _ => return Err(unexpected(array).into()),
    };
    Ok(Arc::new(lengths))
}

/// Makes the first letter of each word a capital. Words are separated by spaces.
fn initcap(text: &str) -> String {
    let mut capital = true;
    let mut made = String::with_capacity(text.len());
    for c in text.to_lowercase().chars() {
        match capital {
            true => made.extend(c.to_uppercase()),
            false => made.push(c),
        }
        capital = c == ' ';
    }
    made
}

/// A set of characters with at most this many bytes is searched without a hash set.
const SMALL_SET_THRESHOLD: usize = 16;

fn trim(arguments: &Arguments<'_>, text: usize, set: usize, start: bool, end: bool) -> Evaluated {
    let both = arguments.arrays.len() > 1;
    let texts = arguments.string(if both { text } else { 0 })?;
    let sets = if both { Some(arguments.string(set)?) } else { None };
    let trimmed = arguments.strings(|row| {
        let mut text = texts.value(row);
        let set = sets.map_or(" ", |sets| sets.value(row));
        let many: Option<HashSet<char>> = (set.len() > SMALL_SET_THRESHOLD).then(|| set.chars().collect());
        let within = |c: char| many.as_ref().map_or_else(|| set.contains(c), |many| many.contains(&c));
        if start {
            text = text.trim_start_matches(within);
        }
        if end {
            text = text.trim_end_matches(within);
        }
        Ok(text.to_owned())
    })?;
    Ok(Arc::new(trimmed))
}

/// The range of `length` items from `position` on, of `count` items. Positions count from 1, or from the end if negative.
fn range(position: i32, length: i32, count: usize) -> (usize, usize) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let start = match position {
        1.. => i64::from(position) - 1,
        0 => 0,
        _ => count + i64::from(position),
    };
    let end = if length == i32::MAX { count } else { start.saturating_add(i64::from(length)) };
    let inside = |at: i64| usize::try_from(at.clamp(0, count)).unwrap_or_default();
    (inside(start), inside(end))
}

fn characters(text: &str, from: usize, to: usize) -> &str {
    if from >= to {
        return "";
    }
    let mut places = text.char_indices().map(|(at, _)| at);
    let Some(start) = places.nth(from) else { return "" };
    let end = places.nth(to - from - 1).unwrap_or(text.len());
    text.get(start..end).unwrap_or_default()
}

fn substring(arguments: &Arguments<'_>) -> Evaluated {
    let (array, position) = (arguments.array(0)?, arguments.int(1)?);
    let length = if arguments.arrays.len() > 2 { Some(arguments.int(2)?) } else { None };
    let length = |row: usize| length.map_or(i32::MAX, |length| length.value(row));
    if let Some(bytes) = array.as_binary_opt::<i32>() {
        let parts = arguments.bytes(|row| {
            let bytes = bytes.value(row);
            let (from, to) = range(position.value(row), length(row), bytes.len());
            bytes.get(from..to).unwrap_or_default().to_vec()
        })?;
        return Ok(Arc::new(parts));
    }
    let texts = arguments.string(0)?;
    let parts = arguments.strings(|row| {
        let text = texts.value(row);
        let (from, to) = range(position.value(row), length(row), text.chars().count());
        Ok(characters(text, from, to).to_owned())
    })?;
    Ok(Arc::new(parts))
}

fn left(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, length) = (arguments.string(0)?, arguments.int(1)?);
    let parts = arguments.strings(|row| {
        let to = usize::try_from(length.value(row)).unwrap_or_default();
        Ok(characters(texts.value(row), 0, to).to_owned())
    })?;
    Ok(Arc::new(parts))
}

fn right(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, length) = (arguments.string(0)?, arguments.int(1)?);
    let parts = arguments.strings(|row| {
        let text = texts.value(row);
        let count = text.chars().count();
        let wanted = usize::try_from(length.value(row)).unwrap_or_default();
        Ok(characters(text, count.saturating_sub(wanted), count).to_owned())
    })?;
    Ok(Arc::new(parts))
}

fn concat(arguments: &Arguments<'_>) -> Evaluated {
    if *arguments.result_type == P::Binary {
        let parts: Vec<_> = arguments.arrays.iter().filter_map(|array| array.as_binary_opt::<i32>()).collect();
        let joined =
            arguments.bytes(|row| parts.iter().flat_map(|part| part.value(row)).copied().collect::<Vec<u8>>())?;
        return Ok(Arc::new(joined));
    }
    let parts = (0..arguments.arrays.len()).map(|at| arguments.string(at)).collect::<Result<Vec<_>>>()?;
    let joined = arguments.strings(|row| Ok(parts.iter().map(|part| part.value(row)).collect()))?;
    Ok(Arc::new(joined))
}

/// Strings that are not null, with a separator between them.
fn concat_ws(arguments: &Arguments<'_>) -> Evaluated {
    let separator = arguments.string(0)?;
    let parts = (1..arguments.arrays.len()).map(|at| arguments.string(at)).collect::<Result<Vec<_>>>()?;
    let mut total = 0_usize;
    let joined: StringArray = each(&[arguments.array(0)?], arguments.rows, |row| {
        let present: Vec<&str> = parts.iter().filter(|part| part.is_valid(row)).map(|part| part.value(row)).collect();
        let joined = present.join(separator.value(row));
        total = total.saturating_add(joined.len());
        bounded(total).map(|()| Some(joined))
    })?;
    Ok(Arc::new(joined))
}

fn replace(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, from) = (arguments.string(0)?, arguments.string(1)?);
    let to = if arguments.arrays.len() > 2 { Some(arguments.string(2)?) } else { None };
    let mut total = 0_usize;
    let made = arguments.strings(|row| {
        let (text, from) = (texts.value(row), from.value(row));
        let to = to.map_or("", |to| to.value(row));
        let hits = if from.is_empty() { 0 } else { text.matches(from).count() };
        total = total.saturating_add(text.len()).saturating_add(hits.saturating_mul(to.len()));
        bounded(total)?;
        Ok(if from.is_empty() { text.to_owned() } else { text.replace(from, to) })
    })?;
    Ok(Arc::new(made))
}

fn repeat(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, times) = (arguments.string(0)?, arguments.int(1)?);
    let mut total = 0_usize;
    let made = arguments.strings(|row| {
        let times = usize::try_from(times.value(row)).unwrap_or_default();
        let text = texts.value(row);
        total = total.saturating_add(text.len().saturating_mul(times));
        bounded(total)?;
        Ok(text.repeat(times))
    })?;
    Ok(Arc::new(made))
}

fn pad(arguments: &Arguments<'_>, before: bool) -> Evaluated {
    let (texts, length) = (arguments.string(0)?, arguments.int(1)?);
    let with = if arguments.arrays.len() > 2 { Some(arguments.string(2)?) } else { None };
    let mut total = 0_usize;
    let made = arguments.strings(|row| {
        let (text, with) = (texts.value(row), with.map_or(" ", |with| with.value(row)));
        let length = usize::try_from(length.value(row)).unwrap_or_default();
        let count = text.chars().count();
        if length <= count || with.is_empty() {
            return Ok(characters(text, 0, length).to_owned());
        }
        total = total.saturating_add(text.len().saturating_add((length - count).saturating_mul(4)));
        bounded(total)?;
        let padding: String = with.chars().cycle().take(length - count).collect();
        Ok(if before { padding + text } else { text.to_owned() + &padding })
    })?;
    Ok(Arc::new(made))
}

/// Where a part is in a text, from a position on; 0 if it is not. The empty one is at the beginning.
fn locate(arguments: &Arguments<'_>, text: usize, part: usize) -> Evaluated {
    let (texts, parts) = (arguments.string(text)?, arguments.string(part)?);
    let from = if arguments.arrays.len() > 2 { Some(arguments.int(2)?) } else { None };
    let find = |row: usize| {
        // Spark checks the position first: with a null position the result is 0.
        let from = match from {
            Some(from) if from.is_null(row) => return Some(0),
            Some(from) => from.value(row),
            None => 1,
        };
        if texts.is_null(row) || parts.is_null(row) {
            return None;
        }
        let (text, part) = (texts.value(row), parts.value(row));
        let skipped = match from {
            ..=0 => return Some(0),
            _ if part.is_empty() => return Some(1),
            _ => usize::try_from(from).unwrap_or(1) - 1,
        };
        let count = text.chars().count();
        if skipped > count {
            return Some(0);
        }
        let rest = characters(text, skipped, count);
        match rest.find(part) {
            Some(at) => i32::try_from(skipped + rest.get(..at)?.chars().count() + 1).ok(),
            None => Some(0),
        }
    };
    Ok(Arc::new((0..arguments.rows).map(find).collect::<Int32Array>()))
}

/// Part number `n` between separators, from the end if negative; empty if there is none.
fn split_part(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, separators, numbers) = (arguments.string(0)?, arguments.string(1)?, arguments.int(2)?);
    let made = arguments.strings(|row| {
        let (text, separator, number) = (texts.value(row), separators.value(row), numbers.value(row));
        let wanted = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        let Some(at) = wanted.checked_sub(1) else { return Err("split_part counts from 1".to_owned()) };
        let part = match separator.is_empty() {
            true => Some(text).filter(|_| at == 0),
            false if number > 0 => text.split(separator).nth(at),
            // From the end, the same parts are counted as from the beginning.
            false => {
                let parts = text.split(separator).count();
                parts.checked_sub(wanted).and_then(|at| text.split(separator).nth(at))
            }
        };
        Ok(part.unwrap_or_default().to_owned())
    })?;
    Ok(Arc::new(made))
}

fn ascii(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let code =
        |row: usize| texts.value(row).chars().next().map_or(0, |c| i32::try_from(u32::from(c)).unwrap_or_default());
    Ok(Arc::new(arguments.each::<_, Int32Array>(|row| Ok(Some(code(row))))?))
}

fn translate(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, from, to) = (arguments.string(0)?, arguments.string(1)?, arguments.string(2)?);
    // The replacements of characters for the latest arguments.
    let (mut latest, mut becomes) = (("", ""), HashMap::new());
    let made = arguments.strings(|row| {
        let pair = (from.value(row), to.value(row));
        if pair != latest {
            latest = pair;
            becomes.clear();
            let with = pair.1.chars().map(Some).chain(std::iter::repeat(None));
            for (c, becoming) in pair.0.chars().zip(with) {
                becomes.entry(c).or_insert(becoming);
            }
        }
        Ok(texts.value(row).chars().filter_map(|c| becomes.get(&c).copied().unwrap_or(Some(c))).collect())
    })?;
    Ok(Arc::new(made))
}

fn bit_length(arguments: &Arguments<'_>) -> Evaluated {
    let bytes = octet_length(arguments)?;
    Ok(Arc::new(bytes.as_primitive::<Int32Type>().unary::<_, Int32Type>(|count| count.wrapping_mul(8))))
}

fn space(arguments: &Arguments<'_>) -> Evaluated {
    let counts = arguments.int(0)?;
    let mut total = 0_usize;
    let made = arguments.strings(|row| {
        let count = usize::try_from(counts.value(row)).unwrap_or_default();
        total = total.saturating_add(count);
        bounded(total).map(|()| " ".repeat(count))
    })?;
    Ok(Arc::new(made))
}

/// The text before occurrence number `count` of a separator; if negative, the text after it, counted from the end. As in
/// Spark, an occurrence may begin inside of the one before.
fn substring_index(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, separators, counts) = (arguments.string(0)?, arguments.string(1)?, arguments.int(2)?);
    let part = |text: &str, separator: &str, count: i32| -> String {
        if separator.is_empty() || count == 0 {
            return String::new();
        }
        let places = text.char_indices().map(|(at, _)| at);
        let is_there = |at: &usize| text.get(*at..).is_some_and(|rest| rest.starts_with(separator));
        let number = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) - 1;
        let found = match count > 0 {
            true => places.filter(is_there).nth(number).and_then(|at| text.get(..at)),
            false => places.rev().filter(is_there).nth(number).and_then(|at| text.get(at + separator.len()..)),
        };
        found.unwrap_or(text).to_owned()
    };
    let made = arguments.strings(|row| Ok(part(texts.value(row), separators.value(row), counts.value(row))))?;
    Ok(Arc::new(made))
}

/// Which part of a list, separated by commas, a string is, from 1; 0 if it is none.
fn find_in_set(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, sets) = (arguments.string(0)?, arguments.string(1)?);
    let find = |text: &str, set: &str| match text.contains(',') {
        true => None,
        false => set.split(',').position(|part| part == text),
    };
    let of = |row: usize| find(texts.value(row), sets.value(row)).map_or(0, |at| at + 1);
    Ok(Arc::new(arguments.each::<_, Int32Array>(|row| Ok(i32::try_from(of(row)).ok()))?))
}
