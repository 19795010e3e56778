//! Files and folders that flags name: each is looked at before anything starts, and a fault names the flag.

use super::ModelSettings;
use crate::failure::Failure;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::path::Path;

/// Bytes of a tokenizer config or template; the longest known one has less than a tenth.
const LONGEST: u64 = 16 << 20;

/// Of `--tokenizer-config-path`, for what is read of it later too.
pub(crate) const TOKENIZER_CONFIG: &str = "--tokenizer-config-path";

/// What is not there, or is something else.
pub(super) fn refuse(model: &ModelSettings) -> Result<(), Failure> {
    if let Some(path) = &model.tokenizer_config {
        let text = read(path).map_err(|fault| usage(TOKENIZER_CONFIG, path, fault))?;
        if !is_template(path) {
            serde_json::from_slice::<Map<String, Value>>(&text).map_err(|error| {
                let fault = format!("is neither a .jinja template nor a JSON object: {error}");
                usage(TOKENIZER_CONFIG, path, fault)
            })?;
        }
    }
    if let Some(path) = &model.weights_folder {
        let fault = match path.metadata() {
            Ok(found) if found.is_dir() => None,
            Ok(_) => Some("not a directory".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some("no such directory".to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(fault) = fault {
            return Err(usage("--weights-cache-override", path, fault));
        }
    }
    if let Some(path) = &model.hub_cache {
        // One that is not there is made.
        let above = path.ancestors().find_map(|path| path.metadata().ok());
        if above.is_some_and(|found| !found.is_dir()) {
            return Err(usage("--huggingface-hub-cache", path, "not a directory"));
        }
    }
    Ok(())
}

/// Whether a tokenizer config is a bare template.
pub(crate) fn is_template(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "jinja")
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let found = path.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("not a file".to_owned());
    }
    if found.len() > LONGEST {
        return Err(format!("longer than {LONGEST} bytes"));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}

fn usage(flag: &str, path: &Path, fault: impl Display) -> Failure {
    Failure::usage(format!("{flag} {}: {fault}", path.display()))
}
