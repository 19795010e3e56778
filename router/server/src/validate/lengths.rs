//! Bounds that need a prompt's ids, or the context that is served.

use headrace_dialect::bounds::ContextLimits;
use headrace_dialect::call::Call;
use headrace_dialect::refusal::{Dialect, Refusal};
use headrace_dialect::shape::Truncation;
use headrace_scheduler::TokenId;

pub(super) fn check_truncate(call: &Call, limits: &ContextLimits) -> Result<(), Refusal> {
    let Some(Truncation {
        field,
        keep: Some(keep),
        ..
    }) = call.truncate
    else {
        return Ok(());
    };
    if keep == 0 || keep > limits.max_input_tokens {
        return Err(Refusal::validation(
            field,
            format!(
                "`{field}` must be strictly positive and less than {}. Given: {keep}",
                limits.max_input_tokens
            ),
        ));
    }
    Ok(())
}

/// What a dialect calls its prompts.
pub(super) fn prompt_field(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Native => "inputs",
        Dialect::OpenAi => "prompt",
    }
}

pub(super) fn check_prompt(
    ids: &[TokenId],
    limits: &ContextLimits,
    dialect: Dialect,
) -> Result<(), Refusal> {
    let field = prompt_field(dialect);
    if ids.is_empty() {
        return Err(Refusal::validation(
            field,
            format!("`{field}` cannot be empty"),
        ));
    }
    match ids.iter().find(|id| **id >= limits.vocab_size) {
        Some(id) => Err(Refusal::validation(
            field,
            format!(
                "`{field}`: token id {id} is not below the vocabulary size {}",
                limits.vocab_size
            ),
        )),
        None => Ok(()),
    }
}

/// `field`: the request's name for `max_new_tokens`.
pub(super) fn check_min_tokens(
    min_tokens: u32,
    max_new_tokens: u32,
    field: &str,
) -> Result<(), Refusal> {
    if min_tokens > max_new_tokens {
        return Err(Refusal::validation(
            "min_tokens",
            format!("`min_tokens` must be <= `{field}`. Given: {min_tokens} and {max_new_tokens}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompts_faults_name_the_dialects_field() {
        let limits = ContextLimits {
            max_input_tokens: 9,
            max_total_tokens: 10,
            vocab_size: 100,
        };
        for (dialect, field) in [(Dialect::Native, "inputs"), (Dialect::OpenAi, "prompt")] {
            assert_eq!(
                check_prompt(&[1, 100], &limits, dialect)
                    .unwrap_err()
                    .message(),
                format!(
                    "Input validation error: `{field}`: token id 100 is not below the vocabulary size 100"
                )
            );
            assert_eq!(
                check_prompt(&[], &limits, dialect).unwrap_err().message(),
                format!("Input validation error: `{field}` cannot be empty")
            );
        }
    }
}
