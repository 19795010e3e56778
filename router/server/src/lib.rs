//! headrace-router
