//! headrace-dialect
