//! What requests that score prompts, or fill gaps in them, come to.

use super::ValidatedPrompt;
use crate::services::ModelServices;
use headrace_dialect::bounds::Bounds;
use headrace_dialect::call::{Call, Prompt, Report};
use headrace_dialect::refusal::{Dialect, Refusal};
use headrace_scheduler::TokenId;
use std::sync::Arc;

/// The model's end ids and, where a gap is filled, the control tokens that no text holds.
pub(super) fn end_ids(call: &Call, services: &ModelServices) -> Arc<[TokenId]> {
    let fills_gap = |prompt: &Prompt| matches!(prompt, Prompt::Infill { .. });
    let model = &services.eos_token_ids;
    match &services.infill {
        Some(infill) if call.prompts.iter().any(fills_gap) => {
            let more = infill.end_ids().iter().filter(|id| !model.contains(id));
            model.iter().chain(more).copied().collect()
        }
        _ => Arc::clone(model),
    }
}

/// What is to be told of the prompts, by each of `told` sequences, must be within bounds.
pub(super) fn check_report(
    prompts: &[ValidatedPrompt],
    told: u32,
    report: Report,
    bounds: &Bounds,
) -> Result<(), Refusal> {
    let Some(top_n) = report.prompt_logprobs else {
        return Ok(());
    };
    let places: usize = prompts.iter().map(|prompt| prompt.ids.len()).sum();
    let each = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let entries = places
        .saturating_mul(each(top_n).saturating_add(1))
        .saturating_mul(each(told));
    let field = match (bounds.dialect, report.echo) {
        (Dialect::Native, _) => "decoder_input_details",
        (Dialect::OpenAi, true) => "echo",
        (Dialect::OpenAi, false) => "prompt_logprobs",
    };
    bounds.check_prompt_entries(field, entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headrace_dialect::bounds::Flags;

    fn check(places: usize, top_n: u32, told: u32) -> Result<(), Refusal> {
        let flags = Flags::default();
        let prompt = ValidatedPrompt {
            ids: vec![0; places].into(),
            max_new_tokens: 1,
            echo: None,
        };
        let report = Report {
            prompt_logprobs: Some(top_n),
            ..Report::default()
        };
        check_report(&[prompt], told, report, &Bounds::of(Dialect::OpenAi, flags))
    }

    #[test]
    fn case_3_5_a_long_prompt_with_many_logprobs_is_refused_before_it_is_computed() {
        let refusal = check(100_000, 20, 1).unwrap_err();
        let message = refusal.message();
        assert!(message.contains("`prompt_logprobs`"), "{message}");
        assert!(message.contains("2100000 logprobs"), "{message}");
        assert!(check(100_000, 0, 1).is_ok());
        assert!(check(100_000, 0, 8).is_err(), "each choice tells them");
        assert!(check(1000, 20, 8).is_ok());
    }
}
