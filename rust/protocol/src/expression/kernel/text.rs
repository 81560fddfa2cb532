//! What strings mean as values of other types, and how values are written, as Spark casts them.

use crate::expression::civil;
use crate::scalar::{MICROS_PER_DAY, Scalar};

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Without white space and control characters around it.
pub(crate) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ' || c == '\u{7f}')
}

/// A whole number: a sign and digits.
pub(crate) fn whole_of(text: &str) -> Option<i64> {
    trimmed(text).parse().ok()
}

/// A float, as Java reads it.
pub(crate) fn double_of(text: &str) -> Option<f64> {
    parse_float(text).and_then(|text| text.parse().ok())
}

/// A float of 32 bits.
pub(crate) fn float_of(text: &str) -> Option<f32> {
    parse_float(text).and_then(|text| text.parse().ok())
}

fn parse_float(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let stripped =
        text.strip_suffix(['d', 'D', 'f', 'F']).filter(|rest| rest.ends_with(|c: char| c.is_ascii_digit() || c == '.'));
    let number = stripped.unwrap_or(text);
    // A signed NaN must be spelled as in Java.
    let signed = number.strip_prefix(['+', '-']).filter(|rest| rest.eq_ignore_ascii_case("nan"));
    (signed.is_none_or(|rest| rest == "NaN")).then_some(number)
}

/// A decimal, rounded half up to the scale; `None` if it is none or has too many digits.
pub(crate) fn decimal_of(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let text = trimmed(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    // How many of all digits the result keeps.
    let wanted = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(scale);
    let mut value: i128 = 0;
    let mut all = whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0'));
    for _ in 0..wanted.max(0) {
        let digit = all.next();
        if digit.is_none() && value == 0 {
            break;
        }
        value = value.checked_mul(10)?.checked_add(digit.unwrap_or(0))?;
    }
    if wanted >= 0 && all.next().is_some_and(|digit| digit >= 5) {
        value += 1;
    }
    let value = super::decimal::checked(value, precision)?;
    Some(if negative { -value } else { value })
}

/// TRUE and FALSE, as they are spelled.
pub(crate) fn boolean_of(text: &str) -> Option<bool> {
    match trimmed(text).to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// `[+-]yyyy[-[m]m[-[d]d[( |T)…]]]`, as days since 1970-01-01.
pub(crate) fn date_of(text: &str) -> Option<i32> {
    let text = trimmed(text);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find([' ', 'T']).unwrap_or(digits.len());
    let (date, rest) = digits.split_at_checked(end)?;
    let parts: Vec<&str> = date.split('-').collect();
    if parts.len() < 3 && !rest.is_empty() {
        return None;
    }
    let (year, month, day) = match parts.as_slice() {
        [year] => (*year, "1", "1"),
        [year, month] => (*year, *month, "1"),
        [year, month, day] => (*year, *month, *day),
        _ => return None,
    };
    let days = civil::days_of(sign * number(year, 4, 7)?, number(month, 1, 2)?, number(day, 1, 2)?)?;
    i32::try_from(days).ok()
}

fn number(text: &str, least: usize, most: usize) -> Option<i64> {
    let fits = (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// A timestamp, in UTC unless an offset is written.
pub(crate) fn instant_of(text: &str) -> Option<i64> {
    let (wall, offset) = moment(text)?;
    i64::try_from(wall - i128::from(offset.unwrap_or(0)) * i128::from(MICROS_PER_SECOND)).ok()
}

/// A timestamp without a zone; a written zone is ignored.
pub(crate) fn wall_of(text: &str) -> Option<i64> {
    i64::try_from(moment(text)?.0).ok()
}

/// Local microseconds, and the offset in seconds: `[+-]yyyy[-[m]m[-[d]d[( |T)[h]h[:[m]m[:[s]s[.f][zone]]]]]]`.
fn moment(text: &str) -> Option<(i128, Option<i64>)> {
    let text = trimmed(text);
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (date, time) = match rest.split_once([' ', 'T']) {
        Some((date, time)) => (date, Some(time)),
        None => (rest, None),
    };
    let parts: Vec<&str> = date.split('-').collect();
    let (year, month, day) = match (parts.as_slice(), time) {
        ([year], None) => (*year, "1", "1"),
        ([year, month], None) => (*year, *month, "1"),
        ([year, month, day], _) => (*year, *month, *day),
        _ => return None,
    };
    let days = civil::days_of(sign * number(year, 4, 6)?, number(month, 1, 2)?, number(day, 1, 2)?)?;
    let mut parts = time.unwrap_or("0").splitn(3, ':');
    let hours = number(parts.next()?, 1, 2).filter(|v| *v < 24)?;
    let minutes = parts.next().map_or(Some(0), |part| number(part, 1, 2)).filter(|v| *v < 60)?;
    let (mut seconds, mut fraction, mut offset) = (0, 0, None);
    if let Some(part) = parts.next() {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (digits, mut rest) = part.split_at_checked(end)?;
        seconds = number(digits, 1, 2).filter(|v| *v < 60)?;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let (digits, zone) = after.split_at_checked(end)?;
            fraction =
                digits.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, |sum, b| sum * 10 + i64::from(b - b'0'));
            rest = zone;
        }
        if !rest.is_empty() {
            offset = Some(zone_of(rest.trim())?);
        }
    }
    let time = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + fraction;
    Some((i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(time), offset))
}

/// An offset from UTC in seconds. Regions are not known here.
fn zone_of(zone: &str) -> Option<i64> {
    let rest = ["UTC", "GMT", "UT", "Z"].iter().find_map(|name| zone.strip_prefix(name)).unwrap_or(zone);
    if rest.is_empty() {
        return (!zone.is_empty()).then_some(0);
    }
    let (sign, digits) = match rest.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, rest.strip_prefix('+')?),
    };
    let parts: Vec<&str> = match digits.contains(':') {
        true => digits.split(':').collect(),
        false if digits.len() <= 2 => vec![digits],
        false => [digits.get(..2), digits.get(2..4), digits.get(4..)]
            .into_iter()
            .flatten()
            .filter(|p| !p.is_empty())
            .collect(),
    };
    let part = |at: usize, most: i64| parts.get(at).map_or(Some(0), |part| number(part, 1, 2)).filter(|v| *v <= most);
    let seconds = part(0, 18)? * 3600 + part(1, 59)? * 60 + part(2, 59)?;
    (parts.len() <= 3 && seconds <= 18 * 3600).then_some(sign * seconds)
}

/// `yyyy-MM-dd`
pub(crate) fn print_date(days: i32) -> String {
    Scalar::Date(days).to_string()
}

/// `yyyy-MM-dd HH:mm:ss`, and as much of the fraction as there is.
pub(crate) fn print_instant(micros: i64) -> String {
    let full = Scalar::TimestampNtz(micros).to_string();
    full.trim_end_matches('0').strip_suffix('.').map_or_else(|| full.trim_end_matches('0').to_owned(), str::to_owned)
}
