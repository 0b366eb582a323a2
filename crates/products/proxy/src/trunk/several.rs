//! The frames with which a client chooses among several servers: load, distance of an origin, other servers.

use anabranch_algo::Span;

use crate::trunk::frame::{ASK_DISTANCE, Announced, DISTANCE, Frame, LOAD, ProtocolError, SERVER};
use crate::trunk::{Destination, Event, Side, Trunk};

impl Trunk {
    /// Announces the load of this server.
    pub fn announce(&mut self, load: Announced) {
        if self.side == Side::Server {
            self.push_control(Frame::Load(load));
        }
    }

    /// Measures the round trip now, unless a measurement goes on.
    pub const fn measure(&mut self) {
        self.liveness.measure();
    }

    /// Returns the shortest round trip of the last minute or two, if any was measured.
    #[must_use]
    pub fn shortest_rtt(&self) -> Option<Span> {
        self.liveness.shortest_rtt()
    }

    /// Names another server to the client. With `is_wanted` the client is to go there.
    pub fn name_server(&mut self, server: Destination, is_wanted: bool) {
        if self.side == Side::Server {
            self.push_control(Frame::Server { server, is_wanted });
        }
    }

    /// Asks for the round trip between the server and the origin of a stream that was just opened.
    /// [`Event::Distance`] follows, unless the server does not know it or cannot connect.
    pub fn ask_distance(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream)
            && self.side == Side::Client
            && !std::mem::replace(&mut state.wants_distance, true)
        {
            self.push_control(Frame::AskDistance { stream });
        }
    }

    /// Whether the client has asked for the distance of this stream's origin.
    #[must_use]
    pub fn wants_distance(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.wants_distance)
    }

    /// Tells the client the round trip to the origin of this stream, if it has asked.
    pub fn tell_distance(&mut self, stream: u32, rtt: Span) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if self.side == Side::Server && std::mem::take(&mut state.wants_distance) && state.reset.is_none() {
            let us = u32::try_from(rtt.as_nanos() / 1_000).unwrap_or(u32::MAX);
            self.push_control(Frame::Distance { stream, us });
        }
    }

    /// Handles one of the frames of this module.
    pub(super) fn on_several(&mut self, frame: Frame) -> Result<(), ProtocolError> {
        match (frame, self.side) {
            (Frame::Load(load), Side::Client) => self.events.push_back(Event::Load(load)),
            (Frame::Server { server, is_wanted }, Side::Client) => {
                self.events.push_back(Event::Server { server, is_wanted });
            }
            (Frame::Distance { stream, us }, Side::Client) => {
                self.check_known(stream, DISTANCE)?;
                // The stream may have ended in the meantime.
                let Some(state) = self.streams.get_mut(&stream) else { return Ok(()) };
                if !std::mem::take(&mut state.wants_distance) {
                    return Err(ProtocolError::Unasked(DISTANCE));
                }
                let rtt = Span::from_nanos(u64::from(us) * 1_000);
                self.events.push_back(Event::Distance { stream, rtt });
            }
            (Frame::AskDistance { stream }, Side::Server) => {
                self.check_known(stream, ASK_DISTANCE)?;
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.wants_distance = true;
                }
            }
            (Frame::Load(_), _) => return Err(ProtocolError::Unasked(LOAD)),
            (Frame::Server { .. }, _) => return Err(ProtocolError::Unasked(SERVER)),
            (Frame::Distance { .. }, _) => return Err(ProtocolError::Unasked(DISTANCE)),
            (_, _) => return Err(ProtocolError::Unasked(ASK_DISTANCE)),
        }
        Ok(())
    }
}
