//! Operators and functions: the types of their operands and of their results.

use super::coerce::{cast, text, to_common, to_decimal, unfit};
use super::forms::{case, compare, is_null, limited, negate as negate_condition};
use crate::error::{Error, Result};
use crate::expression::ast::{ArithmeticOp, Expression, NON_DETERMINISTIC, Op};
use crate::expression::bound::{Node, Typed};
use crate::expression::external;
use crate::expression::functions::{self, Definition, ResultType, Second, Slot};
use crate::expression::parse::{hint, type_named};
use crate::expression::resolve;
use crate::expression::types::{common, decimal_result, is_number, is_whole, primitive, value_type};
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType as P};

const DOUBLE: DataType = DataType::DOUBLE;
const LONG: DataType = DataType::LONG;

/// `-operand`: zero minus it, of its own type.
pub(super) fn negate(operand: Typed, whole: &Expression) -> Result<Typed> {
    let operand = number(operand, whole)?;
    named("negative", vec![operand], whole)
}

/// A number as it is, a string as a double.
fn number(operand: Typed, whole: &Expression) -> Result<Typed> {
    match primitive(&operand.data_type) {
        Some(P::String | P::Void) => Ok(cast(operand, &DOUBLE)),
        Some(of) if is_number(of) => Ok(operand),
        _ => Err(unfit(whole, "a number is needed, and this is of type", &[&operand.data_type])),
    }
}

pub(super) fn arithmetic(left: Typed, op: ArithmeticOp, right: Typed, whole: &Expression) -> Result<Typed> {
    if op == ArithmeticOp::Concat {
        return named("concat", vec![left, right], whole);
    }
    let moment = |of: &Typed| matches!(primitive(&of.data_type), Some(P::Date | P::Timestamp | P::TimestampNtz));
    match (op, moment(&left), moment(&right)) {
        (ArithmeticOp::Add, true, false) => return named("date_add", vec![left, right], whole),
        (ArithmeticOp::Add, false, true) => return named("date_add", vec![right, left], whole),
        (ArithmeticOp::Subtract, true, false) => return named("date_sub", vec![left, right], whole),
        (ArithmeticOp::Subtract, true, true) => {
            let message = format!("`{whole:#}` is an interval; write datediff(end, start)");
            return Err(Error::unsupported("intervals", message));
        }
        _ => {}
    }
    let (left, right) = promoted(left, right, whole)?;
    let (Some(l), Some(r)) = (primitive(&left.data_type), primitive(&right.data_type)) else {
        return Err(unfit(whole, "numbers are needed, and these are of types", &[&left.data_type, &right.data_type]));
    };
    let is_float = |of: &P| matches!(of, P::Float | P::Double);
    let has_decimal = matches!(l, P::Decimal { .. }) || matches!(r, P::Decimal { .. });
    if has_decimal && !is_float(l) && !is_float(r) {
        let (left, right) = (to_decimal(left), to_decimal(right));
        let data_type = match (primitive(&left.data_type), primitive(&right.data_type)) {
            (Some(P::Decimal { precision: p, scale: s }), Some(P::Decimal { precision: q, scale: t })) => {
                decimal_result(op, *p, *s, *q, *t)
            }
            _ => return Err(Error::internal("a cast to decimal has another type")),
        };
        return Ok(Typed::new(Node::Arithmetic { left, op, right }, DataType::Primitive(data_type)));
    }
    let target = match op {
        ArithmeticOp::Divide => DOUBLE,
        ArithmeticOp::Div if is_float(l) || is_float(r) => {
            return Err(unfit(
                whole,
                "`div` takes whole numbers, and these are of types",
                &[&left.data_type, &right.data_type],
            ));
        }
        ArithmeticOp::Div => LONG,
        _ => {
            common(&left.data_type, &right.data_type).ok_or_else(|| Error::internal("numbers without a common type"))?
        }
    };
    let (left, right) = (cast(left, &target), cast(right, &target));
    Ok(Typed::new(Node::Arithmetic { left, op, right }, target))
}

/// Two numbers: a string beside a whole number is a long, otherwise a double; NULL gets the type of the other.
fn promoted(left: Typed, right: Typed, whole: &Expression) -> Result<(Typed, Typed)> {
    let is = |of: &Typed, p: &P| primitive(&of.data_type) == Some(p);
    let beside = |other: &Typed| if primitive(&other.data_type).is_some_and(is_whole) { LONG } else { DOUBLE };
    let (left, right) = match () {
        () if is(&left, &P::Void) => {
            let target = if is(&right, &P::Void) { DOUBLE } else { right.data_type.clone() };
            (cast(left, &target), right)
        }
        () if is(&right, &P::Void) => {
            let target = left.data_type.clone();
            (left, cast(right, &target))
        }
        () => (left, right),
    };
    let (left, right) = match (is(&left, &P::String), is(&right, &P::String)) {
        (true, true) => {
            return Err(unfit(
                whole,
                "numbers are needed, and these are of types",
                &[&left.data_type, &right.data_type],
            ));
        }
        (true, false) => {
            let target = beside(&right);
            (cast(left, &target), right)
        }
        (false, true) => {
            let target = beside(&left);
            (left, cast(right, &target))
        }
        (false, false) => (left, right),
    };
    Ok((number(left, whole)?, number(right, whole)?))
}

/// Binds a call: rewritten if it is only another spelling, or else as a function.
pub(super) fn bind(name: &str, arguments: Vec<Typed>, whole: &Expression) -> Result<Typed> {
    let count = arguments.len();
    let arguments = match reduced(name, arguments, whole)? {
        Reduced::Form(form) => return Ok(form),
        Reduced::Call(arguments) => arguments,
    };
    let wrong = || Err(Error::invalid(format!("`{whole:#}`: {name} does not take {count} arguments")));
    match functions::find(name) {
        Some(function) if count < function.least || count > function.most() => wrong(),
        Some(function) => call(function, arguments, whole),
        None if NON_DETERMINISTIC.contains(&name) && !KNOWN.contains(&name) => {
            let message = format!("{name}() gives something else each time, and is not evaluated");
            Err(Error::unsupported(format!("function {name}"), message))
        }
        None if KNOWN.contains(&name) => wrong(),
        None => {
            if let Some(call) = external_call(name, &arguments, whole)? {
                return Ok(call);
            }
            let advice = match hint::function(name) {
                Some(instead) => format!("; {instead}"),
                None => {
                    let known = functions::names().into_iter().chain(KNOWN);
                    resolve::sentence(&resolve::nearest(known, name))
                        .map(|near| format!("; {near}"))
                        .unwrap_or_default()
                }
            };
            let message = format!("there is no function {name}{advice}");
            Err(Error::unsupported(format!("function {name}"), message))
        }
    }
}

/// A call of an external function, if there is one of this name.
fn external_call(name: &str, arguments: &[Typed], whole: &Expression) -> Result<Option<Typed>> {
    let in_whole = |error: Error| Error::new(error.kind().clone(), format!("`{whole:#}`: {}", error.message()));
    let known: Vec<(DataType, Option<Scalar>)> =
        arguments.iter().map(|part| (part.data_type.clone(), part.clone().folded().as_literal().cloned())).collect();
    let data_type = external::bind(name, &known).map_err(in_whole)?;
    Ok(data_type.map(|data_type| {
        let call = Node::External { name: name.to_owned(), arguments: arguments.to_vec() };
        Typed::new(call, value_type(&data_type))
    }))
}

enum Reduced {
    Form(Typed),
    Call(Vec<Typed>),
}

/// Calls that are only another spelling: of CASE, COALESCE, casts, tests and operators.
fn reduced(name: &str, mut arguments: Vec<Typed>, whole: &Expression) -> Result<Reduced> {
    let (count, is_string) = (arguments.len(), first_is_string(&arguments));
    let mut take = |at: usize| arguments.get_mut(at).map_or_else(|| Typed::literal(Scalar::Null), std::mem::take);
    Ok(Reduced::Form(match (name, count) {
        ("coalesce" | "nvl" | "ifnull", 1..) if name == "coalesce" || count == 2 => {
            let parts = to_common(arguments, whole)?;
            let data_type = parts.first().map_or(DataType::Primitive(P::Void), |part| part.data_type.clone());
            Typed::new(Node::Coalesce(parts), data_type)
        }
        ("if" | "iff", 3) => case(vec![(super::coerce::condition(take(0), whole)?, take(1))], Some(take(2)), whole)?,
        ("nvl2", 3) => case(vec![(negate_condition(is_null(take(0)), true), take(1))], Some(take(2)), whole)?,
        ("nullif", 2) => {
            let (value, other) = (take(0), take(1));
            let equal = compare(value.clone(), Op::Eq, other, whole)?;
            limited(case(vec![(equal, Typed::literal(Scalar::Null))], Some(value), whole)?)?
        }
        ("isnull", 1) => is_null(take(0)),
        ("isnotnull", 1) => negate_condition(is_null(take(0)), true),
        ("equal_null", 2) => {
            let (left, right) = super::coerce::comparable(take(0), take(1), whole)?;
            Typed::boolean(Node::NullSafeEqual { left, right })
        }
        ("pmod", 2) => pmod(take(0), take(1), whole)?,
        ("mod", 2) => arithmetic(take(0), ArithmeticOp::Remainder, take(1), whole)?,
        ("positive", 1) => number(take(0), whole)?,
        ("log", 1) => named("ln", vec![take(0)], whole)?,
        ("e", 0) => Typed::literal(Scalar::Double(std::f64::consts::E)),
        ("pi", 0) => Typed::literal(Scalar::Double(std::f64::consts::PI)),
        ("nanvl", 2) => nanvl(take(0), take(1), whole)?,
        ("from_unixtime", 1) => named("from_unixtime", vec![take(0), seconds_pattern()], whole)?,
        ("unix_timestamp" | "to_unix_timestamp", 1 | 2) if !is_string => unix_timestamp_of_date(name, take(0), whole)?,
        ("unix_timestamp" | "to_unix_timestamp", 1) => {
            named("unix_timestamp", vec![take(0), seconds_pattern()], whole)?
        }
        ("current_timestamp" | "now", 0) => Typed::new(Node::Now, DataType::TIMESTAMP),
        ("localtimestamp", 0) => {
            cast(Typed::new(Node::Now, DataType::TIMESTAMP), &DataType::Primitive(P::TimestampNtz))
        }
        ("current_date" | "curdate", 0) => Typed::new(Node::Now, DataType::DATE),
        ("to_date" | "to_timestamp", 1 | 2) if count == 1 || !is_string => {
            let target = if name == "to_date" { P::Date } else { P::Timestamp };
            super::coerce::explicit(take(0), &target, false, whole)?
        }
        (_, 1) if TYPES.contains(&name) => {
            let target = type_named(name).ok_or_else(|| Error::internal("a cast to no type"))?;
            super::coerce::explicit(take(0), &target, false, whole)?
        }
        _ => return Ok(Reduced::Call(arguments)),
    }))
}

fn pmod(left: Typed, right: Typed, whole: &Expression) -> Result<Typed> {
    let (left, right) = promoted(left, right, whole)?;
    let decimals = match (primitive(&left.data_type), primitive(&right.data_type)) {
        (Some(P::Decimal { .. }), Some(other)) | (Some(other), Some(P::Decimal { .. })) => {
            !matches!(other, P::Float | P::Double)
        }
        _ => false,
    };
    let operands = match decimals {
        true => vec![to_decimal(left), to_decimal(right)],
        false => to_common(vec![left, right], whole)?,
    };
    named("pmod", operands, whole)
}

fn nanvl(value: Typed, other: Typed, whole: &Expression) -> Result<Typed> {
    let float = DataType::Primitive(P::Float);
    let target = if value.data_type == float && other.data_type == float { float } else { DOUBLE };
    let value = cast(number(value, whole)?, &target);
    let is_nan = named("isnan", vec![value.clone()], whole)?;
    limited(case(vec![(is_nan, cast(number(other, whole)?, &target))], Some(value), whole)?)
}

/// `name` is `unix_timestamp` or `to_unix_timestamp`.
fn unix_timestamp_of_date(name: &str, value: Typed, whole: &Expression) -> Result<Typed> {
    // Before 1970 Spark truncates the seconds of a timestamp towards zero here, and rounds them down in `unix_seconds`.
    if value.data_type != DataType::Primitive(P::Date) {
        let message = "it takes a string or a date here; for timestamps write unix_seconds";
        return Err(Error::unsupported(format!("function {name}"), message));
    }
    named("unix_seconds", vec![value], whole)
}

/// Types whose names are functions.
const TYPES: [&str; 12] = [
    "int",
    "bigint",
    "smallint",
    "tinyint",
    "float",
    "double",
    "decimal",
    "string",
    "boolean",
    "date",
    "timestamp",
    "binary",
];

fn first_is_string(arguments: &[Typed]) -> bool {
    arguments.first().is_some_and(|first| matches!(primitive(&first.data_type), Some(P::String | P::Void)))
}

/// The pattern that is used if none is written.
fn seconds_pattern() -> Typed {
    Typed::literal(Scalar::String("yyyy-MM-dd HH:mm:ss".to_owned()))
}

/// Functions that are reduced to other forms.
const KNOWN: [&str; 20] = [
    "coalesce",
    "nvl",
    "ifnull",
    "if",
    "iff",
    "nvl2",
    "nullif",
    "isnull",
    "isnotnull",
    "equal_null",
    "mod",
    "positive",
    "e",
    "pi",
    "nanvl",
    "current_timestamp",
    "now",
    "localtimestamp",
    "current_date",
    "curdate",
];

/// A call whose number of arguments is right.
fn call(function: &'static Definition, arguments: Vec<Typed>, whole: &Expression) -> Result<Typed> {
    let arguments = match function.slots {
        [Slot::Common] => to_common(arguments, whole)?,
        slots => {
            let repeated = slots.last().copied().unwrap_or(Slot::Any);
            let slots = slots.iter().copied().chain(std::iter::repeat(repeated));
            let collection = arguments.first().map(|first| first.data_type.clone());
            let fitted = arguments.into_iter().zip(slots).map(|(argument, slot)| match (slot, &collection) {
                (Slot::Key | Slot::Element, Some(collection)) => inside(argument, slot, collection, whole),
                _ => fit(argument, slot, whole),
            });
            fitted.collect::<Result<Vec<_>>>()?
        }
    };
    let arguments = match function.name {
        // Bytes stay bytes only among themselves.
        "concat" if arguments.iter().any(|part| part.data_type != DataType::Primitive(P::Binary)) => {
            arguments.into_iter().map(|part| text(part, whole)).collect::<Result<_>>()?
        }
        "greatest" | "least" => {
            for part in &arguments {
                super::coerce::check_order(&part.data_type, whole)?;
            }
            arguments
        }
        _ => arguments,
    };
    let types: Vec<P> = arguments.iter().map(|part| primitive(&part.data_type).cloned().unwrap_or(P::Void)).collect();
    let data_type = match &function.result_type {
        ResultType::Fixed(data_type) => data_type.clone(),
        ResultType::First => types.first().cloned().unwrap_or(P::Void),
        ResultType::Element => match arguments.first().map(|first| &first.data_type) {
            Some(DataType::Array(array)) => plain(&array.element, whole)?,
            Some(DataType::Map(map)) => plain(&map.value, whole)?,
            _ => return Err(Error::internal("neither an array nor a map has elements")),
        },
        ResultType::With(of) => {
            let second = arguments.get(1).map(|part| part.clone().folded());
            let second = match &second {
                None => Second::Missing,
                Some(second) => second.as_literal().map_or(Second::Computed, Second::Value),
            };
            of(&types, second).map_err(|message| Error::invalid(format!("`{whole:#}`: {message}")))?
        }
    };
    Ok(Typed::new(Node::Call { function, arguments }, DataType::Primitive(data_type)))
}

/// The type of the elements of an array, or of the values of a map, if it is a type that expressions compute with.
fn plain(of: &DataType, whole: &Expression) -> Result<P> {
    match primitive(of) {
        Some(P::Geometry { .. } | P::Geography { .. }) | None => {
            Err(unfit(whole, "a plain value is needed, and this is of type", &[of]))
        }
        Some(of) => Ok(of.clone()),
    }
}

/// The value that is searched in an array or a map, cast to the type of its elements. A wider type is refused.
fn inside(argument: Typed, slot: Slot, collection: &DataType, whole: &Expression) -> Result<Typed> {
    let target = match (slot, collection) {
        (Slot::Key, DataType::Array(_)) => return fit(argument, Slot::Int, whole),
        (Slot::Key, DataType::Map(map)) => &map.key,
        (_, DataType::Array(array)) => &array.element,
        _ => return Err(Error::internal("neither an array nor a map is searched")),
    };
    plain(target, whole)?;
    let is_string = |of: &DataType| primitive(of) == Some(&P::String);
    match common(target, &argument.data_type) {
        Some(common) if common == *target && is_string(target) == is_string(&argument.data_type) => {
            Ok(cast(argument, target))
        }
        _ if argument.data_type == DataType::Primitive(P::Void) => Ok(cast(argument, target)),
        _ => Err(unfit(whole, "write a CAST to the first of these types:", &[target, &argument.data_type])),
    }
}

/// An argument, cast to the type that the function needs.
fn fit(argument: Typed, slot: Slot, whole: &Expression) -> Result<Typed> {
    let of = primitive(&argument.data_type);
    let refused = |what: &str| Err(unfit(whole, what, &[&argument.data_type]));
    match (slot, &argument.data_type) {
        (Slot::Array | Slot::Collection, DataType::Array(_)) | (Slot::Map | Slot::Collection, DataType::Map(_)) => {
            return Ok(argument);
        }
        (Slot::Array, _) => return refused("an array is needed, and this is of type"),
        (Slot::Map, _) => return refused("a map is needed, and this is of type"),
        (Slot::Collection, _) => return refused("an array or a map is needed, and this is of type"),
        _ => {}
    }
    let to = |target: P| DataType::Primitive(target);
    match (slot, of) {
        (Slot::Any | Slot::Common, Some(_)) => Ok(argument),
        (Slot::String, _) => text(argument, whole),
        (Slot::StringOrBytes, Some(P::Binary)) => Ok(argument),
        (Slot::StringOrBytes, _) => text(argument, whole),
        (Slot::Int, Some(P::Byte | P::Short | P::Integer | P::String | P::Void)) => {
            Ok(cast(argument, &DataType::INTEGER))
        }
        (Slot::Int, _) => refused("an integer is needed, and this is of type"),
        (Slot::Double, Some(of)) if is_number(of) => Ok(cast(argument, &DOUBLE)),
        (Slot::Double, Some(P::String | P::Void)) => Ok(cast(argument, &DOUBLE)),
        (Slot::Number, _) => number(argument, whole),
        (Slot::Date, Some(P::Date | P::Timestamp | P::TimestampNtz | P::String | P::Void)) => {
            Ok(cast(argument, &DataType::DATE))
        }
        (Slot::Moment, Some(P::Timestamp | P::TimestampNtz)) => Ok(argument),
        (Slot::Moment, Some(P::Date | P::String | P::Void)) => Ok(cast(argument, &DataType::TIMESTAMP)),
        (Slot::Bytes, Some(P::Binary)) => Ok(argument),
        (Slot::Bytes, Some(P::String | P::Void)) => Ok(cast(argument, &to(P::Binary))),
        // Spark's functions differ here: some keep the fraction, some drop it, some refuse it.
        (Slot::Long | Slot::LongOrBytes, Some(P::Float | P::Double | P::Decimal { .. })) => refused(
            "whole numbers are needed (write CAST(… AS bigint) if fractions may be lost), and this is of \
                     type",
        ),
        (Slot::Long, Some(P::String | P::Void)) => Ok(cast(argument, &LONG)),
        (Slot::Long, _) => Ok(cast(number(argument, whole)?, &LONG)),
        (Slot::LongOrBytes, Some(P::Binary)) => Ok(argument),
        (Slot::LongOrBytes, Some(of)) if is_number(of) => Ok(cast(argument, &LONG)),
        (Slot::LongOrBytes, _) => Ok(cast(text(argument, whole)?, &to(P::Binary))),
        (Slot::Double, _) => refused("a number is needed, and this is of type"),
        (Slot::Date | Slot::Moment, _) => refused("a date or a timestamp is needed, and this is of type"),
        (Slot::Bytes, _) => refused("bytes are needed, and this is of type"),
        (Slot::Array | Slot::Map | Slot::Collection | Slot::Key | Slot::Element, _) => {
            refused("a collection is needed, and this is of type")
        }
        (Slot::Any | Slot::Common, None) => refused("a plain value is needed, and this is of type"),
    }
}

/// A call of a function that is known to exist.
pub(super) fn named(name: &str, arguments: Vec<Typed>, whole: &Expression) -> Result<Typed> {
    let function = functions::find(name).ok_or_else(|| Error::internal(format!("the function {name} is missing")))?;
    call(function, arguments, whole)
}
