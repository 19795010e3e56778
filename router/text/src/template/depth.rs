//! How deep a template's text nests, known before it is parsed.
//!
//! The engine's parser and compiler call themselves once for each level of a template: blocks within blocks, brackets,
//! and every link of a chain without brackets (`not not …`, `a.b.c…`, `a + b + …`, `x|f|f…`, `elif`). Only brackets and
//! blocks have a bound there; the others would end the process. So the tokens are counted first, and a text that nests
//! deeper than [`DEPTH_LIMIT`] is refused.
//!
//! # Why the count is enough
//!
//! Each node of a syntax tree that holds another one comes from a token of its own: an operator, a keyword, a dot, an
//! opening bracket, a block's word. In one element (what stands between two commas within the same brackets) a path
//! from the tree's root passes at most all of the element's own such tokens, and then goes on inside one of its
//! brackets. So an element is at most as deep as its own tokens and its deepest bracket together, and a tag as
//! deep as the blocks around it and its deepest element.

use minijinja::machinery::{Token, WhitespaceConfig, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Levels that a template may have: the deepest real one has 28 (the test `real_templates_are_far_from_the_bound`).
pub(super) const DEPTH_LIMIT: usize = 1000;
/// Bytes of a template. The largest of the real ones has 17 thousand.
const SOURCE_LIMIT: usize = 1 << 20;
/// Bytes of a name, which is compared whenever it is looked up.
const NAME_LIMIT: usize = 256;

/// A filter that gives its value back, written before every `*`. What the compiler takes for constant it
/// computes while it compiles, `'x' * 99999999` too; the result of a filter is no constant.
pub(super) const FACTOR: &str = "__factor";

/// Statements with an end of their own.
const BLOCKS: [&str; 8] = [
    "for",
    "if",
    "with",
    "autoescape",
    "filter",
    "block",
    "macro",
    "call",
];

/// What stands within one pair of brackets, or within a tag.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Tokens of the element so far that add a level.
    links: usize,
    /// The deepest bracket of the element so far.
    inner: usize,
    /// The deepest of the elements before.
    deepest: usize,
}

impl Level {
    fn depth(self) -> usize {
        self.deepest.max(self.links + self.inner)
    }

    fn next_element(&mut self) {
        *self = Self {
            deepest: self.depth(),
            ..Self::default()
        };
    }
}

/// The tag that is being read.
#[derive(Debug, Default)]
struct Tag {
    /// Where it begins.
    start: usize,
    /// The statement's word; none in `{{ … }}`.
    word: Option<String>,
    is_statement: bool,
    /// Whether a `=` stands in it outside of brackets.
    assigns: bool,
    levels: Vec<Level>,
    /// Whether a `*` would be an operator here.
    has_operand: bool,
}

impl Tag {
    fn new(start: usize, is_statement: bool) -> Self {
        Self {
            start,
            is_statement,
            levels: vec![Level::default()],
            ..Self::default()
        }
    }

    fn top(&mut self) -> Option<&mut Level> {
        self.levels.last_mut()
    }

    fn link(&mut self) {
        if let Some(level) = self.top() {
            level.links += 1;
        }
    }

    fn close_bracket(&mut self) {
        if self.levels.len() > 1
            && let Some(closed) = self.levels.pop()
            && let Some(level) = self.top()
        {
            level.inner = level.inner.max(closed.depth() + 1);
        }
    }

    /// How deep it is in all; brackets that were never closed count, too: the parser goes into them.
    fn depth(mut self) -> usize {
        while self.levels.len() > 1 {
            self.close_bracket();
        }
        self.levels.first().map_or(0, |level| level.depth())
    }
}

/// Levels of the statements around the current place: one for each block, and one for each of its `elif`s.
#[derive(Debug, Default)]
struct Blocks {
    open: Vec<usize>,
    depth: usize,
}

impl Blocks {
    fn take(&mut self, tag: &Tag) {
        let Some(word) = &tag.word else {
            return;
        };
        let is_block = BLOCKS.contains(&word.as_str()) || (word == "set" && !tag.assigns);
        if is_block {
            self.open.push(1);
            self.depth += 1;
        } else if word == "elif" {
            if let Some(levels) = self.open.last_mut() {
                *levels += 1;
                self.depth += 1;
            }
        } else if word.starts_with("end") {
            self.depth -= self.open.pop().unwrap_or(0);
        }
    }
}

/// What is wrong with a template's text, and the byte where.
#[derive(Debug)]
pub(super) struct TooDeep {
    pub(super) reason: String,
    pub(super) line: usize,
}

/// What the counting found.
#[derive(Debug)]
pub(super) struct Checked {
    /// The text to compile.
    pub(super) source: String,
    /// Its depth.
    pub(super) depth: usize,
}

/// Refuses a text that nests too deep. What is no template at all is left to the parser, which says it better.
pub(super) fn check(source: &str, whitespace: WhitespaceConfig) -> Result<Checked, TooDeep> {
    let too_deep = |reason: String, place: usize| TooDeep {
        reason,
        line: 1 + source
            .bytes()
            .take(place)
            .filter(|byte| *byte == b'\n')
            .count(),
    };
    if source.len() > SOURCE_LIMIT {
        let reason = format!("it has more than {SOURCE_LIMIT} bytes");
        return Err(too_deep(reason, SOURCE_LIMIT));
    }
    let mut blocks = Blocks::default();
    let mut deepest = 0;
    let mut tag: Option<Tag> = None;
    let mut factors = Vec::new();
    for token in tokenize(source, false, SyntaxConfig, whitespace) {
        let Ok((token, span)) = token else {
            break;
        };
        let place = usize::try_from(span.start_offset).unwrap_or(usize::MAX);
        if let Token::Ident(name) = &token
            && name.len() > NAME_LIMIT
        {
            let reason = format!("a name of more than {NAME_LIMIT} bytes");
            return Err(too_deep(reason, place));
        }
        match &token {
            Token::TemplateData(_) => {}
            Token::VariableStart => tag = Some(Tag::new(place, false)),
            Token::BlockStart => tag = Some(Tag::new(place, true)),
            Token::VariableEnd | Token::BlockEnd => {
                if let Some(tag) = tag.take() {
                    blocks.take(&tag);
                    let start = tag.start;
                    let depth = blocks.depth + tag.depth();
                    deepest = deepest.max(depth);
                    if depth > DEPTH_LIMIT {
                        let reason = format!("it nests more than {DEPTH_LIMIT} levels deep");
                        return Err(too_deep(reason, start));
                    }
                }
            }
            _ => {
                if let Some(tag) = &mut tag {
                    if matches!(token, Token::Mul) && tag.has_operand {
                        factors.push(place);
                    }
                    read(tag, &token);
                }
            }
        }
    }
    // A tag without an end: the parser still reads it.
    if let Some(tag) = tag {
        let start = tag.start;
        let depth = blocks.depth + tag.depth();
        deepest = deepest.max(depth);
        if depth > DEPTH_LIMIT {
            let reason = format!("it nests more than {DEPTH_LIMIT} levels deep");
            return Err(too_deep(reason, start));
        }
    }
    Ok(Checked {
        source: with_factors(source, &factors),
        depth: deepest,
    })
}

fn read(tag: &mut Tag, token: &Token<'_>) {
    let is_first = tag.is_statement && tag.word.is_none();
    let is_outside = tag.levels.len() == 1;
    tag.has_operand = true;
    match token {
        Token::Ident(word) if is_first => {
            tag.word = Some((*word).to_owned());
            tag.has_operand = false;
        }
        Token::Ident("not" | "if" | "else" | "and" | "or" | "in" | "is")
        | Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::FloorDiv
        | Token::Pow
        | Token::Mod
        | Token::Dot
        | Token::Tilde
        | Token::Pipe
        | Token::Eq
        | Token::Ne
        | Token::Gt
        | Token::Gte
        | Token::Lt
        | Token::Lte => tag.link(),
        Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => {
            tag.link();
            tag.levels.push(Level::default());
            tag.has_operand = false;
        }
        Token::BracketClose | Token::ParenClose | Token::BraceClose => tag.close_bracket(),
        Token::Comma => {
            if let Some(level) = tag.top() {
                level.next_element();
            }
            tag.has_operand = false;
        }
        Token::Colon => {
            if let Some(level) = tag.top() {
                level.next_element();
            }
        }
        Token::Assign if is_outside => tag.assigns = true,
        _ => {}
    }
}

/// The text with the filter before each of these `*`.
fn with_factors(source: &str, places: &[usize]) -> String {
    let mut out = String::with_capacity(source.len() + places.len() * (FACTOR.len() + 2));
    let mut last = 0;
    for &place in places {
        out.push_str(&source[last..place]);
        out.push('|');
        out.push_str(FACTOR);
        out.push(' ');
        last = place;
    }
    out.push_str(&source[last..]);
    out
}
