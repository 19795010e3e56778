//! The one list of routes: the router is built from it, keys are asked for by it, and the `OpenAPI` document and the
//! tests are compared with it, so that none of them can forget a route.

use super::{
    abort, about, chat, completions, control, detokenize, generate, info, invocations, kserve,
    probes, tokenize, vertex,
};
use crate::app::AppState;
use axum::Router;
use axum::routing::{MethodRouter, get, post};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody: probes.
    Open,
    /// Everybody, as in TGI, unless `--guard-info-and-metrics` is given.
    Closable,
    /// Who has a key, where keys are set.
    Keyed,
    /// Who has the admin key. Without one the route is not there.
    Admin,
}

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `GET` (which answers `HEAD` too) or `POST`.
    pub method: &'static str,
    /// In axum's notation: `{id}` is one part of a path, `{*id}` the whole rest.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// It reads a JSON body.
    pub takes_body: bool,
    /// The path that it is another name of, if it is one.
    pub alias_of: Option<&'static str>,
    handler: fn() -> MethodRouter<AppState>,
}

impl Route {
    const fn of(
        method: &'static str,
        path: &'static str,
        handler: fn() -> MethodRouter<AppState>,
    ) -> Self {
        Self {
            method,
            path,
            access: Access::Keyed,
            takes_body: false,
            alias_of: None,
            handler,
        }
    }

    const fn get(path: &'static str, handler: fn() -> MethodRouter<AppState>) -> Self {
        Self::of("GET", path, handler)
    }

    /// With a JSON body.
    const fn post(path: &'static str, handler: fn() -> MethodRouter<AppState>) -> Self {
        Self::of("POST", path, handler).with_body()
    }

    /// A command: no body.
    const fn command(path: &'static str, handler: fn() -> MethodRouter<AppState>) -> Self {
        Self::of("POST", path, handler).access(Access::Admin)
    }

    const fn with_body(mut self) -> Self {
        self.takes_body = true;
        self
    }

    const fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    const fn alias(mut self, path: &'static str) -> Self {
        self.alias_of = Some(path);
        self
    }
}

/// Every route but the page at `/docs`.
pub(crate) const ROUTES: &[Route] = &[
    // TGI.
    Route::get("/", || get(probes::root)).access(Access::Open),
    Route::post("/", || post(generate::compat)),
    Route::post("/v1", || post(generate::compat)).alias("/"),
    Route::post("/generate", || post(generate::generate)),
    Route::post("/generate_stream", || post(generate::generate_stream)),
    Route::post("/invocations", || post(invocations::invocations)),
    Route::post("/tokenize", || post(tokenize::tokenize)),
    Route::post("/v1/tokenize", || post(tokenize::tokenize)).alias("/tokenize"),
    Route::post("/detokenize", || post(detokenize::detokenize)),
    Route::post("/v1/detokenize", || post(detokenize::detokenize)).alias("/detokenize"),
    Route::get("/tokenizer_info", || get(about::tokenizer_info)),
    Route::post("/chat_tokenize", || post(tokenize::chat_tokenize)),
    Route::get("/chat_tokenize", || get(tokenize::chat_tokenize))
        .with_body()
        .alias("/chat_tokenize"),
    Route::get("/info", || get(info::info)).access(Access::Closable),
    Route::get("/health", || get(probes::health)).access(Access::Open),
    Route::get("/ping", || get(probes::ping)).access(Access::Open),
    Route::get("/ready", || get(probes::ready)).access(Access::Open),
    Route::get("/metrics", || get(probes::metrics)).access(Access::Closable),
    // OpenAI.
    Route::post("/v1/chat/completions", || post(chat::chat_completions)),
    Route::post("/v1/completions", || post(completions::completions)),
    Route::get("/v1/models", || get(info::models)),
    Route::get("/v1/models/{*id}", || get(info::model)),
    // Platforms.
    Route::post("/vertex", || post(vertex::vertex)),
    Route::get("/v2", || get(kserve::server_metadata)),
    Route::get("/v2/health/live", || get(kserve::live)).access(Access::Open),
    Route::get("/v2/health/ready", || get(kserve::ready)).access(Access::Open),
    Route::get("/v2/models/{model}", || get(kserve::model)),
    Route::get("/v2/models/{model}/ready", || get(kserve::model_ready)),
    Route::post("/v2/models/{model}/infer", || post(kserve::infer)),
    Route::get("/v2/models/{model}/versions/{version}", || {
        get(kserve::model_version)
    }),
    Route::get("/v2/models/{model}/versions/{version}/ready", || {
        get(kserve::model_version_ready)
    }),
    Route::post("/v2/models/{model}/versions/{version}/infer", || {
        post(kserve::infer_version)
    }),
    // Requests by their ids: under headrace's name, SGLang's and vLLM's.
    Route::post("/abort", || post(abort::abort)),
    Route::post("/abort_request", || post(abort::abort)).alias("/abort"),
    Route::post("/abort_requests", || post(abort::abort)).alias("/abort"),
    // The server, in vLLM's and SGLang's shapes.
    Route::get("/version", || get(about::version)),
    Route::get("/load", || get(about::load)),
    Route::get("/server_info", || get(about::server_info)),
    Route::get("/get_server_info", || get(about::server_info)).alias("/server_info"),
    Route::get("/model_info", || get(about::model_info)),
    Route::get("/get_model_info", || get(about::model_info)).alias("/model_info"),
    // Operators.
    Route::command("/drain", || post(control::drain)),
    Route::command("/flush_cache", || post(control::flush_cache)),
    // SGLang's clients of some releases ask with GET, and vLLM's by another name.
    Route::get("/flush_cache", || get(control::flush_cache))
        .access(Access::Admin)
        .alias("/flush_cache"),
    Route::command("/reset_prefix_cache", || post(control::flush_cache)).alias("/flush_cache"),
    // The document, where TGI has it and where other tools look for it.
    Route::get("/api-doc/openapi.json", || get(crate::openapi::document)),
    Route::get("/openapi.json", || get(crate::openapi::document)).alias("/api-doc/openapi.json"),
];

/// The routes; those of operators only where there is an admin key.
pub(crate) fn router(has_admin: bool) -> Router<AppState> {
    ROUTES
        .iter()
        .filter(|route| has_admin || route.access != Access::Admin)
        .fold(Router::new(), |router, route| {
            router.route(route.path, (route.handler)())
        })
}

/// Whether a path belongs to one of the routes, or to the page at `/docs`. Control routes count, there or not.
pub(crate) fn is_taken(path: &str) -> bool {
    path == "/docs"
        || path.starts_with("/docs/")
        || ROUTES.iter().any(|route| fits(route.path, path))
}

/// The pattern that a path was asked for by, for the log.
pub(crate) fn pattern_of(path: &str) -> &'static str {
    let found = ROUTES.iter().find(|route| fits(route.path, path));
    found.map_or_else(
        || {
            // A model's name that is longer than the log shows, or a path that Vertex AI's environment names.
            if path.starts_with("/v2/models/") {
                "/v2/models/{model}/infer"
            } else {
                "AIP_PREDICT_ROUTE"
            }
        },
        |route| route.path,
    )
}

/// Whether a path is one that a pattern in axum's notation stands for.
fn fits(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for expected in pattern.split('/') {
        match segments.next() {
            // The whole rest.
            Some(_) if expected.starts_with("{*") => return true,
            Some(segment) if expected.starts_with('{') || segment == expected => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

/// Who may use a method of a path. A control route's other methods are the admin's too, and what is not in the list is
/// keyed: nobody without a key finds out what there is.
pub(crate) fn access_of(method: &http::Method, path: &str) -> Access {
    let same_path = || ROUTES.iter().filter(|route| route.path == path);
    if same_path().any(|route| route.access == Access::Admin) {
        return Access::Admin;
    }
    let method = match method.as_str() {
        "HEAD" => "GET",
        other => other,
    };
    same_path()
        .find(|route| route.method == method)
        .map_or(Access::Keyed, |route| route.access)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn the_open_list_is_closed() {
        let open = |access: Access| -> Vec<&str> {
            let of_it = ROUTES.iter().filter(|route| route.access == access);
            of_it.map(|route| route.path).collect()
        };
        assert_eq!(
            open(Access::Open),
            [
                "/",
                "/health",
                "/ping",
                "/ready",
                "/v2/health/live",
                "/v2/health/ready"
            ]
        );
        assert_eq!(open(Access::Closable), ["/info", "/metrics"]);
        for route in ROUTES {
            if matches!(route.access, Access::Open | Access::Closable) {
                assert_eq!(route.method, "GET");
                assert_eq!(access_of(&Method::GET, route.path), route.access);
                assert_eq!(access_of(&Method::HEAD, route.path), route.access);
                assert_eq!(access_of(&Method::POST, route.path), Access::Keyed);
            }
        }
        for path in [
            "/generate",
            "/docs",
            "/v1/models",
            "/health/",
            "//health",
            "/nothing",
        ] {
            assert_eq!(access_of(&Method::GET, path), Access::Keyed, "{path}");
        }
    }

    #[test]
    fn a_control_route_is_the_admins_by_every_method() {
        for route in ROUTES.iter().filter(|route| route.access == Access::Admin) {
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                assert_eq!(access_of(&method, route.path), Access::Admin);
            }
        }
    }

    #[test]
    fn every_path_of_ours_is_taken_and_vertexs_are_not() {
        for path in [
            "/",
            "/v1",
            "/generate",
            "/docs",
            "/docs/index.html",
            "/openapi.json",
            "/api-doc/openapi.json",
            "/drain",
            "/reset_prefix_cache",
            "/v1/models/a/b",
            "/v2/models/a",
            "/v2/models/a/versions/1/infer",
        ] {
            assert!(is_taken(path), "{path}");
        }
        for path in [
            "/predict",
            "/v1/endpoints/1/deployedModels/2",
            "/v1/endpoints/1/deployedModels/2:predict",
            "/v2/models/a/b/c/d",
            "/docsx",
        ] {
            assert!(!is_taken(path), "{path}");
        }
    }

    #[test]
    fn no_route_is_listed_twice_and_every_alias_is_of_a_route() {
        for (index, route) in ROUTES.iter().enumerate() {
            let same = |other: &Route| (other.method, other.path) == (route.method, route.path);
            assert!(!ROUTES[..index].iter().any(same), "{route:?}");
            if let Some(path) = route.alias_of {
                let is_original = |other: &Route| other.path == path && other.alias_of.is_none();
                assert!(ROUTES.iter().any(is_original), "{route:?}");
            }
        }
    }
}
