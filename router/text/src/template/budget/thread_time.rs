//! The processor time of this thread.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Nanoseconds on the processor, nanoseconds that it waited for one, turns.
const ACCOUNT: &str = "/proc/thread-self/schedstat";

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    static FILE: RefCell<Option<File>> = RefCell::new(File::open(ACCOUNT).ok());
}

/// By the system's account; where it keeps none, the time that passes.
pub(super) fn thread_time() -> Duration {
    let on_processor = FILE.with_borrow(|file| {
        let mut line = [0; 64];
        let length = file.as_ref()?.read_at(&mut line, 0).ok()?;
        let text = std::str::from_utf8(line.get(..length)?).ok()?;
        Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
    });
    on_processor.unwrap_or_else(|| START.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_sleep_takes_none() {
        let start = thread_time();
        let begin = Instant::now();
        let mut sum = 0_u64;
        while thread_time().saturating_sub(start) < Duration::from_millis(20) {
            sum = sum.wrapping_add(1);
        }
        assert!(begin.elapsed() >= Duration::from_millis(19), "{sum}");
        if File::open(ACCOUNT).is_ok() {
            let before = thread_time();
            std::thread::sleep(Duration::from_millis(200));
            assert!(thread_time().saturating_sub(before) < Duration::from_millis(150));
        }
    }
}
