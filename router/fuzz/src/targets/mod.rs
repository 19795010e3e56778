//! What is fed.

mod bodies;
mod checkpoint;
mod detokenizer;
mod grammars;
mod json_text;
mod made_up_text;
mod models;
mod prefix_tree;
mod stops;
mod templates;
mod tokenizer_files;
mod tokenizers;
mod worker_replies;

use crate::Target;

/// Every target.
pub fn all() -> Vec<Target> {
    vec![
        bodies::TARGET,
        tokenizers::TARGET,
        tokenizer_files::TARGET,
        templates::TARGET,
        detokenizer::TARGET,
        stops::TARGET,
        grammars::TARGET,
        prefix_tree::TARGET,
        worker_replies::TARGET,
        checkpoint::GGUF,
        checkpoint::SAFETENSORS,
        checkpoint::CONFIG,
    ]
}
