//! Checks that geometries and geographies are well-known binary, to the last byte.
//!
//! A shape is a byte order, a type and its content: coordinates of two to four numbers, with their count before them, or other
//! shapes. Every byte is read once. PostGIS's EWKB is refused: its flags would be unknown types for other readers.
//!
//! Proved by `write::conform::shapes`. The format is ISO 19125's.
//!
//! PROTOCOL.md: "Primitive Types".

use arrow_array::{Array, BinaryArray};

/// The most levels of shapes within shapes.
const MAX_DEPTH: usize = 64;

/// Numbers of a point, by the thousands of the type: XY, XYZ, XYM and XYZM.
const DIMENSIONS: [usize; 4] = [2, 3, 3, 4];

/// PostGIS's flags in a type: Z, M and a reference system.
const EWKB_FLAGS: u32 = 0xE000_0000;

/// Checks shapes. The error has the position of an invalid value, and the reason.
pub(super) fn check(shapes: &BinaryArray) -> Result<(), (usize, &'static str)> {
    let valid = (0..shapes.len()).filter(|row| shapes.is_valid(*row));
    valid.map(|row| (row, walk(shapes.value(row)))).try_for_each(|(row, walked)| walked.map_err(|why| (row, why)))
}

/// Reads one shape.
fn walk(bytes: &[u8]) -> Result<(), &'static str> {
    let mut rest = bytes;
    // For each level, how many shapes are still to come, and their type if it is fixed.
    let mut open: Vec<(u32, Option<u32>)> = vec![(1, None)];
    while let Some((count, kind)) = open.last_mut() {
        let wanted = *kind;
        match count.checked_sub(1) {
            Some(left) => *count = left,
            None => {
                open.pop();
                continue;
            }
        }
        let is_little = match take(&mut rest, 1)? {
            [0] => false,
            [1] => true,
            _ => return Err("it does not begin with a byte order, 0 or 1"),
        };
        let code = number(&mut rest, is_little)?;
        if code & EWKB_FLAGS != 0 {
            return Err("it is PostGIS's EWKB; make it ISO well-known binary (ST_AsBinary)");
        }
        let dimensions = usize::try_from(code / 1000).ok().and_then(|at| DIMENSIONS.get(at));
        let size = dimensions.ok_or("its type is not known")? * size_of::<f64>();
        let plain = code % 1000;
        if wanted.is_some_and(|wanted| wanted != code) {
            return Err("a part of it has another type than the whole");
        }
        match plain {
            1 => _ = take(&mut rest, size)?,
            2 => points(&mut rest, is_little, size)?,
            3 => {
                for _ in 0..number(&mut rest, is_little)? {
                    points(&mut rest, is_little, size)?;
                }
            }
            4..=7 if open.len() > MAX_DEPTH => return Err("its shapes nest too deep"),
            4..=6 => open.push((number(&mut rest, is_little)?, Some(code - 3))),
            7 => open.push((number(&mut rest, is_little)?, None)),
            _ => return Err("its type is not known"),
        }
    }
    if rest.is_empty() { Ok(()) } else { Err("bytes follow its end") }
}

fn points(rest: &mut &[u8], is_little: bool, size: usize) -> Result<(), &'static str> {
    let count = usize::try_from(number(rest, is_little)?).map_err(|_| CUT_OFF)?;
    take(rest, count.checked_mul(size).ok_or(CUT_OFF)?).map(drop)
}

const CUT_OFF: &str = "it is cut off";

fn number(rest: &mut &[u8], is_little: bool) -> Result<u32, &'static str> {
    let bytes: [u8; 4] = take(rest, 4)?.try_into().map_err(|_| CUT_OFF)?;
    Ok(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Result<&'b [u8], &'static str> {
    let (taken, left) = rest.split_at_checked(count).ok_or(CUT_OFF)?;
    *rest = left;
    Ok(taken)
}
