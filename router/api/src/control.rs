//! Routes for operators.

use serde::Serialize;
use utoipa::ToSchema;

/// Answer of `POST /drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DrainBegun {
    /// Always true.
    pub draining: bool,
}
/// Answer of `POST /flush_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CacheFlushed {
    /// Always true.
    pub success: bool,
    /// KV blocks that only the prefix cache held, and that are free now.
    pub freed_blocks: usize,
    /// KV blocks of running sequences: later prompts do not find them.
    pub kept_blocks: usize,
}
