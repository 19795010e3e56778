//! The closing lines of a start: what is served, where, and a command to paste.

use super::Supervisor;
use super::group::count;
use headrace_checkpoint::gguf::Gguf;
use headrace_control::{ModelDocument, ReadySummary, RouterConfig, TokenizerSource};

/// A context below this is hardly meant.
const SMALL_CONTEXT: u32 = 64;

impl Supervisor {
    /// Tells the person at the terminal; later times (after a restart) in one log line.
    pub(super) fn announce_ready(&self, summary: &ReadySummary) {
        let url = url(self.router.address().unwrap_or_default());
        let model = &self.settings.model.model_id;
        let ReadySummary {
            num_blocks,
            block_size,
            max_total_tokens,
            kernel_set,
            device,
        } = summary;
        if self.was_ready {
            self.log.info(&if self.router.is_ready {
                "the workers are up again".to_owned()
            } else {
                format!("{model} is served on {url} again")
            });
            return;
        }
        self.log.info(&format!(
            "{model} is served on {url}: {device}, {kernel_set}, KV cache of {} of {}, {} a request at most",
            count(*num_blocks, "block"),
            count(*block_size, "token"),
            count(*max_total_tokens, "token"),
        ));
        for line in cut_promises(&self.settings.router, *max_total_tokens) {
            self.log.warn(&line);
        }
        if *max_total_tokens < SMALL_CONTEXT {
            self.log.warn(&format!(
                "a request may have no more than {}, prompt and output together: see --max-total-tokens, \
                 --max-batch-total-tokens and --kv-cache-memory",
                count(*max_total_tokens, "token")
            ));
        }
        if self.log.format().json {
            return;
        }
        let has_template = self.document.as_ref().is_some_and(has_chat_template);
        let needs_key = !self.settings.router.api_keys.is_empty();
        let hint = if needs_key {
            "export HEADRACE_KEY=...  # one of your keys\n"
        } else {
            ""
        };
        let most_input = self.settings.router.max_input_tokens.unwrap_or(u32::MAX);
        let example = Example::choose(has_template, most_input, *max_total_tokens);
        self.log.plain(&format!(
            "\nReady: {url}\nTry it:\n{hint}{}",
            curl(&url, &example, needs_key)
        ));
    }
}

/// Flags that promise longer requests than the KV cache holds, which was measured, can be.
fn cut_promises(config: &RouterConfig, most: u32) -> Vec<String> {
    [
        ("--max-total-tokens", config.max_total_tokens, most),
        (
            "--max-input-tokens",
            config.max_input_tokens,
            most.saturating_sub(1),
        ),
    ]
    .into_iter()
    .filter_map(|(flag, given, most)| {
        let given = given.filter(|given| *given > most)?;
        Some(format!(
            "{flag} {given}: the KV cache holds no more than {most} of them; see --kv-cache-memory"
        ))
    })
    .collect()
}

/// The address as a client on this machine types it.
fn url(address: &str) -> String {
    let address = address
        .strip_prefix("0.0.0.0:")
        .map(|port| format!("127.0.0.1:{port}"))
        .or_else(|| {
            address
                .strip_prefix("[::]:")
                .map(|port| format!("[::1]:{port}"))
        })
        .unwrap_or_else(|| address.to_owned());
    format!("http://{address}")
}

/// Tokens that the example asks for where there is room.
const EXAMPLE_TOKENS: u32 = 64;
/// More than any common template makes of the example's one message.
const CHAT_ROOM: u32 = 96;
/// A token a byte is the most, and one that begins the text.
const SENTENCE_ROOM: u32 = 26;
/// As much for `Hi`.
const WORD_ROOM: u32 = 4;

/// What the example asks for: something that fits.
#[derive(Debug, PartialEq, Eq)]
enum Example {
    Chat {
        max_tokens: u32,
    },
    Text {
        prompt: &'static str,
        max_tokens: u32,
    },
}

impl Example {
    fn choose(has_template: bool, most_input: u32, most_total: u32) -> Self {
        let fits = |room: u32| most_input >= room && most_total > room;
        let max_tokens = |room: u32| most_total.saturating_sub(room).clamp(1, EXAMPLE_TOKENS);
        if has_template && fits(CHAT_ROOM) {
            return Self::Chat {
                max_tokens: max_tokens(CHAT_ROOM),
            };
        }
        let (prompt, room) = if fits(SENTENCE_ROOM) {
            ("The capital of France is", SENTENCE_ROOM)
        } else {
            ("Hi", WORD_ROOM)
        };
        Self::Text {
            prompt,
            max_tokens: max_tokens(room),
        }
    }
}

/// One line to paste. Its answer is the same every time: `/generate` is greedy unless asked otherwise.
fn curl(url: &str, example: &Example, needs_key: bool) -> String {
    let key = if needs_key {
        " -H \"Authorization: Bearer $HEADRACE_KEY\""
    } else {
        ""
    };
    let (route, body) = match example {
        Example::Chat { max_tokens } => (
            "/v1/chat/completions",
            format!(
                r#"{{"model":"tgi","messages":[{{"role":"user","content":"What is the capital of France?"}}],"max_tokens":{max_tokens},"temperature":0}}"#
            ),
        ),
        Example::Text { prompt, max_tokens } => (
            "/generate",
            format!(r#"{{"inputs":"{prompt}","parameters":{{"max_new_tokens":{max_tokens}}}}}"#),
        ),
    };
    format!("curl {url}{route}{key} -H 'Content-Type: application/json' -d '{body}'")
}

/// For the choice of the example alone; the router decides by reading the template.
fn has_chat_template(document: &ModelDocument) -> bool {
    let in_config = document.tokenizer_config.as_ref().is_some_and(|path| {
        let text = std::fs::read(path).unwrap_or_default();
        serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|config| {
            config
                .get("chat_template")
                .is_some_and(|found| !found.is_null())
        })
    });
    let in_gguf = match &document.tokenizer {
        TokenizerSource::Gguf { path } => {
            Gguf::open(path).is_ok_and(|gguf| gguf.metadata("tokenizer.chat_template").is_some())
        }
        TokenizerSource::TokenizerJson { .. } => false,
    };
    document.chat_template.is_some() || in_config || in_gguf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_can_be_pasted() {
        assert_eq!(url("0.0.0.0:3000"), "http://127.0.0.1:3000");
        assert_eq!(url("[::]:80"), "http://[::1]:80");
        assert_eq!(url("10.0.0.1:1"), "http://10.0.0.1:1");
        assert_eq!(
            curl(
                "http://127.0.0.1:3000",
                &Example::choose(false, u32::MAX, 2048),
                true
            ),
            "curl http://127.0.0.1:3000/generate -H \"Authorization: Bearer $HEADRACE_KEY\" -H \
             'Content-Type: application/json' -d \
             '{\"inputs\":\"The capital of France is\",\"parameters\":{\"max_new_tokens\":64}}'"
        );
        let chat = curl("http://h:1", &Example::choose(true, u32::MAX, 2048), false);
        assert!(chat.contains("/v1/chat/completions -H"), "{chat}");
        let body = chat.split('\'').rev().nth(1).expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["max_tokens"], 64);
        assert_eq!(body["temperature"], 0);
    }

    #[test]
    fn the_example_fits_the_limits() {
        let chat = |max_tokens| Example::Chat { max_tokens };
        let text = |prompt, max_tokens| Example::Text { prompt, max_tokens };
        let sentence = "The capital of France is";
        for (has_template, most_input, most_total, expected) in [
            (true, u32::MAX, 8192, chat(64)),
            (true, u32::MAX, 128, chat(32)),
            (true, 95, 8192, text(sentence, 64)),
            (true, u32::MAX, 96, text(sentence, 64)),
            (false, u32::MAX, 32, text(sentence, 6)),
            (true, 10, 8192, text("Hi", 64)),
            (true, u32::MAX, 16, text("Hi", 12)),
            (false, u32::MAX, 2, text("Hi", 1)),
        ] {
            let chosen = Example::choose(has_template, most_input, most_total);
            assert_eq!(chosen, expected, "{most_input} {most_total}");
        }
    }
}
