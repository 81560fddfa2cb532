//! How Python sees deltic: the extension module `deltic._deltic`.
//!
//! Registration only. What the classes mean and how they are used is written in `python/deltic`, which wraps them.

mod arrow;
mod errors;
mod runtime;

use pyo3::prelude::*;

#[pymodule]
fn _deltic(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<arrow::ArrowSchema>()?;
    module.add_class::<arrow::ArrowBatch>()?;
    module.add_class::<arrow::ArrowStream>()?;
    Ok(())
}
