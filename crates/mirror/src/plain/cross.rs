//! Nothing says what is right, so mirrors are held against each other.
//!
//! The first group of every mirror but the first one is fetched from another mirror too; that of the first
//! one as well, if none of the others was compared with it. After that, where a mirror is asked for a range
//! that follows one of another mirror, it is now and then asked for the last group before it as well: that
//! costs no request. Of two that differ neither is believed; a third one decides.

use std::collections::{BTreeMap, BTreeSet};

use mmtp::tree::Cv;

use super::MirrorId;

/// Groups that a mirror brings between two checks, about.
pub const CHECK_EVERY_GROUPS: u64 = 1_024;
/// Checks under way at most; further ones wait for another occasion.
pub const CHECKS_MAX: usize = 1_024;
/// Ends of ranges that are remembered.
const BORDERS_MAX: usize = 4_096;

/// A group that is fetched more than once.
struct Check {
    cvs: Vec<(MirrorId, Cv)>,
    /// The content is not complete without it.
    needed: bool,
    /// Somebody has been asked for it, besides those that have brought it.
    asked: bool,
}

/// Where one mirror's range ends.
struct Border {
    mirror: MirrorId,
    /// The last group before it, once that is here.
    cv: Option<Cv>,
}

/// What a comparison has shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing wrong, or nothing yet.
    Nothing,
    /// This mirror's bytes are not those of two others.
    Odd(MirrorId),
    /// These have different bytes, and nobody is left to decide.
    Differ(Vec<MirrorId>),
}

/// See the [module](self).
pub(super) struct Cross {
    /// Who brought each group: one more than its number, or 0. What is never written takes no memory.
    by: Vec<u8>,
    checks: BTreeMap<u64, Check>,
    borders: BTreeMap<u64, Border>,
    /// Groups that each mirror has brought since its last check.
    since: BTreeMap<MirrorId, u64>,
    /// What came first of all, until its mirror has been compared with another.
    first: Option<(MirrorId, u64, Cv)>,
}

impl Cross {
    pub(super) fn new(groups: u64) -> Self {
        let by = vec![0; usize::try_from(groups).unwrap_or(usize::MAX)];
        Self { by, checks: BTreeMap::new(), borders: BTreeMap::new(), since: BTreeMap::new(), first: None }
    }

    /// Checks that nobody has been asked for.
    pub(super) fn waiting(&self) -> u64 {
        self.checks.values().filter(|check| check.needed && !check.asked).count() as u64
    }

    /// Whether nothing remains to be known of what is here.
    pub(super) fn is_settled(&self) -> bool {
        self.checks.values().all(|check| !check.needed)
    }

    /// Whether somebody is to bring the group once more.
    pub(super) fn is_wanted(&self, group: u64) -> bool {
        self.checks.contains_key(&group)
    }

    /// The same of this mirror.
    pub(super) fn is_wanted_from(&self, mirror: MirrorId, group: u64) -> bool {
        self.checks.get(&group).is_some_and(|check| check.cvs.iter().all(|(m, _)| *m != mirror))
    }

    /// A check that nobody has been asked for and that `mirror` may decide.
    pub(super) fn take(&mut self, mirror: MirrorId) -> Option<u64> {
        let fits =
            |check: &Check| check.needed && !check.asked && check.cvs.iter().all(|(m, _)| *m != mirror);
        let (&group, check) = self.checks.iter_mut().find(|(_, check)| fits(check))?;
        check.asked = true;
        Some(group)
    }

    /// `mirror` is asked for `first..end`: whether it is to be asked for the group before as well.
    pub(super) fn took(&mut self, mirror: MirrorId, first: u64, end: u64) -> bool {
        if self.borders.len() >= BORDERS_MAX {
            self.borders.pop_first();
        }
        self.borders.insert(end, Border { mirror, cv: None });
        let due = self.since.get(&mirror).is_some_and(|since| *since >= CHECK_EVERY_GROUPS / 2);
        let Some(border) = self.borders.get(&first).filter(|border| due && border.mirror != mirror) else {
            return false;
        };
        if self.checks.len() >= CHECKS_MAX || self.checks.contains_key(&(first - 1)) {
            return false;
        }
        let cvs = border.cv.map(|cv| (border.mirror, cv)).into_iter().collect();
        self.checks.insert(first - 1, Check { cvs, needed: false, asked: true });
        true
    }

    /// Whoever was asked for these has not brought them.
    pub(super) fn put_back(&mut self, first: u64, end: u64) {
        for check in self.checks.range_mut(first..end).map(|(_, check)| check) {
            check.asked = false;
        }
    }

    /// A group that was missing is here.
    pub(super) fn brought(&mut self, mirror: MirrorId, group: u64, cv: Cv) {
        if let Some(by) = usize::try_from(group).ok().and_then(|i| self.by.get_mut(i)) {
            *by = mirror.saturating_add(1);
        }
        if let Some(border) = self.borders.get_mut(&(group + 1)) {
            *border = Border { mirror, cv: Some(cv) };
        }
        let first = self.since.is_empty();
        match self.since.get_mut(&mirror) {
            Some(since) => *since += 1,
            None => {
                self.since.insert(mirror, 0);
                if let Some(check) = self.checks.get_mut(&group) {
                    check.needed = true;
                } else if !first {
                    let cvs = vec![(mirror, cv)];
                    self.checks.insert(group, Check { cvs, needed: true, asked: false });
                }
                if first {
                    self.first = Some((mirror, group, cv));
                }
            }
        }
    }

    /// A group that is being checked has come from `mirror`. `others` are all that might still decide.
    pub(super) fn compare(
        &mut self,
        mirror: MirrorId,
        group: u64,
        cv: Cv,
        others: &BTreeSet<MirrorId>,
    ) -> Found {
        let Some(check) = self.checks.get_mut(&group) else { return Found::Nothing };
        if check.cvs.iter().any(|(m, _)| *m == mirror) {
            return Found::Nothing;
        }
        check.cvs.push((mirror, cv));
        self.judge(group, others)
    }

    fn judge(&mut self, group: u64, others: &BTreeSet<MirrorId>) -> Found {
        let Some(check) = self.checks.get_mut(&group) else { return Found::Nothing };
        let Some((_, first)) = check.cvs.first() else { return Found::Nothing };
        if check.cvs.len() < 2 {
            return Found::Nothing;
        }
        if check.cvs.iter().all(|(_, cv)| cv == first) {
            let agree: Vec<MirrorId> = check.cvs.iter().map(|(mirror, _)| *mirror).collect();
            self.checks.remove(&group);
            for mirror in &agree {
                self.since.insert(*mirror, 0);
            }
            if let Some((first, group, cv)) = self.first.take()
                && !agree.contains(&first)
            {
                // The others were compared with each other: it is its turn.
                let check = Check { cvs: vec![(first, cv)], needed: true, asked: false };
                self.checks.entry(group).or_insert(check);
            }
            return Found::Nothing;
        }
        let same = |cv: &Cv| check.cvs.iter().filter(|(_, other)| other == cv).count();
        if let (true, Some((odd, _))) =
            (check.cvs.iter().any(|(_, cv)| same(cv) > 1), check.cvs.iter().find(|(_, cv)| same(cv) == 1))
        {
            return Found::Odd(*odd);
        }
        let mirrors: Vec<_> = check.cvs.iter().map(|(mirror, _)| *mirror).collect();
        if mirrors.len() > 2 || others.iter().all(|mirror| mirrors.contains(mirror)) {
            return Found::Differ(mirrors);
        }
        (check.needed, check.asked) = (true, false);
        Found::Nothing
    }

    /// A mirror has lied: what it brought is returned, and is missing again.
    pub(super) fn strike(&mut self, mirror: MirrorId) -> Vec<u64> {
        for check in self.checks.values_mut() {
            check.cvs.retain(|(m, _)| *m != mirror);
        }
        self.checks.retain(|_, check| !check.cvs.is_empty());
        self.borders.retain(|_, border| border.mirror != mirror);
        self.since.remove(&mirror);
        self.first = self.first.filter(|(first, ..)| *first != mirror);
        let (mut again, mine) = (Vec::new(), mirror.saturating_add(1));
        for (group, by) in self.by.iter_mut().enumerate().filter(|(_, by)| **by == mine) {
            *by = 0;
            again.push(group as u64);
        }
        again
    }

    /// Judges everything once more, because there are fewer mirrors to decide now.
    pub(super) fn judge_again(&mut self, others: &BTreeSet<MirrorId>) -> Vec<(u64, Found)> {
        let groups: Vec<u64> = self.checks.keys().copied().collect();
        let found = groups.into_iter().map(|group| (group, self.judge(group, others)));
        found.filter(|(_, found)| *found != Found::Nothing).collect()
    }

    /// Does without the checks that nobody can make.
    pub(super) fn waive(&mut self) {
        self.checks.retain(|_, check| check.cvs.len() > 1);
    }
}
