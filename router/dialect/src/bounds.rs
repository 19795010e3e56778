//! One table: what each dialect allows for each bounded field.

use crate::call::Call;
use crate::refusal::{Cause, Dialect, Refusal};

/// TGI's flags. They bound native routes and may raise, never lower, the bounds of `/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `--max-best-of`.
    pub max_best_of: u32,
    /// `--max-stop-sequences`.
    pub max_stop_sequences: u32,
    /// `--max-top-n-tokens`.
    pub max_top_n_tokens: u32,
    /// `--max-client-batch-size`.
    pub max_client_batch_size: usize,
}

/// TGI's defaults.
impl Default for Flags {
    fn default() -> Self {
        Self {
            max_best_of: 2,
            max_stop_sequences: 4,
            max_top_n_tokens: 5,
            max_client_batch_size: 4,
        }
    }
}

/// A step of 32,768 prompt tokens with so many beside each is a message of 46 MB.
const PROMPT_TOP_N: u32 = 128;

/// About 32 MB of JSON.
const PROMPT_ENTRIES: usize = 1 << 19;

/// Bounds of one dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Whose.
    pub dialect: Dialect,
    /// `n` and `best_of`.
    pub choices: u32,
    /// Stop strings.
    pub stops: usize,
    /// Bytes of one stop string.
    pub stop_bytes: usize,
    /// Stop ids.
    pub stop_ids: usize,
    /// Entries of `logit_bias`.
    pub biased_ids: usize,
    /// Ids of `allowed_token_ids`.
    pub allowed_ids: usize,
    /// Strings of `bad_words`.
    pub bad_words: usize,
    /// Bytes of all of them together.
    pub bad_word_bytes: usize,
    /// Top logprobs.
    pub top_n: u32,
    /// Top logprobs of each prompt place: a step reports a whole chunk of them at once.
    pub prompt_top_n: u32,
    /// Logprobs of prompts in one request, the prompts' own ids and the top ones together (8 bytes each here, about
    /// 60 in an answer).
    pub prompt_entries: usize,
    /// Prompts in one request.
    pub prompts: usize,
    /// Messages of a chat.
    pub messages: usize,
}

impl Bounds {
    /// The row of a dialect.
    pub fn of(dialect: Dialect, flags: Flags) -> Self {
        let stops = usize::try_from(flags.max_stop_sequences).unwrap_or(usize::MAX);
        let common = Self {
            dialect,
            choices: flags.max_best_of,
            stops,
            stop_bytes: 4096,
            stop_ids: 128,
            biased_ids: 1024,
            allowed_ids: 8192,
            bad_words: 128,
            bad_word_bytes: 16_384,
            top_n: flags.max_top_n_tokens,
            prompt_top_n: flags.max_top_n_tokens.min(PROMPT_TOP_N),
            prompt_entries: PROMPT_ENTRIES,
            prompts: 1,
            messages: 16_384,
        };
        match dialect {
            Dialect::Native => common,
            Dialect::OpenAi => Self {
                choices: flags.max_best_of.max(8),
                stops: stops.max(16),
                top_n: flags.max_top_n_tokens.max(20),
                prompt_top_n: flags.max_top_n_tokens.clamp(20, PROMPT_TOP_N),
                prompts: flags.max_client_batch_size.max(64),
                ..common
            },
        }
    }

    /// Stop strings, in TGI's words.
    pub fn check_stops(&self, stops: &[String]) -> Result<(), Refusal> {
        if stops.len() > self.stops {
            return Err(Refusal::validation(
                "stop",
                format!(
                    "`stop` supports up to {} stop sequences. Given: {}",
                    self.stops,
                    stops.len()
                ),
            ));
        }
        for stop in stops {
            if stop.is_empty() {
                return Err(Refusal::validation(
                    "stop",
                    "`stop` must not contain an empty string",
                ));
            }
            if stop.len() > self.stop_bytes {
                return Err(Refusal::validation(
                    "stop",
                    format!(
                        "`stop` strings must have at most {} bytes. Given: {}",
                        self.stop_bytes,
                        stop.len()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// How many of the likeliest of each prompt place `field` may ask for.
    pub fn check_prompt_top_n(&self, field: &str, top_n: u32) -> Result<(), Refusal> {
        if top_n <= self.prompt_top_n {
            return Ok(());
        }
        Err(Refusal::validation(
            field,
            format!(
                "`{field}` must be >= 0 and <= {} for each token of the prompt. Given: {top_n}",
                self.prompt_top_n
            ),
        ))
    }

    /// Refuses, before anything is computed, what would report more than `prompt_entries` of prompts.
    pub fn check_prompt_entries(&self, field: &str, entries: usize) -> Result<(), Refusal> {
        if entries <= self.prompt_entries {
            return Ok(());
        }
        Err(Refusal::validation(
            field,
            format!(
                "`{field}`: the prompts' tokens and their likeliest are {entries} logprobs, and one request may ask for \
                 up to {}",
                self.prompt_entries
            ),
        ))
    }

    /// Bounds of the floats that all dialects share.
    pub fn check_sampling(call: &Call) -> Result<(), Refusal> {
        let sampling = &call.sampling;
        let refuse = |param: &str, message: &str| Err(Refusal::validation(param, message));
        if sampling.temperature.is_some_and(|value| value < 0.0) {
            return refuse("temperature", "`temperature` must be strictly positive");
        }
        if sampling
            .repetition_penalty
            .is_some_and(|value| value <= 0.0)
        {
            return refuse(
                "repetition_penalty",
                "`repetition_penalty` must be strictly positive",
            );
        }
        let outside =
            |value: Option<f32>| value.is_some_and(|value| !(-2.0..=2.0).contains(&value));
        if outside(sampling.frequency_penalty) {
            return refuse(
                "frequency_penalty",
                "`frequency_penalty` must be >= -2.0 and <= 2.0",
            );
        }
        if outside(sampling.presence_penalty) {
            return refuse(
                "presence_penalty",
                "`presence_penalty` must be >= -2.0 and <= 2.0",
            );
        }
        // 1.0 is off, where TGI refused it.
        let no_mass = |value: Option<f32>| value.is_some_and(|value| value <= 0.0 || value > 1.0);
        if no_mass(sampling.top_p) {
            return refuse("top_p", "`top_p` must be > 0.0 and < 1.0");
        }
        if no_mass(sampling.typical_p) {
            return refuse("typical_p", "`typical_p` must be > 0.0 and < 1.0");
        }
        if sampling
            .min_p
            .is_some_and(|value| !(0.0..=1.0).contains(&value))
        {
            return refuse("min_p", "`min_p` must be >= 0.0 and <= 1.0");
        }
        Ok(())
    }
}

/// The output tokens that a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How many, as the request says.
    pub tokens: Option<u32>,
    /// The request's name for them.
    pub field: &'static str,
    /// How many where the request does not say, as far as there is room; `None`: to the context limit.
    pub default: Option<u32>,
}

/// How many tokens one sequence may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Prompt tokens at most.
    pub max_input_tokens: u32,
    /// Prompt and output tokens at most.
    pub max_total_tokens: u32,
    /// Every id is below it.
    pub vocab_size: u32,
}

impl ContextLimits {
    /// Prompt tokens that fit beside the output asked for. At least one: what does not fit then is refused by the rule
    /// of [`Self::output_tokens`].
    pub fn input_beside(&self, asked: Option<u32>) -> u32 {
        self.max_total_tokens
            .saturating_sub(asked.unwrap_or(1))
            .clamp(1, self.max_input_tokens.max(1))
    }

    /// The number of output tokens that a prompt of `input` tokens may get, or why it may not run.
    pub fn output_tokens(
        &self,
        dialect: Dialect,
        input: usize,
        asked: Asked,
    ) -> Result<u32, Refusal> {
        let limit = u64::from(self.max_total_tokens);
        let input = input as u64;
        let room = limit.saturating_sub(input);
        let unsaid = asked.default.map_or(room, |most| room.min(most.into()));
        let new_tokens = asked.tokens.map_or(unsaid, u64::from);
        // The sum first, as in TGI: a prompt that is too long with an explicit length gets the sentence with both.
        if asked.tokens.is_some() && input + new_tokens > limit {
            return Err(Self::over_total(
                dialect,
                limit,
                (input, new_tokens),
                asked.field,
            ));
        }
        if input > u64::from(self.max_input_tokens) || room == 0 {
            return Err(self.over_input(dialect, input));
        }
        Ok(u32::try_from(new_tokens).unwrap_or(self.max_total_tokens))
    }

    fn over_total(
        dialect: Dialect,
        limit: u64,
        (input, new_tokens): (u64, u64),
        field: &str,
    ) -> Refusal {
        let total = format!(
            "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {input} `inputs` tokens and \
             {new_tokens} `max_new_tokens`"
        );
        let message = match dialect {
            Dialect::Native => format!("Input validation error: {total}"),
            // OpenAI's sentence, then TGI's: clients look for either. Then the request's own name.
            Dialect::OpenAi => format!(
                "This model's maximum context length is {limit} tokens. However, you requested {} tokens \
                 ({input} in the prompt, {new_tokens} in the completion). {total} (`{field}`)",
                input + new_tokens
            ),
        };
        Refusal::new(Cause::ContextLength, message).with_param(field)
    }

    fn over_input(&self, dialect: Dialect, input: u64) -> Refusal {
        let limit = self.max_input_tokens;
        let less = format!("`inputs` must have less than {limit} tokens. Given: {input}");
        let message = match dialect {
            Dialect::Native => format!("Input validation error: {less}"),
            Dialect::OpenAi => format!(
                "This model's maximum context length is {} tokens. However, your prompt has {input} tokens. \
                 {less}",
                self.max_total_tokens
            ),
        };
        Refusal::new(Cause::ContextLength, message).with_param(match dialect {
            Dialect::Native => "inputs",
            Dialect::OpenAi => "prompt",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ContextLimits = ContextLimits {
        max_input_tokens: 9,
        max_total_tokens: 10,
        vocab_size: 100,
    };

    fn native(tokens: Option<u32>) -> Asked {
        Asked {
            tokens,
            field: "max_new_tokens",
            default: None,
        }
    }

    #[test]
    fn absent_means_to_the_context_limit() {
        let allowed = |input, asked| LIMITS.output_tokens(Dialect::Native, input, native(asked));
        assert_eq!(allowed(4, None), Ok(6));
        assert_eq!(allowed(9, None), Ok(1));
        assert_eq!(allowed(4, Some(6)), Ok(6));
    }

    #[test]
    fn a_default_that_does_not_fit_is_cut_to_what_does() {
        for (input, tokens, expected) in [
            (4, None, 5),
            (5, None, 5),
            (6, None, 4),
            (9, None, 1),
            (4, Some(6), 6),
        ] {
            let asked = Asked {
                tokens,
                field: "max_tokens",
                default: Some(5),
            };
            assert_eq!(
                LIMITS.output_tokens(Dialect::OpenAi, input, asked),
                Ok(expected)
            );
        }
    }

    #[test]
    fn too_many_output_tokens_are_refused_by_the_name_that_the_request_has_for_them() {
        for (dialect, field) in [
            (Dialect::Native, "max_new_tokens"),
            (Dialect::OpenAi, "max_tokens"),
            (Dialect::OpenAi, "max_completion_tokens"),
        ] {
            let tokens = Some(3_000_000_000);
            let asked = Asked {
                tokens,
                field,
                default: None,
            };
            let refusal = LIMITS.output_tokens(dialect, 4, asked).unwrap_err();
            assert_eq!(refusal.param(), Some(field));
            assert!(refusal.message().contains(&format!("`{field}`")));
        }
    }

    #[test]
    fn overflow_texts_are_exact() {
        let text = |dialect, input, asked| {
            LIMITS
                .output_tokens(
                    dialect,
                    input,
                    Asked {
                        tokens: asked,
                        field: "max_tokens",
                        default: None,
                    },
                )
                .unwrap_err()
                .message()
                .to_owned()
        };
        assert_eq!(
            text(Dialect::Native, 4, Some(7)),
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 10. Given: 4 `inputs` tokens \
             and 7 `max_new_tokens`"
        );
        assert_eq!(
            text(Dialect::Native, 10, None),
            "Input validation error: `inputs` must have less than 9 tokens. Given: 10"
        );
        assert_eq!(
            text(Dialect::OpenAi, 4, Some(7)),
            "This model's maximum context length is 10 tokens. However, you requested 11 tokens (4 in the prompt, 7 \
             in the completion). `inputs` tokens + `max_new_tokens` must be <= 10. Given: 4 `inputs` tokens and 7 \
             `max_new_tokens` (`max_tokens`)"
        );
        assert_eq!(
            text(Dialect::OpenAi, 11, None),
            "This model's maximum context length is 10 tokens. However, your prompt has 11 tokens. `inputs` must \
             have less than 9 tokens. Given: 11"
        );
        // Both wrong: TGI looks at the sum first.
        assert!(text(Dialect::Native, 4, Some(u32::MAX)).contains("must be <= 10"));
    }

    #[test]
    fn flags_raise_but_never_lower_the_v1_bounds() {
        let small = Flags::default();
        let bounds = Bounds::of(Dialect::OpenAi, small);
        assert_eq!(
            (bounds.choices, bounds.stops, bounds.top_n, bounds.prompts),
            (8, 16, 20, 64)
        );
        let bounds = Bounds::of(Dialect::Native, small);
        assert_eq!((bounds.choices, bounds.stops, bounds.top_n), (2, 4, 5));
        let large = Flags {
            max_best_of: 30,
            max_stop_sequences: 40,
            max_top_n_tokens: 50,
            max_client_batch_size: 400,
        };
        let bounds = Bounds::of(Dialect::OpenAi, large);
        assert_eq!(
            (bounds.choices, bounds.stops, bounds.top_n, bounds.prompts),
            (30, 40, 50, 400)
        );
    }
}
