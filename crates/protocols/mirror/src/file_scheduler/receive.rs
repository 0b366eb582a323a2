//! How requests end: with a file, or with a failure.

use anabranch_algo::Time;

use super::api::{Event, Failure};
use super::{FileScheduler, FileState};
use crate::fetch_id::ConnectionId;

impl FileScheduler {
    /// Handles a whole file that has arrived; `valid` if its bytes are right.
    pub(super) fn done(&mut self, now: Time, p: ConnectionId, n: usize, valid: bool) {
        let Some(request) = self.connections[p].answered(now, n) else { return };
        let file = request.file;
        if !valid {
            self.on_bad_content(p, &request);
            return;
        }
        let entry = &mut self.files[file];
        let counters = &mut self.connections[p].counters;
        if entry.state == FileState::Done {
            counters.duplicate_bytes += entry.bytes;
            return;
        }
        // A copy of a lost file that arrives late is used.
        if entry.state != FileState::Lost {
            self.left -= 1;
        }
        entry.state = FileState::Done;
        counters.bytes += entry.bytes;
        self.leave_queue(file);
        self.events.push_back(Event::Complete { file, fetch: request.id });
    }

    /// Handles a request that has failed, before or after its head.
    pub(super) fn failed(&mut self, now: Time, p: ConnectionId, n: usize, failure: Failure) {
        let Some(request) = self.connections[p].take(n) else { return };
        self.connections[p].counters.failures += 1;
        if failure != Failure::Broken {
            // The server has answered, so the silence ends.
            self.connections[p].on_data(now, usize::MAX, 0);
        }
        let file = request.file;
        match failure {
            Failure::Broken => {
                // Requests behind this one fail together with it and do not count.
                if self.connections[p].is_new_failure(&request) {
                    self.connections[p].fail(now);
                    self.leave_queue(file);
                    self.files[file].tries += 1;
                }
            }
            Failure::Busy { retry } => {
                let is_new_failure = self.connections[p].is_new_failure(&request);
                self.connections[p].busy(now, retry, is_new_failure);
            }
            Failure::NotFound => {
                self.connections[p].on_success();
                if request.unpipelined {
                    // The server lacks the file also for a request that was alone. So the wrong answer before
                    // was perhaps no mix-up.
                    self.set_sequential(p, false);
                }
                self.leave_queue(file);
                if let Some(url) = self.files[file].urls.get_mut(request.url_index) {
                    url.gone = true;
                }
            }
            Failure::Useless => {
                self.requeue(file);
                self.close_server(self.connections[p].server);
                return;
            }
        }
        self.requeue(file);
    }
}
