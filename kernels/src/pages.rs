//! Large pages for large tensors: a stream of weights misses the TLB less.

/// Below this, a large page brings nothing.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// Asks the system for large pages in `bytes` bytes at `start`. It is a hint: memory that was touched
/// before, or a system that refuses, stays as it is.
///
/// # Safety
///
/// The memory belongs to the caller.
pub unsafe fn advise_large_pages(start: *mut f32, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" {
            fn madvise(start: *mut std::ffi::c_void, length: usize, advice: std::ffi::c_int)
            -> i32;
        }
        const MADV_HUGEPAGE: std::ffi::c_int = 14;
        let skip = start.addr().next_multiple_of(LARGE_PAGE) - start.addr();
        if bytes >= skip + LARGE_PAGE {
            let length = (bytes - skip) / LARGE_PAGE * LARGE_PAGE;
            // SAFETY: whole pages inside the caller's memory; the advice changes no content.
            unsafe { madvise(start.byte_add(skip).cast(), length, MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}
