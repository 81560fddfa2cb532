//! Space-filling curves: points that are near each other on the curve are near each other in every dimension.
//!
//! Invariants: different points have different positions, and two neighbours on the Hilbert curve differ by one in one
//! dimension (`curve::tests`).

use serde::{Deserialize, Serialize};

/// Bits of a position on a curve.
const BITS: u32 = u64::BITS;

/// The maximum number of bits of a coordinate in several dimensions: with more, no layout gets better, since there are far
/// fewer files than ranges.
const MAX_BITS_OF_SEVERAL: u32 = 12;

/// The maximum number of bits of a coordinate in one dimension.
const MAX_BITS_OF_ONE: u32 = 16;

/// A curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Curve {
    /// Takes one bit of each coordinate in turn.
    ZOrder,
    /// A Hilbert curve, which has no jumps.
    Hilbert,
}

/// The maximum number of dimensions of a curve.
pub(crate) const MAX_DIMENSIONS: usize = BITS as usize;

/// How many bits each of `dimensions` coordinates has.
pub(crate) fn bits(dimensions: usize) -> u32 {
    let most = if dimensions == 1 { MAX_BITS_OF_ONE } else { MAX_BITS_OF_SEVERAL };
    let dimensions = u32::try_from(dimensions.max(1)).unwrap_or(BITS);
    (BITS / dimensions).clamp(1, most)
}

impl Curve {
    /// The position of a point on the curve. Each coordinate has [`bits`] bits. The coordinates are overwritten.
    pub(crate) fn position(self, point: &mut [u32]) -> u64 {
        let bits = bits(point.len());
        if self == Self::Hilbert {
            unfold(point, bits);
        }
        (0..bits).rev().fold(0, |position, bit| {
            point.iter().fold(position, |position, coordinate| position << 1 | u64::from(coordinate >> bit & 1))
        })
    }
}

/// Transforms coordinates so that taking their bits in turn gives the position on the Hilbert curve: Skilling,
/// "Programming the Hilbert curve", 2004.
fn unfold(point: &mut [u32], bits: u32) {
    let Some((first, others)) = point.split_first_mut() else { return };
    for bit in (1..bits).rev() {
        let (here, below) = (1_u32 << bit, (1_u32 << bit) - 1);
        if *first & here != 0 {
            *first ^= below;
        }
        for other in others.iter_mut() {
            if *other & here != 0 {
                *first ^= below;
            } else {
                let swapped = (*first ^ *other) & below;
                *first ^= swapped;
                *other ^= swapped;
            }
        }
    }
    let last = others.iter_mut().fold(*first, |before, other| {
        *other ^= before;
        *other
    });
    let turned = (1..bits).filter(|bit| last >> bit & 1 != 0).fold(0, |turned, bit| turned ^ ((1_u32 << bit) - 1));
    point.iter_mut().for_each(|coordinate| *coordinate ^= turned);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of a cube of `side` from the origin, in the order of the curve.
    fn walk(curve: Curve, dimensions: u32, side: u32) -> Vec<Vec<u32>> {
        let point = |number: u32| (0..dimensions).map(|d| number / side.pow(d) % side).collect::<Vec<u32>>();
        let mut points: Vec<Vec<u32>> = (0..side.pow(dimensions)).map(point).collect();
        points.sort_by_key(|point| curve.position(&mut point.clone()));
        points
    }

    #[test]
    fn neighbours_on_the_hilbert_curve_differ_by_one() {
        for (dimensions, side) in [(1, 64), (2, 32), (3, 16), (4, 8), (6, 4)] {
            let points = walk(Curve::Hilbert, dimensions, side);
            for (one, other) in points.iter().zip(points.iter().skip(1)) {
                let steps: u32 = one.iter().zip(other).map(|(a, b)| a.abs_diff(*b)).sum();
                assert_eq!(steps, 1, "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn different_points_have_different_places() {
        for curve in [Curve::ZOrder, Curve::Hilbert] {
            let positions: std::collections::BTreeSet<u64> =
                walk(curve, 3, 16).iter().map(|point| curve.position(&mut point.clone())).collect();
            assert_eq!(positions.len(), 16 * 16 * 16);
        }
    }

    #[test]
    fn z_order_takes_bits_in_turn() {
        assert_eq!(Curve::ZOrder.position(&mut [0b11, 0b00]), 0b1010);
        assert_eq!(Curve::ZOrder.position(&mut [0b01, 0b10]), 0b0110);
        assert_eq!(Curve::ZOrder.position(&mut [7]), 7);
    }

    #[test]
    fn coordinates_of_all_dimensions_fit() {
        for dimensions in 1..=MAX_DIMENSIONS {
            let bits = bits(dimensions);
            let mut point = vec![(1_u32 << bits) - 1; dimensions];
            let most = Curve::ZOrder.position(&mut point);
            assert_eq!(most.count_ones() as usize, bits as usize * dimensions, "{dimensions}");
        }
    }
}
