//! `anabranch trace`: explains a capture. The crate `anabranch-trace` does the work.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anabranch_trace::summary::Summary;
use anabranch_trace::{Analysis, CaptureError, ConnectionReport, Totals, csv, read_capture};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::{print, written};

/// Explain a capture: which subflow carried what, when and why
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Explain a capture: which subflow carried what, when and why.\n\n\
        Reads what tcpdump and others write (pcap and pcapng, also while they write it, and with frames cut \
        at 128 bytes), finds the connections of Multipath TCP and TCP, and tells of each: the subflows and \
        when they joined, what each carried, what was sent again and why (TCP's retransmission, a \
        reinjection on another subflow, the same data again on the same one), how long the receiver's stream \
        stood still, and which subflow took over from which. Data is counted byte by byte, each once.\n\n\
        Where it was captured matters: round-trip times are only told for what the end at the capture \
        sent. What is lost before the capture was never seen: capture at the sender to see losses.",
    after_help = "Examples:\n  \
        sudo tcpdump -i any -s 128 -w transfer.pcap tcp      # then start the transfer; Ctrl-C\n  \
        anabranch trace transfer.pcap\n  \
        sudo tcpdump -i any -s 128 -U -w - tcp | anabranch trace -      # Ctrl-C ends both\n  \
        anabranch trace transfer.pcap --json | jq 'select(.event == \"connection\").handovers[]'\n  \
        anabranch trace transfer.pcap --csv > subflows.csv"
)]
pub struct Trace {
    /// The capture; `-` for standard input
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub capture: PathBuf,

    /// Print all of it as JSON, one object a line: each connection when it has ended, then what was read
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print a table of all subflows as comma-separated values
    #[arg(long)]
    pub csv: bool,
}

/// The totals and the end: the last object of --json.
#[derive(Serialize)]
struct End<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    #[serde(flatten)]
    end: json::End,
}

/// Runs the command.
///
/// # Errors
/// 2 if the file is no capture or does not exist, 5 if it is damaged or cut off, 6 if standard output cannot
/// be written, 130 on Ctrl-C. What could be read is printed before.
pub fn trace(args: &Trace) -> Outcome {
    let outcome = explain(args);
    if let Err(failure) = &outcome
        && args.json
        && failure.code == Code::Usage
    {
        // Nothing was read, so there are no totals.
        json::put("summary", &json::End::new(Some(failure)));
    }
    outcome
}

fn explain(args: &Trace) -> Outcome {
    let is_pipe = args.capture.as_os_str() == "-";
    let input: Box<dyn Read> = if is_pipe {
        Box::new(io::stdin().lock())
    } else {
        let cannot =
            |e| Failure::usage(format!("cannot read {}: {e}", show(&args.capture))).at(&*args.capture);
        let file = File::open(&args.capture).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.is_dir() {
            return Err(Failure::usage(format!("{} is a directory", show(&args.capture))).at(&*args.capture));
        }
        Box::new(file)
    };
    // Ctrl-C also ends tcpdump and with it the pipe, so the rest of the pipe is read. A second Ctrl-C ends
    // this at once.
    let (_wake, stop) = stop_signals()?;
    let (mut summary, mut output) = (Summary::default(), Output::new(args));
    let mut analysis = Analysis::new(|report: ConnectionReport| match &mut output {
        Output::Text => summary.add(report),
        Output::Json(out, result) => {
            keep(result, out.write_all(json::text("connection", &report).as_bytes()));
        }
        Output::Csv(out, result) => keep(result, out.write_all(csv::rows(&report).as_bytes())),
    });
    let read = read_capture(input, |frame| {
        analysis.frame(&frame);
        if !is_pipe && stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let totals = analysis.finish();
    let mut ended = read.map(drop).map_err(|error| wrong(&error, &args.capture));
    if ended.is_ok() && !is_pipe && stop.load(Ordering::Relaxed) {
        ended = Err(Failure::new(Code::Interrupted, "interrupted: only a part of the capture was read"));
    }
    if ended.as_ref().is_err_and(|failure| failure.code == Code::Usage) {
        return ended;
    }
    match output {
        Output::Text => print(summary.text(&totals))?,
        Output::Json(mut out, result) => {
            let end = End { totals: &totals, end: json::End::new(ended.as_ref().err()) };
            written(result.and_then(|()| out.write_all(json::text("summary", &end).as_bytes())))?;
            written(out.flush())?;
        }
        Output::Csv(mut out, result) => written(result.and_then(|()| out.flush()))?,
    }
    ended
}

/// The destination of reports, and the first error of writing to it.
enum Output {
    Text,
    Json(BufWriter<io::Stdout>, io::Result<()>),
    Csv(BufWriter<io::Stdout>, io::Result<()>),
}

impl Output {
    fn new(args: &Trace) -> Self {
        let mut out = BufWriter::new(io::stdout());
        if args.json {
            Self::Json(out, Ok(()))
        } else if args.csv {
            let result = out.write_all(csv::header().as_bytes());
            Self::Csv(out, result)
        } else {
            Self::Text
        }
    }
}

fn keep(result: &mut io::Result<()>, next: io::Result<()>) {
    if result.is_ok() {
        *result = next;
    }
}

/// Converts the error of a capture to a failure with an exit status.
fn wrong(error: &CaptureError, capture: &Path) -> Failure {
    let code = match error {
        CaptureError::NotACapture(_) | CaptureError::Empty => Code::Usage,
        CaptureError::Damaged { .. } | CaptureError::CutOff { .. } => Code::Corrupt,
        CaptureError::Io { .. } => Code::Other,
    };
    Failure::new(code, format!("{}: {error}", show(capture))).at(capture)
}
