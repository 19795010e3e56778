//! Writes text-completion answers.

use super::common::StreamShape;
use super::logprobs::Naming;
use super::scoring::Scoring;
use super::stream::{Gathered, Gatherer, Identity, make_usage};
use crate::choice::{ChoiceRecord, PromptPlace, TokenStep};
use crate::end::EndReason;
use crate::shown_prompt::ShownPrompt;
use headrace_api::chat::Usage;
use headrace_api::completion::{ChunkUsage, Completion, CompletionChoice, CompletionLogprobs};
use headrace_text::Tokenizer;

/// What an answer shows beside texts and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionShown {
    /// Logprobs of the sampled tokens and this many of the likeliest.
    pub logprobs: Option<u32>,
    /// More about tokens.
    pub scoring: Scoring,
}

/// The answer that is not streamed: `records[prompt][choice]`, each prompt's list cut to `n`. `None` if one has not
/// ended.
pub fn completion(
    identity: &Identity,
    (prompts, records): (&[ShownPrompt], &[Vec<ChoiceRecord>]),
    usage: Usage,
    shown: CompletionShown,
    tokenizer: &Tokenizer,
) -> Option<Completion> {
    let of_prompts = prompts.iter().zip(records);
    let choices =
        of_prompts.flat_map(|(prompt, records)| records.iter().map(move |it| (prompt, it)));
    let choices = (0_u32..)
        .zip(choices)
        .map(|(index, (prompt, record))| {
            let part = Part {
                text: &record.text,
                steps: &record.steps,
                begins: Some(&record.prompt),
            };
            let mut choice = shown.choice(prompt, part, tokenizer);
            choice.index = index;
            choice.finish_reason = Some(record.end()?.openai());
            choice.stop_reason = record.stop_reason();
            choice.prompt_logprobs = shown.scoring.prompt_entries(&record.prompt, tokenizer);
            Some(choice)
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Completion {
        id: identity.id.clone(),
        object: "text_completion",
        created: identity.created,
        model: identity.model.clone(),
        system_fingerprint: identity.system_fingerprint.clone(),
        choices,
        usage: Some(ChunkUsage::Known(usage)),
        service_tier: identity.service_tier,
    })
}

/// A part of a choice.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    text: &'a str,
    steps: &'a [TokenStep],
    /// In the first part: what is told of the prompt.
    begins: Option<&'a [PromptPlace]>,
}

impl CompletionShown {
    fn choice(
        self,
        prompt: &ShownPrompt,
        part: Part<'_>,
        tokenizer: &Tokenizer,
    ) -> CompletionChoice {
        let echo = prompt.echo.as_deref().filter(|_| self.scoring.echo);
        let text = match (echo, part.begins) {
            (Some(echo), Some(_)) => format!("{}{}", echo.text, part.text),
            _ => part.text.to_owned(),
        };
        let logprobs = self.logprobs.map(|top_n| {
            let naming = Naming::new(tokenizer, self.scoring);
            let mut lists = CompletionLogprobs::default();
            if let (Some(echo), Some(places)) = (echo, part.begins) {
                naming.push_prompt(&mut lists, (&prompt.ids, echo), places, top_n);
            }
            let offset = echo.map_or(0, |echo| echo.characters);
            naming.push_steps(&mut lists, part.steps, offset);
            lists
        });
        let ids = || part.steps.iter().map(|step| step.id).collect();
        let shows_prompt_ids = self.scoring.token_ids && part.begins.is_some();
        CompletionChoice {
            index: 0,
            text,
            logprobs,
            finish_reason: None,
            stop_reason: None,
            prompt_logprobs: None,
            prompt_token_ids: shows_prompt_ids.then(|| prompt.ids.to_vec()),
            token_ids: self.scoring.token_ids.then(ids),
        }
    }
}

/// Writes the chunks of a completion stream.
#[derive(Clone, Debug)]
pub struct CompletionStream {
    identity: Identity,
    shape: StreamShape,
    shown: CompletionShown,
    prompts: Vec<ShownPrompt>,
    cached_tokens: u32,
    completion_tokens: u32,
    /// Of each prompt as many as it has choices.
    choices: Vec<StreamedChoice>,
    /// Choices of each prompt.
    choices_each: usize,
}

#[derive(Clone, Debug, Default)]
struct StreamedChoice {
    gatherer: Gatherer,
    /// What is told of the prompt, until the first chunk takes it.
    places: Vec<PromptPlace>,
}

impl CompletionStream {
    /// A stream of `choices_each` choices of each prompt.
    pub fn new(
        identity: Identity,
        shape: StreamShape,
        shown: CompletionShown,
        prompts: Vec<ShownPrompt>,
        choices_each: usize,
    ) -> Self {
        Self {
            identity,
            shape,
            shown,
            cached_tokens: 0,
            completion_tokens: 0,
            choices: vec![StreamedChoice::default(); prompts.len() * choices_each],
            choices_each,
            prompts,
        }
    }

    /// Prompt tokens that a choice found in the cache: each prompt's first choice counts.
    pub fn note_cached_tokens(&mut self, index: usize, cached_tokens: u32) {
        if index.is_multiple_of(self.choices_each) {
            self.cached_tokens += cached_tokens;
        }
    }

    /// What is told of the next ids of a choice's prompt, all of it before the choice's first token.
    pub fn take_prompt(&mut self, index: usize, places: Vec<PromptPlace>) {
        if let Some(choice) = self.choices.get_mut(index) {
            choice.places.extend(places);
        }
    }

    /// The chunk of a step, if it has anything to show.
    pub fn chunk(
        &mut self,
        index: usize,
        step: TokenStep,
        tokenizer: &Tokenizer,
    ) -> Option<Completion> {
        self.completion_tokens += 1;
        let end = step.end;
        let stop_reason = step.stop_reason();
        let gathered = self.choices.get_mut(index)?.gatherer.push(step)?;
        let mut chunk = self.write(index, &gathered, end, tokenizer)?;
        if let Some(choice) = chunk.choices.first_mut() {
            choice.stop_reason = stop_reason;
        }
        Some(chunk)
    }

    /// The one chunk of a choice that is its prompt.
    pub fn prompt_chunk(&mut self, index: usize, tokenizer: &Tokenizer) -> Option<Completion> {
        let gathered = Gathered {
            text: String::new(),
            steps: Vec::new(),
            is_first: true,
        };
        self.write(index, &gathered, Some(EndReason::Length), tokenizer)
    }

    fn write(
        &mut self,
        index: usize,
        gathered: &Gathered,
        end: Option<EndReason>,
        tokenizer: &Tokenizer,
    ) -> Option<Completion> {
        let places = std::mem::take(&mut self.choices.get_mut(index)?.places);
        let part = Part {
            text: &gathered.text,
            steps: &gathered.steps,
            begins: gathered.is_first.then_some(&places),
        };
        let prompt = self.prompts.get(index.checked_div(self.choices_each)?)?;
        let mut choice = self.shown.choice(prompt, part, tokenizer);
        choice.index = u32::try_from(index).ok()?;
        choice.finish_reason = end.map(EndReason::openai);
        let usage = if self.shape.continuous_usage {
            Some(ChunkUsage::Known(self.usage()))
        } else {
            self.shape.include_usage.then_some(ChunkUsage::Pending(()))
        };
        Some(self.wrap(vec![choice], usage))
    }

    /// The chunk after the last choice's end, if it was asked for.
    pub fn usage_chunk(&self) -> Option<Completion> {
        self.shape
            .include_usage
            .then(|| self.wrap(Vec::new(), Some(ChunkUsage::Known(self.usage()))))
    }

    fn usage(&self) -> Usage {
        make_usage(
            self.prompts.iter().map(|prompt| prompt.ids.len()).sum(),
            self.completion_tokens,
            self.cached_tokens,
        )
    }

    fn wrap(&self, choices: Vec<CompletionChoice>, usage: Option<ChunkUsage>) -> Completion {
        Completion {
            id: self.identity.id.clone(),
            object: "text_completion",
            created: self.identity.created,
            model: self.identity.model.clone(),
            system_fingerprint: self.identity.system_fingerprint.clone(),
            choices,
            usage,
            service_tier: self.identity.service_tier,
        }
    }
}
