//! Floats that are short decimals, packed as the integers of their digits.
//!
//! A float is packed only if dividing the integer again gives exactly its bits; others are kept separately. NaN and
//! negative zero are among the others.

use super::integers::Integers;
use super::rows::Rows;

const POWERS: [f64; 9] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// Integers up to this are exact as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// How many floats are sampled to find their number of decimal places.
const SAMPLE: usize = 128;

/// Packed floats.
#[derive(Debug, Clone)]
pub(super) struct Floats {
    power: f64,
    digits: Integers,
    /// The other floats, each with its row, in the order of the rows.
    others: Vec<(u32, f64)>,
}

impl Floats {
    /// `None` if too few are decimals.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let step = values.len().div_ceil(SAMPLE).max(1);
        let exact = |power: &f64| values.iter().step_by(step).filter(|v| decimal(**v, *power).is_some()).count();
        let mut best = (0, 1.0);
        for power in POWERS {
            let exact = exact(&power);
            // One more digit costs over three bits for every float; a float that is no decimal costs twelve bytes.
            if exact > best.0 + best.0 / 16 {
                best = (exact, power);
            }
        }
        let power = best.1;
        let (mut digits, mut others, mut last) = (Vec::with_capacity(values.len()), Vec::new(), 0);
        for (row, value) in values.iter().enumerate() {
            match decimal(*value, power) {
                Some(found) => last = found,
                None => others.push((u32::try_from(row).ok()?, *value)),
            }
            digits.push(last);
            if others.len() > values.len() / 3 {
                return None;
            }
        }
        others.shrink_to_fit();
        Some(Self { power, digits: Integers::of(&digits), others })
    }

    pub(super) fn bytes(&self) -> usize {
        self.digits.bytes() + self.others.capacity() * size_of::<(u32, f64)>()
    }

    pub(super) fn unpack(&self, rows: Rows<'_>) -> Vec<f64> {
        let mut values: Vec<f64> = self.digits.unpack(rows).into_iter().map(|n| n as f64 / self.power).collect();
        let before = |row: usize| self.others.partition_point(|(at, _)| (*at as usize) < row);
        match rows {
            Rows::Range { start, length } => {
                for (row, value) in self.others.get(before(start)..before(start + length)).unwrap_or_default() {
                    if let Some(slot) = values.get_mut(*row as usize - start) {
                        *slot = *value;
                    }
                }
            }
            Rows::Set(rows) if !self.others.is_empty() => {
                for (row, slot) in rows.set_indices().zip(&mut values) {
                    if let Some((_, value)) = self.others.get(before(row)).filter(|(at, _)| *at as usize == row) {
                        *slot = *value;
                    }
                }
            }
            Rows::Set(_) => {}
        }
        values
    }
}

/// The integer that gives the float when divided by `power`.
#[inline]
fn decimal(value: f64, power: f64) -> Option<i64> {
    let digits = (value * power).round();
    if digits.is_nan() || digits.abs() >= EXACT {
        return None;
    }
    let digits = digits as i64;
    ((digits as f64 / power).to_bits() == value.to_bits()).then_some(digits)
}
