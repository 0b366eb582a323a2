//! What an error of one request means for its file, its route and its server.

use algo::Time;
use http_world::client::{FetchId, Trouble};
use mirror::files::{Failure, Input, WRONG_MAX};

use super::{FileJob, SmallFiles};
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::filenames::show;
use crate::get::routes::{has_others, route_of};
use crate::get::server_status::{code, describe, pause};

impl SmallFiles<'_> {
    /// A server is not asked from this local address any more.
    fn shut(&mut self, now: Time, p: usize, trouble: &Trouble, observer: &mut Observer<'_>) {
        let Some((mirror, via)) = self.routes.get(p).map(|way| (way.mirror, way.via.clone())) else { return };
        for (way, end) in self.routes.iter_mut().enumerate() {
            if end.mirror == mirror && end.via == via {
                end.shut = Some(trouble.to_string());
                self.machine.handle(now, Input::Down { way });
            }
        }
        let name = &self.servers[usize::from(mirror)].status.name;
        observer.notice(&format!("{name} via {via}: {trouble}: not asked over this way any more"));
    }

    /// Whether a refusal is taken to be of this file alone: unless there is another route and this one has
    /// never been right, or there have been too many and the server has never been right.
    fn is_of_the_file(
        &mut self,
        p: usize,
        item: &FileJob,
        trouble: &Trouble,
        observer: &mut Observer<'_>,
    ) -> bool {
        let is_good = self.machine.ways().nth(p).is_some_and(|way| way.counters.bytes > 0);
        if !is_good && has_others(&self.routes, p) {
            return false;
        }
        let Some(way) = self.routes.get(p) else { return false };
        let seen = &mut self.servers[usize::from(way.mirror)];
        seen.refusals += 1;
        if !seen.is_right && seen.refusals >= WRONG_MAX {
            return false;
        }
        if !matches!(trouble, Trouble::Forbidden { .. })
            && seen.refused.replace(trouble.to_string()).is_none()
        {
            let name = &seen.status.name;
            observer.notice(&format!("{name}: {}: {trouble}: not asked for it again", show(&item.name)));
        }
        true
    }

    pub(super) fn failed(&mut self, now: Time, id: FetchId, trouble: &Trouble, observer: &mut Observer<'_>) {
        let file = self.machine.file_of(id);
        let Some(item) = self.item(id) else { return };
        self.coming.remove(&id);
        let p = route_of(id);
        // Whoever only says that it cannot now may say so for ever.
        self.answers += u64::from(code(trouble) != ErrorKind::Unreachable);
        if let Some(way) = self.routes.get(p) {
            self.servers[usize::from(way.mirror)].status.answered(trouble);
        }
        if let (Trouble::Forbidden { .. }, Some(way), Some(file)) = (trouble, self.routes.get(p), file) {
            let seen = &mut self.servers[usize::from(way.mirror)];
            let why = describe(trouble, seen.trusted);
            if seen.forbids.is_none() {
                observer.notice(&format!("{}: {}: {why}", seen.status.name, show(&item.name)));
            }
            seen.forbids = Some(why);
            self.refused.insert(file, way.mirror);
        }
        let failure = match trouble {
            Trouble::Fault { retry: Some(_), .. } | Trouble::Busy { .. } => {
                Failure::Busy { retry: pause(trouble) }
            }
            Trouble::Unreachable(_) | Trouble::Broken(_) | Trouble::Fault { .. } => Failure::Broken,
            // Some say that of whatever they do not have.
            Trouble::Gone(_) | Trouble::Forbidden { status: 403, .. } => Failure::Lacking,
            // Too long for this file: perhaps it is another one's answer.
            Trouble::Refused(_) if !self.machine.is_alone(id) => {
                self.machine.handle(now, Input::Done { fetch: id, right: false });
                return;
            }
            Trouble::Forbidden { status: 401, .. } | Trouble::Refused(_) | Trouble::Encoded(_)
                if self.is_of_the_file(p, item, trouble, observer) =>
            {
                Failure::Lacking
            }
            // A portal or a meddling proxy may be on this route alone.
            _ if has_others(&self.routes, p) => {
                self.machine.handle(now, Input::Failed { fetch: id, failure: Failure::Broken });
                self.shut(now, p, trouble, observer);
                return;
            }
            _ => Failure::Useless,
        };
        if failure == Failure::Useless
            && let Some(way) = self.routes.get(p)
        {
            let seen = &mut self.servers[usize::from(way.mirror)];
            seen.status.give_up(trouble, seen.trusted, observer);
        }
        self.machine.handle(now, Input::Failed { fetch: id, failure });
    }
}
