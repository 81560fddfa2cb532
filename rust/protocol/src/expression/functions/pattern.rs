//! Patterns of dates and times, such as `yyyy-MM-dd HH:mm:ss`: the usual letters, with English names.

use crate::expression::civil;
use crate::scalar::MICROS_PER_DAY;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A pattern, split.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern {
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
enum Item {
    Text(String),
    /// A letter and how often it is repeated.
    Field(char, usize),
}

impl Pattern {
    /// Splits a pattern.
    ///
    /// # Errors
    /// For letters that are not supported, naming them.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let mut items: Vec<Item> = Vec::new();
        let text = |items: &mut Vec<Item>, c: char| match items.last_mut() {
            Some(Item::Text(text)) => text.push(c),
            _ => items.push(Item::Text(c.to_string())),
        };
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\'' if chars.next_if_eq(&'\'').is_some() => text(&mut items, '\''),
                '\'' => loop {
                    match chars.next() {
                        None => return Err(format!("the pattern '{pattern}' has a quote that is never closed")),
                        Some('\'') if chars.next_if_eq(&'\'').is_some() => text(&mut items, '\''),
                        Some('\'') => break,
                        Some(c) => text(&mut items, c),
                    }
                },
                letter if letter.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while chars.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    let most = match letter {
                        'y' | 'M' | 'E' => 4,
                        'd' | 'H' | 'h' | 'm' | 's' => 2,
                        'S' => 9,
                        'D' => 3,
                        'a' => 1,
                        _ => 0,
                    };
                    if count > most || (letter == 'y' && count == 3) {
                        let spelled = letter.to_string().repeat(count);
                        return Err(format!("`{spelled}` in the pattern '{pattern}' is not supported"));
                    }
                    items.push(Item::Field(letter, count));
                }
                '#' | '{' | '}' | '[' | ']' => {
                    return Err(format!("`{c}` in the pattern '{pattern}' is not supported"));
                }
                c => text(&mut items, c),
            }
        }
        Ok(Self { items })
    }

    /// Writes a timestamp.
    pub(super) fn print(&self, micros: i64) -> String {
        let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
        let (year, month, day) = civil::of_days(days);
        let (seconds, fraction) = (time / MICROS_PER_SECOND, time % MICROS_PER_SECOND);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let name = |names: &[&'static str], at: i64| {
            usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or_default()
        };
        let mut made = String::new();
        for item in &self.items {
            let (letter, count) = match item {
                Item::Text(text) => {
                    made.push_str(text);
                    continue;
                }
                Item::Field(letter, count) => (*letter, *count),
            };
            let number = match letter {
                'y' if count == 2 => year.unsigned_abs() as i64 % 100,
                'y' => {
                    let sign = match year {
                        ..0 => "-",
                        10_000.. if count == 4 => "+",
                        _ => "",
                    };
                    made.push_str(&format!("{sign}{:0count$}", year.unsigned_abs()));
                    continue;
                }
                'M' if count > 2 => {
                    let full = name(&MONTHS, i64::from(month) - 1);
                    made.push_str(if count == 3 { full.get(..3).unwrap_or(full) } else { full });
                    continue;
                }
                'E' => {
                    let full = name(&DAYS, civil::weekday(days));
                    made.push_str(if count < 4 { full.get(..3).unwrap_or(full) } else { full });
                    continue;
                }
                'a' => {
                    made.push_str(if hours < 12 { "AM" } else { "PM" });
                    continue;
                }
                'S' => {
                    let digits = format!("{fraction:06}000");
                    made.push_str(digits.get(..count).unwrap_or_default());
                    continue;
                }
                'M' => month.into(),
                'd' => day.into(),
                'H' => hours,
                'h' => (hours + 11) % 12 + 1,
                'm' => minutes,
                's' => seconds,
                _ => days - civil::first_of(year, 1) + 1,
            };
            made.push_str(&format!("{number:0count$}"));
        }
        made
    }

    /// Reads a timestamp. Fields that the pattern does not have are those of the beginning of 1970. As in Spark, letters are
    /// case-insensitive, and a fraction may have fewer digits than the pattern.
    pub(super) fn parse(&self, text: &str) -> Option<i64> {
        let (mut rest, mut found) = (text, Found::default());
        for item in &self.items {
            match item {
                Item::Text(expected) => {
                    let (given, after) = rest.split_at_checked(expected.len())?;
                    rest = given.eq_ignore_ascii_case(expected).then_some(after)?;
                }
                Item::Field(letter, count) => found.read(*letter, *count, &mut rest)?,
            }
        }
        if rest.is_empty() { found.micros() } else { None }
    }
}

/// The fields of a timestamp that were read.
struct Found {
    year: i64,
    month: i64,
    day: i64,
    of_year: Option<i64>,
    hours: i64,
    /// The hour of a 12-hour clock.
    twelve: Option<i64>,
    is_pm: bool,
    minutes: i64,
    seconds: i64,
    /// Microseconds.
    fraction: i64,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            year: 1970,
            month: 1,
            day: 1,
            of_year: None,
            hours: 0,
            twelve: None,
            is_pm: false,
            minutes: 0,
            seconds: 0,
            fraction: 0,
        }
    }
}

impl Found {
    /// Reads one field from the beginning of what is left.
    fn read(&mut self, letter: char, count: usize, rest: &mut &str) -> Option<()> {
        match letter {
            'M' if count > 2 => self.month = named(rest, &MONTHS, count == 3)? + 1,
            'E' => drop(named(rest, &DAYS, count < 4)?),
            'a' => {
                let (half, after) = rest.split_at_checked(2)?;
                self.is_pm = match half.to_ascii_uppercase().as_str() {
                    "AM" => false,
                    "PM" => true,
                    _ => return None,
                };
                *rest = after;
            }
            'S' => {
                let before = rest.len();
                let digits = digits(rest, 1, count)?;
                let read = u32::try_from(before.saturating_sub(rest.len())).ok()?;
                self.fraction = digits.checked_mul(10_i64.checked_pow(9_u32.checked_sub(read)?)?)? / 1000;
            }
            'y' if count == 2 => self.year = 2000 + digits(rest, 2, 2)?,
            'y' if count == 1 => self.year = digits(rest, 1, 6)?,
            'y' => {
                let negative = rest.starts_with('-');
                let signed = rest.strip_prefix(['-', '+']);
                *rest = signed.unwrap_or(rest);
                // More than four digits need a sign.
                let year = digits(rest, 4, if signed.is_some() { 6 } else { 4 })?;
                self.year = if negative { -year } else { year };
            }
            'D' => self.of_year = Some(digits(rest, count, 3)?),
            letter => {
                let number = digits(rest, count, 2)?;
                match letter {
                    'M' => self.month = number,
                    'd' => self.day = number,
                    'H' => self.hours = number,
                    'h' => self.twelve = Some(number),
                    'm' => self.minutes = number,
                    _ => self.seconds = number,
                }
            }
        }
        Some(())
    }

    /// Microseconds since the epoch, if there is such a time.
    fn micros(&self) -> Option<i64> {
        let hours = match self.twelve {
            Some(hour) if (1..=12).contains(&hour) => hour % 12 + if self.is_pm { 12 } else { 0 },
            Some(_) => return None,
            None => self.hours,
        };
        if hours > 23 || self.minutes > 59 || self.seconds > 59 {
            return None;
        }
        let days = match self.of_year {
            Some(at) => {
                let first = civil::first_of(self.year, 1);
                let last = civil::first_of(self.year + 1, 1) - first;
                first + (1..=last).contains(&at).then_some(at - 1)?
            }
            None => civil::days_of(self.year, self.month, self.day)?,
        };
        let time = ((hours * 60 + self.minutes) * 60 + self.seconds) * MICROS_PER_SECOND + self.fraction;
        days.checked_mul(MICROS_PER_DAY)?.checked_add(time)
    }
}

fn digits(rest: &mut &str, least: usize, most: usize) -> Option<i64> {
    let count = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at_checked(count).filter(|_| count >= least)?;
    *rest = after;
    number.parse().ok()
}

/// The number of a name at the beginning, from 0.
fn named(rest: &mut &str, names: &[&str], short: bool) -> Option<i64> {
    let spelled = |name: &'_ str| if short { name.get(..3).unwrap_or(name).to_owned() } else { name.to_owned() };
    let is_next = |name: &str| rest.get(..name.len()).is_some_and(|given| given.eq_ignore_ascii_case(name));
    let at = names.iter().position(|name| is_next(&spelled(name)))?;
    *rest = rest.get(spelled(names.get(at)?).len()..)?;
    i64::try_from(at).ok()
}
