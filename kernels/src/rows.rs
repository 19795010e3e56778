//! Rows in memory, and the loop over them.

use crate::threads::{TaskPanic, run};

/// Rows of floats, `stride` floats from one to the next; a row itself is contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Rows<P> {
    /// First float of row 0.
    pub start: P,
    /// Floats from one row to the next.
    pub stride: usize,
}

impl Rows<*const f32> {
    /// Start of a row.
    ///
    /// # Safety
    ///
    /// The row exists.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, row: usize) -> *const f32 {
        // SAFETY: the caller's contract.
        unsafe { self.start.add(row * self.stride) }
    }
}

impl Rows<*mut f32> {
    /// Start of a row.
    ///
    /// # Safety
    ///
    /// The row exists.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, row: usize) -> *mut f32 {
        // SAFETY: the caller's contract.
        unsafe { self.start.add(row * self.stride) }
    }
}

/// Floats that one task of a row-wise op should touch at least: about ten microseconds of work.
const TASK_FLOATS: usize = 32 * 1024;

/// Runs `body(row)` for every row, on all threads where that pays.
pub(crate) fn for_rows(
    rows: usize,
    floats_per_row: usize,
    body: &(dyn Fn(usize) + Sync),
) -> Result<(), TaskPanic> {
    let per_task = TASK_FLOATS.div_ceil(floats_per_row.max(1)).min(rows.max(1));
    let tasks = rows.div_ceil(per_task);
    if tasks <= 1 {
        (0..rows).for_each(body);
        return Ok(());
    }
    run(tasks, &|task| {
        (task * per_task..rows.min((task + 1) * per_task)).for_each(body);
    })
}
