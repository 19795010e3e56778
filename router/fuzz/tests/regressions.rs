//! Inputs that once ended, stalled or filled the process, one file each named after the fault.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by panicking"
)]

use headrace_fuzz::campaign::replay;
use std::path::Path;

#[test]
fn every_fault_of_the_corpus_stays_away() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in headrace_fuzz::all() {
        let Ok(files) = std::fs::read_dir(corpus.join(target.name)) else {
            continue;
        };
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            if let Err(failure) = replay(target, &input) {
                panic!("{}: {}", path.display(), failure.message);
            }
            count += 1;
        }
        assert!(count > 0, "{}: an empty folder", target.name);
    }
    assert!(corpus.join("templates").is_dir());
}
