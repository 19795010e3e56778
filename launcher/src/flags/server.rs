//! Where and for whom it is served, and what the terminal shows.

use clap::Args;
use std::path::PathBuf;

/// Flags of the HTTP side.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that people set one by one"
)]
pub(crate) struct ServerFlags {
    /// Address to listen on: IPv4 or IPv6. A HOSTNAME variable that is no address (containers set one) is ignored.
    #[arg(long, env, default_value = "0.0.0.0")]
    pub(crate) hostname: String,

    /// Port to listen on; 0 takes a free one. Vertex's AIP_HTTP_PORT counts before PORT.
    #[arg(long, short, env, default_value_t = 3000)]
    pub(crate) port: u16,

    /// A second listener for `/metrics` alone. Absent: none (the main port has `/metrics` too).
    #[arg(long, env)]
    pub(crate) prometheus_port: Option<u16>,

    /// A key that opens the guarded routes; may be repeated. All of the value is the key, whatever is in it; its name in
    /// logs and metrics is `key-1`, `key-2` and so on. None, and no file: no key is asked for.
    #[arg(long, env, hide_env_values = true)]
    pub(crate) api_key: Vec<String>,

    /// A file with one key a line, beside those of --api-key: the key, then `name=NAME` and `priority=CLASS` if wanted
    /// (the class of its requests that ask for none; lower ones run first, 0 is the default). Empty lines and lines that
    /// begin with `#` do not count.
    #[arg(long, env)]
    pub(crate) api_key_file: Option<PathBuf>,

    /// The key that opens the control routes, and all others too. Absent: there are no control routes.
    #[arg(long, env, hide_env_values = true)]
    pub(crate) admin_api_key: Option<String>,

    /// `/info` and `/metrics` want a key too. Without this they are open, as in TGI.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) guard_info_and_metrics: bool,

    /// An origin that browsers may call from; may be repeated. None: any.
    #[arg(long, env)]
    pub(crate) cors_allow_origin: Vec<String>,

    /// Requests for another model answer 404, where TGI takes any name. No name, an empty one, `tgi`, `dummy`, a URL and
    /// the served name mean the served model.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) strict_model_name: bool,

    /// Refuse requests that ask for a grammar, for good.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) disable_grammar_support: bool,

    /// Ignore what a JSON schema demands and cannot be enforced. Otherwise such a schema is refused by the keyword's name.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) lenient_grammar: bool,

    /// Seconds that a client may leave its stream unread, once its buffer is full, before it is dropped. Until then its
    /// sequence pauses.
    #[arg(long, env, default_value_t = 60)]
    pub(crate) stall_timeout: u64,

    /// Seconds that admitted requests get to finish after SIGTERM or Ctrl-C. A second signal ends at once.
    #[arg(long, short, env, default_value_t = 90)]
    pub(crate) graceful_termination_timeout: u64,
}

/// Flags about output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Terminal")]
pub(crate) struct TerminalFlags {
    /// Log JSON lines instead of text. The variable LOG_FORMAT=json does the same; LOG_LEVEL (trace to error) and
    /// LOG_COLORIZE (0 or 1) hold for both.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) json_output: bool,

    /// Print what this was built from and what it runs on, and end.
    #[arg(long, short)]
    pub(crate) env: bool,
}
