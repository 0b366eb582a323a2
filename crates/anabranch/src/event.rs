//! What a caller is told while something runs, and what it answers.

use algo::{Span, Time};

use crate::report::{Progress, Report};
use crate::stop::Stop;

/// What happens in a transfer, in the order in which it happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// How far it is; sent at the pace that the request asks for.
    Progress(Box<Progress>),
    /// A source is not asked any more, because it sent wrong bytes.
    Banned {
        /// The source: address and port, or host.
        source: String,
        /// Why: "wrong bytes in block 812".
        reason: String,
    },
    /// Something else that the person who waits should know: one sentence.
    Notice(String),
    /// The end, good or not; nothing follows.
    Finished(Box<Report>),
}

/// What the listener wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Control {
    /// Go on.
    Continue,
    /// Stop soon, in order: what arrived is kept. The transfer ends with
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    Stop,
}

/// The listener as the parts of this crate see it.
pub(crate) struct Observer<'a> {
    listener: &'a mut dyn FnMut(Event) -> Control,
    stop: Stop,
    every: Span,
    next: Time,
    /// What notices are about, if there is more than one file.
    about: Option<String>,
    /// What is not in the progress of a single file: that of the others of the same request.
    base: Progress,
}

impl<'a> Observer<'a> {
    /// Progress is told every `every`.
    pub(crate) fn new(listener: &'a mut dyn FnMut(Event) -> Control, stop: Stop, every: Span) -> Self {
        Self { listener, stop, every, next: Time::ZERO, about: None, base: Progress::default() }
    }

    /// What ends it all.
    pub(crate) const fn stop(&self) -> &Stop {
        &self.stop
    }

    pub(crate) fn send(&mut self, event: Event) {
        if (self.listener)(event) == Control::Stop {
            self.stop.stop();
        }
    }

    /// Says one sentence.
    pub(crate) fn notice(&mut self, text: &str) {
        let text = match &self.about {
            Some(file) => format!("{file}: {text}"),
            None => text.to_owned(),
        };
        self.send(Event::Notice(text));
    }

    /// A source is banned.
    pub(crate) fn banned(&mut self, source: &str, reason: &str) {
        let source = match &self.about {
            Some(file) => format!("{file}: {source}"),
            None => source.to_owned(),
        };
        self.send(Event::Banned { source, reason: reason.to_owned() });
    }

    /// From now on notices are about this file of several; `None`: about all.
    pub(crate) fn about(&mut self, file: Option<String>) {
        self.about = file;
    }

    /// From now on progress is of another file, and `base` is added to it.
    pub(crate) fn among(&mut self, base: Progress) {
        (self.base, self.next) = (base, Time::ZERO);
    }

    /// Whether progress is to be told: it costs something to make.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }

    /// Tells progress if it is due.
    pub(crate) fn progress(&mut self, now: Time, progress: &Progress) {
        if !self.is_due(now) {
            return;
        }
        self.next = now + self.every;
        let whole = self.base.and(progress);
        self.send(Event::Progress(Box::new(whole)));
    }
}
