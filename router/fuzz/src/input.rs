//! An input as a sequence of choices: a target that is a program of calls reads its next one from here.

/// Reads choices from bytes; once they are used up, every choice is 0.
#[derive(Debug)]
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    /// `0..end`, for an `end` up to 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// `low..=high`, of at most 256 numbers.
    pub(crate) fn u32_between(&mut self, low: u32, high: u32) -> u32 {
        low + u32::from(self.byte()) % (high - low + 1)
    }

    /// True `percent` times in a hundred, more or less.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent && !self.bytes.is_empty()
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Four bytes as a number.
    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// As many bytes as there are, at most `count`.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}
