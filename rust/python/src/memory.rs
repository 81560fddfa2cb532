//! Where memory comes from.
//!
//! Decoding takes and gives back large buffers all the time; the C library returns each to the system and has it cleared
//! again. mimalloc keeps them for a while, and as it looks for what is due only when more is freed, it is asked to when the
//! process is at rest.

// Calling C.
#![allow(unsafe_code)]

use deltic_table::file_table;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

unsafe extern "C" {
    /// Part of mimalloc, which is linked for [`MiMalloc`].
    fn mi_collect(force: bool);
}

/// Has memory given back to the system when a process is at rest that has kept columns.
pub(crate) fn give_back_at_rest() {
    // SAFETY: may be called at any time from any thread, says mimalloc's manual.
    file_table::allocator_gives_back(|| unsafe { mi_collect(true) });
}
