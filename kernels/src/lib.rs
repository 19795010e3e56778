//! headrace-kernels
