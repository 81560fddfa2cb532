//! The box that contains all points of the geometries or geographies in a column.
//!
//! Its corners are the bounds of the column, as points in well-known text: X and Y, and Z or M if every point has it. The box of a
//! geography is only known if its shapes have no edges, since those are not straight in X and Y. It never crosses the
//! antimeridian: X of the minimum is not greater than X of the maximum. A column has no box if a coordinate is NaN or infinite, or
//! one of a geography is no longitude or latitude, or if a value is not well-known binary. The empty point, of which X
//! and Y are NaN, is no point.
//!
//! Proved by `stats::bounding_box::geometries` and `stats::bounding_box::geographies`.
//!
//! The proposal for PROTOCOL.md, "Geospatial types": "Per-file statistics".

use arrow_array::BinaryArray;

use crate::scalar::wkb;

/// The box of the values seen.
#[derive(Debug)]
pub(super) struct BoundingBox {
    is_geography: bool,
    /// The least and the greatest X, Y, Z and M. Z or M is NaN if a point has none. `None` before the first point.
    range: Option<[(f64, f64); 4]>,
    /// Whether a value is in no box that can be written.
    is_unknown: bool,
}

impl BoundingBox {
    pub(super) fn of_geometries() -> Self {
        Self { is_geography: false, range: None, is_unknown: false }
    }

    pub(super) fn of_geographies() -> Self {
        Self { is_geography: true, ..Self::of_geometries() }
    }

    /// Makes it contain these shapes.
    pub(super) fn update(&mut self, shapes: &BinaryArray) {
        for shape in shapes.iter().flatten() {
            if self.is_unknown {
                return;
            }
            let walked = wkb::walk(shape, &mut |points| {
                points.coordinates().for_each(|point| self.add(point, points.has_edges));
            });
            self.is_unknown |= walked.is_err();
        }
    }

    fn add(&mut self, point: [f64; 4], has_edges: bool) {
        let [x, y, ..] = point;
        if !has_edges && x.is_nan() && y.is_nan() {
            return;
        }
        let is_on_earth = || (-180.0..=180.0).contains(&x) && (-90.0..=90.0).contains(&y);
        self.is_unknown |= !x.is_finite() || !y.is_finite();
        self.is_unknown |= self.is_geography && (has_edges || !is_on_earth());
        match &mut self.range {
            Some(range) => range.iter_mut().zip(point).for_each(|(range, number)| widen(range, number)),
            range @ None => *range = Some(point.map(|number| (number, number))),
        }
    }

    /// The JSON of its corners, if it is known.
    pub(super) fn print(&self) -> Option<(String, String)> {
        let range = self.range.filter(|_| !self.is_unknown)?;
        let has = range.map(|(low, high)| low.is_finite() && high.is_finite());
        Some((corner(range.map(|(low, _)| low), has), corner(range.map(|(_, high)| high), has)))
    }
}

/// A NaN stays.
fn widen((low, high): &mut (f64, f64), number: f64) {
    if number.is_nan() {
        (*low, *high) = (number, number);
    }
    if number < *low {
        *low = number;
    }
    if number > *high {
        *high = number;
    }
}

fn corner([x, y, z, m]: [f64; 4], [.., has_z, has_m]: [bool; 4]) -> String {
    // Adding zero makes -0 a 0.
    let [x, y, z, m] = [x + 0.0, y + 0.0, z + 0.0, m + 0.0];
    match (has_z, has_m) {
        (false, false) => format!(r#""POINT({x} {y})""#),
        (true, false) => format!(r#""POINT Z({x} {y} {z})""#),
        (false, true) => format!(r#""POINT M({x} {y} {m})""#),
        (true, true) => format!(r#""POINT ZM({x} {y} {z} {m})""#),
    }
}
