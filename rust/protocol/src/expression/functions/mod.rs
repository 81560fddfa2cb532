//! The functions: by which names they are called, what they take and give, and what they compute.
//!
//! Arguments come in the types that their slots ask for; a row with a null among them gives null, unless a function
//! says otherwise.

mod hash;
mod math;
mod moment;
mod pattern;
mod signature;
mod text;

pub(crate) use self::signature::{Arguments, Definition, Gives, Second, Slot};

/// Other names of the same function.
const ALIASES: [(&str, &str); 15] = [
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
];

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Definition> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    [text::FUNCTIONS, math::FUNCTIONS, moment::FUNCTIONS, hash::FUNCTIONS]
        .into_iter()
        .flatten()
        .find(|function| function.name == name)
}

/// The names of all functions, for the documentation.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = [text::FUNCTIONS, math::FUNCTIONS, moment::FUNCTIONS, hash::FUNCTIONS]
        .into_iter()
        .flatten()
        .map(|function| function.name)
        .chain(ALIASES.iter().map(|(alias, _)| *alias))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
