//! Fields of requests that may have one of several shapes, for the `OpenAPI` document: `headrace-dialect` reads them.

use serde::Serialize;
use utoipa::ToSchema;

/// A string, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// One prompt or several, as text or token ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Prompts {
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Ids of one prompt.
    Ids(Vec<u32>),
    /// Ids of several.
    IdLists(Vec<Vec<u32>>),
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    /// A text.
    Text(String),
    /// Parts of it.
    Parts(Vec<TextPart>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TextPart {
    /// Text is all that there is.
    #[serde(rename = "type")]
    pub kind: PartKind,
    /// It.
    pub text: String,
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Text.
    Text,
}

/// What binds the output.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GrammarField {
    /// What `value` is.
    #[serde(rename = "type")]
    pub kind: GrammarKind,
    /// A JSON schema (an object, or a string that holds one), for `json_schema` inside `{"name", "schema"}`; or a regex.
    /// Only `json_object` goes without.
    #[schema(value_type = Option<SchemaOrRegex>)]
    pub value: Option<serde_json::Value>,
    /// Regex of the white space between tokens of JSON.
    pub whitespace_pattern: Option<String>,
}

/// What a grammar is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrammarKind {
    /// A schema.
    Json,
    /// The same.
    JsonObject,
    /// A schema with a name.
    JsonSchema,
    /// A regex.
    Regex,
}

/// A schema, or a text.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SchemaOrRegex {
    /// A schema as JSON.
    Schema(serde_json::Map<String, serde_json::Value>),
    /// A regex, or a schema as text.
    Text(String),
}

/// `response_format`: plain text, or a grammar in TGI's form. The other forms are refused for now.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ResponseFormat {
    /// Nothing binds the output.
    Text(TextFormat),
    /// As on native routes.
    Grammar(GrammarField),
}

/// `{"type": "text"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TextFormat {
    /// Always `text`.
    #[serde(rename = "type")]
    pub kind: PartKind,
}
