//! Runs `anabranch trace`: reads a capture and explains it. The crate `anabranch-trace` does the work.

mod copy;
mod study;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_trace::both_ends::{BothEnds, BothEndsReport};
use anabranch_trace::summary::Summary;
use anabranch_trace::{Analysis, Capture, CaptureError, ConnectionReport, Totals, csv, html};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::new_file;
use crate::signals::stop_signals;
use crate::stdout::written;
use crate::view::say;
use copy::Copy;

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
        anabranch trace transfer.pcap --csv > subflows.csv\n  \
        anabranch trace transfer.pcap --html transfer.html      # with plots; open it in any browser\n  \
        anabranch trace transfer.pcap --anonymise public.pcap      # a copy that others may have\n  \
        anabranch trace client.pcap --server server.pcap      # what happened between two captures\n  \
        anabranch trace captures/ --definitions pam16      # all captures of a directory, beside a paper"
)]
pub struct Trace {
    /// The capture; `-` for standard input; with --definitions also a directory
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub capture: PathBuf,

    /// Count all connections of a capture, or of all captures in a directory, as the study of smartphones did
    /// (PAM 2016), beside the exact definitions and the numbers of the paper
    #[arg(long, value_enum, conflicts_with_all = ["csv", "html", "anonymise", "server"])]
    pub definitions: Option<Definitions>,

    /// Print all of it as JSON, one object a line: each connection when it has ended, then what was read
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print a table of all subflows as comma-separated values
    #[arg(long)]
    pub csv: bool,

    /// Write the report with sequence plots as an HTML page, too, which needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Write a copy without payload and with other addresses, too; two with a common prefix keep one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub anonymise: Option<PathBuf>,

    /// The other end's capture of the same transfers: tells the delays of each way, and what was lost between
    #[arg(long, value_name = "CAPTURE", value_hint = ValueHint::FilePath, conflicts_with = "csv")]
    pub server: Option<PathBuf>,

    /// Replace addresses by the key in this file, so that several copies fit together; it is made if it is
    /// not there. Otherwise each copy has a key of its own, which is not kept
    #[arg(long, value_name = "FILE", requires = "anonymise", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,
}

/// Definitions beside the exact ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Definitions {
    /// Those of the scripts of "A First Analysis of Multipath TCP on Smartphones"
    Pam16,
}

/// Reports the totals of a capture and how the reading ended: the last object of --json.
#[derive(Serialize)]
struct End<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    #[serde(flatten)]
    end: json::End,
}

/// Runs `anabranch trace`.
///
/// # Errors
/// 2 if it is no capture or is not there, 5 if it is damaged or cut off, 6 if standard output takes no more
/// or the page or the copy cannot be written, 130 on Ctrl-C. What could be read is told before.
pub fn trace(args: &Trace) -> Outcome {
    let nothing_read = |failure: &Failure| {
        if args.json && failure.code == Code::Usage {
            // Nothing was read: no totals.
            json::put("summary", &json::End::new(Some(failure)));
        }
    };
    if args.definitions.is_some() {
        return study::study(args).inspect_err(nothing_read);
    }
    let files = Files::open(args).inspect_err(nothing_read)?;
    explain(args, files)
}

/// The files of a run: what is read, and the copy.
struct Files {
    capture: Capture<Box<dyn Read>>,
    copy: Option<Copy>,
}

impl Files {
    fn open(args: &Trace) -> Outcome<Self> {
        if is_pipe(&args.capture) && args.server.is_some() {
            return Err(Failure::usage("two captures are read twice: standard input cannot be one of them"));
        }
        if let Some(server) = &args.server {
            Capture::open(open(server)?).map_err(|error| wrong(&error, server))?;
        }
        let capture = open_input(&args.capture)?;
        let copy = args.anonymise.as_ref().map(|path| Copy::begin(path, args.key_file.as_deref()));
        Ok(Self { capture, copy: copy.transpose()? })
    }
}

fn explain(args: &Trace, Files { mut capture, mut copy }: Files) -> Outcome {
    // Ctrl-C ends tcpdump too, and with it the pipe: what is in it is read. A second one ends this at once.
    let (_wake, stop) = stop_signals()?;
    let mut output = Output::new(args);
    let mut analysis = Analysis::new(|report| output.add(report));
    if args.html.is_some() {
        analysis = analysis.with_plots();
    }
    let read = loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                analysis.frame(&frame);
                if let Some(copy) = &mut copy {
                    copy.frame(&frame, |from, to| analysis.keys(from, to));
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(wrong(&error, &args.capture)),
        }
        if !is_pipe(&args.capture) && stop.load(Ordering::Relaxed) {
            break Err(Failure::new(Code::Interrupted, "interrupted: only a part of the capture was read"));
        }
    };
    let totals = analysis.finish();
    // What fails from here on does not take the report with it.
    let page = args.html.as_ref().map(|path| page(path, &args.capture, &output.summary, &totals));
    let copied = copy.map(Copy::finish);
    let is_written = [&page, &copied].map(|outcome| matches!(outcome, Some(Ok(()))));
    let both = args.server.as_ref().filter(|_| read.is_ok()).map(|server| both_ends(args, server, &stop));
    let (both, both_read) = match both.transpose() {
        Ok(None) => (None, Ok(())),
        Ok(Some((both, end))) => (Some(both), end),
        Err(failure) => (None, Err(failure)),
    };
    let outcomes = [Some(read), Some(both_read), page, copied];
    let mut failures = outcomes.into_iter().flatten().filter_map(Outcome::err);
    let first = failures.next();
    for failure in failures {
        say(&format!("{failure}"));
    }
    output.finish(args, &totals, both.as_ref(), is_written, first.as_ref())?;
    first.map_or(Ok(()), Err)
}

/// Whether a capture is standard input.
fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a capture: a file, or standard input.
fn open_input(path: &Path) -> Outcome<Capture<Box<dyn Read>>> {
    let input: Box<dyn Read> =
        if is_pipe(path) { Box::new(io::stdin().lock()) } else { Box::new(open(path)?) };
    Capture::open(input).map_err(|error| wrong(&error, path))
}

fn open(path: &Path) -> Outcome<File> {
    let cannot = |e| Failure::usage(format!("cannot read {}: {e}", show(path))).at(path);
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Failure::usage(format!("{} is a directory", show(path))).at(path));
    }
    Ok(file)
}

/// Reads both captures side by side; returns the report of the part that could be read, and how the reading
/// ended.
fn both_ends(args: &Trace, server: &Path, stop: &AtomicBool) -> Outcome<(BothEndsReport, Outcome)> {
    let capture = |path| {
        let capture = Capture::open(open(path)?);
        capture.map_err(|error| wrong(&error, path))
    };
    let mut both = BothEnds::default();
    let ends = both.read(
        [capture(&args.capture)?, capture(&args.capture)?],
        [capture(server)?, capture(server)?],
        || stop.load(Ordering::Relaxed),
    );
    let [client_end, server_end] = ends;
    let end = client_end.map_err(|e| wrong(&e, &args.capture)).and(server_end.map_err(|e| wrong(&e, server)));
    let end = if stop.load(Ordering::Relaxed) {
        Err(Failure::new(Code::Interrupted, "interrupted: only a part of the captures was read"))
    } else {
        end
    };
    Ok((both.report(), end))
}

/// Writes the page; an older page is replaced.
fn page(path: &Path, capture: &Path, summary: &Summary, totals: &Totals) -> Outcome {
    let name = capture.file_name().map_or_else(|| "standard input".into(), |name| name.to_string_lossy());
    let name = if name == "-" { "standard input".into() } else { name };
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        html::write(&mut out, &name, summary, totals)?;
        out.flush()
    });
    written.map_err(|e| new_file::failed(path, &e))
}

/// Holds the destinations of reports, and the first error in writing to them.
struct Output {
    /// The largest connections, for the text and the page.
    summary: Summary,
    form: Form,
    out: BufWriter<io::Stdout>,
    result: io::Result<()>,
}

/// Selects the form in which standard output gets each connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Prints nothing before the end.
    Text,
    Json,
    Csv,
}

impl Output {
    fn new(args: &Trace) -> Self {
        let form = match (args.json, args.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        let mut out = BufWriter::new(io::stdout());
        let result = if form == Form::Csv { out.write_all(csv::header().as_bytes()) } else { Ok(()) };
        Self { summary: Summary::default(), form, out, result }
    }

    fn put(&mut self, text: &str) {
        if self.result.is_ok() {
            self.result = self.out.write_all(text.as_bytes());
        }
    }

    fn add(&mut self, report: ConnectionReport) {
        match self.form {
            Form::Text => {}
            Form::Json => self.put(&json::text("connection", &report)),
            Form::Csv => self.put(&csv::rows(&report)),
        }
        self.summary.add(report);
    }

    fn finish(
        mut self,
        args: &Trace,
        totals: &Totals,
        both: Option<&BothEndsReport>,
        is_written: [bool; 2],
        failure: Option<&Failure>,
    ) -> Outcome {
        if let Some(both) = both.filter(|_| self.form == Form::Json) {
            self.put(&json::text("both_ends", both));
        }
        match self.form {
            Form::Text => {
                let mut text = self.summary.text(totals);
                if let Some(both) = both {
                    text += &format!("\n{}", both.text());
                }
                let written = [("a page", &args.html), ("an anonymous copy", &args.anonymise)];
                let written = written.into_iter().zip(is_written).filter(|(_, is_written)| *is_written);
                let written = written.filter_map(|((what, path), _)| Some((what, path.as_ref()?)));
                for (number, (what, path)) in written.enumerate() {
                    let gap = if number == 0 { "\n" } else { "" };
                    text += &format!("{gap}wrote {what}: {}\n", show(path));
                }
                self.put(&text);
            }
            Form::Json => self.put(&json::text("summary", &End { totals, end: json::End::new(failure) })),
            Form::Csv => {}
        }
        written(self.result.and_then(|()| self.out.flush()))
    }
}

/// Converts the reason why a capture could not be read further to a failure with an exit status.
fn wrong(error: &CaptureError, capture: &Path) -> Failure {
    let code = match error {
        CaptureError::NotACapture(_) | CaptureError::Empty => Code::Usage,
        CaptureError::Damaged { .. } | CaptureError::CutOff { .. } => Code::Corrupt,
        CaptureError::Io { .. } => Code::Other,
    };
    Failure::new(code, format!("{}: {error}", show(capture))).at(capture)
}
