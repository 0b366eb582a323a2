//! Asks the services of a network, from one of its hosts, one question after the other.

use anabranch_algo::{Machine, Span, Time};
use anabranch_overlay::call::Sent;
use anabranch_overlay::client::Member;
use anabranch_overlay::domain::Service;
use anabranch_overlay::message::{Body, refusal};
use anabranch_overlay::publication::Scope;
use anabranch_overlay::question::Question;

use super::agent::{drain, listen};
use super::line_sockets::LineSockets;
use super::place::{Place, unknown_scope};
use crate::{Error, Result, Stop};

/// A service that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedService {
    /// The rendezvous.
    Rendezvous,
    /// The topology manager.
    Topology,
}

impl AskedService {
    const fn name(self) -> &'static str {
        match self {
            Self::Rendezvous => "the rendezvous",
            Self::Topology => "the topology manager",
        }
    }

    fn of(self, place: &Place) -> Service {
        match self {
            Self::Rendezvous => place.domain().rendezvous,
            Self::Topology => place.domain().topology,
        }
    }

    /// Returns the error of an answer that is none to the question.
    pub(super) fn not_asked_for(self, body: &Body) -> Error {
        match body {
            Body::Refused { reason } => refused(*reason),
            _ => Error::system(format!("{} answers something else than was asked for", self.name())),
        }
    }
}

/// Makes the error of a service's refusal.
pub(super) fn refused(reason: u8) -> Error {
    Error::system(format!("a service of the network says: {}", refusal::text(reason)))
}

/// Checks that a node is a host, because services answer hosts only.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is a forwarder.
pub(super) fn must_be_host(place: &Place) -> Result<()> {
    let (domain, name) = (place.domain(), place.node_name());
    if domain.is_forwarder(place.node()) {
        return Err(Error::usage(format!("{name} forwards in the domain {}: hosts are told", domain.name)));
    }
    Ok(())
}

/// A host that asks.
pub(super) struct Asker<'a> {
    place: &'a Place,
    sockets: LineSockets,
    pub(super) member: Member,
    questions: u64,
    give_up_at: Time,
    stop: &'a Stop,
}

impl<'a> Asker<'a> {
    /// Makes a host that asks until `within` has passed.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the node is a forwarder,
    /// [`ErrorKind::System`](crate::ErrorKind::System) if it cannot listen.
    pub(super) fn new(place: &'a Place, within: Span, stop: &'a Stop) -> Result<Self> {
        must_be_host(place)?;
        let sockets = LineSockets::bind(&place.addresses(), 0)?;
        let member = place.member(sockets.port(), sockets.clock)?;
        let give_up_at = sockets.clock.now() + within;
        Ok(Self { place, sockets, member, questions: 0, give_up_at, stop })
    }

    /// Returns the time by the asker's clock.
    pub(super) fn now(&self) -> Time {
        self.sockets.clock.now()
    }

    /// Moves the deadline to `within` from now.
    pub(super) fn extend(&mut self, within: Span) {
        self.give_up_at = self.now() + within;
    }

    /// Checks that the domain has a scope.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it has not.
    pub(super) fn must_have_scope(&self, scope: &Scope) -> Result<()> {
        let domain = self.place.domain();
        match domain.scope_key(scope) {
            Some(_) => Ok(()),
            None => Err(Error::usage(unknown_scope(domain, scope))),
        }
    }

    /// Asks a service a question and returns its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if it does not answer in time or no line
    /// leads to it; [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the stop is used.
    pub(super) fn ask(&mut self, service: AskedService, body: Body) -> Result<Body> {
        let its = service.of(self.place);
        let mut question = Question::new(&self.member, its, self.questions, body, self.now());
        self.questions += 1;
        if !question.can_reach_service() {
            return Err(self.no_line(service));
        }
        self.run(&mut question, service, |answer, _| Ok(Some(answer)))
    }

    /// Makes the error that no line leads to a service.
    pub(super) fn no_line(&self, service: AskedService) -> Error {
        Error::unreachable(format!(
            "in the domain {} no line leads from {} to {} on {}",
            self.place.domain().name,
            self.place.node_name(),
            service.name(),
            self.place.name_of(service.of(self.place).node)
        ))
    }

    /// Runs a machine until `tell` returns the wanted result. `service` is the service whose answer is
    /// awaited; `tell` may replace it.
    pub(super) fn run<M, T>(
        &mut self,
        machine: &mut M,
        service: AskedService,
        mut tell: impl FnMut(M::Event, &mut AskedService) -> Result<Option<T>>,
    ) -> Result<T>
    where
        M: for<'b> Machine<Input<'b> = &'b [u8], Transmit = Sent>,
    {
        let mut service = service;
        loop {
            let now = self.now();
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
                    "{} of {} does not answer {}",
                    service.name(),
                    self.place.domain().name,
                    self.place.node_name()
                )));
            }
            listen(machine, self.place, &mut self.sockets, due.min(self.give_up_at), self.stop)?;
        }
    }
}
