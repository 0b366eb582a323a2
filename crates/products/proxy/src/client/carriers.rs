//! The client's connections over UDP, and the choice between UDP and the kernel.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_http::happy_eyeballs;
use anabranch_mptcp::Config;
use anabranch_mptcp_udp::{Client, Connection, Link};
use anabranch_net::{Clock, Egress};
use tokio::time::timeout;

use crate::links::Via;
use crate::links::watch::Links;
use crate::random::random;
use crate::socket::{SocketOptions, missing_mptcp};
use crate::transport::{Choice, Decision, udp_config};

/// The time after which a connection is given up. All links have been tried by then.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2_500);

/// Makes connections over UDP where they are wanted. Clones share the decision.
#[derive(Clone, Debug)]
pub(super) struct Carriers {
    decision: Arc<Mutex<Decision>>,
    client: Option<Client>,
    via: Vec<Via>,
    clock: Clock,
}

/// Returns for each link whether it carries data only while no other can: as the user says, or because
/// another one costs less. Nothing measures here whether the cheap links are full.
fn backups(via: &[Via]) -> Vec<bool> {
    let cheapest = via.iter().filter(|link| !link.is_backup).map(|link| link.cost).min().unwrap_or(0);
    via.iter().map(|link| link.is_backup || link.cost > cheapest).collect()
}

impl Carriers {
    /// Creates the connections of a client with these links.
    ///
    /// # Errors
    /// If there are too many links, or if the system has no random numbers.
    pub(super) fn new(choice: Choice, via: &[Via], socket: &SocketOptions) -> io::Result<Self> {
        let has_several = via.len() > 1 && via.iter().all(|link| link.cap.is_none());
        let decision = Decision::new(choice, has_several, missing_mptcp());
        let client = if decision.may_use_udp() { Some(client(via, socket)?) } else { None };
        let decision = Arc::new(Mutex::new(decision));
        Ok(Self { decision, client, via: via.to_vec(), clock: Clock::start() })
    }

    fn lock(&self) -> MutexGuard<'_, Decision> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what carries trunks, and why, unless it is the kernel's MPTCP.
    pub(super) fn says(&self) -> Option<String> {
        self.lock().says()
    }

    /// Returns whether the next trunk goes over UDP.
    pub(super) fn is_udp(&self) -> bool {
        self.lock().is_udp(self.clock.now())
    }

    /// Returns whether there is nothing but UDP.
    pub(super) fn is_only_udp(&self) -> bool {
        self.lock().is_only_udp()
    }

    /// Records that a trunk of the kernel has one path, and why. Returns whether UDP is tried now.
    pub(super) fn has_one_path(&self, why: String) -> bool {
        self.lock().has_one_path(self.clock.now(), why)
    }

    /// Records that a trunk over UDP could be made.
    pub(super) fn udp_works(&self) {
        self.lock().udp_works();
    }

    /// Records why no trunk over UDP could be made although the server answers over TCP.
    pub(super) fn udp_failed(&self, why: String) {
        self.lock().udp_failed(self.clock.now(), why);
    }

    /// Connects to any of the server's addresses, first over the link with the name `first`.
    ///
    /// # Errors
    /// If there is no answer; the error has the last address and says why.
    pub(super) async fn connect_udp(
        &self,
        servers: &[SocketAddr],
        first: Option<&Option<String>>,
    ) -> Result<Connection, (Option<SocketAddr>, String)> {
        let Some(client) = &self.client else { return Err((None, "UDP is not used".to_owned())) };
        let named = |name: &String| self.via.iter().position(|link| link.name == *name);
        let first = first.and_then(Option::as_ref).and_then(named).unwrap_or(0);
        let attempt = |server: SocketAddr| {
            let client = client.clone();
            async move {
                match timeout(CONNECT_TIMEOUT, client.connect(first, server)).await {
                    Ok(connected) => connected.map_err(|e| (server, e.to_string())),
                    Err(_) => Err((server, "no answer".to_owned())),
                }
            }
        };
        let mut failure = (None, "the server's name has no address".to_owned());
        let connected = happy_eyeballs::race(servers.to_vec(), attempt, |failed| match failed {
            Ok((server, why)) => {
                failure = (Some(server), format!("no connection to the server over UDP: {why}"));
            }
            Err(e) => failure.1 = e.to_string(),
        });
        let connected = connected.await;
        connected.ok_or(failure)
    }

    /// Runs the timers of the connections over UDP. Never returns.
    pub(super) async fn run(&self) {
        match &self.client {
            Some(client) => client.host().run().await,
            None => std::future::pending().await,
        }
    }

    /// Makes new subflows over each link whose addresses change. Never returns.
    pub(super) async fn follow(&self, links: &Links) {
        let Some(client) = &self.client else { return std::future::pending().await };
        let backups = backups(&self.via);
        links.follow(|link| client.renew(link, backups.get(link).copied().unwrap_or_default())).await;
    }
}

/// Returns the client in UDP with these links, or with the system's choice if there are none.
fn client(via: &[Via], socket: &SocketOptions) -> io::Result<Client> {
    // A link may be absent or down when the client starts: each subflow looks whether it is there.
    let egress = |name: &str| name.parse().map_or_else(|_| Egress::of_device(name), Egress::of_address);
    let link = |(link, is_backup): (&Via, bool)| Link { egress: egress(&link.name), is_backup };
    let mut links: Vec<Link> = via.iter().zip(backups(via)).map(link).collect();
    if links.is_empty() {
        links.push(Link { egress: socket.egress.clone(), is_backup: false });
    }
    let seed = random().ok_or_else(|| io::Error::other("the system has no random numbers"))?;
    let config: Config = udp_config(socket.congestion.as_deref());
    Client::new(config, &links, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dearer_links_are_backups() {
        let via: Vec<Via> = ["a:cost=2", "b:cost=5", "c:backup", "d:cost=2"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(backups(&via), [false, true, true, false]);
        assert_eq!(backups(&via[2..3]), [true]);
    }

    /// A client has to start while a link is absent: the link may come later.
    #[test]
    fn links_may_be_absent_at_the_start() {
        let via: Vec<Via> = ["absent0", "absent1"].iter().map(|name| Via::new(*name)).collect();
        let made = client(&via, &SocketOptions::default());
        assert!(made.is_ok(), "{:?}", made.err());
    }
}
