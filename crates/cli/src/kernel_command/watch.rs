//! `anabranch kernel watch`: shows connections and their subflows, live.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_algo::{Span, Time};
use anabranch_http::server::RunningServer;
use anabranch_kernel::connection_monitor::{
    ConnectionKind, ConnectionMonitor, ConnectionRow, ControllerStats, Snapshot, SubflowRow, prometheus_text,
};
use anabranch_net::{Clock, Interest, Poller, quantity};
use clap::Args;
use console::Term;
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::metrics;
use crate::signals::stop_signals;
use crate::view::{Lines, can_redraw, note, plural, printable, rate, say};

/// The shortest interval: more frequent snapshots would cost more than they show.
const INTERVAL_MIN: Span = Span::from_millis(50);

/// Show connections and their subflows as they are now
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Show the MPTCP connections of this host and their subflows as they are now: interface, \
        rate, window, round-trip time, packets sent again, congestion controller.\n\n\
        Nothing needs to be loaded for it, and it slows nothing down. Where a controller of `anabranch \
        kernel load` is at work, its own numbers are shown too: m, by whose square a subflow grows more \
        slowly than TCP would, and m_t, by which a cut is weighed. On a terminal the picture is redrawn in \
        place, elsewhere one follows the other; Ctrl-C ends it.",
    after_help = "Examples:\n  \
        anabranch kernel watch\n  \
        anabranch kernel watch --tcp --once\n  \
        anabranch kernel watch --json | jq '.connections[].subflows[].srtt_us'\n  \
        anabranch kernel watch --prometheus 9155"
)]
pub struct Watch {
    /// How long from one look to the next; rates are means over it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Span,

    /// One JSON object a look on standard output
    #[arg(long)]
    pub json: bool,

    /// Serve http://ADDR:PORT/metrics for Prometheus as well; PORT alone means that of 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    pub prometheus: Option<SocketAddr>,

    /// Look once, for one interval, and end
    #[arg(long, conflicts_with = "prometheus")]
    pub once: bool,

    /// Plain TCP connections too
    #[arg(long)]
    pub tcp: bool,
}

fn interval(text: &str) -> Result<Span, String> {
    let span = quantity::span(text)
        .ok_or_else(|| format!("\"{text}\" is not a time: write it as \"50 ms\" (ns, us, ms, s, min)"))?;
    if span < INTERVAL_MIN || span > Span::from_secs(3_600) {
        return Err("expected 50 ms to an hour".into());
    }
    Ok(span)
}

/// Serves a new snapshot for each request, until the server is dropped. Returns the server and its address.
fn serve(
    monitor: ConnectionMonitor,
    clock: Clock,
    address: SocketAddr,
) -> io::Result<(RunningServer, SocketAddr)> {
    let monitor = Mutex::new(monitor);
    metrics::serve(address, move || {
        let mut monitor = monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.snapshot(clock.now()).ok().map(|snapshot| prometheus_text(&snapshot))
    })
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    #[serde(rename = "look")]
    Snapshot {
        elapsed_s: f64,
        #[serde(flatten)]
        snapshot: &'a Snapshot,
    },
}

/// Says where snapshots go.
enum Output {
    Json,
    Live(Box<Lines>),
    Text,
    Nothing,
}

/// Watches until Ctrl-C. `controllers` has the numbers that only the controllers know; pass `Arc::new(())` if
/// none is loaded.
///
/// # Errors
/// 1 if the sockets cannot be listed, or the address for Prometheus cannot be listened on.
pub fn watch(args: &Watch, controllers: Arc<dyn ControllerStats + Send + Sync>) -> Outcome {
    let failed = |e: anabranch_net::netlink::Error| Failure::other(e.to_string());
    let clock = Clock::start();
    let (wake, stop) = stop_signals()?;
    let open = || ConnectionMonitor::open(Arc::clone(&controllers), args.tcp).map_err(failed);
    let mut monitor = open()?;
    if !anabranch_kernel::controllers::may_see_subflows() {
        note(
            "without root (or CAP_NET_ADMIN) the kernel does not tell which subflows are one connection: \
             each is shown as one",
        );
    }
    let _server = match args.prometheus {
        None => None,
        Some(address) => {
            let served = serve(open()?, clock, address);
            let (server, address) = served.map_err(|e| Failure::other(e.to_string()))?;
            say(&format!("metrics at http://{address}/metrics"));
            Some(server)
        }
    };
    let mut output = match (args.json, args.once) {
        (true, _) => Output::Json,
        (false, true) => Output::Text,
        _ if can_redraw() => Output::Live(Box::default()),
        _ if args.prometheus.is_some() => Output::Nothing,
        _ => Output::Text,
    };
    let mut poller = Poller::new(clock);
    let mut next = clock.now();
    // The first snapshot has no rates; the second measures them from it. The live picture shows it
    // nevertheless.
    let mut first = true;
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let snapshot = monitor.snapshot(now).map_err(failed)?;
        let shown = !first || matches!(output, Output::Live(_));
        if shown && !show(&mut output, now, &snapshot) || args.once && !first {
            break;
        }
        first = false;
        next = (next + args.interval).max(now);
        while clock.now() < next && !stop.load(Ordering::Relaxed) {
            if poller.wait([(wake.as_fd(), Interest::Read)], next).is_err() {
                clock.sleep_until(next);
            }
            wake.drain();
        }
    }
    Ok(())
}

/// Shows a snapshot; returns false if the reader of the output has gone.
fn show(output: &mut Output, now: Time, snapshot: &Snapshot) -> bool {
    let text = match output {
        Output::Nothing => return true,
        Output::Live(lines) => {
            // The last column and the last row stay free, as `Lines` requires.
            let rows = usize::from(Term::stderr().size().0).max(4) - 1;
            lines.draw(&picture(snapshot, Some(rows)));
            return true;
        }
        Output::Json => {
            let elapsed_s = now.since(Time::ZERO).as_micros() as f64 / 1e6;
            serde_json::to_string(&Event::Snapshot { elapsed_s, snapshot }).unwrap_or_default() + "\n"
        }
        Output::Text => {
            picture(snapshot, None).into_iter().map(|line| line + "\n").collect::<String>() + "\n"
        }
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

const HEADS: [&str; COLUMNS] =
    ["  via", "local", "out", "in", "cwnd", "srtt", "retrans", "controller", "m", "m_t", ""];
const COLUMNS: usize = 11;
/// The columns with the controller's own numbers.
const FACTORS: Range<usize> = 8..10;
/// The other columns with numbers.
const NUMBERS: Range<usize> = 2..7;

/// Draws a picture with at most `lines_max` lines.
fn picture(snapshot: &Snapshot, lines_max: Option<usize>) -> Vec<String> {
    // Users can choose the names of interfaces and controllers, so control characters are made visible.
    let shown = |cells: [String; COLUMNS]| cells.map(|cell| printable(&cell).into_owned());
    let rows: Vec<Vec<[String; COLUMNS]>> =
        snapshot.connections.iter().map(|c| c.subflows.iter().map(|s| shown(row(c, s))).collect()).collect();
    let known = snapshot.connections.iter().flat_map(|c| &c.subflows).any(|s| s.factors.is_some());
    let wide = |i: usize| {
        let cells = rows.iter().flatten().map(|row| console::measure_text_width(&row[i])).max().unwrap_or(0);
        cells.max(HEADS[i].len())
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(wide);
    let line = |cells: [&str; COLUMNS]| {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate().filter(|(i, _)| known || !FACTORS.contains(i)) {
            let pad = " ".repeat(widths[i] - console::measure_text_width(cell));
            // Numbers are aligned right, words left.
            let number = NUMBERS.contains(&i) || FACTORS.contains(&i);
            line += &if number { format!("{pad}{cell}  ") } else { format!("{cell}{pad}  ") };
        }
        line.trim_end().to_owned()
    };
    let mut out = vec![total(snapshot)];
    if snapshot.connections.is_empty() {
        return out;
    }
    out.push(line(HEADS));
    let most = lines_max.unwrap_or(usize::MAX);
    let mut left_out = snapshot.left_out;
    for (n, (connection, rows)) in snapshot.connections.iter().zip(&rows).enumerate() {
        // One line is reserved to say how many connections have no room.
        let more = usize::from(n + 1 < snapshot.connections.len() || snapshot.left_out > 0);
        if out.len() + 1 + rows.len() + more > most {
            left_out += snapshot.connections.len() - n;
            break;
        }
        out.push(heading(connection));
        out.extend(rows.iter().map(|row| line(std::array::from_fn(|i| row[i].as_str()))));
    }
    if left_out > 0 {
        out.push(format!("… and {}", plural(left_out, "more connection")));
    }
    out
}

/// Returns the line about all connections.
fn total(snapshot: &Snapshot) -> String {
    let count = |kind| snapshot.connections.iter().filter(|c| c.kind == kind).count();
    let mut text = plural(count(ConnectionKind::Mptcp), "MPTCP connection");
    if count(ConnectionKind::Fallback) > 0 {
        text += &format!(", {} fallen back to TCP", count(ConnectionKind::Fallback));
    }
    if count(ConnectionKind::Tcp) > 0 {
        text += &format!(", {} TCP", count(ConnectionKind::Tcp));
    }
    let sum =
        |of: fn(&ConnectionRow) -> u64| snapshot.connections.iter().map(of).fold(0, u64::saturating_add);
    let (out, back) = (sum(|c| c.sent_rate_bytes), sum(|c| c.received_rate_bytes));
    text + &format!("; {} out, {} in", rate(out), rate(back))
}

fn heading(c: &ConnectionRow) -> String {
    let kind = match c.kind {
        ConnectionKind::Mptcp => "MPTCP",
        ConnectionKind::Fallback => "MPTCP fallen back to TCP",
        ConnectionKind::Tcp => "TCP",
    };
    let mut line = format!("{} → {}  {kind}", c.local, c.remote);
    if c.kind == ConnectionKind::Mptcp {
        line += &format!("  {}", plural(c.subflows.len(), "subflow"));
        line += &format!("  {} out, {} in", rate(c.sent_rate_bytes), rate(c.received_rate_bytes));
    }
    if c.reinjected_bytes > 0 {
        line += &format!("  {} reinjected", crate::view::bytes(c.reinjected_bytes));
    }
    line
}

fn row(c: &ConnectionRow, s: &SubflowRow) -> [String; COLUMNS] {
    let factor = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.2}"));
    let srtt = match s.srtt_us {
        0 => "–".into(),
        us => Span::from_micros(us.into()).to_string(),
    };
    // Usual values are not shown.
    let mut remarks = Vec::new();
    if s.remote != c.remote {
        remarks.push(format!("to {}", s.remote));
    }
    if s.backup {
        remarks.push("backup".into());
    }
    if s.state != "established" {
        remarks.push(s.state.clone());
    }
    [
        format!("  {}", s.interface.as_deref().unwrap_or("–")),
        s.local.to_string(),
        rate(s.sent_rate_bytes),
        rate(s.received_rate_bytes),
        s.cwnd.to_string(),
        srtt,
        s.retransmits.to_string(),
        s.controller.clone(),
        factor(s.factors.map(|f| f.m)),
        factor(s.factors.map(|f| f.m_t)),
        remarks.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernel::connection_monitor::NmccFactors;
    use std::io::Read as _;
    use std::net::TcpStream;

    fn snapshot(count: u16) -> Snapshot {
        let subflow = |n: u16, factors| SubflowRow {
            cookie: n.into(),
            local: SocketAddr::new([10, 0, 0, 1].into(), n),
            remote: "10.255.0.1:443".parse().unwrap(),
            interface: Some("wlan0".into()),
            state: "established".into(),
            backup: n == 2,
            controller: "nmcc".into(),
            cwnd: 33,
            ssthresh: None,
            srtt_us: 20_400,
            rttvar_us: 1,
            sent_rate_bytes: 12_500_000,
            received_rate_bytes: 0,
            acked_bytes: 1,
            received_bytes: 0,
            retransmits: 4,
            retransmitted_bytes: 5_000,
            factors,
        };
        let connection = |n: u16| ConnectionRow {
            kind: ConnectionKind::Mptcp,
            token: Some("0000004d".into()),
            local: SocketAddr::new([10, 0, 0, 1].into(), n),
            remote: "10.255.0.1:443".parse().unwrap(),
            state: "established".into(),
            sent_rate_bytes: 25_000_000,
            received_rate_bytes: 0,
            reinjected_bytes: 0,
            subflows: vec![subflow(1, Some(NmccFactors { m: 1.414, m_t: 2.0 })), subflow(2, None)],
        };
        Snapshot { connections: (1..=count).map(connection).collect(), left_out: 0 }
    }

    #[test]
    fn the_picture() {
        let expected = [
            "1 MPTCP connection; 200.0 Mbit/s out, 0 kbit/s in",
            "  via    local                out        in  cwnd     srtt  retrans  controller     m   m_t",
            "10.0.0.1:1 → 10.255.0.1:443  MPTCP  2 subflows  200.0 Mbit/s out, 0 kbit/s in",
            "  wlan0  10.0.0.1:1  100.0 Mbit/s  0 kbit/s    33  20.4 ms        4  nmcc        1.41  2.00",
            "  wlan0  10.0.0.1:2  100.0 Mbit/s  0 kbit/s    33  20.4 ms        4  nmcc           –     –  \
             backup",
        ];
        assert_eq!(picture(&snapshot(1), None), expected);
        let mut plain = snapshot(1);
        plain.connections[0].subflows.remove(0);
        assert!(!picture(&plain, None).iter().any(|line| line.contains("m_t")));
        let mut odd = snapshot(1);
        odd.connections[0].subflows[0].interface = Some("\u{1b}[31mX".into());
        odd.connections[0].subflows[1].controller = "\u{202e}nmcc".into();
        let text = picture(&odd, None).concat();
        assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.contains("[31mX"), "{text}");
        assert_eq!(picture(&Snapshot::default(), None), ["0 MPTCP connections; 0 kbit/s out, 0 kbit/s in"]);
    }

    #[test]
    fn it_fits_the_terminal() {
        for (count, rows) in [(1, 5), (1, 4), (9, 29), (9, 28), (9, 12), (9, 3)] {
            let picture = picture(&snapshot(count), Some(rows));
            assert!(picture.len() <= rows, "{count} in {rows}: {picture:#?}");
            let whole = 2 + 3 * usize::from(count);
            assert_eq!(picture.last().unwrap().starts_with('…'), rows < whole, "{count} in {rows}");
        }
        assert_eq!(picture(&snapshot(9), Some(12)).last().unwrap(), "… and 6 more connections");
    }

    #[test]
    fn who_asks_is_told_of_the_connection_that_asks() {
        let Ok(monitor) = ConnectionMonitor::open(Arc::new(()), true) else {
            return anabranch_net::testing::skip("no netlink");
        };
        let (_server, address) = serve(monitor, Clock::start(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(&format!("remote=\"{address}\"")), "{answer}");
    }

    #[test]
    fn options() {
        assert_eq!(interval("500ms"), Ok(Span::from_millis(500)));
        assert_eq!(interval("2 s"), Ok(Span::from_secs(2)));
        assert!(interval("1ms").is_err() && interval("5").is_err());
    }
}
