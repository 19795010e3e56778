//! How prompts are cut, and what the text of a choice shows.

/// How prompts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The request's name for it.
    pub field: &'static str,
    /// Tokens at most; `None`: as many as the context has beside the output asked for.
    pub keep: Option<u32>,
    /// Which end is cut off.
    pub side: TruncationSide,
}

/// Which end of a prompt is cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TruncationSide {
    /// The beginning: the last tokens stay.
    #[default]
    Left,
    /// The end: the first tokens stay.
    Right,
}

impl Truncation {
    /// `truncate`, as in TGI: the last `keep` tokens stay.
    pub fn to_last(keep: u32) -> Self {
        Self {
            field: "truncate",
            keep: Some(keep),
            side: TruncationSide::Left,
        }
    }

    /// What stays of a prompt, `most` tokens at most.
    pub fn apply(&self, mut ids: Vec<u32>, most: usize) -> Vec<u32> {
        match self.side {
            TruncationSide::Left => {
                ids.drain(..ids.len().saturating_sub(most));
            }
            TruncationSide::Right => ids.truncate(most),
        }
        ids
    }
}

/// What the text of a choice shows besides what is always shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextShape {
    /// The stop that ended it, also where the dialect cuts it off.
    pub keeps_stop: bool,
    /// Special tokens' own text.
    pub shows_special: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_cut_at_the_side_that_is_named() {
        let cut = |side, most| {
            let truncation = Truncation {
                side,
                ..Truncation::to_last(0)
            };
            truncation.apply(vec![1, 2, 3], most)
        };
        assert_eq!(cut(TruncationSide::Left, 2), [2, 3]);
        assert_eq!(cut(TruncationSide::Right, 2), [1, 2]);
        for side in [TruncationSide::Left, TruncationSide::Right] {
            assert_eq!(cut(side, 3), [1, 2, 3]);
            assert_eq!(cut(side, 9), [1, 2, 3]);
        }
    }
}
