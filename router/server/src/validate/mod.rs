//! The one gate between dialects and the engine.
//!
//! A [`ValidatedCall`] is made here only, from a dialect's call, after bounds, templates and tokenising; and only it
//! makes the engine's sequence requests. So no route can send the engine something unchecked.

mod grammar;
mod lengths;
mod prompts;
mod scoring;
mod submission;
mod terms;
mod token_rules;

use crate::app::AppState;
use crate::engine::{EngineHandle, SequenceStream, SubmitFailure};
use crate::room::Room;
use headrace_dialect::call::{Call, Prompt, Report, Sampling};
use headrace_dialect::refusal::{Dialect, Refusal};
use headrace_dialect::shape::TextShape;
use headrace_dialect::shown_prompt::EchoText;
use headrace_grammar::CompiledGrammar;
use headrace_scheduler::{SamplingParams, SequenceRequest, StopConditions, TokenId};
use headrace_text::StopMode;
use std::sync::Arc;

use lengths::{check_min_tokens, check_prompt, check_truncate};
use prompts::{Cut, EncodedPrompt};
pub(crate) use prompts::{encode_prompt, run_on_pool, run_rendering};
pub(crate) use submission::submit_refusal;
pub(crate) use terms::Sender;
use terms::Treatment;

/// Prompts × choices, ready to run.
#[derive(Debug)]
pub(crate) struct ValidatedCall {
    prompts: Vec<ValidatedPrompt>,
    sampling: SamplingParams,
    stop: StopConditions,
    best_of: u32,
    choices: usize,
    do_sample: bool,
    report: Report,
    /// Every sequence tells of its prompt; else the first of each prompt does.
    each_tells: bool,
    stops: Vec<String>,
    mode: StopMode,
    shows_special: bool,
    treatment: Treatment,
    /// Compiled once for all choices.
    grammar: Option<CompiledGrammar>,
}

/// One prompt's ids and how many tokens may follow.
#[derive(Debug)]
pub(crate) struct ValidatedPrompt {
    pub(crate) ids: Arc<[TokenId]>,
    pub(crate) max_new_tokens: u32,
    pub(crate) echo: Option<Arc<EchoText>>,
}

/// One sequence on its way: its events, and what is needed to read them.
#[derive(Debug)]
pub(crate) struct SubmittedChoice {
    pub(crate) stream: SequenceStream,
    pub(crate) prompt_ids: Arc<[TokenId]>,
    pub(crate) stop: StopConditions,
    /// Its end may come without an id that says so.
    pub(crate) may_end_unmarked: bool,
    /// When sampling.
    pub(crate) seed: Option<u64>,
}

impl ValidatedCall {
    /// Checks a call against the served model and its sender's key, and tokenises it.
    pub(crate) async fn new(
        state: &AppState,
        call: Call,
        dialect: Dialect,
        sender: Sender<'_>,
    ) -> Result<Self, Refusal> {
        let is_chat = |prompt: &Prompt| matches!(prompt, Prompt::Chat(_));
        let is_chat = call.prompts.iter().all(is_chat);
        let made = Self::make(state, call, dialect, sender).await;
        // What is wrong with the prompt is wrong with the messages: a chat has no other.
        made.map_err(|refusal| match refusal.param() {
            Some("prompt") if is_chat => refusal.with_param("messages"),
            _ => refusal,
        })
    }

    async fn make(
        state: &AppState,
        call: Call,
        dialect: Dialect,
        sender: Sender<'_>,
    ) -> Result<Self, Refusal> {
        let services = state.services()?;
        let treatment = Treatment::of(state, &call.terms, sender)?;
        let limits = state.context_limits()?;
        token_rules::check_ids(&call, &limits)?;
        check_truncate(&call, &limits)?;
        let text = call.text;
        let asked = call.asked();
        let (do_sample, resolved) = call.sampling.resolve(&services.sampling_defaults);
        let end_ids = scoring::end_ids(&call, services);
        let mut sampling = sampling_params(&call, &end_ids, do_sample, &resolved);
        let stop = stop_conditions(&call, end_ids);
        let tenant = treatment.tenant;
        sampling.bad_words =
            token_rules::bad_words(state, tenant, call.bad_words, limits.vocab_size).await?;
        token_rules::check_choice(&sampling)?;
        let report = call.report;
        let each_tells = call.stream;
        let truncate = call.truncate.map(|cut| Cut {
            most: cut
                .keep
                .unwrap_or_else(|| limits.input_beside(asked.tokens)),
            cut,
        });
        let room = Room {
            limits,
            dialect,
            asked,
            is_cut: truncate.is_some(),
        };
        let grammar = match call.grammar {
            Some(grammar) => Some(grammar::compile(state, tenant, grammar, dialect).await?),
            None => None,
        };
        let prompts = prompts::encode_all(
            state,
            tenant,
            call.prompts,
            (truncate, report.echo.then_some(text)),
            room,
        )
        .await?;
        let prompts = prompts
            .into_iter()
            .map(|EncodedPrompt { ids, echo }| {
                let max_new_tokens = limits.output_tokens(dialect, ids.len(), asked)?;
                check_prompt(&ids, &limits, dialect)?;
                check_min_tokens(call.min_tokens, max_new_tokens, asked.field)?;
                Ok(ValidatedPrompt {
                    ids: Arc::from(ids),
                    max_new_tokens,
                    echo: echo.map(Arc::new),
                })
            })
            .collect::<Result<Vec<_>, Refusal>>()?;
        let best_of = call.best_of.max(call.choices);
        let told = if each_tells { best_of } else { 1 };
        scoring::check_report(&prompts, told, report, &state.bounds(dialect))?;
        Ok(Self {
            prompts,
            sampling,
            stop,
            best_of,
            choices: usize::try_from(call.choices).unwrap_or(1),
            do_sample,
            report,
            each_tells,
            stops: call.stops,
            mode: stop_mode(dialect, text),
            shows_special: text.shows_special,
            treatment,
            grammar,
        })
    }

    /// What is told beside the output.
    pub(crate) fn report(&self) -> Report {
        self.report
    }

    pub(crate) fn prompts(&self) -> &[ValidatedPrompt] {
        &self.prompts
    }

    /// Stop strings and what becomes of their text.
    pub(crate) fn stops(&self) -> (&[String], StopMode) {
        (&self.stops, self.mode)
    }

    /// Output tokens within which no stop string ends a choice.
    pub(crate) fn min_tokens(&self) -> u32 {
        self.sampling.min_tokens
    }

    /// Special tokens' own text is part of the answer's.
    pub(crate) fn shows_special(&self) -> bool {
        self.shows_special
    }

    /// Choices to answer with, for each prompt.
    pub(crate) fn choices(&self) -> usize {
        self.choices
    }

    /// Sequences that run for each prompt.
    pub(crate) fn sequences_per_prompt(&self) -> usize {
        usize::try_from(self.best_of).unwrap_or(usize::MAX)
    }

    /// Output tokens that may come at most, over all sequences.
    pub(crate) fn max_new_tokens(&self) -> u32 {
        self.prompts
            .iter()
            .map(|prompt| prompt.max_new_tokens)
            .max()
            .unwrap_or(0)
    }

    /// Hands all sequences of a request to the engine: prompts in order, their choices in order. If one is refused, those
    /// before it are cancelled by being dropped.
    pub(crate) async fn submit(
        &self,
        engine: &EngineHandle,
        request_id: &Arc<str>,
    ) -> Result<Vec<SubmittedChoice>, SubmitFailure> {
        let mut submitted = Vec::new();
        for prompt in &self.prompts {
            for choice in 0..self.best_of {
                let mut sampling = self.sampling.clone();
                sampling.seed = sampling.seed.wrapping_add(u64::from(choice));
                let mut stop = self.stop.clone();
                stop.max_new_tokens = prompt.max_new_tokens;
                let seed = self.do_sample.then_some(sampling.seed);
                let request = SequenceRequest {
                    id: engine.next_sequence_id(),
                    prompt: Arc::clone(&prompt.ids),
                    sampling,
                    stop: stop.clone(),
                    prompt_logprobs: self.report.prompt_logprobs.is_some()
                        && (self.each_tells || choice == 0),
                    priority: self.treatment.priority,
                    tenant: self.treatment.tenant.number(),
                    deadline: self.treatment.deadline,
                    namespace: self.treatment.namespace,
                    constrained: self.grammar.is_some(),
                    retention: self.treatment.retention,
                };
                let grammar = self.grammar.clone();
                submitted.push(SubmittedChoice {
                    stream: engine.submit_for(request_id, request, grammar).await?,
                    prompt_ids: Arc::clone(&prompt.ids),
                    may_end_unmarked: self.grammar.is_some() && stop.eos_token_ids.is_empty(),
                    stop,
                    seed,
                });
            }
        }
        Ok(submitted)
    }
}

fn stop_mode(dialect: Dialect, text: TextShape) -> StopMode {
    match dialect {
        Dialect::OpenAi if !text.keeps_stop => StopMode::CutStop,
        Dialect::Native | Dialect::OpenAi => StopMode::KeepStop,
    }
}

/// How its sequences end, but for the number of their tokens.
fn stop_conditions(call: &Call, end_ids: Arc<[TokenId]>) -> StopConditions {
    let is_free = call.grammar.is_none();
    StopConditions {
        max_new_tokens: 1,
        // A grammar's text ends where the grammar says so, whatever else was asked for.
        eos_token_ids: if call.ignore_eos && is_free {
            Arc::from([])
        } else {
            end_ids
        },
        stop_token_ids: call.stop_token_ids.clone(),
        // Under a grammar the masks see to it.
        min_tokens: if is_free { call.min_tokens } else { 0 },
    }
}

fn sampling_params(
    call: &Call,
    end_ids: &[TokenId],
    do_sample: bool,
    resolved: &Sampling,
) -> SamplingParams {
    // An end id may not come before its time, so that the model picks the next best instead of being cut there.
    let suppressed = if call.min_tokens > 0 {
        let eos = end_ids
            .iter()
            .copied()
            .filter(|_| !call.ignore_eos || call.grammar.is_some());
        eos.chain(call.stop_token_ids.iter().copied()).collect()
    } else {
        Vec::new()
    };
    SamplingParams {
        do_sample,
        temperature: resolved.temperature,
        top_k: resolved.top_k,
        top_p: resolved.top_p,
        min_p: resolved.min_p,
        typical_p: resolved.typical_p,
        repetition_penalty: resolved.repetition_penalty,
        frequency_penalty: resolved.frequency_penalty,
        presence_penalty: resolved.presence_penalty,
        // Clients get it back and send it again; JavaScript's numbers hold 53 bits.
        seed: resolved.seed.unwrap_or_else(|| rand::random::<u64>() >> 11),
        top_n: call.report.top_n,
        prompt_top_n: call.report.prompt_logprobs.unwrap_or(0),
        logprobs: call.report.logprobs,
        logit_bias: call.logit_bias.clone(),
        suppressed_token_ids: suppressed,
        min_tokens: call.min_tokens,
        allowed_token_ids: Arc::from(call.allowed_token_ids.as_slice()),
        bad_words: Arc::from([]),
    }
}
