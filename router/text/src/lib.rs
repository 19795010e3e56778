//! headrace-text
