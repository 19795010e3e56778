//! headrace-worker-client
