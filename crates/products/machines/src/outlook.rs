//! Measures a guest and the paths, and predicts its move over each of them and over all.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anabranch_algo::{Rate, Span};
use anabranch_house::keys::Pairing;
use anabranch_net::Clock;
use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::memory::used_bytes;
use crate::model::{Changes, Guest, Prediction, predict};
use crate::paths::Path;
use crate::qmp::Qmp;
use crate::remote::{Remote, Way};

/// How long a path is measured.
const PATH: Span = Span::from_millis(1_200);
/// How long all paths are measured together.
const ALL: Span = Span::from_millis(1_800);
/// For how long changes of the guest's memory are counted, seconds.
const CHANGES_S: [u64; 2] = [3, 1];
/// The pages that are watched for changes, of each GB.
const SAMPLE: u64 = 8_192;

/// A prediction over some paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// The devices.
    pub over: Vec<String>,
    /// What they carried, bytes a second.
    pub rate_bytes: u64,
    /// What the move would be.
    pub prediction: Prediction,
}

/// What is known before a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The guest's memory, bytes.
    pub memory_bytes: u64,
    /// What of it is in use, bytes.
    pub used_bytes: u64,
    /// Whether that was looked at; otherwise all memory is taken for used.
    pub is_used_known: bool,
    /// What the guest changes, bytes a second.
    pub changed_bytes: u64,
    /// Each path alone, then all together if there are several.
    pub forecasts: Vec<Forecast>,
}

impl Outlook {
    /// Returns the forecast over all paths.
    #[must_use]
    pub fn all(&self) -> Option<&Forecast> {
        self.forecasts.last()
    }
}

/// What there is to measure.
#[derive(Debug)]
pub struct Survey<'a> {
    /// The keys for the agent.
    pub pairing: &'a Pairing,
    /// The port of the agent.
    pub port: u16,
    /// The paths, which the kernel's Multipath TCP knows.
    pub paths: &'a [Path],
    /// The process of the guest's QEMU, if it is known.
    pub pid: Option<i32>,
    /// The longest pause of the guest, as QEMU counts.
    pub pause_max: Span,
}

/// Measures, which takes some seconds. The guest runs on.
///
/// # Errors
/// `Unreachable` if a path does not reach the agent; otherwise as the agent and QEMU say.
pub fn measure(qmp: &mut Qmp, survey: &Survey<'_>, clock: Clock) -> Result<Outlook> {
    let [long, short] = CHANGES_S;
    begin_changes(qmp, long)?;
    let rates = rates(survey, clock)?;
    let mut measured = vec![(Span::from_secs(long), changes(qmp, long, clock)?)];
    begin_changes(qmp, short)?;
    measured.push((Span::from_secs(short), changes(qmp, short, clock)?));
    let sizes = qmp.execute("query-memory-size-summary", json!({}))?;
    let memory_bytes =
        sizes["base-memory"].as_u64().unwrap_or(0) + sizes["plugged-memory"].as_u64().unwrap_or(0);
    let used = survey.pid.and_then(|pid| used_bytes(pid, memory_bytes));
    let guest =
        Guest { memory_bytes, used_bytes: used.unwrap_or(memory_bytes), changes: Changes::new(measured) };
    let forecast = |(over, rate): (Vec<String>, Rate)| Forecast {
        over,
        rate_bytes: rate.as_bytes(),
        prediction: predict(&guest, rate, survey.pause_max),
    };
    Ok(Outlook {
        memory_bytes,
        used_bytes: guest.used_bytes,
        is_used_known: used.is_some(),
        changed_bytes: guest.changes.rate().as_bytes(),
        forecasts: rates.into_iter().map(forecast).collect(),
    })
}

/// Measures each path alone, then all together as a move uses them.
fn rates(survey: &Survey<'_>, clock: Clock) -> Result<Vec<(Vec<String>, Rate)>> {
    let mut rates = Vec::new();
    for path in survey.paths {
        let way = if path.remote.is_loopback() { Way::All } else { Way::Device(path.device.clone()) };
        let peer = SocketAddr::new(path.remote, survey.port);
        let rate = Remote::connect(peer, survey.pairing, &way)?.measure(clock, PATH)?;
        rates.push((vec![path.device.clone()], rate));
    }
    if let [first, _, ..] = survey.paths {
        let peer = SocketAddr::new(first.remote, survey.port);
        let rate = Remote::connect(peer, survey.pairing, &Way::All)?.measure(clock, ALL)?;
        rates.push((survey.paths.iter().map(|path| path.device.clone()).collect(), rate));
    }
    Ok(rates)
}

fn begin_changes(qmp: &mut Qmp, seconds: u64) -> Result {
    qmp.execute("calc-dirty-rate", json!({"calc-time": seconds, "sample-pages": SAMPLE})).map(drop)
}

/// Waits until QEMU has counted, and returns the bytes that were changed within these seconds.
fn changes(qmp: &mut Qmp, seconds: u64, clock: Clock) -> Result<u64> {
    let deadline = clock.now() + Span::from_secs(seconds + 10);
    loop {
        let state = qmp.execute("query-dirty-rate", json!({}))?;
        if state["status"] == "measured" {
            return Ok(state["dirty-rate"].as_u64().unwrap_or(0) * seconds * (1 << 20));
        }
        if clock.now() > deadline {
            return Err(Error::Failed(format!("QEMU does not count what the guest changes: {state}")));
        }
        thread::sleep(Duration::from_millis(50));
    }
}
