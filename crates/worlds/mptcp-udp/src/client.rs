//! A client: its links, and a socket for each subflow.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Poll;

use anabranch_mptcp::segment::EcnField;
use anabranch_mptcp::{Config, LocalAddress, Seed, datagram};
use anabranch_net::{Egress, RecvBuffers};
use tokio::task::AbortHandle;

use crate::connection::Connection;
use crate::host::Host;
use crate::shared::Shared;
use crate::socket::AsyncUdp;
use crate::wire::Wire;

/// The most links. The stack gives each an address of either family, and has identifiers for 254.
pub const LINKS_MAX: usize = 100;

/// A link of a client.
#[derive(Clone, Debug)]
pub struct Link {
    /// The interface or local address.
    pub egress: Egress,
    /// Whether the link carries data only while no other can.
    pub is_backup: bool,
}

/// Returns the addresses by which the stack knows a link.
fn names(link: usize) -> [IpAddr; 2] {
    let number = u32::try_from(link + 1).unwrap_or(u32::MAX);
    [Ipv4Addr::from_bits(number).into(), Ipv6Addr::from_bits(number.into()).into()]
}

/// Returns the link that the stack knows by this address.
fn link_of(name: IpAddr) -> Option<usize> {
    let number = match name {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => u32::try_from(v6.to_bits()).ok()?,
    };
    usize::try_from(number).ok()?.checked_sub(1)
}

/// A client, which makes connections over all of its links. A task must run its [`host`](Client::host).
#[derive(Clone, Debug)]
pub struct Client {
    host: Host,
    sockets: Arc<Sockets>,
}

impl Client {
    /// Creates a client with these links. `seed` must be random and secret.
    ///
    /// # Errors
    /// If there is no link, or if there are more than [`LINKS_MAX`].
    pub fn new(config: Config, links: &[Link], seed: Seed) -> io::Result<Self> {
        if links.is_empty() || links.len() > LINKS_MAX {
            let says = format!("{} links: there must be 1 to {LINKS_MAX}", links.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, says));
        }
        let own = |(n, link): (usize, &Link)| {
            names(n).map(|name| LocalAddress { backup: link.is_backup, ..LocalAddress::new(name) })
        };
        let addresses = links.iter().enumerate().flat_map(own).collect();
        let sockets = Arc::new(Sockets {
            links: links.iter().map(|link| link.egress.clone()).collect(),
            open: Mutex::default(),
            buffers: Arc::default(),
            host: OnceLock::new(),
        });
        let wire = Arc::clone(&sockets) as Arc<dyn Wire>;
        let host = Host::new(Config { addresses, ..config }, seed, wire);
        // The value is set once.
        let _ = sockets.host.set(Arc::downgrade(&host.shared));
        Ok(Self { host, sockets })
    }

    /// Returns the host, which a task must [run](Host::run) inside a runtime of tokio.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Connects to a server, first over the link `first`, and every quarter of a second over one more until
    /// there is an answer.
    ///
    /// # Errors
    /// If the server refuses or does not answer.
    pub async fn connect(&self, first: usize, server: SocketAddr) -> io::Result<Connection> {
        let [v4, v6] = names(first.min(self.sockets.links.len() - 1));
        self.host.connect(if server.is_ipv4() { v4 } else { v6 }, server).await
    }

    /// Makes new subflows over a link, because its addresses or routes have changed. Those that it has end as
    /// soon as the connection has another.
    pub fn renew(&self, link: usize, is_backup: bool) {
        self.host.shared.with(|state, now| {
            for name in names(link) {
                state.stack.remove_address(now, name);
                let own = LocalAddress { backup: is_backup, ..LocalAddress::new(name) };
                state.stack.add_address(now, own);
            }
        });
    }

    /// Makes no subflows over a link any more, and ends those that it has if there are others.
    pub fn remove(&self, link: usize) {
        self.host.shared.with(|state, now| {
            names(link).into_iter().for_each(|name| state.stack.remove_address(now, name));
        });
    }
}

/// The socket of a subflow, and the task that reads it.
#[derive(Debug)]
struct Open {
    udp: Arc<AsyncUdp>,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The sockets of all subflows, by their local end in the stack.
#[derive(Debug)]
struct Sockets {
    links: Vec<Egress>,
    open: Mutex<BTreeMap<SocketAddr, Open>>,
    /// What is received goes through one set of buffers, because each has 2 MiB.
    buffers: Arc<Mutex<RecvBuffers>>,
    host: OnceLock<Weak<Shared>>,
}

impl Sockets {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the socket of a subflow and starts the task that reads it. Returns `None` if the link cannot be
    /// used now; the segment is lost then, and its repetition tries again.
    fn open(&self, from: SocketAddr, to: SocketAddr) -> Option<Open> {
        let egress = self.links.get(link_of(from.ip())?)?;
        let udp = Arc::new(AsyncUdp::connect(egress, to).ok()?);
        let (host, buffers) = (self.host.get()?.clone(), Arc::clone(&self.buffers));
        let task = tokio::spawn(receive(Arc::clone(&udp), from, to, buffers, host)).abort_handle();
        Some(Open { udp, task })
    }
}

/// Hands the segments that come from `remote` to the host. Returns when the host is gone or the socket has
/// failed.
async fn receive(
    udp: Arc<AsyncUdp>,
    local: SocketAddr,
    remote: SocketAddr,
    buffers: Arc<Mutex<RecvBuffers>>,
    host: Weak<Shared>,
) {
    let mut segments = Vec::new();
    poll_fn(|cx| {
        loop {
            let mut buffers = buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let come = udp.poll_receive(cx, &mut buffers, |received| {
                let read = |bytes| datagram::parse(bytes, remote, local, EcnField::NotEct).ok();
                segments.extend(received.datagrams().filter_map(read));
            });
            drop(buffers);
            let Some(shared) = host.upgrade() else { return Poll::Ready(()) };
            Host { shared }.handle(&segments);
            segments.clear();
            match come {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

impl Wire for Sockets {
    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8], segment: usize) {
        let mut open = self.lock();
        if open.get(&from).is_none_or(|open| open.task.is_finished()) {
            let Some(new) = self.open(from, to) else { return };
            open.insert(from, new);
        }
        let udp = open.get(&from).map(|open| Arc::clone(&open.udp));
        drop(open);
        if let Some(udp) = udp {
            udp.send(None, None, bytes, segment);
        }
    }

    fn address_of(&self, local: SocketAddr) -> SocketAddr {
        self.lock().get(&local).map_or(local, |open| open.udp.local_addr())
    }

    fn retain(&self, is_used: &dyn Fn(SocketAddr) -> bool) {
        self.lock().retain(|local, _| is_used(*local));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::host::config;
    use crate::port::Port;

    #[test]
    fn links_have_names() {
        assert_eq!(names(0).map(|name| name.to_string()), ["0.0.0.1", "::1"]);
        for link in [0, 1, LINKS_MAX] {
            assert_eq!(names(link).map(link_of), [Some(link); 2]);
        }
        assert_eq!(link_of(Ipv4Addr::UNSPECIFIED.into()), None);
        assert_eq!(link_of("2001:db8::1".parse().unwrap()), None);
        assert!(Client::new(Config::default(), &[], [0; 32]).is_err());
    }

    /// A socket that is closed is opened again with another port, as if a NAT had forgotten it.
    #[tokio::test]
    async fn a_subflow_with_another_address_is_made_again() {
        let port = Arc::new(Port::bind("127.0.0.1:0".parse().unwrap()).unwrap());
        let server = Host::new(config(), [2; 32], Arc::<Port>::clone(&port));
        let address = port.local_addr();
        server.listen(address.port());
        let link = |n| Link { egress: Egress::of_address([127, 0, 0, n].into()), is_backup: false };
        let client = Client::new(config(), &[link(1)], [1; 32]).unwrap();
        let (near, far) = (client.host().clone(), server.clone());
        tokio::spawn(async move { near.run().await });
        tokio::spawn(async move { far.run().await });
        let receiving = server.clone();
        tokio::spawn(async move { port.receive(&receiving, |_| {}).await });
        let (near, far) = tokio::join!(client.connect(0, address), server.accept());
        let (mut near, mut far) = (near.unwrap(), far);
        for turn in 0..4 {
            // Before the first exchange, neither end knows that options of the other one pass.
            if turn > 0 {
                client.sockets.retain(&|_| false);
            }
            near.write_all(&[turn; 5_000]).await.unwrap();
            let mut read = [0; 5_000];
            far.read_exact(&mut read).await.unwrap();
            assert_eq!(read, [turn; 5_000]);
            far.write_all(&[turn; 5_000]).await.unwrap();
            near.read_exact(&mut read).await.unwrap();
            assert_eq!(read, [turn; 5_000]);
        }
        assert_eq!(near.subflows().len(), 1);
    }
}
