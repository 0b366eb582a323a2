//! What a caller is told while something runs, and what it answers.

use std::net::SocketAddr;

use anabranch_algo::{Span, Time};

use crate::report::source::{Offer, Stats};
use crate::report::{FileReport, HashProgress, PathGroups, Progress, Report};
use crate::stop::Stop;

/// What happens, in the order in which it happens: the same for all that tells a listener.
///
/// * A get ([`Download`](crate::Download), [`Transfer`](crate::Transfer)) tells `Progress`, `Banned`,
///   `Groups`, `Notice`, `Warning`, `FileFinished`, and at its end `Finished`;
/// * a source ([`Serve::run`](crate::Serve::run)) tells `Hashing`, `Notice`, `Offer`, `Listening`, `Stats`;
/// * what makes a list of mirrors ([`mirror_list`](crate::mirror_list)) tells `Hashing`, `Notice`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// How far a transfer is; sent at the pace that the request asks for, and once more just before the end,
    /// with the numbers of [`Report::last`]. While mirrors are asked what they have nothing is known but the
    /// time.
    Progress(Box<Progress>),
    /// A source is not asked any more, because it sent wrong bytes.
    Banned {
        /// The source: address and port, or host.
        source: String,
        /// Why: "wrong bytes in block 812".
        reason: String,
    },
    /// Paths have come apart or together since they began, as [`Groups::Auto`](crate::get::Groups::Auto)
    /// found.
    Groups(PathGroups),
    /// Something else that the person who waits should know: one sentence. It names settings, each a
    /// [`Hint`](crate::Hint), and has texts of servers, as an [`Error`](crate::Error) does.
    Notice(String),
    /// The same, where it shows that what comes may be wrong, and no error follows from that: to be told also
    /// to those who want to hear of nothing else.
    Warning(String),
    /// One of several files has ended, good or not: see [`Get::each`](crate::Get::each). What is told before
    /// is of it, and of none before it.
    FileFinished(Box<FileReport>),
    /// The end of a transfer, good or not; nothing follows.
    Finished(Box<Report>),
    /// How far hashing is; every 100 ms while it lasts.
    Hashing(HashProgress),
    /// One thing on offer. Directories come first, then files.
    Offer(Offer),
    /// The source answers at these addresses.
    Listening {
        /// The UDP sockets, with the ports they got.
        addresses: Vec<SocketAddr>,
        /// The addresses of HTTP, with the ports they got.
        http: Vec<SocketAddr>,
    },
    /// What the source has done so far; every second.
    Stats {
        /// Counters since the start.
        stats: Box<Stats>,
        /// Rate of sending since the last of these events, in bytes a second.
        rate_bytes: u64,
    },
}

/// What the listener wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Control {
    /// Go on.
    Continue,
    /// Stop soon, in order: what arrived is kept. A transfer ends with
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted), unless it was done.
    ///
    /// It can only be the answer to an event, so it may wait for the next [`Event::Progress`]. Whoever wants
    /// to stop at any time uses a [`Stop`], which is seen within a tenth of a second.
    Stop,
}

/// What is said while a file is read that an earlier run has left.
pub(crate) const CHECKING_PART: &str = "checking what is there";

/// The listener as the parts of this crate see it.
pub(crate) struct Observer<'a> {
    listener: &'a mut dyn FnMut(Event) -> Control,
    stop: Stop,
    /// Progress is reported no more often than this.
    every: Span,
    /// When it was reported last.
    reported_at: Option<Time>,
    /// What notices are about, if there is more than one file.
    about: Option<String>,
    /// What is not in the progress of a single file: that of the others of the same request.
    base: Progress,
}

impl<'a> Observer<'a> {
    pub(crate) fn new(listener: &'a mut dyn FnMut(Event) -> Control, stop: Stop, every: Span) -> Self {
        let (reported_at, about, base) = (None, None, Progress::default());
        Self { listener, stop, every, reported_at, about, base }
    }

    /// What ends it all.
    pub(crate) const fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Whether the caller wants it to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    pub(crate) fn send(&mut self, event: Event) {
        if (self.listener)(event) == Control::Stop {
            self.stop.stop();
        }
    }

    /// Says one sentence.
    pub(crate) fn notice(&mut self, text: &str) {
        let text = self.named(text);
        self.send(Event::Notice(text));
    }

    /// Says one sentence that shows that what comes may be wrong.
    pub(crate) fn warning(&mut self, text: &str) {
        let text = self.named(text);
        self.send(Event::Warning(text));
    }

    /// A source is banned.
    pub(crate) fn banned(&mut self, source: &str, reason: &str) {
        let source = self.named(source);
        self.send(Event::Banned { source, reason: reason.to_owned() });
    }

    /// Paths have come apart or together.
    pub(crate) fn groups(&mut self, groups: PathGroups) {
        self.send(Event::Groups(groups));
    }

    fn named(&self, text: &str) -> String {
        match &self.about {
            Some(file) => format!("{file}: {text}"),
            None => text.to_owned(),
        }
    }

    /// From now on notices are about this file of several; `None`: about all.
    pub(crate) fn about(&mut self, file: Option<String>) {
        self.about = file;
    }

    /// From now on progress is of another file, by a clock of its own, and `base` is added to it.
    pub(crate) fn among(&mut self, base: Progress) {
        (self.base, self.reported_at) = (base, None);
    }

    /// Whether [`Self::progress`] would report: it costs something to make.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        // Each file has a clock of its own, so the last report may have been made later.
        self.reported_at.is_none_or(|at| now < at || now.since(at) >= self.every)
    }

    /// Reports progress if it is due.
    pub(crate) fn progress(&mut self, now: Time, progress: &Progress) {
        if !self.is_due(now) {
            return;
        }
        self.reported_at = Some(now);
        let whole = self.base.and(progress);
        self.send(Event::Progress(Box::new(whole)));
    }

    /// Reports, if it is due, how much of what is there has been checked: `what` this is.
    pub(crate) fn checking(&mut self, now: Time, what: &str, progress: Progress) {
        self.progress(now, &Progress { note: Some(what.to_owned()), ..progress });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_due_at_its_own_pace() {
        let now = Time::from_nanos(7);
        let mut listener = |_| Control::Stop;
        let stop = Stop::new().expect("descriptors");
        let mut observer = Observer::new(&mut listener, stop.clone(), Span::from_secs(5));
        assert!(observer.is_due(now) && !stop.is_stopped());
        observer.progress(now, &Progress::default());
        assert!(stop.is_stopped(), "the listener said so");
        assert!(!observer.is_due(now + Span::from_secs(4)));
        assert!(observer.is_due(now + Span::from_secs(5)));
        assert!(observer.is_due(Time::from_nanos(6)), "another clock");
    }

    #[test]
    fn what_is_said_of_one_file_of_several_names_it() {
        let mut heard = Vec::new();
        let mut listener = |event| {
            heard.push(format!("{event:?}"));
            Control::Continue
        };
        let mut observer = Observer::new(&mut listener, Stop::new().expect("descriptors"), Span::ZERO);
        observer.about(Some("a/b".into()));
        observer.notice("x");
        observer.banned("h", "wrong");
        observer.about(None);
        observer.notice("x");
        let banned = r#"Banned { source: "a/b: h", reason: "wrong" }"#;
        assert_eq!(heard, [r#"Notice("a/b: x")"#, banned, r#"Notice("x")"#]);
    }
}
