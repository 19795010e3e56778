//! Flags and environment, checked and joined into what the rest of the launcher works from.

mod checks;
mod command;
mod foreign;
mod foreign_flags;
mod keys;
mod origins;
mod paths;
mod refusal;
mod variables;

pub(crate) use origins::Origins;
pub(crate) use paths::{TOKENIZER_CONFIG, is_template};
pub(crate) use refusal::one_line;
pub(crate) use variables::log_format;

use crate::failure::Failure;
use crate::flags::{Device, Dtype, Flags, RopeScaling};
use crate::log::Level;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};
use headrace_control::RouterConfig;
use keys::KeyRing;
use std::ffi::OsString;
use std::path::PathBuf;
use variables::{is_prefix_caching_off, variable};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Serve a model.
    Serve(Box<Settings>),
    /// `--env`.
    PrintEnvironment(Option<PathBuf>),
    /// `--help` and `--version`.
    Print(String),
}

/// Everything, decided once.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) model: ModelSettings,
    pub(crate) router: RouterConfig,
    pub(crate) workers: WorkerSettings,
    /// Seconds.
    pub(crate) grace_seconds: u64,
    /// One line each, for flags and variables that have no effect or another one than their words.
    pub(crate) warnings: Vec<String>,
    /// For failures that come later.
    pub(crate) origins: Origins,
}

/// Which model, and what is changed about it.
#[derive(Debug)]
pub(crate) struct ModelSettings {
    pub(crate) model_id: String,
    pub(crate) revision: Option<String>,
    pub(crate) tokenizer_config: Option<PathBuf>,
    pub(crate) hub_cache: Option<PathBuf>,
    pub(crate) weights_folder: Option<PathBuf>,
    pub(crate) dtype: Option<Dtype>,
    pub(crate) rope_scaling: Option<(RopeScaling, f64)>,
    pub(crate) max_total_tokens: Option<u32>,
    pub(crate) max_input_tokens: Option<u32>,
}

/// How the worker processes are planned.
#[derive(Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) num_shard: Option<u32>,
    pub(crate) sharded: Option<bool>,
    pub(crate) device: Device,
    pub(crate) compute_threads: Option<u32>,
    pub(crate) max_restarts: u32,
    pub(crate) python: Option<PathBuf>,
    pub(crate) cuda_memory_fraction: f32,
}

/// Reads flags and environment.
pub(crate) fn read(arguments: &[OsString]) -> Result<Request, Failure> {
    if let Some(line) = foreign::refusal(arguments) {
        return Err(Failure::usage(line));
    }
    let mut command = command::build(arguments);
    let origins = Origins::find(&command, arguments);
    read_with(&mut command, arguments, &origins).map_err(|failure| origins.blame(&failure))
}

fn read_with(
    command: &mut Command,
    arguments: &[OsString],
    origins: &Origins,
) -> Result<Request, Failure> {
    let matches = match command.try_get_matches_from_mut(arguments) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => {
            return Err(refusal::refusal(&error, command, arguments));
        }
        Err(help_or_version) => return Ok(Request::Print(help_or_version.render().to_string())),
    };
    let flags = Flags::from_arg_matches(&matches).map_err(|error| one_line(&error))?;
    if flags.terminal.env {
        return Ok(Request::PrintEnvironment(flags.workers.python));
    }
    let given = |name: &str| {
        matches!(
            matches.value_source(name),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        )
    };
    checks::refuse(&flags)?;
    variables::refuse(&variable)?;
    let mut warnings = checks::without_effect(&flags, &given);
    warnings.extend(checks::rounded(&flags));
    warnings.extend(checks::origins_of_nobody(&flags));
    for warning in &mut warnings {
        *warning = origins.explain(warning);
    }
    warnings.extend(variables::warnings(&variable));
    let hostname = hostname(&flags.server.hostname, &matches)?;
    let keys = KeyRing::read(&flags.server)?;
    let mut settings = join(flags, hostname, keys, warnings);
    paths::refuse(&settings.model)?;
    settings.origins = origins.clone();
    Ok(Request::Serve(Box::new(settings)))
}

fn join(flags: Flags, hostname: String, keys: KeyRing, warnings: Vec<String>) -> Settings {
    let Flags {
        model,
        server,
        limits,
        batching,
        workers,
        compatibility,
        ..
    } = flags;
    let max_input_tokens = limits.max_input_tokens.or(limits.max_input_length);
    Settings {
        router: RouterConfig {
            hostname,
            port: server.port,
            prometheus_port: server.prometheus_port,
            max_concurrent_requests: limits.max_concurrent_requests,
            max_best_of: limits.max_best_of,
            max_stop_sequences: limits.max_stop_sequences,
            max_top_n_tokens: limits.max_top_n_tokens,
            max_input_tokens,
            max_total_tokens: limits.max_total_tokens,
            max_batch_prefill_tokens: batching.max_batch_prefill_tokens,
            max_batch_total_tokens: batching.max_batch_total_tokens,
            max_batch_size: batching.max_batch_size,
            max_queued_tokens: batching.max_queued_tokens,
            schedule_policy: batching.schedule_policy.into(),
            target_itl_ms: batching.target_itl_ms.milliseconds(),
            stall_timeout_seconds: server.stall_timeout,
            max_client_batch_size: limits.max_client_batch_size,
            validation_workers: batching.validation_workers,
            payload_limit: limits.payload_limit,
            api_keys: keys.api_keys,
            admin_key: keys.admin_key,
            cors_allow_origin: server.cors_allow_origin,
            disable_grammar_support: server.disable_grammar_support,
            lenient_grammar: server.lenient_grammar,
            strict_model_name: server.strict_model_name,
            guard_info_and_metrics: server.guard_info_and_metrics,
            completions_default_max_tokens: limits.completions_default_max_tokens,
            kv_cache_bytes: batching.kv_cache_memory.map(|size| size.0),
            block_size: batching.block_size,
            prefix_caching: !batching.disable_prefix_caching && !is_prefix_caching_off(),
            poison_fresh_blocks: batching.poison_fresh_blocks,
            log_level: Level::from_variable(variable("LOG_LEVEL").as_deref())
                .name()
                .to_lowercase(),
            compute_type: compute_type(workers.device),
            docker_label: variable("DOCKER_LABEL"),
            aip_predict_route: variable("AIP_PREDICT_ROUTE"),
            aip_health_route: variable("AIP_HEALTH_ROUTE"),
        },
        model: ModelSettings {
            model_id: model.model_id,
            revision: model.revision,
            tokenizer_config: model.tokenizer_config_path,
            hub_cache: model.huggingface_hub_cache,
            weights_folder: model.weights_cache_override,
            dtype: model.dtype,
            rope_scaling: model.rope_scaling.zip(model.rope_factor),
            max_total_tokens: limits.max_total_tokens,
            max_input_tokens,
        },
        workers: WorkerSettings {
            num_shard: workers.num_shard,
            sharded: workers.sharded,
            device: workers.device,
            compute_threads: workers.compute_threads,
            max_restarts: workers.max_restarts,
            python: workers.python,
            cuda_memory_fraction: compatibility.cuda_memory_fraction,
        },
        grace_seconds: server.graceful_termination_timeout,
        warnings,
        origins: Origins::default(),
    }
}

/// For the header `x-compute-type`; TGI's default is `gpu+optimized`.
fn compute_type(device: Device) -> String {
    variable("COMPUTE_TYPE").unwrap_or_else(|| {
        let is_cpu =
            device == Device::Cpu || device == Device::Auto && crate::devices::visible_gpus() == 0;
        if is_cpu {
            "cpu+optimized"
        } else {
            "gpu+optimized"
        }
        .to_owned()
    })
}

/// An address stays. A name counts only if a person typed it: containers set HOSTNAME to a name that is no address
/// to listen on.
fn hostname(given: &str, matches: &ArgMatches) -> Result<String, Failure> {
    let bare = given
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(given);
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    if matches.value_source("hostname") == Some(ValueSource::EnvVariable) {
        return Ok("0.0.0.0".to_owned());
    }
    if given == "localhost" {
        return Ok("127.0.0.1".to_owned());
    }
    Err(Failure::usage(format!(
        "--hostname {given}: must be an IPv4 or IPv6 address"
    )))
}
