//! Wire types of each dialect. Replies serialise from here; requests are read by `headrace-dialect`, which can
//! name the field that is wrong, and are described here for the `OpenAPI` document.

pub mod abort;
pub mod about;
pub mod chat;
pub mod completion;
pub mod control;
pub mod errors;
pub mod invocations;
pub mod kserve;
pub mod models;
pub mod native;
pub mod shapes;
pub mod tokenize;
pub mod vertex;
