//! The bounds of one rendering, by what was sent.

use std::time::Duration;

/// Instructions for any conversation, and for each message on top. Templates that compare every message with every other
/// need the second.
const BASE_FUEL: u64 = 5_000_000;
const FUEL_PER_MESSAGE: u64 = 50_000;
/// However many messages there are.
const MOST_FUEL: u64 = 100_000_000;
/// Bytes that one rendering may read over again, an item of a list being some; on top of it for each byte of the
/// messages, and for each pair of messages; and however many there are.
const BASE_READS: u64 = 128 << 20;
const READS_PER_BYTE: u64 = 256;
const READS_PER_PAIR: u64 = 256;
const MOST_READS: u64 = 4 << 30;
/// Bytes that one rendering may build in all, and so may hold; and write, into variables and out.
const SUM_LIMIT: u64 = 256 << 20;
/// On top of it for long chats.
const EXTRA_LIMIT: u64 = 1792 << 20;
/// What any rendering may build beside others; and for each byte of the messages. What takes more waits for its turn.
const SMALL_SUM: u64 = 8 << 20;
const SMALL_PER_BYTE: u64 = 16;
/// Time of one thread for a conversation. The slowest of those real templates that render 50,000 messages needs a quarter.
const TIME: Duration = Duration::from_secs(5);

/// What one rendering may do.
#[derive(Clone, Copy, Debug)]
pub(in crate::template) struct Limits {
    /// Instructions.
    pub(in crate::template) fuel: u64,
    /// Bytes read over again.
    pub(in crate::template) reads: u64,
    /// Bytes built.
    pub(in crate::template) bytes: u64,
    /// Processor time.
    pub(in crate::template) time: Duration,
}

impl Limits {
    /// For the small conversations of probes: a real template needs a hundredth of it.
    pub(in crate::template) const PROBE: Self = Self {
        fuel: 500_000,
        reads: 8 << 20,
        bytes: 4 << 20,
        time: TIME,
    };

    /// For messages of so many bytes. A template may collect the prompt in a variable, message by message: that is half
    /// the square.
    pub(in crate::template) fn of(num_messages: usize, bytes: usize) -> Self {
        let (messages, bytes) = (num_messages as u64, bytes as u64);
        let square = messages.saturating_mul(bytes);
        let pairs = messages.saturating_mul(messages);
        Self {
            fuel: BASE_FUEL
                .saturating_add(FUEL_PER_MESSAGE.saturating_mul(messages))
                .min(MOST_FUEL),
            reads: BASE_READS
                .saturating_add(READS_PER_BYTE.saturating_mul(bytes))
                .saturating_add(READS_PER_PAIR.saturating_mul(pairs))
                .min(MOST_READS),
            bytes: SUM_LIMIT + square.saturating_mul(2).min(EXTRA_LIMIT),
            time: TIME,
        }
    }

    /// The same for a rendering beside any number of others.
    pub(in crate::template) fn beside_others(self, bytes: usize) -> Self {
        let most = SMALL_SUM.saturating_add(SMALL_PER_BYTE.saturating_mul(bytes as u64));
        Self {
            bytes: self.bytes.min(most),
            ..self
        }
    }
}
