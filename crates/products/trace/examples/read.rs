//! Reads a capture and prints its report: `cargo run -p anabranch-trace --example read -- FILE [json|html]`.

use std::fs::File;
use std::io::Write as _;
use std::ops::ControlFlow;

use anabranch_trace::summary::Summary;
use anabranch_trace::{Analysis, html, read_capture};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which capture?")?;
    let form = args.next().unwrap_or_default();
    let (is_json, is_html) = (form == "json", form == "html");
    let (mut summary, mut out) = (Summary::default(), std::io::stdout().lock());
    let mut analysis = Analysis::new(|report| {
        if is_json {
            let _ = writeln!(out, "{}", serde_json::to_string(&report).unwrap_or_default());
        } else {
            summary.add(report);
        }
    });
    if is_html {
        analysis = analysis.with_plots();
    }
    let read = read_capture(File::open(&path)?, |frame| {
        analysis.frame(&frame);
        ControlFlow::Continue(())
    });
    let totals = analysis.finish();
    if is_html {
        html::write(&mut out, &path, &summary, &totals)?;
    } else if !is_json {
        write!(out, "{}", summary.text(&totals))?;
    }
    read?;
    Ok(())
}
