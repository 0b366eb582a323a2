//! How many instances this machine carries, and how fast they start: each is checked by a ping that a socket
//! sends through the kernel's device, and its function answers.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_algo::{Span, Time};
use anabranch_function::packet::echo_request;
use anabranch_net::netlink::Netlink;
use anabranch_net::{Clock, Interest, Namespace, PacketSocket, Poller};

use crate::error::{Error, Result};
use crate::frame::{HEADER_BYTES, Header, IPV4, Mac};
use crate::host::Host;
use crate::manager::{Costs, Manager, Wish};
use crate::port::{self, Wanted};
use crate::records::Records;
use crate::spec::{Place, Spec};
use crate::wasm::{Settings, Wasm};

/// The first address of an instance.
const FIRST: u32 = 0x0a00_0001;
/// The address of the one who pings.
const PROBE: u32 = 0x0aff_fffe;
/// How long an answer may take.
const PATIENCE: Span = Span::from_secs(5);
/// The starts between two reports of progress.
const STEP: usize = 500;

/// A storm.
#[derive(Clone, Debug)]
pub struct Storm {
    /// How many instances are started, one after the other.
    pub count: u32,
    /// What the user calls the function.
    pub function: String,
    /// Its module.
    pub module: Vec<u8>,
    /// The settings of each instance.
    pub settings: Vec<(String, String)>,
    /// How instances are made.
    pub wasm: Settings,
}

/// A start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Until the instance was ready.
    pub ready: Span,
    /// Until its first answer was here, from the beginning.
    pub answered: Span,
    /// The parts of `ready`.
    pub costs: Costs,
}

/// What a storm has shown.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The starts, in their order.
    pub starts: Vec<Start>,
    /// How many answered once more when all were there.
    pub answered_again: usize,
    /// How long these pings took, all together.
    pub again: Span,
    /// The memory of the process for each instance, bytes: its resident set at the end, less that at the
    /// beginning.
    pub memory_each: u64,
}

impl Outcome {
    /// Returns the time of the start until the answer of which this share, in thousandths, are not slower.
    #[must_use]
    pub fn answered_within(&self, share: usize) -> Span {
        let mut all: Vec<Span> = self.starts.iter().map(|start| start.answered).collect();
        all.sort_unstable();
        let last = all.len().saturating_sub(1);
        all.get((last * share).div_ceil(1_000)).copied().unwrap_or_default()
    }
}

/// Returns the resident set of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

/// Pings instances.
struct Prober {
    socket: PacketSocket,
    poller: Poller,
    clock: Clock,
}

impl Prober {
    fn ping(&mut self, spec: &Spec, sequence: u16) -> Result {
        let failed = |e: std::io::Error| Error::Failed(format!("a ping: {e}"));
        let to = u32::from(spec.inside.address);
        let mut frame = [0; HEADER_BYTES + 28];
        let own = Mac::local([0xff; 5]);
        Header { to: spec.mac, from: own, ethertype: IPV4 }.write(&mut frame);
        frame[HEADER_BYTES..].copy_from_slice(&echo_request(PROBE, to, 1, sequence));
        self.socket.write(&frame).map_err(failed)?;
        let deadline = self.clock.now() + PATIENCE;
        let mut buffer = [0; 2_048];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(len) if is_answer(&buffer[..len], to, own, sequence) => return Ok(()),
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => self.wait(deadline, spec)?,
                Err(e) => return Err(failed(e)),
            }
        }
    }

    fn wait(&mut self, deadline: Time, spec: &Spec) -> Result {
        use std::os::fd::AsFd as _;
        if self.clock.now() >= deadline {
            return Err(Error::Failed(format!("{} does not answer", spec.name)));
        }
        let waited = self.poller.wait([(self.socket.as_fd(), Interest::Read)], deadline);
        waited.map(drop).map_err(|e| Error::Failed(e.to_string()))
    }
}

fn is_answer(frame: &[u8], from: u32, to: Mac, sequence: u16) -> bool {
    let is_ours = Header::parse(frame).is_some_and(|header| header.to == to && header.ethertype == IPV4);
    let Some(packet) = frame.get(HEADER_BYTES..HEADER_BYTES + 28) else { return false };
    is_ours
        && packet[12..16] == from.to_be_bytes()
        && packet[20] == 0
        && packet[26..28] == sequence.to_be_bytes()
}

/// Starts instances one after the other, each with a ping, in a network namespace of its own. Reports how
/// many there are now and then; ends early when `stop` is set.
///
/// # Errors
/// `Kernel` if the kernel does not allow a namespace or a device; otherwise why an instance does not start or
/// answer.
pub fn run(
    storm: &Storm,
    records: Box<dyn Records>,
    stop: &AtomicBool,
    mut report: impl FnMut(usize),
) -> Result<Outcome> {
    let kernel = |e: std::io::Error| Error::Kernel(e.to_string());
    let clock = Clock::start();
    let space = Namespace::new().map_err(kernel)?;
    let wanted = Wanted { name: "storm".to_owned(), bridge: None, address: None };
    let device = port::make(&space, &wanted)?;
    let open = || {
        let index = Netlink::open().and_then(|netlink| netlink.index("storm"));
        PacketSocket::open(index.map_err(|e| std::io::Error::other(e.to_string()))?)
    };
    let socket = space.run(open).and_then(|socket| socket).map_err(kernel)?;
    let mut prober = Prober { socket, poller: Poller::new(clock), clock };
    let host = Host::start([Some(device), None], clock)?;
    let (manager, _) = Manager::new(Arc::new(Wasm::new(storm.wasm)?), host, records)?;

    let before = resident();
    let (mut starts, mut specs) = (Vec::new(), Vec::new());
    for n in 0..storm.count {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let address = Ipv4Addr::from(FIRST + n);
        let wish = Wish {
            name: format!("n{n}"),
            function: storm.function.clone(),
            module: storm.module.clone(),
            settings: storm.settings.clone(),
            inside: Place { address, prefix: 8 },
            outside: None,
            gateway: None,
        };
        let begin = clock.now();
        let (spec, costs) = manager.run(wish)?;
        let ready = clock.now().since(begin);
        prober.ping(&spec, 1)?;
        starts.push(Start { ready, answered: clock.now().since(begin), costs });
        specs.push(spec);
        if starts.len().is_multiple_of(STEP) {
            report(starts.len());
        }
    }
    let memory_each = resident().saturating_sub(before) / starts.len().max(1) as u64;
    let begin = clock.now();
    let answers = specs.iter().filter(|spec| prober.ping(spec, 2).is_ok()).count();
    Ok(Outcome { starts, answered_again: answers, again: clock.now().since(begin), memory_each })
}
