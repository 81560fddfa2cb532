//! The tree of an expression that is bound to a schema: every part has a type, and operands have those they need.

use crate::expression::ast::{ArithmeticOp, Op};
use crate::expression::column::Column;
use crate::expression::functions::Definition;
use crate::expression::matching::like::Pattern;
use crate::expression::matching::regex::Regular;
use crate::expression::set::ValueSet;
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType};

/// An expression over a schema's columns.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundExpression {
    pub(crate) root: Typed,
    /// The text of the expression, for errors.
    pub(crate) text: String,
}

impl BoundExpression {
    /// Bytes that its literals take in each row.
    pub fn literal_bytes(&self) -> usize {
        let mut bytes = 0_usize;
        self.root.visit(&mut |part| {
            bytes = bytes.saturating_add(match &*part.node {
                Node::Literal(Scalar::String(text)) => text.len(),
                Node::Literal(Scalar::Binary(binary)) => binary.len(),
                _ => 0,
            });
        });
        bytes
    }
}

/// A part of an expression and its type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Typed {
    pub(crate) node: Box<Node>,
    pub(crate) data_type: DataType,
}

/// What a part computes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Literal(Scalar),
    Column(Column),
    /// The time of the evaluation: a timestamp, or its date.
    Now,
    And(Vec<Typed>),
    Or(Vec<Typed>),
    Not(Typed),
    IsNull(Typed),
    /// The operands have one type, except that decimals may differ in precision and scale.
    Compare {
        left: Typed,
        op: Op,
        right: Typed,
    },
    NullSafeEqual {
        left: Typed,
        right: Typed,
    },
    /// Of one type.
    In {
        operand: Typed,
        list: Vec<Typed>,
    },
    /// One of values of the type, none of them null; NULL instead of FALSE where there was a null besides.
    InSet {
        operand: Typed,
        values: ValueSet,
        has_null: bool,
    },
    Like {
        operand: Typed,
        pattern: Pattern,
    },
    Regular {
        operand: Typed,
        pattern: Regular,
    },
    /// Of the type of the result, but for decimals, which have their own, and `div`.
    Arithmetic {
        left: Typed,
        op: ArithmeticOp,
        right: Typed,
    },
    Cast {
        operand: Typed,
        is_try: bool,
    },
    /// Values of the type of the result.
    Case {
        branches: Vec<(Typed, Typed)>,
        otherwise: Typed,
    },
    /// The first that is not null, of the type of the result.
    Coalesce(Vec<Typed>),
    Call {
        function: &'static Definition,
        arguments: Vec<Typed>,
    },
    /// A function of [`super::external`].
    External {
        name: String,
        arguments: Vec<Typed>,
    },
}

impl BoundExpression {
    /// The type of the value.
    pub fn data_type(&self) -> &DataType {
        &self.root.data_type
    }

    /// Every column it reads, each once, in order of appearance.
    pub fn columns(&self) -> Vec<&Column> {
        let (mut found, mut seen) = (Vec::new(), std::collections::HashSet::new());
        self.root.visit(&mut |part| {
            if let Node::Column(column) = &*part.node
                && seen.insert(&column.path)
            {
                found.push(column);
            }
        });
        found
    }

    /// Whether it always has the same value for the same row.
    pub fn is_deterministic(&self) -> bool {
        let mut found = true;
        self.root.visit(&mut |part| found &= *part.node != Node::Now);
        found
    }

    /// Whether its value may be an error for some row.
    pub fn may_fail(&self) -> bool {
        self.root.may_fail()
    }
}

impl std::fmt::Display for BoundExpression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Default for Typed {
    fn default() -> Self {
        Self::literal(Scalar::Null)
    }
}

impl Typed {
    pub(crate) fn new(node: Node, data_type: DataType) -> Self {
        Self { node: Box::new(node), data_type }
    }

    pub(crate) fn boolean(node: Node) -> Self {
        Self::new(node, DataType::BOOLEAN)
    }

    pub(crate) fn literal(value: Scalar) -> Self {
        let data_type = value.primitive_type().unwrap_or(PrimitiveType::Void);
        Self::new(Node::Literal(value), DataType::Primitive(data_type))
    }

    pub(crate) fn as_literal(&self) -> Option<&Scalar> {
        match &*self.node {
            Node::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The operands of this part.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match &*self.node {
            Node::Literal(_) | Node::Column(_) | Node::Now => Vec::new(),
            Node::And(parts)
            | Node::Or(parts)
            | Node::Coalesce(parts)
            | Node::Call { arguments: parts, .. }
            | Node::External { arguments: parts, .. } => parts.iter().collect(),
            Node::Not(operand)
            | Node::IsNull(operand)
            | Node::InSet { operand, .. }
            | Node::Like { operand, .. }
            | Node::Regular { operand, .. }
            | Node::Cast { operand, .. } => vec![operand],
            Node::Compare { left, right, .. }
            | Node::NullSafeEqual { left, right }
            | Node::Arithmetic { left, right, .. } => vec![left, right],
            Node::In { operand, list } => std::iter::once(operand).chain(list).collect(),
            Node::Case { branches, otherwise } => {
                branches.iter().flat_map(|(when, then)| [when, then]).chain([otherwise]).collect()
            }
        }
    }

    pub(super) fn parts_mut(&mut self) -> Vec<&mut Self> {
        match &mut *self.node {
            Node::Literal(_) | Node::Column(_) | Node::Now => Vec::new(),
            Node::And(parts)
            | Node::Or(parts)
            | Node::Coalesce(parts)
            | Node::Call { arguments: parts, .. }
            | Node::External { arguments: parts, .. } => parts.iter_mut().collect(),
            Node::Not(operand)
            | Node::IsNull(operand)
            | Node::InSet { operand, .. }
            | Node::Like { operand, .. }
            | Node::Regular { operand, .. }
            | Node::Cast { operand, .. } => vec![operand],
            Node::Compare { left, right, .. }
            | Node::NullSafeEqual { left, right }
            | Node::Arithmetic { left, right, .. } => vec![left, right],
            Node::In { operand, list } => std::iter::once(operand).chain(list).collect(),
            Node::Case { branches, otherwise } => {
                branches.iter_mut().flat_map(|(when, then)| [when, then]).chain([otherwise]).collect()
            }
        }
    }

    /// Whether its value may be an error for some row.
    pub(crate) fn may_fail(&self) -> bool {
        let mut found = false;
        self.visit(&mut |part| {
            found |= match &*part.node {
                Node::Arithmetic { .. } | Node::Call { .. } | Node::External { .. } => true,
                Node::Cast { is_try, .. } => !is_try,
                _ => false,
            };
        });
        found
    }

    /// This part and all inside it.
    pub(crate) fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        self.parts().into_iter().for_each(|part| part.visit(visit));
    }
}
