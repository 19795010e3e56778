//! What a client asks for, whatever the dialect.

use crate::bounds::Asked;
use crate::grammar::GrammarField;
use crate::shape::{TextShape, Truncation};
use crate::terms::Terms;

/// Prompts × choices to run, not yet tokenised.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// Choices to answer with, for each prompt.
    pub choices: u32,
    /// Sequences to run for each prompt, `>= choices`; the likeliest are answered with.
    pub best_of: u32,
    /// How ids are picked.
    pub sampling: Sampling,
    /// Output tokens at most, as the request says.
    pub max_new_tokens: Option<u32>,
    /// The request's name for them.
    pub max_new_tokens_field: &'static str,
    /// How many where the request does not say, as far as there is room; `None`: to the context limit.
    pub default_new_tokens: Option<u32>,
    /// Output tokens before an end id may come.
    pub min_tokens: u32,
    /// The model's end ids do not end the output.
    pub ignore_eos: bool,
    /// Stop strings, none empty.
    pub stops: Vec<String>,
    /// Stop ids.
    pub stop_token_ids: Vec<u32>,
    /// Added to logits, each id once.
    pub logit_bias: Vec<(u32, f32)>,
    /// If there are any, nothing else is sampled.
    pub allowed_token_ids: Vec<u32>,
    /// Words that must not come, none empty.
    pub bad_words: Vec<String>,
    /// What binds the output.
    pub grammar: Option<GrammarField>,
    /// Cut prompts that are too long.
    pub truncate: Option<Truncation>,
    /// What the text shows.
    pub text: TextShape,
    /// What is reported beside the ids.
    pub report: Report,
    /// As events.
    pub stream: bool,
    /// How the house treats it.
    pub terms: Terms,
}

impl Call {
    /// Greedy, one choice, to the context limit.
    pub fn new(prompts: Vec<Prompt>) -> Self {
        Self {
            prompts,
            choices: 1,
            best_of: 1,
            sampling: Sampling::default(),
            max_new_tokens: None,
            max_new_tokens_field: "max_new_tokens",
            default_new_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            stops: Vec::new(),
            stop_token_ids: Vec::new(),
            logit_bias: Vec::new(),
            allowed_token_ids: Vec::new(),
            bad_words: Vec::new(),
            grammar: None,
            truncate: None,
            text: TextShape::default(),
            report: Report::default(),
            stream: false,
            terms: Terms::default(),
        }
    }

    /// The output tokens that it asks for.
    pub fn asked(&self) -> Asked {
        Asked {
            tokens: self.max_new_tokens,
            field: self.max_new_tokens_field,
            default: self.default_new_tokens,
        }
    }
}

/// One prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Raw text; special tokens in it are parsed as such.
    Text {
        /// The text.
        text: String,
        /// Add the tokenizer's special tokens.
        add_special_tokens: bool,
    },
    /// Ids, as they are.
    Ids(Vec<u32>),
    /// Text before and after a gap that the model fills, where its tokenizer has the tokens for that.
    Infill {
        /// Before the gap.
        prefix: String,
        /// After it.
        suffix: String,
        /// Add the tokenizer's special tokens.
        add_special_tokens: bool,
    },
    /// A conversation for the chat template.
    Chat(ChatPrompt),
}

impl Prompt {
    /// Bytes that the tokeniser's queue holds for it.
    pub fn weight(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.len(),
            Self::Infill { prefix, suffix, .. } => prefix.len() + suffix.len(),
            Self::Ids(ids) => ids.len() * 4,
            Self::Chat(chat) => chat.weight,
        }
    }

    /// Characters of the input, for `x-compute-characters`.
    pub fn characters(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.chars().count(),
            Self::Infill { prefix, suffix, .. } => prefix.chars().count() + suffix.chars().count(),
            Self::Ids(_) => 0,
            Self::Chat(chat) => chat.characters,
        }
    }
}

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatPrompt {
    /// Messages as `OpenAI` writes them, contents joined: `role`, `content`, `name`, `reasoning_content`, `tool_calls`,
    /// `tool_call_id`.
    pub messages: Vec<serde_json::Value>,
    /// Open the assistant's turn; `None`: unless the last message is continued.
    pub add_generation_prompt: Option<bool>,
    /// Continue the last message; `None`: if it is the assistant's.
    pub continue_final_message: Option<bool>,
    /// Add the tokenizer's special tokens; the template usually has written them.
    pub add_special_tokens: bool,
    /// Variables for the template (`chat_template_kwargs`).
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// Objects for templates that know documents.
    pub documents: Vec<serde_json::Value>,
    /// Characters of all contents.
    pub characters: usize,
    /// Bytes of all contents.
    pub weight: usize,
}

impl ChatPrompt {
    /// The text of the last message, if what comes is of the same role: it goes on, or it is the assistant's.
    pub fn text_of_own_turn(&self) -> String {
        let Some(last) = self.messages.last() else {
            return String::new();
        };
        let role = last.get("role").and_then(serde_json::Value::as_str);
        if !self.continues() && role != Some("assistant") {
            return String::new();
        }
        match last.get("content") {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Array(parts)) => parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .collect(),
            _ => String::new(),
        }
    }

    /// The last message goes on rather than a new one beginning.
    pub fn continues(&self) -> bool {
        self.continue_final_message.unwrap_or_else(|| {
            self.add_generation_prompt != Some(true)
                && self.messages.last().is_some_and(|message| {
                    message.get("role").and_then(serde_json::Value::as_str) == Some("assistant")
                })
        })
    }
}

/// What is reported beside the ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The sampled id's logprob.
    pub logprobs: bool,
    /// The likeliest n of each place.
    pub top_n: u32,
    /// Logprobs of the prompt, and the likeliest n of each of its places.
    pub prompt_logprobs: Option<u32>,
    /// The prompt's own text, id by id.
    pub echo: bool,
    /// The prompt is all that is shown: nothing is generated.
    pub prompt_only: bool,
}

/// Who decides whether sampling is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplingRule {
    /// Native routes: the fields of the request alone (see [`Sampling::native_do_sample`]).
    Native {
        /// The request's own `do_sample`.
        do_sample: bool,
    },
    /// `/v1`: unless the temperature, after the model's defaults, is 0.
    #[default]
    ByTemperature,
}

/// Sampling fields as given; `None` is absent, and what is off by its value is kept, for it beats the model's
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Who decides.
    pub rule: SamplingRule,
    /// `>= 0`.
    pub temperature: Option<f32>,
    /// 0 is off.
    pub top_k: Option<u32>,
    /// 1 is off.
    pub top_p: Option<f32>,
    /// 0 is off.
    pub min_p: Option<f32>,
    /// 1 is off.
    pub typical_p: Option<f32>,
    /// 1 is off.
    pub repetition_penalty: Option<f32>,
    /// 0 is off.
    pub frequency_penalty: Option<f32>,
    /// 0 is off.
    pub presence_penalty: Option<f32>,
    /// `None`: random.
    pub seed: Option<u64>,
}

/// Below this, dividing logits by the temperature only loses digits: it is greedy.
const GREEDY_TEMPERATURE: f32 = 1e-5;

/// The model's `generation_config.json`, where it speaks of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// See [`Sampling`].
    pub temperature: Option<f32>,
    /// See [`Sampling`].
    pub top_k: Option<u32>,
    /// See [`Sampling`].
    pub top_p: Option<f32>,
    /// See [`Sampling`].
    pub min_p: Option<f32>,
    /// See [`Sampling`].
    pub typical_p: Option<f32>,
    /// See [`Sampling`].
    pub repetition_penalty: Option<f32>,
}

impl Sampling {
    /// Native: sampling is on if `do_sample`, or the temperature is neither 0 nor 1, or `top_k` is set, or `top_p` or
    /// `typical_p` are below 1; never with temperature 0.
    pub fn native_do_sample(&self, do_sample: bool) -> bool {
        if self.temperature.is_some_and(is_greedy) {
            return false;
        }
        #[expect(clippy::float_cmp, reason = "exactly 1 is the value that means off")]
        let warm = self.temperature.is_some_and(|value| value != 1.0);
        do_sample
            || warm
            || self.top_k.is_some_and(|value| value > 0)
            || self.top_p.is_some_and(|value| value < 1.0)
            || self.typical_p.is_some_and(|value| value < 1.0)
    }

    /// Whether ids are drawn, and the fields with the model's defaults filled in where the rule says so. Fields
    /// whose value means off become `None`.
    pub fn resolve(&self, defaults: &SamplingDefaults) -> (bool, Self) {
        let mut resolved = *self;
        if self.rule == SamplingRule::ByTemperature {
            resolved.temperature = self.temperature.or(defaults.temperature);
            resolved.top_k = self.top_k.or(defaults.top_k);
            resolved.top_p = self.top_p.or(defaults.top_p);
            resolved.min_p = self.min_p.or(defaults.min_p);
            resolved.typical_p = self.typical_p.or(defaults.typical_p);
            resolved.repetition_penalty = self.repetition_penalty.or(defaults.repetition_penalty);
        }
        let do_sample = match self.rule {
            SamplingRule::Native { do_sample } => self.native_do_sample(do_sample),
            SamplingRule::ByTemperature => !resolved.temperature.is_some_and(is_greedy),
        };
        #[expect(clippy::float_cmp, reason = "exactly these values mean off")]
        {
            resolved.temperature = resolved
                .temperature
                .filter(|value| do_sample && *value != 1.0);
            resolved.repetition_penalty = resolved.repetition_penalty.filter(|value| *value != 1.0);
            resolved.frequency_penalty = resolved.frequency_penalty.filter(|value| *value != 0.0);
            resolved.presence_penalty = resolved.presence_penalty.filter(|value| *value != 0.0);
        }
        resolved.top_k = resolved.top_k.filter(|value| do_sample && *value > 0);
        resolved.top_p = resolved.top_p.filter(|value| do_sample && *value < 1.0);
        resolved.min_p = resolved.min_p.filter(|value| do_sample && *value > 0.0);
        resolved.typical_p = resolved.typical_p.filter(|value| do_sample && *value < 1.0);
        (do_sample, resolved)
    }
}

fn is_greedy(temperature: f32) -> bool {
    temperature < GREEDY_TEMPERATURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(do_sample: bool, change: impl Fn(&mut Sampling)) -> bool {
        let mut sampling = Sampling {
            rule: SamplingRule::Native { do_sample },
            ..Sampling::default()
        };
        change(&mut sampling);
        sampling.resolve(&SamplingDefaults::default()).0
    }

    #[test]
    fn native_sampling_is_on_by_the_fields_alone() {
        assert!(!native(false, |_| ()));
        assert!(native(true, |_| ()));
        assert!(native(false, |s| s.temperature = Some(0.7)));
        assert!(!native(false, |s| s.temperature = Some(1.0)));
        assert!(!native(true, |s| s.temperature = Some(0.0)));
        assert!(native(false, |s| s.top_k = Some(1)));
        assert!(native(false, |s| s.top_p = Some(0.9)));
        assert!(!native(false, |s| s.top_p = Some(1.0)));
        assert!(native(false, |s| s.typical_p = Some(0.9)));
        assert!(!native(false, |s| s.repetition_penalty = Some(1.2)));
    }

    #[test]
    fn defaults_fill_v1_only_and_explicit_off_beats_them() {
        let defaults = SamplingDefaults {
            temperature: Some(0.6),
            top_k: Some(20),
            top_p: Some(0.9),
            ..SamplingDefaults::default()
        };
        let (on, resolved) = Sampling {
            top_k: Some(0),
            ..Sampling::default()
        }
        .resolve(&defaults);
        assert!(on);
        assert_eq!(resolved.temperature, Some(0.6));
        assert_eq!(resolved.top_k, None);
        assert_eq!(resolved.top_p, Some(0.9));

        let (on, resolved) = Sampling {
            temperature: Some(0.0),
            ..Sampling::default()
        }
        .resolve(&defaults);
        assert!(!on);
        assert_eq!(
            (resolved.temperature, resolved.top_k, resolved.top_p),
            (None, None, None)
        );

        let (on, resolved) = Sampling {
            rule: SamplingRule::Native { do_sample: true },
            ..Sampling::default()
        }
        .resolve(&defaults);
        assert!(on);
        assert_eq!((resolved.temperature, resolved.top_k), (None, None));
    }

    #[test]
    fn the_last_assistant_message_is_continued_unless_told_otherwise() {
        let chat = |role: &str| ChatPrompt {
            messages: vec![serde_json::json!({"role": role, "content": "x"})],
            ..ChatPrompt::default()
        };
        assert!(chat("assistant").continues());
        assert!(!chat("user").continues());
        let told = ChatPrompt {
            add_generation_prompt: Some(true),
            ..chat("assistant")
        };
        assert!(!told.continues());
        let told = ChatPrompt {
            continue_final_message: Some(false),
            ..chat("assistant")
        };
        assert!(!told.continues());
    }
}
