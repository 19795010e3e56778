//! A whole answer out of what happens, for answers that are not streamed.

use super::{Generation, Happening};
use headrace_dialect::choice::ChoiceRecord;
use headrace_dialect::refusal::Refusal;
use std::sync::Arc;

impl Generation {
    /// Runs to the end: `records[prompt][sequence]`.
    pub(crate) async fn collect(mut self) -> Result<Vec<Vec<ChoiceRecord>>, Refusal> {
        let mut records: Vec<ChoiceRecord> = self
            .seeds
            .iter()
            .map(|seed| ChoiceRecord {
                seed: *seed,
                ..ChoiceRecord::default()
            })
            .collect();
        while let Some(happening) = self.next().await {
            match happening? {
                Happening::Started {
                    choice,
                    cached_tokens,
                } => {
                    if let Some(record) = records.get_mut(choice) {
                        record.cached_tokens = cached_tokens;
                    }
                }
                Happening::PromptLogprobs { choice, places } => {
                    if let Some(record) = records.get_mut(choice) {
                        record.push_prompt(places);
                    }
                }
                Happening::PromptOnly { choice } => {
                    if let Some(record) = records.get_mut(choice) {
                        record.prompt_only = true;
                    }
                }
                Happening::Token { choice, step } => {
                    if let Some(record) = records.get_mut(choice) {
                        record.push(step);
                    }
                }
            }
        }
        let mut grouped = Vec::with_capacity(self.prompts.ids.len());
        let mut records = records.into_iter();
        for _ in &self.prompts.ids {
            let mut group: Vec<_> = records.by_ref().take(self.prompts.sequences).collect();
            // One sequence tells of the prompt for all of them.
            if let Some((first, others)) = group.split_first_mut() {
                for record in others {
                    record.prompt = Arc::clone(&first.prompt);
                }
            }
            grouped.push(group);
        }
        Ok(grouped)
    }
}
