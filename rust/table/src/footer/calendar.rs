//! Converts dates and timestamps of the hybrid calendar, in the way that Spark 3 and later read them.
//!
//! Spark before 3.0, and later versions in legacy mode, store the days before 1582-10-15 by the Julian calendar: year,
//! month and day are the same, but the number of days differs. Timestamps are stored by the clock of a time
//! zone, which before 1900 differs between `java.util` and `java.time` by the zone's local mean time. A file records this in
//! the key-value metadata of its footer, with the time zone (Spark's `DataSourceUtils` and `RebaseDateTime`).
//!
//! Invariant: a value becomes what Spark reads, or it is refused. Refused are timestamps before 1900 in a time zone that
//! the footer does not name or that is not in `hybrid_zones.txt`. Later ones are the same in both calendars.
//! Proved by `tests/rust/table/read/calendars.rs` and `file_index::typed_columns_of_the_hybrid_calendar_are_not_used`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_arith::arity::try_unary;
use arrow_array::types::{Date32Type, TimestampMicrosecondType};
use arrow_array::{Date32Array, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, DataType as ArrowType};
use deltic_protocol::error::Error;
use deltic_protocol::schema::PrimitiveType;
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::ColumnDescriptor;

const SPARK_VERSION: &str = "org.apache.spark.version";
const TIME_ZONE: &str = "org.apache.spark.timeZone";
const LEGACY_DATETIME: &str = "org.apache.spark.legacyDateTime";
const LEGACY_INT96: &str = "org.apache.spark.legacyINT96";

/// The first versions of Spark that use the proleptic calendar unless the file says otherwise: for dates and
/// timestamps, and for timestamps in INT96.
const FIRST_PROLEPTIC: [(u32, u32); 2] = [(3, 0), (3, 1)];

/// 1582-10-15, the first day of the Gregorian part of the hybrid calendar, in days since 1970-01-01.
const FIRST_GREGORIAN_DAY: i64 = -141_427;

/// 1900-01-01 UTC in seconds since 1970: from then on all time zones are the same in both calendars.
const FIRST_SAME_SECOND: i64 = -2_208_988_800;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Which columns of a file are in the hybrid calendar.
#[derive(Debug, Default)]
pub(crate) struct Calendars {
    /// The calendar of dates and of timestamps that are not INT96; `None` for the proleptic calendar.
    datetime: Option<Arc<Hybrid>>,
    /// The calendar of INT96 timestamps.
    int96: Option<Arc<Hybrid>>,
    /// Indexes of the leaves that are INT96.
    int96_leaves: BTreeSet<usize>,
}

/// The hybrid calendar of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hybrid {
    /// Name of the time zone, if the file has one.
    zone: Option<String>,
    /// The clock of that time zone, if it is known.
    clock: Option<Clock>,
}

/// The two clocks of a time zone, in seconds.
#[derive(Debug, PartialEq, Eq)]
struct Clock {
    /// Offset from UTC before 1900.
    offset: i64,
    /// What is added up to the beginning of the Gregorian part.
    shift: i64,
    /// Instants from which another number is added, with that number.
    later: Vec<(i64, i64)>,
}

impl Calendars {
    /// The calendars by the footer.
    pub(crate) fn of(file: &FileMetaData) -> Self {
        let pairs = || file.key_value_metadata().into_iter().flatten();
        let value = |key: &str| pairs().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
        let version = value(SPARK_VERSION).and_then(parse_version);
        let [datetime, int96] = [LEGACY_DATETIME, LEGACY_INT96].map(|key| pairs().any(|pair| pair.key == key));
        let is_older = FIRST_PROLEPTIC.map(|first| version.is_some_and(|version| version < first));
        let hybrid = Arc::new(Hybrid::in_zone(value(TIME_ZONE)));
        let [datetime, int96] =
            [datetime || is_older[0], int96 || is_older[1]].map(|is_hybrid| is_hybrid.then(|| Arc::clone(&hybrid)));
        let mut int96_leaves = BTreeSet::new();
        if datetime.is_some() || int96.is_some() {
            let leaves = file.schema_descr().columns().iter().enumerate();
            int96_leaves
                .extend(leaves.filter(|(_, leaf)| leaf.physical_type() == PhysicalType::INT96).map(|(index, _)| index));
        }
        Self { datetime, int96, int96_leaves }
    }

    /// The calendar of a leaf that has the type `file` in the file and `table` in the table, `None` if it has none or the
    /// proleptic one. Timestamps without a time zone did not exist yet when Spark used the hybrid calendar.
    pub(crate) fn of_leaf(&self, leaf: usize, file: &ArrowType, table: &PrimitiveType) -> Option<Arc<Hybrid>> {
        let calendar = match (file, table) {
            (ArrowType::Date32, _) => &self.datetime,
            (ArrowType::Timestamp(..), _) if self.int96_leaves.contains(&leaf) => &self.int96,
            (ArrowType::Timestamp(..), PrimitiveType::Timestamp) => &self.datetime,
            _ => &None,
        };
        calendar.clone()
    }

    /// Whether a leaf may have dates or timestamps in the hybrid calendar.
    pub(crate) fn may_differ(&self, leaf: &ColumnDescriptor) -> bool {
        (self.datetime.is_some() || self.int96.is_some())
            && (leaf.physical_type() == PhysicalType::INT96
                || matches!(leaf.logical_type_ref(), Some(LogicalType::Date | LogicalType::Timestamp(_)))
                || matches!(
                    leaf.converted_type(),
                    ConvertedType::DATE | ConvertedType::TIMESTAMP_MICROS | ConvertedType::TIMESTAMP_MILLIS
                ))
    }
}

/// The major and minor version.
fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Hybrid {
    fn in_zone(zone: Option<&str>) -> Self {
        Self { zone: zone.map(str::to_owned), clock: zone.and_then(Clock::find) }
    }

    /// The same dates as days of the proleptic calendar.
    pub(crate) fn rebase_dates(&self, days: &Date32Array) -> Result<Date32Array, ArrowError> {
        try_unary::<_, _, Date32Type>(days, |days| i32::try_from(rebase_days(days.into())).map_err(|_| too_far("date")))
    }

    /// The same timestamps as instants by the proleptic calendar.
    pub(crate) fn rebase_timestamps(
        &self,
        micros: &TimestampMicrosecondArray,
    ) -> Result<TimestampMicrosecondArray, ArrowError> {
        try_unary::<_, _, TimestampMicrosecondType>(micros, |micros| {
            let second = micros.div_euclid(MICROS_PER_SECOND);
            if second >= FIRST_SAME_SECOND {
                return Ok(micros);
            }
            let clock = self.clock.as_ref().ok_or_else(|| self.refuse(second))?;
            let rebased = clock.rebase(second).checked_mul(MICROS_PER_SECOND);
            rebased
                .and_then(|seconds| seconds.checked_add(micros.rem_euclid(MICROS_PER_SECOND)))
                .ok_or_else(|| too_far("timestamp"))
        })
    }

    fn refuse(&self, second: i64) -> ArrowError {
        let zone = match &self.zone {
            Some(zone) => format!("the time zone `{zone}`, which deltic does not know"),
            None => "a time zone that its footer does not name".to_owned(),
        };
        let message = format!(
            "a timestamp before 1900 ({second} seconds since 1970) was stored by Spark in the hybrid Julian and \
             Gregorian calendar, by the clock of {zone}; leave the column out, or rewrite the file with Spark and \
             `spark.sql.parquet.datetimeRebaseModeInWrite` and `spark.sql.parquet.int96RebaseModeInWrite` set to \
             CORRECTED"
        );
        ArrowError::ExternalError(Box::new(Error::unsupported("hybrid calendar", message)))
    }
}

impl Clock {
    fn find(zone: &str) -> Option<Self> {
        let line = include_str!("hybrid_zones.txt").lines().find_map(|line| line.strip_prefix(zone)?.strip_prefix(' '));
        let mut numbers = line?.split(' ');
        let (offset, shift) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let later = |pair: &str| {
            let (from, shift) = pair.split_once(':')?;
            Some((from.parse().ok()?, shift.parse().ok()?))
        };
        Some(Self { offset, shift, later: numbers.map(later).collect::<Option<_>>()? })
    }

    fn rebase(&self, second: i64) -> i64 {
        let local = second + self.offset;
        let (day, rest) = (local.div_euclid(SECONDS_PER_DAY), local.rem_euclid(SECONDS_PER_DAY));
        if day < FIRST_GREGORIAN_DAY {
            return rebase_days(day) * SECONDS_PER_DAY + rest - self.offset + self.shift;
        }
        let later = self.later.iter().rev().find(|(from, _)| second >= *from);
        second + later.map_or(self.shift, |(_, shift)| *shift)
    }
}

/// The day of the proleptic calendar with the year, month and day that `days` has in the hybrid one. A 29th of February
/// that the proleptic calendar lacks is its 1st of March.
fn rebase_days(days: i64) -> i64 {
    if days >= FIRST_GREGORIAN_DAY {
        return days;
    }
    // Days since the 1st of March of the year -4800, with which a cycle of four Julian years begins; leap days come last.
    let year = (4 * (days + 2_440_588 + 32_082) + 3).div_euclid(1461) - 4800;
    days - (year.div_euclid(100) - year.div_euclid(400) - 2)
}

fn too_far(what: &str) -> ArrowError {
    ArrowError::ArithmeticOverflow(format!("a {what} of the hybrid calendar is too far from 1970"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_has_numbers() {
        let lines = include_str!("hybrid_zones.txt").lines().filter(|line| !line.starts_with('#'));
        let mut zones = 0;
        for line in lines {
            let clock = Clock::find(line.split(' ').next().unwrap()).unwrap();
            // Alaska and the Philippines changed sides of the date line, which is a day besides the local mean time.
            assert!(clock.offset.abs() <= 15 * 3600 && clock.shift.abs() <= 25 * 3600, "{line}");
            assert!(clock.later.is_sorted(), "{line}");
            assert_eq!(clock.later.last().map_or(clock.shift, |(_, shift)| *shift), 0, "{line}");
            zones += 1;
        }
        assert_eq!(zones, 602);
        assert_eq!(
            [Clock::find(""), Clock::find("#"), Clock::find("Europe"), Clock::find("nowhere")],
            [const { None }; 4]
        );
    }

    /// The differences between the calendars, with the days from which they hold, that Spark has in its own table.
    #[test]
    fn days_differ_as_in_spark() {
        let switches = [
            -719_164, -682_945, -646_420, -609_895, -536_845, -500_320, -463_795, -390_745, -354_220, -317_695,
            -244_645, -208_120, -171_595,
        ];
        for (index, from) in switches.into_iter().enumerate() {
            let to = switches.get(index + 1).copied().unwrap_or(FIRST_GREGORIAN_DAY);
            let difference = 2 - i64::try_from(index).unwrap();
            for day in [from, from + 1, (from + to) / 2, to - 1] {
                assert_eq!(rebase_days(day), day + difference, "{day}");
            }
        }
        for day in [FIRST_GREGORIAN_DAY, 0, 20_000] {
            assert_eq!(rebase_days(day), day);
        }
        // Before our era, day by day as `java.util.GregorianCalendar` counts: the years 0 and -4712, where day numbers begin.
        assert_eq!([rebase_days(-719_164 - 366), rebase_days(-719_165)], [-719_528, -719_163]);
        assert_eq!(rebase_days(-2_440_588), -2_440_588 + 38);
    }
}
