//! Z85: four bytes as five characters that need no escaping in JSON.
//!
//! ZeroMQ RFC 32. Only whole blocks of four bytes are encoded; the caller pads the last one. Some Rust writers do not pad:
//! their last block begins with one `#` for each missing byte, followed by the digits of the bytes that exist. That form is
//! read, never written. A normal block cannot begin with `#`.

const ALPHABET: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Position of each byte in the alphabet, 255 for those that are not in it.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut i = 0;
    while i < ALPHABET.len() {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values
};

/// The bytes, or `None` when the length is not a multiple of five, a character is foreign or a block is too large.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (blocks, rest) = text.as_bytes().as_chunks::<5>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(blocks.len() * 4);
    let (last, whole) = match blocks.split_last() {
        Some((last, whole)) if last.starts_with(b"#") => (Some(last), whole),
        Some(_) | None => (None, blocks),
    };
    for block in whole {
        bytes.extend_from_slice(&u32::try_from(number(block)?).ok()?.to_be_bytes());
    }
    if let Some(last) = last {
        let missing = last.iter().take_while(|character| **character == b'#').count();
        let value = u32::try_from(number(last.get(missing..)?)?).ok()?.to_be_bytes();
        let (zeros, there) = value.split_at_checked(missing)?;
        if there.is_empty() || zeros.iter().any(|zero| *zero != 0) {
            return None;
        }
        bytes.extend_from_slice(there);
    }
    Some(bytes)
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, character| match VALUES[usize::from(*character)] {
        255 => None,
        digit => Some(value * 85 + u64::from(digit)),
    })
}

/// The text of whole blocks; bytes after the last whole block are left out.
pub(super) fn encode(bytes: &[u8]) -> String {
    let (blocks, _) = bytes.as_chunks::<4>();
    let mut text = String::with_capacity(blocks.len() * 5);
    for block in blocks {
        let value = u32::from_be_bytes(*block);
        for power in [52_200_625, 614_125, 7_225, 85, 1] {
            let digit = value / power % 85;
            text.extend(ALPHABET.get(digit as usize).map(|c| char::from(*c)));
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        let bytes = [0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B];
        assert_eq!(encode(&bytes), "HelloWorld");
        assert_eq!(decode("HelloWorld").unwrap(), bytes);
    }

    #[test]
    fn a_last_block_that_is_not_whole() {
        for (text, bytes) in
            [("##093", &[3, 0][..]), ("###03", &[3]), ("#0002", &[0, 0, 2]), ("00000##093", &[0, 0, 0, 0, 3, 0])]
        {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_not_z85() {
        for text in ["1", "1234", "123456", "####~", "#####", "####1", "##%%%", "#%%%%", "##0~3", "äbcd", "##09300000"]
        {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
