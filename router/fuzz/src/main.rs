//! `make fuzz`: runs the targets and says how many inputs a second each took.

use clap::Parser;
use headrace_fuzz::campaign::{Budget, Failure, replay, run};
use headrace_fuzz::{Target, all};
use nix::sys::resource::{Resource, setrlimit};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An allocation beyond this ends the process: no input is worth it.
const ADDRESS_SPACE: u64 = 6 << 30;

/// Made-up and mutated inputs against what must always hold.
#[derive(Debug, Parser)]
#[command(name = "fuzz")]
struct Arguments {
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides the inputs; from the clock unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these targets.
    #[arg(long)]
    target: Vec<String>,
    /// Runs one recorded input of the only --target instead.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Where failing inputs are written.
    #[arg(long, default_value = "target/fuzz")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    match fuzz(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nothing is left to do when the terminal is gone too.
            let _ = writeln!(std::io::stderr(), "fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn fuzz(arguments: &Arguments) -> std::io::Result<bool> {
    setrlimit(Resource::RLIMIT_AS, ADDRESS_SPACE, ADDRESS_SPACE)?;
    let targets: Vec<Target> = all()
        .into_iter()
        .filter(|target| {
            arguments.target.is_empty() || arguments.target.iter().any(|name| name == target.name)
        })
        .collect();
    if targets.len() < arguments.target.len().max(1) {
        let names: Vec<&str> = all().iter().map(|target| target.name).collect();
        return Err(std::io::Error::other(format!(
            "--target is one of {}",
            names.join(", ")
        )));
    }
    std::fs::create_dir_all(&arguments.folder)?;
    let mut out = std::io::stdout();
    if let Some(path) = &arguments.replay {
        let [target] = targets.as_slice() else {
            return Err(std::io::Error::other("--replay needs one --target"));
        };
        return match replay(*target, &std::fs::read(path)?) {
            Ok(()) => writeln!(out, "{}: everything held", target.name).map(|()| true),
            Err(failure) => writeln!(out, "{}: {}", target.name, failure.message).map(|()| false),
        };
    }
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or(clock);
    writeln!(out, "seed {seed}, {} seconds a target", arguments.seconds)?;
    let mut all_held = true;
    for target in targets {
        let journal_path = arguments.folder.join(format!("{}.current", target.name));
        let journal = File::create(&journal_path)?;
        let budget = Budget::Time(Duration::from_secs(arguments.seconds));
        match run(target, seed, budget, Some(&journal)) {
            Ok(report) => {
                let rate = report.inputs as f64 / report.elapsed.as_secs_f64().max(1e-9);
                writeln!(
                    out,
                    "{:20} {:>10} inputs {:>8.0} a second {:>6} outcomes, slowest {:.1} ms",
                    target.name,
                    report.inputs,
                    rate,
                    report.kept,
                    report.slowest.as_secs_f64() * 1e3
                )?;
            }
            Err(failure) => {
                all_held = false;
                let path = record(&arguments.folder, target, &failure)?;
                let message = failure.message;
                writeln!(out, "{:20} FAILED: {message}", target.name)?;
                writeln!(
                    out,
                    "{:20} again: make fuzz TARGET={} REPLAY={}",
                    "",
                    target.name,
                    path.display()
                )?;
            }
        }
        std::fs::remove_file(&journal_path)?;
    }
    Ok(all_held)
}

fn record(folder: &Path, target: Target, failure: &Failure) -> std::io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    failure.input.hash(&mut hasher);
    let path = folder.join(format!("{}-{:016x}", target.name, hasher.finish()));
    std::fs::write(&path, &failure.input)?;
    Ok(path)
}
