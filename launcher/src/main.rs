//! `launcher`: resolves a model, starts the router and the workers, watches them, restarts them, and drains.
//!
//! It knows flags, files and processes; it never sees a token. See `supervisor` for the life of a run.

mod byte_size;
mod devices;
mod failure;
mod flags;
mod log;
mod model;
mod processes;
mod python;
mod restarts;
mod runtime_environment;
mod server_command;
mod settings;
mod supervisor;

use failure::Failure;
use log::Log;
use settings::Request;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let log = Log::new(settings::log_format(&arguments));
    let ended = if server_command::is_meant(&arguments) {
        server_command::run(&arguments, &log)
    } else {
        serve(&arguments, &log)
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            log.failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn serve(arguments: &[OsString], log: &Log) -> Result<u8, Failure> {
    match settings::read(arguments)? {
        Request::Print(text) => log.plain(text.trim_end()),
        Request::PrintEnvironment(python) => {
            log.plain(runtime_environment::describe(python.as_deref()).trim_end());
        }
        Request::Serve(settings) => return supervisor::run(*settings, log),
    }
    Ok(0)
}
