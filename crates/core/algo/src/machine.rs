//! The contract of everything that lives in time: an endpoint, a link, a queue, a source.

use crate::Time;

/// A protocol endpoint, a link, a router: code that is told the time and never asks for it.
///
/// **The law of one mutation.** Mutate ([`handle`](Self::handle)), then drain [`poll`](Self::poll) until it
/// answers [`Output::Wait`], then mutate again. A machine may check this in debug builds. Between two
/// mutations the time given must not run backwards.
pub trait Machine {
    /// An input: anything that the world may tell the machine.
    type Input<'a>;
    /// Data that the machine wants to be sent. Payload is a view (an object, an offset, a length) wherever
    /// that saves a copy.
    type Transmit;
    /// An event that the machine reports. Machines never log; worlds write events down.
    type Event;

    /// Tells the machine that something happened at `now`.
    fn handle(&mut self, now: Time, input: Self::Input<'_>);

    /// Asks for the next thing to do. After [`Output::Wait`] nothing more happens before that time or the
    /// next [`handle`](Self::handle).
    fn poll(&mut self, now: Time) -> Output<Self::Transmit, Self::Event>;
}

/// A wish of a machine to its world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T, E> {
    /// Send this.
    Send(T),
    /// Report this event.
    Event(E),
    /// Nothing is to be done before this time ([`Time::NEVER`] if only an input can change that).
    Wait(Time),
}
