//! What the text of a choice shows, and how long prompts are cut.

use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::shape::{TextShape, Truncation, TruncationSide};

/// `include_stop_str_in_output`, `skip_special_tokens` and `spaces_between_special_tokens`.
pub(super) fn read_text_shape(body: &mut Fields<'_>) -> Result<TextShape, Refusal> {
    // Text here is made of the tokens' own bytes: with or without this there are no other spaces in it, as with
    // transformers' fast tokenizers.
    body.boolean("spaces_between_special_tokens")?;
    Ok(TextShape {
        keeps_stop: body.boolean("include_stop_str_in_output")?.unwrap_or(false),
        shows_special: !body.boolean("skip_special_tokens")?.unwrap_or(true),
    })
}

/// `truncate_prompt_tokens` and `truncation_side`, or TGI's `truncate`.
pub(super) fn read_truncation(body: &mut Fields<'_>) -> Result<Option<Truncation>, Refusal> {
    let field = "truncate_prompt_tokens";
    let side = match body.string("truncation_side")? {
        None | Some("left") => TruncationSide::Left,
        Some("right") => TruncationSide::Right,
        Some(_) => {
            return Err(Refusal::validation(
                "truncation_side",
                "`truncation_side` must be \"left\" or \"right\"",
            ));
        }
    };
    let short = body.u32("truncate")?;
    let given = body.integer(field)?;
    if short.is_some() && given.is_some() {
        return Err(Refusal::validation(
            field,
            "`truncate_prompt_tokens` and `truncate` exclude each other",
        ));
    }
    let keep = match given {
        None => {
            return Ok(short.map(|keep| Truncation {
                side,
                ..Truncation::to_last(keep)
            }));
        }
        Some(-1) => None,
        Some(keep) => Some(u32::try_from(keep).map_err(|_| {
            Refusal::validation(
                field,
                format!("`truncate_prompt_tokens` must be -1 or strictly positive. Given: {keep}"),
            )
        })?),
    };
    Ok(Some(Truncation { field, keep, side }))
}
