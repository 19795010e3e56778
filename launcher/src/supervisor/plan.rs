//! How many workers, where, and with how many threads.

use crate::devices::{may_have_cuda, memory_bytes, usable_cores, visible_gpus};
use crate::failure::Failure;
use crate::flags::Device;
use crate::settings::WorkerSettings;
use headrace_checkpoint::hf_config::{DecoderShape, HfConfig};
use headrace_control::{ModelDocument, RouterConfig};
use std::path::Path;
use std::time::Duration;

/// Importing torch on a cold machine takes its time.
const ASK_LIMIT: Duration = Duration::from_mins(1);

/// Tokens of a step on CUDA unless told otherwise; TGI's number.
const CUDA_BATCH_TOKENS: u32 = 4096;

/// Running sequences on CUDA unless told otherwise.
const CUDA_SEQUENCES: u32 = 256;

/// The shortest request: a token of prompt and one of output.
const LEAST_TOKENS: u64 = 2;

/// What the CPU's kernels want of a block.
const CPU_BLOCK_MULTIPLE: u32 = 8;

/// Decided once, before anything starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) is_cuda: bool,
    pub(super) num_ranks: u32,
    /// Compute threads a rank.
    pub(super) num_threads: u32,
}

impl Plan {
    /// Looks at the machine and the flags.
    pub(super) fn make(settings: &WorkerSettings, python: &Path) -> Result<Self, Failure> {
        let is_cuda = match settings.device {
            Device::Cpu => false,
            Device::Cuda => true,
            // Asking takes seconds, so only where it may say yes.
            Device::Auto => visible_gpus() > 0 && torch_sees_cuda(python),
        };
        if is_cuda && !may_have_cuda() {
            let line = "--device cuda: this machine shows no NVIDIA device, or a variable hides it";
            return Err(Failure::usage(line));
        }
        let fraction = settings.cuda_memory_fraction;
        if is_cuda && (fraction - 1.0).abs() > f32::EPSILON {
            let line =
                format!("--cuda-memory-fraction {fraction}: not supported; use --kv-cache-memory");
            return Err(Failure::usage(line));
        }
        let num_ranks = num_ranks(settings, is_cuda.then(visible_gpus))?;
        let shared = usable_cores() / num_ranks;
        let num_threads = settings.compute_threads.unwrap_or(shared).max(1);
        Ok(Self {
            is_cuda,
            num_ranks,
            num_threads,
        })
    }

    /// A share of a GPU's memory where there is none.
    pub(super) fn idle_fraction(&self, settings: &WorkerSettings) -> Option<String> {
        let fraction = settings.cuda_memory_fraction;
        let is_idle = !self.is_cuda && (fraction - 1.0).abs() > f32::EPSILON;
        is_idle.then(|| {
            format!("--cuda-memory-fraction {fraction} has no effect: the model is on the CPU")
        })
    }

    /// What the device decides where no flag does. The router's own defaults are the CPU's.
    pub(super) fn fill(&self, config: &mut RouterConfig) {
        if !self.is_cuda {
            return;
        }
        let most = config.max_batch_total_tokens.unwrap_or(u32::MAX);
        let tokens = CUDA_BATCH_TOKENS.min(most);
        config.max_batch_prefill_tokens.get_or_insert(tokens);
        config.max_batch_size.get_or_insert(CUDA_SEQUENCES);
    }

    /// Sizes that the workers could only refuse, one restart after another.
    pub(super) fn check_sizes(&self, config: &RouterConfig) -> Result<(), Failure> {
        if self.is_cuda {
            return Ok(());
        }
        let block_size = config.block_size;
        if !block_size.is_multiple_of(CPU_BLOCK_MULTIPLE) {
            return Err(Failure::usage(format!(
                "--block-size {block_size}: must be a multiple of {CPU_BLOCK_MULTIPLE} on the CPU"
            )));
        }
        let (Some(bytes), Some(memory)) = (config.kv_cache_bytes, memory_bytes()) else {
            return Ok(());
        };
        if bytes.saturating_mul(u64::from(self.num_ranks)) <= memory {
            return Ok(());
        }
        let each = match self.num_ranks {
            1 => String::new(),
            ranks => format!(" for each of {ranks} workers"),
        };
        Err(Failure::usage(format!(
            "--kv-cache-memory {bytes}{each}: more than the {memory} bytes of memory that this machine or its \
             cgroup has"
        )))
    }

    /// What only the model can tell, before its weights are read.
    pub(super) fn check(
        &self,
        document: &ModelDocument,
        config: &RouterConfig,
    ) -> Result<(), Failure> {
        // Its keys were checked when the document was made.
        let keys = HfConfig::from_value(Path::new("config"), document.config.clone())?;
        self.check_shape(&keys.decoder_shape()?, &document.dtype, config)
    }

    /// The same of a model whose configuration alone is known.
    pub(super) fn check_shape(
        &self,
        shape: &DecoderShape,
        dtype: &str,
        config: &RouterConfig,
    ) -> Result<(), Failure> {
        let (ranks, heads) = (u64::from(self.num_ranks), shape.num_heads);
        if ranks > heads {
            let line = format!("--num-shard {ranks}: the model has {heads} query heads");
            return Err(Failure::usage(line));
        }
        check_pool(config, self.block_bytes(shape, dtype, config.block_size))
    }

    /// Keys and values of a block, on the rank that has most heads: the pool is as small as the smallest rank's.
    fn block_bytes(&self, shape: &DecoderShape, dtype: &str, block_size: u32) -> u64 {
        let is_half = self.is_cuda && dtype != "float32";
        let heads = shape.num_kv_heads.div_ceil(u64::from(self.num_ranks));
        [
            2,
            shape.num_layers,
            heads,
            shape.head_dim,
            u64::from(block_size),
            if is_half { 2 } else { 4 },
        ]
        .into_iter()
        .fold(1, u64::saturating_mul)
    }

    pub(super) fn device_name(&self) -> &'static str {
        if self.is_cuda { "cuda" } else { "cpu" }
    }
}

/// The KV cache must hold the longest sequence that the flags promise, and one token more than a prompt of one.
fn check_pool(config: &RouterConfig, block_bytes: u64) -> Result<(), Failure> {
    let Some(bytes) = config.kv_cache_bytes else {
        return Ok(());
    };
    let block_size = u64::from(config.block_size);
    let holds = (bytes / block_bytes.max(1)).saturating_mul(block_size);
    let least = |tokens: u64| tokens.div_ceil(block_size).saturating_mul(block_bytes);
    if holds < LEAST_TOKENS {
        return Err(Failure::usage(format!(
            "--kv-cache-memory {bytes}: holds {holds} tokens in KV blocks of {block_size} tokens, and a request \
             has {LEAST_TOKENS} at least; the least that works is {} bytes",
            least(LEAST_TOKENS)
        )));
    }
    let promised = [
        ("--max-total-tokens", config.max_total_tokens, 0),
        // And one of output.
        ("--max-input-tokens", config.max_input_tokens, 1),
    ];
    for (flag, tokens, more) in promised {
        let Some(tokens) = tokens else { continue };
        let needed = u64::from(tokens) + more;
        if needed > holds {
            return Err(Failure::usage(format!(
                "{flag} {tokens}: --kv-cache-memory {bytes} holds {holds} tokens; the least that works with it is {} \
                 bytes",
                least(needed)
            )));
        }
    }
    Ok(())
}

/// TGI's rules. `gpus`: visible ones, `None` on the CPU.
fn num_ranks(settings: &WorkerSettings, gpus: Option<u32>) -> Result<u32, Failure> {
    match (settings.sharded, settings.num_shard, gpus) {
        (_, Some(num_shard), _) => Ok(num_shard),
        (Some(false), None, _) | (None, None, None) => Ok(1),
        (Some(true), None, Some(gpus)) if gpus > 1 => Ok(gpus),
        (Some(true), None, Some(gpus)) => Err(Failure::usage(format!(
            "--sharded true: {} visible",
            if gpus == 1 {
                "only 1 GPU is"
            } else {
                "no GPU is"
            }
        ))),
        (Some(true), None, None) => Err(Failure::usage(
            "--sharded true: needs --num-shard on the CPU",
        )),
        (None, None, Some(gpus)) => Ok(gpus.max(1)),
    }
}

fn torch_sees_cuda(python: &Path) -> bool {
    let script = "import torch; print(torch.cuda.is_available())";
    crate::python::ask(python, script, ASK_LIMIT).is_some_and(|answer| answer.trim() == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sharded: Option<bool>, num_shard: Option<u32>) -> WorkerSettings {
        WorkerSettings {
            num_shard,
            sharded,
            device: Device::Cpu,
            compute_threads: None,
            max_restarts: 0,
            python: None,
            cuda_memory_fraction: 1.0,
        }
    }

    #[test]
    fn cuda_fills_what_no_flag_decides() {
        let filled = |is_cuda: bool, total: Option<u32>, size: Option<u32>| {
            let mut config = config();
            config.max_batch_total_tokens = total;
            config.max_batch_size = size;
            let plan = Plan {
                is_cuda,
                num_ranks: 1,
                num_threads: 1,
            };
            plan.fill(&mut config);
            (config.max_batch_prefill_tokens, config.max_batch_size)
        };
        assert_eq!(filled(false, None, None), (None, None));
        assert_eq!(filled(true, None, None), (Some(4096), Some(256)));
        assert_eq!(filled(true, Some(1000), Some(3)), (Some(1000), Some(3)));
    }

    #[test]
    fn a_kv_cache_memory_that_holds_too_little_is_refused_with_the_least_that_works() {
        type Change<'a> = &'a dyn Fn(&mut RouterConfig);
        type Case<'a> = (u64, Change<'a>, Option<(&'a str, u64)>);
        const BLOCK: u64 = 1000;
        let check = |bytes: u64, change: Change<'_>| {
            let mut config = config();
            config.kv_cache_bytes = Some(bytes);
            change(&mut config);
            check_pool(&config, BLOCK).map_err(|failure| failure.to_string())
        };
        let with_block_size = |size: u32| move |config: &mut RouterConfig| config.block_size = size;
        let with_total =
            |tokens: u32| move |config: &mut RouterConfig| config.max_total_tokens = Some(tokens);
        let with_input =
            |tokens: u32| move |config: &mut RouterConfig| config.max_input_tokens = Some(tokens);
        // Bytes, what else is set, and the words and the least value of a refusal.
        let cases: [Case<'_>; 10] = [
            (1, &|_| {}, Some(("--kv-cache-memory 1:", 1000))),
            (999, &|_| {}, Some(("--kv-cache-memory 999:", 1000))),
            (1000, &|_| {}, None),
            // One block of one token: a prompt, and no room for an answer.
            (
                1999,
                &with_block_size(1),
                Some(("--kv-cache-memory 1999:", 2000)),
            ),
            (2000, &with_block_size(1), None),
            (
                2999,
                &with_total(33),
                Some(("--max-total-tokens 33:", 3000)),
            ),
            (3000, &with_total(33), None),
            (1000, &with_total(16), None),
            (
                1000,
                &with_input(16),
                Some(("--max-input-tokens 16:", 2000)),
            ),
            (1000, &with_input(15), None),
        ];
        for (bytes, change, refused) in cases {
            match (check(bytes, change), refused) {
                (Ok(()), None) => {}
                (Err(line), Some((flag, least))) => {
                    assert!(line.contains(flag), "{line}");
                    assert!(line.ends_with(&format!("{least} bytes")), "{line}");
                    // And it does work.
                    assert_eq!(check(least, change), Ok(()), "{line}");
                }
                (outcome, _) => panic!("{bytes}: {outcome:?}"),
            }
        }
    }

    fn config() -> RouterConfig {
        let arguments = ["launcher", "--device", "cpu"].map(Into::into);
        match crate::settings::read(&arguments).expect("sound") {
            crate::settings::Request::Serve(settings) => settings.router,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ranks_follow_tgi() {
        let cases = [
            (None, None, None, Some(1)),
            (None, None, Some(4), Some(4)),
            (None, Some(2), Some(4), Some(2)),
            (Some(false), None, Some(4), Some(1)),
            (Some(true), None, Some(4), Some(4)),
            (Some(true), None, Some(1), None),
            (Some(true), None, None, None),
            (Some(true), Some(2), None, Some(2)),
        ];
        for (sharded, num_shard, gpus, expected) in cases {
            let ranks = num_ranks(&settings(sharded, num_shard), gpus);
            assert_eq!(ranks.ok(), expected, "{sharded:?} {num_shard:?} {gpus:?}");
        }
    }
}
