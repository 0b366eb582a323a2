//! Names to addresses, by the system's resolver, which cannot be interrupted: so it runs on a thread that is
//! left behind when the caller stops.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::Stop;

/// Between two looks at whether the caller has stopped.
const TICK: Duration = Duration::from_millis(50);

/// The addresses of `host`.
///
/// # Errors
/// What the resolver says; `Interrupted` if the caller stopped.
pub(super) fn lookup(host: &str, port: u16, stop: &Stop) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (sender, receiver) = channel();
    let host = host.to_owned();
    let resolve = move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody listens any more if the caller has stopped.
        let _ = sender.send(found);
    };
    thread::Builder::new().name("resolver".into()).spawn(resolve)?;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) if !stop.is_stopped() => {}
            Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::Interrupted.into()),
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the resolver has panicked")),
        }
    }
}
