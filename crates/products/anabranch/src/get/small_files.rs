//! Fetches many small files from mirrors at once: the world of [`anabranch_mirror::file_scheduler`].
//!
//! Each file is fetched whole into memory, compared with its hashes, and handed to the [`Writer`].

mod error_policy;
mod file_job;
mod outcome;
mod progress;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_http::client::{FetchError, FetchId, FetchRequest, Head, PIPELINE_MAX, RequestKind};
use anabranch_mirror::fetch_id::connection_of;
use anabranch_mirror::file_scheduler::{
    BAD_FILES_MAX, Command, Event, FileId, FileScheduler, FileSpec, Input, SERVERS_MAX, ServerId,
};
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;

use super::event_loop::{Context, EventLoop};
use super::file_connections::FileConnections;
use super::name_lookup::look_up;
use super::origin::{Origin, host, origin};
use super::rate_meter::RateMeter;
use super::request::Request;
use super::routes::{all_lead, host_of};
use super::server_status::ServerStatus;
use super::writer::Writer;
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::filenames::show;
use crate::target::{Aliases, Directory, FinalCheck, Mismatch, Target};
use crate::{Result, VouchedBy};
pub(super) use file_job::{FileJob, Hash, is_page};

/// The size of the largest file that is fetched whole into memory.
pub(super) const SMALL_BYTES: u64 = 4 << 20;
/// A response may be this much longer than its file before the request fails. A smaller excess counts as a
/// wrong file.
const SLACK_BYTES: u64 = 64 << 10;

/// What is known of a server.
struct ServerState {
    status: ServerStatus,
    origin: Origin,
    /// A URL on this server.
    url: Url,
    trusted: bool,
    /// Files that the server refused for a reason that may concern the file or the whole server. Unused once
    /// `is_right` is set.
    refusals: u32,
    /// Files for which the server delivered wrong bytes.
    wrong: u32,
    /// Whether the server has ever delivered a right file.
    is_right: bool,
    /// The last error with which the server refused a file, other than those in `forbids`.
    refused: Option<String>,
    /// The last [`FetchError::Forbidden`] of the server as text, with advice on what to do.
    forbids: Option<String>,
}

/// The body of a response that is still arriving.
#[derive(Default)]
struct PartialBody {
    bytes: Vec<u8>,
    /// Whether the response has the `Content-Type` of a web page.
    page: bool,
}

/// Byte counts of the whole directory, to which the small files are added as they are finished.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByteTotals {
    pub(super) total_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) resumed_bytes: u64,
}

/// The state of a transfer of small files: the scheduler, the servers and the routes to them.
pub(super) struct SmallFiles<'a> {
    connections: FileConnections<'a>,
    items: &'a [FileJob],
    servers: Vec<ServerState>,
    coming: BTreeMap<FetchId, PartialBody>,
    writer: Writer,
    directory: Arc<Directory>,
    force: bool,
    /// Files that the writer has put in their places.
    here: BTreeSet<FileId>,
    /// For each file, the servers that delivered wrong bytes for it.
    wrong: BTreeMap<FileId, Vec<ServerId>>,
    /// Files whose hashes in the Metalink contradict each other, with the reason.
    contradictions: BTreeMap<FileId, String>,
    /// For each file that was refused with [`FetchError::Forbidden`], the server that refused it last.
    refused: BTreeMap<FileId, ServerId>,
    /// Why the remaining files were given up, if they were.
    gave_up: Option<String>,
    totals: ByteTotals,
    rows: RateMeter,
    /// Whether no responses are read because the writer has no room.
    is_paused: bool,
    /// The number of failed requests that got a definite response. A response that the server is unavailable
    /// for now does not count. Together with the bytes received, this number shows that servers are alive.
    answers: u64,
    /// A clause that names the voucher for the hashes, for messages about wrong bytes.
    according: String,
}

impl<'a> SmallFiles<'a> {
    /// Creates a transfer with a route for every server and every local address that leads to it. `named` are
    /// the origins that the caller named, and `by` is the voucher for the hashes of `items`.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if a local end named by `via` leads to no
    /// server;
    /// [`ErrorKind::System`](crate::ErrorKind::System) if a thread cannot be started.
    pub(super) fn new(
        items: &'a [FileJob],
        named: &[Origin],
        request: &'a Request,
        directory: &Arc<Directory>,
        totals: ByteTotals,
        by: &VouchedBy,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Self> {
        let mut servers: Vec<ServerState> = Vec::new();
        let mut wanted = Vec::new();
        let mut left_out = false;
        for item in items {
            let mut places = Vec::new();
            for url in &item.urls {
                let origin = origin(url);
                let known = servers.iter().position(|server| server.origin == origin);
                let number = match known {
                    Some(number) => number,
                    None if servers.len() < SERVERS_MAX => {
                        let trusted = named.contains(&origin);
                        servers.push(ServerState {
                            status: ServerStatus::new(host(url)),
                            origin,
                            url: url.clone(),
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
                        // The scheduler ignores a server with this number.
                        SERVERS_MAX
                    }
                };
                places.push(number as ServerId);
            }
            wanted.push(FileSpec { bytes: item.bytes, servers: places });
        }
        if left_out {
            events
                .observer
                .notice(&format!("the Metalink names more than {SERVERS_MAX} servers: the first are asked"));
        }
        let now = events.world.now();
        let writer = Writer::start(Some(&events.world.waker()))?;
        let mut new = Self {
            connections: FileConnections::new(FileScheduler::new(&wanted, PIPELINE_MAX), &request.links.ends),
            items,
            servers,
            coming: BTreeMap::new(),
            writer,
            directory: Arc::clone(directory),
            force: request.force,
            here: BTreeSet::new(),
            wrong: BTreeMap::new(),
            contradictions: BTreeMap::new(),
            refused: BTreeMap::new(),
            gave_up: None,
            totals,
            rows: RateMeter::new(now),
            is_paused: false,
            answers: 0,
            according: by.according(),
        };
        new.open(events)?;
        Ok(new)
    }

    /// Opens the routes to all servers.
    fn open(&mut self, events: &mut EventLoop<'_, '_>) -> Result<()> {
        let urls = self.servers.iter().map(|server| &server.url);
        let direct = urls.filter(|url| !events.world.is_proxied(url.as_str()));
        let hosts: Vec<String> = direct.map(|url| host_of(url).to_owned()).collect();
        look_up(&hosts, "what arrived is kept", events)?;
        let cx = &mut events.context();
        let mut error = None;
        for (server, state) in (0..).zip(&mut self.servers) {
            if let Err(why) = self.connections.connect(server, &state.url, cx) {
                let status = &mut state.status;
                cx.observer.notice(&format!("{}: {why}", status.name));
                error = Some(format!("{}: {why}", status.name));
                (status.out, status.code) = (Some(why), ErrorKind::Unreachable);
                self.connections.machine.handle(cx.now(), Input::Useless { server });
            }
        }
        if self.servers.is_empty() {
            Ok(())
        } else {
            all_lead(self.connections.named, &self.connections.routes, error.as_deref(), cx.world)
        }
    }

    /// Does what the scheduler wants until it waits; returns the time until which it waits.
    fn drain(&mut self, cx: &mut Context<'_, '_>) -> Time {
        let now = cx.now();
        loop {
            match self.connections.machine.poll(now) {
                Output::Wait(until) => return until,
                Output::Send(Command::Fetch { connection, fetch, file, url_index }) => {
                    let (Some(item), Some(end)) =
                        (self.items.get(file), self.connections.routes.get(connection))
                    else {
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
                    cx.world.fetch(fetch, request);
                }
                Output::Send(Command::Cancel { fetch }) => {
                    self.coming.remove(&fetch);
                    cx.world.cancel(fetch);
                }
                Output::Event(Event::Complete { file, fetch }) => {
                    let came = self.coming.remove(&fetch).unwrap_or_default();
                    if self.contradictions.contains_key(&file) {
                        continue;
                    }
                    self.write(file, came.bytes);
                }
                Output::Event(Event::BadContent { file, server }) => {
                    self.counted(file, server, cx.observer);
                }
                // Every file that is not in `here` at the end is reported as lost.
                Output::Event(Event::Lost { .. }) => {}
            }
        }
    }

    /// Hands a verified file to the writer, which puts it in its place below the directory.
    fn write(&mut self, file: FileId, bytes: Vec<u8>) {
        let (name, directory) = (self.items[file].name.clone(), Arc::clone(&self.directory));
        let force = self.force;
        self.writer.put(file, bytes.len() as u64, move || {
            let place = directory.place(name.split('/').map(str::as_bytes))?;
            let (id, aliases) = (ContentId::of(&bytes), Aliases::default());
            let mut read = |to: &mut [u8], at: u64| {
                to.copy_from_slice(&bytes[at as usize..][..to.len()]);
                Ok(())
            };
            Target::put(place, id, &aliases, FinalCheck::ROOT, force, &mut read, &mut |_| true).map(drop)
        });
    }

    /// Records that a server delivered wrong bytes for a file, and bans it after [`BAD_FILES_MAX`] such
    /// files.
    fn counted(&mut self, file: FileId, server: ServerId, observer: &mut Observer<'_>) {
        let Some(item) = self.items.get(file) else { return };
        let state = &mut self.servers[usize::from(server)];
        self.wrong.entry(file).or_default().push(server);
        state.wrong += 1;
        let (name, according) = (show(&item.name), &self.according);
        let why = format!("wrong bytes in {name}");
        if state.wrong < BAD_FILES_MAX {
            let server = &state.status.name;
            observer.notice(&format!("{server}: {why}{according}: not asked for it again"));
            return;
        }
        let why = format!("{why} and {} other files{according}", state.wrong - 1);
        let status = &mut state.status;
        observer.banned(&status.name, &why);
        status.ban(why);
    }

    /// Records the files that the writer has put in their places.
    fn written(&mut self) -> Result<()> {
        for (number, outcome) in self.writer.ended() {
            outcome?;
            self.here.insert(number);
            self.totals.done_bytes += self.items.get(number).map_or(0, |item| item.bytes);
        }
        Ok(())
    }

    fn head(&mut self, now: Time, id: FetchId, head: &Head, cx: &mut Context<'_, '_>) {
        let Some(item) = self.item(id) else { return };
        if let Some(coming) = self.coming.get_mut(&id) {
            coming.page = head.content_type.as_deref().is_some_and(is_page);
        }
        if let Some(route) = self.connections.routes.get(connection_of(id)) {
            self.servers[usize::from(route.mirror)].status.fault = None;
        }
        self.connections.machine.handle(now, Input::Head { fetch: id, nth: head.nth, last: head.last });
        if head.length.is_some_and(|length| length != item.bytes) {
            cx.world.cancel(id);
            self.wrong(now, id, cx.observer);
        }
    }

    fn body(&mut self, now: Time, id: FetchId, bytes: &[u8], cx: &mut Context<'_, '_>) {
        let Some(item) = self.item(id) else { return };
        let Some(coming) = self.coming.get_mut(&id) else { return };
        coming.bytes.extend_from_slice(bytes);
        let came = coming.bytes.len() as u64;
        self.connections.machine.handle(now, Input::Bytes { fetch: id, bytes: bytes.len() as u64 });
        if came > item.bytes {
            cx.world.cancel(id);
            self.wrong(now, id, cx.observer);
        }
    }

    fn done(&mut self, now: Time, id: FetchId, observer: &mut Observer<'_>) {
        let Some(item) = self.item(id) else { return };
        let bytes = self.coming.get(&id).map_or(&[][..], |coming| &coming.bytes);
        let mismatch = item.hash.mismatch(bytes);
        let is_contradiction = matches!(mismatch, Some(Mismatch::Contradiction(_)));
        if bytes.len() as u64 == item.bytes && (mismatch.is_none() || is_contradiction) {
            if let (Some(Mismatch::Contradiction(why)), Some(file)) =
                (mismatch, self.connections.machine.file_of(id))
            {
                self.contradictions.insert(file, format!("what came{why}"));
            }
            if let Some(route) = self.connections.routes.get(connection_of(id)) {
                self.servers[usize::from(route.mirror)].is_right = true;
            }
            self.connections.machine.handle(now, Input::Done { fetch: id, valid: true });
        } else {
            self.wrong(now, id, observer);
        }
    }

    /// Returns the file that a request is for. If the request is over, drops its body and returns `None`.
    fn item(&mut self, id: FetchId) -> Option<&'a FileJob> {
        let file = self.connections.machine.file_of(id);
        if file.is_none() {
            self.coming.remove(&id);
        }
        self.items.get(file?)
    }

    /// Handles a response that is not the file: reports it to the scheduler as wrong bytes, or as a failed
    /// request if it is a web page that was sent in place of the file.
    fn wrong(&mut self, now: Time, id: FetchId, observer: &mut Observer<'_>) {
        let Some(item) = self.item(id) else { return };
        let page = self.coming.remove(&id).is_some_and(|coming| coming.page);
        if page && !item.may_be_page() && self.connections.machine.was_unpipelined(id) {
            let why = "a web page came instead of the file: perhaps this network wants a login first";
            return self.failed(now, id, &FetchError::NotTheFile(why.to_owned()), observer);
        }
        self.connections.machine.handle(now, Input::Done { fetch: id, valid: false });
    }
}
