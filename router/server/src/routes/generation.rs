//! A request's sequences while they run: what the engine reports, turned into text, choice by choice.

mod choice;
mod collect;
mod engine_terms;
mod happening;

pub(crate) use happening::{Happening, PromptInfo};

use choice::{LastToken, RunningChoice};
use engine_terms::{failure_of, interruption, prompt_place, raw_token};

use crate::app::AppState;
use crate::engine::SequenceEvent;
use crate::house::Permit;
use crate::request_log::RequestLog;
use crate::running::Registration;
use crate::validate::{Sender, SubmittedChoice, ValidatedCall, submit_refusal};
use headrace_dialect::call::Call;
use headrace_dialect::choice::ChoiceText;
use headrace_dialect::end::EndReason;
use headrace_dialect::failure::Failure;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_scheduler::{FinishReason, SampledToken, Time};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// All sequences of a request. Dropping it cancels those that have not ended.
#[derive(Debug)]
pub(crate) struct Generation {
    choices: Vec<Option<RunningChoice>>,
    /// Where the next look for events begins, so that no choice starves another.
    turn: usize,
    seeds: Vec<Option<u64>>,
    prompts: PromptInfo,
    log: Arc<RequestLog>,
    /// On the engine's clock.
    arrival: Time,
    is_stream: bool,
    prompt_only: bool,
    last_end: Option<EndReason>,
    /// Until the last choice's end, or an error: what can still be aborted.
    registration: Option<Registration>,
    /// A permit, given back at the end.
    permit: Option<Arc<Permit>>,
}

impl Generation {
    /// Validates, tokenises and submits a call. Several may share a request's permit.
    pub(crate) async fn start(
        state: &AppState,
        log: &Arc<RequestLog>,
        permit: impl Into<Arc<Permit>>,
        call: Call,
        dialect: Dialect,
    ) -> Result<Self, Refusal> {
        Self::start_named(state, log, None, permit, call, dialect).await
    }

    /// As [`Generation::start`], for what has a name of its own beside the request's.
    pub(crate) async fn start_named(
        state: &AppState,
        log: &Arc<RequestLog>,
        name: Option<String>,
        permit: impl Into<Arc<Permit>>,
        call: Call,
        dialect: Dialect,
    ) -> Result<Self, Refusal> {
        let caller = log.caller();
        let registration = state.running().register(log, name, &caller);
        let submit = Self::submit(state, log, call, dialect, &registration);
        // What an abort leaves unfinished is dropped, and with it whatever was submitted.
        let submitted = tokio::select! {
            biased;
            () = registration.aborted() => Err(Failure::Aborted.refusal()),
            submitted = submit => submitted,
        };
        let mut generation = submitted?;
        generation.registration = Some(registration);
        generation.permit = Some(permit.into());
        Ok(generation)
    }

    async fn submit(
        state: &AppState,
        log: &Arc<RequestLog>,
        call: Call,
        dialect: Dialect,
        registration: &Registration,
    ) -> Result<Self, Refusal> {
        let is_stream = call.stream;
        let caller = log.caller();
        let sender = Sender {
            caller: &caller,
            arrival: log.arrival(),
        };
        let validated = ValidatedCall::new(state, call, dialect, sender).await?;
        let prompts = PromptInfo {
            ids: validated
                .prompts()
                .iter()
                .map(|prompt| Arc::clone(&prompt.ids))
                .collect(),
            choices: validated.choices(),
            sequences: validated.sequences_per_prompt(),
            echoes: validated
                .prompts()
                .iter()
                .map(|prompt| prompt.echo.clone())
                .collect(),
        };
        log.note(|counts, times| {
            times.validated = Some(log.elapsed());
            counts.prompt += prompts.tokens();
            counts.max_new = counts.max_new.max(validated.max_new_tokens());
        });
        let submitted = validated
            .submit(state.engine(), log.request_id())
            .await
            .map_err(|failure| submit_refusal(&failure))?;
        let sequences = submitted.iter().map(|choice| choice.stream.id()).collect();
        registration.submitted(sequences);
        if registration.is_aborted() {
            return Err(Failure::Aborted.refusal());
        }
        let services = state.services()?;
        let (stops, mode) = validated.stops();
        let mut choices = Vec::with_capacity(submitted.len());
        let mut seeds = Vec::with_capacity(submitted.len());
        for SubmittedChoice {
            stream,
            prompt_ids,
            stop,
            may_end_unmarked,
            seed,
        } in submitted
        {
            let text = ChoiceText::new(&services.tokenizer, &prompt_ids, stops, mode)
                .map_err(|error| Refusal::validation("stop", error.to_string()))?
                .showing_special(validated.shows_special())
                .with_min_tokens(validated.min_tokens());
            seeds.push(seed);
            let last = if may_end_unmarked {
                LastToken::ByEvent(None)
            } else {
                LastToken::ById
            };
            choices.push(Some(RunningChoice {
                stream,
                text,
                stop,
                last,
            }));
        }
        Ok(Self {
            choices,
            turn: 0,
            seeds,
            prompts,
            log: Arc::clone(log),
            arrival: state.engine().time_of(log.arrival()),
            is_stream,
            prompt_only: validated.report().prompt_only,
            last_end: None,
            registration: None,
            permit: None,
        })
    }

    pub(crate) fn log(&self) -> &Arc<RequestLog> {
        &self.log
    }

    pub(crate) fn prompts(&self) -> &PromptInfo {
        &self.prompts
    }

    /// The seed of a choice, when sampling.
    pub(crate) fn seed(&self, choice: usize) -> Option<u64> {
        self.seeds.get(choice).copied().flatten()
    }

    /// The next thing that happens; `None` after the last choice's end. After an error nothing more comes.
    pub(crate) async fn next(&mut self) -> Option<Result<Happening, Refusal>> {
        loop {
            let (choice, event) = self.next_event().await?;
            let result = if self
                .registration
                .as_ref()
                .is_some_and(Registration::is_aborted)
            {
                Err(Failure::Aborted.refusal())
            } else {
                self.take(choice, event)
            };
            if result.is_err() {
                self.choices.clear();
                self.registration = None;
            }
            match result {
                Ok(None) => {}
                Ok(Some(happening)) => return Some(Ok(happening)),
                Err(refusal) => return Some(Err(refusal)),
            }
        }
    }

    /// The next event of any choice that still runs; `None` when none does.
    async fn next_event(&mut self) -> Option<(usize, Option<SequenceEvent>)> {
        if self.choices.iter().all(Option::is_none) {
            return None;
        }
        let count = self.choices.len();
        let first = self.turn;
        let choices = &mut self.choices;
        let (choice, event) = std::future::poll_fn(|context| {
            for index in (first..count).chain(0..first) {
                let Some(Some(running)) = choices.get_mut(index) else {
                    continue;
                };
                // Receiving is cancel-safe: a future that is dropped unready has taken nothing.
                let receive = pin!(running.stream.recv());
                if let Poll::Ready(event) = receive.poll(context) {
                    return Poll::Ready((index, event));
                }
            }
            Poll::Pending
        })
        .await;
        self.turn = (choice + 1) % count;
        Some((choice, event))
    }

    fn take(
        &mut self,
        choice: usize,
        event: Option<SequenceEvent>,
    ) -> Result<Option<Happening>, Refusal> {
        match event {
            Some(SequenceEvent::Started { cached_tokens, at }) => {
                let is_first_of_prompt = choice.is_multiple_of(self.prompts.sequences);
                self.log.note(|counts, times| {
                    // Not when this task hears of it: the step may be half computed by then.
                    let started = at.0.saturating_sub(self.arrival.0);
                    times.started.get_or_insert(started);
                    if is_first_of_prompt {
                        counts.cached += cached_tokens;
                    }
                });
                Ok(Some(Happening::Started {
                    choice,
                    cached_tokens,
                }))
            }
            Some(SequenceEvent::PromptLogprobs(tokens)) => Ok(Some(Happening::PromptLogprobs {
                choice,
                places: tokens.into_iter().map(prompt_place).collect(),
            })),
            Some(SequenceEvent::Token(token)) => Ok(self.token(choice, token)),
            Some(SequenceEvent::Finished(reason)) => self
                .finish(choice, reason)
                .map_or_else(|| Err(self.incomplete()), |last| Ok(Some(last))),
            None => Err(self.incomplete()),
            Some(SequenceEvent::Failed(failure)) => Err(failure_of(failure).refusal()),
            Some(SequenceEvent::Interrupted(cause)) => Err(interruption(cause).refusal()),
            Some(SequenceEvent::GrammarDeadEnd(reason)) => {
                Err(Failure::GrammarDeadEnd(reason).refusal())
            }
        }
    }

    fn incomplete(&self) -> Refusal {
        if self.is_stream {
            Refusal::new(Cause::IncompleteStream, "Incomplete generation stream")
        } else {
            Refusal::new(Cause::Incomplete, "Incomplete generation")
        }
    }

    fn token(&mut self, choice: usize, token: SampledToken) -> Option<Happening> {
        let running = self.choices.get_mut(choice)?.as_mut()?;
        match &mut running.last {
            LastToken::ById => {
                let end = running.end_by_id(token.id);
                self.show(choice, token, end)
            }
            LastToken::ByEvent(latest) => {
                let before = latest.replace(token)?;
                self.show(choice, before, None)
            }
        }
    }

    /// The engine says that a choice is over. Where its last id said so before, this comes too late to be heard.
    fn finish(&mut self, choice: usize, reason: FinishReason) -> Option<Happening> {
        let end = match reason {
            // There are no end ids here.
            FinishReason::Eos => EndReason::GrammarComplete,
            FinishReason::StopToken(id) => EndReason::StopToken(id),
            FinishReason::Length => EndReason::Length,
        };
        let running = self.choices.get_mut(choice)?.as_mut()?;
        let LastToken::ByEvent(latest) = &mut running.last else {
            return None;
        };
        let token = latest.take()?;
        self.show(choice, token, Some(end))
    }

    fn show(
        &mut self,
        choice: usize,
        token: SampledToken,
        end: Option<EndReason>,
    ) -> Option<Happening> {
        let slot = self.choices.get_mut(choice)?;
        let running = slot.as_mut()?;
        if self.prompt_only {
            // The engine samples after every prompt; here nobody asked for it.
            let _ = running.stream.try_recv();
            *slot = None;
            self.log
                .note(|_, times| times.last_token = Some(self.log.elapsed()));
            self.note_end(EndReason::Length);
            return Some(Happening::PromptOnly { choice });
        }
        let step = running.text.push(raw_token(token), end);
        self.log.note(|counts, times| {
            let now = self.log.elapsed();
            times.first_token.get_or_insert(now);
            times.last_token = Some(now);
            counts.generated += 1;
        });
        if let Some(reason) = step.end {
            // The engine's own end is on its way or there already. Reading it spares a needless cancel; after a
            // stop string, dropping the stream is the cancel.
            let _ = running.stream.try_recv();
            *slot = None;
            self.note_end(reason);
        }
        Some(Happening::Token { choice, step })
    }

    /// A choice has ended.
    fn note_end(&mut self, reason: EndReason) {
        self.last_end = Some(reason);
        if self.choices.iter().all(Option::is_none) {
            self.registration = None;
            self.log.finish(reason);
        }
    }
}
