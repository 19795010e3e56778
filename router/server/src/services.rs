//! What the routes need of the served model: tokenizer, chat template, end ids and defaults.

mod tokenizer_info;

use headrace_api::tokenize::TokenizerInfo;
use headrace_control::{ModelDocument, TokenizerSource};
use headrace_dialect::call::SamplingDefaults;
use headrace_grammar::{GrammarCompiler, GrammarError};
use headrace_text::{
    ChatTemplate, Infill, RenderOptions, TemplateError, TemplateSources, Tokenizer,
};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Built once, when the model's document arrives; immutable after.
#[derive(Debug)]
pub struct ModelServices {
    /// What is served.
    pub document: ModelDocument,
    /// Ids and text.
    pub tokenizer: Arc<Tokenizer>,
    /// Prompts with a gap, if the model fills any.
    pub infill: Option<Infill>,
    /// Messages to a prompt; or why this model has none.
    pub template: Result<Arc<ChatTemplate>, String>,
    /// The model's end ids: `generation_config.json`'s, else the configuration's and the tokenizer's.
    pub eos_token_ids: Arc<[u32]>,
    /// `generation_config.json`'s sampling fields, for `/v1`.
    pub sampling_defaults: SamplingDefaults,
    /// For `/tokenizer_info`.
    pub tokenizer_info: TokenizerInfo,
    /// Made for the first grammar that is asked for.
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
}

/// The model's files cannot be served. The message names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServicesError(String);

impl ModelServices {
    /// Reads tokenizer, template and generation defaults. Blocks on files and takes up to seconds for a large
    /// vocabulary: call it on a thread that may block.
    pub fn load(document: ModelDocument) -> Result<Self, ServicesError> {
        let wrong = |error: &dyn std::fmt::Display| ServicesError(error.to_string());
        let tokenizer = match &document.tokenizer {
            TokenizerSource::TokenizerJson { path } => {
                Tokenizer::from_file(path, document.tokenizer_config.as_deref())
            }
            TokenizerSource::Gguf { path } => Tokenizer::from_gguf(path),
        }
        .map_err(|error| wrong(&error))?;
        let template = load_template(&document, &tokenizer)?;
        let generation = match &document.generation_config {
            Some(path) => GenerationConfig::read(path)?,
            None => GenerationConfig::default(),
        };
        let eos = generation.eos_token_ids.unwrap_or_else(|| {
            let mut ids = token_ids(document.config.get("eos_token_id")).unwrap_or_default();
            for id in tokenizer.eos_ids() {
                if !ids.contains(id) {
                    ids.push(*id);
                }
            }
            ids
        });
        let vocab_size = document.vocab_size;
        let tokenizer_info = tokenizer_info::read(
            document.tokenizer_config.as_deref(),
            &tokenizer,
            template.as_deref().ok(),
        )?;
        Ok(Self {
            document,
            infill: Infill::find(&tokenizer, vocab_size),
            tokenizer: Arc::new(tokenizer),
            template,
            // An id that the model cannot produce ends nothing.
            eos_token_ids: eos.into_iter().filter(|id| *id < vocab_size).collect(),
            sampling_defaults: generation.sampling,
            tokenizer_info,
            grammars: OnceLock::new(),
        })
    }

    /// The compiler of grammars for this model. The first call goes through the whole vocabulary: call it on a thread
    /// that may block. `lenient` is the server's, the same in every call.
    pub(crate) fn grammar_compiler(&self, lenient: bool) -> Result<&GrammarCompiler, GrammarError> {
        let compiler = self.grammars.get_or_init(|| {
            let vocab_size = self.document.vocab_size;
            GrammarCompiler::new(&self.tokenizer, &self.eos_token_ids, vocab_size, lenient)
        });
        compiler.as_ref().map_err(Clone::clone)
    }
}

/// A model without a template serves everything but chats; a template that does not compile is an error of the
/// model.
fn load_template(
    document: &ModelDocument,
    tokenizer: &Tokenizer,
) -> Result<Result<Arc<ChatTemplate>, String>, ServicesError> {
    let sources = TemplateSources {
        chat_template: document.chat_template.clone(),
        tokenizer_config: document.tokenizer_config.clone(),
    };
    match ChatTemplate::load(&sources, tokenizer) {
        Ok(template) => {
            warn_of_fault(&template);
            Ok(Ok(Arc::new(template)))
        }
        Err(error @ TemplateError::Missing) => {
            tracing::info!("{error}: chats are refused; --tokenizer-config-path gives one");
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(ServicesError(match (&document.tokenizer, error) {
            // Of its metadata; every other source names its file itself.
            (TokenizerSource::Gguf { path }, error @ TemplateError::Compile(_)) => {
                format!("{}: {error}", path.display())
            }
            (_, error) => error.to_string(),
        })),
    }
}

/// A template that fails for the simplest chat of all is hardly one that anybody can use.
fn warn_of_fault(template: &ChatTemplate) {
    let chat = [json!({"role": "user", "content": "Hello"})];
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    if let Err(error) = template.render(&chat, &options) {
        tracing::warn!("the chat template fails for a chat of one message of the user: {error}");
    }
}

/// What is read of `generation_config.json`.
#[derive(Clone, Debug, Default, PartialEq)]
struct GenerationConfig {
    eos_token_ids: Option<Vec<u32>>,
    sampling: SamplingDefaults,
}

impl GenerationConfig {
    fn read(path: &Path) -> Result<Self, ServicesError> {
        let in_file = |problem: &str| ServicesError(format!("{}: {problem}", path.display()));
        let text = std::fs::read(path).map_err(|error| in_file(&error.to_string()))?;
        let value: Value =
            serde_json::from_slice(&text).map_err(|error| in_file(&error.to_string()))?;
        Self::from_value(&value).map_err(|problem| in_file(&problem))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        let number = |key: &str, allowed: fn(f64) -> bool| match value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(given) => match given.as_f64() {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "sampling is done in f32, and the bounds below are far inside it"
                )]
                Some(number) if allowed(number) => Ok(Some(number as f32)),
                _ => Err(format!("`{key}` is {given}")),
            },
        };
        let top_k = match value.get("top_k") {
            None | Some(Value::Null) => None,
            Some(given) => Some(
                given
                    .as_u64()
                    .and_then(|k| u32::try_from(k).ok())
                    .ok_or_else(|| format!("`top_k` is {given}"))?,
            ),
        };
        Ok(Self {
            eos_token_ids: token_ids(value.get("eos_token_id")),
            sampling: SamplingDefaults {
                temperature: number("temperature", |n| (0.0..=1e6).contains(&n))?,
                top_k,
                top_p: number("top_p", |n| n > 0.0 && n <= 1.0)?,
                min_p: number("min_p", |n| (0.0..=1.0).contains(&n))?,
                typical_p: number("typical_p", |n| n > 0.0 && n <= 1.0)?,
                repetition_penalty: number("repetition_penalty", |n| n > 0.0 && n <= 1e6)?,
            },
        })
    }
}

/// An id or a list of ids; `None` when there is none.
fn token_ids(value: Option<&Value>) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids: Vec<u32> = match value? {
        Value::Array(ids) => ids.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    };
    (!ids.is_empty()).then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_ids_are_an_integer_or_a_list() {
        let read = |value: Value| GenerationConfig::from_value(&value).unwrap().eos_token_ids;
        assert_eq!(read(serde_json::json!({"eos_token_id": 2})), Some(vec![2]));
        assert_eq!(
            read(serde_json::json!({"eos_token_id": [2, 7]})),
            Some(vec![2, 7])
        );
        assert_eq!(read(serde_json::json!({"eos_token_id": null})), None);
        assert_eq!(read(serde_json::json!({})), None);
    }

    #[test]
    fn sampling_defaults_are_bounded_and_named() {
        let read = |value: Value| GenerationConfig::from_value(&value);
        let sampling = read(serde_json::json!({"temperature": 0.6, "top_k": 20, "top_p": 0.95}))
            .unwrap()
            .sampling;
        assert_eq!(sampling.temperature, Some(0.6));
        assert_eq!((sampling.top_k, sampling.top_p), (Some(20), Some(0.95)));
        assert_eq!(
            read(serde_json::json!({"top_p": 1.5})),
            Err("`top_p` is 1.5".to_owned())
        );
        assert_eq!(
            read(serde_json::json!({"top_k": "x"})),
            Err("`top_k` is \"x\"".to_owned())
        );
    }
}
