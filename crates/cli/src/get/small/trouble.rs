//! What is made of an answer that is no file.

use algo::{Machine as _, Time};
use anabranch_http::client::{FetchError, FetchId};
use mirror::file_scheduler::{BAD_FILES_MAX, Failure, Input};

use super::{Item, Small};
use crate::exit::Code;
use crate::get::standing::{code, pause, told};
use crate::get::ways::{has_others, way_of};
use crate::names::show;
use crate::view::View;

impl Small<'_> {
    /// A server is not asked from this local address any more.
    fn shut(&mut self, now: Time, p: usize, error: &FetchError, view: &mut View) {
        let Some((mirror, via)) = self.ways.get(p).map(|way| (way.mirror, way.via.clone())) else { return };
        for (way, end) in self.ways.iter_mut().enumerate() {
            if end.mirror == mirror && end.via == via {
                end.shut = Some(error.to_string());
                self.machine.handle(now, Input::Down { connection: way });
            }
        }
        let name = &self.servers[usize::from(mirror)].standing.name;
        view.note(&format!("{name} via {via}: {error}: not asked over this way any more"));
    }

    /// Whether a refusal is taken to be of this file alone: unless there is another way and this one has
    /// never been right, or there have been too many and the server has never been right.
    fn is_of_the_file(&mut self, p: usize, item: &Item, error: &FetchError, view: &mut View) -> bool {
        let is_good = self.machine.connections().nth(p).is_some_and(|way| way.counters.bytes > 0);
        if !is_good && has_others(&self.ways, p) {
            return false;
        }
        let Some(way) = self.ways.get(p) else { return false };
        let seen = &mut self.servers[usize::from(way.mirror)];
        seen.refusals += 1;
        if !seen.is_right && seen.refusals >= BAD_FILES_MAX {
            return false;
        }
        if !matches!(error, FetchError::Forbidden { .. }) && seen.refused.replace(error.to_string()).is_none()
        {
            let name = &seen.standing.name;
            view.note(&format!("{name}: {}: {error}: not asked for it again", show(&item.name)));
        }
        true
    }

    pub(super) fn failed(&mut self, now: Time, id: FetchId, error: &FetchError, view: &mut View) {
        let file = self.machine.file_of(id);
        let Some(item) = self.item(id) else { return };
        self.coming.remove(&id);
        let p = way_of(id);
        // Whoever only says that it cannot now may say so for ever.
        self.answers += u64::from(code(error) != Code::Unreachable);
        if let Some(way) = self.ways.get(p) {
            self.servers[usize::from(way.mirror)].standing.answered(error);
        }
        if let (FetchError::Forbidden { .. }, Some(way), Some(file)) = (error, self.ways.get(p), file) {
            let seen = &mut self.servers[usize::from(way.mirror)];
            let why = told(error, seen.trusted);
            if seen.forbids.is_none() {
                view.note(&format!("{}: {}: {why}", seen.standing.name, show(&item.name)));
            }
            seen.forbids = Some(why);
            self.refused.insert(file, way.mirror);
        }
        let failure = match error {
            FetchError::ServerError { retry: Some(_), .. } | FetchError::Busy { .. } => {
                Failure::Busy { retry: pause(error) }
            }
            FetchError::Unreachable(_) | FetchError::Broken(_) | FetchError::ServerError { .. } => {
                Failure::Broken
            }
            // Some say that of whatever they do not have.
            FetchError::NotFound(_) | FetchError::Forbidden { status: 403, .. } => Failure::NotFound,
            // Too long for this file: perhaps it is another one's answer.
            FetchError::Refused(_) if !self.machine.was_unpipelined(id) => {
                self.machine.handle(now, Input::Done { fetch: id, valid: false });
                return;
            }
            FetchError::Forbidden { status: 401, .. } | FetchError::Refused(_) | FetchError::Encoded(_)
                if self.is_of_the_file(p, item, error, view) =>
            {
                Failure::NotFound
            }
            // A portal or a meddling proxy may be on this way alone.
            _ if has_others(&self.ways, p) => {
                self.machine.handle(now, Input::Failed { fetch: id, failure: Failure::Broken });
                self.shut(now, p, error, view);
                return;
            }
            _ => Failure::Useless,
        };
        if failure == Failure::Useless
            && let Some(way) = self.ways.get(p)
        {
            let seen = &mut self.servers[usize::from(way.mirror)];
            seen.standing.give_up(error, seen.trusted, view);
        }
        self.machine.handle(now, Input::Failed { fetch: id, failure });
    }
}
