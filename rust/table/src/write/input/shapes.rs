//! Geometries and geographies: well-known binary, to the last byte.
//!
//! A shape is a byte order, a type and what that has: coordinates of two to four numbers, their count before them, and other
//! shapes. Every byte is looked at once. What PostGIS calls EWKB has flags in its types that others take for unknown types.
//!
//! Proved by `write::conform::shapes`. The format is ISO 19125's.
//!
//! PROTOCOL.md: "Primitive Types".

use arrow_array::{Array, BinaryArray};

/// Shapes within shapes.
const MAX_DEPTH: usize = 64;

/// Types from the first on, by thousands: XY, XYZ, XYM and XYZM.
const DIMENSIONS: [usize; 4] = [2, 3, 3, 4];

/// Flags of PostGIS: Z, M and a reference system.
const EWKB_FLAGS: u32 = 0xE000_0000;

/// The position of a value that is no shape, and why.
pub(super) fn check(shapes: &BinaryArray) -> Result<(), (usize, &'static str)> {
    let valid = (0..shapes.len()).filter(|row| shapes.is_valid(*row));
    valid.map(|row| (row, walk(shapes.value(row)))).try_for_each(|(row, walked)| walked.map_err(|why| (row, why)))
}

/// Walks over one shape.
fn walk(bytes: &[u8]) -> Result<(), &'static str> {
    let mut rest = bytes;
    // How many shapes are to come at each level, and of what type they have to be.
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
