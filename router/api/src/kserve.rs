//! `KServe`'s Open Inference Protocol, version 2, in TGI's shape and in the protocol's own.

use crate::native::GenerateParameters;
use serde::Serialize;
use utoipa::ToSchema;

/// Answer of `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServerMetadata {
    /// `text-generation-inference`, as in TGI.
    pub name: &'static str,
    /// Version of the server.
    pub version: &'static str,
    /// `health`, `models`, `metrics`.
    pub extensions: Vec<&'static str>,
}

/// Answer of a model's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelMetadata {
    /// As in the path.
    pub name: String,
    /// As in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `infer`, `ready`.
    pub extensions: Vec<&'static str>,
    /// `headrace`.
    pub platform: &'static str,
    /// The one that a request may have several of.
    pub inputs: Vec<TensorMetadata>,
    /// The one that answers it.
    pub outputs: Vec<TensorMetadata>,
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TensorMetadata {
    /// Any name is taken.
    pub name: &'static str,
    /// `BYTES`.
    pub datatype: &'static str,
    /// -1: any number.
    pub shape: Vec<i64>,
}

/// Answer of the health paths, when all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct KserveHealth {
    /// The model's name, where the path has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// TGI's key, in every one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<bool>,
    /// The protocol's key, where readiness is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What is waited for, when all is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
}

/// Body of `infer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct InferenceRequest {
    /// Given back. `/abort` ends the request by it, if a `request_id` could be so.
    #[schema(max_length = 1024)]
    pub id: Option<String>,
    /// How to generate, for every prompt.
    #[schema(required = false)]
    pub parameters: GenerateParameters,
    /// At least one.
    #[schema(min_items = 1)]
    pub inputs: Vec<InputTensor>,
    /// Names of the answers: as many as inputs. Absent: those of the inputs.
    pub outputs: Option<Vec<RequestedOutput>>,
}

/// Prompts.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct InputTensor {
    /// Any.
    pub name: String,
    /// How many strings; says nothing for bytes.
    pub shape: Vec<u64>,
    /// `BYTES`.
    #[schema(example = "BYTES")]
    pub datatype: String,
    /// The UTF-8 bytes of one prompt as numbers (TGI), or prompts as strings (`KServe`).
    pub data: TensorData,
}

/// The name of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RequestedOutput {
    /// Any.
    pub name: String,
}

/// Elements of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TensorData {
    /// One text.
    Bytes(Vec<u8>),
    /// Texts.
    Strings(Vec<String>),
}

/// Answer of `infer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct InferenceResponse {
    /// The request's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// One an input, in their order.
    pub outputs: Vec<OutputTensor>,
    /// As in the path.
    pub model_name: String,
    /// As in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
}

/// Generated texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputTensor {
    /// As asked for.
    pub name: String,
    /// `[1, bytes]`, or `[strings]`.
    pub shape: Vec<usize>,
    /// `BYTES`.
    pub datatype: &'static str,
    /// In the form of its input.
    pub data: TensorData,
}
