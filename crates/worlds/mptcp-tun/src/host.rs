//! The loop that moves packets between TUN devices and a stack.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mptcp::{Config, ConnectionId, Input, LocalAddress, Seed, Segment, Stack, StackEvent};
use anabranch_net::{Clock, Interest, Poller};

use crate::link::TunLink;

/// The most packets that are read from a device before the stack is asked what to send.
const PACKETS_AT_ONCE: usize = 64;
/// The largest packet, bytes.
const PACKET_BYTES_MAX: usize = 65_536;

/// The packets that a host has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Segments that arrived.
    pub received: u64,
    /// Packets that were not a whole TCP segment.
    pub dropped: u64,
    /// Segments that were handed to the kernel.
    pub sent: u64,
    /// Segments that the kernel refused.
    pub refused: u64,
}

/// A host behind the kernel: a stack with an address on each of its links.
#[derive(Debug)]
pub struct TunHost {
    stack: Stack,
    links: Vec<TunLink>,
    clock: Clock,
    poller: Poller,
    counts: HostCounts,
    wake_at: Time,
    /// Room for one packet in each direction.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

/// Returns 32 random bytes of the system.
#[expect(clippy::disallowed_methods, reason = "what others must not guess follows from it")]
fn seed() -> io::Result<Seed> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(seed)
}

impl TunHost {
    /// Creates a host on these links. Subflows may begin from the address of each link. `announce` is whether
    /// peers that begin a connection are told of the other addresses.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(config: Config, links: Vec<TunLink>, announce: bool) -> io::Result<Self> {
        let own = links.iter().map(|link| LocalAddress { announce, ..LocalAddress::new(link.address) });
        let addresses = if config.addresses.is_empty() { own.collect() } else { config.addresses };
        let clock = Clock::start();
        Ok(Self {
            stack: Stack::new(Config { addresses, ..config }, seed()?),
            links,
            clock,
            poller: Poller::new(clock),
            counts: HostCounts::default(),
            wake_at: Time::ZERO,
            incoming: vec![0; PACKET_BYTES_MAX],
            outgoing: Vec::with_capacity(PACKET_BYTES_MAX),
        })
    }

    /// Returns the stack, for reading and writing. Call [`turn`](Self::turn) afterwards to send what is due.
    pub const fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Returns the packets counted so far.
    #[must_use]
    pub const fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Returns the time of this host.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Accepts connections at `port`.
    pub fn listen(&mut self, port: u16) {
        self.stack.listen(port);
    }

    /// Begins a connection from `local`, or else from the address of the first link of the right family.
    /// Returns `None` if there is no such address or no free port.
    pub fn connect(&mut self, local: Option<IpAddr>, remote: SocketAddr) -> Option<ConnectionId> {
        let mut own = self.links.iter().map(TunLink::address);
        let first = own.find(|address| address.is_ipv4() == remote.is_ipv4());
        self.stack.connect(self.clock.now(), local.or(first)?, remote)
    }

    /// Adds a link to a running host. Connections make subflows from its address as their path managers say.
    /// `announce` is whether peers are told of the address (ADD_ADDR).
    pub fn add_link(&mut self, link: TunLink, announce: bool) {
        let own = LocalAddress { announce, ..LocalAddress::new(link.address) };
        self.links.push(link);
        self.stack.add_address(self.clock.now(), own);
    }

    /// Removes the link with this address. Peers are told (REMOVE_ADDR), and its subflows end.
    pub fn remove_link(&mut self, address: IpAddr) {
        self.links.retain(|link| link.address != address);
        self.stack.remove_address(self.clock.now(), address);
    }

    /// Sets whether a connection's subflows from an address are backups, which are used only where no other
    /// subflow can be. Peers are told (MP_PRIO). Returns the number of subflows from the address.
    pub fn set_backup(&mut self, id: ConnectionId, address: IpAddr, backup: bool) -> usize {
        self.stack.set_backup(self.clock.now(), id, address, backup)
    }

    /// Drops all packets on the link with this address from now on, or lets them pass again. Tests use this
    /// as a path that fails silently.
    pub fn set_silent(&mut self, address: IpAddr, is_silent: bool) {
        for link in self.links.iter_mut().filter(|link| link.address == address) {
            link.is_silent = is_silent;
        }
    }

    /// Sends everything that is due. Then waits until packets arrive, `input` (if given) is readable, a timer
    /// expires or `until` is reached, and handles what has arrived. Returns whether `input` is readable.
    ///
    /// # Errors
    /// If waiting fails or a device fails.
    pub fn turn(
        &mut self,
        input: Option<BorrowedFd<'_>>,
        until: Time,
        mut event: impl FnMut(StackEvent),
    ) -> io::Result<bool> {
        self.drain(&mut event)?;
        let links = self.links.iter().map(|link| (link.tun.as_fd(), Interest::Read));
        let set = links.chain(input.map(|input| (input, Interest::Read)));
        self.poller.wait(set, self.wake_at.min(until))?;
        let is_ready = input.is_some() && self.poller.ready(self.links.len()).read;
        for link in 0..self.links.len() {
            if self.poller.ready(link).read {
                self.receive(link)?;
            }
        }
        self.drain(&mut event)?;
        Ok(is_ready)
    }

    fn receive(&mut self, link: usize) -> io::Result<()> {
        for _ in 0..PACKETS_AT_ONCE {
            let len = match self.links[link].tun.read(&mut self.incoming) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            if self.links[link].is_silent {
                continue;
            }
            match Segment::parse(&self.incoming[..len]) {
                Ok(segment) => {
                    self.counts.received += 1;
                    self.stack.handle(self.clock.now(), Input::Segment(&segment));
                }
                Err(_) => self.counts.dropped += 1,
            }
        }
        Ok(())
    }

    fn drain(&mut self, event: &mut impl FnMut(StackEvent)) -> io::Result<()> {
        loop {
            match self.stack.poll(self.clock.now()) {
                Output::Send(segment) => self.send(&segment),
                Output::Event(happened) => event(happened),
                Output::Wait(at) => {
                    self.wake_at = at;
                    return Ok(());
                }
            }
        }
    }

    fn send(&mut self, segment: &Segment) {
        let Some(link) = self.links.iter().find(|link| link.address == segment.source.ip()) else {
            self.counts.refused += 1;
            return;
        };
        if link.is_silent {
            return;
        }
        self.outgoing.clear();
        segment.emit(&mut self.outgoing);
        // A packet that the kernel has no room for is lost, as on any link.
        match link.tun.write(&self.outgoing) {
            Ok(()) => self.counts.sent += 1,
            Err(_) => self.counts.refused += 1,
        }
    }
}
