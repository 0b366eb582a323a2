//! Defines the events that a caller receives while an operation runs, and the caller's answers.

use std::net::SocketAddr;

use anabranch_algo::{Span, Time};

use crate::report::source::{Offer, Stats};
use crate::report::{FileReport, HashProgress, PathGroups, Progress, Report};
use crate::stop::Stop;

/// An event of an operation. Events arrive in the order in which they happen. Each kind of operation sends
/// some:
///
/// * A download ([`Download`](crate::Download), [`Transfer`](crate::Transfer)) sends `Progress`, `Banned`,
///   `Groups`, `Notice`, `Warning`, `FileFinished`, and at its end `Finished`.
/// * A source ([`Serve::run`](crate::Serve::run)) sends `Hashing`, `Notice`, `Offer`, `Listening`, `Stats`.
/// * Making a list of mirrors ([`mirror_list`](crate::mirror_list)) sends `Hashing`, `Notice`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The progress of a transfer. It is sent at the pace that the request asks for, and once more just
    /// before the end, with the numbers of [`Report::last`]. Before mirrors have described the file, only the
    /// time is known.
    Progress(Box<Progress>),
    /// A source sent wrong bytes and gets no further requests.
    Banned {
        /// The source: address and port, or host.
        source: String,
        /// The reason: "wrong bytes in block 812".
        reason: String,
    },
    /// The groups of paths have changed since the paths began, as [`Groups::Auto`](crate::get::Groups::Auto)
    /// found.
    Groups(PathGroups),
    /// One sentence that the user should know. As in an [`Error`](crate::Error), it may name settings, each a
    /// [`Hint`](crate::Hint), and include texts of servers.
    Notice(String),
    /// One sentence that says that the arriving bytes may be wrong although no error follows. It is written
    /// as a `Notice` is. Show it even to users who do not want to see notices.
    Warning(String),
    /// One of several files has ended, whether or not it arrived: see [`Get::each`](crate::Get::each). The
    /// events since the last `FileFinished` are about this file.
    FileFinished(Box<FileReport>),
    /// A transfer has ended, whether or not it succeeded; no event follows.
    Finished(Box<Report>),
    /// The progress of hashing, every 100 ms while it lasts.
    Hashing(HashProgress),
    /// One content on offer. Directories come first, then files.
    Offer(Offer),
    /// The source answers at these addresses.
    Listening {
        /// The addresses of the UDP sockets, with their actual ports.
        addresses: Vec<SocketAddr>,
        /// The addresses of HTTP, with their actual ports.
        http: Vec<SocketAddr>,
    },
    /// The counters of a source so far, every second.
    Stats {
        /// Counters since the source began to serve.
        stats: Box<Stats>,
        /// The rate of sending since the last of these events, in bytes a second.
        rate_bytes: u64,
    },
}

/// Answers an event: the listener continues or stops the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Control {
    /// Continues the operation.
    Continue,
    /// Stops the operation soon and keeps the bytes that have arrived. A transfer then fails with
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted), unless it was already complete.
    ///
    /// This can only be the answer to an event, so it may have to wait for the next [`Event::Progress`]. A
    /// [`Stop`] can be used at any time, and is seen within a tenth of a second.
    Stop,
}

/// The note of the progress while a file that an earlier run has left is read.
pub(crate) const CHECKING_PART: &str = "checking what is there";

/// Sends events to the listener, for the parts of this crate.
pub(crate) struct Observer<'a> {
    listener: &'a mut dyn FnMut(Event) -> Control,
    stop: Stop,
    /// The least time between two reports of progress.
    every: Span,
    /// The time of the last report of progress.
    reported_at: Option<Time>,
    /// The file that notices are about, if there are several files.
    about: Option<String>,
    /// The progress of the other files of the same request, which is added to the current file's.
    base: Progress,
    /// The progress that was reported last.
    last: Progress,
}

impl<'a> Observer<'a> {
    pub(crate) fn new(listener: &'a mut dyn FnMut(Event) -> Control, stop: Stop, every: Span) -> Self {
        let (reported_at, about, base, last) = (None, None, Progress::default(), Progress::default());
        Self { listener, stop, every, reported_at, about, base, last }
    }

    /// Returns the stop that ends the operation.
    pub(crate) const fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns whether the caller wants the operation to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    pub(crate) fn send(&mut self, event: Event) {
        if (self.listener)(event) == Control::Stop {
            self.stop.stop();
        }
    }

    /// Sends a notice of one sentence.
    pub(crate) fn notice(&mut self, text: &str) {
        let text = self.named(text);
        self.send(Event::Notice(text));
    }

    /// Sends a warning: one sentence that says that the arriving bytes may be wrong.
    pub(crate) fn warning(&mut self, text: &str) {
        let text = self.named(text);
        self.send(Event::Warning(text));
    }

    /// Reports that a source is banned.
    pub(crate) fn banned(&mut self, source: &str, reason: &str) {
        let source = self.named(source);
        self.send(Event::Banned { source, reason: reason.to_owned() });
    }

    /// Reports that the groups of paths have changed.
    pub(crate) fn groups(&mut self, groups: PathGroups) {
        self.send(Event::Groups(groups));
    }

    fn named(&self, text: &str) -> String {
        match &self.about {
            Some(file) => format!("{file}: {text}"),
            None => text.to_owned(),
        }
    }

    /// Sets the file that notices are about from now on; `None` if they are about all files.
    pub(crate) fn about(&mut self, file: Option<String>) {
        self.about = file;
    }

    /// Begins the progress of another file, which has its own clock; `base` is added to its numbers.
    pub(crate) fn among(&mut self, base: Progress) {
        (self.base, self.reported_at) = (base, None);
    }

    /// Begins the progress of a file whose numbers begin at zero: nothing is added to them.
    pub(crate) fn begin_anew(&mut self) {
        self.among(Progress::default());
        self.last = Progress::default();
    }

    /// Returns whether [`Self::progress`] would report. Making a report costs time, so callers ask first.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        // Each file has its own clock, so the last report may have a later time.
        self.reported_at.is_none_or(|at| now < at || now.since(at) >= self.every)
    }

    /// Reports progress if it is due.
    pub(crate) fn progress(&mut self, now: Time, progress: &Progress) {
        if !self.is_due(now) {
            return;
        }
        self.reported_at = Some(now);
        self.last = self.base.and(progress).no_less_than(&self.last);
        self.send(Event::Progress(Box::new(self.last.clone())));
        self.last.note = None;
    }

    /// Reports, if a report is due, that `checked_bytes` of an existing file of `total_bytes` have been
    /// checked. `what` is the note of the report; its other numbers are taken from the report before.
    pub(crate) fn checking(&mut self, now: Time, what: &str, total_bytes: u64, checked_bytes: u64) {
        if !self.is_due(now) {
            return;
        }
        self.reported_at = Some(now);
        let whole = total_bytes + self.base.total_bytes.unwrap_or_default();
        self.last.total_bytes.get_or_insert(whole);
        let (note, checked_bytes) = (Some(what.to_owned()), Some(checked_bytes));
        let checking = Progress { note, checked_bytes, ..self.last.clone() };
        self.send(Event::Progress(Box::new(checking)));
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
