//! The connections to mirrors: one for each mirror and each local end that leads to it, including local ends
//! that appear during the transfer.

use std::net::SocketAddr;

use anabranch_algo::control::Algorithm;
use anabranch_mirror::range_scheduler::{ConnectionConfig, Input, MirrorId, RangeScheduler};
use anabranch_mirror::receive_windows::Sharing;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::subscriber::Subscriber;
use anabranch_net::Egress;

use super::{MirrorConfig, MirrorDriver, MirrorState, Routing, sources};
use crate::get::event_loop::{Context, EventLoop};
use crate::get::groups::GroupPolicy;
use crate::get::name_lookup::look_up;
use crate::get::origin::host;
use crate::get::pool::{PoolState, with_pool};
use crate::get::routes::{NO_FAMILY, Route, all_lead, ends, host_of, new_ends, path_word};
use crate::get::server_status::ServerStatus;
use crate::get::world::World;
use crate::{Error, Result};

impl MirrorConfig {
    /// Looks up the host names of the mirrors.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops.
    pub(in crate::get) fn look_up(&self, events: &mut EventLoop<'_, '_>) -> Result<()> {
        let direct = self.mirrors.iter().filter(|mirror| !events.world.is_proxied(mirror.url.as_str()));
        let hosts: Vec<String> = direct.map(|mirror| host_of(&mirror.url).to_owned()).collect();
        look_up(&hosts, "what arrived is kept", events)
    }
}

impl MirrorDriver {
    /// Creates the driver with a connection for every mirror and every local end that leads to it, as far as
    /// names are [looked up](MirrorConfig::look_up).
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if no local end leads to any mirror, or if a
    /// named `via` leads to none.
    pub(in crate::get) fn new(
        mut parts: MirrorConfig,
        named: &[Egress],
        algorithm: Algorithm,
        groups: GroupPolicy,
        first_group: usize,
        cx: &mut Context<'_, '_>,
    ) -> Result<Self> {
        let mirrors = std::mem::take(&mut parts.mirrors).into_iter().map(|mirror| {
            let status = ServerStatus::new(host(&mirror.url));
            MirrorState { status, mirror, source: None, reserve: false, answers: 0, changed: None }
        });
        let check = std::mem::replace(&mut parts.check, Check::Nothing);
        let named = named.to_vec();
        let (routes, awaits_names) = (Vec::new(), false);
        let mut new = Self {
            machine: RangeScheduler::new(parts.length),
            mirrors: mirrors.collect(),
            network: Routing { routes, named, algorithm, groups, first_group, awaits_names },
            pool: if parts.subscriber_pool { PoolState::Subscribing(check) } else { PoolState::Check(check) },
            config: parts,
            seed: cx.world.secret()?,
            numbers: Vec::new(),
            waiting: None,
            has_warned: false,
            unwanted: Vec::new(),
            proven: false,
            horizon: u64::MAX,
            found: None,
            is_pure: true,
            tried_before: None,
        };
        let mut error = None;
        for number in 0..new.mirrors.len() {
            let name = new.mirrors[number].status.name.clone();
            match new.ends(number, cx) {
                Ok(found) if found.is_empty() => error = Some(format!("no route to {name}")),
                Ok(found) => new.connect(number, found, cx.world),
                Err(e) => {
                    cx.observer.notice(&format!("{name}: {e}"));
                    error = Some(format!("{name}: {e}"));
                }
            }
        }
        all_lead(&new.network.named, &new.network.routes, error.as_deref(), cx.world)?;
        if new.network.routes.is_empty() {
            let why = error.as_deref().unwrap_or(NO_FAMILY);
            return Err(Error::unreachable(format!("no way to any mirror: {why}")));
        }
        Ok(new)
    }

    /// Returns the pairs of local end and remote address for connections to a mirror.
    fn ends(&self, number: usize, cx: &mut Context<'_, '_>) -> Result<Vec<(Egress, SocketAddr)>, String> {
        let url = &self.mirrors[number].mirror.url;
        ends(url, cx.world.is_proxied(url.as_str()), &self.network.named, cx.world)
    }

    /// Adds connections to a mirror, one for each pair of local end and remote address.
    fn connect(&mut self, number: usize, found: Vec<(Egress, SocketAddr)>, world: &dyn World) {
        let state = &self.mirrors[number];
        let mirror = number as MirrorId;
        for (via, peer) in found {
            let index = self.network.first_group + self.network.routes.len();
            let sharing = match &self.network.groups {
                GroupPolicy::Auto => Sharing::Detected { uplink: world.uplink(&via) },
                given => Sharing::Given(given.of(index, &state.status.name, peer, &via)),
            };
            let (ranges, delay) = (state.mirror.ranges, state.mirror.delay);
            let config = ConnectionConfig { mirror, sharing, control: self.network.algorithm, ranges, delay };
            if self.machine.add_connection(&config).is_some() {
                self.network.routes.push(Route {
                    mirror,
                    via,
                    address: peer.ip(),
                    shut: None,
                    is_down: false,
                    is_held: false,
                });
            }
        }
    }

    /// Adapts the connections after the host's links have changed: connections whose local end is gone are
    /// not used any more, those whose local end is back are used again, and new local ends get connections.
    pub(in crate::get) fn refresh(&mut self, subscriber: &mut Subscriber, cx: &mut Context<'_, '_>) {
        let now = cx.now();
        let Self { machine, mirrors, network, pool, .. } = self;
        let routes = &mut network.routes;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            for (connection, route) in routes.iter_mut().enumerate().filter(|(_, route)| route.shut.is_none())
            {
                let is_down = !cx.world.is_up(&route.via);
                route.is_held = cx.world.held(&route.via).is_some();
                if std::mem::replace(&mut route.is_down, is_down) == is_down {
                    continue;
                }
                let status = &mirrors[usize::from(route.mirror)].status;
                if status.out.is_none() {
                    let word = path_word(is_down, cx.world.held(&route.via));
                    cx.observer.notice(&format!("path to {} via {} is {word}", status.name, route.via));
                }
                let input = if is_down { Input::Down { connection } } else { Input::Up { connection } };
                machine.handle(now, input, pool);
            }
        });
        self.network.awaits_names = false;
        for number in 0..self.mirrors.len() {
            let url = &self.mirrors[number].mirror.url;
            let is_proxied = cx.world.is_proxied(url.as_str());
            self.network.awaits_names |= !is_proxied && cx.world.resolve(host_of(url)).is_none();
            if self.mirrors[number].status.out.is_none()
                && let Ok(found) = self.ends(number, cx)
            {
                let found = new_ends(&self.network.routes, number as MirrorId, found).collect();
                self.connect(number, found, cx.world);
            }
        }
    }

    /// Whether the local end of some connection is gone, or the address of some mirror is still being looked
    /// up.
    pub(in crate::get) fn lacks_links(&self) -> bool {
        self.network.awaits_names || self.network.routes.iter().any(|route| route.is_down)
    }
}
