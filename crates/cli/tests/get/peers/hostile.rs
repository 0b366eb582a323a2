//! A source in the test's own process, built from the library, that misbehaves in a chosen way. It counts the
//! bytes that it sends to each receiver.

#[path = "../../../../products/anabranch/tests/memory_source/mod.rs"]
mod memory_source;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_algo::Time;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::tree::Outboard;
use anabranch_mmtp::wire::{self, Cookie, DATA_HEADER, Packet, Reason};
use memory_source::MemorySource;

/// How a source treats requests for its content.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// Sends the content, as a source should.
    Honest,
    /// Flips one bit of every chunk.
    WrongBytes,
    /// Sends another version of the file, with the hash tree of that version.
    OldBytes(Vec<u8>),
    /// Sends well-formed packets, filled with random bytes.
    RandomBytes,
    /// Sends the right chunks and a wrong hash tree.
    WrongHashes,
    /// Sends nothing.
    Silent,
    /// Sends every packet five times, with unrequested chunks in between.
    TooMuch,
    /// Sends invalid packets: cut off anywhere, of unknown version or type, far too long, random, empty.
    Malformed,
    /// Sends chunks that are a byte too short, in well-formed packets.
    ShortChunks,
    /// Says that it does not have the content.
    Unknown,
    /// Says that it is busy, every time.
    Busy,
    /// Answers every request with a new cookie and nothing else.
    Cookies,
}

/// The counters of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentCounters {
    /// Requests that the source could parse.
    pub(crate) requests: u64,
    /// Payload bytes of DATA for each receiver (each run of `get` has its own ports) and block.
    pub(crate) sent: BTreeMap<SocketAddr, BTreeMap<u64, u64>>,
}

/// A source on loopback, which ends when this is dropped.
pub(crate) struct Hostile {
    /// The address at which the source listens.
    pub(crate) address: SocketAddr,
    tally: Arc<Mutex<SentCounters>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hostile {
    /// Starts a source that is asked for `content`.
    pub(crate) fn start(content: &[u8], mode: Mode) -> Self {
        Self::paced(content, mode, u64::MAX)
    }

    /// Starts a source that sends at most `rate_bytes` bytes per second.
    pub(crate) fn paced(content: &[u8], mode: Mode, rate_bytes: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let address = socket.local_addr().expect("an address");
        let (tally, stop) = (Arc::<Mutex<SentCounters>>::default(), Arc::<AtomicBool>::default());
        let shown = match &mode {
            Mode::OldBytes(bytes) => bytes.clone(),
            _ => content.to_vec(),
        };
        let mut source = Source {
            socket,
            memory: MemorySource::new(ContentId::of(content), Outboard::of_bytes(&shown), shown),
            mode,
            turn: 0,
            pace: Pace { rate_bytes, free_at: now() },
        };
        let (counted, stopped) = (Arc::clone(&tally), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                source.turn(&counted, &stopped);
            }
        });
        Self { address, tally, stop, thread: Some(thread) }
    }

    /// Returns the counters so far.
    pub(crate) fn tally(&self) -> SentCounters {
        lock(&self.tally).clone()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Source {
    socket: UdpSocket,
    memory: MemorySource,
    mode: Mode,
    turn: usize,
    pace: Pace,
}

impl Source {
    /// Waits for a request and answers it.
    fn turn(&mut self, tally: &Mutex<SentCounters>, stop: &AtomicBool) {
        let mut buffer = [0; 1 << 16];
        let Ok((len, from)) = self.socket.recv_from(&mut buffer) else { return };
        let request = &buffer[..len];
        let Ok(tag) = wire::parse(request).map(|packet| packet.tag()) else { return };
        lock(tally).requests += 1;
        let mut curt = Vec::new();
        match self.mode {
            Mode::Silent => return,
            Mode::Unknown => wire::emit_refuse(&mut curt, tag, Reason::Unknown, 0),
            Mode::Busy => wire::emit_refuse(&mut curt, tag, Reason::Busy, 0),
            Mode::Cookies => wire::emit_cookie(&mut curt, tag, &Cookie([self.turn as u8; 16])),
            _ => {}
        }
        if !curt.is_empty() {
            self.turn += 1;
            let _ = self.socket.send_to(&curt, from);
            return;
        }
        // Its time stands still, so that it takes every address as proven for as long as it lives.
        for packet in self.memory.answer(Time::ZERO, from, request) {
            for distorted in self.distort(packet) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                self.pace.take(distorted.len());
                if let Ok(Packet::Data(data)) = wire::parse(&distorted) {
                    let block = data.chunk / u64::from(data.cut.get());
                    *lock(tally).sent.entry(from).or_default().entry(block).or_default() +=
                        data.payload.len() as u64;
                }
                let _ = self.socket.send_to(&distorted, from);
            }
        }
    }

    /// Returns the packets that are sent instead of `packet`.
    fn distort(&mut self, mut packet: Vec<u8>) -> Vec<Vec<u8>> {
        self.turn += 1;
        let turn = self.turn;
        let (data, hashes) = match wire::parse(&packet) {
            Ok(Packet::Data(_)) => (true, false),
            Ok(Packet::Hashes(_)) => (false, true),
            _ => (false, false),
        };
        match &self.mode {
            Mode::Honest | Mode::OldBytes(_) => vec![packet],
            Mode::Silent | Mode::Unknown | Mode::Busy | Mode::Cookies => Vec::new(),
            Mode::WrongBytes => {
                if data {
                    let at = DATA_HEADER + (turn * 7) % (packet.len() - DATA_HEADER);
                    packet[at] ^= 1 << (turn % 8);
                }
                vec![packet]
            }
            Mode::RandomBytes => {
                if data || hashes {
                    random(turn, &mut packet[DATA_HEADER..]);
                }
                vec![packet]
            }
            Mode::WrongHashes => {
                if hashes {
                    *packet.last_mut().expect("a chaining value") ^= 1;
                }
                vec![packet]
            }
            Mode::TooMuch => {
                let mut all = vec![packet.clone(); 5];
                if data {
                    // One packet has the same tag with an unrequested chunk, the other the same chunk with a
                    // made-up tag.
                    let mut unsolicited = packet.clone();
                    unsolicited[DATA_HEADER - 2] ^= 0x40;
                    let mut made_up = packet;
                    made_up[4] ^= 0x55;
                    made_up[DATA_HEADER] ^= 0xff;
                    all.extend([unsolicited, made_up]);
                }
                all
            }
            Mode::Malformed => {
                match turn % 6 {
                    // The prefix ends within the header, so that no cut makes a shorter valid packet.
                    0 => packet.truncate(turn / 6 % wire::PREFIX),
                    1 => packet[0] = 77,
                    2 => packet[1] = 200,
                    3 => packet.resize(60_000, 0),
                    4 => random(turn, &mut packet),
                    _ => packet.clear(),
                }
                // A long COOKIE or noise may happen to be a valid packet; a wrong version makes it invalid.
                if wire::parse(&packet).is_ok() {
                    packet[0] = 0;
                }
                vec![packet]
            }
            Mode::ShortChunks => {
                if data && packet.len() > DATA_HEADER + 1 {
                    packet.pop();
                }
                vec![packet]
            }
        }
    }
}

/// Limits the rate of sending.
struct Pace {
    rate_bytes: u64,
    free_at: Instant,
}

impl Pace {
    fn take(&mut self, bytes: usize) {
        let now = now();
        // Time lost by oversleeping is made up for, but not more than 20 ms.
        self.free_at = self.free_at.max(now.checked_sub(Duration::from_millis(20)).unwrap_or(now));
        if self.free_at > now + Duration::from_millis(1) {
            thread::sleep(self.free_at - now);
        }
        self.free_at += Duration::from_secs_f64(bytes as f64 / self.rate_bytes as f64);
    }
}

#[expect(clippy::disallowed_methods, reason = "a source in real time has a clock")]
fn now() -> Instant {
    Instant::now()
}

/// Fills `bytes` with bytes that depend on `turn` only.
fn random(turn: usize, bytes: &mut [u8]) {
    blake3::Hasher::new().update(&turn.to_le_bytes()).finalize_xof().fill(bytes);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
