//! Who brought what, what has been compared, who lied and of whom all was wrong: from the journal and into
//! it.

use std::ops::Range;

use super::journal::{alone_clue, refuted_clue, url_clue, url_clue_of, version_clue, version_clue_start};
use super::left::{Left, LeftIn, Numbers, Refuted};
use super::{IfWrong, State, Target, journal};
use crate::Result;
use crate::filenames::show;

impl Target {
    /// What is known of what earlier transfers left, if they did: who brought it, and more if no hash of the
    /// content is known. It can be asked for once.
    pub(crate) fn take_left(&mut self) -> Option<Left> {
        match &mut self.state {
            State::Part(part) => part.left.take(),
            State::Whole(_) => None,
        }
    }

    /// What there is to say of a part that an earlier transfer left of another file, and that stays for now.
    pub(crate) fn note_of_what_stays(&self) -> Option<String> {
        let State::Part(part) = &self.state else { return None };
        let (name, bytes) = part.stays.as_ref()?;
        Some(format!(
            "{} is of another file, of {bytes} bytes: it stays while that of {} bytes comes",
            show(self.place.path().with_file_name(name)),
            self.id.length
        ))
    }

    /// That nothing keeps a second transfer away from the part.
    pub(crate) fn note_of_no_lock(&self) -> Option<String> {
        let State::Part(part) = &self.state else { return None };
        part.is_without_lock().then(|| {
            format!(
                "the file system of {} has no locks: let no other get write that file meanwhile",
                show(self.place.path())
            )
        })
    }

    /// What was taken, with this part.
    pub(crate) fn with_left<'a>(&'a self, left: &'a Left) -> LeftIn<'a> {
        let cv = |block| match &self.state {
            State::Part(part) => part.record(block).map(|slot| slot.cv),
            State::Whole(_) => None,
        };
        let refuted = |url: &str| {
            let is = |of| self.refuted_clue(of).is_some_and(|clue| left.banned.contains(&clue));
            match self.version_of(url) {
                Some(version) if is(version) => Some(Refuted::Now),
                _ => is(url_clue(url)).then_some(Refuted::Then),
            }
        };
        LeftIn { left, cv: Box::new(cv), refuted: Box::new(refuted) }
    }

    /// The name of the version that a URL has now.
    fn version_of(&self, url: &str) -> Option<[u8; 32]> {
        match &self.state {
            State::Part(part) => part.versions.get(&url_clue(url)).copied(),
            State::Whole(_) => None,
        }
    }

    /// The clue that all of this was not what is wanted; `None` if no hash tells.
    fn refuted_clue(&self, of: [u8; 32]) -> Option<[u8; 32]> {
        self.demands.proof.name(&self.id).map(|wanted| refuted_clue(&of, &wanted))
    }

    /// All of this mirror is here, and is not what is wanted: the next transfer that wants the same does not
    /// ask it; or asks it last, if not all that came is of the `version` that it has now.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn refute(&mut self, url: &str, version: bool) -> Result<()> {
        let version = self.version_of(url).filter(|_| version);
        for of in [Some(url_clue(url)), version].into_iter().flatten() {
            if let Some(clue) = self.refuted_clue(of)
                && let State::Part(part) = &mut self.state
            {
                part.ban(&self.place, clue)?;
            }
        }
        Ok(())
    }

    /// These blocks do not count any more, and are kept: they are [taken](Self::write) once more, or
    /// [restored](Self::restore).
    pub(crate) fn shelve(&mut self, blocks: Range<u64>) {
        self.checked = None;
        let State::Part(part) = &mut self.state else { return };
        // Their bytes stay where they are: zeros that come instead have to be written.
        (part.virgin, part.has_shelved) = (false, true);
        for block in blocks.start..blocks.end.min(self.id.blocks()) {
            if self.there.remove(block) {
                self.done_bytes -= self.id.block_len(block) as u64;
            }
        }
    }

    /// These blocks, which were [shelved](Self::shelve), count again.
    pub(crate) fn restore(&mut self, blocks: Range<u64>) {
        self.checked = None;
        for block in blocks.start..blocks.end.min(self.id.blocks()) {
            if self.there.insert(block) {
                self.done_bytes += self.id.block_len(block) as u64;
            }
        }
    }

    /// What the mirror of this URL is called in marks, by the version that it has now and by its URL, as far
    /// as the journal has them. Without a hash only a version says what is whose.
    pub(crate) fn numbers_of(&self, url: &str) -> Numbers {
        let State::Part(part) = &self.state else { return Numbers::default() };
        let (place, named) = (url_clue(url), self.version_of(url));
        let of_version =
            |name| part.number_of(&name).or_else(|| part.number_of(&version_clue(&place, &name)));
        let version = named.and_then(of_version);
        if !self.demands.proof.is_something() {
            return Numbers { version, ..Numbers::default() };
        }
        let clue = url_clue_of(url, named.is_some());
        let mut before = part.numbers_beginning(&version_clue_start(&place));
        before.retain(|number| Some(*number) != version);
        Numbers { version, url: part.number_of(&clue), before }
    }

    /// This mirror is tried alone, and brings something: the next transfer goes on with it.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn tried_alone(&mut self, url: &str) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.tried_alone(&self.place, alone_clue(url)),
            State::Whole(_) => Ok(()),
        }
    }

    /// Mirrors have different bytes: what is here may be a liar's, and is removed if it is wrong.
    pub(crate) fn mirrors_differ(&mut self) {
        if self.demands.if_wrong == IfWrong::KeepOnce {
            self.demands.if_wrong = IfWrong::Remove;
        }
    }

    /// What mirrors brought of these blocks has been compared: the next transfer need not do it.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn compared(&mut self, blocks: Range<u64>) -> Result<()> {
        let blocks = blocks.start..blocks.end.min(self.id.blocks());
        match &mut self.state {
            State::Part(part) if !self.demands.proof.is_something() => part.compared(&self.place, blocks),
            _ => Ok(()),
        }
    }

    /// What this transfer brought has been [taken back](Self::forget): the next one that knows the content by
    /// the names that earlier ones had goes on with what these left, and no other.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn disown(&mut self) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.disown(&self.place),
            State::Whole(_) => Ok(()),
        }
    }

    /// A mirror has lied, as others say: the next transfer does not ask it.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn ban(&mut self, url: &str) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.ban(&self.place, journal::banned_clue(url)),
            State::Whole(_) => Ok(()),
        }
    }
}
