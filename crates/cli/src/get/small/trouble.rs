//! What is made of an answer that is no file.

use algo::Time;
use http_world::client::{FetchId, Trouble};
use mirror::files::{Failure, Input, WRONG_MAX};

use super::{Item, Small};
use crate::exit::Code;
use crate::get::standing::{code, pause, told};
use crate::get::ways::{has_others, way_of};
use crate::names::show;
use crate::view::View;

impl Small<'_> {
    /// A server is not asked from this local address any more.
    fn shut(&mut self, now: Time, p: usize, trouble: &Trouble, view: &mut View) {
        let Some((mirror, via)) = self.ways.get(p).map(|way| (way.mirror, way.via.clone())) else { return };
        for (way, end) in self.ways.iter_mut().enumerate() {
            if end.mirror == mirror && end.via == via {
                end.shut = Some(trouble.to_string());
                self.machine.handle(now, Input::Down { way });
            }
        }
        let name = &self.servers[usize::from(mirror)].standing.name;
        view.note(&format!("{name} via {via}: {trouble}: not asked over this way any more"));
    }

    /// Whether a refusal is taken to be of this file alone: unless there is another way and this one has
    /// never been right, or there have been too many and the server has never been right.
    fn is_of_the_file(&mut self, p: usize, item: &Item, trouble: &Trouble, view: &mut View) -> bool {
        let is_good = self.machine.ways().nth(p).is_some_and(|way| way.counters.bytes > 0);
        if !is_good && has_others(&self.ways, p) {
            return false;
        }
        let Some(way) = self.ways.get(p) else { return false };
        let seen = &mut self.servers[usize::from(way.mirror)];
        seen.refusals += 1;
        if !seen.is_right && seen.refusals >= WRONG_MAX {
            return false;
        }
        if !matches!(trouble, Trouble::Forbidden { .. })
            && seen.refused.replace(trouble.to_string()).is_none()
        {
            let name = &seen.standing.name;
            view.note(&format!("{name}: {}: {trouble}: not asked for it again", show(&item.name)));
        }
        true
    }

    pub(super) fn failed(&mut self, now: Time, id: FetchId, trouble: &Trouble, view: &mut View) {
        let file = self.machine.file_of(id);
        let Some(item) = self.item(id) else { return };
        self.coming.remove(&id);
        let p = way_of(id);
        // Whoever only says that it cannot now may say so for ever.
        self.answers += u64::from(code(trouble) != Code::Unreachable);
        if let Some(way) = self.ways.get(p) {
            self.servers[usize::from(way.mirror)].standing.answered(trouble);
        }
        if let (Trouble::Forbidden { .. }, Some(way), Some(file)) = (trouble, self.ways.get(p), file) {
            let seen = &mut self.servers[usize::from(way.mirror)];
            let why = told(trouble, seen.trusted);
            if seen.forbids.is_none() {
                view.note(&format!("{}: {}: {why}", seen.standing.name, show(&item.name)));
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
                if self.is_of_the_file(p, item, trouble, view) =>
            {
                Failure::Lacking
            }
            // A portal or a meddling proxy may be on this way alone.
            _ if has_others(&self.ways, p) => {
                self.machine.handle(now, Input::Failed { fetch: id, failure: Failure::Broken });
                self.shut(now, p, trouble, view);
                return;
            }
            _ => Failure::Useless,
        };
        if failure == Failure::Useless
            && let Some(way) = self.ways.get(p)
        {
            let seen = &mut self.servers[usize::from(way.mirror)];
            seen.standing.give_up(trouble, seen.trusted, view);
        }
        self.machine.handle(now, Input::Failed { fetch: id, failure });
    }
}
