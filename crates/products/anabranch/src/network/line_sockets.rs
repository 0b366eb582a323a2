//! The sockets of a node: one at its address on each line.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use anabranch_algo::Time;
use anabranch_net::{Clock, Datagrams, Interest, Poller, RecvBuffers, RecvOutcome, SendOutcome, Udp};
use anabranch_overlay::frame;

use crate::{Error, Result, Stop};

/// The number of attempts to find a port that is free on all addresses.
const PORTS_TRIED: usize = 16;
/// The number of buffer sets that are read from one socket in one turn, so that it does not starve the
/// others.
const READS_A_TURN: usize = 4;

/// The sockets for sending.
#[derive(Debug)]
pub struct Outlets(Vec<Udp>);

/// The sockets of a node, with what is needed to wait for them and to read them.
#[derive(Debug)]
pub struct LineSockets {
    /// The sockets for sending frames.
    pub out: Outlets,
    poller: Poller,
    buffers: RecvBuffers,
    /// The clock of [`wait`](Self::wait).
    pub clock: Clock,
}

impl Outlets {
    /// Returns how many datagrams of `segment` bytes one call can send.
    #[must_use]
    pub fn max_segments(&self, from: IpAddr, segment: usize) -> usize {
        self.at(from).map_or(1, |udp| udp.max_segments(segment))
    }

    fn at(&self, from: IpAddr) -> Option<&Udp> {
        self.0.iter().find(|udp| udp.local_addr().ip() == from)
    }

    /// Sends one frame, or several of `segment` bytes each with the same mark. Returns whether the system
    /// took them. Frames that it does not take are lost, as in any network.
    pub fn send(&self, from: IpAddr, to: SocketAddr, bytes: &[u8], segment: Option<usize>) -> bool {
        let Some(udp) = self.at(from) else { return false };
        let dscp = frame::mark(bytes).number();
        let datagrams = Datagrams { to: Some(to), from_ip: None, bytes, segment, ecn: false, dscp };
        matches!(udp.send(&datagrams), SendOutcome::Sent)
    }
}

/// Datagrams of one sender that arrived in one buffer.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The datagrams.
    pub received: anabranch_net::Received<'a>,
}

impl LineSockets {
    /// Listens at all of these addresses. With port 0, finds one port that is free on all.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if there is no address, if this machine lacks one of
    /// them, or if the port is in use.
    pub fn bind(addresses: &[IpAddr], port: u16) -> Result<Self> {
        let mut result = listen(addresses, port);
        for _ in 1..PORTS_TRIED {
            if port != 0 || result.is_ok() {
                break;
            }
            result = listen(addresses, port);
        }
        let clock = Clock::start();
        Ok(Self { out: Outlets(result?), poller: Poller::new(clock), buffers: RecvBuffers::new(), clock })
    }

    /// Returns the addresses on which the sockets listen.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.out.0.iter().map(Udp::local_addr).collect()
    }

    /// Returns the port of all sockets.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.out.0.first().map_or(0, |udp| udp.local_addr().port())
    }

    /// Waits until a datagram arrives, the time `until` is reached, `stop` is used, or `other` is readable.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system cannot wait.
    pub fn wait(&mut self, until: Time, stop: &Stop, other: Option<BorrowedFd<'_>>) -> Result<()> {
        let fixed = [stop.wake().as_fd()];
        let all = self.out.0.iter().map(|udp| udp.as_fd()).chain(fixed).chain(other);
        self.poller
            .wait(all.map(|fd| (fd, Interest::Read)), until)
            .map_err(|e| Error::system(format!("waiting for packets: {e}")).because(e))?;
        Ok(())
    }

    /// Hands over the datagrams of the sockets that the last wait found readable.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if a socket fails.
    pub fn receive(&mut self, mut each: impl FnMut(&Outlets, Arrived<'_>)) -> Result<()> {
        let Self { out, poller, buffers, .. } = self;
        for (place, udp) in out.0.iter().enumerate() {
            if !poller.ready(place).read {
                continue;
            }
            for _ in 0..READS_A_TURN {
                let outcome = udp.recv(buffers, |received| {
                    each(out, Arrived { from: received.from, received });
                });
                match outcome {
                    Ok(RecvOutcome::Received { more: true }) => {}
                    Ok(_) => break,
                    Err(e) => {
                        return Err(Error::system(format!("the socket {} failed: {e}", udp.local_addr()))
                            .at(udp.local_addr())
                            .because(e));
                    }
                }
            }
        }
        Ok(())
    }
}

fn listen(addresses: &[IpAddr], port: u16) -> Result<Vec<Udp>> {
    let mut port = port;
    let mut sockets = Vec::new();
    for ip in addresses {
        let address = SocketAddr::new(*ip, port);
        let udp = Udp::listen(address).map_err(|e| Error::system(e.to_string()).at(address).because(e))?;
        port = udp.local_addr().port();
        sockets.push(udp);
    }
    if sockets.is_empty() {
        return Err(Error::system("the node has no line"));
    }
    Ok(sockets)
}
