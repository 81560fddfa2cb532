//! The proleptic Gregorian calendar over all days that 32 and 64 bits count.

/// The year, month and day of days since 1970-01-01.
pub(super) fn of_days(days: i64) -> (i64, u32, u32) {
    // Counted from 0000-03-01, so that a leap day ends a year; 400 years are an era.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

/// Days since 1970-01-01, if there is such a day.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    ((1..=12).contains(&month) && day >= 1 && day <= i64::from(length(year, month as u32)))
        .then(|| first_of(year, month as u32) + day - 1)
}

/// The first day of a month, which may be any from 1 to 12.
pub(super) fn first_of(year: i64, month: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let of_year = (153 * month + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The first day of a year.
pub(crate) fn first_day_of_year(year: i64) -> i64 {
    first_of(year, 1)
}

/// How many days a month has.
pub(super) fn length(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// 0 for Monday to 6 for Sunday.
pub(super) fn weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7)
}

/// The ISO 8601 week.
pub(super) fn week(days: i64) -> i64 {
    let thursday = days - weekday(days) + 3;
    let (year, _, _) = of_days(thursday);
    (thursday - first_of(year, 1)) / 7 + 1
}
