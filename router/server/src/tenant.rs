//! Whom the scheduler charges, and who shares what is scarce.

use sha2::{Digest, Sha256};

/// The holder of a key, by the key's name alone, so that it outlives restarts; or nobody in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tenant(u64);

impl Tenant {
    /// Of all requests where no keys are asked for.
    pub(crate) const NOBODY: Self = Self(0);

    /// `kind` is without zero bytes: no two pairs are hashed from the same bytes.
    pub(crate) fn of(kind: &str, name: &str) -> Self {
        let digest = Sha256::new()
            .chain_update("headrace tenant\0")
            .chain_update(kind)
            .chain_update([0])
            .chain_update(name);
        let number = first_bytes(digest);
        Self(number.max(Self::NOBODY.0 + 1))
    }

    /// As the scheduler knows it.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The start of a hash as a number.
pub(crate) fn first_bytes(digest: Sha256) -> u64 {
    let digest = digest.finalize();
    let bytes = digest.first_chunk::<8>().copied();
    u64::from_le_bytes(bytes.unwrap_or_default())
}
