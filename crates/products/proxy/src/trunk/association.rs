//! The request for a leg.

use crate::trunk::frame::{ASK_LEG, LEG};
use crate::trunk::frame::{Association, Frame, ProtocolError};
use crate::trunk::{Event, Side, Trunk};

impl Trunk {
    /// Requests a leg at the client, one at a time. [`Event::Leg`] follows, unless the server knows no legs.
    pub fn ask_leg(&mut self, version: u16) {
        if self.side == Side::Client && !std::mem::replace(&mut self.is_leg_asked, true) {
            self.push_control(Frame::AskLeg { version });
        }
    }

    /// Answers [`Event::LegAsked`] at the server.
    pub fn answer_leg(&mut self, association: Association) {
        if self.side == Side::Server && std::mem::take(&mut self.is_leg_asked) {
            self.push_control(Frame::Leg(association));
        }
    }

    pub(super) fn on_ask_leg(&mut self, version: u16) -> Result<(), ProtocolError> {
        if self.side == Side::Client || std::mem::replace(&mut self.is_leg_asked, true) {
            return Err(ProtocolError::Unasked(ASK_LEG));
        }
        self.events.push_back(Event::LegAsked(version));
        Ok(())
    }

    pub(super) fn on_leg(&mut self, association: Association) -> Result<(), ProtocolError> {
        if self.side == Side::Server || !std::mem::take(&mut self.is_leg_asked) {
            return Err(ProtocolError::Unasked(LEG));
        }
        self.events.push_back(Event::Leg(association));
        Ok(())
    }
}
