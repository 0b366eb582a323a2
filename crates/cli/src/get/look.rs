//! What HTTP servers say before anything is fetched: which of the URLs have the file, how long it is, and
//! what there is to check it by.
//!
//! All questions that can be asked at once are. What is found, the strongest first: chaining values of all
//! groups (a leaf list that gives the content's root), hashes of pieces (a Metalink), the root alone, the
//! SHA-256 of the whole, nothing. A mirror that has a file of another length, or none, is left out and named.

mod found;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use http_world::client::{Ask, Client, Event, FetchId, Head, Trouble, What};
use mirror::field;
use mirror::leaves::{self, LEAVES_MAX, Leaves};
use mirror::metalink::{self, METALINK_MAX, Metalink};
use mirror::url::Url;
use mmtp::ContentId;
use net::{Clock, Interest, Poller, Via};

use super::asked::Asked;
use crate::exit::{Code, Failure, Outcome};
use crate::view::View;
pub(super) use found::{Found, Mirror};

/// Mirrors of one transfer.
pub(super) const MIRRORS_MAX: usize = 64;
/// A `b3sum` line is no longer.
const LINE_MAX: usize = 16 * 1024;

/// What a question was about.
#[derive(Clone, Debug)]
enum About {
    Mirror(usize),
    List(Url),
    Leaves,
    Line,
}

struct Looker<'a, 'v> {
    client: &'a mut Client,
    via: Via,
    view: &'v mut View,
    asked: BTreeMap<FetchId, (About, Vec<u8>)>,
    urls: Vec<Url>,
    heads: Vec<Option<Head>>,
    lists: VecDeque<Url>,
    metalink: Option<(metalink::File, Option<Url>)>,
    leaves: Option<Leaves>,
    /// Roots that stand in a `b3sum` line beside the file.
    line: Option<[u8; 32]>,
    next: FetchId,
    troubles: Vec<(String, Trouble)>,
    wants_beside: bool,
}

/// Asks all servers, and puts together what they say.
///
/// # Errors
/// Exit status 2 if what was asked for contradicts itself, 3 or 4 if no server has it.
pub(super) fn look(
    asked: Asked,
    root: Option<ContentId>,
    via: Via,
    client: &mut Client,
    view: &mut View,
) -> Outcome<Found> {
    let mut looker = Looker {
        client,
        via,
        view,
        asked: BTreeMap::new(),
        urls: Vec::new(),
        heads: Vec::new(),
        lists: asked.lists.into(),
        metalink: None,
        leaves: None,
        line: None,
        next: 0,
        troubles: Vec::new(),
        wants_beside: true,
    };
    if let Some((metalink, path)) = asked.metalink {
        let file = single(metalink)?;
        // A leaf list lies beside the Metalink, as `mirror-list make` puts it.
        if let Some(name) = file.leaves_beside()
            && let Ok(bytes) = std::fs::read(path.with_file_name(OsStr::from_bytes(&name)))
        {
            looker.leaves_came(&bytes);
        }
        looker.metalink_came(file, None);
    }
    for url in asked.urls {
        looker.mirror(url);
    }
    looker.rounds()?;
    looker.found(root)
}

/// The one file of a Metalink.
fn single(metalink: Metalink) -> Outcome<metalink::File> {
    let mut files = metalink.files;
    match files.len() {
        1 => Ok(files.remove(0)),
        n => {
            let names: Vec<String> =
                files.iter().take(5).map(|file| crate::names::show(&file.name)).collect();
            Err(Failure::usage(format!(
                "the Metalink describes {n} files ({}{}): one at a time is fetched",
                names.join(", "),
                if n > 5 { ", …" } else { "" }
            )))
        }
    }
}

impl Looker<'_, '_> {
    fn ask(&mut self, about: About, url: &Url, what: What) {
        let id = self.next;
        self.next += 1;
        // One way a question: they do not wait for each other.
        let ask = Ask { way: id as usize % 32, via: self.via.clone(), url: url.as_str().to_owned(), what };
        self.client.fetch(id, ask);
        self.asked.insert(id, (about, Vec::new()));
    }

    fn mirror(&mut self, url: Url) {
        if self.urls.len() < MIRRORS_MAX && self.urls.iter().all(|known| known.as_str() != url.as_str()) {
            let number = self.urls.len();
            self.ask(About::Mirror(number), &url, What::Look);
            self.urls.push(url);
            self.heads.push(None);
        }
    }

    /// Asks until there is nothing left to ask.
    fn rounds(&mut self) -> Outcome {
        let clock = Clock::start();
        let mut poller = Poller::new(clock);
        let mut told = false;
        loop {
            while let Some(url) = self.lists.pop_front() {
                self.ask(About::List(url.clone()), &url, What::Small { max: METALINK_MAX });
            }
            if self.wants_beside
                && self.metalink.is_none()
                && self.asked.values().all(|(about, _)| !matches!(about, About::List(_)))
            {
                self.wants_beside = false;
                self.look_beside();
            }
            if self.asked.is_empty() {
                return Ok(());
            }
            let until = clock.now() + algo::Span::from_secs(1);
            let ready = std::iter::once((self.client.fd(), Interest::Read));
            poller.wait(ready, until).map_err(|e| Failure::other(format!("waiting for answers: {e}")))?;
            let mut events = Vec::new();
            self.client.events(|event| events.push(event));
            for event in events {
                self.event(event)?;
            }
            if !told && clock.now() > algo::Time::ZERO + algo::Span::from_secs(2) {
                told = true;
                self.view.note("asking the mirrors what they have");
            }
        }
    }

    /// Without a Metalink: hashes may lie beside the file.
    fn look_beside(&mut self) {
        let Some(first) = self.urls.first().cloned() else { return };
        if let Ok(url) = first.beside(leaves::SUFFIX) {
            self.ask(About::Leaves, &url, What::Small { max: LEAVES_MAX });
        }
        if let Ok(url) = first.beside(".b3") {
            self.ask(About::Line, &url, What::Small { max: LINE_MAX });
        }
        if let Ok(url) = first.beside(".meta4") {
            self.ask(About::List(url.clone()), &url, What::Small { max: METALINK_MAX });
        }
    }

    fn event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Head { id, head } => {
                if let Some((About::Mirror(number), _)) = self.asked.get(&id) {
                    self.heads[*number] = Some(*head);
                }
            }
            Event::Body { id, bytes } => {
                if let Some((_, body)) = self.asked.get_mut(&id) {
                    body.extend_from_slice(&bytes);
                }
            }
            Event::Done { id } => {
                if let Some((about, body)) = self.asked.remove(&id) {
                    self.done(about, &body)?;
                }
            }
            Event::Failed { id, trouble } => {
                if let Some((about, _)) = self.asked.remove(&id) {
                    self.failed(about, trouble)?;
                }
            }
            Event::Sample { .. } => {}
        }
        Ok(())
    }

    fn done(&mut self, about: About, body: &[u8]) -> Outcome {
        match about {
            About::Mirror(number) => self.links(number),
            About::List(url) => match Metalink::parse(body) {
                Ok(metalink) => {
                    let file = single(metalink)?;
                    self.metalink_came(file, Some(url));
                }
                Err(e) if self.urls.is_empty() => {
                    return Err(Failure::usage(format!("{}: no Metalink: {e}", url.as_str())));
                }
                Err(_) => {}
            },
            About::Leaves => self.leaves_came(body),
            About::Line => {
                let name = self.urls.first().and_then(Url::file_name).unwrap_or_default();
                self.line = leaves::b3sum(body, &name);
            }
        }
        Ok(())
    }

    fn failed(&mut self, about: About, trouble: Trouble) -> Outcome {
        match about {
            About::Mirror(number) => {
                let host = host(&self.urls[number]);
                self.view.note(&format!("{host}: {trouble}"));
                self.troubles.push((host, trouble));
            }
            About::List(url) if self.urls.is_empty() => {
                let code = code(&trouble);
                return Err(Failure::new(code, format!("{}: {trouble}", url.as_str())));
            }
            // What may lie beside a file mostly does not.
            About::List(_) | About::Leaves | About::Line => {}
        }
        Ok(())
    }

    /// What a server says about where else the file is (RFC 6249).
    fn links(&mut self, number: usize) {
        let Some(head) = &self.heads[number] else { return };
        let Ok(base) = Url::parse(&head.url) else { return };
        let mut links: Vec<_> = head.links.iter().flat_map(|value| field::links(value, &base)).collect();
        links.sort_by_key(|link| link.priority);
        for link in links {
            if link.is_metalink() && self.metalink.is_none() && self.lists.is_empty() {
                self.lists.push_back(link.url);
            } else if link.is_duplicate() {
                self.mirror(link.url);
            }
        }
    }

    fn leaves_came(&mut self, bytes: &[u8]) {
        match Leaves::parse(bytes) {
            Ok(leaves) => self.leaves = Some(leaves),
            Err(e) => self.view.note(&format!("a leaf list is left out: {e}")),
        }
    }

    fn metalink_came(&mut self, file: metalink::File, base: Option<Url>) {
        if self.metalink.is_some() {
            return;
        }
        for mirror in &file.mirrors {
            self.mirror(mirror.url.clone());
        }
        if let (Some(reference), Some(base)) = (&file.leaves, &base)
            && self.leaves.is_none()
            && let Ok(url) = base.join(reference)
        {
            self.ask(About::Leaves, &url, What::Small { max: LEAVES_MAX });
        }
        self.metalink = Some((file, base));
    }
}

/// A server as people know it.
pub(super) fn host(url: &Url) -> String {
    let usual = if url.is_https() { 443 } else { 80 };
    let host = if url.host().contains(':') {
        format!("[{}]", url.host().trim_matches(['[', ']']))
    } else {
        url.host().to_owned()
    };
    if url.port() == usual { host } else { format!("{host}:{}", url.port()) }
}

fn code(trouble: &Trouble) -> Code {
    match trouble {
        Trouble::Unreachable(_) | Trouble::Broken(_) | Trouble::Busy { .. } | Trouble::Tls(_) => {
            Code::Unreachable
        }
        _ => Code::NotFound,
    }
}
