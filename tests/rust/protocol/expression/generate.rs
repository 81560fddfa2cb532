//! Random expressions over the columns of [`super::schema`], also with type errors.

use deltic_protocol::expression::{ArithmeticOp, Expression, Match, Name, Op, function_names};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::PrimitiveType;

use super::super::predicate::{Draw, generate_pool, generate_types};

const COLUMNS: [&str; 12] = ["i", "l", "d", "m", "s", "flag", "day", "at", "wall", "p.x", "case", "in"];

pub(super) fn expression(draw: &mut Draw, depth: usize) -> Expression {
    let part = |draw: &mut Draw| Box::new(expression(draw, depth.saturating_sub(1)));
    let parts = |draw: &mut Draw, least: usize| -> Vec<Expression> {
        (0..least + draw.below(3)).map(|_| expression(draw, depth.saturating_sub(1))).collect()
    };
    let negated = draw.once_in(2);
    match if depth == 0 { draw.below(6) } else { draw.below(22) } {
        0..=2 => Expression::Column(Name(draw.pick(&COLUMNS).split('.').map(str::to_owned).collect())),
        3..=5 => Expression::Literal(literal(draw)),
        6 => Expression::And(parts(draw, 2)),
        7 => Expression::Or(parts(draw, 2)),
        8 => Expression::Not(part(draw)),
        9 => Expression::Negate(part(draw)),
        10 => {
            let ops = [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge];
            Expression::Compare { left: part(draw), op: draw.pick(&ops), right: part(draw) }
        }
        11 => Expression::NullSafeEqual { left: part(draw), right: part(draw) },
        12 => Expression::IsNull { operand: part(draw), negated },
        13 => Expression::IsTruth { operand: part(draw), value: draw.once_in(2), negated },
        14 => Expression::In { operand: part(draw), list: parts(draw, 1), negated },
        15 => Expression::Between { operand: part(draw), low: part(draw), high: part(draw), negated },
        16 => {
            let kind = draw.pick(&[Match::Like, Match::ILike, Match::RLike]);
            let (pattern, escape) =
                draw.pick(&[("a%", None), ("", None), ("_é", None), ("x'y", None), ("a!_", Some('!'))]);
            let escape = if kind == Match::RLike { None } else { escape };
            Expression::Like { operand: part(draw), kind, pattern: pattern.to_owned(), escape, negated }
        }
        17 => {
            let to = draw.pick(&generate_types());
            Expression::Cast { operand: part(draw), to, is_try: negated }
        }
        18 => Expression::Case {
            operand: negated.then(|| part(draw)),
            branches: (0..=draw.below(2)).map(|_| (*part(draw), *part(draw))).collect(),
            otherwise: draw.once_in(2).then(|| part(draw)),
        },
        19 => {
            let more = ["coalesce", "nullif", "if", "nvl2", "int", "date", "current_date", "mod", "pmod"];
            let names: Vec<&str> = function_names().into_iter().chain(more).collect();
            // Some of these can also be written with keywords between the arguments, and print without.
            let name = draw.pick(&names);
            Expression::Call { name: name.to_owned(), arguments: parts(draw, 0) }
        }
        _ => {
            let ops = [
                ArithmeticOp::Add,
                ArithmeticOp::Subtract,
                ArithmeticOp::Multiply,
                ArithmeticOp::Divide,
                ArithmeticOp::Remainder,
                ArithmeticOp::Div,
                ArithmeticOp::Concat,
            ];
            Expression::Arithmetic { left: part(draw), op: draw.pick(&ops), right: part(draw) }
        }
    }
}

/// A literal with the type that the parser gives it.
fn literal(draw: &mut Draw) -> Scalar {
    let data_type = draw.pick(&generate_types());
    if draw.once_in(8) {
        return Scalar::Null;
    }
    match draw.pick(&generate_pool(&data_type)) {
        // The precision is the number of digits.
        Scalar::Decimal { value, scale, .. } => {
            let digits = value.unsigned_abs().checked_ilog10().map_or(1, |log| log as u8 + 1);
            Scalar::Decimal { value, precision: digits.max(scale), scale }
        }
        Scalar::Float(v) if v.is_nan() => Scalar::Float(f32::NAN),
        Scalar::Double(v) if v.is_nan() => Scalar::Double(f64::NAN),
        // These have no literal.
        Scalar::Date(i32::MIN | i32::MAX) if data_type == PrimitiveType::Date => Scalar::Date(7),
        other => other,
    }
}
