//! Functions of regular expressions, searched as Java does it.

use std::sync::Arc;

use arrow_array::{BooleanArray, Int32Array, StringArray};

use super::signature::{Arguments, Definition, ResultType, Second, Slot};
use crate::expression::kernel::{Evaluated, bounded};
use crate::expression::matching::regex::{self, Regular, Spans};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType as P;

const STRINGS: &[Slot] = &[Slot::String, Slot::String];

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "regexp_like",
        least: 2,
        slots: STRINGS,
        repeats: false,
        result_type: ResultType::With(|_, pattern| match pattern {
            Second::Value(Scalar::String(pattern)) => matcher(pattern).map(|_| P::Boolean),
            _ => Ok(P::Boolean),
        }),
        run: like,
    },
    Definition {
        name: "regexp_extract",
        least: 2,
        slots: &[Slot::String, Slot::String, Slot::Int],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::String)),
        run: extract,
    },
    Definition {
        name: "regexp_substr",
        least: 2,
        slots: STRINGS,
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::String)),
        run: substr,
    },
    Definition {
        name: "regexp_count",
        least: 2,
        slots: STRINGS,
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::Integer)),
        run: count,
    },
    Definition {
        name: "regexp_replace",
        least: 3,
        slots: &[Slot::String, Slot::String, Slot::String],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::String)),
        run: replace,
    },
];

fn matcher(pattern: &str) -> Result<Regular, String> {
    regex::compile(pattern).map_err(|error| error.message().to_owned())
}

fn spans(pattern: &str) -> Result<Spans, String> {
    regex::compile_spans(pattern).map_err(|error| error.message().to_owned())
}

/// The type `result_type`. Fails if the pattern is a literal and not valid.
fn checked(pattern: Second<'_>, result_type: P) -> Result<P, String> {
    match pattern {
        Second::Value(Scalar::String(pattern)) => spans(pattern).map(|_| result_type),
        _ => Ok(result_type),
    }
}

/// Regular expressions of rows, the latest one kept.
struct Patterns<'a, T> {
    texts: &'a StringArray,
    compile: fn(&str) -> Result<T, String>,
    latest: Option<(&'a str, T)>,
}

impl<'a, T> Patterns<'a, T> {
    fn of(&mut self, row: usize) -> Result<&T, String> {
        let text = self.texts.value(row);
        if self.latest.as_ref().is_none_or(|(known, _)| *known != text) {
            self.latest = Some((text, (self.compile)(text)?));
        }
        self.latest.as_ref().map(|(_, pattern)| pattern).ok_or_else(String::new)
    }
}

fn like(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, compile: matcher, latest: None };
    Ok(Arc::new(arguments.each::<_, BooleanArray>(|row| Ok(Some(patterns.of(row)?.matches(texts.value(row)))))?))
}

/// A group of the first match, the first one unless another is asked for; an empty string if there is none.
fn extract(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, compile: spans, latest: None };
    let groups = if arguments.arrays.len() > 2 { Some(arguments.int(2)?) } else { None };
    let made = arguments.strings(|row| {
        let group = groups.map_or(1, |groups| groups.value(row));
        Ok(patterns.of(row)?.first(texts.value(row), group)?.unwrap_or_default().to_owned())
    })?;
    Ok(Arc::new(made))
}

/// The first match; NULL if there is none, or an empty one.
fn substr(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, compile: spans, latest: None };
    let made: StringArray = arguments.each(|row| {
        let found = patterns.of(row)?.first(texts.value(row), 0)?;
        Ok(found.filter(|found| !found.is_empty()).map(str::to_owned))
    })?;
    Ok(Arc::new(made))
}

fn count(arguments: &Arguments<'_>) -> Evaluated {
    let texts = arguments.string(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, compile: spans, latest: None };
    let made: Int32Array = arguments.each(|row| {
        let mut count = 0_i32;
        patterns.of(row)?.each(texts.value(row), &mut |_| {
            count = count.saturating_add(1);
            Ok(())
        })?;
        Ok(Some(count))
    })?;
    Ok(Arc::new(made))
}

fn replace(arguments: &Arguments<'_>) -> Evaluated {
    let (texts, replacements) = (arguments.string(0)?, arguments.string(2)?);
    let mut patterns = Patterns { texts: arguments.string(1)?, compile: spans, latest: None };
    let mut total = 0_usize;
    let made = arguments.strings(|row| {
        let text = texts.value(row);
        let (mut made, mut done) = (String::with_capacity(text.len()), 0);
        patterns.of(row)?.each(text, &mut |found| {
            let Some(all) = found.get(0) else { return Ok(()) };
            made.push_str(text.get(done..all.start()).unwrap_or_default());
            regex::expand(replacements.value(row), found, &mut made)?;
            done = all.end();
            bounded(total.saturating_add(made.len()))
        })?;
        made.push_str(text.get(done..).unwrap_or_default());
        total = total.saturating_add(made.len());
        Ok(made)
    })?;
    Ok(Arc::new(made))
}
