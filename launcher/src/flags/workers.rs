//! The worker processes.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Flags that plan the workers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct WorkerFlags {
    /// Worker processes that split the model among them. Absent: one on the CPU, every visible GPU on CUDA.
    #[arg(long, env)]
    pub(crate) num_shard: Option<u32>,

    /// `true` without --num-shard: all visible GPUs, and at least two of them. `false`: one worker,
    /// and --num-shard above 1 is refused.
    #[arg(long, env)]
    pub(crate) sharded: Option<bool>,

    /// Where the workers compute; `auto` takes CUDA when PyTorch finds it, `cuda` is refused without a device.
    #[arg(long, env, value_enum, default_value_t = Device::Auto)]
    pub(crate) device: Device,

    /// Compute threads of a worker. Absent: usable cores divided by the workers.
    #[arg(long, env)]
    pub(crate) compute_threads: Option<u32>,

    /// Restarts of the workers in a row without a completed step or ten minutes of being up between them; and, counted
    /// apart, of the router without ten minutes of being ready. 0: the first death ends everything, as in TGI.
    #[arg(long, env, default_value_t = 5)]
    pub(crate) max_restarts: u32,

    /// The Python that runs the workers. Absent: the one beside this program, else that of the active virtual
    /// environment, else `python3`.
    #[arg(long, env = "HEADRACE_PYTHON")]
    pub(crate) python: Option<PathBuf>,
}

/// Where workers compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    Auto,
    Cpu,
    Cuda,
}
