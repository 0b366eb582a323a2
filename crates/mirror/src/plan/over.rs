//! How requests end: with what becomes of the blocks that they owned, and of what was asked ahead.

use algo::{Rate, Span, Time};

use super::way::{Fetch, Purpose};
use super::{Command, FetchId, Mirrors, Pool, WAYS_MAX, WayId};

impl Mirrors {
    /// This request, be its turn now or next.
    fn fetch_mut(&mut self, id: FetchId) -> Option<&mut Fetch> {
        let way = self.ways.get_mut((id % WAYS_MAX as u64) as usize)?;
        way.fetch.iter_mut().chain(&mut way.ahead).find(|fetch| fetch.id == id)
    }

    /// Something came: is the rest of this answer worth reading?
    pub(super) fn go_on(&mut self, p: WayId, pool: &mut dyn Pool) {
        let Some(fetch) = &self.ways[p].fetch else { return };
        if fetch.at >= fetch.end {
            return;
        }
        match fetch.purpose {
            Purpose::Own | Purpose::Copy(_) if fetch.blocks().is_empty() => self.at_its_end(p, pool),
            Purpose::Loose => {
                let next = fetch.blocks().start;
                let elsewhere = self.ways.iter().enumerate().any(|(q, other)| {
                    let mut own = other.fetch.iter().chain(&other.ahead);
                    q != p && own.any(|f| f.purpose == Purpose::Own && f.blocks().contains(&next))
                });
                let wanted = pool.is_wanted_from(self.ways[p].mirror, next);
                if elsewhere || !wanted || fetch.blocks().is_empty() {
                    self.cancel(p, pool);
                }
            }
            _ => {}
        }
    }

    /// A request has brought all that it is to bring; more was asked for.
    fn at_its_end(&mut self, p: WayId, pool: &mut dyn Pool) {
        let way = &mut self.ways[p];
        let (reconnect, rate) = (way.reconnect(), way.flow.rate().unwrap_or(0));
        let Some(fetch) = &mut way.fetch else { return };
        let more = way.ahead.as_ref().is_some_and(|ahead| !ahead.blocks().is_empty());
        // What is to come of no use before something that is.
        let useless = way.ahead.as_ref().filter(|_| !more).map_or(0, |ahead| ahead.end - ahead.at);
        let silence = if fetch.has_head { Span::ZERO } else { way.flow.between() };
        let rest = Rate::from_bytes(rate).time_for(fetch.end - fetch.at + useless) + silence;
        let answers = fetch.has_head || fetch.early.is_some();
        if (more || pool.idle() > 0) && answers && rest <= reconnect {
            fetch.purpose = Purpose::Rest;
        } else {
            if fetch.has_head {
                way.proved();
            }
            self.cancel(p, pool);
        }
    }

    /// A way's request is done: it is the turn of the one asked ahead, from now on.
    pub(super) fn advance(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        let way = &mut self.ways[p];
        let Some(mut next) = way.ahead.take() else { return };
        debug_assert!(way.fetch.is_none(), "one after the other");
        next.early = Some(now.since(next.asked_at));
        (next.asked_at, next.heard) = (now, now);
        way.fetch = Some(next);
        self.go_on(p, pool);
    }

    /// Gives up what a way is asked for: its connection with it.
    pub(super) fn cancel(&mut self, p: WayId, pool: &mut dyn Pool) {
        self.drop_ahead(p, pool);
        if let Some(fetch) = self.release(p, pool) {
            self.ways[p].cold = true;
            self.ways[p].counters.cancelled += 1;
            self.out.push_back(Command::Cancel { fetch });
        }
    }

    /// Gives up what a way was asked ahead, because the connection goes.
    pub(super) fn drop_ahead(&mut self, p: WayId, pool: &mut dyn Pool) {
        let Some(fetch) = self.ways[p].ahead.as_ref().map(|ahead| ahead.id) else { return };
        self.disown(fetch, pool);
        self.ways[p].ahead = None;
        self.ways[p].counters.cancelled += 1;
        self.out.push_back(Command::Cancel { fetch });
    }

    /// A way's request is over; what it owned and did not bring is idle again.
    pub(super) fn release(&mut self, p: WayId, pool: &mut dyn Pool) -> Option<FetchId> {
        let id = self.ways[p].fetch.as_ref().map(|fetch| fetch.id);
        if let Some(id) = id {
            self.disown(id, pool);
        }
        let way = &mut self.ways[p];
        way.flow.pause();
        if let Some(fetch) = way.fetch.take()
            && fetch.purpose == Purpose::Whole
            && fetch.new_bytes == 0
            && (1..fetch.end).contains(&fetch.at)
        {
            way.breaks_at = Some(fetch.at);
        }
        id
    }

    /// What a way's requests own is idle again.
    pub(super) fn disown_all(&mut self, p: WayId, pool: &mut dyn Pool) {
        let way = &self.ways[p];
        // That which was asked first is to be the first one again.
        let ids = [&way.ahead, &way.fetch].map(|fetch| fetch.as_ref().map(|fetch| fetch.id));
        for id in ids.into_iter().flatten() {
            self.disown(id, pool);
        }
    }

    /// What a request owns is idle again, what it copies may be copied by others.
    fn disown(&mut self, id: FetchId, pool: &mut dyn Pool) {
        let Some(fetch) = self.fetch_mut(id) else { return };
        match std::mem::replace(&mut fetch.purpose, Purpose::Loose) {
            Purpose::Own => {
                let blocks = fetch.blocks();
                if !blocks.is_empty() {
                    pool.put_back(blocks);
                }
            }
            Purpose::Copy(of) => {
                if let Some(other) = self.fetch_mut(of) {
                    other.doubled = false;
                }
            }
            kept => fetch.purpose = kept,
        }
    }

    /// Takes from the ends of a way's ranges what others have brought.
    pub(super) fn trim(&mut self, p: WayId, pool: &mut dyn Pool) {
        let way = &mut self.ways[p];
        let mirror = way.mirror;
        if let Some(ahead) = &mut way.ahead {
            ahead.trim(mirror, pool);
        }
        if way.fetch.as_mut().is_some_and(|fetch| fetch.trim(mirror, pool)) {
            self.at_its_end(p, pool);
        }
    }
}

impl Fetch {
    /// See [`Mirrors::trim`]; whether nothing is left of it, but bytes are to come.
    fn trim(&mut self, mirror: super::MirrorId, pool: &mut dyn Pool) -> bool {
        if matches!(self.purpose, Purpose::Rest | Purpose::Whole) || self.at >= self.end {
            return false;
        }
        let mut left = self.blocks();
        while !left.is_empty() && !pool.is_wanted_from(mirror, left.end - 1) {
            left.end -= 1;
            self.keep = left.end;
            if self.purpose == Purpose::Own && pool.is_wanted(left.end) {
                pool.put_back(left.end..left.end + 1);
            }
        }
        left.is_empty()
    }
}
