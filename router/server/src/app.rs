//! What the routes share, and how they are put together.

use crate::auth::{Holder, Keys};
use crate::body_bytes;
use crate::caller::Namespaces;
use crate::cors;
use crate::engine::{EngineHandle, bound_flags};
use crate::head;
use crate::house::{House, Permit};
use crate::metrics::Metrics;
use crate::request_id;
use crate::request_log::RequestLog;
use crate::routes::table::{Access, access_of};
use crate::routes::vertex::AipRoutes;
use crate::routes::{self, reply};
use crate::running::RunningRequests;
use crate::services::ModelServices;
use crate::slow_body;
use crate::tenant::Tenant;
use crate::tokenise::{QueueBounds, TokenisePool};
use crate::unknown_fields::UnknownFields;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use futures::FutureExt;
use headrace_control::RouterConfig;
use headrace_dialect::bounds::{Bounds, ContextLimits};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use http::{HeaderValue, Method};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

/// Threads that compile grammars. Most take a few milliseconds, the worst some hundred: one is left to small ones.
const GRAMMAR_THREADS: usize = 2;

/// What every route can reach. Cloning costs one reference count.
#[derive(Clone, Debug)]
pub struct AppState {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: EngineHandle,
    model: OnceLock<Arc<ModelServices>>,
    config: RouterConfig,
    metrics: Arc<Metrics>,
    pool: TokenisePool,
    /// A lane of its own: a slow grammar delays no prompt.
    grammar_pool: TokenisePool,
    house: Arc<House>,
    bodies: Arc<House>,
    running: Arc<RunningRequests>,
    keys: Keys,
    namespaces: Namespaces,
    aip: AipRoutes,
    unknown_fields: UnknownFields,
}

impl AppState {
    /// State of a server without a model yet. Starts the tokenising threads.
    pub fn new(
        engine: EngineHandle,
        config: RouterConfig,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let bounds = QueueBounds {
            jobs: config.max_concurrent_requests.max(16),
            bytes: config.payload_limit.saturating_mul(8).max(16 << 20),
        };
        let pool = TokenisePool::start("tokenise", config.validation_workers, bounds)?;
        let grammar_pool = TokenisePool::start("grammars", GRAMMAR_THREADS, bounds)?;
        let aip = aip_routes(&config)?;
        let namespaces = Namespaces::new();
        let keys = Keys::new(&config.api_keys, config.admin_key.as_deref(), &namespaces);
        metrics.set_keys(&keys.names());
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                model: OnceLock::new(),
                keys,
                namespaces,
                house: House::new(config.max_concurrent_requests),
                bodies: House::new(body_bytes::all(config.payload_limit)),
                running: Arc::new(RunningRequests::default()),
                config,
                metrics,
                pool,
                grammar_pool,
                aip,
                unknown_fields: UnknownFields::default(),
            }),
        })
    }

    /// The model's document has arrived and its files were read. The first call counts.
    pub fn set_model(&self, services: ModelServices) {
        self.inner.model.get_or_init(|| Arc::new(services));
    }

    /// The engine.
    pub fn engine(&self) -> &EngineHandle {
        &self.inner.engine
    }

    pub(crate) fn config(&self) -> &RouterConfig {
        &self.inner.config
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    pub(crate) fn pool(&self) -> &TokenisePool {
        &self.inner.pool
    }

    /// Where grammars are compiled.
    pub(crate) fn grammar_pool(&self) -> &TokenisePool {
        &self.inner.grammar_pool
    }

    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.inner.namespaces
    }

    /// The requests that can be aborted.
    pub(crate) fn running(&self) -> &Arc<RunningRequests> {
        &self.inner.running
    }

    /// What was told of unknown fields.
    pub(crate) fn unknown_fields(&self) -> &UnknownFields {
        &self.inner.unknown_fields
    }

    /// Permits that are taken.
    pub(crate) fn requests_in_house(&self) -> usize {
        self.inner.house.taken()
    }

    /// At least one key is set, be it the admin's alone.
    pub(crate) fn has_keys(&self) -> bool {
        !self.inner.keys.is_empty() || self.inner.keys.has_admin()
    }

    /// The model's services, once they are there.
    pub(crate) fn services(&self) -> Result<&ModelServices, Refusal> {
        self.inner
            .model
            .get()
            .map(Arc::as_ref)
            .ok_or_else(not_ready)
    }

    pub(crate) fn shared_services(&self) -> Result<Arc<ModelServices>, Refusal> {
        self.inner.model.get().cloned().ok_or_else(not_ready)
    }

    /// The bounds of a dialect.
    pub(crate) fn bounds(&self, dialect: Dialect) -> Bounds {
        Bounds::of(dialect, bound_flags(self.config()))
    }

    /// What one sequence may be, once a group has been ready.
    pub(crate) fn context_limits(&self) -> Result<ContextLimits, Refusal> {
        let limits = self.engine().status().limits.ok_or_else(not_ready)?;
        let max_total_tokens = limits.max_total_tokens;
        let most = max_total_tokens.saturating_sub(1);
        Ok(ContextLimits {
            max_input_tokens: self
                .config()
                .max_input_tokens
                .map_or(most, |asked| asked.min(most)),
            max_total_tokens,
            vocab_size: limits.vocab_size,
        })
    }

    /// A permit for a generation request of this tenant, or why there is none.
    pub(crate) fn admit(&self, tenant: Tenant) -> Result<Permit, Refusal> {
        self.check_open()?;
        self.inner
            .house
            .enter(tenant)
            .ok_or_else(Refusal::overloaded)
    }

    /// The bytes of bodies that are being read.
    pub(crate) fn bodies(&self) -> &Arc<House> {
        &self.inner.bodies
    }

    /// Why [`AppState::admit`] would refuse at this moment, if it would. Takes no permit: whoever still has to send a body
    /// would hold it for as long as he likes.
    pub(crate) fn check_room(&self, tenant: Tenant) -> Result<(), Refusal> {
        self.check_open()?;
        if self.inner.house.has_room(tenant) {
            Ok(())
        } else {
            Err(Refusal::overloaded())
        }
    }

    /// Whose error bodies a path answers with.
    pub(crate) fn dialect_of(&self, path: &str) -> Dialect {
        if self.inner.aip.has(path) {
            return Dialect::Native;
        }
        dialect_by_prefix(path)
    }

    /// Who may use a method of a path.
    fn access_of(&self, method: &Method, path: &str) -> Access {
        let reads = method == Method::GET || method == Method::HEAD;
        if reads && self.inner.aip.is_health(path) {
            return Access::Open;
        }
        access_of(method, path)
    }

    fn check_open(&self) -> Result<(), Refusal> {
        let status = self.engine().status();
        if status.draining {
            return Err(Refusal::new(
                Cause::Unavailable,
                "The server is shutting down",
            ));
        }
        if !status.was_ready {
            return Err(not_ready());
        }
        Ok(())
    }
}

pub(crate) fn not_ready() -> Refusal {
    Refusal::new(Cause::Unavailable, "The model is not ready yet")
}

/// That the routes which Vertex AI's environment names can be served.
pub fn check_config(config: &RouterConfig) -> std::io::Result<()> {
    aip_routes(config).map(drop)
}

/// The routes that Vertex AI's environment names, or the line that says which variable is wrong.
fn aip_routes(config: &RouterConfig) -> std::io::Result<AipRoutes> {
    AipRoutes::new(
        config.aip_predict_route.as_deref(),
        config.aip_health_route.as_deref(),
        routes::table::is_taken,
    )
    .map_err(std::io::Error::other)
}

/// Whose error bodies a path answers with. `/v1` itself is TGI's compat route.
pub(crate) fn dialect_by_prefix(path: &str) -> Dialect {
    if path.starts_with("/v1/") {
        Dialect::OpenAi
    } else {
        Dialect::Native
    }
}

/// The whole application.
pub fn router(state: AppState) -> Router {
    let cors = cors::layer(&state.config().cors_allow_origin);
    routes::table::router(state.inner.keys.has_admin())
        .merge(state.inner.aip.table())
        .merge(crate::openapi::page())
        .fallback(routes::not_found)
        .method_not_allowed_fallback(routes::method_not_allowed)
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            head::in_bounds,
        ))
        .layer(middleware::from_fn_with_state(state.clone(), catch_panics))
        .layer(middleware::from_fn_with_state(state.clone(), in_time))
        .layer(cors)
        .layer(middleware::from_fn(cors::expose_to_browsers_only))
        .layer(middleware::from_fn_with_state(state.clone(), observe))
        .with_state(state)
}

/// Gives the request an id and a log record, outermost of all.
async fn observe(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let id = request_id::of(request.headers());
    let log = Arc::new(RequestLog::new(
        id,
        request.method().clone(),
        shown_route(request.uri().path()),
        Arc::clone(state.metrics()),
        Arc::clone(state.inner.keys.anyone()),
    ));
    request.extensions_mut().insert(Arc::clone(&log));
    let mut response = next.run(request).await;
    log.set_status(response.status().as_u16());
    // The body may have named the request.
    if let Ok(value) = HeaderValue::from_str(log.request_id()) {
        response.headers_mut().insert(request_id::HEADER, value);
    }
    response
}

/// A path for the log: a client's text, so bounded and without anything that could break a line.
fn shown_route(path: &str) -> String {
    path.chars()
        .take(100)
        .filter(|character| !character.is_control())
        .collect()
}

/// A body has to come in time.
async fn in_time(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let dialect = state.dialect_of(request.uri().path());
    slow_body::answer_in_time(request, next, dialect, slow_body::PATIENCE).await
}

/// A panic in a request's task is that request's 500.
async fn catch_panics(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let dialect = state.dialect_of(request.uri().path());
    let log = request.extensions().get::<Arc<RequestLog>>().cloned();
    if let Ok(response) = AssertUnwindSafe(next.run(request)).catch_unwind().await {
        return response;
    }
    let refusal = Refusal::new(Cause::Internal, "Internal error");
    if let Some(log) = log {
        log.fail(&refusal);
    }
    reply::refused(&state, dialect, &refusal)
}

/// Asks for a key, and notes whose it is.
async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let keys = &state.inner.keys;
    let path = request.uri().path();
    let access = if request.method() == Method::OPTIONS {
        // Browsers ask before they send, and without the key.
        Access::Open
    } else {
        state.access_of(request.method(), path)
    };
    let is_control = keys.has_admin() && access == Access::Admin;
    let needs_key = match access {
        Access::Open => false,
        Access::Closable => state.config().guard_info_and_metrics,
        Access::Keyed | Access::Admin => is_control || !keys.is_empty(),
    };
    let refusal = match keys.holder(request.headers()) {
        Holder::Key(_) if is_control => Refusal::new(
            Cause::Forbidden,
            "This route takes the admin key, and no other",
        ),
        Holder::Admin(caller) | Holder::Key(caller) => {
            if let Some(log) = request.extensions().get::<Arc<RequestLog>>() {
                log.set_caller(caller);
            }
            return next.run(request).await;
        }
        Holder::Nobody if !needs_key => {
            return next.run(request).await;
        }
        Holder::Nobody => Refusal::new(
            Cause::Unauthorized,
            "A valid API key is required: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
        ),
    };
    if let Some(log) = request.extensions().get::<Arc<RequestLog>>() {
        log.fail(&refusal);
    }
    reply::refused(&state, state.dialect_of(path), &refusal)
}

#[cfg(test)]
mod tests;
