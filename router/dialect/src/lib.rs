//! Dialects: a wire request becomes a [`call::Call`], what the model does becomes wire bytes. Pure functions: no
//! engine, no I/O, no clock.
//!
//! Reading: [`json`] parses, [`fields`] reads members with their path, and one module a dialect knows its fields,
//! bounds ([`bounds`]) and words. Writing: [`choice`] turns ids into text, and each dialect has a renderer. Ends
//! ([`end`]) and errors ([`refusal`]) have one internal set, mapped per dialect.

pub mod abort;
pub mod bounds;
pub mod call;
pub mod choice;
pub mod end;
pub mod failure;
pub mod fields;
pub mod grammar;
pub mod ignored;
pub mod invocations;
pub mod json;
pub mod kserve;
pub mod native;
mod nearest;
pub mod openai;
pub mod refusal;
pub mod request_id;
pub mod shape;
pub mod shown_prompt;
pub mod terms;
pub mod vertex;
