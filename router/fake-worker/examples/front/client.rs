//! A client that costs little: requests are made once, answers are looked at no more than needed.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// From the request's first byte to the first byte of the answer's body.
    pub first: Duration,
    /// To the last byte.
    pub total: Duration,
    /// The head, for its fields.
    pub fields: String,
}

/// One kept-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Where a body ends.
enum Length {
    Bytes(usize),
    Chunked,
}

impl Connection {
    /// Opens it.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(4096),
        })
    }

    /// Sends a request and reads the whole answer.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        let begun = Instant::now();
        let mut answer = self.begin(begun, request).await?;
        self.finish(begun, &mut answer).await?;
        Ok(answer)
    }

    /// The body of the last answer, if its length was told.
    pub fn body(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }

    /// Sends a request and reads the head of the answer; `finish` reads the rest.
    pub async fn begin(&mut self, begun: Instant, request: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.fill().await?;
        };
        let fields = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        self.buffer.drain(..end);
        let head = begun.elapsed();
        Ok(Answer {
            status: fields
                .get(9..12)
                .and_then(|status| status.parse().ok())
                .unwrap_or(0),
            first: head,
            total: head,
            fields,
        })
    }

    /// Reads to the end of the body.
    pub async fn finish(&mut self, begun: Instant, answer: &mut Answer) -> io::Result<()> {
        let length = match field(&answer.fields, "content-length") {
            Some(bytes) => Length::Bytes(bytes.parse().unwrap_or(0)),
            None => Length::Chunked,
        };
        if self.buffer.is_empty() {
            if let Length::Bytes(0) = length {
                return Ok(());
            }
            self.fill().await?;
        }
        answer.first = begun.elapsed();
        while !match length {
            Length::Bytes(bytes) => self.buffer.len() >= bytes,
            Length::Chunked => self.buffer.ends_with(b"0\r\n\r\n"),
        } {
            if let Length::Chunked = length {
                // All but what the end may begin with is done with.
                let keep = self.buffer.len().saturating_sub(8);
                self.buffer.drain(..keep);
            }
            self.fill().await?;
        }
        answer.total = begun.elapsed();
        Ok(())
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A field of a lower-case head.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim())
    })
}

/// `GET path`.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n").into_bytes()
}

/// Made-up text of about one token a word, which differs by `index` from its first word on.
pub struct Words(Vec<&'static str>);

impl Words {
    /// `count` words.
    pub fn new(index: usize, count: usize) -> Self {
        const WORDS: [&str; 16] = [
            "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child",
            "world", "school", "state", "family", "student", "group",
        ];
        let mut state = (index as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(1);
        Self(
            (0..count)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    WORDS[(state >> 60) as usize]
                })
                .collect(),
        )
    }

    /// With a space between each two.
    pub fn text(&self) -> String {
        self.0.join(" ")
    }
}

/// A completion of a prompt of about `words` tokens that differs by `index` from its first word on.
pub fn completion(index: usize, words: usize, max_tokens: u32, stream: bool) -> Vec<u8> {
    let prompt = Words::new(index, words).text();
    let body = serde_json::json!({
        "prompt": prompt, "max_tokens": max_tokens, "stream": stream, "temperature": 0, "ignore_eos": true,
    });
    post("/v1/completions", &body)
}

/// `POST path` with a JSON body.
pub fn post(path: &str, body: &serde_json::Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The value below which `percent` of the sorted values lie.
pub fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    let place = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted
        .get(place.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or_default()
}

/// In milliseconds, for tables.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
