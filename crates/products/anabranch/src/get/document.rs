//! Fetches one document of a server before a transfer begins, such as a list of hashes.

use anabranch_algo::Time;
use anabranch_http::client::{Event, FetchId, FetchRequest, RequestKind, RouteId};
use anabranch_mirror::url::Url;
use anabranch_net::Egress;

use super::event_loop::{Context, EventLoop, Poll, Stage};
use super::link_policy::to_ask_from;
use super::request::Request;
use super::server_status::{code, describe};
use super::sockets::Sockets;
use crate::event::Observer;
use crate::{Error, Result};

/// Fetches the document at `url`, of at most `max` bytes. The local ends of the request are tried one after
/// the other. With `trusted` the user's secrets may be sent to the server.
///
/// # Errors
/// The error of the server over the last local end;
/// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if it did not answer in time,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops the transfer.
pub(super) fn fetch(
    url: &Url,
    trusted: bool,
    max: usize,
    request: &Request,
    observer: &mut Observer<'_>,
) -> Result<Vec<u8>> {
    let mut world = Sockets::new(&request.http, observer)?;
    let mut events = EventLoop::new(&mut world, observer, request.timeout).with_links(&request.links)?;
    events.world.open_http()?;
    let vias = to_ask_from(&request.links.ends, events.world);
    let until = events.world.now() + request.timeout;
    let mut document = DocumentFetch {
        url,
        trusted,
        max,
        vias,
        tried: 0,
        is_asked: false,
        body: Vec::new(),
        is_whole: false,
        until,
    };
    events.run(&mut document)?;
    Ok(document.body)
}

/// Fetches a document, as a stage of the event loop.
struct DocumentFetch<'a> {
    url: &'a Url,
    /// Whether the server may get the user's secrets.
    trusted: bool,
    max: usize,
    vias: Vec<Egress>,
    /// The number of local ends that have failed.
    tried: usize,
    is_asked: bool,
    body: Vec<u8>,
    is_whole: bool,
    /// The time at which the document is given up.
    until: Time,
}

impl Stage for DocumentFetch<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        if self.is_whole {
            return Ok(Poll::Done);
        }
        if cx.now() >= self.until {
            return Err(Error::unreachable(format!("{}: no answer yet", self.url)).at(self.url));
        }
        if !std::mem::replace(&mut self.is_asked, true) {
            let request = FetchRequest {
                route: self.tried as RouteId,
                via: self.vias[self.tried].clone(),
                url: self.url.as_str().to_owned(),
                trusted: self.trusted,
                kind: RequestKind::Document { max: self.max },
            };
            cx.world.fetch(self.tried as FetchId, request);
        }
        Ok(Poll::Wait(self.until))
    }

    fn on_http(&mut self, _: &mut Context<'_, '_>, events: &mut Vec<Event>) -> Result<()> {
        for event in events.drain(..) {
            match event {
                Event::Body { bytes, .. } => self.body.extend_from_slice(&bytes),
                Event::Done { .. } => self.is_whole = true,
                Event::Failed { .. } if self.tried + 1 < self.vias.len() => {
                    (self.tried, self.is_asked) = (self.tried + 1, false);
                    self.body.clear();
                }
                Event::Failed { error, .. } => {
                    let why = format!("{}: {}", self.url, describe(&error, true));
                    return Err(code(&error).error(why).at(self.url).because(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn interrupted(&self) -> &'static str {
        "nothing was fetched"
    }
}
