//! Asks HTTP servers, before anything is fetched, which of the URLs have the file, how long it is, and which
//! hashes there are.
//!
//! Probes that do not depend on each other are sent at once. What is found, the strongest first: chaining
//! values of all blocks (a leaf list that gives the content's root), hashes of pieces (a Metalink), the root
//! alone, the SHA-256 of the whole, nothing. A mirror that has a file of another length, or none, is left out
//! and named.
//!
//! What the user says (a content id, a checksum, a Metalink) is believed. What servers say of the file
//! themselves is used only where the user says nothing, and only if more than half of them agree: `claims`.
//! Nobody is waited for longer than for the whole transfer, nor for what may lie beside the file
//! longer than [`BESIDE_FOR`]. The user's secrets go only to origins that the user named.

pub(super) mod candidates;
mod claims;
mod links;
mod listing;
mod names;
mod one_file;
mod resolution;
mod retry;
pub(super) mod rounds;
mod sidecar;
mod signatures;
mod stage;
mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use anabranch_algo::{Span, Time};
use anabranch_http::client::{Event, FetchError, FetchId, FetchRequest, Head, RequestKind, RouteId};
use anabranch_mirror::digests::Digests;
use anabranch_mirror::leaf_list::{self, LeafList};
use anabranch_mirror::metalink::{self, Metalink};
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;
use anabranch_net::Egress;

use super::event_loop::EventLoop;
use super::history::History;
use super::locators::{Locators, MetalinkOrigin};
use super::origin::{Origin, host, origin};
use super::request::Request;
use crate::error::ErrorKind;
use crate::openpgp::Signatures;
use crate::{Error, Result};
use told::{Told, its_file};

/// Mirrors of one transfer.
pub(super) const MIRRORS_MAX: usize = 64;
/// The most bytes of a leaf list that are asked for before the file's length, which bounds it, is known: that
/// of a file of a GiB.
const EARLY_LEAVES_MAX: usize = 2 << 20;
/// A `b3sum` line is no longer.
const LINE_MAX: usize = 16 * 1024;
/// How long an answer about what may lie beside the file is waited for; a leaf list that has begun to come
/// may take longer, for it is as long as the file is ([`sidecar::LEAVES_FOR`]).
const BESIDE_FOR: Span = Span::from_secs(10);
/// Once some servers have answered, and nothing has come for so long, what is missing is not waited for.
const QUIET: Span = Span::from_secs(3);

/// What a probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    Mirror(usize),
    List,
    Leaves,
    Line,
    Signature,
}

impl ProbeKind {
    /// Whether it asks for what a server may have beside the file, for the URL `by`. A signature is demanded.
    const fn may_not_exist(self, by: Option<usize>) -> bool {
        by.is_some() && !matches!(self, Self::Signature)
    }
}

/// A request that waits for its answer.
struct Probe {
    kind: ProbeKind,
    url: Url,
    what: RequestKind,
    /// The index of the local end that it was sent from.
    via: usize,
    /// That of the one that is tried next, if there are so many.
    next_via: usize,
    asked_at: Time,
    /// Its connection.
    route: RouteId,
    /// The URL whose server says what comes, if the user does not: it is for a file that the caller did not
    /// name and that may not exist.
    by: Option<usize>,
    /// The deadline of the answer.
    until: Time,
    /// How often it was sent again: its server said "not now" (5xx, 429), or broke off.
    times: u32,
    /// When the first bytes of the body came; of a mirror, its head.
    begun: Option<Time>,
    body: Vec<u8>,
}

/// What the caller says of the content.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    pub(super) id: Option<ContentId>,
    pub(super) digests: Digests,
}

/// Which of the rounds of a transfer it is: see [`rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// There is no other.
    Only,
    /// There may be another.
    First,
    /// The last one: servers that can only say that they cannot answer now are waited for until the
    /// time-out, if the user named them, for the others have not brought what is wanted.
    Second,
}

/// What is to be asked of servers, or no longer.
enum Command {
    Fetch(FetchId, FetchRequest),
    Cancel(FetchId),
}

struct Discovery<'a> {
    /// Not yet carried out.
    commands: Vec<Command>,
    /// Not yet said.
    notices: Vec<String>,
    /// Which mirrors have another file.
    warnings: Vec<String>,
    /// What is said of mirrors once another one has answered: if none does, the error says it.
    unsaid: Vec<String>,
    history: &'a History,
    vias: Vec<Egress>,
    /// The first of `vias` that has not failed.
    via: usize,
    /// What could not be reached as the kernel sends it, where no local end was named; without an error: what
    /// has not been answered yet.
    elsewhere: Vec<(Probe, Option<FetchError>)>,
    /// When it was last told or polled.
    now: Time,
    start: Time,
    /// When a server last answered.
    heard_at: Time,
    /// Who has answered anything, and how long the slowest first answer took.
    answered: BTreeSet<Origin>,
    slowest: Span,
    /// The deadline of all answers.
    end: Time,
    said: Expected,
    /// The name in the URI.
    uri_name: Option<Vec<u8>>,
    /// That in the list of hashes, where URLs have different names.
    listed_name: Option<Vec<u8>>,
    /// Whether the caller says what the file is called, and by that, that there is one.
    is_name_given: bool,
    /// Origins that the user named.
    origins: Vec<Origin>,
    /// The first URL that the user named.
    first: Option<Url>,
    /// Whether the user named nothing else.
    alone: bool,
    /// All of it has come, or is there.
    is_here: bool,
    /// What comes is read in order, so that nothing can be tried twice.
    is_read_in_order: bool,
    round: Round,
    /// When the first mirror answered.
    answered_at: Option<Time>,
    /// Variants are tried in turn: a hash of the user's or a signature tells which is right.
    tries_variants: bool,
    asked: BTreeMap<FetchId, Probe>,
    /// Probes to repeat, and when: their servers could not answer.
    again: Vec<(Time, Probe, FetchError)>,
    retry_reported: bool,
    urls: Vec<Url>,
    /// Whether the user named each of these, or a Metalink of the user's.
    named: Vec<bool>,
    heads: Vec<Option<Head>>,
    /// How long each took to answer.
    delays: Vec<Span>,
    /// How many more were named than are asked.
    unasked: usize,
    /// Hashes of the beginnings of what they have, if these have come.
    openings: Vec<Option<[u8; 32]>>,
    /// Metalinks to ask for, and the URL whose server offers them, if the user does not name them.
    lists: VecDeque<(Url, Option<usize>)>,
    /// What a Metalink of the user's says.
    metalink: Option<metalink::File>,
    /// Leaf lists to ask for, and the URL whose server offers them.
    lists_of_leaves: Vec<(Url, Option<usize>)>,
    /// Those that are perhaps longer than [`EARLY_LEAVES_MAX`]: they are asked for when the file's length is
    /// known.
    long_leaves: Vec<(Url, Option<usize>)>,
    /// That of the content which the user means.
    leaves: Option<LeafList>,
    signatures: Signatures,
    /// URLs beside which these have been looked for.
    asked_for_signatures: usize,
    /// What servers say themselves, each with the URL for which it does.
    told: Vec<(usize, Told)>,
    /// The kinds of files that were asked for beside the URLs of all.
    asked_of_all: Vec<ProbeKind>,
    next: FetchId,
    /// The servers that do not have it or do not give it, each with the kind of error and the reason.
    troubles: Vec<(ErrorKind, String)>,
    /// The servers that the user named, and that cannot be reached or answer only that they cannot now.
    unheard: Vec<String>,
    /// The same, and those that a Metalink of the user's names.
    absent: Vec<String>,
    wants_beside: bool,
    /// A Metalink of several files, which is all there is to find, and its server if the user did not name
    /// it.
    several: Option<(Metalink, Url, Option<String>)>,
}

/// Asks all servers, over the first local end of the request that works; returns with what they say.
///
/// # Errors
/// [`Error::Usage`] if a list of mirrors is none, [`Error::Interrupted`] if the caller stops.
fn ask_all<'a>(
    asked: Locators,
    said: Expected,
    round: Round,
    request: &'a Request,
    events: &mut EventLoop<'_, '_>,
) -> Result<Discovery<'a>> {
    events.world.open_http()?;
    let now = events.world.now();
    let mut discovery = Discovery {
        commands: Vec::new(),
        notices: Vec::new(),
        warnings: Vec::new(),
        unsaid: Vec::new(),
        history: &request.history,
        vias: if request.via.is_empty() { vec![Egress::any()] } else { request.via.clone() },
        via: 0,
        elsewhere: Vec::new(),
        now,
        start: now,
        heard_at: now,
        answered: BTreeSet::new(),
        slowest: Span::ZERO,
        end: now + request.timeout,
        said,
        uri_name: asked.uri.and_then(|uri| uri.name),
        listed_name: request.listed_name.clone(),
        is_name_given: request.reader.is_none() && !request.output.needs_name(false),
        origins: asked.origins,
        first: asked.urls.first().cloned(),
        alone: asked.urls.len() == 1 && asked.lists.is_empty() && asked.metalink.is_none(),
        is_here: false,
        is_read_in_order: request.reader.is_some(),
        round,
        answered_at: None,
        tries_variants: false,
        asked: BTreeMap::new(),
        again: Vec::new(),
        retry_reported: false,
        urls: Vec::new(),
        named: Vec::new(),
        heads: Vec::new(),
        delays: Vec::new(),
        unasked: 0,
        openings: Vec::new(),
        lists: asked.lists.into_iter().map(|url| (url, None)).collect(),
        metalink: None,
        lists_of_leaves: Vec::new(),
        long_leaves: Vec::new(),
        leaves: None,
        told: Vec::new(),
        signatures: Signatures::of(request.keyring.clone()),
        asked_for_signatures: 0,
        asked_of_all: Vec::new(),
        next: 0,
        troubles: Vec::new(),
        unheard: Vec::new(),
        absent: Vec::new(),
        wants_beside: true,
        several: None,
    };
    for url in asked.urls {
        discovery.mirror(url, true);
    }
    if let Some((mut metalink, base)) = asked.metalink
        && let Some(file) = metalink.files.pop()
    {
        let beside = file.sibling_leaf_list();
        let path = if let MetalinkOrigin::Path(path) = &base { Some(path) } else { None };
        // A leaf list lies beside the Metalink, as `mirror-list make` puts it.
        if let (Some(name), Some(path)) = (beside, path)
            && let Ok(list) = std::fs::File::open(path.with_file_name(OsStr::from_bytes(&name)))
        {
            let (max, mut bytes) = (LeafList::max_len(file.size.unwrap_or(u64::MAX)), Vec::new());
            // One byte more than it may have is as good as all of it: it is refused.
            if list.take(max as u64 + 1).read_to_end(&mut bytes).is_ok() {
                discovery.leaves_came(&bytes, None, true);
            }
        }
        let url = if let MetalinkOrigin::Url(url) = &base { Some(url) } else { None };
        discovery.metalink_came(file, url, None);
    }
    events.run(&mut discovery)?;
    Ok(discovery)
}

impl Discovery<'_> {
    fn ask(&mut self, kind: ProbeKind, url: &Url, what: RequestKind, by: Option<usize>) {
        let until = self.deadline(kind, by);
        let via = self.via;
        let (url, body, asked_at) = (url.clone(), Vec::new(), self.now);
        let (route, times, begun, next_via) = (0, 0, None, via + 1);
        self.put(Probe { kind, url, what, via, next_via, asked_at, route, by, until, times, begun, body });
    }

    /// Until when an answer is waited for that is asked for now: not long, if it may not exist.
    fn deadline(&self, kind: ProbeKind, by: Option<usize>) -> Time {
        match kind.may_not_exist(by) {
            true => (self.now + BESIDE_FOR).min(self.end),
            false => self.end,
        }
    }

    /// A connection of its own for a probe, so that none waits for another. The first that is free: what is
    /// asked later, and the mirrors' first ranges, find the connections of earlier probes open.
    fn free_route(&self) -> RouteId {
        let is_taken = |route| self.asked.values().any(|probe| probe.route == route);
        (0..).find(|route| !is_taken(*route)).unwrap_or(0)
    }

    fn put(&mut self, mut probe: Probe) {
        (probe.route, probe.asked_at) = (self.free_route(), self.now);
        let id = self.next;
        self.next += 1;
        let request = FetchRequest {
            route: probe.route,
            via: self.vias[probe.via].clone(),
            url: probe.url.as_str().to_owned(),
            trusted: self.is_named(&probe.url),
            kind: probe.what.clone(),
        };
        self.commands.push(Command::Fetch(id, request));
        self.asked.insert(id, probe);
    }

    /// Whether the user named its origin.
    fn is_named(&self, url: &Url) -> bool {
        self.origins.contains(&origin(url))
    }

    /// One more URL of the file. `named`: by the user, or by a Metalink of the user's.
    fn mirror(&mut self, url: Url, named: bool) {
        if let Some(known) = self.urls.iter().position(|known| known.as_str() == url.as_str()) {
            self.named[known] |= named;
        } else if self.urls.len() < MIRRORS_MAX {
            let number = self.urls.len();
            self.ask(ProbeKind::Mirror(number), &url, RequestKind::Metadata, None);
            self.urls.push(url);
            self.named.push(named);
            self.heads.push(None);
            self.delays.push(Span::ZERO);
            self.openings.push(None);
        } else {
            self.unasked += usize::from(named);
        }
    }

    /// The length of the file, if it is known by now.
    fn length_so_far(&self) -> Option<u64> {
        let known = self.said.id.map(|id| id.length);
        let known = known.or_else(|| self.metalink.as_ref()?.size);
        known.or_else(|| self.heads.iter().flatten().find_map(|head| head.length))
    }

    fn event(&mut self, event: Event) -> Result<()> {
        if let Event::Head { id, .. } | Event::Body { id, .. } | Event::Failed { id, .. } = &event
            && let Some(probe) = self.asked.get(id)
            && self.answered.insert(origin(&probe.url))
        {
            self.slowest = self.slowest.max(self.now.since(probe.asked_at));
        }
        match event {
            Event::Head { id, head } => {
                if let Some(probe) = self.asked.get_mut(&id)
                    && let ProbeKind::Mirror(number) = probe.kind
                {
                    probe.begun = Some(self.now);
                    self.delays[number] = self.now.since(probe.asked_at);
                    self.answered_at.get_or_insert(self.now);
                    (self.heads[number], self.via) = (Some(*head), probe.via);
                    self.drop_twins(id);
                }
            }
            Event::Body { id, bytes } => {
                if let Some(probe) = self.asked.get_mut(&id) {
                    probe.begun.get_or_insert(self.now);
                    probe.body.extend_from_slice(&bytes);
                    self.look_at_head(id, bytes.len());
                }
            }
            Event::Done { id } => {
                if let Some(probe) = self.asked.remove(&id) {
                    self.done(probe)?;
                }
            }
            Event::Failed { id, error } => {
                if let Some(probe) = self.asked.remove(&id) {
                    self.answered_with_error(probe, error)?;
                }
            }
            Event::Opening { id, bytes } => {
                if let Some(Probe { kind: ProbeKind::Mirror(number), .. }) = self.asked.get(&id) {
                    self.openings[*number] = Some(*blake3::hash(&bytes).as_bytes());
                }
            }
            Event::Sample { .. } => {}
        }
        Ok(())
    }

    fn done(&mut self, probe: Probe) -> Result<()> {
        let Probe { kind, url, body, by, .. } = probe;
        let known = self.told.len();
        match kind {
            ProbeKind::Mirror(number) => self.links(number),
            ProbeKind::List => match (Metalink::parse(&body).map(|metalink| metalink.seen_from(&url)), by) {
                (Ok(metalink), Some(_)) if metalink.files.len() > 1 && self.is_of_directory(&url) => {
                    let by = host(&url);
                    self.several = Some((metalink, url, Some(by)));
                }
                (Ok(metalink), Some(number)) => {
                    if let Some(file) = its_file(metalink, &self.urls[number]) {
                        self.metalink_came(file, Some(&url), by);
                    }
                }
                (Ok(metalink), None) if metalink.files.len() > 1 => {
                    self.several = Some((metalink, url, None));
                }
                (Ok(mut metalink), None) => {
                    if let Some(file) = metalink.files.pop() {
                        self.metalink_came(file, Some(&url), None);
                    }
                }
                (Err(e), _) if self.urls.is_empty() => {
                    return Err(Error::usage(format!("{url}: no Metalink: {e}")));
                }
                (Err(_), _) => {}
            },
            ProbeKind::Leaves => self.leaves_came(&body, by, false),
            ProbeKind::Signature => self.signatures.add(body),
            ProbeKind::Line => {
                let number = by.unwrap_or_default();
                let name = self.urls.get(number).and_then(Url::file_name).unwrap_or_default();
                self.told.extend(leaf_list::b3sum(&body, &name).map(|root| (number, Told::Root(root))));
            }
        }
        if self.told.len() > known {
            self.look_beside_others(kind);
        }
        Ok(())
    }

    /// Whether the user named a directory and nothing else, and its own server has the Metalink `list`.
    fn is_of_directory(&self, list: &Url) -> bool {
        let Expected { id, digests } = self.said;
        self.alone
            && id.is_none()
            && digests.is_empty()
            && self.first.as_ref().is_some_and(|url| url.path().ends_with('/') && origin(url) == origin(list))
    }

    /// `by`: the URL whose server offers it, if the user did not name it.
    fn metalink_came(&mut self, file: metalink::File, base: Option<&Url>, by: Option<usize>) {
        if by.is_none() && self.metalink.is_some() {
            return;
        }
        for mirror in &file.mirrors {
            self.mirror(mirror.url.clone(), by.is_none());
        }
        if let (Some(reference), Some(base)) = (&file.leaves, base)
            && self.leaves.is_none()
            && let Ok(url) = base.join(reference)
        {
            self.lists_of_leaves.push((url, by));
        }
        self.signatures.add(file.signature.clone().unwrap_or_default().into_bytes());
        match by {
            None => self.metalink = Some(file),
            Some(number) => self.told.push((number, Told::Listed(Box::new(file)))),
        }
    }
}
