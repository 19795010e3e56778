//! The bytes of a body: how many, in how many pieces, and how much all bodies that are being read may hold.
//!
//! Nobody has a permit yet who still sends his body, so what he sends is bounded here. Each piece costs time and memory
//! however small it is, and one of a single byte costs its sender nothing: a chunked body is read as long as its pieces
//! have a sensible size. They are copied together as they come, for a piece keeps the connection's buffer.

use crate::house::{House, Permit};
use crate::tenant::Tenant;
use axum::body::Body;
use headrace_dialect::refusal::{Cause, Refusal};
use http_body_util::BodyExt;
use std::sync::Arc;

/// Bytes that a body may have whatever others hold: those of an ordinary request.
const FREE_BYTES: usize = 64 << 10;

/// More than that is taken in steps of so many.
const STEP: usize = 256 << 10;

/// Pieces that a body may have whatever their size, and the bytes for each further one.
const FREE_PIECES: usize = 4096;
const BYTES_A_PIECE: usize = 64;

/// What all bodies that are being read may hold beyond their first bytes.
pub(crate) fn all(payload_limit: usize) -> usize {
    payload_limit.saturating_mul(8).max(128 << 20)
}

/// Pieces and bytes that came.
#[derive(Debug, Default)]
struct Count {
    bytes: usize,
    pieces: usize,
}

impl Count {
    fn add(&mut self, piece: usize, limit: usize) -> Result<(), Refusal> {
        self.bytes = self.bytes.saturating_add(piece);
        self.pieces += 1;
        if self.bytes > limit {
            return Err(too_large(limit));
        }
        if self.pieces > FREE_PIECES + self.bytes / BYTES_A_PIECE {
            return Err(cannot(&format!(
                "{} pieces of {} bytes in all; send larger chunks",
                self.pieces, self.bytes
            )));
        }
        Ok(())
    }
}

/// Reads a body of at most `limit` bytes. 429 if `bodies` has no more room for this tenant.
pub(crate) async fn read(
    mut body: Body,
    limit: usize,
    bodies: &Arc<House>,
    tenant: Tenant,
) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let mut count = Count::default();
    let mut held = FREE_BYTES;
    let mut permit: Option<Permit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| cannot(&error.to_string()))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        count.add(data.len(), limit)?;
        if count.bytes > held {
            let more = (count.bytes - held).next_multiple_of(STEP);
            let has_room = if let Some(permit) = &mut permit {
                permit.grow(more)
            } else {
                permit = bodies.enter_with(tenant, more);
                permit.is_some()
            };
            if !has_room {
                return Err(Refusal::overloaded());
            }
            held += more;
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// Reads and forgets a body as long as [`read`] would.
pub(crate) async fn forget(mut body: Body, limit: usize) {
    let mut count = Count::default();
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, bytes::Bytes::len);
        if count.add(length, limit).is_err() {
            return;
        }
    }
}

pub(crate) fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        Cause::PayloadTooLarge,
        format!("Failed to buffer the request body: length limit exceeded ({limit} bytes)"),
    )
}

fn cannot(reason: &str) -> Refusal {
    Refusal::new(
        Cause::MalformedJson,
        format!("Failed to buffer the request body: {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use std::convert::Infallible;

    fn body(pieces: usize, each: usize) -> Body {
        let piece = bytes::Bytes::from(vec![b' '; each]);
        Body::from_stream(stream::iter(
            (0..pieces).map(move |_| Ok::<_, Infallible>(piece.clone())),
        ))
    }

    async fn read_alone(pieces: usize, each: usize) -> Result<usize, u16> {
        let bodies = House::new(all(2_000_000));
        let read = read(body(pieces, each), 2_000_000, &bodies, Tenant::NOBODY).await;
        assert_eq!(bodies.taken(), 0);
        let status = |refusal: Refusal| refusal.status(headrace_dialect::refusal::Dialect::Native);
        read.map(|bytes| bytes.len()).map_err(status)
    }

    #[tokio::test]
    async fn many_tiny_pieces_are_refused_long_before_the_byte_limit() {
        // What a client that sends token by token has.
        assert_eq!(read_alone(4096, 1).await, Ok(4096));
        assert_eq!(read_alone(30_000, 64).await, Ok(1_920_000));
        assert_eq!(read_alone(1_900_000, 1).await, Err(400));
        assert_eq!(read_alone(30_000, 32).await, Err(400));
        // One piece too many, one byte too many.
        assert_eq!(read_alone(1, 2_000_000).await, Ok(2_000_000));
        assert_eq!(read_alone(1, 2_000_001).await, Err(413));
    }

    #[tokio::test]
    async fn bodies_that_are_being_read_hold_a_bounded_sum() {
        let bodies = House::new(4 * STEP);
        let other = bodies.enter_with(Tenant::NOBODY, 3 * STEP);
        assert!(other.is_some());
        let read = async |bytes: usize| {
            let body = body(bytes / 1000, 1000);
            let read = read(body, 2_000_000, &bodies, Tenant::NOBODY).await;
            read.map(|bytes| bytes.len())
                .map_err(|refusal| refusal.cause())
        };
        // An ordinary request does not notice.
        assert_eq!(read(64_000).await, Ok(64_000));
        assert_eq!(read(300_000).await, Ok(300_000));
        assert_eq!(read(400_000).await, Err(Cause::Overloaded));
        drop(other);
        assert_eq!(read(400_000).await, Ok(400_000));
        assert_eq!(bodies.taken(), 0);
    }
}
