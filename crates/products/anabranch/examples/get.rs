//! Gets a file or a directory, with progress on one line.
//!
//!     cargo run --release -p anabranch --example get -- 'anabranch:…' | https://… | FILE.meta4 …

use std::process::ExitCode;
use std::time::Duration;

use anabranch::{Control, Event, Get, Result, text};

fn main() -> ExitCode {
    match get(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn get(names: impl Iterator<Item = String>) -> Result<()> {
    let get = Get::new(names)?.progress_every(Duration::from_millis(500));
    let report = get.to_directory(".").run(|event| {
        match event {
            Event::Progress(progress) => {
                let rate = progress.paths.iter().map(|path| path.rate_bytes).sum();
                let total = progress.total_bytes.map_or("?".to_owned(), text::bytes);
                let done = text::bytes(progress.done_bytes);
                eprint!("\r{done} of {total} over {} paths, {}   ", progress.paths.len(), text::rate(rate));
            }
            Event::Banned { source, reason } => eprintln!("\n{source} is not asked any more: {reason}"),
            Event::Notice(text) | Event::Warning(text) => eprintln!("\n{text}"),
            _ => {}
        }
        Control::Continue
    })?;
    eprintln!("\n{}: {} {}", report.target, text::bytes(report.last.done_bytes), report.verdict());
    Ok(())
}
