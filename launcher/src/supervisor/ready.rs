//! The closing lines of a start: what is served, where, and a command to paste.

use super::Supervisor;
use headrace_checkpoint::gguf::Gguf;
use headrace_control::{ModelDocument, ReadySummary, TokenizerSource};

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
            self.log.info("the workers are up again");
            return;
        }
        self.log.info(&format!(
            "{model} is served on {url}: {device}, {kernel_set}, KV cache of {num_blocks} blocks of \
             {block_size} tokens, {max_total_tokens} tokens a request at most"
        ));
        if self.log.format().json {
            return;
        }
        let has_template = self.document.as_ref().is_some_and(has_chat_template);
        let needs_key = !self.settings.router.api_keys.is_empty();
        self.log.plain(&format!(
            "\nReady: {url}\nTry it:\n{}",
            curl(&url, has_template, needs_key)
        ));
    }
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

/// One line to paste: a chat if the model has a template.
fn curl(url: &str, has_template: bool, needs_key: bool) -> String {
    let key = if needs_key {
        " -H \"Authorization: Bearer $API_KEY\""
    } else {
        ""
    };
    let (route, body) = if has_template {
        (
            "/v1/chat/completions",
            r#"{"model":"tgi","messages":[{"role":"user","content":"What is the capital of France?"}],"max_tokens":64}"#,
        )
    } else {
        (
            "/generate",
            r#"{"inputs":"The capital of France is","parameters":{"max_new_tokens":32}}"#,
        )
    };
    format!("curl {url}{route}{key} -H 'Content-Type: application/json' -d '{body}'")
}

/// For the choice of the example alone; the router decides by reading the template.
fn has_chat_template(document: &ModelDocument) -> bool {
    let in_config = document.tokenizer_config.as_ref().is_some_and(|path| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"chat_template\""))
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
            curl("http://127.0.0.1:3000", false, true),
            "curl http://127.0.0.1:3000/generate -H \"Authorization: Bearer $API_KEY\" -H \
             'Content-Type: application/json' -d \
             '{\"inputs\":\"The capital of France is\",\"parameters\":{\"max_new_tokens\":32}}'"
        );
    }
}
