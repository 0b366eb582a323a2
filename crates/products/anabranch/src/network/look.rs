//! Shows the state of a network as one of its hosts learns it: which lines are down, and which paths a
//! transfer would take.

use anabranch_algo::Span;
use anabranch_overlay::client::{Event, Found, ServiceKind, Subscription};
use anabranch_overlay::domain::PathChoice;
use anabranch_overlay::message::{Body, Down, PathsRequest, Routes, Wanted};
use anabranch_overlay::publication::Name;
use anabranch_topology::graph::{LinkId, NodeId};

use super::asker::{AskedService, Asker, must_be_host, refused};
use super::place::Place;
use crate::{Error, Result, Stop};

/// The destination of the paths of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A host, whether or not it publishes.
    Host(NodeId),
    /// All hosts that publish the newest content of a name, or as many as a transfer would use.
    Name(Name),
}

/// The state of a network.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NetworkLook {
    /// The number of forwarders that have reported, without those that have died since.
    pub forwarders: u32,
    /// The lines that are down, by their numbers in the domain's file.
    pub down: Vec<u32>,
    /// The hosts that publish the name, if paths to a name were requested.
    pub publishers: Vec<NodeId>,
    /// The paths, if they were requested.
    pub paths: Vec<LookedPath>,
}

/// A path that a transfer would take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LookedPath {
    /// The destination.
    pub to: NodeId,
    /// The group of the path: paths of a group share a link, or are joined by paths that do.
    pub group: u32,
    /// The delay in one direction, as far as it is known.
    pub delay: Span,
    /// The links of the path.
    pub links: Vec<LinkId>,
}

impl LookedPath {
    /// Makes the path over these links.
    #[must_use]
    pub const fn new(to: NodeId, group: u32, delay: Span, links: Vec<LinkId>) -> Self {
        Self { to, group, delay, links }
    }
}

/// Asks the topology manager of a domain, from one of its hosts, which lines are down. With `to`, also asks
/// which paths a transfer of this class would have from there, as a [`Get`](crate::Get) does. Gives up after
/// `within`.
///
/// # Errors
/// - [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the node is a forwarder or the destination, or if there
///   is no such class or scope.
/// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if no host publishes the name.
/// - [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if a service does not answer.
/// - [`ErrorKind::System`](crate::ErrorKind::System) if a service refuses, or this node cannot listen.
/// - [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `stop` is used.
pub fn look(
    place: &Place,
    to: Option<&Destination>,
    class: Option<&str>,
    within: Span,
    stop: &Stop,
) -> Result<NetworkLook> {
    let (domain, here) = (place.domain(), place.node());
    must_be_host(place)?;
    if let Some(Destination::Host(to)) = to
        && (*to == here || domain.is_forwarder(*to))
    {
        let what = if *to == here { "this host itself" } else { "a forwarder" };
        return Err(Error::usage(format!(
            "{} is {what}: transfers lead from a host to another",
            place.name_of(*to)
        )));
    }
    let paths = place.path_choice(class)?;
    let mut asker = Asker::new(place, within, stop)?;
    let mut look = NetworkLook::default();
    lines(&mut asker, &mut look)?;
    let (hosts, routes) = match to {
        None => return Ok(look),
        Some(Destination::Host(to)) => (vec![*to], paths_to(&mut asker, paths, *to)?),
        Some(Destination::Name(name)) => {
            let (found, routes) = find(&mut asker, paths, name)?;
            look.publishers = found.hosts.iter().map(|(host, _)| *host).collect();
            (look.publishers.clone(), routes)
        }
    };
    let path = |route: &anabranch_overlay::message::Route| {
        Some(LookedPath {
            to: *hosts.get(usize::from(route.target))?,
            group: route.group,
            delay: route.delay,
            links: place.links_of(route)?,
        })
    };
    look.paths = routes.routes.iter().filter_map(path).collect();
    Ok(look)
}

/// Asks which lines are down.
fn lines(asker: &mut Asker<'_>, look: &mut NetworkLook) -> Result<()> {
    let mut from = 0;
    loop {
        let Down { forwarders, known, lines } =
            match asker.ask(AskedService::Topology, Body::Lines { from })? {
                Body::Down(down) => down,
                other => return Err(AskedService::Topology.not_asked_for(&other)),
            };
        look.forwarders = forwarders;
        let rest = known as usize > lines.len();
        // Each answer has lines with higher numbers than the one before, so this ends.
        look.down.extend(lines.iter().filter(|line| **line >= from));
        match look.down.last() {
            Some(last) if rest && *last >= from => from = last.saturating_add(1),
            _ => return Ok(()),
        }
    }
}

/// Asks for the paths to a host.
fn paths_to(asker: &mut Asker<'_>, paths: PathChoice, to: NodeId) -> Result<Routes> {
    let PathChoice { policy, per_host, class } = paths;
    let request = PathsRequest {
        from: asker.member.node,
        port: asker.member.port,
        targets: vec![to],
        k: per_host,
        policy,
        class,
        lease_s: 0,
    };
    match asker.ask(AskedService::Topology, Body::Paths(request))? {
        Body::Routes(routes) => Ok(routes),
        other => Err(AskedService::Topology.not_asked_for(&other)),
    }
}

/// Asks which hosts publish a name, and for the paths to them.
fn find(asker: &mut Asker<'_>, paths: PathChoice, name: &Name) -> Result<(Found, Routes)> {
    asker.must_have_scope(name.scope())?;
    let (member, wanted) = (asker.member.clone(), Wanted::Name(name.clone()));
    let mut subscription = Subscription::new(member, wanted, paths, asker.now());
    if !subscription.can_reach_services() {
        return Err(asker.no_line(AskedService::Rendezvous));
    }
    let mut found = None;
    asker.run(&mut subscription, AskedService::Rendezvous, |event, silent| {
        match event {
            Event::Found(it) => found = Some(it),
            Event::Routes(routes) => return Ok(found.take().map(|found| (found, routes))),
            Event::Unknown => return Err(Error::not_found(format!("nobody publishes {name} now"))),
            Event::Refused(reason) => return Err(refused(reason)),
            Event::Silent(ServiceKind::Topology) => *silent = AskedService::Topology,
            Event::Silent(_) | Event::Answers(_) => {}
        }
        Ok(None)
    })
}
