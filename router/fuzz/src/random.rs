//! Random numbers of a seed (`SplitMix64`), and a hash.

/// A sequence of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed, 0x5EED))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 0)
    }

    /// `0..end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % (end.max(1) as u64)).unwrap_or(0)
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// `count` random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number().to_le_bytes()[0]).collect()
    }
}

/// A hash of two numbers.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(32);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A hash of a text without its digits and without what stands between quotes, so that two refusals of one kind have
/// the same.
pub(crate) fn kind_of(text: &str) -> u64 {
    let mut quoted = false;
    let mut hash = 0;
    for character in text.chars().take(400) {
        quoted ^= character == '"';
        if !quoted && !character.is_ascii_digit() {
            hash = mix(hash, u64::from(u32::from(character)));
        }
    }
    hash
}
