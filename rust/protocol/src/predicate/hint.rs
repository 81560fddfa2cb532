//! What to write instead of what other dialects of SQL have and filters here have not.
//!
//! Only sentences: the parser decides what is wrong and asks here for the right form. The cases are in
//! `tests/data/text/predicate_parse.txt`.

/// How an error shows that a quote inside a string is doubled.
pub(super) const DOUBLED: &str = "a quote inside a string is doubled: 'O''Hare'";

/// For a function that is called by this name.
pub(super) fn function(name: &str) -> String {
    let instead = match name.to_ascii_lowercase().as_str() {
        "isnan" | "is_nan" => "write x = DOUBLE 'NaN'",
        "isnull" | "is_null" | "isna" => "write x IS NULL",
        "isnotnull" | "is_not_null" | "notnull" | "notna" => "write x IS NOT NULL",
        "isin" | "is_in" => "write x IN (1, 2)",
        "coalesce" | "nvl" | "ifnull" => "write x = 1 OR x IS NULL",
        "startswith" | "starts_with" | "left" => "write x LIKE 'start%'",
        "endswith" | "ends_with" | "right" => "write x LIKE '%end'",
        "contains" | "instr" | "position" | "locate" => "write x LIKE '%part%'",
        "date" | "to_date" => "write the date as DATE '2020-12-31'",
        "timestamp" | "to_timestamp" | "datetime" => "write the time as TIMESTAMP '2020-12-31 23:59:59'",
        "cast" | "try_cast" => "write a value with its type before it, such as DATE '2020-12-31', instead of a cast",
        "year" | "month" | "day" | "hour" | "date_trunc" | "trunc" | "extract" => {
            "write a range, such as x >= DATE '2020-01-01' AND x < DATE '2021-01-01'"
        }
        "current_date" | "current_timestamp" | "now" | "today" => "write the date itself, as DATE '2020-12-31'",
        "col" | "field" | "lit" => "write the column's name alone, and values as they are",
        "exists" => return subquery(),
        _ => "compare plain columns with values, and compute on the rows that come out",
    };
    format!("functions are not supported; {instead}")
}

/// For a word after an operand, that other dialects have for an operator.
pub(super) fn operator(word: &str) -> Option<String> {
    Some(match word.to_ascii_uppercase().as_str() {
        "ILIKE" => "ILIKE is not supported, and LIKE tells capitals from small letters; write the spellings with OR, \
                    or compare the rows that come out"
            .to_owned(),
        "RLIKE" | "REGEXP" | "SIMILAR" | "GLOB" | "MATCH" => {
            "regular expressions are not supported; use LIKE, where % stands for any characters and _ for one, or \
             compare the rows that come out"
                .to_owned()
        }
        "ISNULL" => "write IS NULL".to_owned(),
        "NOTNULL" => "write IS NOT NULL".to_owned(),
        "DIV" | "MOD" => arithmetic(),
        _ => return None,
    })
}

/// For a name that begins a statement or an expression elsewhere, when what follows it makes no sense after a column.
pub(super) fn beginning(name: &str) -> Option<String> {
    Some(match name.to_ascii_uppercase().as_str() {
        "CASE" => "CASE is not supported; write its conditions with AND, OR and NOT".to_owned(),
        "WHERE" => "write the condition alone, without WHERE".to_owned(),
        "SELECT" | "EXISTS" | "WITH" => subquery(),
        _ => return None,
    })
}

/// For what stands after IS or IS NOT and is not NULL.
pub(super) fn is(word: &str, operand: &str, negated: bool) -> Option<String> {
    let test = match word.to_ascii_uppercase().as_str() {
        truth @ ("TRUE" | "FALSE") => format!("{operand} <=> {truth}"),
        "DISTINCT" => {
            let not = if negated { "" } else { "NOT " };
            return Some(format!("IS DISTINCT FROM is not supported; write {not}{operand} <=> the other"));
        }
        "NAN" => format!("{operand} = DOUBLE 'NaN'"),
        "NONE" | "NA" | "UNKNOWN" | "MISSING" | "EMPTY" => {
            return Some(format!("write {operand} IS {}NULL", if negated { "NOT " } else { "" }));
        }
        _ => return None,
    };
    Some(format!("IS takes NULL only; write {}{test}", if negated { "NOT " } else { "" }))
}

/// For `+` and its like.
pub(super) fn arithmetic() -> String {
    "arithmetic is not supported; compute the value beforehand: a > 4 instead of a + 1 > 5".to_owned()
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
        '*' | '/' | '%' | '^' => arithmetic(),
        '[' | ']' => {
            format!("`{c}` is not supported; values after IN stand in parentheses, fields of structs are written a.b")
        }
        ':' => "`:` is not supported; write the type before the value, such as DATE '2020-12-31'".to_owned(),
        '?' | '$' | '@' | '{' | '}' => format!(
            "`{c}` is not supported; put the value itself into the filter, a string in single quotes, with quotes \
             inside it doubled"
        ),
        ';' => "one condition, without `;`, is expected".to_owned(),
        c => format!("{c:?} is not part of a filter"),
    }
}

/// For a word that names no column and is compared with one.
pub(super) fn value(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "nan" => "write DOUBLE 'NaN'",
        "inf" | "infinity" => "write DOUBLE 'Infinity'",
        "none" | "nil" | "na" | "nat" => "test for what is missing with IS NULL",
        "yes" | "on" => "write TRUE",
        "no" | "off" => "write FALSE",
        _ => return None,
    })
}

/// Whether text begins as a date does, without quotes.
pub(super) fn date(text: &str) -> Option<&str> {
    let shaped = text.get(..10)?;
    let is_date = shaped.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_date.then_some(shaped)
}
