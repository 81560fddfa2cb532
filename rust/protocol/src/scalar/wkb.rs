//! Reads well-known binary, the form of geometries and geographies.
//!
//! A shape is a byte order, a type and its content: coordinates of two to four numbers, with their count before them, or other
//! shapes. Every byte is read once, and memory does not depend on the shape. PostGIS's EWKB is refused: its flags would be
//! unknown types for other readers.
//!
//! Proved by `write::conform::shapes` and `stats::bounding_box::other_bytes_have_no_box`. The format is ISO 19125's.
//!
//! PROTOCOL.md: "Primitive Types".

use arrow_array::{Array, BinaryArray};

/// The most levels of shapes within shapes.
const MAX_DEPTH: usize = 64;

/// Which of X, Y, Z and M a point has, by the thousands of the type.
const DIMENSIONS: [&[usize]; 4] = [&[0, 1], &[0, 1, 2], &[0, 1, 3], &[0, 1, 2, 3]];

/// PostGIS's flags in a type: Z, M and a reference system.
const EWKB_FLAGS: u32 = 0xE000_0000;

/// Points that follow each other in a shape: one point, those of a line, or those of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Points<'b> {
    bytes: &'b [u8],
    is_little: bool,
    dimensions: &'static [usize],
    /// Whether edges connect them.
    pub has_edges: bool,
}

impl Points<'_> {
    /// X, Y, Z and M of each point. A dimension that the points do not have is NaN.
    pub fn coordinates(&self) -> impl Iterator<Item = [f64; 4]> {
        self.bytes.chunks_exact(self.dimensions.len() * size_of::<f64>()).map(|bytes| {
            let mut point = [f64::NAN; 4];
            let (numbers, _) = bytes.as_chunks();
            for (number, dimension) in numbers.iter().zip(self.dimensions) {
                if let Some(coordinate) = point.get_mut(*dimension) {
                    *coordinate =
                        if self.is_little { f64::from_le_bytes(*number) } else { f64::from_be_bytes(*number) };
                }
            }
            point
        })
    }
}

/// Checks that all values are shapes, to the last byte. The error has the position of one that is not, and the reason.
pub fn check(shapes: &BinaryArray) -> Result<(), (usize, &'static str)> {
    let mut valid = (0..shapes.len()).filter(|row| shapes.is_valid(*row));
    valid.try_for_each(|row| walk(shapes.value(row), &mut |_| {}).map_err(|why| (row, why)))
}

/// Reads one shape, and passes its points to `visit`.
///
/// # Errors
/// Why the bytes are no shape; `visit` may have got points before.
pub fn walk(bytes: &[u8], visit: &mut dyn FnMut(Points<'_>)) -> Result<(), &'static str> {
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
        let dimensions = *dimensions.ok_or("its type is not known")?;
        let plain = code % 1000;
        if wanted.is_some_and(|wanted| wanted != code) {
            return Err("a part of it has another type than the whole");
        }
        let mut points = |count: u32, rest: &mut &[u8]| -> Result<(), &'static str> {
            let size = dimensions.len() * size_of::<f64>();
            let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or(CUT_OFF)?;
            visit(Points { bytes: take(rest, size)?, is_little, dimensions, has_edges: plain != 1 });
            Ok(())
        };
        match plain {
            1 => points(1, &mut rest)?,
            2 => points(number(&mut rest, is_little)?, &mut rest)?,
            3 => {
                for _ in 0..number(&mut rest, is_little)? {
                    points(number(&mut rest, is_little)?, &mut rest)?;
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
