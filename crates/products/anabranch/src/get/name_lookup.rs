//! Names are looked up before what needs their addresses.

use anabranch_algo::Time;

use super::event_loop::{Context, EventLoop, Poll, Stage};
use crate::Result;

/// Waits until all of these names have been looked up, or cannot be.
struct Lookup<'a> {
    hosts: &'a [String],
    interrupted: &'static str,
}

impl Stage for Lookup<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        // All of them are asked for at once.
        let missing = self.hosts.iter().filter(|host| cx.world.resolve(host).is_none()).count();
        Ok(if missing == 0 { Poll::Done } else { Poll::Wait(Time::NEVER) })
    }

    fn interrupted(&self) -> &'static str {
        self.interrupted
    }
}

/// Looks names up: what [`World::resolve`](super::world::World::resolve) says of them is final then.
///
/// # Errors
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted), with this message, if the caller stops.
pub(super) fn look_up(
    hosts: &[String],
    interrupted: &'static str,
    events: &mut EventLoop<'_, '_>,
) -> Result<()> {
    events.world.forget_failures();
    events.run(&mut Lookup { hosts, interrupted })
}
