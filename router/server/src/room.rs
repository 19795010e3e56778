//! Whether a text can fit the context at all, before it is tokenised.

use crate::tokenise::LARGE_JOB;
use headrace_dialect::bounds::{Asked, ContextLimits};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_text::Tokenizer;

/// What a call leaves its prompts. The refusals are those of [`ContextLimits::output_tokens`], but for "at least": the
/// exact number is what nobody wants to pay for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// What one sequence may be.
    pub(crate) limits: ContextLimits,
    /// Whose words.
    pub(crate) dialect: Dialect,
    /// Output tokens, if the call says.
    pub(crate) asked: Asked,
    /// Prompts are cut to size (`truncate`): no length is too much.
    pub(crate) is_cut: bool,
}

impl Room {
    /// Refuses a large text that is too long however it is tokenised. Small ones get the exact number.
    pub(crate) fn check(&self, tokenizer: &Tokenizer, text: &str) -> Result<(), Refusal> {
        if self.is_cut || text.len() <= LARGE_JOB {
            return Ok(());
        }
        self.check_fewest(tokenizer.fewest_tokens(text))
    }

    fn check_fewest(&self, fewest: usize) -> Result<(), Refusal> {
        let limit = u64::from(self.limits.max_total_tokens);
        let most = self.limits.max_input_tokens;
        let input = fewest as u64;
        let field = self.asked.field;
        if let Some(asked) = self.asked.tokens
            && input + u64::from(asked) > limit
        {
            let sum = input + u64::from(asked);
            let total = format!(
                "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: at least {input} `inputs` tokens and \
                 {asked} `max_new_tokens`"
            );
            return Err(match self.dialect {
                Dialect::Native => too_long(format!("Input validation error: {total}"), field),
                Dialect::OpenAi => too_long(
                    format!(
                        "This model's maximum context length is {limit} tokens. However, you requested at least {sum} \
                         tokens (at least {input} in the prompt, {asked} in the completion). {total} (`{field}`)"
                    ),
                    field,
                ),
            });
        }
        if input <= u64::from(most) && input < limit {
            return Ok(());
        }
        let less = format!("`inputs` must have less than {most} tokens. Given: at least {input}");
        Err(match self.dialect {
            Dialect::Native => too_long(format!("Input validation error: {less}"), "inputs"),
            Dialect::OpenAi => too_long(
                format!(
                    "This model's maximum context length is {limit} tokens. However, your prompt has at least {input} \
                     tokens. {less}"
                ),
                "prompt",
            ),
        })
    }
}

fn too_long(message: String, param: &str) -> Refusal {
    Refusal::new(Cause::ContextLength, message).with_param(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(dialect: Dialect, tokens: Option<u32>) -> Room {
        let asked = Asked {
            tokens,
            field: "max_completion_tokens",
            default: None,
        };
        Room {
            limits: ContextLimits {
                max_input_tokens: 9,
                max_total_tokens: 10,
                vocab_size: 100,
            },
            dialect,
            asked,
            is_cut: false,
        }
    }

    /// What is hopeless here is too long there, and the words differ by "at least" alone.
    #[test]
    fn hopeless_prompts_are_refused_in_the_same_words() {
        for dialect in [Dialect::Native, Dialect::OpenAi] {
            for asked in [None, Some(1), Some(4), Some(u32::MAX)] {
                for fewest in 0..14 {
                    let room = room(dialect, asked);
                    let exact = room.limits.output_tokens(dialect, fewest, room.asked);
                    match (room.check_fewest(fewest), exact) {
                        (Ok(()), Ok(_)) => {}
                        (Err(bound), Err(exact)) => {
                            assert!(bound.message().contains("at least"));
                            assert_eq!(bound.message().replace("at least ", ""), exact.message());
                            assert_eq!(
                                bound.body(dialect).replace("at least ", ""),
                                exact.body(dialect)
                            );
                        }
                        (bound, exact) => panic!("{fewest} {asked:?}: {bound:?} {exact:?}"),
                    }
                }
            }
        }
    }
}
