//! Advice in syntax errors: what to write instead of syntax of other SQL dialects.
//!
//! Here are only sentences: the parser decides what is wrong and takes the hint from here. The cases are in
//! `tests/data/text/predicate_parse.txt`.

use crate::expression::ast::{ArithmeticOp, Expression};

/// How an error shows that a quote inside a string is doubled.
pub(super) const DOUBLED: &str = "a quote inside a string is doubled: 'O''Hare'";

/// For a function that is not known, or called as a method.
pub(crate) fn function(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "is_nan" => "write isnan(x)",
        "is_null" | "isna" => "write x IS NULL",
        "is_not_null" | "notnull" | "notna" => "write x IS NOT NULL",
        "isin" | "is_in" => "write x IN (1, 2)",
        "starts_with" => "write startswith(x, 'start')",
        "ends_with" => "write endswith(x, 'end')",
        "today" => "write the date itself, as DATE '2020-12-31'",
        "datetime" => "write the time as TIMESTAMP '2020-12-31 23:59:59'",
        "col" | "field" | "lit" => "write the column's name alone, and values as they are",
        "exists" => "read the values first and list them with IN",
        "count"
        | "count_if"
        | "sum"
        | "avg"
        | "mean"
        | "median"
        | "min"
        | "max"
        | "first"
        | "last"
        | "any_value"
        | "collect_list"
        | "collect_set"
        | "stddev"
        | "variance"
        | "approx_count_distinct" => "it is an aggregate, and an expression sees the values of one row",
        _ => return None,
    })
}

/// For a value where a condition is needed, or a condition beside a value.
pub(crate) fn or(expression: &Expression) -> &'static str {
    fn joins(part: &Expression) -> bool {
        matches!(part, Expression::Arithmetic { op: ArithmeticOp::Concat, .. })
    }
    let is_meant = match expression {
        Expression::Compare { left, .. } => match &**left {
            Expression::Compare { right, .. } => joins(right),
            _ => false,
        },
        other => joins(other),
    };
    if is_meant { "; `||` joins strings, and OR joins conditions" } else { "" }
}

/// For a call by a name of several parts.
pub(super) fn method(name: &str) -> String {
    match function(name) {
        Some(instead) => format!("functions are not called on a column; {instead}"),
        None => format!("functions are not called on a column; write {}(x)", name.to_ascii_lowercase()),
    }
}

/// For a word after an operand that is an operator in other dialects.
pub(super) fn operator(word: &str) -> Option<String> {
    Some(match word.to_ascii_uppercase().as_str() {
        "SIMILAR" | "GLOB" | "MATCH" => "write RLIKE for a regular expression, LIKE for % and _".to_owned(),
        "ISNULL" => "write IS NULL".to_owned(),
        "NOTNULL" => "write IS NOT NULL".to_owned(),
        "MOD" => "write % for the remainder".to_owned(),
        _ => return None,
    })
}

/// For a name that begins a statement or an expression in other dialects, if the next token cannot follow a column.
pub(super) fn beginning(name: &str) -> Option<String> {
    Some(match name.to_ascii_uppercase().as_str() {
        "WHERE" => "write the condition alone, without WHERE".to_owned(),
        "SELECT" | "EXISTS" | "WITH" => subquery(),
        _ => return None,
    })
}

/// For a word that cannot follow IS or IS NOT.
pub(super) fn is(word: &str, operand: &str, negated: bool) -> Option<String> {
    let not = if negated { "NOT " } else { "" };
    match word.to_ascii_uppercase().as_str() {
        "NAN" => Some(format!("write {not}isnan({operand})")),
        "NONE" | "NA" | "UNKNOWN" | "MISSING" | "EMPTY" => Some(format!("write {operand} IS {not}NULL")),
        _ => None,
    }
}

/// For a query inside a filter.
pub(super) fn subquery() -> String {
    "subqueries are not supported; read the values first and list them with IN".to_owned()
}

/// For a character that no filter has.
pub(super) fn character(c: char) -> String {
    match c {
        '&' => "`&` is not supported; write AND".to_owned(),
        '|' => "`|` is not supported; write OR".to_owned(),
        '~' => "`~` is not supported; write NOT".to_owned(),
        '^' => "`^` is not supported; write power(a, b)".to_owned(),
        '[' | ']' => format!(
            "`{c}` is not supported; an element of an array is get(a, 0), a value of a map element_at(m, 'key'), a field of a \
             struct s.a, and values after IN are in parentheses"
        ),
        ':' => "`:` is not supported; write the type before the value, such as DATE '2020-12-31', or a cast, x::date"
            .to_owned(),
        '?' | '$' | '@' | '{' | '}' => format!(
            "`{c}` is not supported; put the value itself into the filter, a string in single quotes, with quotes \
             inside it doubled"
        ),
        ';' => "one condition, without `;`, is expected".to_owned(),
        c => format!("{c:?} is not part of a filter"),
    }
}

/// For a word that is compared with a column and is not a column itself.
pub(crate) fn value(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "nan" => "write DOUBLE 'NaN'",
        "inf" | "infinity" => "write DOUBLE 'Infinity'",
        "none" | "nil" | "na" | "nat" => "test for what is missing with IS NULL",
        "yes" | "on" => "write TRUE",
        "no" | "off" => "write FALSE",
        _ => return None,
    })
}

/// The date without quotes at the beginning of the text, if there is one.
pub(crate) fn date(text: &str) -> Option<&str> {
    let shaped = text.get(..10)?;
    let is_date = shaped.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_date.then_some(shaped)
}
