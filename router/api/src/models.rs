//! `/v1/models`.

use serde::Serialize;
use utoipa::ToSchema;

/// `GET /v1/models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: &'static str,
    /// What is served.
    pub data: Vec<ModelCard>,
}

/// One served model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelCard {
    /// Its name.
    pub id: String,
    /// `model`.
    pub object: &'static str,
    /// Always 0, as in TGI.
    pub created: u64,
    /// Its name again.
    pub owned_by: String,
    /// Prompt and output tokens at most.
    pub max_model_len: u32,
}
