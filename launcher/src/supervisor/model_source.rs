//! Finding the model: on disk, in the hub's cache, in the demo package, or on the hub.

use super::{End, Plan, Supervisor};
use crate::failure::Failure;
use crate::log::Log;
use crate::model::{
    DEFAULT_MODEL, DownloadLine, DownloadProgress, HubModel, Origin, Place, cached_snapshot,
    demo_model, download_command, has_cached, locate, outline, resolve,
};
use crate::processes::{Child, Ending, Output, spawn};
use crate::settings::ModelSettings;
use headrace_control::{ModelDocument, Progress, RouterConfig, ToRouter};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The router hears of progress this often.
const FORWARD_INTERVAL: Duration = Duration::from_millis(250);

/// Where the model comes from.
#[derive(Debug)]
pub(super) struct ModelSource {
    place: Place,
    pub(super) search: Search,
    download: Option<Download>,
    progress: DownloadProgress,
    last_forward: Option<Instant>,
}

/// It begins once, however many routers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    NotBegun,
    Begun,
    /// The document is in the run directory, and the workers were started.
    Over,
}

/// A running downloader.
#[derive(Debug)]
struct Download {
    child: Child,
    /// It only looks into the cache.
    is_offline: bool,
    /// Its last line.
    done: Option<(PathBuf, Origin)>,
}

impl ModelSource {
    pub(super) fn locate(settings: &ModelSettings) -> Result<Self, Failure> {
        Ok(Self {
            place: locate(&settings.model_id, "--model-id")?,
            search: Search::NotBegun,
            download: None,
            progress: DownloadProgress::default(),
            last_forward: None,
        })
    }

    /// The default model comes out of the demo package when the hub's cache lacks it. Known before anything starts, so
    /// that it is checked like any other model on disk.
    pub(super) fn prefer_demo(&mut self, settings: &ModelSettings, python: &Path, log: &Log) {
        if !is_default(settings) || self.is_local() || has_cached(settings) {
            return;
        }
        if let Some(path) = demo_model(python) {
            self.place = demo_place(path, log);
        }
    }

    /// The document of a model on disk; `None` for an id of the hub.
    pub(super) fn resolve_local(
        &self,
        settings: &ModelSettings,
        plan: &Plan,
        log: &Log,
    ) -> Result<Option<ModelDocument>, Failure> {
        if !self.is_local() {
            return Ok(None);
        }
        let origin = Origin {
            revision: None,
            pipeline_tag: None,
            is_cuda: plan.is_cuda,
        };
        resolve(&self.place, settings, origin, log).map(Some)
    }

    /// What the flags ask of a hub's model, against its configuration in the cache.
    pub(super) fn check_cached(
        &self,
        settings: &ModelSettings,
        plan: &Plan,
        config: &RouterConfig,
    ) -> Result<(), Failure> {
        if self.is_local() {
            return Ok(());
        }
        match cached_snapshot(settings) {
            Some(snapshot) => check_configuration(&snapshot, settings, plan, config),
            None => Ok(()),
        }
    }

    /// The model lies on this machine, by its own path.
    pub(super) fn is_local(&self) -> bool {
        !matches!(self.place, Place::Hub(_))
    }

    pub(super) fn is_download(&self, pid: Pid) -> bool {
        self.download
            .as_ref()
            .is_some_and(|download| download.child.pid() == pid)
    }

    pub(super) fn download_child(&self) -> Option<&Child> {
        self.download.as_ref().map(|download| &download.child)
    }

    pub(super) fn forget_download(&mut self) {
        self.download = None;
    }
}

// Steps of a start, once the router listens.
impl Supervisor {
    /// Goes on to the workers, or to the hub first.
    pub(super) fn find_model(&mut self) -> Result<(), End> {
        self.source.search = Search::Begun;
        if self.document.is_some() {
            return self.model_found();
        }
        let model = &self.settings.model;
        self.start_download(is_default(model) && has_cached(model))
    }

    /// The cache did not have all of the default model: the demo package's, else the hub's.
    fn use_demo_model(&mut self) -> Result<(), End> {
        let Some(path) = demo_model(&self.python) else {
            return self.start_download(false);
        };
        let place = demo_place(path, &self.log);
        self.resolve_at(&place, Origin::default())
    }

    fn start_download(&mut self, is_offline: bool) -> Result<(), End> {
        let command = download_command(
            &self.python,
            HubModel::from(&self.settings.model),
            is_offline,
        );
        let child = spawn(
            "download",
            command,
            Output::Download,
            &self.log,
            &self.sender,
        )
        .map_err(|error| failed(format!("{}: {error}", self.python.display())))?;
        self.source.download = Some(Download {
            child,
            is_offline,
            done: None,
        });
        Ok(())
    }

    /// A line of the downloader.
    pub(super) fn download_says(&mut self, line: DownloadLine) -> Result<(), End> {
        match line {
            DownloadLine::Progress {
                stage,
                file,
                done,
                total,
            } => {
                let (done, total) = self.source.progress.update(file, done, total);
                self.log.progress(&stage, done, total, "bytes");
                let is_due = self
                    .source
                    .last_forward
                    .is_none_or(|last| last.elapsed() >= FORWARD_INTERVAL);
                if is_due {
                    self.source.last_forward = Some(Instant::now());
                    let unit = "bytes".to_owned();
                    self.tell_router(&ToRouter::Progress(Progress {
                        stage,
                        done,
                        total,
                        unit,
                    }));
                }
                Ok(())
            }
            DownloadLine::Configured { configured } => {
                // Before the weights: their gigabytes would come for nothing.
                let (model, router) = (&self.settings.model, &self.settings.router);
                check_configuration(&configured, model, &self.plan, router).map_err(End::Failed)
            }
            DownloadLine::Done {
                path,
                revision,
                pipeline_tag,
            } => {
                let is_cuda = self.plan.is_cuda;
                let origin = Origin {
                    revision,
                    pipeline_tag,
                    is_cuda,
                };
                let Some(download) = &mut self.source.download else {
                    // Its end was seen before its last line.
                    return self.resolve_at(&Place::Folder(path), origin);
                };
                download.done = Some((path, origin));
                Ok(())
            }
        }
    }

    pub(super) fn download_ended(&mut self, ending: Ending) -> Result<(), End> {
        let Some(download) = self.source.download.take() else {
            return Ok(());
        };
        download.child.sweep();
        self.log.end_progress();
        if ending != Ending::Exit(0) {
            if download.is_offline {
                return self.use_demo_model();
            }
            let cause = match download.child.last_words() {
                Some(words) if matches!(ending, Ending::Exit(_)) => {
                    let id = &self.settings.model.model_id;
                    format!("{words} (there is no ./{id} here, so it was taken as a hub id)")
                }
                _ => download.child.describe(ending),
            };
            return Err(failed(cause));
        }
        match download.done {
            Some((path, origin)) => self.resolve_at(&Place::Folder(path), origin),
            None => Ok(()),
        }
    }

    fn resolve_at(&mut self, place: &Place, origin: Origin) -> Result<(), End> {
        let origin = Origin {
            is_cuda: self.plan.is_cuda,
            ..origin
        };
        let document =
            resolve(place, &self.settings.model, origin, &self.log).map_err(End::Failed)?;
        self.plan
            .check(&document, &self.settings.router)
            .map_err(End::Failed)?;
        self.document = Some(document);
        self.model_found()
    }

    /// Tells the router and starts the workers.
    fn model_found(&mut self) -> Result<(), End> {
        self.source.search = Search::Over;
        self.give_model();
        self.start_group()
    }
}

/// What the flags ask of a model of which no more than the configuration may be there.
fn check_configuration(
    folder: &Path,
    settings: &ModelSettings,
    plan: &Plan,
    config: &RouterConfig,
) -> Result<(), Failure> {
    match outline(folder, settings, plan.is_cuda)? {
        Some(outline) => plan.check_shape(&outline.shape, outline.dtype.name(), config),
        None => Ok(()),
    }
}

fn is_default(settings: &ModelSettings) -> bool {
    settings.model_id == DEFAULT_MODEL && settings.revision.is_none()
}

fn demo_place(path: PathBuf, log: &Log) -> Place {
    log.info(&format!(
        "{DEFAULT_MODEL} is served from {}",
        path.display()
    ));
    Place::Gguf(path)
}

fn failed(cause: String) -> End {
    End::Failed(Failure::new(cause))
}
