//! `--env`: what this was built from and what it runs on, for bug reports.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Versions of what the workers use. A package that is missing is part of the answer.
const SCRIPT: &str = "\
import importlib.metadata as m, platform
print('Python:', platform.python_version())
for name in ('headrace', 'torch', 'safetensors', 'grpcio', 'protobuf', 'huggingface_hub', 'numpy'):
    try:
        print(name + ':', m.version(name))
    except m.PackageNotFoundError:
        print(name + ':', 'not installed')
";

/// Several lines.
pub(crate) fn describe(python: Option<&Path>) -> String {
    let mut text = format!(
        "headrace: {}\nTarget: {}-{}\nUsable cores: {}\nVisible GPUs: {}\nCPU: {}\nDocker label: {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        crate::devices::usable_cores(),
        crate::devices::visible_gpus(),
        cpu().unwrap_or_else(|| "unknown".to_owned()),
        std::env::var("DOCKER_LABEL").unwrap_or_else(|_| "none".to_owned()),
    );
    let result = match crate::python::find(python) {
        Ok(python) => {
            let answer = crate::python::ask(&python, SCRIPT, Duration::from_secs(20));
            let answer = answer.unwrap_or_else(|| "Python: does not answer\n".to_owned());
            write!(text, "Python program: {}\n{answer}", python.display())
        }
        Err(failure) => writeln!(text, "Python: {failure}"),
    };
    // Writing to a string does not fail.
    debug_assert!(result.is_ok());
    text
}

fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
