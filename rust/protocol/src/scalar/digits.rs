//! Digits of numbers and dates, parsed several at once.
//!
//! Most numbers, dates and timestamps in a log are short and have one form. Eight or sixteen bytes are checked and
//! converted without a loop over them. Other forms are left to the general parser.

/// One of something in each byte.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = EACH_BYTE * 0x80;
/// What is added to a byte so that all above the greatest that may be there reach the highest bit.
const TO_NINE: u8 = 0x80 - 10;
const TO_NOTHING: u8 = 0x80 - 1;
/// Bytes of a number, its point with them, of which few have more than eight.
const MAX_BYTES: usize = 16;
const POWERS: [u64; MAX_BYTES] = {
    let mut powers = [1; MAX_BYTES];
    let mut at = 1;
    while at < MAX_BYTES {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Digits that are the bytes of one word, the last of all highest, and how many of them stand behind a point, if there is
/// one; given as many bytes as the word has at most.
macro_rules! digits {
    ($word:ty, $bytes:expr, $length:expr) => {{
        let each = <$word>::MAX / <$word>::from(u8::MAX);
        let of_each = |byte: u8| each * <$word>::from(byte);
        let (highest, mut length) = (of_each(0x80), $length);
        // Bytes after them are shifted out.
        let mut digits = <$word>::from_le_bytes(first($bytes)) << (8 * (size_of::<$word>() - length));
        let points = digits ^ of_each(b'.');
        // The lowest of them is one; those above it may be another byte.
        let points = points.wrapping_sub(each) & !points & highest;
        let mut behind = None;
        if points != 0 {
            let point = points & points.wrapping_neg();
            let (before, after) = ((point >> 7) - 1, !(point << 1).wrapping_sub(1));
            digits = digits & after | (digits & before) << 8;
            behind = Some(point.leading_zeros() as usize / 8);
            length -= 1;
        }
        if length == 0 {
            return None;
        }
        digits ^= of_each(b'0') << (8 * (size_of::<$word>() - length));
        if (digits.wrapping_add(of_each(TO_NINE)) | digits) & highest != 0 {
            return None;
        }
        (digits, behind)
    }};
}

/// A number in plain notation: its digits, and how many of them are after the decimal point, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plain {
    digits: u64,
    behind: Option<usize>,
    is_negative: bool,
}

impl Plain {
    /// Parses the first `length` bytes of `bytes`: an optional `-`, then digits with at most one `.`. Bytes after them are
    /// ignored, and save a copy. `None` if the text has another form, or more than 16 bytes after the sign: use the general
    /// parser then.
    #[inline]
    pub(crate) fn of(bytes: &[u8], length: usize) -> Option<Self> {
        let first = *bytes.first()?;
        if length == 1 {
            let digits = u64::from(first.wrapping_sub(b'0'));
            return (digits < 10).then_some(Self { digits, behind: None, is_negative: false });
        }
        let is_negative = first == b'-';
        let bytes = bytes.get(usize::from(is_negative)..)?;
        let (digits, behind) = match length.checked_sub(usize::from(is_negative))? {
            length @ 1..=8 => {
                let (digits, behind) = digits!(u64, bytes, length);
                (eight(digits), behind)
            }
            length @ 9..=MAX_BYTES => {
                let (digits, behind) = digits!(u128, bytes, length);
                (eight(digits as u64) * 100_000_000 + eight((digits >> 64) as u64), behind)
            }
            _ => return None,
        };
        Some(Self { digits, behind, is_negative })
    }

    /// `None` if it has a point.
    pub(crate) fn whole(self) -> Option<i64> {
        let digits = self.digits.cast_signed();
        self.behind.is_none().then_some(if self.is_negative { -digits } else { digits })
    }

    /// The nearest double; `None` if it takes more than one rounding.
    pub(crate) fn double(self) -> Option<f64> {
        if self.digits >> f64::MANTISSA_DIGITS != 0 {
            return None;
        }
        // Both are exact, so that the quotient is rounded once.
        let value = self.digits as f64 / *POWERS.get(self.behind.unwrap_or_default())? as f64;
        Some(if self.is_negative { -value } else { value })
    }

    /// As a multiple of `10^-scale`; `None` if there are more digits behind the point, or too many for 64 bits.
    pub(crate) fn scaled(self, scale: usize) -> Option<i64> {
        let power = POWERS.get(scale.checked_sub(self.behind.unwrap_or_default())?)?;
        let digits = self.digits.checked_mul(*power)?;
        let digits = i64::try_from(digits).ok()?;
        Some(if self.is_negative { -digits } else { digits })
    }
}

/// The first bytes; those beyond the end are zero.
#[inline]
fn first<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let padded = || {
        let mut first = [0; BYTES];
        first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        first
    };
    bytes.first_chunk().copied().unwrap_or_else(padded)
}

/// The number of eight digits, the first of which is the lowest byte.
#[inline]
fn eight(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff
}

/// The digits of `text`, if it has the given form: digits where the form has `0`, and the form's own bytes elsewhere, which are
/// zero in the result.
#[inline]
pub(super) fn of_form(text: [u8; 8], form: &[u8; 8]) -> Option<[u8; 8]> {
    let found = u64::from_le_bytes(text) ^ u64::from_le_bytes(*form);
    let room = u64::from_le_bytes(form.map(|byte| if byte == b'0' { TO_NINE } else { TO_NOTHING }));
    let beyond = (found.wrapping_add(room) | found) & HIGH_BITS;
    (beyond == 0).then(|| found.to_le_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["-?[0-9]{0,18}", "-?[0-9]{0,9}\\.[0-9]{0,9}", "[-+.0-9/:e\u{80}]{0,17}", "\\PC{0,10}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Agrees with the standard parser, whatever bytes follow the number.
        #[test]
        fn numbers_are_those_of_the_library(text in texts(), behind in "[0-9,}\". ]{0,20}", scale in 0..20_usize) {
            let together = format!("{text}{behind}");
            let plain = Plain::of(together.as_bytes(), text.len());
            prop_assert_eq!(plain, Plain::of(text.as_bytes(), text.len()));
            let is_plain = text.strip_prefix('-').unwrap_or(&text);
            let is_plain = is_plain.len() <= 16
                && is_plain.bytes().filter(|byte| *byte == b'.').count() <= 1
                && is_plain.bytes().any(|byte| byte.is_ascii_digit())
                && is_plain.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
            prop_assert_eq!(plain.is_some(), is_plain, "{}", text);
            let Some(plain) = plain else { return Ok(()) };
            prop_assert_eq!(plain.whole(), text.parse::<i64>().ok());
            let double: f64 = text.parse().unwrap();
            prop_assert_eq!(plain.double().map_or(double.to_bits(), f64::to_bits), double.to_bits());
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            let digits = format!("{whole}{fraction:0<scale$}").parse::<i64>().ok();
            prop_assert_eq!(plain.scaled(scale), digits.filter(|_| fraction.len() <= scale && scale - fraction.len() < 16));
        }

        #[test]
        fn forms_are_told_byte_by_byte(text in "[-0-9:TZ/;\u{1}\u{7f}]{8}", form in "[-0:T.Z]{8}") {
            let (text, form): ([u8; 8], [u8; 8]) = (text.as_bytes().try_into().unwrap(), form.as_bytes().try_into().unwrap());
            let fits = text.iter().zip(&form).all(|(byte, form)| byte == form || *form == b'0' && byte.is_ascii_digit());
            let digits = std::array::from_fn(|at| if form[at] == b'0' { text[at].wrapping_sub(b'0') } else { 0 });
            prop_assert_eq!(of_form(text, &form), fits.then_some(digits));
        }
    }
}
