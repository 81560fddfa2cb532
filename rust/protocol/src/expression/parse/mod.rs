//! Reads text into an [`Expression`].
//!
//! Precedence climbing; text length, nesting and the depth of the tree are limited, and chains of AND and OR are read in
//! a loop, so no text exhausts the stack. Operators, loosest first: OR, AND, NOT, then one test (IS, IN, BETWEEN, LIKE),
//! comparisons, `+ - ||`, `* / % div`, signs, `::`. Errors say where, what was found and what was expected
//! (`tests/data/text/predicate_parse.txt`).

pub(crate) mod hint;
mod lexer;
mod literal;
mod primary;

use self::lexer::{Dialect, Lexer, Token, error_at};
pub(crate) use self::literal::type_named;
use super::ast::{ArithmeticOp, Expression, Match, Name, Op, check_pattern};
use super::print::level;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Longest text accepted, in bytes.
pub const MAX_LENGTH: usize = 4 << 20;
/// Deepest nesting of parentheses, signs, NOTs, CASEs and calls.
pub const MAX_DEPTH: usize = 100;
/// Deepest tree: nesting, and operators that follow each other.
const MAX_HEIGHT: usize = 200;

/// Reads an expression of a table's metadata, in which strings have the escapes of Spark's SQL.
///
/// # Errors
/// `Invalid`, with the place and what was expected there.
pub fn parse_expression(text: &str) -> Result<Expression> {
    whole(text, Dialect::Sql)
}

/// Reads a caller's filter, in which a quote in a string is doubled and nothing else is an escape.
pub(crate) fn parse_condition(text: &str) -> Result<Expression> {
    whole(text, Dialect::Filter)
}

/// Reads a caller's value, which has the strings of a filter.
pub(crate) fn parse_value(text: &str) -> Result<Expression> {
    let (parser, tree) = read(text, Dialect::Value)?;
    parser.end(tree)
}

fn whole(text: &str, dialect: Dialect) -> Result<Expression> {
    let (parser, tree) = read(text, dialect)?;
    parser.check_condition(&tree)?;
    parser.end(tree)
}

fn read(text: &str, dialect: Dialect) -> Result<(Parser<'_>, Tree)> {
    if text.len() > MAX_LENGTH {
        return Err(Error::invalid(format!(
            "the {} has {} bytes and at most {MAX_LENGTH} are read; filter on fewer values, or join with a table of them",
            dialect.name(),
            text.len()
        )));
    }
    let mut parser = Parser::new(text, dialect)?;
    let tree = parser.expression(level::OR, 0)?;
    Ok((parser, tree))
}

impl std::str::FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_expression(text)
    }
}

/// A parsed expression, and how many levels it has.
struct Tree {
    expression: Expression,
    height: usize,
}

impl Tree {
    fn leaf(expression: Expression) -> Self {
        Self { expression, height: 1 }
    }

    fn boxed(self) -> Box<Expression> {
        Box::new(self.expression)
    }
}

struct Parser<'a> {
    text: &'a str,
    dialect: Dialect,
    lexer: Lexer<'a>,
    /// The current token.
    token: Token<'a>,
    /// Where it begins.
    at: usize,
    /// Where it ends.
    end: usize,
    /// Where the token before it begins and ends, if that was a string.
    string: Option<(usize, usize)>,
    /// Whether the text has a WHEN, without which there is no CASE.
    has_when: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, dialect: Dialect) -> Result<Self> {
        let mut lexer = Lexer::new(text, dialect);
        let (token, at, end) = lexer.token()?;
        let has_when = text.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"WHEN"));
        Ok(Self { text, dialect, lexer, token, at, end, string: None, has_when })
    }

    /// The expression, if nothing follows it.
    fn end(&self, tree: Tree) -> Result<Expression> {
        match self.token {
            Token::End => Ok(tree.expression),
            Token::Symbol(")") => Err(self.error("this parenthesis was never opened")),
            _ => Err(self.expected("AND, OR or the end")),
        }
    }

    fn advance(&mut self) -> Result<Token<'a>> {
        let (token, at, end) = self.lexer.token()?;
        self.string = matches!(self.token, Token::Text(_)).then_some((self.at, self.end));
        self.at = at;
        self.end = end;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// The token after the current one, if it can be read.
    fn following(&self) -> Option<Token<'a>> {
        self.lexer.clone().token().ok().map(|(token, _, _)| token)
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

    fn need_symbol(&mut self, symbol: &'static str, what: &str) -> Result<()> {
        if self.take_symbol(symbol)? { Ok(()) } else { Err(self.expected(what)) }
    }

    fn need_word(&mut self, keyword: &str) -> Result<()> {
        if self.take_word(keyword)? { Ok(()) } else { Err(self.expected(keyword)) }
    }

    fn error(&self, message: &str) -> Error {
        self.error_at(self.at, message)
    }

    fn error_at(&self, at: usize, message: &str) -> Error {
        error_at(self.dialect, self.text, at, message)
    }

    /// The text directly after the end of a string, as in `'O'Hare'`.
    fn after_quote(&self) -> Option<String> {
        let (start, end) = self.string.filter(|(_, end)| *end == self.at)?;
        if !matches!(self.token, Token::Word(_) | Token::Number(_)) {
            return None;
        }
        let (head, rest) = (self.text.get(start..end)?.strip_suffix('\'')?, self.text.get(self.at..self.end)?);
        (head.len() + rest.len() <= 40).then(|| format!("a quote inside a string is doubled: {head}''{rest}'"))
    }

    fn expected(&self, what: &str) -> Error {
        if let Some(message) = self.after_quote() {
            return self.error(&message);
        }
        let found = match self.token {
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

    /// A node above parts of which the highest has `height` levels.
    fn node(&self, expression: Expression, height: usize) -> Result<Tree> {
        if height >= MAX_HEIGHT {
            return Err(self.error(&format!("more than {MAX_HEIGHT} operators work on each other's results")));
        }
        Ok(Tree { expression, height: height + 1 })
    }

    /// Refuses a value that is not a condition as a whole filter, and beside AND, OR and NOT.
    fn check_condition(&self, tree: &Tree) -> Result<()> {
        match &tree.expression {
            Expression::Literal(Scalar::Boolean(_) | Scalar::Null) => Ok(()),
            Expression::Literal(_) if self.dialect != Dialect::Sql => {
                Err(self.expected("a comparison after the value"))
            }
            _ => Ok(()),
        }
    }

    /// Reads an expression whose operators bind at least as tightly as `least`.
    fn expression(&mut self, least: u8, depth: usize) -> Result<Tree> {
        let negates = self.is_word("NOT") || self.token == Token::Symbol("!");
        let (mut left, mut most) = if least <= level::NOT && negates {
            let depth = self.deeper(depth)?;
            self.advance()?;
            let inner = self.expression(level::NOT, depth)?;
            self.check_condition(&inner)?;
            let height = inner.height;
            (self.node(Expression::Not(inner.boxed()), height)?, level::AND)
        } else {
            (self.signed(depth)?, level::PRIMARY)
        };
        while let Some((operator, at)) = self.operator().filter(|(_, at)| (least..=most).contains(at)) {
            most = at;
            left = match operator {
                Operator::Or => self.chain(left, "OR", depth)?,
                Operator::And => self.chain(left, "AND", depth)?,
                Operator::Test => {
                    // One test cannot follow another.
                    most = level::AND;
                    self.test(left, depth)?
                }
                Operator::Compare(op) => {
                    self.advance()?;
                    let right = self.expression(at + 1, depth)?;
                    let height = left.height.max(right.height);
                    let (left, right) = (left.boxed(), right.boxed());
                    let expression = match op {
                        Some(op) => Expression::Compare { left, op, right },
                        None => Expression::NullSafeEqual { left, right },
                    };
                    self.node(expression, height)?
                }
                Operator::Arithmetic(op) => {
                    self.advance()?;
                    let right = self.expression(at + 1, depth)?;
                    let height = left.height.max(right.height);
                    self.node(Expression::Arithmetic { left: left.boxed(), op, right: right.boxed() }, height)?
                }
            };
        }
        self.check_rest(&left)?;
        Ok(left)
    }

    /// The operator at the current token, and how tightly it binds.
    fn operator(&self) -> Option<(Operator, u8)> {
        use ArithmeticOp as A;
        let arithmetic = |op: A| Some((Operator::Arithmetic(op), op.level()));
        let compare = |op| Some((Operator::Compare(op), level::COMPARE));
        match self.token {
            Token::Symbol(symbol) => match symbol {
                "=" | "==" => compare(Some(Op::Eq)),
                "<>" | "!=" => compare(Some(Op::Ne)),
                "<" => compare(Some(Op::Lt)),
                "<=" => compare(Some(Op::Le)),
                ">" => compare(Some(Op::Gt)),
                ">=" => compare(Some(Op::Ge)),
                "<=>" => compare(None),
                "+" => arithmetic(A::Add),
                "-" => arithmetic(A::Subtract),
                "||" => arithmetic(A::Concat),
                "*" => arithmetic(A::Multiply),
                "/" => arithmetic(A::Divide),
                "%" => arithmetic(A::Remainder),
                _ => None,
            },
            Token::Word(word) => match word.to_ascii_uppercase().as_str() {
                "OR" => Some((Operator::Or, level::OR)),
                "AND" => Some((Operator::And, level::AND)),
                "IS" | "NOT" | "IN" | "BETWEEN" | "LIKE" | "ILIKE" | "RLIKE" | "REGEXP" => {
                    Some((Operator::Test, level::TEST))
                }
                "DIV" => arithmetic(A::Div),
                _ => None,
            },
            Token::Quoted(_) | Token::Text(_) | Token::Number(_) | Token::End => None,
        }
    }

    /// Refuses syntax of other dialects after an operand, with a hint.
    fn check_rest(&self, left: &Tree) -> Result<()> {
        match (&self.token, &left.expression) {
            (Token::Symbol("("), Expression::Column(Name(path))) => {
                Err(self.error(&hint::method(path.last().map_or("", String::as_str))))
            }
            (Token::Word(word), _) if hint::operator(word).is_some() => {
                Err(self.error(&hint::operator(word).unwrap_or_default()))
            }
            (Token::Word(_) | Token::Text(_) | Token::Number(_), Expression::Column(Name(path))) => {
                match path.as_slice() {
                    [name] => match hint::beginning(name) {
                        Some(message) => Err(self.error(&message)),
                        None => Ok(()),
                    },
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// More terms of an AND or OR; each binds more tightly.
    fn chain(&mut self, first: Tree, keyword: &str, depth: usize) -> Result<Tree> {
        let (inner, is_or) = if keyword == "OR" { (level::AND, true) } else { (level::NOT, false) };
        self.check_condition(&first)?;
        let (mut terms, mut height) = (vec![first.expression], first.height);
        while self.take_word(keyword)? {
            let term = self.expression(inner, depth)?;
            self.check_condition(&term)?;
            height = height.max(term.height);
            terms.push(term.expression);
        }
        self.node(if is_or { Expression::Or(terms) } else { Expression::And(terms) }, height)
    }

    /// IS, IN, BETWEEN and LIKE.
    fn test(&mut self, left: Tree, depth: usize) -> Result<Tree> {
        if self.take_word("IS")? {
            return self.is(left, depth);
        }
        let negated = self.take_word("NOT")?;
        let height = left.height;
        if self.take_word("IN")? {
            let (list, in_list) = self.list(depth)?;
            return self.node(Expression::In { operand: left.boxed(), list, negated }, height.max(in_list));
        }
        if self.take_word("BETWEEN")? {
            let low = self.expression(level::COMPARE, depth)?;
            if !self.take_word("AND")? {
                return Err(self.expected("AND and the upper limit of BETWEEN"));
            }
            let high = self.expression(level::COMPARE, depth)?;
            let height = height.max(low.height).max(high.height);
            let (operand, low, high) = (left.boxed(), low.boxed(), high.boxed());
            return self.node(Expression::Between { operand, low, high, negated }, height);
        }
        for (word, kind) in
            [("LIKE", Match::Like), ("ILIKE", Match::ILike), ("RLIKE", Match::RLike), ("REGEXP", Match::RLike)]
        {
            if self.take_word(word)? {
                let (pattern, escape) = self.pattern(kind)?;
                return self.node(Expression::Like { operand: left.boxed(), kind, pattern, escape, negated }, height);
            }
        }
        if let Token::Word(word) = self.token
            && let Some(message) = hint::operator(word)
        {
            return Err(self.error(&message));
        }
        Err(self.expected("IN, BETWEEN or LIKE"))
    }

    fn is(&mut self, left: Tree, depth: usize) -> Result<Tree> {
        let negated = self.take_word("NOT")?;
        let height = left.height;
        if self.take_word("NULL")? {
            return self.node(Expression::IsNull { operand: left.boxed(), negated }, height);
        }
        for (word, value) in [("TRUE", true), ("FALSE", false)] {
            if self.take_word(word)? {
                return self.node(Expression::IsTruth { operand: left.boxed(), value, negated }, height);
            }
        }
        if self.take_word("DISTINCT")? {
            self.need_word("FROM")?;
            let right = self.expression(level::COMPARE + 1, depth)?;
            let height = height.max(right.height);
            let equal = Expression::NullSafeEqual { left: left.boxed(), right: right.boxed() };
            let tree = self.node(equal, height)?;
            let height = tree.height;
            return if negated { Ok(tree) } else { self.node(Expression::Not(tree.boxed()), height) };
        }
        if let Token::Word(word) = self.token
            && let Some(message) = hint::is(word, &format!("{:#}", left.expression), negated)
        {
            return Err(self.error(&message));
        }
        Err(self.expected(if negated { "NULL" } else { "NULL or NOT NULL" }))
    }

    /// The values of IN.
    fn list(&mut self, depth: usize) -> Result<(Vec<Expression>, usize)> {
        self.need_symbol("(", "`(` and the values of IN")?;
        let depth = self.deeper(depth)?;
        let (mut values, mut height) = (Vec::new(), 0);
        loop {
            if let Token::Word(word) = self.token
                && let (Some(message), Some(Token::Word(_))) = (hint::beginning(word), self.following())
            {
                return Err(self.error(&message));
            }
            let value = self.expression(level::OR, depth)?;
            height = height.max(value.height);
            values.push(value.expression);
            if self.take_symbol(")")? {
                return Ok((values, height));
            }
            self.need_symbol(",", "`,` or `)`")?;
        }
    }

    fn pattern(&mut self, kind: Match) -> Result<(String, Option<char>)> {
        let at = self.at;
        if !matches!(self.token, Token::Text(_)) {
            return Err(self.expected("a pattern in single quotes"));
        }
        let Token::Text(pattern) = self.advance()? else { return Err(self.expected("a pattern")) };
        let mut escape = None;
        if kind != Match::RLike && self.take_word("ESCAPE")? {
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
        match check_pattern(kind, &pattern, escape) {
            Ok(()) => Ok((pattern, escape)),
            Err(problem) => Err(self.error_at(at, problem.message())),
        }
    }
}

enum Operator {
    Or,
    And,
    Test,
    /// `None` is `<=>`.
    Compare(Option<Op>),
    Arithmetic(ArithmeticOp),
}
