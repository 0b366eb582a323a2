//! Interprets the answers of mirrors.

use anabranch_http::client::{Event as Answer, FetchError};
use anabranch_mirror::fetch_id::connection_of;
use anabranch_mirror::range_scheduler::{Failure, Input, MirrorId};
use anabranch_mmtp::subscriber::Subscriber;

use super::{ChangedVersion, Context, MirrorDriver, MirrorState, sources, with_pool};
use crate::event::Observer;
use crate::get::routes::has_others;
use crate::get::server_status::pause;

impl MirrorDriver {
    /// Hands what servers sent to the scheduler, and gives up mirrors and routes that turn out to be useless.
    pub(in crate::get) fn receive(
        &mut self,
        subscriber: &mut Subscriber,
        cx: &mut Context<'_, '_>,
        events: &mut Vec<Answer>,
    ) {
        let now = cx.now();
        let judged = self.config.judged;
        let beside = self.mirrors.iter().filter(|state| state.status.out.is_none()).count() > 1;
        let Self { machine, mirrors, network, pool, .. } = self;
        let routes = &mut network.routes;
        let mut failed: Vec<(MirrorId, FetchError)> = Vec::new();
        let mut shut: Vec<(usize, FetchError)> = Vec::new();
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            events.drain(..).for_each(|event| match event {
                Answer::Head { id, head } => {
                    if let Some(route) = routes.get(connection_of(id))
                        && let Err(error) = mirrors[usize::from(route.mirror)].note_answer()
                    {
                        failed.push((route.mirror, error));
                        machine.handle(now, Input::Failed { fetch: id, failure: Failure::Useless }, pool);
                        return;
                    }
                    let input = match head.ends_early_at {
                        _ if head.whole => Input::Whole { fetch: id },
                        Some(end_byte) => Input::Short { fetch: id, end_byte },
                        None => Input::Head { fetch: id },
                    };
                    machine.handle(now, input, pool);
                }
                Answer::Body { id, bytes } => {
                    machine.handle(now, Input::Body { fetch: id, bytes: &bytes }, pool);
                }
                // Requests for ranges do not ask for the first bytes of a file.
                Answer::Opening { .. } => {}
                Answer::Done { id } => machine.handle(now, Input::Done { fetch: id }, pool),
                // The scheduler has given this request up: ignore its failure.
                Answer::Failed { id, .. } if !machine.is_live(id) => {}
                Answer::Failed { id, error } => {
                    let route = routes.get(connection_of(id));
                    let state = route.and_then(|route| mirrors.get_mut(usize::from(route.mirror)));
                    let meant = state.and_then(|state| {
                        state.status.answered(&error);
                        state.meaning(&error, (judged, beside), cx.observer)
                    });
                    // A portal, a meddling proxy or another replica may have answered on this route alone.
                    let is_of_route = meant.is_none() && has_others(routes, connection_of(id));
                    let failure =
                        if is_of_route { Failure::Broken } else { meant.unwrap_or(Failure::Useless) };
                    machine.handle(now, Input::Failed { fetch: id, failure }, pool);
                    if is_of_route {
                        let connection = connection_of(id);
                        machine.handle(now, Input::Down { connection }, pool);
                        if let Some(entry) = routes.get_mut(connection) {
                            entry.shut = Some(error.to_string());
                        }
                        shut.push((connection, error));
                    } else if let Some(route) = routes.get(connection_of(id))
                        && failure == Failure::Useless
                    {
                        failed.push((route.mirror, error));
                    }
                }
                Answer::Sample { route, sample } => {
                    machine.handle(now, Input::Sample { connection: route, sample }, pool);
                }
            });
        });
        for (connection, error) in shut {
            let Some(route) = self.network.routes.get(connection) else { continue };
            let (name, via) = (self.name(route.mirror), &route.via);
            cx.observer.notice(&format!("{name} via {via}: {error}: not asked over this route any more"));
        }
        for (mirror, error) in failed {
            self.out(mirror, &error, subscriber, cx.observer);
        }
        self.tell_reserve(cx.observer);
    }
}

impl MirrorState {
    /// Records that the mirror has begun to answer a request.
    ///
    /// # Errors
    /// The reason, if the answer must not be used.
    fn note_answer(&mut self) -> Result<(), FetchError> {
        self.status.fault = None;
        self.answers += 1;
        match self.changed {
            Some(ChangedVersion::OneAnswer) if self.answers > 1 => Err(FetchError::Broken(
                "it broke off, and its ETag or date is another with each answer: the next may be of another \
                 file"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Returns what a failed request means for its connection; `None` if either the mirror or this route is
    /// useless. `judged` tells whether a hash of the whole file tells which bytes are right, `beside` whether
    /// other mirrors are in use too.
    fn meaning(
        &mut self,
        error: &FetchError,
        (judged, beside): (bool, bool),
        observer: &mut Observer<'_>,
    ) -> Option<Failure> {
        match error {
            FetchError::ServerError { retry: Some(_), .. } | FetchError::Busy { .. } => {
                Some(Failure::Busy { retry: pause(error) })
            }
            FetchError::Unreachable(_) | FetchError::Broken(_) | FetchError::ServerError { .. } => {
                Some(Failure::Broken)
            }
            FetchError::NoRanges => Some(Failure::NoRanges),
            FetchError::NotFound(_) => Some(Failure::Useless),
            FetchError::ChangedTag | FetchError::ChangedDate => {
                self.on_changed_version(error, (judged, beside), observer)
            }
            _ => None,
        }
    }

    fn on_changed_version(
        &mut self,
        error: &FetchError,
        (judged, beside): (bool, bool),
        observer: &mut Observer<'_>,
    ) -> Option<Failure> {
        let is_new = self.changed.is_none();
        let what = *self.changed.get_or_insert(match (judged, self.answers == 0) {
            // The mirror has already answered with the old version, and either no hash can tell the versions
            // apart or other mirrors can bring the file without it.
            (_, false) if !judged || beside => ChangedVersion::Out,
            (true, _) => ChangedVersion::Ignored,
            (false, _) => ChangedVersion::OneAnswer,
        });
        let (failure, text) = match what {
            ChangedVersion::Ignored => (Failure::Broken, "the hash of the whole tells whether that matters"),
            ChangedVersion::OneAnswer => {
                let text = "everything is taken from one answer, without ranges, and cannot be resumed";
                (Failure::NoRanges, text)
            }
            ChangedVersion::Out => return None,
        };
        (self.mirror.validator, self.mirror.date) = (None, None);
        if is_new {
            observer.notice(&format!("{}: {error}: {text}", self.status.name));
        }
        Some(failure)
    }
}
