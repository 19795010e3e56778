//! Prompts to ids, on the pool.

use super::lengths::prompt_field;
use crate::app::AppState;
use crate::room::Room;
use crate::services::ModelServices;
use crate::tenant::Tenant;
use crate::tokenise::{JobSize, PoolFailure};
use headrace_dialect::bounds::{Asked, ContextLimits};
use headrace_dialect::call::{ChatPrompt, Prompt};
use headrace_dialect::openai::fills_no_gaps;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_dialect::shape::{TextShape, Truncation, TruncationSide};
use headrace_dialect::shown_prompt::EchoText;
use headrace_text::{
    Encoding, Infill, RenderOptions, RenderedPrompt, SpecialText, TemplateError, Tokenizer, Wanted,
};
use std::sync::Arc;

/// How prompts are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) cut: Truncation,
    /// Tokens that may stay.
    pub(super) most: u32,
}

impl Cut {
    /// The ids of a text that stay.
    fn wanted(self) -> Wanted {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        match self.cut.side {
            TruncationSide::Left => Wanted::Last(most),
            TruncationSide::Right => Wanted::First(most),
        }
    }
}

/// A prompt's ids and, where the answer begins with it, its text.
#[derive(Debug)]
pub(super) struct EncodedPrompt {
    pub(super) ids: Vec<u32>,
    pub(super) echo: Option<EchoText>,
}

impl EncodedPrompt {
    fn of_ids(ids: Vec<u32>) -> Self {
        Self { ids, echo: None }
    }

    fn cut(self, truncate: Option<Cut>) -> Self {
        let Some(Cut { cut, most }) = truncate else {
            return self;
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self {
            ids: cut.apply(self.ids, most),
            echo: self.echo.map(|echo| match cut.side {
                TruncationSide::Left => echo.keep_last(most),
                TruncationSide::Right => echo.keep_first(most),
            }),
        }
    }
}

/// Every prompt encoded, and cut as `truncate` says; with `echo`, their texts in that shape too.
pub(super) async fn encode_all(
    state: &AppState,
    tenant: Tenant,
    prompts: Vec<Prompt>,
    (truncate, echo): (Option<Cut>, Option<TextShape>),
    room: Room,
) -> Result<Vec<EncodedPrompt>, Refusal> {
    let is_ids = |prompt: &Prompt| matches!(prompt, Prompt::Ids(_));
    if echo.is_none() && prompts.iter().all(is_ids) {
        // Nothing to tokenise, nothing to wait for.
        let ids = prompts.into_iter().filter_map(|prompt| match prompt {
            Prompt::Ids(ids) => Some(EncodedPrompt::of_ids(ids).cut(truncate)),
            Prompt::Text { .. } | Prompt::Infill { .. } | Prompt::Chat(_) => None,
        });
        return Ok(ids.collect());
    }
    // Before the queue: what cannot fit takes nobody's place.
    for prompt in &prompts {
        match prompt {
            Prompt::Text { text, .. } => room.check(&state.services()?.tokenizer, text)?,
            Prompt::Infill { prefix, suffix, .. } => {
                let services = state.services()?;
                infill_of(services)?;
                for text in [prefix, suffix] {
                    room.check(&services.tokenizer, text)?;
                }
            }
            Prompt::Ids(_) | Prompt::Chat(_) => {}
        }
    }
    let weight = prompts.iter().map(Prompt::weight).sum();
    run_rendering(state, tenant, weight, move |services, memory| {
        prompts
            .iter()
            .map(|prompt| {
                let encoded = encode_one(services, prompt, (truncate, echo), (room, memory))?;
                Ok(encoded.cut(truncate))
            })
            .collect()
    })
    .await
}

fn encode_one(
    services: &ModelServices,
    prompt: &Prompt,
    (truncate, echo): (Option<Cut>, Option<TextShape>),
    (room, memory): (Room, RenderMemory),
) -> Result<EncodedPrompt, Unencoded> {
    let tokenizer = &services.tokenizer;
    // What is shown is cut where the ids are: all of them say where.
    let wanted = match (truncate, echo) {
        (Some(cut), None) => cut.wanted(),
        _ => Wanted::All,
    };
    if let Prompt::Ids(ids) = prompt {
        // An id that is none of the vocabulary stands for nothing, and is refused later.
        let echo = echo.map(|shape| EchoText::of_ids(tokenizer, ids, shape.shows_special));
        let ids = ids.clone();
        return Ok(EncodedPrompt { ids, echo });
    }
    let dialect = room.dialect;
    let room = (Some(room), memory);
    let (encoding, text) = encode_in_room(services, prompt, dialect, room, wanted)?;
    let Encoding { ids, offsets } = encoding;
    let echo = echo.map(|_| EchoText::of_text(tokenizer, &text, &ids, &offsets));
    Ok(EncodedPrompt { ids, echo })
}

/// The control tokens of prompts with a gap; refused in TGI's words where the model has none.
fn infill_of(services: &ModelServices) -> Result<&Infill, Refusal> {
    services.infill.as_ref().ok_or_else(fills_no_gaps)
}

/// Memory for rendering chats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenderMemory {
    /// What any number may take at once.
    BesideOthers,
    /// All that one rendering may take: it has its turn.
    All,
}

/// Why there are no ids.
#[derive(Debug)]
pub(crate) enum Unencoded {
    Refused(Refusal),
    /// The chat template builds more than beside others; so much at most.
    NeedsMemory(usize),
}

impl From<Refusal> for Unencoded {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Runs a tenant's `work` with the model's services on the pool.
pub(crate) async fn run_on_pool<T: Send + 'static>(
    state: &AppState,
    tenant: Tenant,
    weight: usize,
    work: impl FnOnce(&ModelServices) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let model = state.shared_services()?;
    let size = JobSize::of(weight);
    let result = state.pool().run(tenant, size, move || work(&model)).await;
    result.map_err(refusal_of)?
}

/// The same for work that may render chats: with little memory, and, if that is not enough, again when there is much.
pub(crate) async fn run_rendering<T: Send + 'static>(
    state: &AppState,
    tenant: Tenant,
    weight: usize,
    work: impl Fn(&ModelServices, RenderMemory) -> Result<T, Unencoded> + Send + Sync + 'static,
) -> Result<T, Refusal> {
    let model = state.shared_services()?;
    let work = Arc::new(move |memory| work(&model, memory));
    let run = async |size, memory| {
        let work = Arc::clone(&work);
        let result = state.pool().run(tenant, size, move || work(memory)).await;
        result.map_err(|failure| Unencoded::Refused(refusal_of(failure)))?
    };
    let mut result = run(JobSize::of(weight), RenderMemory::BesideOthers).await;
    if let Err(Unencoded::NeedsMemory(bytes)) = result {
        result = run(JobSize::taking(weight, bytes), RenderMemory::All).await;
    }
    result.map_err(|failure| match failure {
        Unencoded::Refused(refusal) => refusal,
        // With all of it nothing asks for more.
        Unencoded::NeedsMemory(bytes) => {
            template_refusal(&TemplateError::NeedsMemory { bytes }.to_string())
        }
    })
}

fn refusal_of(failure: PoolFailure) -> Refusal {
    match failure {
        PoolFailure::Full => Refusal::overloaded(),
        PoolFailure::Lost => Refusal::new(Cause::Internal, failure.to_string()),
    }
}

/// Ids with their offsets, and the text that they were made of. Texts are as long as a body can be; what a chat template
/// made, which may be any length, has to fit the context, once it is known.
pub(crate) fn encode_prompt(
    services: &ModelServices,
    prompt: &Prompt,
    (limits, memory): (Option<ContextLimits>, RenderMemory),
    dialect: Dialect,
) -> Result<(Encoding, String), Unencoded> {
    let room = limits.map(|limits| Room {
        limits,
        dialect,
        asked: Asked {
            tokens: None,
            field: "max_new_tokens",
            default: None,
        },
        is_cut: false,
    });
    encode_in_room(services, prompt, dialect, (room, memory), Wanted::All)
}

/// The same, at least what is `wanted` of it; a chat whose rendered text cannot fit `room` is refused before it is
/// tokenised.
fn encode_in_room(
    services: &ModelServices,
    prompt: &Prompt,
    dialect: Dialect,
    (room, memory): (Option<Room>, RenderMemory),
    wanted: Wanted,
) -> Result<(Encoding, String), Unencoded> {
    match prompt {
        Prompt::Text {
            text,
            add_special_tokens,
        } => services
            .tokenizer
            .encode_wanted(text, *add_special_tokens, SpecialText::Parse, wanted)
            .map(|encoding| (encoding, text.clone()))
            .map_err(|error| Refusal::validation(prompt_field(dialect), error.to_string()).into()),
        Prompt::Infill {
            prefix,
            suffix,
            add_special_tokens,
        } => {
            let texts = (prefix.as_str(), suffix.as_str());
            let ids = infill_of(services)?
                .encode(&services.tokenizer, texts, *add_special_tokens)
                .map_err(|error| Refusal::validation("prompt", error.to_string()))?;
            let encoding = Encoding {
                ids,
                offsets: Vec::new(),
            };
            Ok((encoding, String::new()))
        }
        Prompt::Chat(chat) => {
            let rendered = render(services, chat, memory)?;
            if let Some(room) = room {
                room.check(&services.tokenizer, &rendered.text)?;
            }
            let encoding = encode_chat(
                &services.tokenizer,
                &rendered,
                chat.add_special_tokens,
                wanted,
            )?;
            Ok((encoding, rendered.text))
        }
        Prompt::Ids(ids) => Ok((
            Encoding {
                ids: ids.clone(),
                offsets: Vec::new(),
            },
            String::new(),
        )),
    }
}

fn encode_chat(
    tokenizer: &Tokenizer,
    rendered: &RenderedPrompt,
    add_special_tokens: bool,
    wanted: Wanted,
) -> Result<Encoding, Refusal> {
    let wrong =
        |error: headrace_text::TextError| Refusal::validation("messages", error.to_string());
    let mut encoding = tokenizer
        .encode_chat_wanted(rendered, wanted)
        .map_err(wrong)?;
    if add_special_tokens {
        // What an empty text gets is what would stand around this one.
        let ends = tokenizer
            .encode("", true, SpecialText::Plain)
            .map_err(wrong)?;
        let bos = tokenizer.bos_id();
        let (first, last): (Vec<u32>, Vec<u32>) = ends.ids.iter().partition(|id| Some(**id) == bos);
        let offset = (0, 0);
        encoding.ids.splice(0..0, first.iter().copied());
        encoding.offsets.splice(0..0, first.iter().map(|_| offset));
        encoding.offsets.extend(last.iter().map(|_| offset));
        encoding.ids.extend(last);
    }
    Ok(encoding)
}

fn render(
    services: &ModelServices,
    chat: &ChatPrompt,
    memory: RenderMemory,
) -> Result<RenderedPrompt, Unencoded> {
    let template = services
        .template
        .as_deref()
        .map_err(|problem| template_refusal(problem))?;
    let continues = chat.continues();
    let options = RenderOptions {
        add_generation_prompt: chat.add_generation_prompt.unwrap_or(!continues),
        continue_final_message: continues,
        tools: None,
        documents: (!chat.documents.is_empty()).then(|| chat.documents.clone().into()),
        variables: chat.variables.clone(),
    };
    let rendered = match memory {
        RenderMemory::BesideOthers => template.render_beside_others(&chat.messages, &options),
        RenderMemory::All => template.render(&chat.messages, &options),
    };
    rendered.map_err(|error| match error {
        TemplateError::NeedsMemory { bytes } => Unencoded::NeedsMemory(bytes),
        TemplateError::Messages(problem) => {
            Refusal::validation("messages", format!("`messages`: {problem}")).into()
        }
        other => template_refusal(&other.to_string()).into(),
    })
}

fn template_refusal(problem: &str) -> Refusal {
    Refusal::new(Cause::Template, format!("Template error: {problem}")).with_param("messages")
}
