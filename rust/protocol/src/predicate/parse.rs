//! Reads a filter's text into a [`Predicate`].
//!
//! Recursive descent; text length and nesting are limited, and chains of AND and OR are read in a loop, so no text
//! exhausts the stack. Grammar, loosest first: OR, AND, NOT, then one comparison, IS NULL, IN, BETWEEN, LIKE, or a
//! boolean column standing alone. Errors say where, what was found and what was expected
//! (`tests/data/text/predicate_parse.txt`).

use super::ast::{Name, Op, Operand, Predicate, RESERVED};
use super::hint;
use super::lexer::{Lexer, Token, error_at};
use super::like::Pattern;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// Longest text accepted, in bytes.
pub const MAX_LENGTH: usize = 4 << 20;
/// Deepest nesting of parentheses and NOTs.
pub const MAX_DEPTH: usize = 100;
/// Digits of the longest number.
const MAX_DIGITS: usize = 38;

/// Reads a predicate.
///
/// # Errors
/// `Invalid`, with the place and what was expected there.
pub fn parse(text: &str) -> Result<Predicate> {
    if text.len() > MAX_LENGTH {
        return Err(crate::error::Error::invalid(format!(
            "the filter has {} bytes and at most {MAX_LENGTH} are read; filter on fewer values, or join with a table of them",
            text.len()
        )));
    }
    let mut parser = Parser::new(text)?;
    let predicate = parser.or(0)?;
    match parser.token {
        Token::End => Ok(predicate),
        Token::Symbol(")") => Err(parser.error("this parenthesis was never opened")),
        _ => Err(parser.expected("AND, OR or the end")),
    }
}

impl std::str::FromStr for Predicate {
    type Err = crate::error::Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text)
    }
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// The token that is looked at.
    token: Token<'a>,
    /// Where it begins.
    at: usize,
    /// Where it ends.
    end: usize,
    /// Where the token before it begins and ends, if that was a string.
    string: Option<(usize, usize)>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let (token, at, end) = lexer.token()?;
        Ok(Self { text, lexer, token, at, end, string: None })
    }

    fn advance(&mut self) -> Result<Token<'a>> {
        let (token, at, end) = self.lexer.token()?;
        self.string = matches!(self.token, Token::Text(_)).then_some((self.at, self.end));
        self.at = at;
        self.end = end;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Whether the token after the current one is a text literal.
    fn text_follows(&self) -> bool {
        matches!(self.lexer.clone().token(), Ok((Token::Text(_), _, _)))
    }

    fn is_word(&self, keyword: &str) -> bool {
        matches!(self.token, Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn take_word(&mut self, keyword: &str) -> Result<bool> {
        let found = self.is_word(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take_symbol(&mut self, symbol: &'static str) -> Result<bool> {
        let found = self.token == Token::Symbol(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn error(&self, message: &str) -> crate::error::Error {
        error_at(self.text, self.at, message)
    }

    /// What stands after the end of a string without a space between, as in `'O'Hare'`.
    fn after_quote(&self) -> Option<String> {
        let (start, end) = self.string.filter(|(_, end)| *end == self.at)?;
        if !matches!(self.token, Token::Word(_) | Token::Number(_)) {
            return None;
        }
        let (head, rest) = (self.text.get(start..end)?.strip_suffix('\'')?, self.text.get(self.at..self.end)?);
        (head.len() + rest.len() <= 40).then(|| format!("a quote inside a string is doubled: {head}''{rest}'"))
    }

    fn expected(&self, what: &str) -> crate::error::Error {
        if let Some(message) = self.after_quote() {
            return self.error(&message);
        }
        let found = match &self.token {
            Token::End => "the end".to_owned(),
            _ => {
                let token = self.text.get(self.at..self.end).unwrap_or_default();
                let shown: String = token.chars().take(40).collect();
                format!("`{shown}{}`", if shown.len() < token.len() { "…" } else { "" })
            }
        };
        self.error(&format!("expected {what}, found {found}"))
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        if depth >= MAX_DEPTH {
            return Err(self.error(&format!("parentheses and NOTs are nested deeper than {MAX_DEPTH}")));
        }
        Ok(depth + 1)
    }

    fn or(&mut self, depth: usize) -> Result<Predicate> {
        let first = self.and(depth)?;
        if !self.is_word("OR") {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.take_word("OR")? {
            terms.push(self.and(depth)?);
        }
        Ok(Predicate::Or(terms))
    }

    fn and(&mut self, depth: usize) -> Result<Predicate> {
        let first = self.not(depth)?;
        if !self.is_word("AND") {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.take_word("AND")? {
            terms.push(self.not(depth)?);
        }
        Ok(Predicate::And(terms))
    }

    fn not(&mut self, depth: usize) -> Result<Predicate> {
        if self.is_word("NOT") || self.token == Token::Symbol("!") {
            let depth = self.deeper(depth)?;
            self.advance()?;
            return Ok(Predicate::Not(Box::new(self.not(depth)?)));
        }
        self.condition(depth)
    }

    fn condition(&mut self, depth: usize) -> Result<Predicate> {
        if self.token != Token::Symbol("(") {
            let left = self.operand()?;
            return self.comparison(left);
        }
        let depth = self.deeper(depth)?;
        self.advance()?;
        let inner = self.or(depth)?;
        if !self.take_symbol(")")? {
            return Err(self.expected("AND, OR or `)`"));
        }
        match inner {
            // What stands alone in parentheses may turn out to be one side of a comparison.
            Predicate::Bare(operand) => self.comparison(operand),
            whole => match self.token {
                Token::Symbol("=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">=" | "<=>") => {
                    Err(self.error("a condition cannot be compared; compare a column or a value"))
                }
                _ => Ok(whole),
            },
        }
    }

    /// What may follow the first operand of a condition.
    fn comparison(&mut self, left: Operand) -> Result<Predicate> {
        if let Token::Symbol(symbol) = self.token {
            let op = match symbol {
                "=" | "==" => Some(Op::Eq),
                "<>" | "!=" => Some(Op::Ne),
                "<" => Some(Op::Lt),
                "<=" => Some(Op::Le),
                ">" => Some(Op::Gt),
                ">=" => Some(Op::Ge),
                "<=>" => None,
                "+" | "-" => return Err(self.error(&hint::arithmetic())),
                "(" => return Err(self.error(&called(&left))),
                _ => return self.bare(left),
            };
            self.advance()?;
            let right = self.side()?;
            return Ok(match op {
                Some(op) => Predicate::Compare { left, op, right },
                None => Predicate::NullSafeEqual { left, right },
            });
        }
        if self.take_word("IS")? {
            let negated = self.take_word("NOT")?;
            if !self.take_word("NULL")? {
                if let Token::Word(word) = self.token
                    && let Some(message) = hint::is(word, &left.to_string(), negated)
                {
                    return Err(self.error(&message));
                }
                return Err(self.expected(if negated { "NULL" } else { "NULL or NOT NULL" }));
            }
            return Ok(Predicate::IsNull { operand: left, negated });
        }
        let negated = self.take_word("NOT")?;
        if self.take_word("IN")? {
            return Ok(Predicate::In { operand: left, list: self.list()?, negated });
        }
        if self.take_word("BETWEEN")? {
            let low = self.side()?;
            if !self.take_word("AND")? {
                return Err(self.expected("AND and the upper limit of BETWEEN"));
            }
            return Ok(Predicate::Between { operand: left, low, high: self.side()?, negated });
        }
        if self.take_word("LIKE")? {
            let (pattern, escape) = self.pattern()?;
            return Ok(Predicate::Like { operand: left, pattern, escape, negated });
        }
        if let Token::Word(word) = self.token
            && let Some(message) = hint::operator(word)
        {
            return Err(self.error(&message));
        }
        if negated {
            return Err(self.expected("IN, BETWEEN or LIKE"));
        }
        if let (Operand::Column(Name(path)), Token::Word(_) | Token::Text(_) | Token::Number(_)) = (&left, &self.token)
            && let [name] = path.as_slice()
            && let Some(message) = hint::beginning(name)
        {
            return Err(self.error(&message));
        }
        self.bare(left)
    }

    /// An operand without a comparison.
    fn bare(&self, operand: Operand) -> Result<Predicate> {
        match operand {
            Operand::Column(_) | Operand::Literal(Scalar::Boolean(_) | Scalar::Null) => Ok(Predicate::Bare(operand)),
            Operand::Literal(_) => Err(self.expected("a comparison after the value")),
        }
    }

    /// The second operand of a condition; parentheses around it are ignored.
    fn side(&mut self) -> Result<Operand> {
        let mut open = 0;
        while self.token == Token::Symbol("(") {
            open = self.deeper(open)?;
            self.advance()?;
        }
        let at = self.at;
        let operand = self.operand()?;
        if self.token == Token::Symbol("(") {
            return Err(self.error(&called(&operand)));
        }
        if matches!(self.token, Token::Symbol("+" | "-")) {
            return Err(match self.text.get(at..).and_then(hint::date) {
                Some(date) => error_at(self.text, at, &format!("a date is written DATE '{date}'")),
                None => self.error(&hint::arithmetic()),
            });
        }
        for _ in 0..open {
            if !self.take_symbol(")")? {
                return Err(self.expected("`)`"));
            }
        }
        Ok(operand)
    }

    fn list(&mut self) -> Result<Vec<Scalar>> {
        if !self.take_symbol("(")? {
            return Err(self.expected("`(` and the values of IN"));
        }
        let mut values = Vec::new();
        loop {
            let at = self.at;
            match self.operand()? {
                Operand::Literal(value) => values.push(value),
                Operand::Column(Name(path)) => {
                    let name = path.join(".");
                    let message = match hint::beginning(&name) {
                        Some(message) => message,
                        None if self.token == Token::Symbol("(") => hint::function(&name),
                        None => format!(
                            "IN takes values only; write '{}' if a string is meant, and compare columns with = and OR",
                            name.replace('\'', "''")
                        ),
                    };
                    return Err(error_at(self.text, at, &message));
                }
            }
            if self.take_symbol(")")? {
                return Ok(values);
            }
            if !self.take_symbol(",")? {
                return Err(self.expected("`,` or `)`"));
            }
        }
    }

    fn pattern(&mut self) -> Result<(String, Option<char>)> {
        let at = self.at;
        if !matches!(self.token, Token::Text(_)) {
            return Err(self.expected("a pattern in single quotes"));
        }
        let Token::Text(pattern) = self.advance()? else { return Err(self.expected("a pattern")) };
        let mut escape = None;
        if self.take_word("ESCAPE")? {
            let mut chars = match &self.token {
                Token::Text(text) => text.chars(),
                _ => return Err(self.expected("one character in single quotes")),
            };
            escape = match (chars.next(), chars.next()) {
                (Some(only), None) => Some(only),
                _ => return Err(self.expected("exactly one character in the quotes after ESCAPE")),
            };
            self.advance()?;
        }
        if let Err(problem) = Pattern::new(&pattern, escape) {
            return Err(error_at(self.text, at, problem.message()));
        }
        Ok((pattern, escape))
    }

    fn operand(&mut self) -> Result<Operand> {
        let at = self.at;
        match &self.token {
            Token::Text(_) | Token::Number(_) | Token::Symbol("-" | "+") => self.literal().map(Operand::Literal),
            Token::Word(word) => {
                let word = *word;
                if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word)) {
                    let value = match word.to_ascii_uppercase().as_str() {
                        "TRUE" => Scalar::Boolean(true),
                        "FALSE" => Scalar::Boolean(false),
                        "NULL" => Scalar::Null,
                        _ => return Err(self.expected("a column or a value (a column of that name needs back-ticks)")),
                    };
                    self.advance()?;
                    return Ok(Operand::Literal(value));
                }
                if self.text_follows() {
                    return self.typed_literal(word, at).map(Operand::Literal);
                }
                self.name().map(Operand::Column)
            }
            Token::Quoted(_) => self.name().map(Operand::Column),
            Token::Symbol(_) | Token::End => Err(self.expected("a column or a value")),
        }
    }

    fn name(&mut self) -> Result<Name> {
        let mut path = Vec::new();
        loop {
            match self.advance()? {
                Token::Word(word) => path.push(word.to_owned()),
                Token::Quoted(name) => path.push(name),
                Token::Text(_) | Token::Number(_) | Token::Symbol(_) | Token::End => {}
            }
            if !self.take_symbol(".")? {
                return Ok(Name(path));
            }
            if !matches!(self.token, Token::Word(_) | Token::Quoted(_)) {
                return Err(self.expected("a field's name after the point"));
            }
        }
    }

    /// A text, or a number with its sign.
    fn literal(&mut self) -> Result<Scalar> {
        let at = self.at;
        let negative = self.token == Token::Symbol("-");
        if negative || self.token == Token::Symbol("+") {
            self.advance()?;
            if !matches!(self.token, Token::Number(_)) {
                return Err(self.expected("a number after the sign"));
            }
        }
        match self.advance()? {
            Token::Text(text) => Ok(Scalar::String(text)),
            Token::Number(digits) => number(digits, negative).map_err(|problem| error_at(self.text, at, &problem)),
            Token::Word(_) | Token::Quoted(_) | Token::Symbol(_) | Token::End => Err(self.expected("a value")),
        }
    }

    /// A text with its type in front of it.
    fn typed_literal(&mut self, word: &str, at: usize) -> Result<Scalar> {
        self.advance()?;
        let Token::Text(text) = self.advance()? else { return Err(self.expected("a string")) };
        let (data_type, form) = match word.to_ascii_uppercase().as_str() {
            "X" => {
                let advice = format!("X'{text}' is not an even number of hexadecimal digits");
                return hexadecimal(&text).map(Scalar::Binary).ok_or_else(|| error_at(self.text, at, &advice));
            }
            "DATE" => (PrimitiveType::Date, "'2020-12-31'"),
            "TIMESTAMP" | "TIMESTAMP_LTZ" => {
                (PrimitiveType::Timestamp, "'2020-12-31 23:59:59' (in UTC, or with an offset)")
            }
            "TIMESTAMP_NTZ" => (PrimitiveType::TimestampNtz, "'2020-12-31 23:59:59' (without an offset)"),
            "DOUBLE" => (PrimitiveType::Double, "'1.5', 'NaN' or 'Infinity'"),
            "FLOAT" => (PrimitiveType::Float, "'1.5', 'NaN' or 'Infinity'"),
            "INTERVAL" => return Err(error_at(self.text, at, "intervals are not supported; write the resulting time")),
            _ => {
                let message = "a string follows a word that is no type; types are DATE, TIMESTAMP, TIMESTAMP_NTZ, X, FLOAT and DOUBLE";
                return Err(error_at(self.text, at, message));
            }
        };
        let value = Scalar::parse(text.trim(), &data_type);
        value.ok_or_else(|| error_at(self.text, at, &format!("'{text}' is not a {data_type}; write it like {form}")))
    }
}

/// What to write instead of a function's call.
fn called(operand: &Operand) -> String {
    match operand {
        Operand::Column(Name(path)) => hint::function(path.last().map_or("", String::as_str)),
        Operand::Literal(_) => "functions are not supported; compare with a plain value".to_owned(),
    }
}

/// A whole number is a long, with a point a decimal, with an exponent a double.
fn number(digits: &str, negative: bool) -> std::result::Result<Scalar, String> {
    if digits.contains(['e', 'E']) {
        let value: f64 = digits.parse().map_err(|_| format!("`{digits}` is not a number"))?;
        if !value.is_finite() {
            return Err(format!(
                "`{digits}` is beyond the range of a double; write DOUBLE 'Infinity' if that is meant"
            ));
        }
        return Ok(Scalar::Double(if negative { -value } else { value }));
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let too_long = || format!("a number has at most {MAX_DIGITS} digits");
    let scale = u8::try_from(fraction.len()).ok().filter(|s| usize::from(*s) <= MAX_DIGITS).ok_or_else(too_long)?;
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let shifted = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit.saturating_sub(b'0'))));
        value = shifted.ok_or_else(too_long)?;
    }
    let length = value.checked_ilog10().map_or(1, |log| log as usize + 1);
    let precision =
        u8::try_from(length).ok().filter(|p| usize::from(*p) <= MAX_DIGITS).ok_or_else(too_long)?.max(scale);
    let value = if negative { -value } else { value };
    Ok(match i64::try_from(value) {
        Ok(value) if scale == 0 => Scalar::Long(value),
        _ => Scalar::Decimal { value, precision, scale },
    })
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
