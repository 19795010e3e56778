//! What goes wrong between the router and its workers.

/// A group that ran is broken: every sequence of it goes back to the queue, and the group is started again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The stream of a rank ended or broke.
    #[error("rank {rank}: the step stream broke: {cause}")]
    Stream {
        /// Which rank.
        rank: usize,
        /// gRPC's words.
        cause: String,
    },
    /// A rank answered what it must not.
    #[error("rank {rank}: protocol violation: {what}")]
    Protocol {
        /// Which rank.
        rank: usize,
        /// What it did.
        what: String,
    },
}

/// A group did not come up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Nothing listens, or the wrong user does, or the address is of a kind that is not supported.
    #[error("rank {rank}: cannot connect to {address}: {cause}")]
    Connect {
        /// Which rank.
        rank: usize,
        /// Its URI.
        address: String,
        /// Why.
        cause: String,
    },
    /// The worker refused or failed in `Describe` or `Prepare`.
    #[error("rank {rank}: {message}")]
    Refused {
        /// Which rank.
        rank: usize,
        /// The worker's words.
        message: String,
        /// A bad checkpoint or an impossible request: a restart would meet it again.
        is_final: bool,
    },
    /// The ranks do not fit together or with the model.
    #[error("rank {rank}: {what}")]
    Mismatch {
        /// Which rank.
        rank: usize,
        /// What does not fit.
        what: String,
    },
    /// The stream of steps did not open.
    #[error(transparent)]
    Run(#[from] WorkerError),
}

impl StartError {
    /// `true`: starting again would meet the same cause.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused { is_final, .. } => *is_final,
            Self::Mismatch { .. } => true,
            Self::Connect { .. } | Self::Run(_) => false,
        }
    }
}
