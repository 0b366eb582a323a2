//! Asks HTTP servers, before the transfer starts, which of the URLs have the file, how long the file is, and
//! which hashes of it exist.
//!
//! Probes that do not depend on each other are sent at once. They look for evidence of the content, the
//! strongest first: the chaining values of all blocks (a leaf list that gives the root hash), hashes of
//! pieces (a Metalink), the root hash alone, and the SHA-256 of the whole file. A mirror that does not have
//! the file, or whose file has another length, is left out and named to the user.
//!
//! Data from the user (a content id, a checksum, a Metalink) is believed. Data that servers themselves give
//! about the file is used only if the user gives none, and only if more than half of the servers agree: see
//! `claims`. Discovery waits for an answer at most as long as the whole transfer may wait, and for a document
//! beside the file at most [`BESIDE_FOR`]. The user's secrets are sent only to origins that the user named.

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
use super::link_policy::to_ask_from;
use super::locators::{Locators, MetalinkOrigin};
use super::origin::{Origin, host, origin};
use super::request::Request;
use crate::error::ErrorKind;
use crate::filenames::show;
use crate::openpgp::Signatures;
use crate::{Error, Result};
use patience::BESIDE_FOR;
use told::{Told, its_file};

/// The most mirrors that one transfer asks.
pub(super) const MIRRORS_MAX: usize = 64;
/// The most bytes of a leaf list that are requested before the file's length, which bounds the list, is
/// known. A leaf list of this size describes a file of about 1 GiB.
const EARLY_LEAVES_MAX: usize = 2 << 20;
/// The most bytes of a `b3sum` document that are requested; its one line is shorter.
const LINE_MAX: usize = 16 * 1024;
/// The most bytes of a list of hashes beside a file that are requested.
const SUMS_MAX: usize = 256 * 1024;
/// Names the object of a probe: the file at the mirror of this index, a Metalink, a leaf list, a `b3sum`
/// line, an OpenPGP signature, or a list of hashes of all files in the file's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    Mirror(usize),
    List,
    Leaves,
    Line,
    Signature,
    Sums,
}

impl ProbeKind {
    /// Returns whether the probe asks for a document that may not exist. `by` is the index of the URL whose
    /// server may offer the document, or `None` if the user named it. A signature counts as required.
    const fn may_not_exist(self, by: Option<usize>) -> bool {
        by.is_some() && !matches!(self, Self::Signature)
    }
}

/// Holds a request that waits for its answer.
struct Probe {
    kind: ProbeKind,
    url: Url,
    what: RequestKind,
    /// The index of the local end from which the request was sent.
    via: usize,
    /// The index of the local end that is tried next. If no local end has this index, no other is tried.
    next_via: usize,
    asked_at: Time,
    /// The connection on which the request was sent.
    route: RouteId,
    /// The index of the URL whose server may offer the document; `None` if the user named the document.
    by: Option<usize>,
    /// The deadline of the answer.
    until: Time,
    /// The number of times that the request was repeated because the server answered "not now" (5xx, 429) or
    /// broke the connection.
    times: u32,
    /// The time at which the first bytes of the body arrived, or, for a mirror, the head of the response.
    begun: Option<Time>,
    body: Vec<u8>,
}

/// Holds the user's own data about the content.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    pub(super) id: Option<ContentId>,
    pub(super) digests: Digests,
}

/// Names the round of the transfer that a discovery belongs to: see [`rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// The only round: no second round may follow.
    Only,
    /// The first round: a second round may follow.
    First,
    /// The second and last round, after the servers that answered in the first round did not deliver the
    /// file. Servers that the user named are now asked until the time-out, even if they only answer "not
    /// now".
    Second,
}

/// Instructs the HTTP client to send a request, or to cancel one.
enum Command {
    Fetch(FetchId, FetchRequest),
    Cancel(FetchId),
}

/// Holds a URL of the file and its server's answer.
struct Probed {
    url: Url,
    /// Whether the user, or a Metalink of the user's, named the URL.
    named: bool,
    head: Option<Head>,
    /// The time that the server took to answer.
    delay: Span,
    /// The BLAKE3 hash of the first bytes of the mirror's file, if they have arrived.
    opening: Option<[u8; 32]>,
}

/// Holds the wishes of the user.
struct Wanted<'a> {
    history: &'a History,
    said: Expected,
    /// The file name that the user's URI gives.
    uri_name: Option<Vec<u8>>,
    /// The file name in the user's list of hashes, which is needed where the URLs end in other names.
    listed_name: Option<Vec<u8>>,
    /// Whether the caller gives the name of the output file. This implies that all URLs have one file.
    is_name_given: bool,
    /// The origins that the user named.
    origins: Vec<Origin>,
    /// The first URL that the user named.
    first: Option<Url>,
    /// Whether the user named exactly one URL, and no list of mirrors or Metalink.
    alone: bool,
    /// Whether the content is read in order as it arrives, so that no other variant can be tried after the
    /// first.
    is_read_in_order: bool,
    round: Round,
}

/// Holds the probes and the state of sending them.
#[derive(Default)]
struct Asking {
    /// The instructions that have not been carried out yet.
    commands: Vec<Command>,
    /// The probes that wait for their answers.
    asked: BTreeMap<FetchId, Probe>,
    /// The probes to repeat because their servers could not answer, each with the time of the next attempt
    /// and the last error.
    again: Vec<(Time, Probe, FetchError)>,
    retry_reported: bool,
    next: FetchId,
    /// The local ends.
    vias: Vec<Egress>,
    /// The index in `vias` of the local end from which a mirror was last reached; new probes start there.
    via: usize,
    /// Probes to be tried from other local ends, because the user named no local end and the default route
    /// did not lead to the server. Each has its error, or `None` if the server has only been silent so far.
    elsewhere: Vec<(Probe, Option<FetchError>)>,
}

/// Holds the times at which servers answered, and the time until which discovery waits.
struct Times {
    /// The time at which discovery last ran.
    now: Time,
    start: Time,
    /// The deadline of all answers.
    end: Time,
    /// The time at which the HTTP client last reported an event.
    heard_at: Time,
    /// The origins that have answered.
    answered: BTreeSet<Origin>,
    /// The longest time that an origin took for its first answer.
    slowest: Span,
    /// The time at which the first mirror answered.
    answered_at: Option<Time>,
}

/// Lists the documents to be requested in addition to the file itself: Metalinks, leaf lists and other
/// sidecar files.
#[derive(Default)]
struct Beside {
    /// Metalinks, each with the index of the URL whose server offers it, or `None` if the user named it.
    lists: VecDeque<(Url, Option<usize>)>,
    /// Leaf lists, each with the index of the URL whose server offers it, or `None` if the user's Metalink
    /// names it.
    lists_of_leaves: Vec<(Url, Option<usize>)>,
    /// Leaf lists that may be longer than [`EARLY_LEAVES_MAX`]. They are requested once the file's length is
    /// known.
    long_leaves: Vec<(Url, Option<usize>)>,
    /// The kinds of documents that were requested beside the URLs of all voters.
    asked_of_all: Vec<ProbeKind>,
    /// The number of URLs, from the first one on, beside which signatures have been looked for.
    asked_for_signatures: usize,
    /// Whether hashes beside the first URLs are still to be looked for.
    wants_beside: bool,
}

/// Holds the contents of the documents that describe the file.
#[derive(Default)]
struct Documents {
    /// The file that the user's Metalink describes.
    metalink: Option<metalink::File>,
    /// The leaf list of the wanted content.
    leaves: Option<LeafList>,
    signatures: Signatures,
    /// The URL of a list of hashes beside the first URL that includes the file. It is only shown to the user,
    /// who may trust it.
    sums: Option<Url>,
    /// The data that servers themselves give about the file, each with the index of the URL whose server
    /// gives it.
    told: Vec<(usize, Told)>,
    /// A Metalink of several files, if discovery found such a directory instead of one file; its URL; and the
    /// host that offers it, or `None` if the user named the Metalink.
    several: Option<(Metalink, Url, Option<String>)>,
}

/// Holds the messages about servers.
#[derive(Default)]
struct Says {
    /// Notices that the user has not been given yet.
    notices: Vec<String>,
    /// Warnings, mainly about mirrors that have another file.
    warnings: Vec<String>,
    /// Notices about mirrors that did not answer. The user gets them once another mirror answers; if no
    /// mirror answers, the error contains these reasons.
    unsaid: Vec<String>,
    /// The reasons why servers do not have or do not give the file, each with its kind of error.
    troubles: Vec<(ErrorKind, String)>,
    /// The servers at origins that the user named that cannot be reached or only answer "not now".
    unheard: Vec<String>,
    /// The servers of URLs that the user, or the user's Metalink, named and that cannot be reached or only
    /// answer "not now". A second round asks them again.
    absent: Vec<String>,
    /// The indices of the mirrors that lost the vote because their file begins with other bytes than most
    /// mirrors' files.
    outvoted: Vec<usize>,
    /// The number of URLs that the user named and that are not asked because there are more than
    /// [`MIRRORS_MAX`].
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
    /// Whether the whole file arrived in one answer, or a file with its name exists at the destination, so
    /// that nothing needs to be resumed.
    is_here: bool,
    /// Whether variants are tried in turn, because a hash from the user or a signature tells which is right.
    tries_variants: bool,
}

/// Probes all servers, starting from the first local end of the request, and returns their answers.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a list of mirrors that the user named is not a Metalink,
/// the kind of the failed request if the list cannot be fetched,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops.
fn ask_all<'a>(
    asked: Locators,
    said: Expected,
    round: Round,
    request: &'a Request,
    events: &mut EventLoop<'_, '_>,
) -> Result<Discovery<'a>> {
    events.world.open_http()?;
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
    let mut discovery = Discovery::new(wanted, request, events);
    discovery.beside.lists = asked.lists.into_iter().map(|url| (url, None)).collect();
    for url in asked.urls {
        discovery.mirror(url, true);
    }
    if let Some((mut metalink, base)) = asked.metalink
        && let Some(file) = metalink.files.pop()
    {
        let beside = file.sibling_leaf_list();
        let path = if let MetalinkOrigin::Path(path) = &base { Some(path) } else { None };
        // `mirror-list make` puts the leaf list beside the Metalink.
        if let (Some(name), Some(path)) = (beside, path)
            && let Ok(list) = std::fs::File::open(path.with_file_name(OsStr::from_bytes(&name)))
        {
            let (max, mut bytes) = (LeafList::max_len(file.size.unwrap_or(u64::MAX)), Vec::new());
            // Reading one byte more than the limit is enough: a list of that length is refused.
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
    fn new(wanted: Wanted<'a>, request: &Request, events: &EventLoop<'_, '_>) -> Self {
        let now = events.world.now();
        Self {
            wanted,
            mirrors: Vec::new(),
            asking: Asking { vias: to_ask_from(&request.links.ends, events.world), ..Asking::default() },
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
    /// Returns the response heads of the mirrors that have answered.
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

    /// Returns the deadline of an answer that is requested now: earlier if the document may not exist.
    fn deadline(&self, kind: ProbeKind, by: Option<usize>) -> Time {
        match kind.may_not_exist(by) {
            true => (self.time.now + BESIDE_FOR).min(self.time.end),
            false => self.time.end,
        }
    }

    /// Returns the lowest connection number that no pending probe uses, so that no probe waits for another
    /// probe. Later probes and the mirrors' first range requests thus find the connections of earlier probes
    /// open.
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

    /// Returns whether the user named the origin of `url`.
    fn is_named(&self, url: &Url) -> bool {
        self.wanted.origins.contains(&origin(url))
    }

    /// Adds a URL of the file and probes it, unless it is known or [`MIRRORS_MAX`] is reached. `named` says
    /// whether the user, or a Metalink of the user's, named the URL.
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

    /// Returns the length of the file, if it is already known.
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
            ProbeKind::Sums => {
                let name = self.mirrors.first().map(|mirror| mirror.url.decoded_path()).unwrap_or_default();
                let has_it = Digests::in_list(&body, &name).is_ok_and(|digests| digests.is_some());
                self.documents.sums = has_it.then_some(url);
            }
            ProbeKind::Line => {
                let number = by.unwrap_or_default();
                let name =
                    self.mirrors.get(number).and_then(|mirror| mirror.url.file_name()).unwrap_or_default();
                if let Some(line) = leaf_list::b3sum(&body, &name) {
                    if let Some(other) = line.other_name {
                        let other = show(String::from_utf8_lossy(&other).as_ref());
                        self.says.notices.push(format!(
                            "{url} has a single hash, for a file called {other}: it is taken for the hash of \
                             this file, which may have been renamed"
                        ));
                    }
                    self.documents.told.push((number, Told { root: Some(line.root), ..Told::default() }));
                }
            }
        }
        if self.documents.told.len() > known {
            self.look_beside_others(kind);
        }
        Ok(())
    }

    /// Returns whether the user named only a directory and the server of that directory offers the Metalink
    /// `list`.
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

    /// Takes over the data of a Metalink about the file. `by` is the index of the URL whose server offers the
    /// Metalink, or `None` if the user named it.
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
