//! headrace-fake-worker
