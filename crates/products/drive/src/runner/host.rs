//! Starts programs on a host of a test, from a thread that lives as long as the host does.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;

use anabranch_net::Namespace;

/// A command, and where its process goes.
type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// A host. The kernel kills its programs when this is dropped, or when this process ends in any way.
#[derive(Debug)]
pub(super) struct Host {
    orders: mpsc::Sender<Order>,
}

impl Host {
    /// Starts the thread of a namespace.
    pub(super) fn new(space: &Namespace) -> io::Result<Self> {
        let own = Namespace::open(Path::new(&format!("/proc/self/fd/{}", space.as_fd().as_raw_fd())))?;
        let (orders, received) = mpsc::channel::<Order>();
        let work = move || {
            let entered = own.enter();
            for (mut command, reply) in received {
                let spawned = match &entered {
                    Ok(()) => command.spawn(),
                    Err(e) => Err(io::Error::new(e.kind(), format!("the host cannot be entered: {e}"))),
                };
                let _ = reply.send(spawned);
            }
        };
        thread::Builder::new().name("host".into()).spawn(work)?;
        Ok(Self { orders })
    }

    /// Starts a program on the host.
    pub(super) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, answer) = mpsc::channel();
        let gone = || io::Error::other("the thread of the host has ended");
        self.orders.send((command, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}
