//! The names of the capsules in the Arrow PyCapsule interface.

use std::ffi::CStr;

pub(super) const SCHEMA_CAPSULE: &CStr = c"arrow_schema";
pub(super) const ARRAY_CAPSULE: &CStr = c"arrow_array";
pub(super) const STREAM_CAPSULE: &CStr = c"arrow_array_stream";
