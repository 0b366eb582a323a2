//! Shows the state of a network as one of its hosts learns it: which lines are down, and which paths a
//! transfer would take.

use anabranch_algo::{Machine, Span, Time};
use anabranch_overlay::call::Sent;
use anabranch_overlay::client::{Event, Found, Member, ServiceKind, Subscription};
use anabranch_overlay::domain::{PathChoice, Service};
use anabranch_overlay::message::{Body, Down, PathsRequest, Routes, Wanted, refusal};
use anabranch_overlay::publication::Name;
use anabranch_overlay::question::Question;
use anabranch_topology::graph::{LinkId, NodeId};

use super::agent::{drain, listen};
use super::line_sockets::LineSockets;
use super::place::{Place, unknown_scope};
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
    let name = place.node_name();
    if domain.is_forwarder(here) {
        return Err(Error::usage(format!("{name} forwards in the domain {}: hosts are told", domain.name)));
    }
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
    let sockets = LineSockets::bind(&place.addresses(), 0)?;
    let member = place.member(sockets.port(), sockets.clock)?;
    let give_up_at = sockets.clock.now() + within;
    let mut asker = Asker { place, paths, sockets, member, questions: 0, give_up_at, stop };
    let mut look = NetworkLook::default();
    asker.lines(&mut look)?;
    let (hosts, routes) = match to {
        None => return Ok(look),
        Some(Destination::Host(to)) => (vec![*to], asker.paths(*to)?),
        Some(Destination::Name(name)) => {
            let (found, routes) = asker.find(name)?;
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

struct Asker<'a> {
    place: &'a Place,
    paths: PathChoice,
    sockets: LineSockets,
    member: Member,
    questions: u64,
    give_up_at: Time,
    stop: &'a Stop,
}

impl Asker<'_> {
    fn lines(&mut self, look: &mut NetworkLook) -> Result<()> {
        let mut from = 0;
        loop {
            let Down { forwarders, known, lines } = match self.ask(Body::Lines { from })? {
                Body::Down(down) => down,
                other => return Err(not_asked_for(&other)),
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

    fn paths(&mut self, to: NodeId) -> Result<Routes> {
        let PathChoice { policy, per_host, class } = self.paths;
        let request = PathsRequest {
            from: self.member.node,
            port: self.member.port,
            targets: vec![to],
            k: per_host,
            policy,
            class,
            lease_s: 0,
        };
        match self.ask(Body::Paths(request))? {
            Body::Routes(routes) => Ok(routes),
            other => Err(not_asked_for(&other)),
        }
    }

    /// Asks the topology manager a question and returns its answer.
    fn ask(&mut self, body: Body) -> Result<Body> {
        let now = self.sockets.clock.now();
        let service = self.place.domain().topology;
        let mut question = Question::new(&self.member, service, self.questions, body, now);
        self.questions += 1;
        if !question.can_reach_service() {
            return Err(self.no_line("the topology manager", service));
        }
        self.run(&mut question, "the topology manager", |answer, _| Ok(Some(answer)))
    }

    fn find(&mut self, name: &Name) -> Result<(Found, Routes)> {
        let domain = self.place.domain();
        if domain.scope_key(name.scope()).is_none() {
            return Err(Error::usage(unknown_scope(domain, name.scope())));
        }
        let now = self.sockets.clock.now();
        let (member, wanted) = (self.member.clone(), Wanted::Name(name.clone()));
        let mut subscription = Subscription::new(member, wanted, self.paths, now);
        if !subscription.can_reach_services() {
            return Err(self.no_line("the rendezvous", domain.rendezvous));
        }
        let mut found = None;
        self.run(&mut subscription, "the rendezvous", |event, silent| {
            match event {
                Event::Found(it) => found = Some(it),
                Event::Routes(routes) => return Ok(found.take().map(|found| (found, routes))),
                Event::Unknown => return Err(Error::not_found(format!("nobody publishes {name} now"))),
                Event::Refused(reason) => return Err(refused(reason)),
                Event::Silent(ServiceKind::Topology) => *silent = "the topology manager",
                Event::Silent(_) | Event::Answers(_) => {}
            }
            Ok(None)
        })
    }

    fn no_line(&self, what: &str, service: Service) -> Error {
        Error::unreachable(format!(
            "in the domain {} no line leads from {} to {what} on {}",
            self.place.domain().name,
            self.place.node_name(),
            self.place.name_of(service.node)
        ))
    }

    /// Runs a machine until `tell` returns the wanted result. `service` is the service whose answer is
    /// awaited; `tell` may replace it.
    fn run<M, T>(
        &mut self,
        machine: &mut M,
        service: &'static str,
        mut tell: impl FnMut(M::Event, &mut &'static str) -> Result<Option<T>>,
    ) -> Result<T>
    where
        M: for<'a> Machine<Input<'a> = &'a [u8], Transmit = Sent>,
    {
        let mut service = service;
        loop {
            let now = self.sockets.clock.now();
            let mut events = Vec::new();
            let due = drain(machine, now, self.place, &self.sockets, |event| events.push(event));
            for event in events {
                if let Some(wanted) = tell(event, &mut service)? {
                    return Ok(wanted);
                }
            }
            if self.stop.is_stopped() {
                return Err(Error::interrupted("interrupted"));
            }
            if now >= self.give_up_at {
                return Err(Error::unreachable(format!(
                    "{service} of {} does not answer {}",
                    self.place.domain().name,
                    self.place.node_name()
                )));
            }
            listen(machine, self.place, &mut self.sockets, due.min(self.give_up_at), self.stop)?;
        }
    }
}

fn refused(reason: u8) -> Error {
    Error::system(format!("a service of the network says: {}", refusal::text(reason)))
}

fn not_asked_for(body: &Body) -> Error {
    match body {
        Body::Refused { reason } => refused(*reason),
        _ => Error::system("the topology manager answers something else than was asked for"),
    }
}
