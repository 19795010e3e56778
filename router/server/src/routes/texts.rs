//! A generation whose answer shows texts and nothing else.

use super::generation::Generation;
use headrace_dialect::choice::rank;
use headrace_dialect::refusal::{Cause, Refusal};

/// Runs to the end: the text of each prompt's likeliest sequence, in the order of the prompts.
pub(super) async fn texts(generation: Generation) -> Result<Vec<String>, Refusal> {
    let records = generation.collect().await?;
    records
        .into_iter()
        .map(|mut sequences| {
            rank(&mut sequences);
            let best = sequences.into_iter().next();
            best.filter(|best| best.end().is_some())
                .map(|best| best.text)
                .ok_or_else(|| Refusal::new(Cause::Incomplete, "Incomplete generation"))
        })
        .collect()
}
