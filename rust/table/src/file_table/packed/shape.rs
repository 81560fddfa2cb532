//! What texts have in common: literal pieces, and between them decimal digits and UUIDs, each in its place.
//!
//! Names of files are such texts, and so are numbered things. A shape prints what it parsed, byte for byte, or does not
//! parse it: only lowercase UUIDs with their dashes are any, and digits keep their number.

/// Digits that always fit an `i64`.
const MOST_DIGITS: usize = 18;
const UUID: usize = 36;
/// Where the hexadecimal digits of a UUID are.
const UUID_DIGITS: [(usize, usize); 5] = [(0, 8), (9, 13), (14, 18), (19, 23), (24, 36)];

/// A text with room for what varies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// The literal pieces in their places, and zeros.
    text: Box<[u8]>,
    /// All bits where the text is literal, and none elsewhere.
    literal: Box<[u8]>,
    /// What varies, and from where on.
    pieces: Box<[(Piece, usize)]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    Digits(usize),
    Uuid,
}

impl Piece {
    fn length(self) -> usize {
        match self {
            Self::Digits(digits) => digits,
            Self::Uuid => UUID,
        }
    }
}

/// What is in the pieces that vary.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) numbers: Vec<i64>,
    pub(super) uuids: Vec<[u8; 16]>,
}

impl Fields {
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.uuids.clear();
    }
}

impl Shape {
    /// The shape of a text.
    pub(super) fn of(text: &[u8]) -> Self {
        let (mut shape, mut literal) = (text.to_vec(), vec![u8::MAX; text.len()]);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let follows_word = at > 0 && text.get(at - 1).is_some_and(u8::is_ascii_alphanumeric);
            let digits = rest.iter().take(MOST_DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
            let piece = match rest.get(..UUID) {
                Some(uuid) if !follows_word && parse_uuid(uuid).is_some() => Piece::Uuid,
                _ if digits > 0 => Piece::Digits(digits),
                _ => {
                    at += 1;
                    continue;
                }
            };
            for bytes in [&mut shape, &mut literal] {
                bytes.iter_mut().skip(at).take(piece.length()).for_each(|byte| *byte = 0);
            }
            pieces.push((piece, at));
            at += piece.length();
        }
        Self { text: shape.into(), literal: literal.into(), pieces: pieces.into() }
    }

    /// What tells shapes apart. No text has the bytes that stand for what varies.
    pub(super) fn key(&self, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.text);
        for (piece, at) in &self.pieces {
            let sign = if *piece == Piece::Uuid { 0xFF } else { 0xFE };
            key.iter_mut().skip(*at).take(piece.length()).for_each(|byte| *byte = sign);
        }
    }

    /// How many pieces vary.
    pub(super) fn varying(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.text.len() + size_of_val(self.pieces.as_ref())
    }

    /// Parses a text into `fields`; false if it has another shape.
    pub(super) fn parse(&self, text: &[u8], fields: &mut Fields) -> bool {
        fields.clear();
        if text.len() != self.text.len() {
            return false;
        }
        let literal = text.iter().zip(&self.text).zip(&self.literal);
        if literal.fold(0, |other, ((byte, shape), literal)| other | ((byte ^ shape) & literal)) != 0 {
            return false;
        }
        self.pieces.iter().all(|(piece, at)| {
            let found = text.get(*at..at + piece.length()).unwrap_or_default();
            match piece {
                Piece::Digits(_) => parse_digits(found).map(|number| fields.numbers.push(number)).is_some(),
                Piece::Uuid => parse_uuid(found).map(|uuid| fields.uuids.push(uuid)).is_some(),
            }
        })
    }

    /// Appends the text that has these fields.
    pub(super) fn print(&self, number: impl Fn(usize) -> i64, uuid: impl Fn(usize) -> [u8; 16], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.text);
        let text = out.get_mut(start..).unwrap_or_default();
        let (mut numbers, mut uuids) = (0, 0);
        for (piece, at) in &self.pieces {
            let Some(field) = text.get_mut(*at..at + piece.length()) else { continue };
            match piece {
                Piece::Digits(_) => {
                    print_digits(number(numbers), field);
                    numbers += 1;
                }
                Piece::Uuid => {
                    print_uuid(uuid(uuids), field);
                    uuids += 1;
                }
            }
        }
    }
}

#[inline]
fn parse_digits(digits: &[u8]) -> Option<i64> {
    let mut number = 0;
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number = number * 10 + i64::from(value);
    }
    Some(number)
}

fn print_digits(number: i64, out: &mut [u8]) {
    let mut rest = number.unsigned_abs();
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// The bytes of a UUID in lowercase, which is the one spelling that is printed.
#[inline]
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; UUID] = text.try_into().ok()?;
    if [8, 13, 18, 23].iter().any(|dash| text[*dash] != b'-') {
        return None;
    }
    let (mut digits, mut at) = ([0; 32], 0);
    for (start, end) in UUID_DIGITS {
        digits[at..at + end - start].copy_from_slice(&text[start..end]);
        at += end - start;
    }
    let (mut bytes, (eights, _)) = ([0; 16], digits.as_chunks::<8>());
    for (four, eight) in bytes.chunks_exact_mut(4).zip(eights) {
        four.copy_from_slice(&parse_hex(*eight)?);
    }
    Some(bytes)
}

fn print_uuid(bytes: [u8; 16], out: &mut [u8]) {
    let mut digits = [0; 32];
    let (fours, _) = bytes.as_chunks::<4>();
    for (eight, four) in digits.chunks_exact_mut(8).zip(fours) {
        eight.copy_from_slice(&print_hex(*four));
    }
    let (mut text, mut at) = ([b'-'; UUID], 0);
    for (start, end) in UUID_DIGITS {
        text[start..end].copy_from_slice(&digits[at..at + end - start]);
        at += end - start;
    }
    out.iter_mut().zip(text).for_each(|(out, byte)| *out = byte);
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// Four bytes of eight hexadecimal digits, all at once; `None` if they would not be printed so.
#[inline]
fn parse_hex(digits: [u8; 8]) -> Option<[u8; 4]> {
    let text = u64::from_le_bytes(digits);
    // Letters have this bit; the sums stay below 32, so no digit touches its neighbour.
    let nibbles = ((text & (ONES * 0x0F)) + 9 * ((text >> 6) & ONES)) & (ONES * 0x0F);
    let pairs = ((nibbles << 4) | (nibbles >> 8)) & 0x00FF_00FF_00FF_00FF;
    let pairs = (pairs | (pairs >> 8)) & 0x0000_FFFF_0000_FFFF;
    let four = ((pairs | (pairs >> 16)) as u32).to_le_bytes();
    (print_nibbles(nibbles) == text).then_some(four)
}

fn print_hex(four: [u8; 4]) -> [u8; 8] {
    let pairs = u64::from(u32::from_le_bytes(four));
    let pairs = (pairs | (pairs << 16)) & 0x0000_FFFF_0000_FFFF;
    let pairs = (pairs | (pairs << 8)) & 0x00FF_00FF_00FF_00FF;
    print_nibbles(((pairs >> 4) | (pairs << 8)) & (ONES * 0x0F)).to_le_bytes()
}

#[inline]
fn print_nibbles(nibbles: u64) -> u64 {
    // From ten on it is letters, which are so much further.
    let letters = ((nibbles + ONES * 6) >> 4) & ONES;
    nibbles + ONES * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)
}
