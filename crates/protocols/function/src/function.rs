//! What a function is, and an instance of one: its addresses, its seed, its state.

use crate::abi::{Answer, PACKET_BYTES_MAX, Side, Verdict};
use crate::packet::Packet;
use crate::report::Report;
use crate::settings::{Wrong, address, number};
use crate::table::Plain;

/// What a function is told besides the packet.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Milliseconds since the instance began, at least 1; the time goes on when it moves.
    pub now_ms: u64,
    /// The side from which the packet comes.
    pub from: Side,
    /// A number that hosts outside do not know, for tables.
    pub seed: u64,
    /// The addresses of the instance: inside, and outside or 0.
    pub addresses: [u32; 2],
}

/// A packet function. All that it remembers is in `self`.
pub trait Function: Plain {
    /// The state at the beginning; best all zero, so that an instance uses no memory for what it has not
    /// used.
    const NEW: Self;

    /// Takes a setting.
    ///
    /// # Errors
    /// If there is no such setting, or it cannot have this value.
    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong>;

    /// Ends the settings: the function is used as it is from now on.
    ///
    /// # Errors
    /// If a setting is missing.
    fn begin(&mut self, addresses: [u32; 2]) -> Result<(), Wrong>;

    /// Decides about a packet, and may change it.
    fn packet(&mut self, about: About, packet: &mut Packet<'_>) -> Verdict;

    /// Says what was done.
    fn report(&self, now_ms: u64, report: &mut Report<'_>);
}

/// An instance of a function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Instance<F> {
    addresses: [u32; 2],
    seed: u64,
    now_ms: u64,
    pings: u64,
    malformed: u64,
    function: F,
}

#[expect(unsafe_code, reason = "its fields are plain if its function is")]
// SAFETY: an instance consists of numbers and its function.
unsafe impl<F: Function> Plain for Instance<F> {}

impl<F: Function> Instance<F> {
    /// Makes an instance that has no settings yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { addresses: [0; 2], seed: 0, now_ms: 0, pings: 0, malformed: 0, function: F::NEW }
    }

    /// Takes settings: lines `KEY VALUE`, of which `inside`, `outside` and `seed` are those of every
    /// instance.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub fn start<'a>(&mut self, settings: &'a str) -> Result<(), (&'a str, Wrong)> {
        for line in settings.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let taken = match key {
                "inside" => address(value).map(|address| self.addresses[0] = address),
                "outside" => address(value).map(|address| self.addresses[1] = address),
                "seed" => number(value).map(|seed| self.seed = seed),
                _ => self.function.set(key, value),
            };
            taken.map_err(|wrong| (line, wrong))?;
        }
        self.function.begin(self.addresses).map_err(|wrong| ("", wrong))
    }

    /// Handles the packet in the first `len` bytes.
    pub fn packet(
        &mut self,
        now_ms: u64,
        from: Side,
        place: &mut [u8; PACKET_BYTES_MAX],
        len: usize,
    ) -> Answer {
        self.now_ms = now_ms.max(1);
        let dropped = Answer { verdict: Verdict::Drop, len: 0 };
        let Some(mut packet) = place.get_mut(..len).and_then(Packet::parse) else {
            self.malformed += 1;
            return dropped;
        };
        let is_own = self.addresses.contains(&packet.destination());
        if is_own && packet.answer_echo() {
            self.pings += 1;
            return Answer { verdict: Verdict::Reply, len: packet.bytes().len() as u16 };
        }
        let about = About { now_ms: self.now_ms, from, seed: self.seed, addresses: self.addresses };
        let verdict = self.function.packet(about, &mut packet);
        Answer { verdict, len: packet.bytes().len() as u16 }
    }

    /// Writes what was done, and returns the length of the text.
    pub fn report(&self, place: &mut [u8]) -> usize {
        let mut report = Report::new(place);
        report.number("pings", self.pings);
        report.number("malformed", self.malformed);
        self.function.report(self.now_ms, &mut report);
        report.len()
    }
}

impl<F: Function> Default for Instance<F> {
    fn default() -> Self {
        Self::new()
    }
}
