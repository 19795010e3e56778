//! Vertex AI's predict route, and the paths that its environment gives it.

use super::generation::Generation;
use super::reply::{self, Measure};
use super::texts::texts;
use super::{body, chunks, probes};
use crate::app::AppState;
use crate::request_log::RequestLog;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures::future::try_join_all;
use headrace_api::vertex::{VertexRequest, VertexResponse};
use headrace_dialect::call::Prompt;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_dialect::request_id;
use headrace_dialect::vertex::{Instance, place, read_vertex};
use std::sync::Arc;

/// Answer every instance, all at the same time.
#[utoipa::path(
    post, path = "/vertex", tag = "Text Generation Inference", request_body = VertexRequest,
    responses((status = 200, description = "The text of each instance, in their order", body = VertexResponse))
)]
pub(crate) async fn vertex(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    log.begin_generation();
    let result = run(&state, &log, request).await;
    reply::finish(&state, &log, Dialect::Native, result)
}

async fn run(
    state: &AppState,
    log: &Arc<RequestLog>,
    request: Request,
) -> Result<Response, Refusal> {
    let json = body::read_call(state, request).await?;
    log.set_body_id(request_id::in_body(&json)?);
    // One permit for all of them, as for the prompts of a completion.
    let permit = Arc::new(state.admit(log.caller().tenant())?);
    let call = read_vertex(
        &json,
        &state.bounds(Dialect::Native),
        &state.bounds(Dialect::OpenAi),
    )?;
    drop(json);
    for (index, instance) in call.instances.iter().enumerate() {
        chunks::served(state, instance.model.as_deref())
            .map_err(|refusal| refusal.within(&place(index)))?;
    }
    let prompts = call.instances.iter().flat_map(|part| &part.call.prompts);
    let characters = prompts.map(Prompt::characters).sum();
    log.expect_parts(call.instances.len());
    // All are validated and queued before the first is waited for: one that is refused refuses the request, and the
    // others are cancelled by being dropped.
    let starts = (0..).zip(call.instances).map(|(index, instance)| {
        let permit = Arc::clone(&permit);
        async move {
            let Instance {
                call,
                dialect,
                prefix,
                id,
                ..
            } = instance;
            let generation = Generation::start_named(state, log, id, permit, call, dialect).await;
            match generation {
                Ok(generation) => Ok((generation, prefix)),
                Err(refusal) => Err(placed(refusal, index)),
            }
        }
    });
    let started = try_join_all(starts).await?;
    let predictions = try_join_all(started.into_iter().map(predict)).await?;
    let measure = Measure {
        characters,
        compute_time: true,
    };
    let answer = VertexResponse { predictions };
    let mut response = reply::timed_json(state, log, measure, &answer);
    reply::add_ignored(state, log, &mut response, &call.ignored);
    Ok(response)
}

/// Names the instance, in errors that are about one.
fn placed(refusal: Refusal, index: usize) -> Refusal {
    match refusal.cause() {
        Cause::Overloaded | Cause::Unavailable | Cause::Internal => refusal,
        _ => refusal.within(&place(index)),
    }
}

async fn predict((generation, prefix): (Generation, Option<String>)) -> Result<String, Refusal> {
    let text = texts(generation).await?.pop().unwrap_or_default();
    Ok(prefix.unwrap_or_default() + &text)
}

/// The paths that Vertex AI's environment names, besides `/vertex` and `/health`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AipRoutes {
    /// Predictions; guarded.
    predict: Option<String>,
    /// Health; open.
    health: Option<String>,
}

/// A path of the environment that cannot be served; names the variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {path}: {problem}")]
pub(crate) struct AipError {
    variable: &'static str,
    path: String,
    problem: &'static str,
}

/// Bytes of a path.
const LONGEST_PATH: usize = 512;

/// Paths that answer as [`probes::health`] does, or are stricter: naming one of them is no clash.
const HEALTH_PATHS: [&str; 6] = [
    "/",
    "/health",
    "/ping",
    "/ready",
    "/v2/health/live",
    "/v2/health/ready",
];

impl AipRoutes {
    /// Checks the paths against the routes that there are. `is_taken` tells of them.
    pub(crate) fn new(
        predict: Option<&str>,
        health: Option<&str>,
        is_taken: impl Fn(&str) -> bool,
    ) -> Result<Self, AipError> {
        let of = |variable: &'static str, path: Option<&str>, own: &[&str]| {
            // There already, and it does the same.
            let Some(path) = path.filter(|path| !own.contains(path)) else {
                return Ok(None);
            };
            let problem = if !is_plain(path) {
                "must be a path such as /predict, of letters, digits and - . _ ~ : @ / at most 512 bytes"
            } else if is_taken(path) {
                "is another route of this server"
            } else {
                return Ok(Some(path.to_owned()));
            };
            Err(AipError {
                variable,
                path: path.chars().take(100).collect(),
                problem,
            })
        };
        Ok(Self {
            predict: of("AIP_PREDICT_ROUTE", predict, &["/vertex"])?,
            health: of("AIP_HEALTH_ROUTE", health, &HEALTH_PATHS)?,
        })
    }

    /// Whether a path answers in TGI's shapes though it looks like another dialect's.
    pub(crate) fn has(&self, path: &str) -> bool {
        let is_it = |own: &Option<String>| own.as_deref() == Some(path);
        is_it(&self.predict) || is_it(&self.health)
    }

    /// Whether a path is the health route.
    pub(crate) fn is_health(&self, path: &str) -> bool {
        self.health.as_deref() == Some(path)
    }

    /// The routes.
    pub(crate) fn table(&self) -> Router<AppState> {
        let mut table = Router::new();
        if let Some(path) = &self.predict {
            table = table.route(path, post(vertex));
        }
        if let Some(path) = &self.health {
            table = table.route(path, get(probes::health));
        }
        table
    }
}

/// Nothing that a router could take for a pattern, and nothing that is written in two ways.
fn is_plain(path: &str) -> bool {
    let is_plain_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@/".contains(&byte);
    path.len() <= LONGEST_PATH
        && path.starts_with('/')
        && path.bytes().all(is_plain_byte)
        && path.split('/').skip(1).all(|segment| {
            !segment.is_empty() && !segment.starts_with(':') && segment != "." && segment != ".."
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(predict: Option<&str>, health: Option<&str>) -> Result<AipRoutes, String> {
        AipRoutes::new(predict, health, |path| path == "/generate")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn paths_of_vertex_are_taken_and_what_is_there_already_is_left() {
        let deployed = "/v1/endpoints/12/deployedModels/34";
        let predict = format!("{deployed}:predict");
        let aip = routes(Some(&predict), Some(deployed)).unwrap();
        assert!(aip.has(deployed) && aip.has(&predict));
        assert!(aip.is_health(deployed) && !aip.is_health(&predict));
        for health in HEALTH_PATHS {
            assert_eq!(
                routes(Some("/vertex"), Some(health)),
                Ok(AipRoutes::default())
            );
        }
        let one = routes(Some("/m"), Some("/m")).unwrap();
        // Two methods of one path.
        let _ = one.table();
    }

    #[test]
    fn what_cannot_be_served_names_the_variable() {
        assert_eq!(
            routes(Some("/generate"), None).unwrap_err(),
            "AIP_PREDICT_ROUTE /generate: is another route of this server"
        );
        assert_eq!(
            routes(None, Some("/generate")).unwrap_err(),
            "AIP_HEALTH_ROUTE /generate: is another route of this server"
        );
        let long = format!("/{}", "x".repeat(LONGEST_PATH));
        for path in [
            "predict", "/a b", "/{a}", "/*a", "/:a", "/a?b", "/a#b", "/a%20", "/é", "//a", "/a/",
            "/..", &long,
        ] {
            let error = routes(Some(path), None).unwrap_err();
            assert!(
                error.starts_with("AIP_PREDICT_ROUTE ") && error.contains("must be a path"),
                "{error}"
            );
        }
    }
}
