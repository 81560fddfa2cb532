//! What a table asks of the rows that are written to it: CHECK constraints, column invariants, generated columns, defaults.
//!
//! Each is parsed and bound to the table's schema once. An unknown column, or SQL that deltic does not evaluate, is an error
//! then, unless the engine that has the rows evaluates it (`external`). Rows are checked and columns computed
//! batch by batch. A condition that is NULL is violated, as in delta-spark.
//!
//! Invariant: rows that pass make every condition TRUE (`constraint::only_true_passes`).
//!
//! PROTOCOL.md: "CHECK Constraints", "Column Invariants", "Generated Columns", "Default Columns".

mod column;
mod condition;
mod external;
mod rules;

pub use column::{ColumnDefault, DefaultValue, GeneratedColumn};
pub use condition::{Constraint, ENGINE_ADVICE, Rule};
pub use external::{ExternalColumn, ExternalCondition, ExternalRules, Refusal};
pub use rules::{Rules, Source, check, check_constraints};
