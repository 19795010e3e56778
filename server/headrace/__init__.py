"""headrace workers: token ids in, token ids out. See ARCHITECTURE.md."""
