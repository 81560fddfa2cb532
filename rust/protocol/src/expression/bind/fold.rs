//! Computes what is made of values alone.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType as ArrowType, Schema};

use crate::error::Result;
use crate::expression::bound::{BoundExpression, Node, Typed};
use crate::expression::evaluate::evaluate;
use crate::scalar::Scalar;

impl BoundExpression {
    /// The value, if there are no columns and it is the same each time.
    pub(crate) fn constant(&self) -> Result<Option<Scalar>> {
        if !self.columns().is_empty() || !self.is_deterministic() {
            return Ok(None);
        }
        let one = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            Vec::new(),
            &RecordBatchOptions::new().with_row_count(Some(1)),
        )?;
        let value = evaluate(self, &one)?;
        if value.data_type() == &ArrowType::Null {
            return Ok(Some(Scalar::Null));
        }
        Scalar::from_array(&value, 0).map(Some)
    }
}

/// Longer values are made again for each batch, and not kept: a short text may ask for many of them.
const MAX_FOLDED_LENGTH: usize = 4096;

impl Typed {
    /// Folds constant parts; parts that fail stay as they are.
    pub(crate) fn folded(mut self) -> Self {
        for part in self.parts_mut() {
            *part = std::mem::take(part).folded();
        }
        let constant = !matches!(*self.node, Node::Literal(_) | Node::Column(_) | Node::Now)
            && self.parts().iter().all(|part| part.as_literal().is_some());
        if !constant || self.data_type.as_primitive().is_none() {
            return self;
        }
        let whole = BoundExpression { root: self, text: String::new() };
        match whole.constant() {
            Ok(Some(Scalar::String(long))) if long.len() > MAX_FOLDED_LENGTH => whole.root,
            Ok(Some(Scalar::Binary(long))) if long.len() > MAX_FOLDED_LENGTH => whole.root,
            Ok(Some(value)) => Self::new(Node::Literal(value), whole.root.data_type),
            Ok(None) | Err(_) => whole.root,
        }
    }
}
