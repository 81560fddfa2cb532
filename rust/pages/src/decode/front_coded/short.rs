//! Compares and copies short strings inline, since a call would take longer.

/// Copies a string to room of the same length: its first and its last bytes, each at once.
#[inline]
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    #[inline]
    fn both_ends<const N: usize>(to: &mut [u8], from: &[u8]) -> Option<()> {
        *to.first_chunk_mut::<N>()? = *from.first_chunk()?;
        *to.last_chunk_mut::<N>()? = *from.last_chunk()?;
        Some(())
    }
    let copied = match from.len() {
        16..=32 => both_ends::<16>(to, from),
        33..=64 => both_ends::<32>(to, from),
        _ => None,
    };
    if copied.is_none() {
        to.copy_from_slice(from);
    }
}

/// Whether two strings of the same length are equal: compares their first and their last bytes, each at once.
#[inline]
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    #[inline]
    fn both_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
        let ends = |string: &[u8]| Some((*string.first_chunk::<N>()?, *string.last_chunk::<N>()?));
        ends(one) == ends(other)
    }
    match one.len() {
        4..=8 => both_ends::<4>(one, other),
        9..=16 => both_ends::<8>(one, other),
        17..=32 => both_ends::<16>(one, other),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_of_any_length_are_compared() {
        for length in 0..100_u8 {
            let string: Vec<u8> = (1..=length).collect();
            assert!(super::is_same(&string, &string.clone()));
            for place in 0..string.len() {
                let mut other = string.clone();
                other[place] ^= 0x80;
                assert!(!super::is_same(&string, &other), "{place} of {length}");
            }
        }
    }

    #[test]
    fn strings_of_any_length_are_copied() {
        for length in 0..200_u8 {
            let string: Vec<u8> = (1..=length).collect();
            let mut copied = vec![0; string.len()];
            super::copy(&mut copied, &string);
            assert_eq!(copied, string);
        }
    }
}
