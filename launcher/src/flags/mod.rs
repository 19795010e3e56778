//! Every flag and its environment variable. The groups are the headings of `--help`.
//!
//! Names and defaults are TGI's (`text-generation-launcher` 3.3). What clap reads here becomes
//! [`crate::settings::Settings`] once, in [`crate::settings`]; nothing else looks at flags.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are the text of `--help`"
)]

mod batching;
mod compatibility;
mod limits;
mod model;
mod server;
mod workers;

pub(crate) use batching::BatchingFlags;
pub(crate) use compatibility::CompatibilityFlags;
pub(crate) use limits::LimitFlags;
pub(crate) use model::{Dtype, ModelFlags, RopeScaling};
pub(crate) use server::{ServerFlags, TerminalFlags};
pub(crate) use workers::{Device, WorkerFlags};

use clap::Parser;

/// Serves a large language model: a directory, a GGUF file or a hub id is enough.
///
/// Every flag is also an environment variable, named in brackets. TGI's flags are all accepted: they work, or are
/// refused by name, or say by name that they have no effect yet.
#[derive(Debug, Parser)]
#[command(
    name = "launcher",
    version,
    next_line_help = true,
    max_term_width = 100
)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) model: ModelFlags,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) batching: BatchingFlags,
    #[command(flatten)]
    pub(crate) workers: WorkerFlags,
    #[command(flatten)]
    pub(crate) terminal: TerminalFlags,
    #[command(flatten)]
    pub(crate) compatibility: CompatibilityFlags,
    /// `serve`: accepted and ignored, as SageMaker passes it. Then HF_MODEL_ID, HF_MODEL_REVISION, SM_NUM_GPUS,
    /// HF_MODEL_QUANTIZE and HF_MODEL_TRUST_REMOTE_CODE are read too; with the first or third of them the port is 8080.
    #[arg(value_parser = ["serve"], hide_possible_values = true)]
    pub(crate) command: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Every flag of TGI 3.3 with its default there, but for the deliberate ones: the default model is ours, usage
    /// statistics are off, and what TGI binds on port 9000 is not bound.
    const TGI: [(&str, Option<&str>); 54] = [
        ("model-id", Some(crate::model::DEFAULT_MODEL)),
        ("revision", None),
        ("validation-workers", Some("2")),
        ("sharded", None),
        ("num-shard", None),
        ("quantize", None),
        ("speculate", None),
        ("dtype", None),
        ("kv-cache-dtype", None),
        ("trust-remote-code", Some("false")),
        ("max-concurrent-requests", Some("128")),
        ("max-best-of", Some("2")),
        ("max-stop-sequences", Some("4")),
        ("max-top-n-tokens", Some("5")),
        ("max-input-tokens", None),
        ("max-input-length", None),
        ("max-total-tokens", None),
        ("waiting-served-ratio", Some("0.3")),
        ("max-batch-prefill-tokens", None),
        ("max-batch-total-tokens", None),
        ("max-waiting-tokens", Some("20")),
        ("max-batch-size", None),
        ("cuda-graphs", None),
        ("hostname", Some("0.0.0.0")),
        ("port", Some("3000")),
        ("prometheus-port", None),
        ("shard-uds-path", None),
        ("master-addr", None),
        ("master-port", None),
        ("huggingface-hub-cache", None),
        ("weights-cache-override", None),
        ("disable-custom-kernels", Some("false")),
        ("cuda-memory-fraction", Some("1")),
        ("rope-scaling", None),
        ("rope-factor", None),
        ("json-output", Some("false")),
        ("otlp-endpoint", None),
        ("otlp-service-name", None),
        ("cors-allow-origin", None),
        ("api-key", None),
        ("watermark-gamma", None),
        ("watermark-delta", None),
        ("ngrok", Some("false")),
        ("ngrok-authtoken", None),
        ("ngrok-edge", None),
        ("tokenizer-config-path", None),
        ("disable-grammar-support", Some("false")),
        ("env", Some("false")),
        ("max-client-batch-size", Some("4")),
        ("lora-adapters", None),
        ("usage-stats", Some("off")),
        ("payload-limit", Some("2000000")),
        ("enable-prefill-logprobs", Some("false")),
        ("graceful-termination-timeout", Some("90")),
    ];

    #[test]
    fn every_flag_of_tgi_is_here_with_variable_and_default() {
        let command = Flags::command();
        for (flag, default) in &TGI {
            let argument = command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(flag))
                .unwrap_or_else(|| panic!("--{flag} is missing"));
            let found = argument
                .get_default_values()
                .first()
                .and_then(|value| value.to_str());
            // A switch has no default value of its own in clap.
            assert_eq!(
                found.or((*default == Some("false")).then_some("false")),
                *default,
                "{flag}"
            );
            if *flag != "env" {
                let variable = flag.replace('-', "_").to_uppercase();
                assert_eq!(
                    argument.get_env().and_then(|name| name.to_str()),
                    Some(&*variable)
                );
            }
        }
    }

    #[test]
    fn short_flags_and_words_of_tgi() {
        let parse = |arguments: &[&str]| {
            Flags::try_parse_from([&["launcher"], arguments].concat()).expect("accepted")
        };
        assert_eq!(parse(&["-p", "80"]).server.port, 80);
        assert_eq!(parse(&["-g", "5"]).server.graceful_termination_timeout, 5);
        assert!(parse(&["-e"]).terminal.env);
        assert_eq!(parse(&["--sharded", "true"]).workers.sharded, Some(true));
        assert_eq!(
            parse(&["serve", "--dtype", "float16"]).command.as_deref(),
            Some("serve")
        );
        let keys = parse(&["--api-key", "a", "--api-key", "b"]).server.api_key;
        assert_eq!(keys, ["a", "b"]);
        parse(&[
            "--cuda-graphs",
            "1,2,4",
            "--usage-stats",
            "no-stack",
            "--rope-scaling",
            "dynamic",
        ]);
    }

    #[test]
    fn the_command_is_sound() {
        Flags::command().debug_assert();
    }
}
