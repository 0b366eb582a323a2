//! Servers that cannot answer now: they are asked again while nobody else has answered.

use algo::{Span, Time};
use anabranch_http::client::FetchError;
use mirror::range_scheduler::{RETRY_MAX, RETRY_MIN, backoff};

use super::{BESIDE_FOR, Looker, Question, host};
use crate::exit::Outcome;
use crate::get::standing::pause;

impl Looker<'_, '_> {
    /// Keeps a question to be asked again if its server has only said that it cannot answer now, and nobody
    /// else has said what the file is; gives it back if that is of no use.
    pub(super) fn later(
        &mut self,
        mut question: Question,
        error: FetchError,
    ) -> Option<(Question, FetchError)> {
        let (now, end) = (self.clock.now(), self.end);
        let is_now = matches!(error, FetchError::ServerError { .. } | FetchError::Busy { .. });
        if !is_now || self.has_answer() {
            return Some((question, error));
        }
        let longer = backoff(RETRY_MIN, question.times, RETRY_MAX);
        // The last attempts are shortly before the end, whatever came before.
        let half = Span::from_nanos(end.since(now).as_nanos() / 2);
        let at = now + pause(&error).max(longer.min(half).max(RETRY_MIN));
        if at >= end {
            return Some((question, error));
        }
        if !question.beside && !std::mem::replace(&mut self.told_again, true) {
            let (name, left) = (host(&question.url), end.since(now).as_millis() / 1_000);
            self.view.note(&format!("{name}: {error}: asked again, gives up in {left} s"));
        }
        question.times += 1;
        question.body.clear();
        self.again.push((at, question, error));
        None
    }

    /// Asks again what is due; returns when the next is. Once a mirror has answered, the others are not
    /// waited for.
    pub(super) fn ask_again(&mut self) -> Outcome<Option<Time>> {
        let now = self.clock.now();
        let has_answer = self.has_answer();
        let mut waiting = Vec::new();
        for (at, mut question, error) in std::mem::take(&mut self.again) {
            if has_answer && !question.beside {
                self.failed(question, error)?;
            } else if has_answer || now >= at {
                question.until = if question.beside { (now + BESIDE_FOR).min(self.end) } else { self.end };
                question.via = self.via;
                self.put(question);
            } else {
                waiting.push((at, question, error));
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
