//! Servers that cannot answer now: they are asked again while nobody else has answered.

use algo::{Span, Time};
use http_world::client::Trouble;
use mirror::plan::{RETRY_MAX, RETRY_MIN, backoff};

use super::{BESIDE_FOR, Looker, Question, host};
use crate::exit::Outcome;
use crate::get::standing::pause;

impl Looker<'_, '_> {
    /// Keeps a question to be asked again if its server has only said that it cannot answer now, and nobody
    /// else has said what the file is; gives it back if that is of no use.
    pub(super) fn later(&mut self, mut question: Question, trouble: Trouble) -> Option<(Question, Trouble)> {
        let (now, end) = (self.clock.now(), self.end);
        let is_now = matches!(trouble, Trouble::Fault { .. } | Trouble::Busy { .. });
        if !is_now || self.has_answer() {
            return Some((question, trouble));
        }
        let longer = backoff(RETRY_MIN, question.times, RETRY_MAX);
        // The last attempts are shortly before the end, whatever came before.
        let half = Span::from_nanos(end.since(now).as_nanos() / 2);
        let at = now + pause(&trouble).max(longer.min(half).max(RETRY_MIN));
        if at >= end {
            return Some((question, trouble));
        }
        if !question.beside && !std::mem::replace(&mut self.told_again, true) {
            let (name, left) = (host(&question.url), end.since(now).as_millis() / 1_000);
            self.view.note(&format!("{name}: {trouble}: asked again, gives up in {left} s"));
        }
        question.times += 1;
        question.body.clear();
        self.again.push((at, question, trouble));
        None
    }

    /// Asks again what is due; returns when the next is. Once a mirror has answered, the others are not
    /// waited for.
    pub(super) fn ask_again(&mut self) -> Outcome<Option<Time>> {
        let now = self.clock.now();
        let has_answer = self.has_answer();
        let mut waiting = Vec::new();
        for (at, mut question, trouble) in std::mem::take(&mut self.again) {
            if has_answer && !question.beside {
                self.failed(question, trouble)?;
            } else if has_answer || now >= at {
                question.until = if question.beside { (now + BESIDE_FOR).min(self.end) } else { self.end };
                question.via = self.via;
                self.put(question);
            } else {
                waiting.push((at, question, trouble));
            }
        }
        self.again.extend(waiting);
        Ok(self.again.iter().map(|(at, ..)| *at).min())
    }

    /// Whether somebody has said what there is.
    fn has_answer(&self) -> bool {
        self.heads.iter().any(Option::is_some)
    }
}
