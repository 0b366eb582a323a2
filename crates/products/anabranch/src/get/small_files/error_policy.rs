//! What an error of one request means for its file, its route and its server.

use anabranch_algo::{Machine as _, Time};
use anabranch_http::client::{FetchError, FetchId};
use anabranch_mirror::fetch_id::connection_of;
use anabranch_mirror::file_scheduler::{BAD_FILES_MAX, Failure, Input};

use super::{FileJob, SmallFiles};
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::filenames::show;
use crate::get::routes::has_others;
use crate::get::server_status::{code, describe, pause};

impl SmallFiles<'_> {
    /// Shuts every route between the server and the local end of route `p`.
    fn shut(&mut self, now: Time, p: usize, error: &FetchError, observer: &mut Observer<'_>) {
        let Some((mirror, via)) =
            self.connections.routes.get(p).map(|route| (route.mirror, route.via.clone()))
        else {
            return;
        };
        for (connection, end) in self.connections.routes.iter_mut().enumerate() {
            if end.mirror == mirror && end.via == via {
                end.shut = Some(error.to_string());
                self.connections.machine.handle(now, Input::Down { connection });
            }
        }
        let name = &self.servers[usize::from(mirror)].status.name;
        observer.notice(&format!("{name} via {via}: {error}: not asked over this route any more"));
    }

    /// Whether a refusal concerns this file alone, and not its route or server. It does not if route `p` has
    /// delivered no file and the server can be asked from another local end, or if the server has never
    /// delivered a file and has refused [`BAD_FILES_MAX`] of them.
    fn is_of_the_file(
        &mut self,
        p: usize,
        item: &FileJob,
        error: &FetchError,
        observer: &mut Observer<'_>,
    ) -> bool {
        let is_good = self
            .connections
            .machine
            .connections()
            .nth(p)
            .is_some_and(|connection| connection.counters.bytes > 0);
        if !is_good && has_others(&self.connections.routes, p) {
            return false;
        }
        let Some(route) = self.connections.routes.get(p) else { return false };
        let server = &mut self.servers[usize::from(route.mirror)];
        server.refusals += 1;
        if !server.is_right && server.refusals >= BAD_FILES_MAX {
            return false;
        }
        if !matches!(error, FetchError::Forbidden { .. })
            && server.refused.replace(error.to_string()).is_none()
        {
            let name = &server.status.name;
            observer.notice(&format!("{name}: {}: {error}: not asked for it again", show(&item.name)));
        }
        true
    }

    pub(super) fn failed(&mut self, now: Time, id: FetchId, error: &FetchError, observer: &mut Observer<'_>) {
        let file = self.connections.machine.file_of(id);
        let Some(item) = self.item(id) else { return };
        self.coming.remove(&id);
        let p = connection_of(id);
        // A server may answer for ever that it is unavailable for now, so this does not count as an answer.
        self.answers += u64::from(code(error) != ErrorKind::Unreachable);
        if let Some(route) = self.connections.routes.get(p) {
            self.servers[usize::from(route.mirror)].status.answered(error);
        }
        if let (FetchError::Forbidden { .. }, Some(route), Some(file)) =
            (error, self.connections.routes.get(p), file)
        {
            let server = &mut self.servers[usize::from(route.mirror)];
            let why = describe(error, server.trusted);
            if server.forbids.is_none() {
                observer.notice(&format!("{}: {}: {why}", server.status.name, show(&item.name)));
            }
            server.forbids = Some(why);
            self.refused.insert(file, route.mirror);
        }
        let failure = match error {
            FetchError::ServerError { retry: Some(_), .. } | FetchError::Busy { .. } => {
                Failure::Busy { retry: pause(error) }
            }
            FetchError::Unreachable(_) | FetchError::Broken(_) | FetchError::ServerError { .. } => {
                Failure::Broken
            }
            // Some servers answer with status 403 for every file that they do not have.
            FetchError::NotFound(_) | FetchError::Forbidden { status: 403, .. } => Failure::NotFound,
            // The response is too long for this file; with pipelining it may belong to another request.
            FetchError::Refused(_) if !self.connections.machine.was_unpipelined(id) => {
                self.connections.machine.handle(now, Input::Done { fetch: id, valid: false });
                return;
            }
            FetchError::Forbidden { status: 401, .. } | FetchError::Refused(_) | FetchError::Encoded(_)
                if self.is_of_the_file(p, item, error, observer) =>
            {
                Failure::NotFound
            }
            // A captive portal or an intercepting proxy may be on this route alone.
            _ if has_others(&self.connections.routes, p) => {
                self.connections.machine.handle(now, Input::Failed { fetch: id, failure: Failure::Broken });
                self.shut(now, p, error, observer);
                return;
            }
            _ => Failure::Useless,
        };
        if failure == Failure::Useless
            && let Some(route) = self.connections.routes.get(p)
        {
            let server = &mut self.servers[usize::from(route.mirror)];
            server.status.give_up(error, server.trusted, observer);
        }
        self.connections.machine.handle(now, Input::Failed { fetch: id, failure });
    }
}
