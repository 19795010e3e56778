//! Compiled grammars by content, bounded in number and in bytes.

use crate::compiler::CompiledGrammar;
use rustc_hash::FxHashMap;

/// Grammars kept.
const MOST_GRAMMARS: usize = 128;
/// Bytes of all that is kept, as far as they can be estimated.
const MOST_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Entry {
    grammar: CompiledGrammar,
    bytes: usize,
    used: u64,
}

/// Least recently used ones leave first.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: FxHashMap<String, Entry>,
    bytes: usize,
    uses: u64,
}

impl Cache {
    pub(crate) fn get(&mut self, content: &str) -> Option<CompiledGrammar> {
        self.uses += 1;
        let entry = self.entries.get_mut(content)?;
        entry.used = self.uses;
        Some(entry.grammar.clone())
    }

    pub(crate) fn put(&mut self, content: String, grammar: CompiledGrammar) {
        let bytes = content.len() + grammar.bytes();
        if bytes > MOST_BYTES {
            return;
        }
        self.uses += 1;
        let entry = Entry {
            grammar,
            bytes,
            used: self.uses,
        };
        self.bytes += bytes;
        if let Some(old) = self.entries.insert(content, entry) {
            self.bytes -= old.bytes;
        }
        while self.entries.len() > MOST_GRAMMARS || self.bytes > MOST_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(content, _)| content.clone()) else {
                return;
            };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.bytes -= entry.bytes;
            }
        }
    }

    /// (grammars, bytes) held.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }
}
