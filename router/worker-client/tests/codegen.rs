//! The committed code is what the protocol file generates. `HEADRACE_REGENERATE=1` rewrites it instead.

use protox::prost::Message;
use std::path::Path;

#[test]
fn committed_code_is_what_the_protocol_file_generates() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto_dir = crate_dir.join("../../proto");
    let file = proto_dir.join("headrace/worker/v1/worker.proto");
    let descriptors = protox::compile([&file], [&proto_dir]).expect("the protocol file compiles");
    // Through bytes, so that generator and compiler may use different minor versions of prost.
    let descriptors =
        prost_types::FileDescriptorSet::decode(descriptors.encode_to_vec().as_slice())
            .expect("descriptors decode");
    let generated = tempfile::tempdir().expect("a temporary folder");
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .out_dir(generated.path())
        .compile_fds(descriptors)
        .expect("code is generated");
    let name = "headrace.worker.v1.rs";
    let fresh = std::fs::read_to_string(generated.path().join(name)).expect("generated code");
    let committed = crate_dir.join("src/pb").join(name);
    if std::env::var_os("HEADRACE_REGENERATE").is_some_and(|value| value == "1") {
        std::fs::write(&committed, fresh).expect("the committed code is writable");
        return;
    }
    let old = std::fs::read_to_string(&committed).expect("the committed code");
    assert!(
        old == fresh,
        "{} is out of date: run `HEADRACE_REGENERATE=1 cargo test -p headrace-worker-client --test codegen`",
        committed.display()
    );
}
