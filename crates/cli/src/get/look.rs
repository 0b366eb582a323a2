//! What HTTP servers say before anything is fetched: which of the URLs have the file, how long it is, and
//! what there is to check it by.
//!
//! All questions that can be asked at once are. What is found, the strongest first: chaining values of all
//! blocks (a leaf list that gives the content's root), hashes of pieces (a Metalink), the root alone, the
//! SHA-256 of the whole, nothing. A mirror that has a file of another length, or none, is left out and named.
//!
//! What the user says (a content id, a checksum) or a Metalink is believed before what a server offers beside
//! the file. Nobody is waited for longer than for the whole transfer, nor for what may lie beside the file
//! longer than [`BESIDE_FOR`]. The user's secrets go only to origins that the user named.

mod again;
mod beside;
mod found;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use algo::{Span, Time};
use anabranch_http::client::{Client, Event, FetchError, FetchId, FetchRequest, Head, RequestKind};
use mirror::http_fields;
use mirror::leaf_list::{self, LEAVES_MAX, LeafList};
use mirror::metalink::{self, METALINK_MAX, Metalink};
use mirror::url::Url;
use mmtp::ContentId;
use net::{Clock, Egress, Interest, Poller};

use super::asked::{Asked, Base};
use super::standing::{code, told};
use crate::exit::{Code, Failure, Outcome};
use crate::view::View;
use found::its_file;
pub(super) use found::{Found, Mirror, There};

/// Once some servers have answered, and nothing has come for so long, the others are not waited for.
const QUIET: Span = Span::from_secs(3);
/// Mirrors of one transfer.
pub(super) const MIRRORS_MAX: usize = 64;
/// A `b3sum` line is no longer.
const LINE_MAX: usize = 16 * 1024;
/// How long an answer about what may lie beside the file is waited for; a leaf list that has begun to come
/// may take longer, for it is as long as the file is.
const BESIDE_FOR: Span = Span::from_secs(10);

/// What a question was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Mirror(usize),
    List,
    Leaves,
    Line,
}

/// A question that waits for its answer.
struct Question {
    about: About,
    url: Url,
    what: RequestKind,
    /// Which of the local ends it was asked over.
    via: usize,
    /// Whether it is about what the user did not name and what may not be there.
    beside: bool,
    /// When the answer is not waited for any more.
    until: Time,
    /// How often the server has said that it cannot answer now.
    times: u32,
    body: Vec<u8>,
}

/// What the user says of the content.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) id: Option<ContentId>,
    pub(super) sha256: Option<[u8; 32]>,
}

struct Looker<'a, 'v> {
    client: &'a mut Client,
    vias: &'a [Egress],
    /// The first of `vias` that has not failed.
    via: usize,
    clock: Clock,
    /// When nobody is waited for any more.
    end: Time,
    view: &'v mut View,
    said: Said,
    /// Origins that the user named.
    origins: Vec<(bool, String, u16)>,
    /// The first URL that the user named.
    first: Option<Url>,
    /// Whether the user named nothing else.
    alone: bool,
    asked: BTreeMap<FetchId, Question>,
    /// Questions that are asked again, and when: their servers could not answer.
    again: Vec<(Time, Question, FetchError)>,
    told_again: bool,
    urls: Vec<Url>,
    /// How many of these the user named: the first ones.
    named: usize,
    heads: Vec<Option<Head>>,
    /// Metalinks to ask for, and whether a server offered them.
    lists: VecDeque<(Url, bool)>,
    /// With the server that offered it, if the user did not name it.
    metalink: Option<(metalink::File, Option<String>)>,
    /// Leaf lists to ask for as soon as it is known how long they may be, and whether they lie beside the
    /// file.
    lists_of_leaves: Vec<(Url, bool)>,
    /// With the server that offers it, if it was not in a file.
    leaves: Option<(LeafList, Option<String>)>,
    /// The root that stands in a `b3sum` line beside the file, and the server that offers it.
    line: Option<([u8; 32], String)>,
    next: FetchId,
    /// Who does not have it, or does not give it: the exit status, and why.
    troubles: Vec<(Code, String)>,
    wants_beside: bool,
    /// A Metalink of several files, which is all there is to find.
    several: Option<(Metalink, Url)>,
}

/// What was found.
pub(super) enum Looked {
    /// One file.
    One(Box<Found>),
    /// A Metalink of several files, and where it is: named, or that of a directory which alone was named.
    Several(Metalink, Url),
}

/// Asks all servers, over the first of `vias` that works (none: any), and puts together what they say.
///
/// # Errors
/// Exit status 2 if what was asked for contradicts itself, 3 or 4 if no server has it.
pub(super) fn look(
    asked: Asked,
    said: Said,
    vias: &[Egress],
    timeout: Span,
    client: &mut Client,
    view: &mut View,
) -> Outcome<Looked> {
    let clock = Clock::start();
    let any = [Egress::any()];
    let mut looker = Looker {
        client,
        vias: if vias.is_empty() { &any } else { vias },
        via: 0,
        clock,
        end: clock.now() + timeout,
        view,
        said,
        origins: asked.urls.iter().chain(&asked.lists).map(origin).chain(asked.origins).collect(),
        first: asked.urls.first().cloned(),
        alone: asked.urls.len() == 1 && asked.lists.is_empty() && asked.metalink.is_none(),
        asked: BTreeMap::new(),
        again: Vec::new(),
        told_again: false,
        urls: Vec::new(),
        named: 0,
        heads: Vec::new(),
        lists: asked.lists.into_iter().map(|url| (url, false)).collect(),
        metalink: None,
        lists_of_leaves: Vec::new(),
        leaves: None,
        line: None,
        next: 0,
        troubles: Vec::new(),
        wants_beside: true,
        several: None,
    };
    for url in asked.urls {
        looker.mirror(url);
    }
    looker.named = looker.urls.len();
    if let Some((mut metalink, base)) = asked.metalink
        && let Some(file) = metalink.files.pop()
    {
        let beside = file.sibling_leaf_list();
        let path = if let Base::Path(path) = &base { Some(path) } else { None };
        // A leaf list lies beside the Metalink, as `mirror-list make` puts it.
        if let (Some(name), Some(path)) = (beside, path)
            && let Ok(list) = std::fs::File::open(path.with_file_name(OsStr::from_bytes(&name)))
        {
            let (max, mut bytes) = (leaves_max(file.size.unwrap_or(u64::MAX)), Vec::new());
            // One byte more than it may have is as good as all of it: it is refused.
            if list.take(max as u64 + 1).read_to_end(&mut bytes).is_ok() {
                looker.leaves_came(&bytes, None);
            }
        }
        let url = if let Base::Url(url) = &base { Some(url) } else { None };
        looker.metalink_came(file, url, None);
    }
    looker.rounds()?;
    if let Some((metalink, url)) = looker.several {
        return Ok(Looked::Several(metalink, url));
    }
    looker.found().map(|found| Looked::One(Box::new(found)))
}

/// What one connection is for (RFC 6454).
pub(super) fn origin(url: &Url) -> (bool, String, u16) {
    (url.is_https(), url.host().to_owned(), url.port())
}

/// Bytes that the leaf list of a content of `length` bytes may have.
fn leaves_max(length: u64) -> usize {
    let max = LeafList::encoded_len(length.min(mmtp::id::LENGTH_MAX)).min(LEAVES_MAX as u64);
    usize::try_from(max).unwrap_or(LEAVES_MAX)
}

impl Looker<'_, '_> {
    fn ask(&mut self, about: About, url: &Url, what: RequestKind, beside: bool) {
        let patience = if beside { self.clock.now() + BESIDE_FOR } else { self.end };
        let until = patience.min(self.end);
        let via = self.via;
        self.put(Question { about, url: url.clone(), what, via, beside, until, times: 0, body: Vec::new() });
    }

    fn put(&mut self, question: Question) {
        let id = self.next;
        self.next += 1;
        let request = FetchRequest {
            // One route a question: they do not wait for each other.
            route: id as usize % 32,
            via: self.vias[question.via].clone(),
            url: question.url.as_str().to_owned(),
            trusted: self.is_named(&question.url),
            kind: question.what.clone(),
        };
        self.client.fetch(id, request);
        self.asked.insert(id, question);
    }

    /// Whether the user named its origin.
    fn is_named(&self, url: &Url) -> bool {
        self.origins.contains(&origin(url))
    }

    fn mirror(&mut self, url: Url) {
        if self.urls.len() < MIRRORS_MAX && self.urls.iter().all(|known| known.as_str() != url.as_str()) {
            let number = self.urls.len();
            self.ask(About::Mirror(number), &url, RequestKind::Metadata, false);
            self.urls.push(url);
            self.heads.push(None);
        }
    }

    /// Asks until there is nothing left to ask.
    fn rounds(&mut self) -> Outcome {
        let mut poller = Poller::new(self.clock);
        let mut told = false;
        let start = self.clock.now();
        let mut heard_at = start;
        loop {
            while let Some((url, offered)) = self.lists.pop_front() {
                self.ask(About::List, &url, RequestKind::Document { max: METALINK_MAX }, offered);
            }
            if self.wants_beside
                && self.metalink.is_none()
                && self.asked.values().all(|question| question.about != About::List)
            {
                self.wants_beside = false;
                self.look_beside();
            }
            if let Some(length) = self.length_so_far() {
                for (url, beside) in std::mem::take(&mut self.lists_of_leaves) {
                    self.ask(About::Leaves, &url, RequestKind::Document { max: leaves_max(length) }, beside);
                }
            }
            let again_at = self.ask_again()?;
            let until = self.asked.values().map(|question| question.until);
            let Some(until) = until.chain(again_at).min() else { return Ok(()) };
            let ready = std::iter::once((self.client.fd(), Interest::Read));
            poller
                .wait(ready, until.min(self.clock.now() + Span::from_secs(1)))
                .map_err(|e| Failure::other(format!("waiting for answers: {e}")))?;
            let mut events = Vec::new();
            self.client.events(|event| events.push(event));
            if !events.is_empty() {
                heard_at = self.clock.now();
            }
            for event in events {
                self.event(event)?;
            }
            if self.several.is_some() {
                return Ok(());
            }
            self.expire(self.clock.now().since(heard_at) >= QUIET && self.heads.iter().any(Option::is_some))?;
            if !told && !self.told_again && self.clock.now().since(start) > Span::from_secs(2) {
                told = true;
                self.view.note("asking the mirrors what they have");
            }
        }
    }

    /// Does not wait any more for answers that take too long; if others have answered and now it is `quiet`,
    /// for none.
    fn expire(&mut self, quiet: bool) -> Outcome {
        let now = self.clock.now();
        for question in self.asked.values_mut() {
            if question.about == About::Leaves && !question.body.is_empty() {
                question.until = self.end;
            }
        }
        let late: Vec<FetchId> = self
            .asked
            .iter()
            .filter(|(_, question)| quiet || now >= question.until)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.client.cancel(id);
            if let Some(question) = self.asked.remove(&id) {
                let error = FetchError::Broken("no answer yet".to_owned());
                self.failed(question, error)?;
            }
        }
        Ok(())
    }

    /// How long the file is, as far as it is known by now.
    fn length_so_far(&self) -> Option<u64> {
        let told = self.said.id.map(|id| id.length);
        let told = told.or_else(|| self.metalink.as_ref()?.0.size);
        told.or_else(|| self.heads.iter().flatten().find_map(|head| head.length))
    }

    /// Whether a root that only a server tells is of any use.
    fn wants_root(&self) -> bool {
        let Said { id, sha256 } = self.said;
        let file = self.metalink.as_ref().map(|(file, _)| file);
        let listed = file.is_some_and(|file| file.pieces.is_some() || file.hashes.sha256.is_some());
        id.is_none() && sha256.is_none() && !listed
    }

    fn event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Head { id, head } => {
                if let Some(Question { about: About::Mirror(number), via, .. }) = self.asked.get(&id) {
                    self.heads[*number] = Some(*head);
                    self.via = *via;
                }
            }
            Event::Body { id, bytes } => {
                if let Some(question) = self.asked.get_mut(&id) {
                    question.body.extend_from_slice(&bytes);
                }
            }
            Event::Done { id } => {
                if let Some(question) = self.asked.remove(&id) {
                    self.done(question)?;
                }
            }
            Event::Failed { id, error } => {
                if let Some(question) = self.asked.remove(&id) {
                    self.failed(question, error)?;
                }
            }
            Event::Sample { .. } => {}
        }
        Ok(())
    }

    fn done(&mut self, question: Question) -> Outcome {
        let Question { about, url, body, beside, .. } = question;
        match about {
            About::Mirror(number) => self.links(number),
            About::List => match Metalink::parse(&body) {
                Ok(metalink) if beside && metalink.files.len() > 1 && self.is_of_directory(&url) => {
                    self.several = Some((metalink, url));
                }
                Ok(metalink) if beside => {
                    if let Some(file) = self.urls.first().and_then(|first| its_file(metalink, first)) {
                        self.metalink_came(file, Some(&url), Some(host(&url)));
                    }
                }
                Ok(metalink) if metalink.files.len() > 1 => self.several = Some((metalink, url)),
                Ok(mut metalink) => {
                    if let Some(file) = metalink.files.pop() {
                        self.metalink_came(file, Some(&url), None);
                    }
                }
                Err(e) if self.urls.is_empty() => {
                    return Err(Failure::usage(format!("{url}: no Metalink: {e}")));
                }
                Err(_) => {}
            },
            About::Leaves => self.leaves_came(&body, Some(host(&url))),
            About::Line => {
                let name = self.urls.first().and_then(Url::file_name).unwrap_or_default();
                self.line = leaf_list::b3sum(&body, &name).map(|root| (root, host(&url)));
            }
        }
        Ok(())
    }

    fn failed(&mut self, question: Question, error: FetchError) -> Outcome {
        let asked = matches!(question.about, About::Mirror(_) | About::List) && !question.beside;
        if asked
            && !matches!(error, FetchError::NotFound(_))
            && question.via + 1 < self.vias.len()
            && self.clock.now() < self.end
        {
            // It may be the way that does not lead there.
            self.put(Question { via: question.via + 1, body: Vec::new(), ..question });
            return Ok(());
        }
        let Some((question, error)) = self.later(question, error) else { return Ok(()) };
        match question.about {
            About::Mirror(number) => {
                let url = &self.urls[number];
                let why = told(&error, self.is_named(url));
                self.view.note(&format!("{}: {error}", host(url)));
                self.troubles.push((code(&error), format!("{}: {why}", host(url))));
            }
            About::List if self.urls.is_empty() => {
                let why = told(&error, self.is_named(&question.url));
                return Err(Failure::new(code(&error), format!("{}: {why}", question.url)));
            }
            // What may lie beside a file mostly does not.
            About::List | About::Leaves | About::Line => {}
        }
        Ok(())
    }

    /// What a server says about where else the file is (RFC 6249).
    fn links(&mut self, number: usize) {
        let Some(head) = &self.heads[number] else { return };
        let Ok(base) = Url::parse(&head.url) else { return };
        let mut links: Vec<_> =
            head.links.iter().flat_map(|value| http_fields::links(value, &base)).collect();
        links.sort_by_key(|link| link.priority);
        for link in links {
            if link.is_metalink() && self.metalink.is_none() && self.lists.is_empty() {
                self.lists.push_back((link.url, true));
            } else if link.is_duplicate() {
                self.mirror(link.url);
            }
        }
    }

    /// Whether the user named a directory and nothing else, and its own server has the Metalink `list`.
    fn is_of_directory(&self, list: &Url) -> bool {
        let Said { id, sha256 } = self.said;
        self.alone
            && id.is_none()
            && sha256.is_none()
            && self.first.as_ref().is_some_and(|url| url.path().ends_with('/') && origin(url) == origin(list))
    }

    /// `by`: the server that offered it, if the user did not name it.
    fn metalink_came(&mut self, file: metalink::File, base: Option<&Url>, by: Option<String>) {
        if self.metalink.is_some() {
            return;
        }
        for mirror in &file.mirrors {
            self.mirror(mirror.url.clone());
        }
        if let (Some(reference), Some(base)) = (&file.leaves, base)
            && self.leaves.is_none()
            && let Ok(url) = base.join(reference)
        {
            self.lists_of_leaves.push((url, by.is_some()));
        }
        self.metalink = Some((file, by));
    }
}

/// A server as people know it.
pub(super) fn host(url: &Url) -> String {
    let usual = if url.is_https() { 443 } else { 80 };
    if url.port() == usual { url.host().to_owned() } else { format!("{}:{}", url.host(), url.port()) }
}
