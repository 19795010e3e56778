//! Corrupt files end in an error: no panic, no absurd allocation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test needs and lacks fails it"
)]

mod fixtures;

use fixtures::{safetensors_zeros, tiny_llama, tiny_llama_tensors};
use headrace_checkpoint::gguf::{Gguf, GgufModel};
use headrace_checkpoint::hf_config::config_from_gguf;
use headrace_checkpoint::layout::check_gguf;
use headrace_checkpoint::safetensors::SafetensorsFile;
use nix::sys::resource::{Resource, setrlimit};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Any allocation of more than this aborts the test.
const ADDRESS_SPACE: u64 = 2 << 30;

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    setrlimit(Resource::RLIMIT_AS, ADDRESS_SPACE, ADDRESS_SPACE).unwrap();
    tempfile::tempdir().unwrap()
});

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = FOLDER.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Everything the launcher does with a GGUF file.
fn read_gguf(path: &PathBuf) {
    let Ok(model) = GgufModel::open(path) else {
        return;
    };
    let Ok(config) = config_from_gguf(&model) else {
        return;
    };
    if let Ok(shape) = config.decoder_shape() {
        let _ = check_gguf(&model, &shape);
    }
}

#[test]
fn every_truncation_is_an_error() {
    let gguf = tiny_llama().bytes();
    for length in (0..400).chain((400..gguf.len()).step_by(7)) {
        let path = write("short.gguf", &gguf[..length]);
        let text = Gguf::open(&path).expect_err("truncated").to_string();
        assert!(!text.contains('\n'), "{text}");
    }
    let bytes = safetensors_zeros(&tiny_llama_tensors());
    for length in (0..400).chain((400..bytes.len()).step_by(7)) {
        SafetensorsFile::open(write("short.safetensors", &bytes[..length])).expect_err("truncated");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn flipped_bits_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..6)) {
        let mut bytes = tiny_llama().bytes();
        for (index, bit) in &flips {
            let length = bytes.len();
            bytes[index.index(length)] ^= 1 << bit;
        }
        read_gguf(&write("flipped.gguf", &bytes));
        let mut bytes = safetensors_zeros(&tiny_llama_tensors());
        for (index, bit) in flips {
            // The header only: data bits have no meaning here.
            bytes[index.index(900)] ^= 1 << bit;
        }
        let _ = SafetensorsFile::open(write("flipped.safetensors", &bytes));
    }

    #[test]
    fn overwritten_words_never_panic(at in any::<prop::sample::Index>(), word in prop_oneof![
        any::<u64>(), Just(u64::MAX), Just(1 << 63), Just(1 << 32), Just(u64::from(u32::MAX)), 0_u64..64,
    ]) {
        let mut bytes = tiny_llama().bytes();
        let header = 1600;
        let place = at.index(header);
        bytes[place..place + 8].copy_from_slice(&word.to_le_bytes());
        read_gguf(&write("word.gguf", &bytes));
    }
}
