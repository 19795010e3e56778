//! Who is served next, and for how long others may be served first.

use std::time::Duration;

/// The rules of the queue. The defaults share prefixes and let what fits pass what does not, for a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// How long a waiting sequence whose blocks cannot be had is passed by later ones, from when that was first
    /// seen. Then nothing behind it is admitted before it, so what ends leaves its blocks to it. 0: never
    /// passed. A preempted sequence is never passed.
    pub skip_ahead: Duration,
    /// How far behind the queue's front a sequence is looked for that may pass, `>= 1`.
    pub skip_ahead_window: usize,
    /// How long a sequence waits, in all, for blocks that running ones are computing and it would compute too.
    /// 0: it does not wait.
    pub share_prefixes: Duration,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            skip_ahead: Duration::from_secs(1),
            skip_ahead_window: 16,
            share_prefixes: Duration::from_secs(5),
        }
    }
}
