//! What a transfer does because somebody reads its content in order.

use super::Driver;
use crate::get::sink::Sink;

impl Driver {
    /// Lets the schedulers go as far ahead of the reader as there is room, and no further. While it is the
    /// reader that is slow, nobody is asked, and nobody is blamed for not answering.
    pub(super) fn follow_reader(&mut self, arrivals: &Sink) {
        let Some((download, buffer)) = arrivals.reading() else { return };
        if let Some(end_block) = buffer.new_horizon() {
            match &mut self.web {
                Some(web) if web.is_alone() => web.set_horizon(end_block),
                _ => self.subscriber.set_horizon(download, end_block),
            }
        }
        if buffer.can_be_read() {
            self.silence.restart(self.clock.now());
        }
    }
}
