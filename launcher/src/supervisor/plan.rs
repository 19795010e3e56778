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
        let shape = keys.decoder_shape()?;
        let (ranks, heads) = (u64::from(self.num_ranks), shape.num_heads);
        if ranks > heads {
            let line = format!("--num-shard {ranks}: the model has {heads} query heads");
            return Err(Failure::usage(line));
        }
        let block_bytes = self.block_bytes(&shape, &document.dtype, config.block_size);
        match config.kv_cache_bytes {
            Some(bytes) if bytes < block_bytes => Err(Failure::usage(format!(
                "--kv-cache-memory {bytes}: holds no KV block of {} tokens, which takes {block_bytes} bytes",
                config.block_size
            ))),
            _ => Ok(()),
        }
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
