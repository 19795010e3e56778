//! Streamed text equals whole text, and both equal a naive model, for random ids and stops.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

mod tiny_tokenizer;

use headrace_dialect::choice::{ChoiceRecord, ChoiceText, RawToken};
use headrace_dialect::end::EndReason;
use headrace_dialect::native::{NativeOutput, NativeStream};
use headrace_dialect::openai::{
    ChatShown, ChatStream, CompletionShown, CompletionStream, Identity, Scoring, StreamShape,
};
use headrace_dialect::shown_prompt::ShownPrompt;
use headrace_text::{StopMode, Tokenizer};
use proptest::prelude::*;
use std::sync::{Arc, OnceLock};
use tiny_tokenizer::{BYTES, EOS, WORDS, vocab_size};

fn tokenizer() -> &'static Arc<Tokenizer> {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let json = tiny_tokenizer::json().to_string();
        Arc::new(Tokenizer::from_bytes(json.as_bytes()).unwrap())
    })
}

/// The text of the first `count` ids, as a whole: bytes joined, special tokens skipped, ill-formed parts replaced;
/// while `open`, an incomplete last character is left out.
fn naive_text(ids: &[u32], open: bool) -> String {
    let mut bytes = Vec::new();
    for id in ids {
        if !tokenizer().is_special(*id) {
            bytes.extend_from_slice(tokenizer().token_bytes(*id));
        }
    }
    let mut kept = bytes.len();
    if open
        && let Some(chunk) = bytes.utf8_chunks().last()
        && !chunk.invalid().is_empty()
    {
        let tail = chunk.invalid();
        let is_start = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        if is_start {
            kept -= tail.len();
        }
    }
    String::from_utf8_lossy(&bytes[..kept]).into_owned()
}

/// What must come out: the text, how many ids count, and the stop that ended it. Special tokens' own text takes
/// part in matching and is not shown, but for an end id, which comes after everything.
fn naive(ids: &[u32], stops: &[String], mode: StopMode) -> (String, usize, Option<usize>) {
    let mut raw = String::new();
    let mut shown: Vec<bool> = Vec::new();
    let mut before = String::new();
    for count in 1..=ids.len() {
        let open = count < ids.len();
        let text = naive_text(&ids[..count], open);
        let fresh = &text[before.len()..];
        raw.push_str(fresh);
        shown.extend(std::iter::repeat_n(true, fresh.len()));
        before.clone_from(&text);
        let id = ids[count - 1];
        if tokenizer().is_special(id) && (open || id != EOS) {
            let hidden = tokenizer().token_text(id);
            raw.push_str(&hidden);
            shown.extend(std::iter::repeat_n(false, hidden.len()));
        }
        let found = stops
            .iter()
            .enumerate()
            .filter_map(|(index, stop)| raw.find(stop).map(|start| (start, stop.len(), index)))
            .min_by_key(|(start, length, index)| (*start, usize::MAX - *length, *index));
        if let Some((start, length, index)) = found {
            let cut = match mode {
                StopMode::CutStop => start,
                StopMode::KeepStop => start + length,
            };
            let visible: Vec<u8> = raw
                .bytes()
                .zip(&shown)
                .take(cut)
                .filter(|(_, shown)| **shown)
                .map(|(byte, _)| byte)
                .collect();
            return (String::from_utf8(visible).unwrap(), count, Some(index));
        }
    }
    (before, ids.len(), None)
}

struct Streams {
    native: NativeStream,
    native_text: String,
    native_final: Option<String>,
    chat: ChatStream,
    chat_text: String,
    chat_entries: usize,
    roles: usize,
    completion: CompletionStream,
    completion_text: String,
    completion_entries: usize,
    chat_ids: Vec<u32>,
    completion_ids: Vec<u32>,
    finishes: usize,
}

impl Streams {
    fn new() -> Self {
        let identity = Identity {
            id: "x".to_owned(),
            created: 0,
            model: "m".to_owned(),
            system_fingerprint: "f".to_owned(),
            service_tier: None,
        };
        let shape = StreamShape::default();
        let scoring = Scoring {
            token_ids: true,
            ..Scoring::default()
        };
        let chat = ChatShown {
            logprobs: true,
            scoring,
            ..ChatShown::default()
        };
        let completion = CompletionShown {
            logprobs: Some(0),
            scoring,
        };
        let prompts = vec![ShownPrompt::default()];
        Self {
            native: NativeStream::new(NativeOutput::default(), 1, None),
            native_text: String::new(),
            native_final: None,
            chat: ChatStream::new(identity.clone(), shape, chat, &[1], 1),
            chat_text: String::new(),
            chat_entries: 0,
            chat_ids: Vec::new(),
            roles: 0,
            completion: CompletionStream::new(identity, shape, completion, prompts, 1),
            completion_text: String::new(),
            completion_entries: 0,
            completion_ids: Vec::new(),
            finishes: 0,
        }
    }

    fn push(&mut self, step: &headrace_dialect::choice::TokenStep) {
        let event = self.native.event(step, tokenizer());
        if !event.token.special {
            self.native_text.push_str(&event.token.text);
        }
        self.native_final = event.generated_text;
        if let Some(chunk) = self.chat.chunk(0, step.clone(), tokenizer()) {
            let choice = &chunk.choices[0];
            self.chat_text.push_str(&choice.delta.content);
            self.chat_entries += choice.logprobs.as_ref().unwrap().content.len();
            self.chat_ids.extend(choice.token_ids.iter().flatten());
            self.roles += usize::from(choice.delta.role.is_some());
            self.finishes += usize::from(choice.finish_reason.is_some());
        }
        if let Some(chunk) = self.completion.chunk(0, step.clone(), tokenizer()) {
            let choice = &chunk.choices[0];
            self.completion_text.push_str(&choice.text);
            self.completion_entries += choice.logprobs.as_ref().unwrap().tokens.len();
            self.completion_ids
                .extend(choice.token_ids.iter().flatten());
        }
    }
}

fn run(ids: &[u32], stops: &[String], mode: StopMode) -> (ChoiceRecord, Streams) {
    let mut choice = ChoiceText::new(tokenizer(), &[BYTES + 32], stops, mode).unwrap();
    let mut record = ChoiceRecord::default();
    let mut streams = Streams::new();
    for (index, id) in ids.iter().enumerate() {
        let is_last = index + 1 == ids.len();
        let end = is_last.then_some(if *id == EOS {
            EndReason::Eos
        } else {
            EndReason::Length
        });
        let raw = RawToken {
            id: *id,
            logprob: Some(-1.0),
            top: Vec::new(),
        };
        let step = choice.push(raw, end);
        streams.push(&step);
        let over = step.end.is_some();
        record.push(step);
        if over {
            break;
        }
    }
    (record, streams)
}

fn ids() -> impl Strategy<Value = Vec<u32>> {
    let letters = (b'a'..=b'c').prop_map(|byte| BYTES + u32::from(byte));
    let bytes = (0..=255u32).prop_map(|byte| BYTES + byte);
    let accents = prop_oneof![Just(BYTES + 0xC3), Just(BYTES + 0xA9), Just(BYTES + 0xE2)];
    let words = WORDS..vocab_size();
    let one = prop_oneof![6 => letters, 2 => bytes, 3 => accents, 2 => words, 1 => 0u32..4];
    proptest::collection::vec(one, 1..40)
}

fn stops() -> impl Strategy<Value = Vec<String>> {
    let one = prop_oneof![
        "[abc]{1,4}",
        "é",
        "aé",
        "o w",
        "lo",
        "\u{fffd}a",
        Just("a<|im_end|>".to_owned()),
        Just("|>b".to_owned())
    ];
    proptest::collection::vec(one, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn streams_equal_the_whole_text_and_the_naive_model(ids in ids(), stops in stops()) {
        for mode in [StopMode::CutStop, StopMode::KeepStop] {
            let (record, streams) = run(&ids, &stops, mode);
            let (text, count, stop) = naive(&ids, &stops, mode);
            prop_assert_eq!(&record.text, &text);
            prop_assert_eq!(record.steps.len(), count);
            let ended_by = match record.end() {
                Some(EndReason::StopString(index)) => Some(index),
                _ => None,
            };
            prop_assert_eq!(ended_by, stop);
            prop_assert_eq!(&streams.chat_text, &text);
            prop_assert_eq!(&streams.completion_text, &text);
            prop_assert_eq!(streams.chat_entries, count);
            prop_assert_eq!(streams.completion_entries, count);
            let shown: Vec<u32> = record.steps.iter().map(|step| step.id).collect();
            prop_assert_eq!(&streams.chat_ids, &shown);
            prop_assert_eq!(&streams.completion_ids, &shown);
            prop_assert_eq!((streams.roles, streams.finishes), (1, 1));
            if mode == StopMode::KeepStop {
                prop_assert_eq!(streams.native_final.as_ref(), Some(&text));
                // A special last token cannot carry the replaced half of a character before it.
                let last_is_special = record.steps.last().is_some_and(|step| step.special);
                if !last_is_special {
                    prop_assert_eq!(&streams.native_text, &text);
                }
            }
        }
    }
}
