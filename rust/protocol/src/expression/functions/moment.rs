//! Functions of dates and timestamps, in UTC.

use std::sync::Arc;

use arrow_array::types::{Date32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Date32Array, Float64Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};

use super::pattern::Pattern;
use super::signature::{Arguments, Definition, ResultType, Second, Slot};
use crate::expression::civil;
use crate::expression::kernel::Evaluated;
use crate::scalar::{MICROS_PER_DAY, Scalar};
use crate::schema::PrimitiveType as P;

const MICROS_PER_SECOND: i64 = 1_000_000;
const RESULT_BEYOND: &str = "the result is beyond the range of timestamps";
const BEYOND: &str = "the timestamp is beyond the range of timestamps";

const fn of_date(name: &'static str, run: fn(&Arguments<'_>) -> Evaluated) -> Definition {
    Definition::fixed(name, &[Slot::Date], P::Integer, run)
}

pub(super) static FUNCTIONS: &[Definition] = &[
    of_date("year", |a| part(a, |days| civil::of_days(days).0)),
    of_date("quarter", |a| part(a, |days| i64::from(civil::of_days(days).1 - 1) / 3 + 1)),
    of_date("month", |a| part(a, |days| civil::of_days(days).1.into())),
    of_date("dayofmonth", |a| part(a, |days| civil::of_days(days).2.into())),
    of_date("dayofweek", |a| part(a, |days| (civil::weekday(days) + 1) % 7 + 1)),
    of_date("weekday", |a| part(a, civil::weekday)),
    of_date("dayofyear", |a| part(a, |days| days - civil::first_of(civil::of_days(days).0, 1) + 1)),
    of_date("weekofyear", |a| part(a, civil::week)),
    of_date("unix_date", |a| part(a, |days| days)),
    Definition::fixed("hour", &[Slot::Moment], P::Integer, |a| time(a, |seconds| seconds / 3600)),
    Definition::fixed("minute", &[Slot::Moment], P::Integer, |a| time(a, |seconds| seconds / 60 % 60)),
    Definition::fixed("second", &[Slot::Moment], P::Integer, |a| time(a, |seconds| seconds % 60)),
    Definition::fixed("unix_seconds", &[Slot::Moment], P::Long, |a| since(a, MICROS_PER_SECOND)),
    Definition::fixed("unix_millis", &[Slot::Moment], P::Long, |a| since(a, 1000)),
    Definition::fixed("unix_micros", &[Slot::Moment], P::Long, |a| since(a, 1)),
    Definition::fixed("date_from_unix_date", &[Slot::Int], P::Date, |a| {
        let days = a.int(0)?;
        Ok(Arc::new(a.each::<_, Date32Array>(|row| Ok(Some(days.value(row))))?))
    }),
    Definition::fixed("date_add", &[Slot::Date, Slot::Int], P::Date, |a| {
        shifted(a, |days, by| Some(days.wrapping_add(by)))
    }),
    Definition::fixed("date_sub", &[Slot::Date, Slot::Int], P::Date, |a| {
        shifted(a, |days, by| Some(days.wrapping_sub(by)))
    }),
    Definition::fixed("add_months", &[Slot::Date, Slot::Int], P::Date, |a| shifted(a, add_months)),
    Definition::fixed("datediff", &[Slot::Date, Slot::Date], P::Integer, |a| {
        let (end, start) = (a.primitive::<Date32Type>(0)?, a.primitive::<Date32Type>(1)?);
        Ok(Arc::new(a.each::<_, Int32Array>(|row| Ok(Some(end.value(row).wrapping_sub(start.value(row)))))?))
    }),
    Definition::fixed("last_day", &[Slot::Date], P::Date, |a| {
        let dates = a.primitive::<Date32Type>(0)?;
        let last = |row: usize| {
            let (year, month, _) = civil::of_days(dates.value(row).into());
            i32::try_from(civil::first_of(year, month) + i64::from(civil::length(year, month)) - 1).ok()
        };
        Ok(Arc::new(a.each::<_, Date32Array>(|row| Ok(last(row)))?))
    }),
    Definition::fixed("next_day", &[Slot::Date, Slot::String], P::Date, next_day),
    Definition::fixed("months_between", &[Slot::Moment, Slot::Moment], P::Double, months_between),
    Definition::fixed("dayname", &[Slot::Date], P::String, |a| named(a, "E")),
    Definition::fixed("monthname", &[Slot::Date], P::String, |a| named(a, "MMM")),
    Definition::fixed("timestamp_seconds", &[Slot::Long], P::Timestamp, |a| instant(a, MICROS_PER_SECOND)),
    Definition::fixed("timestamp_millis", &[Slot::Long], P::Timestamp, |a| instant(a, 1000)),
    Definition::fixed("timestamp_micros", &[Slot::Long], P::Timestamp, |a| instant(a, 1)),
    Definition::fixed("make_date", &[Slot::Int, Slot::Int, Slot::Int], P::Date, make_date),
    Definition::fixed("trunc", &[Slot::Date, Slot::String], P::Date, trunc),
    Definition::fixed("date_trunc", &[Slot::String, Slot::Moment], P::Timestamp, date_trunc),
    Definition {
        name: "date_format",
        least: 2,
        slots: &[Slot::Moment, Slot::String],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::String)),
        run: date_format,
    },
    Definition {
        name: "from_unixtime",
        least: 2,
        slots: &[Slot::Long, Slot::String],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::String)),
        run: from_unixtime,
    },
    Definition {
        name: "unix_timestamp",
        least: 2,
        slots: &[Slot::String, Slot::String],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::Long)),
        run: unix_timestamp,
    },
    Definition {
        name: "to_date",
        least: 2,
        slots: &[Slot::String, Slot::String],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::Date)),
        run: to_date,
    },
    Definition {
        name: "to_timestamp",
        least: 2,
        slots: &[Slot::String, Slot::String],
        repeats: false,
        result_type: ResultType::With(|_, pattern| checked(pattern, P::Timestamp)),
        run: to_timestamp,
    },
];

/// The type `result_type`. Fails if the pattern is a literal and not valid.
fn checked(pattern: Second<'_>, result_type: P) -> Result<P, String> {
    match pattern {
        Second::Value(Scalar::String(pattern)) => Pattern::new(pattern).map(|_| result_type),
        _ => Ok(result_type),
    }
}

fn part(arguments: &Arguments<'_>, of: impl Fn(i64) -> i64) -> Evaluated {
    let dates = arguments.primitive::<Date32Type>(0)?;
    let value = |row: usize| i32::try_from(of(dates.value(row).into())).ok();
    Ok(Arc::new(arguments.each::<_, Int32Array>(|row| Ok(value(row)))?))
}

fn time(arguments: &Arguments<'_>, of: impl Fn(i64) -> i64) -> Evaluated {
    let instants = arguments.primitive::<TimestampMicrosecondType>(0)?;
    let value = |row: usize| i32::try_from(of(instants.value(row).rem_euclid(MICROS_PER_DAY) / MICROS_PER_SECOND)).ok();
    Ok(Arc::new(arguments.each::<_, Int32Array>(|row| Ok(value(row)))?))
}

fn since(arguments: &Arguments<'_>, unit: i64) -> Evaluated {
    let instants = arguments.primitive::<TimestampMicrosecondType>(0)?;
    Ok(Arc::new(arguments.each::<_, Int64Array>(|row| Ok(Some(instants.value(row).div_euclid(unit))))?))
}

fn shifted(arguments: &Arguments<'_>, of: impl Fn(i32, i32) -> Option<i32>) -> Evaluated {
    let (dates, by) = (arguments.primitive::<Date32Type>(0)?, arguments.int(1)?);
    let made: Date32Array = arguments.each(|row| {
        of(dates.value(row), by.value(row)).map(Some).ok_or_else(|| "the date is beyond the range of dates".to_owned())
    })?;
    Ok(Arc::new(made))
}

/// The same day of another month, or its last.
fn add_months(days: i32, by: i32) -> Option<i32> {
    let (year, month, day) = civil::of_days(days.into());
    let months = year * 12 + i64::from(month) - 1 + i64::from(by);
    let (year, month) = (months.div_euclid(12), u32::try_from(months.rem_euclid(12)).ok()? + 1);
    let day = day.min(civil::length(year, month));
    i32::try_from(civil::first_of(year, month) + i64::from(day) - 1).ok()
}

fn make_date(arguments: &Arguments<'_>) -> Evaluated {
    let (years, months, days) = (arguments.int(0)?, arguments.int(1)?, arguments.int(2)?);
    let made: Date32Array = arguments.each(|row| {
        let (year, month, day) = (years.value(row), months.value(row), days.value(row));
        let date = civil::days_of(year.into(), month.into(), day.into()).and_then(|days| i32::try_from(days).ok());
        date.map(Some).ok_or_else(|| format!("there is no date {year}-{month}-{day}"))
    })?;
    Ok(Arc::new(made))
}

/// The first day of the unit that a day is in; `None` for other units.
fn first_day(days: i64, unit: &str) -> Option<i64> {
    let (year, month, _) = civil::of_days(days);
    Some(match unit.to_ascii_uppercase().as_str() {
        "YEAR" | "YYYY" | "YY" => civil::first_of(year, 1),
        "QUARTER" => civil::first_of(year, (month - 1) / 3 * 3 + 1),
        "MONTH" | "MM" | "MON" => civil::first_of(year, month),
        "WEEK" => days - civil::weekday(days),
        _ => return None,
    })
}

fn trunc(arguments: &Arguments<'_>) -> Evaluated {
    let (dates, units) = (arguments.primitive::<Date32Type>(0)?, arguments.string(1)?);
    let first =
        |row: usize| first_day(dates.value(row).into(), units.value(row)).and_then(|days| i32::try_from(days).ok());
    Ok(Arc::new(arguments.each::<_, Date32Array>(|row| Ok(first(row)))?))
}

fn date_trunc(arguments: &Arguments<'_>) -> Evaluated {
    let (units, instants) = (arguments.string(0)?, arguments.primitive::<TimestampMicrosecondType>(1)?);
    let cut = |row: usize| {
        let (unit, micros) = (units.value(row), instants.value(row));
        let unit = match unit.to_ascii_uppercase().as_str() {
            "DAY" | "DD" => MICROS_PER_DAY,
            "HOUR" => 3600 * MICROS_PER_SECOND,
            "MINUTE" => 60 * MICROS_PER_SECOND,
            "SECOND" => MICROS_PER_SECOND,
            "MILLISECOND" => 1000,
            "MICROSECOND" => 1,
            _ => {
                let first = first_day(micros.div_euclid(MICROS_PER_DAY), unit);
                return first.map(|days| days.checked_mul(MICROS_PER_DAY).ok_or(RESULT_BEYOND));
            }
        };
        Some(micros.checked_sub(micros.rem_euclid(unit)).ok_or(RESULT_BEYOND))
    };
    let made: TimestampMicrosecondArray = arguments.each(|row| cut(row).transpose().map_err(str::to_owned))?;
    Ok(Arc::new(made.with_timezone("UTC")))
}

/// Patterns of rows, the latest one kept.
struct Patterns<'a> {
    texts: &'a StringArray,
    latest: Option<(&'a str, Pattern)>,
}

impl<'a> Patterns<'a> {
    fn of(&mut self, row: usize) -> Result<&Pattern, String> {
        let text = self.texts.value(row);
        if self.latest.as_ref().is_none_or(|(known, _)| *known != text) {
            self.latest = Some((text, Pattern::new(text)?));
        }
        self.latest.as_ref().map(|(_, pattern)| pattern).ok_or_else(String::new)
    }
}

fn date_format(arguments: &Arguments<'_>) -> Evaluated {
    let instants = arguments.primitive::<TimestampMicrosecondType>(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, latest: None };
    Ok(Arc::new(arguments.strings(|row| Ok(patterns.of(row)?.print(instants.value(row))))?))
}

fn parsed<T>(
    arguments: &Arguments<'_>,
    make: impl Fn(i64) -> Option<T>,
) -> Result<impl FnMut(usize) -> Result<Option<T>, String>, crate::error::Error> {
    let texts = arguments.string(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, latest: None };
    Ok(move |row: usize| {
        let text = texts.value(row);
        let value = patterns.of(row)?.parse(text).and_then(&make);
        value.map(Some).ok_or_else(|| format!("'{text}' does not follow the pattern '{}'", patterns.texts.value(row)))
    })
}

fn to_date(arguments: &Arguments<'_>) -> Evaluated {
    let value = parsed(arguments, |micros| i32::try_from(micros.div_euclid(MICROS_PER_DAY)).ok())?;
    Ok(Arc::new(arguments.each::<_, Date32Array>(value)?))
}

fn to_timestamp(arguments: &Arguments<'_>) -> Evaluated {
    let value = parsed(arguments, Some)?;
    Ok(Arc::new(arguments.each::<_, TimestampMicrosecondArray>(value)?.with_timezone("UTC")))
}

fn from_unixtime(arguments: &Arguments<'_>) -> Evaluated {
    let seconds = arguments.primitive::<Int64Type>(0)?;
    let mut patterns = Patterns { texts: arguments.string(1)?, latest: None };
    let made = arguments.strings(|row| {
        let micros = seconds.value(row).checked_mul(MICROS_PER_SECOND).ok_or(BEYOND)?;
        Ok(patterns.of(row)?.print(micros))
    })?;
    Ok(Arc::new(made))
}

fn unix_timestamp(arguments: &Arguments<'_>) -> Evaluated {
    let value = parsed(arguments, |micros| Some(micros / MICROS_PER_SECOND))?;
    Ok(Arc::new(arguments.each::<_, Int64Array>(value)?))
}

/// A timestamp of so many units since the epoch.
fn instant(arguments: &Arguments<'_>, unit: i64) -> Evaluated {
    let numbers = arguments.primitive::<Int64Type>(0)?;
    let made: TimestampMicrosecondArray =
        arguments.each(|row| numbers.value(row).checked_mul(unit).map(Some).ok_or_else(|| BEYOND.to_owned()))?;
    Ok(Arc::new(made.with_timezone("UTC")))
}

/// A name by a pattern.
fn named(arguments: &Arguments<'_>, pattern: &str) -> Evaluated {
    let dates = arguments.primitive::<Date32Type>(0)?;
    let pattern = Pattern::new(pattern).map_err(crate::error::Error::internal)?;
    let name = |row: usize| pattern.print(i64::from(dates.value(row)).saturating_mul(MICROS_PER_DAY));
    Ok(Arc::new(arguments.strings(|row| Ok(name(row)))?))
}

/// The first day after a day that has this name.
fn next_day(arguments: &Arguments<'_>) -> Evaluated {
    let (dates, names) = (arguments.primitive::<Date32Type>(0)?, arguments.string(1)?);
    let made: Date32Array = arguments.each(|row| {
        let (day, name) = (i64::from(dates.value(row)), names.value(row));
        let wanted = match name.to_uppercase().as_str() {
            "MO" | "MON" | "MONDAY" => 0,
            "TU" | "TUE" | "TUESDAY" => 1,
            "WE" | "WED" | "WEDNESDAY" => 2,
            "TH" | "THU" | "THURSDAY" => 3,
            "FR" | "FRI" | "FRIDAY" => 4,
            "SA" | "SAT" | "SATURDAY" => 5,
            "SU" | "SUN" | "SUNDAY" => 6,
            _ => return Err(format!("'{name}' is not the name of a day")),
        };
        let following = day + 1 + (wanted - civil::weekday(day) - 1).rem_euclid(7);
        i32::try_from(following).map(Some).map_err(|_| "the date is beyond the range of dates".to_owned())
    })?;
    Ok(Arc::new(made))
}

/// Months from the second timestamp to the first. For whole months, and from one month's end to another's, the time of the
/// day does not count; otherwise a month counts as 31 days. Rounded to eight digits after the point.
fn months_between(arguments: &Arguments<'_>) -> Evaluated {
    let [end, start] =
        [arguments.primitive::<TimestampMicrosecondType>(0)?, arguments.primitive::<TimestampMicrosecondType>(1)?];
    let split = |micros: i64| {
        let (year, month, day) = civil::of_days(micros.div_euclid(MICROS_PER_DAY));
        let is_last = day == civil::length(year, month);
        let seconds = micros.rem_euclid(MICROS_PER_DAY) / MICROS_PER_SECOND;
        (year * 12 + i64::from(month), i64::from(day), is_last, seconds)
    };
    let between = |row: usize| {
        let (end, start) = (split(end.value(row)), split(start.value(row)));
        let months = (end.0 - start.0) as f64;
        if end.1 == start.1 || (end.2 && start.2) {
            return months;
        }
        let seconds = (end.1 - start.1) * 86_400 + end.3 - start.3;
        let exact = (months + seconds as f64 / (31.0 * 86_400.0)) * 1e8;
        // Halves are rounded up.
        let floor = exact.floor();
        (if exact - floor >= 0.5 { floor + 1.0 } else { floor }) / 1e8
    };
    Ok(Arc::new(arguments.each::<_, Float64Array>(|row| Ok(Some(between(row))))?))
}
