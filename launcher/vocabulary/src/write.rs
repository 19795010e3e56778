//! The one writer of `tokenizer.json`.

use crate::Converted;
use crate::beside::{Added, Beside};
use serde_json::{Map, Value, json};

/// The parts of a pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) model: Value,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) decoder: Value,
    /// Runs before the template of ends.
    pub(crate) processor: Option<Value>,
    /// By id, in its order.
    pub(crate) added: Vec<(u32, Added)>,
    /// Text and id of what begins and ends a sequence, where the file or the family says.
    pub(crate) begin: Option<(String, u32)>,
    pub(crate) end: Option<(String, u32)>,
    /// `bos_token` and the like, where no file names them.
    pub(crate) named: Vec<(&'static str, String)>,
    /// Keys of the configuration that mean nothing to this vocabulary's class.
    pub(crate) dropped: &'static [&'static str],
}

impl Pipeline {
    /// `beside` goes before what the vocabulary itself says.
    pub(crate) fn write(self, beside: &Beside) -> Result<Converted, String> {
        let mut single = Vec::new();
        let mut special_tokens = Map::new();
        let mut special = |token: &(String, u32)| {
            let (text, id) = token;
            special_tokens.insert(
                text.clone(),
                json!({"id": text, "ids": [id], "tokens": [text]}),
            );
            json!({"SpecialToken": {"id": text, "type_id": 0}})
        };
        single.extend(self.begin.as_ref().map(&mut special));
        single.push(json!({"Sequence": {"id": "A", "type_id": 0}}));
        single.extend(self.end.as_ref().map(&mut special));
        let template = json!({
            "type": "TemplateProcessing", "single": single, "special_tokens": special_tokens,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        });
        let mut processors: Vec<Value> = self.processor.into_iter().collect();
        processors.push(template);
        let added: Vec<Value> = self
            .added
            .iter()
            .map(|(id, token)| {
                json!({
                    "id": id, "content": token.content, "special": token.is_special,
                    "lstrip": token.left_strip, "rstrip": token.right_strip,
                    "single_word": token.is_single_word, "normalized": token.is_normalized,
                })
            })
            .collect();
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": added,
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "post_processor": {"type": "Sequence", "processors": processors},
            "decoder": self.decoder,
            "model": self.model,
        });
        let bytes = |value: &Value| serde_json::to_vec(value).map_err(|error| error.to_string());
        Ok(Converted {
            tokenizer: bytes(&tokenizer)?,
            config: match beside.config(self.named, self.dropped) {
                Some(config) => Some(bytes(&Value::Object(config))?),
                None => None,
            },
        })
    }
}

/// Added tokens beyond the vocabulary must follow it without a gap: the library numbers them itself.
pub(crate) fn check_added(size: usize, beside: &Beside) -> Result<(), String> {
    let mut next = size;
    for (&id, token) in &beside.added {
        if id as usize >= next {
            if id as usize != next {
                return Err(format!(
                    "the added token {:?} has the id {id}, but {next} is the next free one",
                    token.content
                ));
            }
            next += 1;
        }
    }
    Ok(())
}

/// `Sequence` of normalizers, decoders or pre-tokenizers; nothing for none.
pub(crate) fn sequence(key: &str, steps: &[Value]) -> Value {
    if steps.is_empty() {
        return Value::Null;
    }
    json!({"type": "Sequence", key: steps})
}
