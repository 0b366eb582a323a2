//! Measures the throughput of plain UDP between two processes over loopback, without any protocol: the
//! ceiling.
//!
//! `cargo run --release -p anabranch-net --example udp_ceiling -- [--seconds N] [--payload N] [--segments N]
//! [--window-kib N] [--unpinned] [--json]`
//!
//! The table has three rows: segmentation offload on both sides; on the sending side only, which is what a
//! network card without receive offload gives; on neither. The receiver reports its total every 256 KiB and
//! the sender keeps at most 1 MiB under way, so that nothing is lost and both sides are kept busy; the
//! payload is not read. Gbit/s are payload at the receiver, CPU seconds are user and system time of each
//! process (`getrusage`) per 10⁹ bytes of payload. Loopback hands a super-datagram over whole, so the first
//! row is above the rate that a wire can carry. Figures from a machine whose CPU pressure is not near 0 say
//! little.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use anabranch_algo::{Rate, Span, Time};
use anabranch_net::{
    Clock, Datagrams, Egress, Interest, Poller, RecvBuffers, RecvOutcome, SendOutcome, Udp, interfaces,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The number of bytes after which the receiver reports.
const REPORT: u64 = 256 << 10;
/// The time without a report after which datagrams count as lost: the sender then starts over with an empty
/// window.
const STALL: Span = Span::from_millis(100);

struct Options {
    seconds: u64,
    payload: usize,
    segments: usize,
    /// Payload under way, in bytes. The default fits a receive buffer of 4 MiB even if every datagram takes a
    /// page.
    window: u64,
    /// Whether the sender stays on CPU 0 and the receiver on CPU 1.
    pinned: bool,
    json: bool,
}

struct Row {
    name: &'static str,
    rate: Rate,
    lost: u64,
    sent: u64,
    /// CPU seconds per 10⁹ bytes.
    sender_cpu: f64,
    receiver_cpu: f64,
    /// The share of the time in which some task waited for a CPU. On a busy machine it is well above 0, and
    /// the figures mean little. `None` where the kernel does not report it.
    pressure: Option<f64>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, gro, place] = arguments.as_slice()
        && role == "receive"
    {
        if place == "pinned" {
            pin(1)?;
        }
        return receive(gro == "gro");
    }
    let mut options =
        Options { seconds: 3, payload: 1_386, segments: 16, window: 1 << 20, pinned: true, json: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64> { Ok(arguments.next().ok_or("a number is missing")?.parse()?) };
        match argument.as_str() {
            "--seconds" => options.seconds = number()?.max(1),
            "--payload" => options.payload = usize::try_from(number()?)?.clamp(16, 9_000),
            "--segments" => options.segments = usize::try_from(number()?)?.max(1),
            "--window-kib" => options.window = number()?.max(512) << 10,
            "--unpinned" => options.pinned = false,
            "--json" => options.json = true,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    if std::thread::available_parallelism()?.get() < 2 {
        options.pinned = false;
    }
    // Without pinning, the scheduler at times puts both processes on one CPU, and the figures vary.
    if options.pinned {
        pin(0)?;
    }
    let rows = [
        run("GSO+GRO", options.segments, true, &options)?,
        run("GSO", options.segments, false, &options)?,
        run("neither", 1, false, &options)?,
    ];
    print(&rows, &options);
    Ok(())
}

fn print(rows: &[Row], options: &Options) {
    if options.json {
        for row in rows {
            let Options { payload, pinned, window, .. } = options;
            let Row { name, lost, sent, sender_cpu, receiver_cpu, .. } = row;
            let gbit = row.rate.as_bits() as f64 / 1e9;
            let pressure = row.pressure.map_or("null".to_owned(), |share| format!("{share:.3}"));
            println!(
                "{{\"row\":\"{name}\",\"payload_bytes\":{payload},\"pinned\":{pinned},\
                 \"window_bytes\":{window},\
                 \"gbit_per_s\":{gbit:.3},\"sent_bytes\":{sent},\"lost_bytes\":{lost},\
                 \"sender_cpu_s_per_gb\":{sender_cpu:.3},\"receiver_cpu_s_per_gb\":{receiver_cpu:.3},\
                 \"cpu_pressure\":{pressure}}}"
            );
        }
        return;
    }
    let mtu = interfaces().ok().and_then(|all| all.iter().find(|i| i.loopback).and_then(|i| i.mtu));
    println!(
        "plain UDP, loopback (MTU {}), payload {} B, {} datagrams a call with GSO, {} s a row, {}",
        mtu.map_or("?".to_owned(), |mtu| mtu.to_string()),
        options.payload,
        options.segments,
        options.seconds,
        if options.pinned { "CPUs 0 and 1" } else { "not pinned" }
    );
    let heads = ["", "received", "lost", "sender CPU s/GB", "receiver CPU s/GB", "CPU pressure"];
    let [name, rate, lost, sender, receiver, pressure] = heads;
    println!("{name:<8} {rate:>14} {lost:>7} {sender:>16} {receiver:>18} {pressure:>13}");
    for row in rows {
        let (name, rate) = (row.name, row.rate.to_string());
        let (sender, receiver) = (row.sender_cpu, row.receiver_cpu);
        let lost = 100.0 * row.lost as f64 / row.sent.max(1) as f64;
        let pressure = row.pressure.map_or("?".to_owned(), |share| format!("{:.0}%", 100.0 * share));
        println!("{name:<8} {rate:>14} {lost:>6.2}% {sender:>16.2} {receiver:>18.2} {pressure:>13}");
    }
}

/// Sends from this process to a new one for the time in the options.
fn run(name: &'static str, segments: usize, gro: bool, options: &Options) -> Result<Row> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["receive", if gro { "gro" } else { "plain" }, if options.pinned { "pinned" } else { "free" }])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let peer: SocketAddr = output.next().ok_or("the receiver said nothing")??.parse()?;

    let udp = Udp::connect(&Egress::any(), peer)?;
    let clock = Clock::start();
    let mut poller = Poller::new(clock);
    let mut buffers = RecvBuffers::new();
    let batch = vec![0x5a; options.payload * segments.min(udp.max_segments(options.payload))];
    let (mut sent, mut reported, mut heard) = (0, 0, clock.now());
    let (cpu_before, pressure_before) = (cpu_nanos()?, pressure_micros());
    let end = clock.now() + Span::from_secs(options.seconds);
    while clock.now() < end {
        while sent - reported < options.window {
            let segment = (segments > 1).then_some(options.payload);
            match udp.send(&Datagrams {
                to: None,
                from_ip: None,
                bytes: &batch,
                segment,
                ecn: false,
                dscp: 0,
            }) {
                SendOutcome::Sent => sent += batch.len() as u64,
                SendOutcome::WouldBlock => break,
                other => return Err(format!("{other:?}").into()),
            }
        }
        poller.wait([(udp.as_fd(), Interest::Read)], clock.now() + STALL)?;
        let outcome = udp.recv(&mut buffers, |received| {
            for total in received.datagrams().filter_map(|bytes| bytes.first_chunk().copied()) {
                reported = u64::from_le_bytes(total).max(reported);
            }
        })?;
        match outcome {
            RecvOutcome::Received { .. } => heard = clock.now(),
            _ if clock.now().since(heard) >= STALL => {
                // The bytes under way are written off: the totals at the end tell how many were lost.
                reported = sent;
                heard = clock.now();
            }
            _ => {}
        }
    }
    let sender_nanos = cpu_nanos()? - cpu_before;
    let pressure = pressure_before
        .zip(pressure_micros())
        .map(|(before, after)| after.saturating_sub(before) as f64 / (options.seconds * 1_000_000) as f64);
    // The datagram that marks the end may meet a full buffer.
    for _ in 0..20 {
        let _ = udp.send(&Datagrams {
            to: None,
            from_ip: None,
            bytes: b"end",
            segment: None,
            ecn: false,
            dscp: 0,
        });
        clock.sleep_until(clock.now() + Span::from_millis(5));
    }
    let line = output.next().ok_or("the receiver ended early")??;
    child.wait()?;
    let numbers = line.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [bytes, nanos, receiver_nanos] = numbers[..] else { return Err(line.into()) };
    let per_gb = |nanos: u64| nanos as f64 / bytes.max(1) as f64;
    Ok(Row {
        name,
        rate: Rate::of(bytes, Span::from_nanos(nanos)),
        lost: sent.saturating_sub(bytes),
        sent,
        sender_cpu: per_gb(sender_nanos),
        receiver_cpu: per_gb(receiver_nanos),
        pressure,
    })
}

/// Runs the other process: counts the bytes that arrive, reports them, and at the end prints bytes,
/// nanoseconds and CPU nanoseconds.
fn receive(gro: bool) -> Result<()> {
    let udp = Udp::listen("127.0.0.1:0".parse()?)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    nix::sys::socket::setsockopt(&udp, nix::sys::socket::sockopt::UdpGroSegment, &gro)?;
    let _ = gro;
    println!("{}", udp.local_addr());
    let clock = Clock::start();
    let mut poller = Poller::new(clock);
    let mut buffers = RecvBuffers::new();
    let (mut total, mut reported, mut from, mut ended) = (0, 0, None, false);
    let (mut first, mut last) = (None, Time::ZERO);
    let cpu_before = cpu_nanos()?;
    while !ended {
        poller.wait([(udp.as_fd(), Interest::Read)], Time::NEVER)?;
        udp.recv(&mut buffers, |received| {
            from = Some(received.from);
            ended |= received.bytes == b"end";
            total += if ended { 0 } else { received.bytes.len() as u64 };
        })?;
        if !ended {
            last = clock.now();
            first = first.or(Some(last));
        }
        if total - reported >= REPORT {
            reported = total;
            let bytes = total.to_le_bytes();
            udp.send(&Datagrams {
                to: from,
                from_ip: None,
                bytes: &bytes,
                segment: None,
                ecn: false,
                dscp: 0,
            });
        }
    }
    let nanos = last.since(first.unwrap_or(last)).as_nanos();
    println!("{total} {nanos} {}", cpu_nanos()? - cpu_before);
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn pin(cpu: usize) -> Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    use nix::unistd::Pid;
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn pin(_cpu: usize) -> Result<()> {
    Err("this system cannot pin processes: use --unpinned".into())
}

/// Returns the microseconds so far in which some task waited for a CPU (`/proc/pressure/cpu`).
fn pressure_micros() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    text.lines().next()?.rsplit_once("total=")?.1.trim().parse().ok()
}

fn cpu_nanos() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(u64::try_from(micros)? * 1_000)
}
