//! ADD CONSTRAINT: a condition that must be TRUE for every row from now on. The existing rows are checked first.
//!
//! Invariant: the read set of the commit is the whole table, so that rows added meanwhile are a conflict.
//!
//! PROTOCOL.md: "CHECK Constraints".

use deltic_protocol::alter::Alteration;
use deltic_protocol::commit::ReadSet;
use deltic_protocol::constraint::Constraint;
use deltic_protocol::expression::parse_expression;
use deltic_protocol::property::IsolationLevel;
use deltic_protocol::schema::evolve::differences;

use crate::error::{Error, Result};
use crate::scan::plan::ScanPlan;
use crate::scan::read::ReadOptions;
use crate::transaction::builder::{Ids, Transaction};

impl Transaction {
    /// Adds a CHECK constraint.
    ///
    /// # Errors
    /// `Invalid` for a name that is taken, an expression that is no condition on the table's columns, and rows that do not
    /// make it TRUE (with their number); `Unsupported`, naming the function, for what deltic does not evaluate; those of
    /// reading.
    pub async fn add_constraint(&mut self, name: &str, expression: &str, ids: &dyn Ids) -> Result<()> {
        if self.already_committed_version().is_some() {
            return Ok(());
        }
        let snapshot = self.snapshot().await?;
        let checked = async {
            // Rows are read with the columns of the version that the transaction is based on.
            let (now, base) = (self.shape_after()?, snapshot.shape());
            if !differences(&base.schema, &now.schema, base.mapping.match_by()).is_empty() {
                return Err(Error::invalid(
                    "the transaction has changed the columns already; add the constraint before that, or in another one",
                ));
            }
            Constraint::parse(name, expression, &snapshot.shape().schema)?;
            // Strings in a constraint have escapes; strings in a filter have none.
            let violating = format!("({:#}) IS NOT TRUE", parse_expression(expression)?);
            let plan = ScanPlan::new(&snapshot, Some(&[]), Some(&violating)).await?;
            match plan.count_rows(ReadOptions::default()).await? {
                0 => Ok(()),
                rows => Err(Error::invalid(format!(
                    "the constraint `{name}` ({expression}) is violated by {rows} {} of the table; correct or delete {} \
                     first, which scan(filter=\"{violating}\") gives",
                    if rows == 1 { "row" } else { "rows" },
                    if rows == 1 { "it" } else { "them" },
                ))),
            }
        };
        checked.await.map_err(|e| e.in_table(self.storage().location()))?;
        let constraint = Alteration::AddConstraint { name: name.to_owned(), expression: expression.to_owned() };
        self.alter(&constraint, ids)?;
        self.read_whole_table(ReadSet::AllRows, IsolationLevel::Serializable);
        Ok(())
    }
}
