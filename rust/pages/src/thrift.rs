//! Reads Thrift's compact form, without recursion beyond a given depth and without memory.
//!
//! It does not depend on Parquet. For any bytes, the result is a value or `None`. Proved by the tests of [`crate::footer`].

pub(crate) const TRUE: u8 = 1;
pub(crate) const FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
pub(crate) const I32: u8 = 5;
pub(crate) const I64: u8 = 6;
const DOUBLE: u8 = 7;
pub(crate) const BINARY: u8 = 8;
pub(crate) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(crate) const STRUCT: u8 = 12;

/// The remaining bytes of a value in Thrift's compact form.
pub(crate) struct Thrift<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> Thrift<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        // Most numbers are small.
        if let [small @ ..0x80, rest @ ..] = self.bytes {
            self.bytes = rest;
            return Some(u64::from(*small));
        }
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn advance(&mut self, length: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    /// The type of the following field, its id in `id`; `Some(None)` at the end of the struct.
    #[allow(clippy::option_option)]
    pub(crate) fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let header = self.byte()?;
        let kind = header & 0x0f;
        if kind == 0 {
            return Some(None);
        }
        match i64::from(header >> 4) {
            0 => {
                *id = self.long()?;
            }
            delta => *id = id.checked_add(delta)?,
        }
        Some(Some(kind))
    }

    /// A signed number that fits into 32 bits.
    pub(crate) fn int(&mut self) -> Option<i32> {
        i32::try_from(self.long()?).ok()
    }

    /// A signed number.
    pub(crate) fn long(&mut self) -> Option<i64> {
        self.varint().map(signed)
    }

    /// A string, or other bytes.
    pub(crate) fn binary(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(bytes)
    }

    /// The length and the element type of a list.
    pub(crate) fn list(&mut self) -> Option<(u64, u8)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        // Every element takes at least one byte.
        (count <= self.bytes.len() as u64).then_some((count, header & 0x0f))
    }

    pub(crate) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            I8 => self.advance(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.advance(8),
            BINARY => {
                let length = self.varint()?;
                self.advance(length)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0x0f, depth)
                })
            }
            STRUCT => loop {
                let header = self.byte()?;
                match header & 0x0f {
                    0 => return Some(()),
                    // The number of the field follows.
                    _ if header >> 4 == 0 => drop(self.varint()?),
                    _ => {}
                }
                match header & 0x0f {
                    TRUE | FALSE => {}
                    I16 | I32 | I64 => drop(self.varint()?),
                    kind => self.skip(kind, depth)?,
                }
            },
            _ => None,
        }
    }

    /// Inside a container a boolean takes a byte of its own.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, TRUE | FALSE) { self.advance(1) } else { self.skip(kind, depth) }
    }
}

/// Decodes a zigzag number.
fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
