//! Which kernels run: chosen for the CPU found at start, never at build time.

use std::sync::atomic::{AtomicU8, Ordering};

/// Names the environment variable that forces a lower set: `avx512`, `avx2` or `scalar`.
pub const KERNEL_SET_VARIABLE: &str = "HEADRACE_KERNEL_SET";

/// A set of kernels that this CPU can run; only [`KernelSet::available`] makes the vector ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelSet {
    /// Plain Rust, any CPU.
    Scalar,
    /// AVX2 and FMA, 8 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512F, 16 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

const UNSET: u8 = u8::MAX;
static CURRENT: AtomicU8 = AtomicU8::new(UNSET);

/// A kernel set that was asked for and cannot run here, or is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableSet(pub String);

impl std::fmt::Display for UnavailableSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = KernelSet::available()
            .iter()
            .map(|set| set.name())
            .collect();
        write!(
            f,
            "kernel set {:?} is not one of those this CPU has: {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnavailableSet {}

impl KernelSet {
    /// The sets this CPU can run, best first.
    pub fn available() -> Vec<Self> {
        let mut sets = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 && is_x86_feature_detected!("avx512f") {
                sets.push(Self::Avx512);
            }
            if avx2 {
                sets.push(Self::Avx2);
            }
        }
        sets.push(Self::Scalar);
        sets
    }

    /// `avx512`, `avx2` or `scalar`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
        }
    }

    /// The set of this name, if this CPU can run it.
    pub fn from_name(name: &str) -> Result<Self, UnavailableSet> {
        Self::available()
            .into_iter()
            .find(|set| set.name() == name)
            .ok_or_else(|| UnavailableSet(name.to_owned()))
    }

    /// The set in use: the best one, unless the environment or [`KernelSet::force`] says otherwise.
    pub fn current() -> Result<Self, UnavailableSet> {
        let code = CURRENT.load(Ordering::Relaxed);
        if let Some(set) = Self::available_by_code(code) {
            return Ok(set);
        }
        let set = match std::env::var(KERNEL_SET_VARIABLE) {
            Ok(name) if !name.is_empty() => Self::from_name(&name)?,
            _ => Self::available().first().copied().unwrap_or(Self::Scalar),
        };
        CURRENT.store(set.code(), Ordering::Relaxed);
        Ok(set)
    }

    /// Uses `set` from now on. Weights packed for another set are refused from then on.
    pub fn force(set: Self) {
        CURRENT.store(set.code(), Ordering::Relaxed);
    }

    /// Columns of a packed panel of this set.
    pub fn panel_columns(self) -> usize {
        self.lanes() * crate::linear::PANEL_VECTORS
    }

    /// This set, or the next lower one whose vectors of keys fit into blocks of this size; none if the
    /// size is not a multiple of 8.
    pub fn for_block_size(self, block_size: usize) -> Option<Self> {
        let fits = |set: Self| block_size > 0 && block_size.is_multiple_of(set.lanes());
        match self {
            // Who has AVX-512F here has AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if !fits(Self::Avx512) => Self::Avx2.for_block_size(block_size),
            set => fits(set).then_some(set),
        }
    }

    /// Lanes of a vector.
    pub(crate) fn lanes(self) -> usize {
        match self {
            Self::Scalar => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 16,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Scalar => 0,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 1,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 2,
        }
    }

    fn available_by_code(code: u8) -> Option<Self> {
        // Only sets that were checked are stored.
        match code {
            0 => Some(Self::Scalar),
            #[cfg(target_arch = "x86_64")]
            1 => Some(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            2 => Some(Self::Avx512),
            _ => None,
        }
    }
}
