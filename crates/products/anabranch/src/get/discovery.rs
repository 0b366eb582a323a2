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
//! No answer is waited for longer than the whole transfer waits, and no document beside the file
//! longer than [`BESIDE_FOR`]. The user's secrets go only to origins that the user named.

pub(super) mod candidates;
mod claims;
mod links;
mod listing;
mod names;
mod one_file;
mod patience;
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
use patience::BESIDE_FOR;
use told::{Told, its_file};

/// Mirrors of one transfer.
pub(super) const MIRRORS_MAX: usize = 64;
/// The most bytes of a leaf list that are asked for before the file's length, which bounds it, is known: that
/// of a file of a GiB.
const EARLY_LEAVES_MAX: usize = 2 << 20;
/// A `b3sum` line is no longer.
const LINE_MAX: usize = 16 * 1024;
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
    /// The index of the local end that is tried next; if there is no end of this index, no other is tried.
    next_via: usize,
    asked_at: Time,
    /// Its connection.
    route: RouteId,
    /// The URL whose server offers the document, if the user did not name it: it may not exist.
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
    /// The second and last round, after the servers that answered in the first did not bring the file.
    /// Servers that the user named are now asked until the time-out, even if they only answer "not now".
    Second,
}

/// What is to be asked of servers, or no longer.
enum Command {
    Fetch(FetchId, FetchRequest),
    Cancel(FetchId),
}

/// A URL of the file, and what its server says.
struct Probed {
    url: Url,
    /// Whether the user named it, or a Metalink of the user's.
    named: bool,
    head: Option<Head>,
    /// How long the server took to answer.
    delay: Span,
    /// A hash of the first bytes of its file, if these have come.
    opening: Option<[u8; 32]>,
}

/// What the user wants.
struct Wanted<'a> {
    history: &'a History,
    said: Expected,
    /// The name in the URI.
    uri_name: Option<Vec<u8>>,
    /// The name of the file in the user's list of hashes, for URLs whose own names differ.
    listed_name: Option<Vec<u8>>,
    /// Whether the caller says what the file is called, and by that, that there is one.
    is_name_given: bool,
    /// Origins that the user named.
    origins: Vec<Origin>,
    /// The first URL that the user named.
    first: Option<Url>,
    /// Whether the user named exactly one URL, and no list of mirrors or Metalink.
    alone: bool,
    /// What comes is read in order, so that nothing can be tried twice.
    is_read_in_order: bool,
    round: Round,
}

/// The probes.
#[derive(Default)]
struct Asking {
    /// Not yet carried out.
    commands: Vec<Command>,
    asked: BTreeMap<FetchId, Probe>,
    /// Probes to repeat, and when: their servers could not answer.
    again: Vec<(Time, Probe, FetchError)>,
    retry_reported: bool,
    next: FetchId,
    vias: Vec<Egress>,
    /// The first of `vias` that has not failed.
    via: usize,
    /// Probes to be tried from other local ends, because the user named none and the default route did not
    /// lead to the server, each with its error; `None` if the server is only silent so far.
    elsewhere: Vec<(Probe, Option<FetchError>)>,
}

/// When servers answered.
struct Times {
    /// When discovery was last told or polled.
    now: Time,
    start: Time,
    /// The deadline of all answers.
    end: Time,
    /// When a server last answered.
    heard_at: Time,
    /// The origins that have answered, and how long the slowest first answer took.
    answered: BTreeSet<Origin>,
    slowest: Span,
    /// When the first mirror answered.
    answered_at: Option<Time>,
}

/// The documents that are to be requested in addition to the file itself: Metalinks, leaf lists and other
/// sidecar files.
#[derive(Default)]
struct Beside {
    /// Metalinks, and the URL whose server offers them, if the user does not name them.
    lists: VecDeque<(Url, Option<usize>)>,
    /// Leaf lists, and the URL whose server offers them.
    lists_of_leaves: Vec<(Url, Option<usize>)>,
    /// Those that are perhaps longer than [`EARLY_LEAVES_MAX`]: they are asked for when the file's length is
    /// known.
    long_leaves: Vec<(Url, Option<usize>)>,
    /// The kinds of files that were asked for beside the URLs of all.
    asked_of_all: Vec<ProbeKind>,
    /// URLs beside which signatures have been looked for.
    asked_for_signatures: usize,
    wants_beside: bool,
}

/// What has come of documents that describe the file.
#[derive(Default)]
struct Documents {
    /// What a Metalink of the user's says.
    metalink: Option<metalink::File>,
    /// The leaf list of the content which the user means.
    leaves: Option<LeafList>,
    signatures: Signatures,
    /// What servers say themselves, each with the URL for which it does.
    told: Vec<(usize, Told)>,
    /// A Metalink of several files, which is all there is to find, and its server if the user did not name
    /// it.
    several: Option<(Metalink, Url, Option<String>)>,
}

/// What is to be said of servers.
#[derive(Default)]
struct Says {
    /// Not yet said.
    notices: Vec<String>,
    /// Which mirrors have another file.
    warnings: Vec<String>,
    /// Notices about mirrors that did not answer: they are given once another mirror answers, else the error
    /// has them.
    unsaid: Vec<String>,
    /// The servers that do not have it or do not give it, each with the kind of error and the reason.
    troubles: Vec<(ErrorKind, String)>,
    /// The servers that the user named, and that cannot be reached or answer only that they cannot now.
    unheard: Vec<String>,
    /// The servers of URLs that the user or the user's Metalink names, and that cannot be reached or answer
    /// only that they cannot now. A second round asks them again.
    absent: Vec<String>,
    /// The mirrors that have another file than most have, by their places.
    outvoted: Vec<usize>,
    /// How many more URLs were named than are asked.
    unasked: usize,
}

struct Discovery<'a> {
    wanted: Wanted<'a>,
    mirrors: Vec<Probed>,
    asking: Asking,
    time: Times,
    beside: Beside,
    documents: Documents,
    says: Says,
    /// Whether the whole file has come in one answer, or a file has its name at the destination, so that
    /// nothing needs to be resumed.
    is_here: bool,
    /// Variants are tried in turn: a hash of the user's or a signature tells which is right.
    tries_variants: bool,
}

/// Asks all servers, over the first local end of the request that works; returns with what they say.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a list of mirrors is none,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops.
fn ask_all<'a>(
    asked: Locators,
    said: Expected,
    round: Round,
    request: &'a Request,
    events: &mut EventLoop<'_, '_>,
) -> Result<Discovery<'a>> {
    events.world.open_http()?;
    let now = events.world.now();
    let wanted = Wanted {
        history: &request.history,
        said,
        uri_name: asked.uri.and_then(|uri| uri.name),
        listed_name: request.listed_name.clone(),
        is_name_given: request.reader.is_none() && !request.output.needs_name(false),
        origins: asked.origins,
        first: asked.urls.first().cloned(),
        alone: asked.urls.len() == 1 && asked.lists.is_empty() && asked.metalink.is_none(),
        is_read_in_order: request.reader.is_some(),
        round,
    };
    let mut discovery = Discovery::new(wanted, request, now);
    discovery.beside.lists = asked.lists.into_iter().map(|url| (url, None)).collect();
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

impl<'a> Discovery<'a> {
    fn new(wanted: Wanted<'a>, request: &Request, now: Time) -> Self {
        Self {
            wanted,
            mirrors: Vec::new(),
            asking: Asking {
                vias: if request.via.is_empty() { vec![Egress::any()] } else { request.via.clone() },
                ..Asking::default()
            },
            time: Times {
                now,
                start: now,
                end: now + request.timeout,
                heard_at: now,
                answered: BTreeSet::new(),
                slowest: Span::ZERO,
                answered_at: None,
            },
            beside: Beside { wants_beside: true, ..Beside::default() },
            documents: Documents {
                signatures: Signatures::of(request.keyring.clone()),
                ..Documents::default()
            },
            says: Says::default(),
            is_here: false,
            tries_variants: false,
        }
    }
}

impl Discovery<'_> {
    /// What servers said of the file.
    fn heads(&self) -> impl Iterator<Item = &Head> {
        self.mirrors.iter().filter_map(|mirror| mirror.head.as_ref())
    }

    fn ask(&mut self, kind: ProbeKind, url: &Url, what: RequestKind, by: Option<usize>) {
        let until = self.deadline(kind, by);
        let via = self.asking.via;
        let (url, body, asked_at) = (url.clone(), Vec::new(), self.time.now);
        let (route, times, begun, next_via) = (0, 0, None, via + 1);
        self.put(Probe { kind, url, what, via, next_via, asked_at, route, by, until, times, begun, body });
    }

    /// Until when an answer is waited for that is asked for now: not long, if it may not exist.
    fn deadline(&self, kind: ProbeKind, by: Option<usize>) -> Time {
        match kind.may_not_exist(by) {
            true => (self.time.now + BESIDE_FOR).min(self.time.end),
            false => self.time.end,
        }
    }

    /// A connection of its own for a probe, so that none waits for another. The first that is free: what is
    /// asked later, and the mirrors' first ranges, find the connections of earlier probes open.
    fn free_route(&self) -> RouteId {
        let is_taken = |route| self.asking.asked.values().any(|probe| probe.route == route);
        (0..).find(|route| !is_taken(*route)).unwrap_or(0)
    }

    fn put(&mut self, mut probe: Probe) {
        (probe.route, probe.asked_at) = (self.free_route(), self.time.now);
        let id = self.asking.next;
        self.asking.next += 1;
        let request = FetchRequest {
            route: probe.route,
            via: self.asking.vias[probe.via].clone(),
            url: probe.url.as_str().to_owned(),
            trusted: self.is_named(&probe.url),
            kind: probe.what.clone(),
        };
        self.asking.commands.push(Command::Fetch(id, request));
        self.asking.asked.insert(id, probe);
    }

    /// Whether the user named its origin.
    fn is_named(&self, url: &Url) -> bool {
        self.wanted.origins.contains(&origin(url))
    }

    /// One more URL of the file. `named`: by the user, or by a Metalink of the user's.
    fn mirror(&mut self, url: Url, named: bool) {
        if let Some(known) = self.mirrors.iter().position(|known| known.url.as_str() == url.as_str()) {
            self.mirrors[known].named |= named;
        } else if self.mirrors.len() < MIRRORS_MAX {
            let number = self.mirrors.len();
            self.ask(ProbeKind::Mirror(number), &url, RequestKind::Metadata, None);
            self.mirrors.push(Probed { url, named, head: None, delay: Span::ZERO, opening: None });
        } else {
            self.says.unasked += usize::from(named);
        }
    }

    /// The length of the file, if it is known by now.
    fn length_so_far(&self) -> Option<u64> {
        let known = self.wanted.said.id.map(|id| id.length);
        let known = known.or_else(|| self.documents.metalink.as_ref()?.size);
        known.or_else(|| self.heads().find_map(|head| head.length))
    }

    fn event(&mut self, event: Event) -> Result<()> {
        if let Event::Head { id, .. } | Event::Body { id, .. } | Event::Failed { id, .. } = &event
            && let Some(probe) = self.asking.asked.get(id)
            && self.time.answered.insert(origin(&probe.url))
        {
            self.time.slowest = self.time.slowest.max(self.time.now.since(probe.asked_at));
        }
        match event {
            Event::Head { id, head } => {
                if let Some(probe) = self.asking.asked.get_mut(&id)
                    && let ProbeKind::Mirror(number) = probe.kind
                {
                    probe.begun = Some(self.time.now);
                    self.mirrors[number].delay = self.time.now.since(probe.asked_at);
                    self.time.answered_at.get_or_insert(self.time.now);
                    (self.mirrors[number].head, self.asking.via) = (Some(*head), probe.via);
                    self.drop_twins(id);
                }
            }
            Event::Body { id, bytes } => {
                if let Some(probe) = self.asking.asked.get_mut(&id) {
                    probe.begun.get_or_insert(self.time.now);
                    probe.body.extend_from_slice(&bytes);
                    self.look_at_head(id, bytes.len());
                }
            }
            Event::Done { id } => {
                if let Some(probe) = self.asking.asked.remove(&id) {
                    self.done(probe)?;
                }
            }
            Event::Failed { id, error } => {
                if let Some(probe) = self.asking.asked.remove(&id) {
                    self.answered_with_error(probe, error)?;
                }
            }
            Event::Opening { id, bytes } => {
                if let Some(Probe { kind: ProbeKind::Mirror(number), .. }) = self.asking.asked.get(&id) {
                    self.mirrors[*number].opening = Some(*blake3::hash(&bytes).as_bytes());
                }
            }
            Event::Sample { .. } => {}
        }
        Ok(())
    }

    fn done(&mut self, probe: Probe) -> Result<()> {
        let Probe { kind, url, body, by, .. } = probe;
        let known = self.documents.told.len();
        match kind {
            ProbeKind::Mirror(number) => self.links(number),
            ProbeKind::List => match (Metalink::parse(&body).map(|metalink| metalink.seen_from(&url)), by) {
                (Ok(metalink), Some(_)) if metalink.files.len() > 1 && self.is_of_directory(&url) => {
                    let by = host(&url);
                    self.documents.several = Some((metalink, url, Some(by)));
                }
                (Ok(metalink), Some(number)) => {
                    if let Some(file) = its_file(metalink, &self.mirrors[number].url) {
                        self.metalink_came(file, Some(&url), by);
                    }
                }
                (Ok(metalink), None) if metalink.files.len() > 1 => {
                    self.documents.several = Some((metalink, url, None));
                }
                (Ok(mut metalink), None) => {
                    if let Some(file) = metalink.files.pop() {
                        self.metalink_came(file, Some(&url), None);
                    }
                }
                (Err(e), _) if self.mirrors.is_empty() => {
                    return Err(Error::usage(format!("{url}: no Metalink: {e}")).at(&url).because(e));
                }
                (Err(_), _) => {}
            },
            ProbeKind::Leaves => self.leaves_came(&body, by, false),
            ProbeKind::Signature => self.documents.signatures.add(body),
            ProbeKind::Line => {
                let number = by.unwrap_or_default();
                let name =
                    self.mirrors.get(number).and_then(|mirror| mirror.url.file_name()).unwrap_or_default();
                let root = leaf_list::b3sum(&body, &name);
                let told = root.map(|root| (number, Told { root: Some(root), ..Told::default() }));
                self.documents.told.extend(told);
            }
        }
        if self.documents.told.len() > known {
            self.look_beside_others(kind);
        }
        Ok(())
    }

    /// Whether the user named a directory and nothing else, and its own server has the Metalink `list`.
    fn is_of_directory(&self, list: &Url) -> bool {
        let Expected { id, digests } = self.wanted.said;
        self.wanted.alone
            && id.is_none()
            && digests.is_empty()
            && self
                .wanted
                .first
                .as_ref()
                .is_some_and(|url| url.path().ends_with('/') && origin(url) == origin(list))
    }

    /// `by`: the URL whose server offers it, if the user did not name it.
    fn metalink_came(&mut self, file: metalink::File, base: Option<&Url>, by: Option<usize>) {
        if by.is_none() && self.documents.metalink.is_some() {
            return;
        }
        for mirror in &file.mirrors {
            self.mirror(mirror.url.clone(), by.is_none());
        }
        if let (Some(reference), Some(base)) = (&file.leaves, base)
            && self.documents.leaves.is_none()
            && let Ok(url) = base.join(reference)
        {
            self.beside.lists_of_leaves.push((url, by));
        }
        self.documents.signatures.add(file.signature.clone().unwrap_or_default().into_bytes());
        match by {
            None => self.documents.metalink = Some(file),
            Some(number) => self.documents.told.push((number, file.into())),
        }
    }
}
