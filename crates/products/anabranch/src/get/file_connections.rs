//! The connections of a [`FileScheduler`]: its routes to servers, and what their bytes count for.

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Time};
use anabranch_mirror::file_scheduler::{FileScheduler, Input, ServerId};
use anabranch_mirror::url::Url;
use anabranch_net::Egress;

use super::event_loop::Context;
use super::link_policy::Carried;
use super::rate_meter::RateMeter;
use super::routes::{Route, ends, new_ends};
use super::server_status::ServerStatus;
use super::world::Hold;
use crate::PathProgress;
use crate::report::one_a_path;

/// A file scheduler with the routes of its connections.
pub(super) struct FileConnections<'a> {
    pub(super) machine: FileScheduler,
    /// The route of each connection of the scheduler.
    pub(super) routes: Vec<Route>,
    /// The local ends to use; if empty, every usable one.
    pub(super) named: &'a [Egress],
}

impl<'a> FileConnections<'a> {
    /// Creates a scheduler's connections to no server yet.
    pub(super) const fn new(machine: FileScheduler, named: &'a [Egress]) -> Self {
        Self { machine, routes: Vec::new(), named }
    }

    /// Adds routes to a server, which has `url`, from all local ends that lead to it.
    ///
    /// # Errors
    /// Returns a clause that says why there is no route.
    pub(super) fn connect(
        &mut self,
        server: ServerId,
        url: &Url,
        cx: &mut Context<'_, '_>,
    ) -> Result<(), String> {
        let found = self.ends(url, cx)?;
        if found.is_empty() {
            return Err("no route to it".to_owned());
        }
        self.add(server, found);
        let has_route = self.routes.iter().any(|route| route.mirror == server);
        if has_route { Ok(()) } else { Err("too many routes".to_owned()) }
    }

    /// Adapts the connections after the host's links have changed. `urls` has a URL of each server. A link
    /// that has carried its cap is not used any more; links that have appeared are used. A link that waits
    /// again is used to the end: the requests are small.
    pub(super) fn refresh<'u>(&mut self, urls: impl Iterator<Item = &'u Url>, cx: &mut Context<'_, '_>) {
        for (connection, route) in self.routes.iter_mut().enumerate() {
            if route.shut.is_none() && cx.world.held(&route.via) == Some(Hold::Spent) {
                route.shut = Some("the link has carried its cap".to_owned());
                self.machine.handle(cx.now(), Input::Down { connection });
            }
        }
        for (number, url) in urls.enumerate() {
            let server = number as ServerId;
            if !self.machine.is_closed(server)
                && let Ok(found) = self.ends(url, cx)
            {
                let found: Vec<_> = new_ends(&self.routes, server, found).collect();
                self.add(server, found);
            }
        }
    }

    /// Returns the local end and the remote address of every route to the server of a URL.
    fn ends(&self, url: &Url, cx: &mut Context<'_, '_>) -> Result<Vec<(Egress, SocketAddr)>, String> {
        let proxied = cx.world.is_proxied(url.as_str());
        ends(url, proxied, self.named, cx.world)
    }

    /// Adds routes to a server, each with a second connection where the scheduler allows one.
    fn add(&mut self, server: ServerId, found: impl IntoIterator<Item = (Egress, SocketAddr)>) {
        for (via, peer) in found {
            let Some(first) = self.machine.add_connection(server) else { break };
            let second = self.machine.add_second_connection(first);
            for _ in [Some(first), second].into_iter().flatten() {
                let (via, address) = (via.clone(), peer.ip());
                self.routes.push(Route {
                    mirror: server,
                    via,
                    address,
                    shut: None,
                    is_down: false,
                    is_held: false,
                });
            }
        }
    }

    /// Returns the bytes of all bodies that have arrived.
    pub(super) fn received_bytes(&self) -> u64 {
        self.machine.connections().map(|connection| connection.counters.received_bytes).sum()
    }

    /// Returns the bytes that have arrived over each local end.
    pub(super) fn carried(&self) -> Carried {
        let received = self.machine.connections().map(|connection| connection.counters.received_bytes);
        self.routes.iter().map(|route| route.via.clone()).zip(received).collect()
    }

    /// Returns the progress of each route; at the `end` with the mean rates of the whole transfer. `status`
    /// returns the status of a server.
    pub(super) fn rows<'s>(
        &self,
        (now, end): (Time, bool),
        meter: &mut RateMeter,
        status: impl Fn(ServerId) -> &'s ServerStatus,
    ) -> Vec<PathProgress> {
        let counts: Vec<u64> =
            self.machine.connections().map(|connection| connection.counters.bytes).collect();
        let rates = meter.rates(now, &counts, end);
        let rows = self.machine.connections().zip(&self.routes).zip(rates).map(|((report, route), rate)| {
            PathProgress {
                rate_bytes: rate,
                srtt_us: report.srtt.as_micros(),
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                ..route.row(status(route.mirror), report.state)
            }
        });
        one_a_path(rows)
    }
}
