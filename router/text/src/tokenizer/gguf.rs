//! A tokenizer out of GGUF metadata.

use super::apart::MadeByModel;
use super::config::NamedTokens;
use super::cuts::Cuts;
use super::fewest::FewestTokens;
use super::{Ends, Tokenizer, added_tokens};
use crate::error::TextError;
use crate::gguf::GgufVocabulary;
use crate::pieces::{PieceTable, VocabularyEntry};
use std::collections::BTreeMap;
use std::path::Path;

impl Tokenizer {
    /// From the metadata of a GGUF file (the first part of a split one).
    pub fn from_gguf(path: &Path) -> Result<Self, TextError> {
        Self::from_gguf_vocabulary(GgufVocabulary::open(path)?).map_err(|error| error.in_file(path))
    }

    /// From GGUF metadata already read.
    pub fn from_gguf_vocabulary(vocabulary: GgufVocabulary) -> Result<Self, TextError> {
        let built = crate::gguf::build(&vocabulary)?;
        let pieces = {
            let entries = vocabulary
                .tokens
                .iter()
                .zip(&vocabulary.kinds)
                .map(|(token, kind)| {
                    Some(VocabularyEntry {
                        token: token.clone(),
                        is_special: kind.is_special(),
                    })
                });
            PieceTable::new(entries, built.library.get_decoder())?
        };
        let token = |id: Option<u32>| {
            id.and_then(|id| vocabulary.tokens.get(id as usize))
                .cloned()
        };
        let mut named = BTreeMap::new();
        for (name, id) in [
            ("bos_token", vocabulary.bos_id),
            ("eos_token", vocabulary.eos_id),
            ("unk_token", vocabulary.unknown_id),
            ("pad_token", vocabulary.padding_id),
        ] {
            if let Some(text) = token(id) {
                named.insert(name.to_owned(), text);
            }
        }
        let mut end_ids: Vec<u32> = vocabulary.eos_id.into_iter().collect();
        end_ids.extend(vocabulary.end_of_turn_id.filter(|id| !end_ids.contains(id)));
        let ends = Ends::Ids {
            first: vocabulary.bos_id.filter(|_| built.adds_bos),
            last: vocabulary.eos_id.filter(|_| built.adds_eos),
        };
        // Merging by scores is not known to keep every byte.
        let fewest = if built.scores.is_none() {
            FewestTokens::new(&built.library, &pieces)
        } else {
            None
        };
        Ok(Self {
            fewest,
            cuts: Cuts::new(&built.library, built.scores.is_some()),
            added: added_tokens(&built.library)?,
            made_by_model: MadeByModel::new(&built.library),
            library: built.library,
            scores: built.scores,
            letters: None,
            pieces,
            ends,
            named: NamedTokens {
                texts: named,
                bos_id: vocabulary.bos_id,
                eos_ids: end_ids,
            },
            gguf_template: vocabulary.chat_template,
        })
    }
}
