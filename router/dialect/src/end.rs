//! Why a sequence ended: one set, mapped per dialect. The dialects' enums are closed; an end that one lacks is an
//! error there.

use headrace_api::chat::OpenAiFinishReason;
use headrace_api::native::NativeFinishReason;

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// An end id of the model.
    Eos,
    /// The grammar allows nothing more, and the model has no id that says so.
    GrammarComplete,
    /// A stop string, by its index in the request.
    StopString(usize),
    /// A stop id of the request.
    StopToken(u32),
    /// `max_new_tokens`.
    Length,
}

impl EndReason {
    /// TGI's word. A stop id is a stop sequence of one token.
    pub fn native(self) -> NativeFinishReason {
        match self {
            Self::Eos | Self::GrammarComplete => NativeFinishReason::EosToken,
            Self::StopString(_) | Self::StopToken(_) => NativeFinishReason::StopSequence,
            Self::Length => NativeFinishReason::Length,
        }
    }

    /// `OpenAI`'s word.
    pub fn openai(self) -> OpenAiFinishReason {
        match self {
            Self::Eos | Self::GrammarComplete | Self::StopString(_) | Self::StopToken(_) => {
                OpenAiFinishReason::Stop
            }
            Self::Length => OpenAiFinishReason::Length,
        }
    }

    /// For the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::GrammarComplete => "grammar_complete",
            Self::StopString(_) => "stop_string",
            Self::StopToken(_) => "stop_token",
            Self::Length => "length",
        }
    }
}
