//! `interval 1 week 2 days`: durations as table properties write them.

/// Milliseconds of an interval: pairs of number and unit from weeks down to microseconds, with or without the leading
/// word `interval`, in any case. Months and years are refused because they have no fixed length.
pub fn parse_interval(text: &str) -> Result<i64, String> {
    let lower = text.to_lowercase();
    let mut words = lower.split_ascii_whitespace().peekable();
    words.next_if_eq(&"interval");
    if words.peek().is_none() {
        return Err("it must be an interval, like `interval 7 days`".to_owned());
    }
    let mut micros: i64 = 0;
    while let Some(number) = words.next() {
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let (Some(unit), true) = (words.next(), digits) else {
            return Err("it must be numbers with units, like `interval 1 week 12 hours`".to_owned());
        };
        let length = match unit.strip_suffix('s').unwrap_or(unit) {
            "week" => 7 * 24 * 60 * 60 * 1_000_000,
            "day" => 24 * 60 * 60 * 1_000_000,
            "hour" => 60 * 60 * 1_000_000,
            "minute" => 60 * 1_000_000,
            "second" => 1_000_000,
            "millisecond" => 1_000,
            "microsecond" => 1,
            "month" | "year" => return Err("months and years differ in length; use days".to_owned()),
            _ => {
                return Err(
                    "its units may be weeks, days, hours, minutes, seconds, milliseconds, microseconds".to_owned()
                );
            }
        };
        let part = number.parse::<i64>().ok().and_then(|n| n.checked_mul(length));
        micros = part.and_then(|part| micros.checked_add(part)).ok_or_else(|| "it is too long".to_owned())?;
    }
    Ok(micros / 1_000)
}
