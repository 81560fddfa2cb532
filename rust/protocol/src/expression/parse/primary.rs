//! The operands of an expression: values, names, calls, casts, CASE, and parentheses.

use super::lexer::Token;
use super::literal::{number, type_named, typed};
use super::{Dialect, Parser, Tree, hint};
use crate::error::{Error, Result};
use crate::expression::ast::{Expression, Name};
use crate::expression::print::{RESERVED, level};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// Functions that are written without parentheses.
const BARE: [&str; 3] = ["current_date", "current_timestamp", "localtimestamp"];
/// Words that follow an operand, so that a keyword before them is a column's name.
const AFTER_OPERAND: [&str; 10] = ["AND", "OR", "IS", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV"];

impl Parser<'_> {
    /// An operand with its signs, and the types that `::` casts it to.
    pub(super) fn signed(&mut self, depth: usize) -> Result<Tree> {
        let at = self.at;
        let sign = match self.token {
            Token::Symbol("-") => Some(true),
            Token::Symbol("+") => Some(false),
            _ => None,
        };
        if sign.is_some() {
            self.advance()?;
            if !matches!(self.token, Token::Number(_)) {
                let depth = self.deeper(depth)?;
                let operand = self.signed(depth)?;
                let height = operand.height;
                return if sign == Some(true) {
                    self.node(Expression::Negate(operand.boxed()), height)
                } else {
                    Ok(operand)
                };
            }
        }
        let mut tree = match self.token {
            Token::Number(digits) => {
                if let Some(date) = self.text.get(self.at..).and_then(hint::date) {
                    return Err(self.error(&format!("a date is written DATE '{date}'")));
                }
                self.advance()?;
                let value = number(digits, sign == Some(true)).map_err(|problem| self.error_at(at, &problem))?;
                Tree::leaf(Expression::Literal(value))
            }
            _ => self.primary(depth)?,
        };
        while self.take_symbol("::")? {
            let (to, height) = (self.data_type()?, tree.height);
            tree = self.node(Expression::Cast { operand: tree.boxed(), to, is_try: false }, height)?;
        }
        Ok(tree)
    }

    fn primary(&mut self, depth: usize) -> Result<Tree> {
        match &self.token {
            Token::Text(_) => match self.advance()? {
                Token::Text(text) => Ok(Tree::leaf(Expression::Literal(Scalar::String(text)))),
                _ => Err(self.expected("a string")),
            },
            Token::Word(word) => {
                let word = *word;
                self.word(word, depth)
            }
            Token::Quoted(_) => self.name().map(|name| Tree::leaf(Expression::Column(name))),
            Token::Symbol("(") => {
                let depth = self.deeper(depth)?;
                self.advance()?;
                let inner = self.expression(level::OR, depth)?;
                self.need_symbol(")", "AND, OR or `)`")?;
                Ok(inner)
            }
            Token::Symbol(_) | Token::Number(_) | Token::End => Err(self.expected("a column or a value")),
        }
    }

    fn word(&mut self, word: &str, depth: usize) -> Result<Tree> {
        let at = self.at;
        if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word)) {
            let value = match word.to_ascii_uppercase().as_str() {
                "TRUE" => Scalar::Boolean(true),
                "FALSE" => Scalar::Boolean(false),
                "NULL" => Scalar::Null,
                _ => return Err(self.expected("a column or a value (a column of that name needs back-ticks)")),
            };
            self.advance()?;
            return Ok(Tree::leaf(Expression::Literal(value)));
        }
        let following = self.following();
        if let Some(Token::Text(text)) = &following
            && !word.eq_ignore_ascii_case("CASE")
            && !word.eq_ignore_ascii_case("WHERE")
        {
            let value = typed(word, text).map_err(|problem| self.error_at(at, &problem))?;
            self.advance()?;
            self.advance()?;
            return Ok(Tree::leaf(Expression::Literal(value)));
        }
        match following {
            Some(following) if word.eq_ignore_ascii_case("CASE") && self.begins_operand(&following) => self.case(depth),
            Some(Token::Symbol("(")) => self.call(word, depth),
            _ if self.dialect == Dialect::Sql && BARE.iter().any(|bare| bare.eq_ignore_ascii_case(word)) => {
                self.advance()?;
                Ok(Tree::leaf(Expression::Call { name: word.to_ascii_lowercase(), arguments: Vec::new() }))
            }
            _ => self.name().map(|name| Tree::leaf(Expression::Column(name))),
        }
    }

    pub(super) fn name(&mut self) -> Result<Name> {
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

    fn call(&mut self, word: &str, depth: usize) -> Result<Tree> {
        let depth = self.deeper(depth)?;
        let name = word.to_ascii_lowercase();
        if let Some(message) = hint::beginning(word) {
            return Err(self.error(&message));
        }
        self.advance()?;
        self.advance()?;
        match name.as_str() {
            "cast" | "try_cast" => {
                let operand = self.expression(level::OR, depth)?;
                self.need_word("AS")?;
                let (to, height) = (self.data_type()?, operand.height);
                self.need_symbol(")", "`)`")?;
                return self
                    .node(Expression::Cast { operand: operand.boxed(), to, is_try: name == "try_cast" }, height);
            }
            "extract" => return self.extract(depth),
            _ if self.token == Token::Symbol(")") => {}
            // Another spelling of locate, of which the first argument cannot be a bare AND, OR or NOT.
            "position" => {
                let part = self.expression(level::COMPARE, depth)?;
                if !self.take_word("IN")? {
                    return self.arguments("locate".to_owned(), Some(part), depth);
                }
                let text = self.expression(level::OR, depth)?;
                let height = part.height.max(text.height);
                self.need_symbol(")", "`)`")?;
                let arguments = vec![part.expression, text.expression];
                return self.node(Expression::Call { name: "locate".to_owned(), arguments }, height);
            }
            "trim" => return self.trim(depth),
            _ => {}
        }
        self.arguments(name, None, depth)
    }

    /// The arguments of a call after those that were read, and the parenthesis after them.
    fn arguments(&mut self, name: String, first: Option<Tree>, depth: usize) -> Result<Tree> {
        let (mut arguments, mut height) = (Vec::new(), 0);
        if let Some(first) = first {
            height = first.height;
            arguments.push(first.expression);
            if self.take_symbol(")")? {
                return self.node(Expression::Call { name, arguments }, height);
            }
            self.need_symbol(",", "`,` or `)`")?;
        } else if self.take_symbol(")")? {
            return self.node(Expression::Call { name, arguments }, height);
        }
        let has_keywords = matches!(name.as_str(), "substring" | "substr");
        loop {
            let argument = self.expression(level::OR, depth)?;
            height = height.max(argument.height);
            arguments.push(argument.expression);
            if self.take_symbol(")")? {
                return self.node(Expression::Call { name, arguments }, height);
            }
            if has_keywords && (self.take_word("FROM")? || self.take_word("FOR")?) {
                continue;
            }
            self.need_symbol(",", "`,` or `)`")?;
        }
    }

    /// `EXTRACT(YEAR FROM x)` is `year(x)`.
    fn extract(&mut self, depth: usize) -> Result<Tree> {
        let at = self.at;
        let Token::Word(field) = self.advance()? else { return Err(self.error_at(at, "a part of a date is expected")) };
        self.need_word("FROM")?;
        let operand = self.expression(level::OR, depth)?;
        self.need_symbol(")", "`)`")?;
        let name = match field.to_ascii_lowercase().as_str() {
            field @ ("year" | "quarter" | "month" | "day" | "hour" | "minute") => field.to_owned(),
            "week" => "weekofyear".to_owned(),
            "dow" | "dayofweek" => "dayofweek".to_owned(),
            "doy" => "dayofyear".to_owned(),
            _ => return Err(self.error_at(at, &format!("EXTRACT has no `{field}`"))),
        };
        let height = operand.height;
        self.node(Expression::Call { name, arguments: vec![operand.expression] }, height)
    }

    /// `TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)`, or a call like others.
    fn trim(&mut self, depth: usize) -> Result<Tree> {
        let mut name = "trim";
        for (word, of) in [("BOTH", "trim"), ("LEADING", "ltrim"), ("TRAILING", "rtrim")] {
            if self.is_word(word) && !matches!(self.following(), Some(Token::Symbol(_))) {
                self.advance()?;
                name = of;
                if self.take_word("FROM")? {
                    return self.arguments(name.to_owned(), None, depth);
                }
                break;
            }
        }
        let first = self.expression(level::OR, depth)?;
        if self.take_word("FROM")? {
            let text = self.expression(level::OR, depth)?;
            self.need_symbol(")", "`)`")?;
            let height = first.height.max(text.height);
            let arguments = match name {
                // As Spark has it: ltrim and rtrim take the characters first, btrim last.
                "trim" => {
                    return self.node(
                        Expression::Call {
                            name: "btrim".to_owned(),
                            arguments: vec![text.expression, first.expression],
                        },
                        height,
                    );
                }
                _ => vec![first.expression, text.expression],
            };
            return self.node(Expression::Call { name: name.to_owned(), arguments }, height);
        }
        self.arguments(name.to_owned(), Some(first), depth)
    }

    fn case(&mut self, depth: usize) -> Result<Tree> {
        let depth = self.deeper(depth)?;
        self.advance()?;
        let mut height = 0;
        let mut part = |parser: &mut Self| -> Result<Expression> {
            let tree = parser.expression(level::OR, depth)?;
            height = height.max(tree.height);
            Ok(tree.expression)
        };
        let operand = if self.is_word("WHEN") { None } else { Some(Box::new(part(self)?)) };
        let mut branches = Vec::new();
        while self.take_word("WHEN")? {
            let when = part(self)?;
            self.need_word("THEN")?;
            branches.push((when, part(self)?));
        }
        if branches.is_empty() {
            return Err(self.expected("WHEN"));
        }
        let otherwise = if self.take_word("ELSE")? { Some(Box::new(part(self)?)) } else { None };
        if !self.take_word("END")? {
            return Err(self.expected("WHEN, ELSE or END"));
        }
        self.node(Expression::Case { operand, branches, otherwise }, height)
    }

    /// The name of a type that values are cast to.
    fn data_type(&mut self) -> Result<PrimitiveType> {
        let at = self.at;
        let Token::Word(word) = self.token else { return Err(self.expected("a type")) };
        let unknown = |parser: &Self| -> Error {
            parser.error_at(at, &format!("`{word}` is not a type; write int, string, decimal(10,2) …"))
        };
        let named = type_named(word).ok_or_else(|| unknown(self))?;
        self.advance()?;
        if !matches!(named, PrimitiveType::Decimal { .. }) || !self.take_symbol("(")? {
            return Ok(named);
        }
        let limit = |parser: &mut Self| -> Result<u8> {
            let digits = match parser.token {
                Token::Number(digits) => digits.parse().ok().filter(|v| *v <= 38),
                _ => None,
            };
            let value = digits.ok_or_else(|| parser.expected("a number up to 38"))?;
            parser.advance()?;
            Ok(value)
        };
        let precision = limit(self)?;
        let scale = if self.take_symbol(",")? { limit(self)? } else { 0 };
        self.need_symbol(")", "`)`")?;
        if precision == 0 || scale > precision {
            return Err(
                self.error_at(at, &format!("decimal({precision},{scale}) has more digits after the point than in all"))
            );
        }
        Ok(PrimitiveType::Decimal { precision, scale })
    }

    /// Whether a token after `CASE` shows that it is not a column of that name. A sign may be an operator after a column.
    fn begins_operand(&self, token: &Token<'_>) -> bool {
        match token {
            Token::Word(word) => !AFTER_OPERAND.iter().any(|after| after.eq_ignore_ascii_case(word)),
            Token::Quoted(_) | Token::Text(_) | Token::Number(_) => true,
            Token::Symbol("-" | "+" | "!") => self.has_when,
            Token::Symbol(symbol) => *symbol == "(",
            Token::End => false,
        }
    }
}
