//! `/abort`, and its other names.

use crate::shapes::OneOrMany;
use serde::Serialize;
use utoipa::ToSchema;

/// Body of `/abort`: at least one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct AbortRequest {
    /// The request's `x-request-id`, or its `request_id` or `rid`; a list of them too.
    #[schema(value_type = Option<OneOrMany>)]
    pub request_id: Option<Vec<String>>,
    /// The same, as vLLM calls it.
    #[schema(max_items = 1024)]
    pub request_ids: Option<Vec<String>>,
    /// The same, as `SGLang` calls it.
    #[schema(value_type = Option<OneOrMany>)]
    pub rid: Option<Vec<String>>,
    /// Every request. Needs the admin key, unless no key is set at all.
    pub abort_all: Option<bool>,
}

/// Answer of `/abort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Aborted {
    /// Requests that this ended: 0 when none of them runs (any more), or none is yours.
    pub aborted: usize,
}
