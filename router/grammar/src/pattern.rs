//! A client's regex, checked and made ready for the library.
//!
//! A regex constrains the whole text, so `^` at its start and `$` at its end say nothing and are taken away; what
//! looks around itself anywhere else cannot be enforced and is refused by name.

use crate::error::{GrammarError, first_line};
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Bytes of a regex.
pub(crate) const MOST_BYTES: usize = 16 << 10;
/// Nested groups and repetitions.
const MOST_NESTING: u32 = 100;
/// Repetitions of one part, those around it counted too.
const MOST_REPETITIONS: u64 = 100_000;
/// Ranges of all its classes; `\w` has 770.
const MOST_RANGES: usize = 100_000;

/// The regex for the library: the same language, without anchors.
pub(crate) fn prepare(what: &'static str, source: &str) -> Result<String, GrammarError> {
    let hir = parse(what, source)?;
    let bare = without_anchors(without_anchors(hir.clone(), End::First), End::Last);
    find_anchor(&bare).map_err(|reason| GrammarError::Pattern {
        what,
        reason: reason.to_owned(),
    })?;
    if bare == hir && !source.contains(['\n', '\r', '\t']) {
        return Ok(source.to_owned());
    }
    // White space that the flag `x` ignores would mean itself to the library; printed, there is none.
    Ok(bare.to_string())
}

/// Checks a pattern that may match anywhere in a text.
pub(crate) fn check_search(source: &str) -> Result<(), GrammarError> {
    let what = "pattern";
    let hir = parse(what, source)?;
    let bare = without_anchors(without_anchors(hir, End::First), End::Last);
    find_anchor(&bare).map_err(|reason| GrammarError::Pattern {
        what,
        reason: reason.to_owned(),
    })
}

/// A pattern within its bounds.
pub(crate) fn parse(what: &'static str, source: &str) -> Result<Hir, GrammarError> {
    if source.len() > MOST_BYTES {
        return Err(GrammarError::TooLong {
            what,
            bytes: source.len(),
            limit: MOST_BYTES,
        });
    }
    let invalid = |reason: String| GrammarError::Pattern { what, reason };
    let hir = regex_syntax::ParserBuilder::new()
        .nest_limit(MOST_NESTING)
        .build()
        .parse(source)
        .map_err(|error| invalid(reason(&error)))?;
    check_size(&hir, 1, &mut 0).map_err(|reason| invalid(reason.to_owned()))?;
    Ok(hir)
}

/// The parser's words with the place, on one line.
fn reason(error: &regex_syntax::Error) -> String {
    let (kind, offset) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start.offset),
        regex_syntax::Error::Translate(error) => {
            (error.kind().to_string(), error.span().start.offset)
        }
        other => return first_line(&other.to_string()),
    };
    format!("{} at byte {offset}", first_line(&kind))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// Takes the anchors away that stand at this end of the whole.
fn without_anchors(hir: Hir, end: End) -> Hir {
    let anchor = match end {
        End::First => Look::Start,
        End::Last => Look::End,
    };
    match hir.into_kind() {
        HirKind::Look(look) if look == anchor => Hir::empty(),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Repetition(repetition) => Hir::repetition(repetition),
        HirKind::Capture(mut capture) => {
            let taken = std::mem::replace(&mut *capture.sub, Hir::empty());
            *capture.sub = without_anchors(taken, end);
            Hir::capture(capture)
        }
        HirKind::Concat(mut parts) => {
            let place = match end {
                End::First => 0,
                End::Last => parts.len() - 1,
            };
            if let Some(part) = parts.get_mut(place) {
                let taken = std::mem::replace(part, Hir::empty());
                *part = without_anchors(taken, end);
            }
            Hir::concat(parts)
        }
        HirKind::Alternation(parts) => Hir::alternation(
            parts
                .into_iter()
                .map(|part| without_anchors(part, end))
                .collect(),
        ),
    }
}

/// Refuses what looks around itself.
fn find_anchor(hir: &Hir) -> Result<(), &'static str> {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => Ok(()),
        HirKind::Look(look) => Err(match look {
            Look::Start | Look::StartLF | Look::StartCRLF => "`^` is supported at the start only",
            Look::End | Look::EndLF | Look::EndCRLF => "`$` is supported at the end only",
            _ => "word boundaries are not supported",
        }),
        HirKind::Capture(capture) => find_anchor(&capture.sub),
        HirKind::Repetition(repetition) => find_anchor(&repetition.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().try_for_each(find_anchor)
        }
    }
}

/// Refuses what is too large.
fn check_size(hir: &Hir, repeated: u64, ranges: &mut usize) -> Result<(), &'static str> {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => Ok(()),
        HirKind::Class(class) => {
            *ranges += match class {
                Class::Unicode(class) => class.ranges().len(),
                Class::Bytes(class) => class.ranges().len(),
            };
            if *ranges > MOST_RANGES {
                return Err("its classes have more than 100000 ranges of characters");
            }
            Ok(())
        }
        HirKind::Capture(capture) => check_size(&capture.sub, repeated, ranges),
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(repetition.min).max(1);
            let repeated = repeated.saturating_mul(u64::from(most));
            if repeated > MOST_REPETITIONS {
                return Err("a part of it is repeated more than 100000 times");
            }
            check_size(&repetition.sub, repeated, ranges)
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts
            .iter()
            .try_for_each(|part| check_size(part, repeated, ranges)),
    }
}
