use super::*;
use crate::engine::{EngineConfig, LauncherLink, RunningEngine};
use axum::body::Body;
use axum::routing::get;
use http_body_util::BodyExt;
use tower::ServiceExt;

fn state() -> AppState {
    let config: RouterConfig = serde_json::from_value(serde_json::json!({
        "hostname": "127.0.0.1", "port": 0, "prometheus_port": null, "max_concurrent_requests": 4,
        "max_best_of": 2, "max_stop_sequences": 4, "max_top_n_tokens": 5, "max_input_tokens": null,
        "max_total_tokens": null, "max_batch_prefill_tokens": null, "max_batch_total_tokens": null,
        "max_batch_size": null, "max_client_batch_size": 4, "validation_workers": 1,
        "payload_limit": 2_000_000, "api_keys": [], "admin_key": null, "max_queued_tokens": null,
        "schedule_policy": "fcfs", "target_itl_ms": null, "stall_timeout_seconds": 60, "lenient_grammar": false, "cors_allow_origin": [], "disable_grammar_support": false,
        "strict_model_name": false, "guard_info_and_metrics": false, "completions_default_max_tokens": null, "kv_cache_bytes": null,
        "block_size": 16, "prefix_caching": true, "poison_fresh_blocks": false, "log_level": "info",
        "compute_type": "cpu", "docker_label": null, "aip_predict_route": null, "aip_health_route": null
    }))
    .unwrap();
    let (_, control) = tokio::sync::mpsc::unbounded_channel();
    let (link, _) = LauncherLink::channel();
    let metrics = Arc::new(Metrics::new());
    let engine = RunningEngine::start(
        EngineConfig::new(&config),
        control,
        link,
        Arc::clone(&metrics),
    )
    .unwrap();
    AppState::new(engine.handle(), config, metrics).unwrap()
}

async fn explode() -> Response {
    panic!("a bug")
}

#[tokio::test]
async fn a_panic_is_that_requests_500() {
    let state = state();
    let app = Router::new()
        .route("/v1/explode", get(explode))
        .route("/explode", get(explode))
        .layer(middleware::from_fn_with_state(state.clone(), catch_panics))
        .layer(middleware::from_fn_with_state(state.clone(), observe))
        .with_state(state);
    for (path, body) in [
        (
            "/explode",
            r#"{"error":"Internal error","error_type":"internal"}"#,
        ),
        (
            "/v1/explode",
            r#"{"error":{"message":"Internal error","type":"server_error","param":null,"code":null},"error_type":"internal"}"#,
        ),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        assert!(response.headers().contains_key("x-request-id"));
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes, body);
    }
}
