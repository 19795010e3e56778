//! From a source to what every sequence of a request starts from.

use crate::cache::Cache;
use crate::error::{DeadEnd, GrammarError, first_line};
use crate::mask::Mask;
use crate::source::GrammarSource;
use crate::state::GrammarState;
use crate::{pattern, schema, tokens};
use headrace_text::Tokenizer;
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toktrie::{InferenceCapabilities, TokEnv, TokenId};

/// Bytes of stack for a compile. The library recurses over what a client nested.
const STACK_BYTES: usize = 32 << 20;

/// Bytes of a compiled grammar beside its lexer.
const BYTES_FOR_EACH: usize = 32 << 10;

/// Compiles grammars for one model. Shared by all who need one.
pub struct GrammarCompiler {
    factory: ParserFactory,
    eos_ids: Arc<[TokenId]>,
    vocab_size: u32,
    lenient: bool,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GrammarCompiler")
            .field("vocab_size", &self.vocab_size)
            .field("eos_ids", &self.eos_ids)
            .field("lenient", &self.lenient)
            .finish_non_exhaustive()
    }
}

/// What a mask and a compile may cost. Over it the sequence or the request ends with a line that says so.
fn limits() -> ParserLimits {
    ParserLimits {
        // About 20 ms.
        initial_lexer_fuel: 1_000_000,
        // About 15 ms a mask.
        step_lexer_fuel: 200_000,
        // About 3 ms a mask.
        step_max_items: 50_000,
        max_items_in_row: 2_000,
        // About 1 to 2 KiB each, for each sequence.
        max_lexer_states: 16_000,
        max_grammar_size: 100_000,
        // It walks the whole vocabulary for some of a client's regexes before anything bounds it.
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

impl GrammarCompiler {
    /// For a model.
    ///
    /// `eos_ids`: what ends a sequence; possibly none. `vocab_size`: every id that can be sampled is below it, those
    /// that the tokenizer lacks are never allowed. `lenient`: keywords that cannot be enforced are ignored instead of
    /// refused.
    pub fn new(
        tokenizer: &Tokenizer,
        eos_ids: &[TokenId],
        vocab_size: u32,
        lenient: bool,
    ) -> Result<Self, GrammarError> {
        let eos_ids: Vec<TokenId> = eos_ids
            .iter()
            .copied()
            .filter(|id| *id < vocab_size)
            .collect();
        let environment = tokens::environment(tokenizer, &eos_ids, vocab_size);
        Self::with_environment(&environment, &eos_ids, lenient)
    }

    pub(crate) fn with_environment(
        environment: &TokEnv,
        eos_ids: &[TokenId],
        lenient: bool,
    ) -> Result<Self, GrammarError> {
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(environment, InferenceCapabilities::default(), &slices)
                .map_err(|error| GrammarError::Compile(first_line(&error.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self {
            factory,
            eos_ids: eos_ids.into(),
            vocab_size: u32::try_from(environment.tok_trie().vocab_size()).unwrap_or(u32::MAX),
            lenient,
            cache: Mutex::default(),
        })
    }

    /// Checks and compiles. Takes up to some hundred milliseconds: not for async threads. A grammar that was compiled
    /// before, and not too long ago, costs next to nothing.
    pub fn compile(&self, source: &GrammarSource) -> Result<CompiledGrammar, GrammarError> {
        let content = source.content();
        check_bytes(source, &content)?;
        if let Some(grammar) = self.cache().get(&content) {
            return Ok(grammar);
        }
        let grammar = self.on_a_large_stack(source)?;
        self.cache().put(content, grammar.clone());
        Ok(grammar)
    }

    /// (grammars, estimated bytes) of what is kept of earlier compiles.
    pub fn cached(&self) -> (usize, usize) {
        self.cache().held()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_a_large_stack(&self, source: &GrammarSource) -> Result<CompiledGrammar, GrammarError> {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("grammar".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || self.compile_here(source))
                .map_err(|error| GrammarError::Compile(format!("no thread for it: {error}")))?
                .join()
                .unwrap_or_else(|_| Err(GrammarError::Compile("the compiler broke".to_owned())))
        })
    }

    fn compile_here(&self, source: &GrammarSource) -> Result<CompiledGrammar, GrammarError> {
        // Kept for the place of what the library may find in it.
        let mut prepared = None;
        let grammar = match source {
            GrammarSource::Regex(regex) => {
                GrammarWithLexer::from_regex(&pattern::prepare("regex", regex)?)
            }
            GrammarSource::Json {
                schema,
                whitespace_pattern,
            } => {
                let mut schema = schema::prepare(schema.clone(), self.lenient)?;
                schema.insert(
                    "x-guidance".to_owned(),
                    self.json_options(whitespace_pattern.as_deref())?,
                );
                let schema = Value::Object(schema);
                prepared = Some(schema.clone());
                GrammarWithLexer::from_json_schema(schema)
            }
        };
        let grammar = TopLevelGrammar::from_grammar(grammar);
        let parser = self.factory.create_parser(grammar).map_err(|error| {
            let messages: Vec<String> = error.chain().map(ToString::to_string).collect();
            schema::explain(&messages, prepared.as_ref())
        })?;
        // What a sequence adds to it counts for the sequence, not here.
        let bytes = 2 * parser.parser.lexer_stats().num_bytes + BYTES_FOR_EACH;
        let matcher = Matcher::new(Ok(parser));
        let mut first = GrammarState::new(matcher, Arc::clone(&self.eos_ids), self.vocab_size);
        // Warms the lexer up for every sequence, and tells now what no sequence could get past.
        let mask = first
            .mask()
            .map_err(|DeadEnd(reason)| GrammarError::Compile(format!("at its start {reason}")))?;
        Ok(CompiledGrammar(Arc::new(Compiled {
            first: Mutex::new(first),
            first_mask: mask,
            bytes,
        })))
    }

    fn json_options(&self, whitespace_pattern: Option<&str>) -> Result<Value, GrammarError> {
        let whitespace = match whitespace_pattern {
            None => " ".to_owned(),
            Some(pattern) => pattern::prepare("whitespace_pattern", pattern)?,
        };
        let mut options = Map::new();
        options.insert("item_separator".to_owned(), json!(","));
        options.insert("key_separator".to_owned(), json!(":"));
        // Between two tokens once or not at all.
        options.insert("whitespace_pattern".to_owned(), json!(whitespace));
        options.insert("lenient".to_owned(), json!(self.lenient));
        options.insert("coerce_one_of".to_owned(), json!(self.lenient));
        Ok(Value::Object(options))
    }
}

fn check_bytes(source: &GrammarSource, content: &str) -> Result<(), GrammarError> {
    let limit = match source {
        GrammarSource::Regex(_) => return Ok(()),
        GrammarSource::Json { .. } => schema::MOST_BYTES,
    };
    if content.len() > limit {
        return Err(GrammarError::TooLong {
            what: "schema",
            bytes: content.len(),
            limit,
        });
    }
    Ok(())
}

struct Compiled {
    first: Mutex<GrammarState>,
    first_mask: Mask,
    bytes: usize,
}

/// A compiled grammar. Cheap to clone and to share.
#[derive(Clone)]
pub struct CompiledGrammar(Arc<Compiled>);

impl std::fmt::Debug for CompiledGrammar {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CompiledGrammar")
            .field("bytes", &self.0.bytes)
            .finish_non_exhaustive()
    }
}

impl CompiledGrammar {
    /// A state for one sequence, before its first token.
    pub fn start(&self) -> GrammarState {
        self.0
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .independent_clone()
    }

    /// The mask of a sequence's first output id, without a state.
    pub fn first_mask(&self) -> &Mask {
        &self.0.first_mask
    }

    /// Estimated bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }
}
