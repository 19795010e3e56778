//! A template's instructions, changed so that whatever makes values grow goes through this crate.
//!
//! The engine compiles a template to instructions of a stack machine. Here `+`, `~` and `%` become calls of filters of
//! ours (Python's rules, and a charge: see `budget`), results of `*` and new lists and objects are weighed, and raw text
//! is emitted as a value, so that the formatter sees every byte that is written, into captures too.

use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, Vm, WhitespaceConfig, make_string_output, parse,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error};
use self_cell::self_cell;
use std::collections::BTreeMap;
use std::fmt;

/// Filters that stand for operators. No template can write these names.
pub(super) const ADD: &str = "+add";
pub(super) const CONCAT: &str = "+concat";
pub(super) const REMAINDER: &str = "+rem";
/// Gives its value back, weighed by itself.
pub(super) const WEIGH: &str = "+weigh";
/// Gives its value back, weighed with all that is in it.
pub(super) const WEIGH_NESTED: &str = "+nested";
/// The same for an object that a namespace is to hold.
pub(super) const HELD: &str = "+held";

/// Names the source in errors of the engine; nobody sees it.
const FILE: &str = "chat_template";

/// The engine remembers the filters of one run under small numbers, of which the compiler gives them to a template's own
/// filters from 0 on. These are the last of them, for ours; a template with nearly all the others does without.
const NAMES: [&str; 6] = [ADD, CONCAT, REMAINDER, WEIGH, WEIGH_NESTED, HELD];
const FIRST_NUMBER: u8 = 50 - 6;
const NO_NUMBER: u8 = u8::MAX;

struct Compiled<'source> {
    instructions: Instructions<'source>,
    blocks: BTreeMap<&'source str, Instructions<'source>>,
}

self_cell!(
    struct Cell {
        owner: String,
        #[covariant]
        dependent: Compiled,
    }
);

/// One compiled template.
pub(super) struct Program(Cell);

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Program")
            .field("bytes", &self.0.borrow_owner().len())
            .finish_non_exhaustive()
    }
}

impl Program {
    pub(super) fn compile(source: String) -> Result<Self, Error> {
        Cell::try_new(source, |source| {
            let whitespace = WhitespaceConfig {
                keep_trailing_newline: false,
                lstrip_blocks: true,
                trim_blocks: true,
            };
            let tree = parse(source, FILE, SyntaxConfig, whitespace)?;
            let mut generator = CodeGenerator::new(FILE, source);
            generator.compile_stmt(&tree);
            let (instructions, blocks) = generator.finish();
            Ok(Compiled {
                instructions: rewritten(source, &instructions),
                blocks: blocks
                    .iter()
                    .map(|(name, instructions)| (*name, rewritten(source, instructions)))
                    .collect(),
            })
        })
        .map(Self)
    }

    /// Runs it with `variables`.
    pub(super) fn run(
        &self,
        environment: &Environment<'_>,
        variables: Value,
    ) -> Result<String, Error> {
        let mut out = String::new();
        self.0.with_dependent(|_, compiled| {
            Vm::new(environment).eval(
                &compiled.instructions,
                variables,
                &compiled.blocks,
                &mut make_string_output(&mut out),
                AutoEscape::None,
            )?;
            Ok(out)
        })
    }
}

/// The same program with calls of ours in it.
fn rewritten<'source>(source: &'source str, old: &Instructions<'source>) -> Instructions<'source> {
    let count = u32::try_from(old.len()).unwrap_or(u32::MAX);
    let all = || (0..count).filter_map(|index| Some((index, old.get(index)?)));
    let has_room = !all().any(|(_, instruction)| {
        matches!(instruction, Instruction::ApplyFilter(_, _, number)
            if (FIRST_NUMBER..NO_NUMBER).contains(number))
    });
    // Where each instruction comes to stand; jumps may also go behind the last.
    let mut places = Vec::with_capacity(old.len() + 1);
    let mut next = 0;
    for (_, instruction) in all() {
        places.push(next);
        next += u32::try_from(replacement(instruction, has_room).len()).unwrap_or(1);
    }
    places.push(next);
    let place = |target: u32| {
        places
            .get(usize::try_from(target).unwrap_or(usize::MAX))
            .copied()
            .unwrap_or(next)
    };
    let mut new = Instructions::new(FILE, source);
    for (index, instruction) in all() {
        for instruction in replacement(instruction, has_room) {
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

/// What stands for one instruction, with the targets of its jumps as they were.
fn replacement<'source>(
    instruction: &Instruction<'source>,
    has_room: bool,
) -> Vec<Instruction<'source>> {
    let call = |name: &'static str, count: u16| {
        let number = (FIRST_NUMBER..)
            .zip(NAMES)
            .find_map(|(number, other)| (has_room && name == other).then_some(number));
        Instruction::ApplyFilter(name, Some(count), number.unwrap_or(NO_NUMBER))
    };
    match instruction {
        Instruction::EmitRaw(text) => vec![
            Instruction::LoadConst(Value::from(*text)),
            Instruction::Emit,
        ],
        Instruction::Add => vec![call(ADD, 2)],
        Instruction::StringConcat => vec![call(CONCAT, 2)],
        Instruction::Rem => vec![call(REMAINDER, 2)],
        Instruction::Mul | Instruction::Slice => vec![instruction.clone(), call(WEIGH, 1)],
        Instruction::BuildList(_) | Instruction::BuildMap(_) => {
            vec![instruction.clone(), call(WEIGH_NESTED, 1)]
        }
        // The value lies under its namespace.
        Instruction::SetAttr(_) => vec![
            Instruction::Swap,
            call(HELD, 1),
            Instruction::Swap,
            instruction.clone(),
        ],
        other => vec![other.clone()],
    }
}
