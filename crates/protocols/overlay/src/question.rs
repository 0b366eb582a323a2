//! A question that a host asks a service once, and its answer.

use anabranch_algo::{Machine, Output, Time};

use crate::call::{Call, Reach, Sent, draw};
use crate::client::Member;
use crate::domain::Service;
use crate::message::{Body, Message};

/// The machine of a question; see the [module](self).
#[derive(Debug)]
pub struct Question {
    call: Call,
    reach: Reach,
    answer: Option<Body>,
    answered: bool,
}

impl Question {
    /// Creates a question of a member to a service of its domain. `number` tells the questions of one member
    /// apart.
    #[must_use]
    pub fn new(member: &Member, service: Service, number: u64, body: Body, now: Time) -> Self {
        let message = Message { call: draw(&member.secret, number), body };
        Self {
            call: Call::new(&message, member.port, now),
            reach: Reach::new(&member.domain, member.node, service),
            answer: None,
            answered: false,
        }
    }

    /// Whether the domain's file has a way to the service.
    #[must_use]
    pub fn can_reach_service(&self) -> bool {
        !self.reach.is_empty()
    }
}

impl Machine for Question {
    /// The payload of a frame.
    type Input<'a> = &'a [u8];
    type Transmit = Sent;
    /// The answer, which is reported once.
    type Event = Body;

    fn handle(&mut self, _: Time, bytes: &[u8]) {
        if let Ok(Message { call, body }) = Message::parse(bytes)
            && call == self.call.id
            && !self.answered
        {
            (self.answer, self.answered) = (Some(body), true);
        }
    }

    fn poll(&mut self, now: Time) -> Output<Sent, Body> {
        if let Some(answer) = self.answer.take() {
            return Output::Event(answer);
        }
        if self.answered {
            return Output::Wait(Time::NEVER);
        }
        match self.call.poll(now, &self.reach) {
            Some(sent) => Output::Send(sent),
            None => Output::Wait(self.call.due()),
        }
    }
}
