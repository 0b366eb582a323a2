//! Finds the hosts that publish a name in a publish/subscribe network, and the paths to them, and watches for
//! changes of these.

use anabranch_algo::{Span, Time};
use anabranch_mmtp::uri::Uri;
use anabranch_overlay::client::{Event, Found, ServiceKind};
use anabranch_overlay::domain::PathChoice;
use anabranch_overlay::dscp::Dscp;
use anabranch_overlay::frame;
use anabranch_overlay::message::{Routes, Wanted, refusal};

use super::event_loop::{Context, EventLoop, Poll, Stage};
use super::udp_paths::Way;
use crate::event::Observer;
use crate::network::{Name, Place, Watch, unknown_scope};
use crate::{Error, Result};

/// The content to fetch from a network, and the node that fetches it.
#[derive(Clone, Debug)]
pub(super) struct NetworkName {
    pub(super) place: Place,
    pub(super) wanted: Wanted,
    /// How the network chooses paths: as a class says, or by the domain's default.
    paths: PathChoice,
}

impl NetworkName {
    /// Reads `name` for the node of `place`: a name in the network, or a URI whose content is wanted.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if `name` is neither, if the domain has no such scope,
    /// or if the node is a forwarder.
    pub(super) fn read(place: &Place, name: &str) -> Result<Self> {
        let domain = place.domain();
        if domain.is_forwarder(place.node()) {
            return Err(Error::usage(format!(
                "{} forwards in the domain {}: names are fetched by hosts",
                place.node_name(),
                domain.name
            )));
        }
        let wanted = if name.to_ascii_lowercase().starts_with("anabranch:") {
            let uri: Uri =
                name.parse().map_err(|e| Error::usage(format!("not a URI of ours: {e}")).because(e))?;
            Wanted::Content(uri.id)
        } else {
            let name: Name = name.parse().map_err(|e| Error::usage(format!("{e}")).because(e))?;
            if domain.scope_key(name.scope()).is_none() {
                return Err(Error::usage(unknown_scope(domain, name.scope())));
            }
            Wanted::Name(name)
        };
        Ok(Self { place: place.clone(), wanted, paths: domain.paths })
    }

    /// Chooses the paths of a class for this transfer.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the domain has no such class.
    pub(super) fn with_class(self, class: &str) -> Result<Self> {
        Ok(Self { paths: self.place.path_choice(Some(class))?, ..self })
    }

    fn shown(&self) -> String {
        match &self.wanted {
            Wanted::Name(name) => name.to_string(),
            Wanted::Content(content) => content.to_string(),
        }
    }
}

/// A content that hosts of a network publish, and the paths to them.
pub(super) struct Network {
    place: Place,
    watch: Watch,
    pub(super) found: Found,
    routes: Routes,
    /// The mark (DSCP) of the transfer's packets.
    mark: Dscp,
}

impl Network {
    /// Returns the names of the hosts that have the content.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.found.hosts.iter().map(|(node, _)| self.place.name_of(*node).to_owned()).collect()
    }

    /// Returns the name of a node, or its number if the node is unknown.
    pub(super) fn node(&self, number: u16) -> String {
        let node = anabranch_topology::graph::NodeId(u32::from(number));
        let nodes = self.place.domain().graph.nodes();
        nodes.get(node.index()).map_or_else(|| number.to_string(), |node| node.name.clone())
    }

    /// Returns the paths to the hosts, as the sockets need them.
    pub(super) fn ways(&self) -> Vec<Way> {
        let way = |route: &anabranch_overlay::message::Route| {
            let (_, port) = self.found.hosts.get(usize::from(route.target))?;
            // A route that does not begin at this node is of no use.
            let links = self.place.links_of(route)?;
            let (from, forwarder) = self.place.hop(*links.first()?)?;
            Some(Way {
                source: usize::from(route.target),
                from,
                forwarder,
                group: route.group,
                forwarders: self.place.forwarders_on(&links),
                links,
                there: frame::marked(frame::header(&route.there, *port), self.mark),
                back: route.back,
            })
        };
        self.routes.routes.iter().filter_map(way).collect()
    }

    /// Returns whether the paths have changed since the last call, and tells the user if they have.
    pub(super) fn has_changed(&mut self, observer: &mut Observer<'_>) -> bool {
        let mut changed = false;
        for event in self.watch.take() {
            match event {
                Event::Routes(routes) => {
                    // The user is not told of new identifiers of the same paths.
                    if paths_of(&routes) != paths_of(&self.routes) {
                        let (before, now) = (self.routes.routes.len(), routes.routes.len());
                        let paths = if now == 1 { "path" } else { "paths" };
                        observer.notice(&format!("the network has changed: {now} {paths}, {before} before"));
                    }
                    self.routes = routes;
                    changed = true;
                }
                other => say(&other, observer),
            }
        }
        changed
    }
}

/// Returns which paths these are, and which of them share links.
fn paths_of(routes: &Routes) -> Vec<(u8, u32, &[u8])> {
    routes.routes.iter().map(|route| (route.target, route.group, &*route.places)).collect()
}

fn say(event: &Event, observer: &mut Observer<'_>) {
    let name = |service: &ServiceKind| match service {
        ServiceKind::Rendezvous => "the rendezvous",
        ServiceKind::Topology => "the topology manager",
    };
    match event {
        Event::Silent(service) => {
            observer.notice(&format!("{} does not answer; it is asked on", name(service)));
        }
        Event::Answers(service) => observer.notice(&format!("{} answers again", name(service))),
        Event::Refused(reason) => {
            observer.notice(&format!("the topology manager says: {}", refusal::text(*reason)));
        }
        Event::Found(_) | Event::Unknown | Event::Routes(_) => {}
    }
}

/// A stage that waits until a name has been found and there are paths to its hosts.
struct LookUp<'a> {
    name: &'a NetworkName,
    watch: &'a Watch,
    found: Option<Found>,
    routes: Option<Routes>,
    silent: Option<ServiceKind>,
    give_up_at: Time,
}

impl Stage for LookUp<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        let domain = &self.name.place.domain().name;
        for event in self.watch.take() {
            say(&event, cx.observer);
            match event {
                Event::Found(found) => self.found = Some(found),
                Event::Routes(routes) if routes.routes.is_empty() => {
                    return Err(Error::unreachable(format!(
                        "in the domain {domain} no path leads to a host that has {} now: lines are down",
                        self.name.shown()
                    )));
                }
                Event::Routes(routes) => self.routes = Some(routes),
                Event::Unknown => {
                    let name = self.name.shown();
                    return Err(Error::not_found(format!("nobody in the domain {domain} publishes {name}")));
                }
                Event::Refused(reason) => {
                    return Err(Error::refused(format!(
                        "the domain {domain} refuses: {}; do all members have the same file of it?",
                        refusal::text(reason)
                    )));
                }
                Event::Silent(service) => self.silent = Some(service),
                Event::Answers(_) => self.silent = None,
            }
        }
        if self.found.is_some() && self.routes.is_some() {
            return Ok(Poll::Done);
        }
        if cx.now() >= self.give_up_at {
            let who = match self.silent {
                Some(ServiceKind::Topology) => "topology manager",
                _ => "rendezvous",
            };
            return Err(Error::unreachable(format!(
                "the {who} of the domain {domain} does not answer: is it up, and the forwarders on the way?"
            )));
        }
        Ok(Poll::Wait(self.give_up_at))
    }

    fn interrupted(&self) -> &'static str {
        "nothing was fetched"
    }
}

/// Finds the hosts that publish a name, and the paths to them.
///
/// # Errors
/// - `NotFound` if no host publishes the name.
/// - `Refused` if the network refuses.
/// - `Unreachable` if the services of the network do not answer within `timeout`, or no path leads to a host.
/// - `Interrupted` if the caller stops.
pub(super) fn look_up(name: &NetworkName, timeout: Span, events: &mut EventLoop<'_, '_>) -> Result<Network> {
    let watch = Watch::start(&name.place, name.wanted.clone(), name.paths, events.world.waker())?;
    let give_up_at = events.world.now() + timeout;
    let mut stage = LookUp { name, watch: &watch, found: None, routes: None, silent: None, give_up_at };
    events.run(&mut stage)?;
    let LookUp { found, routes, .. } = stage;
    let (Some(found), Some(routes)) = (found, routes) else {
        return Err(Error::not_found(format!("nobody publishes {}", name.shown())));
    };
    if found.outdated > 0 {
        let hosts = if found.outdated == 1 { "one host publishes" } else { "other hosts publish" };
        events.observer.notice(&format!("{hosts} an older content under this name: it is not used"));
    }
    let class = name.paths.class.and_then(|class| name.place.domain().classes.get(class));
    let mark = class.map_or(Dscp::NONE, |class| class.dscp);
    Ok(Network { place: name.place.clone(), watch, found, routes, mark })
}
