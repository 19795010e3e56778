//! headrace-api
