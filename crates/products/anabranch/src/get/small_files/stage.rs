//! Connects the transfer of small files with the event loop.

use anabranch_algo::{Machine as _, Time};
use anabranch_http::client::Event as Answer;
use anabranch_mirror::file_scheduler::Input;

use super::SmallFiles;
use crate::get::event_loop::{Context, Liveness, Poll, Stage};
use crate::get::link_policy::Carried;
use crate::get::server_status::faults;
use crate::{Progress, Result};

impl Stage for SmallFiles<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        self.written()?;
        let mut until = Time::NEVER;
        // While the writer has no room no response is read, so no server counts as silent.
        if self.writer.has_room() {
            if std::mem::take(&mut self.is_paused) {
                self.connections.machine.handle(cx.now(), Input::Resumed);
            }
            until = self.drain(cx);
        }
        if self.connections.machine.remaining() == 0 && self.writer.waiting() == 0 {
            return Ok(Poll::Done);
        }
        self.is_paused |= !self.writer.has_room();
        Ok(Poll::Wait(if self.is_paused { Time::NEVER } else { until }))
    }

    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<Answer>) -> Result<()> {
        let now = cx.now();
        for event in events.drain(..) {
            match event {
                Answer::Head { id, head } => self.head(now, id, &head, cx),
                Answer::Body { id, bytes } => self.body(now, id, &bytes, cx),
                // Only requests for metadata get an opening.
                Answer::Opening { .. } => {}
                Answer::Done { id } => self.done(now, id, cx.observer),
                Answer::Failed { id, error } => self.failed(now, id, &error, cx.observer),
                Answer::Sample { route, sample } => {
                    self.connections
                        .machine
                        .handle(now, Input::Sample { connection: route, rtt: sample.rtt });
                }
            }
        }
        Ok(())
    }

    fn on_links(&mut self, cx: &mut Context<'_, '_>) {
        self.connections.refresh(self.servers.iter().map(|server| &server.url), cx);
    }

    fn carried(&self) -> Option<Carried> {
        Some(self.connections.carried())
    }

    fn listens(&self) -> bool {
        !self.is_paused
    }

    fn liveness(&mut self) -> Option<Liveness> {
        let bytes = self.connections.received_bytes();
        // A slow disk must not count as silence of the servers.
        Some(Liveness { who: "mirror", heard: bytes + self.answers, busy: self.writer.waiting() > 0 })
    }

    fn faults(&self) -> Option<String> {
        faults(self.servers.iter().map(|server| &server.status))
    }

    fn give_up(&mut self, why: String) -> Result<()> {
        self.gave_up = Some(why);
        Ok(())
    }

    fn progress(&mut self, now: Time) -> Option<Progress> {
        Some(self.snapshot(now, false))
    }
}
