//! The text forms of scalars: dates, timestamps, decimals, floats, binary.
//!
//! Reading is lenient about what other writers produce (both timestamp forms, unpadded fields, offsets), writing has
//! one form. Dates and timestamps cover the whole range of their integers, far beyond what a calendar library holds, by
//! working in 400-year cycles, after which the Gregorian calendar repeats.

use std::fmt;

use chrono::{Datelike, NaiveDate};

use super::digits::{Plain, of_form};

const DAYS_PER_CYCLE: i64 = 146_097;
const YEARS_PER_CYCLE: i64 = 400;
/// Any year that starts a cycle well inside the calendar library's range.
const CYCLE_START: i32 = 2000;
/// Days from 1970-01-01 to the first day of [`CYCLE_START`].
const CYCLE_START_DAY: i64 = 10_957;
/// Days from 0001-01-01 to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_162;
pub(crate) const MICROS_PER_DAY: i64 = 86_400_000_000;
const MILLIS_PER_DAY: i64 = 86_400_000;
const MICROS_PER_SECOND: i64 = 1_000_000;
/// Offsets from UTC beyond this are not used anywhere and are refused.
const MAX_OFFSET_HOURS: i64 = 18;

/// Writes `YYYY-MM-DD`, with a sign when the year has not four digits.
pub(super) fn fmt_date(f: &mut fmt::Formatter<'_>, days: i64) -> fmt::Result {
    let shifted = days - CYCLE_START_DAY;
    let day = shifted.rem_euclid(DAYS_PER_CYCLE);
    let first = NaiveDate::from_ymd_opt(CYCLE_START, 1, 1);
    let Some(date) = first.and_then(|first| first.checked_add_days(chrono::Days::new(day.unsigned_abs()))) else {
        return write!(f, "{days} days");
    };
    let year = i64::from(date.year()) + shifted.div_euclid(DAYS_PER_CYCLE) * YEARS_PER_CYCLE;
    let sign = match year {
        ..0 => "-",
        0..=9999 => "",
        10_000.. => "+",
    };
    write!(f, "{sign}{:04}-{:02}-{:02}", year.unsigned_abs(), date.month(), date.day())
}

/// Writes date, `separator`, time to the microsecond, `zone`.
pub(super) fn fmt_instant(f: &mut fmt::Formatter<'_>, micros: i64, separator: char, zone: &str) -> fmt::Result {
    fmt_date(f, micros.div_euclid(MICROS_PER_DAY))?;
    let time = micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (time / MICROS_PER_SECOND, time % MICROS_PER_SECOND);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(f, "{separator}{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}{zone}")
}

/// A timestamp, in milliseconds since the epoch, for people: `2026-03-01T12:00:00.000Z`.
pub fn iso_instant(millis: i64) -> String {
    struct Iso(i64);
    impl fmt::Display for Iso {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt_date(f, self.0.div_euclid(MILLIS_PER_DAY))?;
            let time = self.0.rem_euclid(MILLIS_PER_DAY);
            let (seconds, fraction) = (time / 1_000, time % 1_000);
            write!(f, "T{:02}:{:02}:{:02}.{fraction:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
        }
    }
    Iso(millis).to_string()
}

/// Writes a float the way the JVM does (`1.0`, `1.0E10`, `-Infinity`, `NaN`), given its shortest `{:?}` and `{:e}`.
pub(super) fn fmt_float(f: &mut fmt::Formatter<'_>, value: f64, plain: &str, scientific: &str) -> fmt::Result {
    if value.is_infinite() {
        return f.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if value == 0.0 || value.is_nan() || (1e-3..1e7).contains(&value.abs()) {
        return f.write_str(plain);
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    write!(f, "{mantissa}{point}E{exponent}")
}

/// Writes `value / 10^scale` with all digits of the scale.
pub(super) fn fmt_decimal(f: &mut fmt::Formatter<'_>, value: i128, scale: u8) -> fmt::Result {
    let scale = usize::from(scale);
    let digits = format!("{:0width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if scale == 0 { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{fraction}") }
}

/// Plain or scientific notation, exactly: a digit that does not fit the scale must be zero.
pub fn parse_decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let plain = Plain::of(text.as_bytes(), text.len());
    if let Some(value) = plain.and_then(|number| plain_decimal(number, precision, scale)) {
        return Some(value);
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    if value == 0 {
        return Some(0);
    }
    let mut shift = i32::from(scale).checked_add(exponent)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    while shift > 0 {
        value = value.checked_mul(10)?;
        shift -= 1;
    }
    while shift < 0 {
        if value % 10 != 0 {
            return None;
        }
        value /= 10;
        shift += 1;
    }
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (value < limit).then_some(if negative { -value } else { value })
}

/// The value of a number in plain notation with few digits. `None`: parse it with the general parser.
pub(crate) fn plain_decimal(number: Plain, precision: u8, scale: u8) -> Option<i128> {
    let value = i128::from(number.scaled(usize::from(scale))?);
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (-limit < value && value < limit).then_some(value)
}

/// Binary partition values are text whose UTF-8 bytes are the value; some writers escape every byte as `\u00XX`.
pub(super) fn parse_binary(text: &str) -> Vec<u8> {
    unescape(text).unwrap_or_else(|| text.as_bytes().to_vec())
}

/// The bytes of a string that consists of nothing but `\u00XX` escapes.
pub(super) fn unescape(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.is_ascii() || !text.len().is_multiple_of(6) {
        return None;
    }
    text.as_bytes()
        .chunks(6)
        .map(|escape| {
            let hex = std::str::from_utf8(escape.strip_prefix(b"\\u00")?).ok()?;
            hex.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u8::from_str_radix(hex, 16).ok()).flatten()
        })
        .collect()
}

/// `[+-]YYYY-MM-DD`, as days since 1970-01-01.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    i32::try_from(parse_days(text)?).ok()
}

fn parse_days(text: &str) -> Option<i64> {
    if let Some(days) = <&[u8; 10]>::try_from(text.as_bytes()).ok().and_then(plain_days) {
        return Some(days);
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = rest.splitn(3, '-');
    let year = digits(parts.next()?, 4, 7)?;
    let month = u32::try_from(digits(parts.next()?, 1, 2)?).ok()?;
    let day = u32::try_from(digits(parts.next()?, 1, 2)?).ok()?;
    let year = (if negative { -year } else { year }) - i64::from(CYCLE_START);
    let in_cycle = i32::try_from(year.rem_euclid(YEARS_PER_CYCLE)).ok()?;
    let date = NaiveDate::from_ymd_opt(CYCLE_START + in_cycle, month, day)?;
    let first = NaiveDate::from_ymd_opt(CYCLE_START, 1, 1)?;
    Some((date - first).num_days() + CYCLE_START_DAY + year.div_euclid(YEARS_PER_CYCLE) * DAYS_PER_CYCLE)
}

/// The days of `YYYY-MM-DD` as it is nearly always written. `None`: parse it with the general parser.
fn plain_days(text: &[u8; 10]) -> Option<i64> {
    /// Days before each month of a year that is not a leap year, by its number, and before the next year.
    const BEFORE: [i64; 14] = [0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    let [y1, y2, y3, y4, _, m1, m2, _] = of_form(*text.first_chunk()?, b"0000-00-")?;
    let [y1, y2, y3, y4, m1, m2] = [y1, y2, y3, y4, m1, m2].map(i64::from);
    let (year, month) = ((y1 * 10 + y2) * 100 + y3 * 10 + y4, usize::try_from(m1 * 10 + m2).ok()?);
    let day = pair(*text.get(8)?, *text.get(9)?)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (before, next) = (BEFORE.get(month)?, BEFORE.get(month + 1)?);
    if day == 0 || day > next - before + i64::from(is_leap && month == 2) || year == 0 {
        return None;
    }
    let past = year - 1;
    let leap_days = past / 4 - past / 100 + past / 400 + i64::from(is_leap && month > 2);
    Some(past * 365 + leap_days + before + day - 1 - DAYS_BEFORE_1970)
}

/// The microseconds of `YYYY-MM-DDTHH:MM:SS`, with or without a fraction, with `Z`, as timestamps are nearly always written.
/// `None`: parse it with the general parser.
fn plain_instant(text: &str) -> Option<i64> {
    let (date, rest) = text.as_bytes().split_first_chunk::<10>()?;
    let (time, fraction) = rest.split_first_chunk::<8>()?;
    let [_, h1, h2, _, m1, m2, _, s1] = of_form(*time, b"T00:00:0")?.map(i64::from);
    let (s2, fraction) = fraction.split_first()?;
    let (hours, minutes, seconds) = (h1 * 10 + h2, m1 * 10 + m2, s1 * 10 + digit(*s2)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let micros = match fraction.strip_suffix(b"Z")? {
        [] => 0,
        [b'.', fraction @ ..] if (1..=6).contains(&fraction.len()) => {
            let digits = fraction.iter().try_fold(0, |sum, byte| Some(sum * 10 + digit(*byte)?))?;
            (fraction.len()..6).fold(digits, |sum, _| sum * 10)
        }
        _ => return None,
    };
    let time = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
    Some(plain_days(date)? * MICROS_PER_DAY + time)
}

fn digit(byte: u8) -> Option<i64> {
    byte.is_ascii_digit().then(|| i64::from(byte - b'0'))
}

fn pair(tens: u8, ones: u8) -> Option<i64> {
    Some(digit(tens)? * 10 + digit(ones)?)
}

fn digits(text: &str, least: usize, most: usize) -> Option<i64> {
    let fits = (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// `YYYY-MM-DD[( |T)HH:MM[:SS[.f]][zone]]`; without a zone it is UTC. Digits beyond microseconds are cut off.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let (local, offset) = parse_instant(text.trim())?;
    local.checked_sub(offset.unwrap_or(0).checked_mul(MICROS_PER_SECOND)?)
}

/// `YYYY-MM-DD[( |T)HH:MM[:SS[.f]]]`, without a zone. Digits beyond microseconds are cut off.
pub fn parse_timestamp_ntz(text: &str) -> Option<i64> {
    match parse_instant(text.trim())? {
        (local, None) => Some(local),
        (_, Some(_)) => None,
    }
}

/// Microseconds of the local time, and the offset in seconds if a zone is written.
fn parse_instant(text: &str) -> Option<(i64, Option<i64>)> {
    if let Some(micros) = plain_instant(text) {
        return Some((micros, Some(0)));
    }
    let Some((date, rest)) = text.split_once(['T', ' ']) else {
        return Some((parse_days(text)?.checked_mul(MICROS_PER_DAY)?, None));
    };
    let zone_at = rest.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(rest.len());
    let (time, zone) = rest.split_at_checked(zone_at)?;
    let mut parts = time.splitn(3, ':');
    let hours = digits(parts.next()?, 1, 2).filter(|h| *h < 24)?;
    let minutes = digits(parts.next()?, 1, 2).filter(|m| *m < 60)?;
    let (seconds, fraction) = match parts.next() {
        None => (0, 0),
        Some(part) => {
            let (seconds, fraction) = part.split_once('.').unwrap_or((part, ""));
            (digits(seconds, 1, 2).filter(|s| *s < 60)?, parse_fraction(fraction)?)
        }
    };
    let time = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + fraction;
    // In wide arithmetic, because the first representable instant is later than the midnight before it.
    let local = i128::from(parse_days(date)?) * i128::from(MICROS_PER_DAY) + i128::from(time);
    Some((i64::try_from(local).ok()?, parse_zone(zone.trim())?))
}

fn parse_fraction(text: &str) -> Option<i64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, |sum, b| sum * 10 + i64::from(b - b'0')))
}

fn parse_zone(zone: &str) -> Option<Option<i64>> {
    let (sign, rest) = match zone {
        "" => return Some(None),
        "Z" | "z" | "UTC" | "GMT" => return Some(Some(0)),
        _ => match zone.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, zone.strip_prefix('+')?),
        },
    };
    let (hours, minutes, seconds) = if rest.contains(':') {
        let mut parts = rest.splitn(3, ':');
        (parts.next()?, parts.next()?, parts.next().unwrap_or("0"))
    } else {
        let (hours, minutes) = rest.split_at_checked(rest.len().min(2))?;
        (hours, if minutes.is_empty() { "0" } else { minutes }, "0")
    };
    let hours = digits(hours, 1, 2).filter(|h| *h <= MAX_OFFSET_HOURS)?;
    let minutes = digits(minutes, 1, 2).filter(|m| *m < 60)?;
    let seconds = digits(seconds, 1, 2).filter(|s| *s < 60)?;
    Some(Some(sign * (hours * 3600 + minutes * 60 + seconds)))
}
