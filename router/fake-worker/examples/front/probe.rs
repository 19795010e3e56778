//! Small questions on a thread of their own, so that the load client's own queue is not in their time.

use crate::client::get;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Asks `path` every `pause`, for `time`, over one kept-alive connection; the sorted times of the answers.
pub fn watch(address: SocketAddr, path: &str, pause: Duration, time: Duration) -> Vec<Duration> {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_nodelay(true).unwrap();
    let request = get(path);
    let mut buffer = vec![0; 1 << 18];
    let until = Instant::now() + time;
    let mut times = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        connection.write_all(&request).unwrap();
        read_answer(&mut connection, &mut buffer);
        times.push(begun.elapsed());
        std::thread::sleep(pause);
    }
    times.sort_unstable();
    times
}

/// The same, without blocking the load client.
pub async fn watch_beside(
    address: SocketAddr,
    path: &'static str,
    pause: Duration,
    time: Duration,
) -> Vec<Duration> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || sender.send(watch(address, path, pause, time)));
    receiver.await.unwrap()
}

/// One answer with a length; anything but 200 ends the run.
fn read_answer(connection: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    loop {
        let count = connection.read(&mut buffer[filled..]).unwrap();
        assert!(count > 0, "the connection ended");
        filled += count;
        let text = &buffer[..filled];
        let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let length: usize =
            crate::client::field(&head, "content-length").map_or(0, |bytes| bytes.parse().unwrap());
        if filled >= end + 4 + length {
            return;
        }
    }
}
