//! Fields that change nothing in an answer, whatever they say.

use crate::{BOTH, Class, Row};

fn advisory(name: &'static str, why: &'static str) -> Row {
    Row {
        name,
        routes: BOTH,
        class: Class::Advisory,
        why,
    }
}

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    vec![
        advisory(
            "request_id",
            "taken out of the body before it is read as a call",
        ),
        advisory("rid", "the same"),
        advisory("user", "who asks; nothing is kept by it"),
        advisory("safety_identifier", "the same, by its new name"),
        advisory("metadata", "for stored answers; none are stored"),
        advisory("store", "nothing is stored, and no route promises it"),
        advisory(
            "prompt_cache_key",
            "prefixes are found by content; cache_salt tells them apart",
        ),
        advisory("prompt_cache_options", "hints to the same cache"),
        advisory("verbosity", "a hint that no template here knows"),
        advisory("moderation", "no moderation is offered"),
        advisory("prediction", "makes an answer faster, never different"),
        advisory(
            "parallel_tool_calls",
            "says nothing without tools, which are refused",
        ),
        advisory("tool_prompt", "TGI's; the same"),
        advisory("stream_interval", "tokens a chunk: the text is the same"),
        advisory(
            "stream_reasoning",
            "reasoning is not told apart from the text",
        ),
        advisory(
            "mm_processor_kwargs",
            "for images and sound, which are refused",
        ),
        advisory("media_io_kwargs", "the same"),
        advisory("mm_hashes", "the same"),
        advisory("routing_key", "where a router of several servers sends it"),
        advisory("conversation_id", "the same"),
        advisory("kv_router_hint", "the same"),
        advisory("no_logs", "prompts and texts are never logged"),
        advisory("custom_labels", "labels of another server's metrics"),
    ]
}
