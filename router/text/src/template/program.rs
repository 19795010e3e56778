//! A template compiled: its text to the instructions of the engine's stack machine, which are then rewritten.

use super::depth;
use super::environment::one_line;
use super::rewrite::rewritten;
use minijinja::machinery::{
    CodeGenerator, Instructions, Vm, WhitespaceConfig, make_string_output, parse,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error};
use self_cell::self_cell;
use std::collections::BTreeMap;
use std::fmt;

/// Stack of the thread that compiles. The deepest templates that `depth` lets through took less than 3 MiB.
const COMPILER_STACK: usize = 64 << 20;

/// Names the source in errors of the engine; nobody sees it.
const FILE: &str = "chat_template";

/// As `transformers` sets it.
pub(super) const WHITESPACE: WhitespaceConfig = WhitespaceConfig {
    keep_trailing_newline: false,
    lstrip_blocks: true,
    trim_blocks: true,
};

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
pub(super) struct Program {
    cell: Cell,
    /// Levels of its text.
    pub(super) depth: usize,
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Program")
            .field("bytes", &self.cell.borrow_owner().len())
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Compiles a text that does not nest too deep. The error is one line.
    pub(super) fn compile(source: &str) -> Result<Self, String> {
        // The parser and the compiler call themselves, and this thread's stack may be anyone's. A fault of theirs ends
        // that thread alone.
        let source = source.to_owned();
        let thread = std::thread::Builder::new()
            .name("template".into())
            .stack_size(COMPILER_STACK)
            .spawn(move || checked_and_compiled(&source))
            .map_err(|error| format!("no thread for it: {error}"))?;
        thread
            .join()
            .unwrap_or_else(|_| Err("the template engine gave up on it".into()))
    }

    /// Runs it with `variables`.
    pub(super) fn run(
        &self,
        environment: &Environment<'_>,
        variables: Value,
    ) -> Result<String, Error> {
        let mut out = String::new();
        self.cell.with_dependent(|_, compiled| {
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

fn checked_and_compiled(source: &str) -> Result<Program, String> {
    let checked = depth::check(source, WHITESPACE)
        .map_err(|depth::TooDeep { reason, line }| format!("{reason} (line {line})"))?;
    let cell = compile(checked.source).map_err(|error| one_line(&error))?;
    Ok(Program {
        cell,
        depth: checked.depth,
    })
}

fn compile(source: String) -> Result<Cell, Error> {
    Cell::try_new(source, |source| {
        let tree = parse(source, FILE, SyntaxConfig, WHITESPACE)?;
        let mut generator = CodeGenerator::new(FILE, source);
        generator.compile_stmt(&tree);
        let (instructions, blocks) = generator.finish();
        Ok(Compiled {
            instructions: rewritten(FILE, source, &instructions),
            blocks: blocks
                .iter()
                .map(|(name, instructions)| (*name, rewritten(FILE, source, instructions)))
                .collect(),
        })
    })
}
