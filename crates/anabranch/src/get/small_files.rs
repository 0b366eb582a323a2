//! Small files from mirrors, many at once: the world of [`mirror::file_scheduler`].
//!
//! Each is fetched whole into memory, held against its hash, and handed to the [`Writer`].

mod error_policy;
mod file_job;
mod outcome;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;

use algo::{Output, Span, Time};
use anabranch_http::client::{Client, Event as Answer, FetchError, FetchId, FetchRequest, Head, RequestKind};
use mirror::file_scheduler::{
    BAD_FILES_MAX, Command, Event, FileId, FileScheduler, FileSpec, Input, SERVERS_MAX, ServerId,
};
use mirror::url::Url;
use net::{Clock, Egress, Interest, Poller};

use super::idle_timeout::IdleTimer;
use super::origin::{Origin, host, origin};
use super::rate_meter::RateMeter;
use super::request::Request;
use super::routes::{Route, all_lead, ends, route_of};
use super::server_status::{ServerStatus, faults};
use super::writer::Writer;
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::filenames::show;
use crate::{Error, Result};
pub(super) use file_job::{FileJob, Hash};

/// Files of up to so many bytes are fetched whole.
pub(super) const SMALL_BYTES: u64 = 4 << 20;
/// So much more than a file has may be announced before its server counts as one that sends something else.
const SLACK_BYTES: u64 = 64 << 10;

/// A server, as people know it.
struct ServerState {
    status: ServerStatus,
    origin: Origin,
    trusted: bool,
    /// Files in a row that it would not send, for a reason that may be the file's or the server's own.
    refusals: u32,
    /// Files that it has with other bytes.
    wrong: u32,
    /// Whether it has ever brought a file.
    is_right: bool,
    /// Why it would not send a file, for another reason than the next.
    refused: Option<String>,
    /// What it says of files that it does not give out, and what to do.
    forbids: Option<String>,
}

/// A file that is coming.
#[derive(Default)]
struct PartialBody {
    bytes: Vec<u8>,
    /// Whether the server says that it is a web page.
    page: bool,
}

/// What the whole directory has, beside these files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByteTotals {
    pub(super) total_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) resumed_bytes: u64,
}

/// The machine, its servers and the routes to them.
pub(super) struct SmallFiles<'a> {
    client: Client,
    machine: FileScheduler,
    items: &'a [FileJob],
    servers: Vec<ServerState>,
    routes: Vec<Route>,
    coming: BTreeMap<FetchId, PartialBody>,
    writer: Writer,
    /// Files that have their places.
    here: BTreeSet<FileId>,
    /// The servers that have a file with other bytes.
    wrong: BTreeMap<FileId, Vec<ServerId>>,
    /// The servers that do not give out a file, for want of a name and a password perhaps.
    refused: BTreeMap<FileId, ServerId>,
    /// Why the rest is given up.
    gave_up: Option<String>,
    totals: ByteTotals,
    clock: Clock,
    rows: RateMeter,
    timeout: Span,
    silence: IdleTimer,
    /// Answers, with bytes or without.
    answers: u64,
}

impl<'a> SmallFiles<'a> {
    /// A route for every server and every local address that leads there. `named`: the origins that the
    /// caller named.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if none leads from a named `via`.
    pub(super) fn new(
        client: Client,
        items: &'a [FileJob],
        named: &[Origin],
        request: &Request,
        writer: Writer,
        observer: &mut Observer<'_>,
    ) -> Result<Self> {
        let (mut servers, mut firsts): (Vec<ServerState>, Vec<&Url>) = (Vec::new(), Vec::new());
        let mut wanted = Vec::new();
        let mut left_out = false;
        for item in items {
            let mut places = Vec::new();
            for url in &item.urls {
                let origin = origin(url);
                let known = servers.iter().position(|seen| seen.origin == origin);
                let number = match known {
                    Some(number) => number,
                    None if servers.len() < SERVERS_MAX => {
                        firsts.push(url);
                        let trusted = named.contains(&origin);
                        servers.push(ServerState {
                            status: ServerStatus::new(host(url)),
                            origin,
                            trusted,
                            refusals: 0,
                            wrong: 0,
                            is_right: false,
                            refused: None,
                            forbids: None,
                        });
                        servers.len() - 1
                    }
                    None => {
                        left_out = true;
                        // No such server: the machine leaves it out.
                        SERVERS_MAX
                    }
                };
                places.push(number as ServerId);
            }
            wanted.push(FileSpec { bytes: item.bytes, servers: places });
        }
        if left_out {
            observer
                .notice(&format!("the Metalink names more than {SERVERS_MAX} servers: the first are asked"));
        }
        let clock = Clock::start();
        let now = clock.now();
        let mut new = Self {
            client,
            machine: FileScheduler::new(&wanted),
            items,
            servers,
            routes: Vec::new(),
            coming: BTreeMap::new(),
            writer,
            here: BTreeSet::new(),
            wrong: BTreeMap::new(),
            refused: BTreeMap::new(),
            gave_up: None,
            totals: ByteTotals::default(),
            clock,
            rows: RateMeter::new(now),
            timeout: request.timeout,
            silence: IdleTimer::new(now),
            answers: 0,
        };
        let urls: Vec<Url> = firsts.into_iter().cloned().collect();
        new.open(&urls, &request.via, observer)?;
        Ok(new)
    }

    /// Opens the routes to the servers of these URLs.
    fn open(&mut self, urls: &[Url], named: &[Egress], observer: &mut Observer<'_>) -> Result<()> {
        let mut error = None;
        for (number, url) in (0..).zip(urls) {
            let why = match ends(url, self.client.is_proxied(url.as_str()), named, observer.stop()) {
                Ok(found) => {
                    for (via, peer) in &found {
                        let Some(first) = self.machine.add_connection(number) else { break };
                        let second = self.machine.add_second_connection(first);
                        for _ in [Some(first), second].into_iter().flatten() {
                            let (via, address) = (via.clone(), peer.ip());
                            self.routes.push(Route { mirror: number, via, address, shut: None });
                        }
                    }
                    found.is_empty().then(|| "no route to it".to_owned())
                }
                Err(why) => Some(why),
            };
            if !self.routes.iter().any(|way| way.mirror == number) {
                let why = why.unwrap_or_else(|| "too many routes".into());
                let seen = &mut self.servers[usize::from(number)].status;
                observer.notice(&format!("{}: {why}", seen.name));
                error = Some(format!("{}: {why}", seen.name));
                (seen.out, seen.code) = (Some(why), ErrorKind::Unreachable);
                self.machine.handle(self.clock.now(), Input::Useless { server: number });
            }
        }
        if observer.is_stopped() {
            return Err(Error::interrupted("interrupted; what arrived is kept"));
        }
        if urls.is_empty() { Ok(()) } else { all_lead(named, &self.routes, error.as_deref()) }
    }

    /// Runs until every file is here or lost, or nobody answers any more. `totals` counts on.
    ///
    /// # Errors
    /// [`Error::Target`] if the disk does not take a file, [`Error::Interrupted`] if the caller stops. Files
    /// that arrived are in their places in any case.
    pub(super) fn run(&mut self, totals: &mut ByteTotals, observer: &mut Observer<'_>) -> Result<()> {
        self.totals = *totals;
        let mut poller = Poller::new(self.clock);
        let (mut until, mut is_paused) = (Time::ZERO, false);
        let result = loop {
            if let Err(failure) = self.written() {
                break Err(failure);
            }
            // While the disk is behind nobody is listened to, so nobody is silent.
            if self.writer.has_room() {
                if std::mem::take(&mut is_paused) {
                    self.machine.handle(self.clock.now(), Input::Resumed);
                }
                until = self.drain(observer);
            }
            if self.machine.remaining() == 0 && self.writer.is_idle() {
                break Ok(());
            }
            let now = self.clock.now();
            if self.is_silent(now, observer) {
                break Ok(());
            }
            if observer.is_due(now) {
                let progress = self.progress(false);
                observer.progress(now, &progress);
            }
            let has_room = self.writer.has_room();
            let set = [
                (observer.stop().wake().as_fd(), Interest::Read),
                (self.writer.wake().as_fd(), Interest::Read),
            ];
            let client = has_room.then(|| (self.client.fd(), Interest::Read));
            let tick = now + Span::from_millis(100);
            if let Err(e) =
                poller.wait(set.into_iter().chain(client), if has_room { until.min(tick) } else { tick })
            {
                break Err(Error::system(format!("waiting for packets: {e}")));
            }
            if observer.is_stopped() {
                break Err(Error::interrupted(
                    "interrupted; what arrived is kept, and the same command resumes",
                ));
            }
            is_paused |= !has_room;
            if has_room {
                self.receive(observer);
            }
        };
        *totals = self.totals;
        result
    }

    /// Does what the machine wants until it wants to wait; returns until when.
    fn drain(&mut self, observer: &mut Observer<'_>) -> Time {
        let now = self.clock.now();
        loop {
            match self.machine.poll(now) {
                Output::Wait(until) => return until,
                Output::Send(Command::Fetch { connection, fetch, file, url_index }) => {
                    let (Some(item), Some(end)) = (self.items.get(file), self.routes.get(connection)) else {
                        continue;
                    };
                    let Some(url) = item.urls.get(url_index) else { continue };
                    self.coming.insert(fetch, PartialBody::default());
                    let request = FetchRequest {
                        route: connection,
                        via: end.via.clone(),
                        url: url.as_str().to_owned(),
                        trusted: self.servers[usize::from(end.mirror)].trusted,
                        kind: RequestKind::Document { max: (item.bytes + SLACK_BYTES) as usize },
                    };
                    self.client.fetch(fetch, request);
                }
                Output::Send(Command::Cancel { fetch }) => {
                    self.coming.remove(&fetch);
                    self.client.cancel(fetch);
                }
                Output::Event(Event::Complete { file, fetch }) => {
                    let came = self.coming.remove(&fetch).unwrap_or_default();
                    self.writer.put(file, &self.items[file].name, came.bytes);
                }
                Output::Event(Event::BadContent { file, server }) => self.counted(file, server, observer),
                // What is not here at the end is lost.
                Output::Event(Event::Lost { .. }) => {}
            }
        }
    }

    /// A server has a file with other bytes.
    fn counted(&mut self, file: FileId, server: ServerId, observer: &mut Observer<'_>) {
        let Some(item) = self.items.get(file) else { return };
        let seen = &mut self.servers[usize::from(server)];
        self.wrong.entry(file).or_default().push(server);
        seen.wrong += 1;
        let why = format!("wrong bytes in {}", show(&item.name));
        if seen.wrong < BAD_FILES_MAX {
            observer.notice(&format!("{}: {why}: not asked for it again", seen.status.name));
            return;
        }
        let why = format!("{why} and {} other files", seen.wrong - 1);
        let seen = &mut seen.status;
        observer.banned(&seen.name, &why);
        seen.ban(why);
    }

    /// Counts the files that have their places.
    fn written(&mut self) -> Result<()> {
        for (number, outcome) in self.writer.ended() {
            outcome?;
            self.here.insert(number);
            self.totals.done_bytes += self.items.get(number).map_or(0, |item| item.bytes);
        }
        Ok(())
    }

    /// Whether nobody has answered for so long that the rest is given up.
    fn is_silent(&mut self, now: Time, observer: &mut Observer<'_>) -> bool {
        let bytes: u64 = self.machine.connections().map(|way| way.counters.received_bytes).sum();
        // A disk that takes its time is no silence.
        if !self.writer.is_idle() {
            self.silence.heard(now);
        }
        let faults = || faults(self.servers.iter().map(|seen| &seen.status));
        self.gave_up = self.silence.look(now, bytes + self.answers, self.timeout, "mirror", faults, observer);
        self.gave_up.is_some()
    }

    /// Hands over what came.
    fn receive(&mut self, observer: &mut Observer<'_>) {
        let now = self.clock.now();
        let mut events = Vec::new();
        self.client.events(|event| events.push(event));
        for event in events {
            match event {
                Answer::Head { id, head } => self.head(now, id, &head, observer),
                Answer::Body { id, bytes } => self.body(now, id, &bytes, observer),
                Answer::Done { id } => self.done(now, id, observer),
                Answer::Failed { id, error } => self.failed(now, id, &error, observer),
                Answer::Sample { route, sample } => {
                    let rtt = Span::from_nanos(sample.rtt.as_nanos() as u64);
                    self.machine.handle(now, Input::Sample { connection: route, rtt });
                }
            }
        }
    }

    fn head(&mut self, now: Time, id: FetchId, head: &Head, observer: &mut Observer<'_>) {
        let Some(item) = self.item(id) else { return };
        if let Some(coming) = self.coming.get_mut(&id) {
            coming.page = head.content_type.as_deref().is_some_and(file_job::is_page);
        }
        if let Some(way) = self.routes.get(route_of(id)) {
            self.servers[usize::from(way.mirror)].status.fault = None;
        }
        self.machine.handle(now, Input::Head { fetch: id, nth: head.nth, last: head.last });
        if head.length.is_some_and(|length| length != item.bytes) {
            self.client.cancel(id);
            self.wrong(now, id, observer);
        }
    }

    fn body(&mut self, now: Time, id: FetchId, bytes: &[u8], observer: &mut Observer<'_>) {
        let Some(item) = self.item(id) else { return };
        let Some(coming) = self.coming.get_mut(&id) else { return };
        coming.bytes.extend_from_slice(bytes);
        let came = coming.bytes.len() as u64;
        self.machine.handle(now, Input::Bytes { fetch: id, bytes: bytes.len() as u64 });
        if came > item.bytes {
            self.client.cancel(id);
            self.wrong(now, id, observer);
        }
    }

    fn done(&mut self, now: Time, id: FetchId, observer: &mut Observer<'_>) {
        let Some(item) = self.item(id) else { return };
        let bytes = self.coming.get(&id).map_or(&[][..], |coming| &coming.bytes);
        if bytes.len() as u64 == item.bytes && item.hash.is_of(bytes) {
            if let Some(way) = self.routes.get(route_of(id)) {
                self.servers[usize::from(way.mirror)].is_right = true;
            }
            self.machine.handle(now, Input::Done { fetch: id, valid: true });
        } else {
            self.wrong(now, id, observer);
        }
    }

    /// The file that a request is for, if it is not over.
    fn item(&mut self, id: FetchId) -> Option<&'a FileJob> {
        let file = self.machine.file_of(id);
        if file.is_none() {
            self.coming.remove(&id);
        }
        self.items.get(file?)
    }

    /// What came is not the file.
    fn wrong(&mut self, now: Time, id: FetchId, observer: &mut Observer<'_>) {
        let Some(item) = self.item(id) else { return };
        let page = self.coming.remove(&id).is_some_and(|coming| coming.page);
        if page && !item.may_be_page() && self.machine.was_unpipelined(id) {
            let why = "a web page came instead of the file: perhaps this network wants a login first";
            return self.failed(now, id, &FetchError::NotTheFile(why.to_owned()), observer);
        }
        self.machine.handle(now, Input::Done { fetch: id, valid: false });
    }
}
