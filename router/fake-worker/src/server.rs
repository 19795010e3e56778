//! A fake rank on a Unix socket: in this process for tests, or as the whole of one.

use crate::script::Script;
use crate::service::{FakeService, Shared, lock};
use headrace_worker_client::pb::worker_server::WorkerServer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// As the router's client.
const MESSAGE_LIMIT: usize = 256 << 20;

/// What a fake rank says about itself.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Its rank.
    pub rank: u32,
    /// Ranks of the group.
    pub world_size: u32,
    /// Every id is below it.
    pub vocab_size: u32,
    /// Context length.
    pub max_position_embeddings: u32,
    /// KV blocks, unless the router requires a number.
    pub num_blocks: u32,
    /// Steps accepted before the first has answered.
    pub max_steps_in_flight: u32,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            vocab_size: 1000,
            max_position_embeddings: 4096,
            num_blocks: 512,
            max_steps_in_flight: 2,
        }
    }
}

/// Why a fake rank does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket, the thread or the runtime.
    #[error("{path}: {source}", path = path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// gRPC.
    #[error("the server broke: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// It died by its script.
    #[error("died by script")]
    Died,
}

/// Serves until a scripted death. `bound` is called once the socket listens.
pub async fn serve_until_dead(
    socket: &Path,
    options: WorkerOptions,
    script: Script,
    bound: impl FnOnce(),
) -> Result<(), ServeError> {
    serve(socket, options, script, Arc::new(Shared::default()), bound).await
}

async fn serve(
    socket: &Path,
    options: WorkerOptions,
    script: Script,
    shared: Arc<Shared>,
    bound: impl FnOnce(),
) -> Result<(), ServeError> {
    let listener = UnixListener::bind(socket).map_err(|source| ServeError::Socket {
        path: socket.to_owned(),
        source,
    })?;
    bound();
    let service = FakeService {
        options,
        script: Arc::new(script),
        shared: Arc::clone(&shared),
    };
    let server = tonic::transport::Server::builder().add_service(
        WorkerServer::new(service)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT),
    );
    tokio::select! {
        outcome = server.serve_with_incoming(UnixListenerStream::new(listener)) => Ok(outcome?),
        () = shared.dead.notified() => Err(ServeError::Died),
    }
}

/// A fake rank on a thread of its own. Dropping it kills it as SIGKILL would: connections break, nothing is said.
#[derive(Debug)]
pub struct FakeWorker {
    socket: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl FakeWorker {
    /// Starts it; the socket listens when this returns.
    pub fn start(
        socket: PathBuf,
        options: WorkerOptions,
        script: Script,
    ) -> Result<Self, ServeError> {
        let failure = |source| ServeError::Socket {
            path: socket.clone(),
            source,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failure)?;
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = std::sync::mpsc::channel();
        let (path, state) = (socket.clone(), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name(format!("fake-rank-{}", options.rank))
            .spawn(move || {
                let bound = {
                    let sender = sender.clone();
                    move || drop(sender.send(Ok(())))
                };
                let outcome = runtime.block_on(serve(&path, options, script, state, bound));
                if let Err(error) = outcome {
                    // Only the first message is read: an error after the socket listened ends the rank.
                    let _ = sender.send(Err(error));
                }
            })
            .map_err(failure)?;
        match receiver.recv_timeout(Duration::from_secs(10)) {
            Ok(Ok(())) => Ok(Self {
                socket,
                shared,
                thread: Some(thread),
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(failure(std::io::Error::other("it did not start"))),
        }
    }

    /// Its address, as the launcher would tell it.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.shared.steps.load(Ordering::SeqCst)
    }

    /// Sequences that entered its slots so far, one as often as it did.
    pub fn entered(&self) -> u64 {
        self.shared.entered.load(Ordering::SeqCst)
    }

    /// Streams that the router ended in good order, without breaking the connection.
    pub fn streams_closed(&self) -> u64 {
        self.shared.closed.load(Ordering::SeqCst)
    }

    /// The router's first misuse of the protocol, if there was one.
    pub fn misuse(&self) -> Option<String> {
        lock(&self.shared.misuse).clone()
    }

    /// (rows of the step, time from the answer before it to its arrival) of the steps so far; forgets them.
    pub fn take_waits(&self) -> Vec<(usize, Duration)> {
        std::mem::take(&mut *lock(&self.shared.waits))
    }

    /// (masks that came, those of the last stream that came as the name of one sent before).
    pub fn masks(&self) -> (u64, u64) {
        (
            self.shared.masks.load(Ordering::SeqCst),
            self.shared.same_masks.load(Ordering::SeqCst),
        )
    }

    /// `true` once it died by its script.
    pub fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        self.shared.dead.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the rank's thread has been printed; it is gone all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.kill();
        // A dead rank leaves its socket file; the folder's owner removes it too.
        let _ = std::fs::remove_file(&self.socket);
    }
}
