//! What a fetch does because somebody reads its content in order.

use super::ContentFetch;
use crate::get::sink::Sink;

impl ContentFetch {
    /// Lets the schedulers go as far ahead of the reader as there is room, and no further. Whether it is the
    /// reader that is slow: then nobody is asked, and nobody is to be blamed for not answering.
    pub(super) fn follow_reader(&mut self, arrivals: &Sink) -> bool {
        let Some((download, buffer)) = arrivals.reading() else { return false };
        if let Some(end_block) = buffer.new_horizon() {
            match &mut self.web {
                Some(web) if web.is_alone() => web.set_horizon(end_block),
                _ => self.subscriber.set_horizon(download, end_block),
            }
        }
        buffer.can_be_read()
    }
}
