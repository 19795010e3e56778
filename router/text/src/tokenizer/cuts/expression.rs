//! What a pre-tokenizer's expression can never match, told from the expression alone.
//!
//! The expression is read into its positions (each a class of characters) and which position may come right after which
//! (Glushkov's construction). What looks ahead is left out, and so is that possessive repetitions give nothing back: the
//! expression then matches more than the real one. So two characters that it never matches one after the other are never
//! within one match of the real one. What is not understood for sure gives nothing.

use super::symbols::{self, COUNT};
use regex_syntax::Parser;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

/// Positions of one expression.
const MOST_POSITIONS: usize = 512;

/// The name of an empty group that stands for what was left out.
const LEFT_OUT: &str = "headrace";

/// What is known of an expression's matches.
#[derive(Debug)]
pub(super) struct Facts {
    /// By [`COUNT`] times a symbol, plus the next one: whether a match may hold both one after the other.
    pub(super) joined: Vec<bool>,
    /// By symbol: whether what was left out may ask, right behind it, what comes next.
    pub(super) asks_behind: Vec<bool>,
    /// By symbol: whether a match begins wherever none is under way.
    pub(super) starts: Vec<bool>,
}

impl Facts {
    /// Of nothing that ever matches.
    pub(super) fn none() -> Self {
        Self {
            joined: vec![false; COUNT * COUNT],
            asks_behind: vec![false; COUNT],
            starts: vec![false; COUNT],
        }
    }

    /// Of an expression whose matches stay pieces, and what is between them too.
    pub(super) fn of(expression: &str) -> Option<Self> {
        let plain = without_looks(expression)?;
        let hir = Parser::new().parse(&plain).ok()?;
        // Empty matches have rules of their own.
        if hir.properties().minimum_len()? == 0 {
            return None;
        }
        let mut graph = Graph::default();
        graph.add(&hir)?;
        let mut facts = Self::none();
        let mut is_unsure = [false; COUNT];
        let mut members: Vec<Vec<bool>> = Vec::new();
        for class in &graph.positions {
            let mut holds = vec![false; COUNT];
            for (symbol, range) in symbols::all().enumerate() {
                match class.as_ref().map_or(Some(false), |it| has(it, range)) {
                    Some(answer) => holds[symbol] = answer,
                    None => is_unsure[symbol] = true,
                }
            }
            members.push(holds);
        }
        for (position, after) in graph.follow.iter().enumerate() {
            let mut next = [false; COUNT];
            let mut asks = false;
            for &other in after {
                asks |= graph.positions[other].is_none();
                for symbol in 0..COUNT {
                    next[symbol] |= members[other][symbol];
                }
            }
            for symbol in (0..COUNT).filter(|symbol| members[position][*symbol]) {
                facts.asks_behind[symbol] |= asks;
                for other in (0..COUNT).filter(|other| next[*other]) {
                    facts.joined[symbol * COUNT + other] = true;
                }
            }
        }
        let alone = Alone::of(&hir)?;
        for (symbol, range) in symbols::all().enumerate() {
            facts.starts[symbol] = has(&alone.characters, range) == Some(true);
            facts.asks_behind[symbol] |= is_unsure[symbol];
            for other in 0..COUNT {
                facts.joined[symbol * COUNT + other] |= is_unsure[symbol] || is_unsure[other];
            }
        }
        Some(facts)
    }

    /// Of both, one after the other on what the first left.
    pub(super) fn and(&mut self, other: &Self) {
        let sum = |mine: &mut Vec<bool>, others: &Vec<bool>| {
            for (mine, other) in mine.iter_mut().zip(others) {
                *mine |= *other;
            }
        };
        sum(&mut self.joined, &other.joined);
        sum(&mut self.asks_behind, &other.asks_behind);
        sum(&mut self.starts, &other.starts);
    }
}

/// Whether a class holds a range. `None`: a part of it.
fn has(class: &ClassUnicode, (first, last): (char, char)) -> Option<bool> {
    let mut ranges = class.ranges().iter();
    let meets = ranges.find(|range| range.start() <= last && first <= range.end());
    match meets {
        None => Some(false),
        Some(range) if range.start() <= first && last <= range.end() => Some(true),
        Some(_) => None,
    }
}

/// Positions, and which may come right after which. What was left out is a position without a class.
#[derive(Default)]
struct Graph {
    positions: Vec<Option<ClassUnicode>>,
    follow: Vec<Vec<usize>>,
}

/// A part of an expression.
#[derive(Default)]
struct Part {
    first: Vec<usize>,
    last: Vec<usize>,
    may_be_empty: bool,
}

impl Part {
    fn empty() -> Self {
        Self {
            may_be_empty: true,
            ..Self::default()
        }
    }
}

impl Graph {
    fn position(&mut self, class: Option<ClassUnicode>) -> Option<usize> {
        if self.positions.len() == MOST_POSITIONS {
            return None;
        }
        self.positions.push(class);
        self.follow.push(Vec::new());
        Some(self.positions.len() - 1)
    }

    fn connect(&mut self, last: &[usize], first: &[usize]) {
        for &before in last {
            for &after in first {
                if !self.follow[before].contains(&after) {
                    self.follow[before].push(after);
                }
            }
        }
    }

    fn add(&mut self, hir: &Hir) -> Option<Part> {
        match hir.kind() {
            HirKind::Empty => Some(Part::empty()),
            HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => None,
            HirKind::Class(Class::Unicode(class)) => self.letter(class.clone()),
            HirKind::Literal(literal) => {
                let mut whole = Part::empty();
                for letter in std::str::from_utf8(&literal.0).ok()?.chars() {
                    let next = self.letter(one(letter))?;
                    whole = self.chain(whole, next);
                }
                Some(whole)
            }
            HirKind::Capture(capture) if is_left_out(capture.name.as_deref()) => Some(Part {
                first: vec![self.position(None)?],
                ..Part::empty()
            }),
            HirKind::Capture(capture) => self.add(&capture.sub),
            HirKind::Repetition(repetition) => {
                let mut part = self.add(&repetition.sub)?;
                if repetition.max.is_none_or(|max| max > 1) {
                    self.connect(&part.last.clone(), &part.first.clone());
                }
                part.may_be_empty |= repetition.min == 0;
                Some(part)
            }
            HirKind::Concat(parts) => {
                let mut whole = Part::empty();
                for part in parts {
                    let next = self.add(part)?;
                    whole = self.chain(whole, next);
                }
                Some(whole)
            }
            HirKind::Alternation(parts) => {
                let mut whole = Part::default();
                for part in parts {
                    let next = self.add(part)?;
                    whole.first.extend(next.first);
                    whole.last.extend(next.last);
                    whole.may_be_empty |= next.may_be_empty;
                }
                Some(whole)
            }
        }
    }

    fn letter(&mut self, class: ClassUnicode) -> Option<Part> {
        let position = self.position(Some(class))?;
        Some(Part {
            first: vec![position],
            last: vec![position],
            may_be_empty: false,
        })
    }

    fn chain(&mut self, before: Part, after: Part) -> Part {
        self.connect(&before.last, &after.first);
        let (mut first, mut last) = (before.first, after.last);
        if before.may_be_empty {
            first.extend(after.first);
        }
        if after.may_be_empty {
            last.extend(before.last);
        }
        Part {
            first,
            last,
            may_be_empty: before.may_be_empty && after.may_be_empty,
        }
    }
}

/// What a part matches of one character alone, whatever stands around it.
struct Alone {
    characters: ClassUnicode,
    /// Nothing of what was left out has a say.
    may_be_empty: bool,
}

impl Alone {
    fn of(hir: &Hir) -> Option<Self> {
        let nothing = |may_be_empty| Self {
            characters: ClassUnicode::empty(),
            may_be_empty,
        };
        Some(match hir.kind() {
            HirKind::Empty => nothing(true),
            HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => return None,
            HirKind::Class(Class::Unicode(class)) => Self {
                characters: class.clone(),
                may_be_empty: false,
            },
            HirKind::Literal(literal) => {
                let mut letters = std::str::from_utf8(&literal.0).ok()?.chars();
                match (letters.next(), letters.next()) {
                    (Some(letter), None) => Self {
                        characters: one(letter),
                        may_be_empty: false,
                    },
                    _ => nothing(false),
                }
            }
            HirKind::Capture(capture) if is_left_out(capture.name.as_deref()) => nothing(false),
            HirKind::Capture(capture) => Self::of(&capture.sub)?,
            HirKind::Repetition(repetition) => {
                let part = Self::of(&repetition.sub)?;
                let takes_one =
                    repetition.max != Some(0) && (repetition.min <= 1 || part.may_be_empty);
                Self {
                    may_be_empty: repetition.min == 0 || part.may_be_empty,
                    characters: if takes_one {
                        part.characters
                    } else {
                        ClassUnicode::empty()
                    },
                }
            }
            HirKind::Concat(parts) => {
                let parts: Vec<Self> = parts.iter().map(Self::of).collect::<Option<_>>()?;
                let mut whole = nothing(parts.iter().all(|part| part.may_be_empty));
                for (index, part) in parts.iter().enumerate() {
                    let mut others = parts.iter().enumerate();
                    if others.all(|(other, part)| other == index || part.may_be_empty) {
                        whole.characters.union(&part.characters);
                    }
                }
                whole
            }
            HirKind::Alternation(parts) => {
                let mut whole = nothing(false);
                for part in parts {
                    let part = Self::of(part)?;
                    whole.characters.union(&part.characters);
                    whole.may_be_empty |= part.may_be_empty;
                }
                whole
            }
        })
    }
}

fn one(letter: char) -> ClassUnicode {
    ClassUnicode::new([regex_syntax::hir::ClassUnicodeRange::new(letter, letter)])
}

fn is_left_out(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with(LEFT_OUT))
}

/// The expression with an empty group for each look ahead and each possessive mark. `None` for what the two engines may
/// read differently.
fn without_looks(expression: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = expression;
    let mut num_left_out = 0;
    let mut leave_out = |out: &mut String| {
        num_left_out += 1;
        for part in ["(?P<", LEFT_OUT, &num_left_out.to_string(), ">)"] {
            out.push_str(part);
        }
    };
    let mut class_depth = 0_usize;
    // Behind `?`, `*` or `+` that repeats something.
    let mut is_repeated = false;
    while let Some(letter) = rest.chars().next() {
        let was_repeated = std::mem::take(&mut is_repeated);
        if letter == '\\' {
            let escaped = escape(rest)?;
            out.push_str(escaped);
            rest = &rest[escaped.len()..];
            continue;
        }
        if class_depth > 0 {
            if ["&&", "--", "~~", "[:"]
                .iter()
                .any(|it| rest.starts_with(it))
            {
                return None;
            }
            class_depth = match letter {
                '[' => class_depth + 1,
                ']' => class_depth - 1,
                _ => class_depth,
            };
            out.push(letter);
        } else if let Some(looks) = rest.strip_prefix("(?=").or(rest.strip_prefix("(?!")) {
            let seen = one_character(looks)?;
            rest = looks[seen.len()..].strip_prefix(')')?;
            leave_out(&mut out);
            continue;
        } else if rest.starts_with("(?") && !rest.starts_with("(?:") && !rest.starts_with("(?i:") {
            return None;
        } else {
            match letter {
                '^' => return None,
                '$' => leave_out(&mut out),
                '+' if was_repeated => leave_out(&mut out),
                '*' if was_repeated => return None,
                '?' if out.ends_with('}') => return None,
                '?' | '*' | '+' => {
                    is_repeated = !was_repeated && !out.ends_with(['(', '|']);
                    out.push(letter);
                }
                _ => {
                    class_depth = usize::from(letter == '[');
                    out.push(letter);
                }
            }
        }
        rest = &rest[letter.len_utf8()..];
    }
    (class_depth == 0).then_some(out)
}

/// The escape that a text begins with, if both engines read it alike.
fn escape(text: &str) -> Option<&str> {
    let kind = text[1..].chars().next()?;
    let end = match kind {
        'p' | 'P' if text[2..].starts_with('{') => text.find('}')? + 1,
        'u' => 6,
        's' | 'S' | 'd' | 'D' | 'w' | 'W' | 'n' | 'r' | 't' => 2,
        _ if kind.is_ascii_punctuation() => 2,
        _ => return None,
    };
    text.get(..end)
}

/// The class or escape of one character that a text begins with.
fn one_character(text: &str) -> Option<&str> {
    if text.starts_with('\\') {
        return escape(text);
    }
    let inside = text.strip_prefix('[')?;
    let mut rest = inside;
    loop {
        let letter = rest.chars().next()?;
        let length = match letter {
            ']' => return text.get(..text.len() - rest.len() + 1),
            '[' => return None,
            '\\' => escape(rest)?.len(),
            _ => letter.len_utf8(),
        };
        rest = &rest[length..];
    }
}
