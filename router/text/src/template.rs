//! Chat templates: messages to the prompt that the model was trained on.
//!
//! A template is Jinja as `transformers` runs it (trimmed blocks, Python's string methods, `tojson` as `json.dumps`
//! writes, `raise_exception`, `strftime_now`), run by minijinja with fuel and bounds. What a template wants of its
//! messages is found out at load by rendering small conversations (`probe`), and messages are brought into
//! that shape (`adapt`).
//!
//! # Which added tokens came out of a content
//!
//! The prompt is rendered with the real contents, so its ids are those of `transformers`. But letters of a content
//! must not become a control token, and the rendered text does not say where contents went: templates trim,
//! cut, join and quote them. So, if a content holds a character with which some added token starts or ends, the
//! conversation is rendered a second time with each of those characters replaced by one private-use character
//! that stands nowhere else. Replacing character by character changes no length and no white space, so
//! trimming, slicing and joining do the same as before, and the second text equals the first but for the
//! replaced places: these came out of contents (`marks`), and an occurrence of an added token that starts or ends
//! in one of them is encoded as text. This also catches a token put together from two contents.
//!
//! If a template looks for such text in a content and takes another path (so the two texts differ elsewhere),
//! the contents that hold a whole added token are searched for in the first text instead; if one is not there
//! as it was sent, the request is refused: nothing says which occurrence is whose.

mod adapt;
mod budget;
mod depth;
mod environment;
mod filters;
mod json;
mod marks;
mod metered;
mod methods;
mod numbers;
mod operators;
mod probe;
mod program;
mod python;
mod rewrite;
mod sequences;
mod source;
#[cfg(test)]
mod tests;
mod text_parts;

pub use adapt::ToolCallIds;
pub use source::TemplateSources;

use crate::error::TemplateError;
use crate::prompt::RenderedPrompt;
use crate::tokenizer::Tokenizer;
use adapt::Shape;
use budget::Limits;
use environment::Engine;
use marks::Triggers;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Appended to the message that is to be continued; the rendered text is cut where it stands. The space tells
/// whether the template trims contents.
const CONTINUE_TAG: &str = "HEADRACE_CONTINUE_FINAL_MESSAGE ";

/// Bytes of a prompt that a template may add to what was sent, its own text aside; and for each byte that was sent.
const FIXED_BYTES: usize = 1 << 20;
const BYTES_PER_SENT: usize = 16;

/// How one conversation is rendered.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// End with the opening of an assistant's message.
    pub add_generation_prompt: bool,
    /// End inside the last message, so that the model goes on with it.
    pub continue_final_message: bool,
    /// Tool definitions, as `OpenAI` writes them.
    pub tools: Option<Value>,
    /// Documents for templates that know them.
    pub documents: Option<Value>,
    /// Further variables (`chat_template_kwargs`).
    pub variables: Map<String, Value>,
}

/// What a template reads.
#[derive(Clone, Debug)]
struct Inputs {
    /// A list.
    messages: Value,
    /// A list, or null.
    tools: Value,
    /// A list, or null.
    documents: Value,
    /// An object.
    variables: Value,
}

/// A model's chat template, compiled and probed.
#[derive(Debug)]
pub struct ChatTemplate {
    /// Its text.
    source: String,
    engine: Engine,
    /// `tool_use` of a list of templates: taken when there are tools.
    tool_engine: Option<(Engine, Shape)>,
    shape: Shape,
    triggers: Triggers,
    named_tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Finds, compiles and probes the template. [`TemplateError::Missing`] if there is none.
    pub fn load(sources: &TemplateSources, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let found = source::find(sources, tokenizer.gguf_template())?;
        let in_file = |error: TemplateError| match (&found.path, &error) {
            (Some(path), TemplateError::Compile(_)) => TemplateError::Source {
                path: path.clone(),
                reason: error.to_string(),
            },
            _ => error,
        };
        let mut template = Self::compile(&found.default, tokenizer).map_err(in_file)?;
        if let Some(tool_use) = &found.tool_use {
            let engine = Engine::new(tool_use).map_err(in_file)?;
            let shape = probe::shape(&engine, &template.named_tokens);
            template.tool_engine = Some((engine, shape));
        }
        Ok(template)
    }

    /// Compiles and probes a template given as text.
    pub fn compile(text: &str, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let engine = Engine::new(text)?;
        let named_tokens = tokenizer.named_tokens().clone();
        let shape = probe::shape(&engine, &named_tokens);
        Ok(Self {
            source: text.to_owned(),
            engine,
            tool_engine: None,
            shape,
            triggers: Triggers::new(tokenizer),
            named_tokens,
        })
    }

    /// The template's text; of a list of templates, the default one's.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// How deep the template's text nests: blocks, brackets and operators within each other. At most 1,000.
    pub fn depth(&self) -> usize {
        let tool_use = self.tool_engine.as_ref().map(|(engine, _)| engine.depth());
        self.engine.depth().max(tool_use.unwrap_or(0))
    }

    /// Whether the template shows tool definitions to the model.
    pub fn shows_tools(&self) -> bool {
        self.tool_engine.is_some() || self.shape.shows_tools
    }

    /// How this model's tool calls are numbered.
    pub fn tool_call_ids(&self) -> ToolCallIds {
        self.tool_engine
            .as_ref()
            .map_or(self.shape.ids, |(_, shape)| shape.ids)
    }

    /// What is changed in messages for this template, as `docs/templates.md` names it.
    pub fn adaptations(&self) -> Vec<&'static str> {
        self.shape.names()
    }

    /// Messages as the template gets them.
    pub fn adapt(&self, messages: &[Value], has_tools: bool) -> Result<Vec<Value>, TemplateError> {
        let (_, shape) = self.engine_for(has_tools);
        adapt::adapt(messages, shape)
    }

    fn engine_for(&self, has_tools: bool) -> (&Engine, Shape) {
        match &self.tool_engine {
            Some((engine, shape)) if has_tools => (engine, *shape),
            Some(_) | None => (&self.engine, self.shape),
        }
    }

    /// What is made of these inputs at most: a tokenizer needs a hundred times the memory of a text, and what was sent says
    /// how much of it is due. (A character may become six when it is written as JSON, and those again.)
    fn most_bytes(&self, inputs: &Inputs) -> usize {
        let sent: usize = [
            &inputs.messages,
            &inputs.tools,
            &inputs.documents,
            &inputs.variables,
        ]
        .into_iter()
        .map(marks::json_bytes)
        .sum();
        FIXED_BYTES
            .saturating_add(self.source.len())
            .saturating_add(sent.saturating_mul(BYTES_PER_SENT))
    }

    /// Renders a conversation, as [`Self::render_beside_others`], with all the memory that one may take: hundreds of
    /// megabytes if the template wants them.
    pub fn render(
        &self,
        messages: &[Value],
        options: &RenderOptions,
    ) -> Result<RenderedPrompt, TemplateError> {
        self.render_within(messages, options, |limits, _| limits)
    }

    /// Renders a conversation with some megabytes and as much as is due to what was sent, so that any number may be rendered
    /// at once. [`TemplateError::NeedsMemory`] if the template wants more. Messages are objects as `OpenAI` writes them: `role`, `content` (text, parts or null),
    /// `tool_calls`, `tool_call_id`, `name`.
    pub fn render_beside_others(
        &self,
        messages: &[Value],
        options: &RenderOptions,
    ) -> Result<RenderedPrompt, TemplateError> {
        self.render_within(messages, options, Limits::beside_others)
    }

    fn render_within(
        &self,
        messages: &[Value],
        options: &RenderOptions,
        bound: impl FnOnce(Limits, usize) -> Limits,
    ) -> Result<RenderedPrompt, TemplateError> {
        let (engine, shape) = self.engine_for(options.tools.is_some());
        let mut messages = adapt::adapt(messages, shape)?;
        self.triggers.check_roles(&messages)?;
        let continued = if options.continue_final_message {
            Some(tag_last(&mut messages, options)?)
        } else {
            None
        };
        let num_messages = messages.len();
        let num_bytes = messages.iter().map(marks::num_bytes).sum();
        let inputs = Inputs {
            messages: Value::Array(messages),
            tools: options.tools.clone().unwrap_or_default(),
            documents: options.documents.clone().unwrap_or_default(),
            variables: Value::Object(options.variables.clone()),
        };
        let all = Limits::of(num_messages, num_bytes);
        let mut limits = bound(all, num_bytes);
        let (sum, most_sum) = (limits.bytes, all.bytes);
        let mut render = |inputs: &Inputs| {
            let names = &self.named_tokens;
            let result = engine.render(names, inputs, options.add_generation_prompt, &mut limits);
            let reached = |limit: usize| limit as u64 == sum && sum < most_sum;
            match result {
                Err(TemplateError::TooLong { limit }) if reached(limit) => {
                    let bytes = usize::try_from(most_sum).unwrap_or(usize::MAX);
                    Err(TemplateError::NeedsMemory { bytes })
                }
                result => result,
            }
        };
        let mut text = render(&inputs)?;
        let most = self.most_bytes(&inputs);
        if text.len() > most {
            return Err(TemplateError::TooLong { limit: most });
        }
        if let Some(content) = &continued {
            text = cut_at_tag(text, Some(content))?;
        }
        let Some((masked, mask)) = self.triggers.mask(&inputs, &text) else {
            return Ok(RenderedPrompt::trusted(text));
        };
        let second = render(&masked).and_then(|second| match continued {
            Some(_) => cut_at_tag(second, None),
            None => Ok(second),
        });
        if let Err(error @ TemplateError::NeedsMemory { .. }) = second {
            return Err(error);
        }
        let aligned = second
            .ok()
            .and_then(|second| marks::align(&text, &second, mask));
        let content_marks = match aligned {
            Some(content_marks) => content_marks,
            None => self.triggers.search(&inputs, &text)?,
        };
        Ok(RenderedPrompt {
            text,
            content_marks,
        })
    }
}

/// Marks the end of the last message's text, and gives that text back.
fn tag_last(messages: &mut [Value], options: &RenderOptions) -> Result<String, TemplateError> {
    let refuse = |why: &str| Err(TemplateError::Messages(why.to_owned()));
    if options.add_generation_prompt {
        return refuse("add_generation_prompt and continue_final_message exclude each other");
    }
    let content = messages
        .last_mut()
        .and_then(|message| message.get_mut("content"));
    let text = match content {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let text = parts.iter_mut().rev().find_map(|part| part.get_mut("text"));
            let Some(Value::String(text)) = text else {
                return refuse("the last message has no text to continue");
            };
            text
        }
        Some(_) | None => return refuse("the last message has no content to continue"),
    };
    let content = text.clone();
    text.push_str(CONTINUE_TAG);
    Ok(content)
}

/// The text up to the tag. `content` must be in it as it was sent but for space around it: a template may leave parts of
/// a message out (reasoning), and the model would go on with another text than the client has.
fn cut_at_tag(mut text: String, content: Option<&String>) -> Result<String, TemplateError> {
    let bare = CONTINUE_TAG.trim_end();
    let is_whole =
        content.is_none_or(|content| text.contains(content.trim_matches(python::is_space)));
    let Some(start) = text.rfind(bare).filter(|_| is_whole) else {
        return Err(TemplateError::Messages(
            "the last message cannot be continued: the chat template does not show it as it is"
                .into(),
        ));
    };
    let keeps_space = text[start..].starts_with(CONTINUE_TAG);
    text.truncate(start);
    if !keeps_space {
        text.truncate(text.trim_end_matches(python::is_space).len());
    }
    Ok(text)
}
