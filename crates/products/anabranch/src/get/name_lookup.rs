//! Looks up the names of hosts before a stage needs their addresses.

use anabranch_algo::Time;

use super::event_loop::{Context, EventLoop, Poll, Stage};
use crate::Result;

/// A stage that waits until each of these names has been looked up, or cannot be.
struct Lookup<'a> {
    hosts: &'a [String],
    interrupted: &'static str,
}

impl Stage for Lookup<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        // Counting the missing names asks for all of them at once.
        let missing = self.hosts.iter().filter(|host| cx.world.resolve(host).is_none()).count();
        Ok(if missing == 0 { Poll::Done } else { Poll::Wait(Time::NEVER) })
    }

    fn interrupted(&self) -> &'static str {
        self.interrupted
    }
}

/// Looks up names. When this returns, the answers of [`World::resolve`](super::world::World::resolve) for
/// them are final.
///
/// # Errors
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted), with the message `interrupted`, if the caller
/// stops.
pub(super) fn look_up(
    hosts: &[String],
    interrupted: &'static str,
    events: &mut EventLoop<'_, '_>,
) -> Result<()> {
    events.world.forget_failures();
    events.run(&mut Lookup { hosts, interrupted })
}
