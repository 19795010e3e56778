//! A program's instructions, changed so that whatever makes values grow, or reads large ones, goes through this crate.
//!
//! Operators become calls of filters of ours (Python's rules, and a charge: see `budget`); new lists and objects are
//! weighed; what the engine goes over (lists of a loop, arguments with a star) is charged first; and raw text is
//! emitted as a value, so that the formatter sees every byte that is written, into captures too. Other templates cannot
//! be taken in: there are none.

use super::depth::FACTOR;
use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::Value;
use std::collections::{HashMap, HashSet};

/// Filters that stand for operators. No template can write these names.
pub(super) const ADD: &str = "+add";
pub(super) const CONCAT: &str = "+concat";
pub(super) const REMAINDER: &str = "+rem";
pub(super) const MULTIPLY: &str = "+mul";
pub(super) const EQ: &str = "+eq";
pub(super) const NE: &str = "+ne";
pub(super) const LT: &str = "+lt";
pub(super) const LTE: &str = "+lte";
pub(super) const GT: &str = "+gt";
pub(super) const GTE: &str = "+gte";
pub(super) const IN: &str = "+in";
pub(super) const SLICE: &str = "+slice";
/// `value[key]`.
pub(super) const ITEM: &str = "+item";
/// Gives both values back as a list, charged for comparing them.
pub(super) const BOTH: &str = "+both";
/// Gives its value back, charged for going over it once.
pub(super) const READ: &str = "+read";
/// Gives its value back, weighed with all that is in it.
pub(super) const WEIGH_NESTED: &str = "+nested";
/// The same for a value that a namespace is to hold.
pub(super) const HELD: &str = "+held";
/// The same for one that a loop is to hold (`loop.changed`).
pub(super) const CHANGED: &str = "+changed";
/// Gives its value back, charged for a macro.
pub(super) const MACRO: &str = "+macro";
/// Several lists as one, and several objects.
pub(super) const LISTS: &str = "+lists";
pub(super) const OBJECTS: &str = "+objects";
/// Fail.
pub(super) const NO_TEMPLATES: &str = "+templates";
pub(super) const NO_CHANGES: &str = "+changes";

/// Filters that the engine remembers by number during one run.
const MOST_NUMBERS: u8 = 50;
const NO_NUMBER: u8 = u8::MAX;

/// Longest constant key that needs no charge.
const SHORT_KEY: usize = 1024;

/// The engine looks a filter up by name, and from the second time on by a small number. The compiler numbers a
/// template's own; with ours among them all are numbered anew.
#[derive(Default)]
struct Numbers<'source>(HashMap<&'source str, u8>);

impl<'source> Numbers<'source> {
    fn of(&mut self, name: &'source str) -> u8 {
        let next = u8::try_from(self.0.len()).unwrap_or(NO_NUMBER);
        if next < MOST_NUMBERS {
            *self.0.entry(name).or_insert(next)
        } else {
            self.0.get(name).copied().unwrap_or(NO_NUMBER)
        }
    }
}

/// The same program with calls of ours in it.
pub(super) fn rewritten<'source>(
    file: &'static str,
    source: &'source str,
    old: &Instructions<'source>,
) -> Instructions<'source> {
    let count = u32::try_from(old.len()).unwrap_or(u32::MAX);
    let all = || (0..count).filter_map(|index| Some((index, old.get(index)?)));
    let targets: HashSet<u32> = all().filter_map(|(_, it)| target(it)).collect();
    // Where each instruction comes to stand; jumps may also go behind the last.
    let mut places = Vec::with_capacity(old.len() + 1);
    let mut replacements = Vec::with_capacity(old.len());
    let mut next = 0;
    let mut before = None;
    for (index, instruction) in all() {
        // What stands before is what ran before, unless something jumps here.
        let known = before.filter(|_| !targets.contains(&index));
        let replacement = replacement(instruction, known);
        places.push(next);
        next += u32::try_from(replacement.len()).unwrap_or(1);
        replacements.push((index, replacement));
        before = Some(instruction);
    }
    places.push(next);
    let place = |target: u32| {
        places
            .get(usize::try_from(target).unwrap_or(usize::MAX))
            .copied()
            .unwrap_or(next)
    };
    let mut numbers = Numbers::default();
    let mut new = Instructions::new(file, source);
    for (index, replacement) in replacements {
        for instruction in replacement {
            let instruction = match instruction {
                Instruction::Iterate(target) => Instruction::Iterate(place(target)),
                Instruction::Jump(target) => Instruction::Jump(place(target)),
                Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(place(target)),
                Instruction::JumpIfFalseOrPop(target) => {
                    Instruction::JumpIfFalseOrPop(place(target))
                }
                Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(place(target)),
                Instruction::BuildMacro(name, offset, flags) => {
                    Instruction::BuildMacro(name, place(offset), flags)
                }
                Instruction::ApplyFilter(name, count, _) => {
                    Instruction::ApplyFilter(name, count, numbers.of(name))
                }
                other => other,
            };
            match (old.get_span(index), old.get_line(index)) {
                (Some(span), _) => new.add_with_span(instruction, span),
                (None, Some(line)) => {
                    new.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX))
                }
                (None, None) => new.add(instruction),
            };
        }
    }
    new
}

/// Where an instruction may go on.
fn target(instruction: &Instruction<'_>) -> Option<u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(*target),
        _ => None,
    }
}

fn call(name: &'static str, count: u16) -> Instruction<'static> {
    Instruction::ApplyFilter(name, Some(count), NO_NUMBER)
}

/// What stands for one instruction, with the targets of its jumps as they were. `before` is the one that ran before it,
/// where that is sure.
fn replacement<'source>(
    instruction: &Instruction<'source>,
    before: Option<&Instruction<'source>>,
) -> Vec<Instruction<'source>> {
    let same = || instruction.clone();
    match instruction {
        Instruction::EmitRaw(text) => vec![
            Instruction::LoadConst(Value::from(*text)),
            Instruction::Emit,
        ],
        // It has done its work: the compiler took nothing for constant.
        Instruction::ApplyFilter(FACTOR, Some(1), _) => Vec::new(),
        Instruction::Add => vec![call(ADD, 2)],
        Instruction::StringConcat => vec![call(CONCAT, 2)],
        Instruction::Rem => vec![call(REMAINDER, 2)],
        Instruction::Mul => vec![call(MULTIPLY, 2)],
        Instruction::Eq => vec![call(EQ, 2)],
        Instruction::Ne => vec![call(NE, 2)],
        Instruction::Lt => vec![call(LT, 2)],
        Instruction::Lte => vec![call(LTE, 2)],
        Instruction::Gt => vec![call(GT, 2)],
        Instruction::Gte => vec![call(GTE, 2)],
        Instruction::In => vec![call(IN, 2)],
        Instruction::Slice => vec![call(SLICE, 4)],
        Instruction::GetItem if has_short_key(before) => vec![same()],
        Instruction::GetItem => vec![call(ITEM, 2)],
        Instruction::CompareAndPreserve(_) => {
            vec![call(BOTH, 2), Instruction::UnpackList(2), same()]
        }
        Instruction::BuildList(_) | Instruction::BuildMap(_) => {
            vec![same(), call(WEIGH_NESTED, 1)]
        }
        // The value lies under its namespace.
        Instruction::SetAttr(_) => vec![Instruction::Swap, call(HELD, 1), Instruction::Swap, same()],
        Instruction::PushLoop(_)
        | Instruction::UnpackList(_)
        | Instruction::FastRecurse
        // A loop that is called by another name is one of these.
        | Instruction::CallFunction(_, Some(1)) => vec![call(READ, 1), same()],
        Instruction::UnpackLists(count) => match u16::try_from(*count) {
            Ok(count) => vec![call(LISTS, count), Instruction::UnpackLists(1)],
            Err(_) => vec![call(NO_CHANGES, 1)],
        },
        Instruction::MergeKwargs(count) => match u16::try_from(*count) {
            Ok(count) => vec![call(OBJECTS, count), Instruction::MergeKwargs(1)],
            Err(_) => vec![call(NO_CHANGES, 1)],
        },
        Instruction::CallMethod("changed", Some(2)) => vec![call(CHANGED, 1), same()],
        Instruction::CallMethod("changed", _) => vec![call(NO_CHANGES, 1), same()],
        Instruction::BuildMacro(..) => vec![call(MACRO, 1), same()],
        Instruction::Include(_) | Instruction::LoadBlocks => {
            vec![call(NO_TEMPLATES, 1), Instruction::DiscardTop]
        }
        _ => vec![same()],
    }
}

/// Whether the key of a `[…]` is a short constant text: no place in a text, and nothing to hash for long.
fn has_short_key(before: Option<&Instruction<'_>>) -> bool {
    matches!(before, Some(Instruction::LoadConst(key)) if key.as_str().is_some_and(|key| key.len() <= SHORT_KEY))
}
