//! The functions: their names, the types of arguments and results, and their code.
//!
//! Arguments have the types of their slots. If one is null in a row, the result is null, unless a function
//! says otherwise.

mod codes;
mod collection;
mod hash;
mod math;
mod moment;
mod pattern;
mod regular;
mod signature;
mod string;

pub(crate) use self::signature::{Arguments, Definition, ResultType, Second, Slot};

/// Other names of the same function.
const ALIASES: [(&str, &str); 21] = [
    ("char_length", "length"),
    ("character_length", "length"),
    ("len", "length"),
    ("ucase", "upper"),
    ("lcase", "lower"),
    ("substr", "substring"),
    ("ceiling", "ceil"),
    ("pow", "power"),
    ("signum", "sign"),
    ("day", "dayofmonth"),
    ("dateadd", "date_add"),
    ("date_diff", "datediff"),
    ("to_timestamp_ltz", "to_timestamp"),
    ("trim", "btrim"),
    ("week", "weekofyear"),
    ("cardinality", "size"),
    ("chr", "char"),
    ("sha", "sha1"),
    ("rlike", "regexp_like"),
    ("regexp", "regexp_like"),
    ("to_unix_timestamp", "unix_timestamp"),
];

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Definition> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    all().find(|function| function.name == name)
}

fn all() -> impl Iterator<Item = &'static Definition> {
    let rooms = [
        string::FUNCTIONS,
        codes::FUNCTIONS,
        collection::FUNCTIONS,
        regular::FUNCTIONS,
        math::FUNCTIONS,
        moment::FUNCTIONS,
        hash::FUNCTIONS,
    ];
    rooms.into_iter().flatten()
}

/// The names of all functions, for the documentation.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        all().map(|function| function.name).chain(ALIASES.iter().map(|(alias, _)| *alias)).collect();
    names.sort_unstable();
    names.dedup();
    names
}
