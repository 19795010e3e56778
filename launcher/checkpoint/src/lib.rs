//! headrace-checkpoint
