//! CONVERT: a folder of Parquet files becomes a table, whose first commit names the files where they are.
//!
//! The footers are read, many at a time. Memory holds, for each file, its line of the commit and the columns that no
//! earlier file had. A column must have the same type in all files, since readers may not convert types. Statistics come
//! from the footers. Floating-point columns get no bounds, since Parquet's leave NaN out.
//!
//! A table of another format, such as Iceberg, becomes one too: its metadata names the files and the columns, which are
//! found by their field ids (`existing`, `mapped`). Other processes may read the footers (`distributed`).
//!
//! Files that another engine writes for a transaction become its data files in the same way (`external`).
//!
//! Proved by `tests/python/test_convert.py` and `tests/python/test_convert_iceberg.py`, and by
//! `tests/interop/test_convert.py` beside delta-spark.
//!
//! PROTOCOL.md: "Delta Table Specification", "Add File and Remove File", "Partition Value Serialization".

mod columns;
mod conversion;
mod distributed;
mod existing;
mod external;
mod external_files;
mod folders;
mod footers;
mod iceberg;
mod mapped;

pub use conversion::{ConvertOptions, Converted, convert};
pub use distributed::{DistributedConvert, FootersTask};
pub use existing::{ForeignFile, ForeignTable};
pub use external::ExternalLayout;
pub use external_files::{delete_external, take_external};
pub use iceberg::{FoundMetadata, metadata_files, newest_metadata, read_named};
