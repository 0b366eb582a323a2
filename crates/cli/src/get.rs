//! `anabranch get`: fetches a file or a directory from all sources that have it.
//!
//! What happens in which order: read what was asked for, look the sources up, ask HTTP servers what they
//! have, open the target (which finds what an earlier run left there), then let `Transfer` run subscriber and
//! mirrors over sockets until everything is here. A directory from sources is two transfers over the same
//! paths: its manifest into memory, then its files. A directory from mirrors, which a Metalink of several
//! files describes, is `several`: its small files many at once (`small`), then each longer one as if it were
//! alone.

mod arrivals;
mod asked;
mod groups;
mod http;
mod known;
mod look;
mod paths;
mod pool;
mod rows;
mod several;
mod silence;
mod small;
mod standing;
mod there;
mod transfer;
mod ways;
mod web;
mod writer;

pub use http::Http;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use algo::Span;
use anabranch_http::client::Client;
use mirror::verified_pool::Check;
use mmtp::ContentId;
use mmtp::collection::Collection;
use mmtp::uri::Uri;

use crate::args::{Get, HostPort};
use crate::exit::{Code, Failure, Outcome};
use crate::names::{self, show};
use crate::target::{Directory, Place, Proof, destination, directory_destination};
use crate::view::{Mode, Summary, Verified, View};
use arrivals::{Arrivals, Wanted};
use asked::{Asked, Base};
use known::Came;
use look::{Found, Looked, Said};
use transfer::Transfer;
use web::Parts;

/// What comes before a content's name where it can be fetched by that.
const URI_HINT: &str = "with it others can be sure of it: anabranch:";

/// Fetches what `args` say.
///
/// # Errors
/// With the exit status that scripts rely on; see [`crate::exit`].
pub fn get(args: &Get) -> Outcome {
    let mut view = View::new(Mode::of(args.json, args.quiet));
    let whole = fetch(args, &mut view);
    if let Err(failure) = &whole {
        view.finish(&Summary::failed(failure));
    }
    whole
}

fn fetch(args: &Get, view: &mut View) -> Outcome {
    if args.output.as_deref().is_some_and(|output| output.as_os_str() == "-") {
        return Err(Failure::usage(
            "standard output is not supported: blocks arrive in any order; ./- is a file of that name",
        ));
    }
    let mut asked = Asked::read(&args.what)?;
    if let Some(uri) = asked.uri.clone().filter(|uri| uri.collection || !asked.is_web()) {
        if asked.is_web() {
            if uri.from.is_empty() && args.from.is_empty() {
                return Err(no_source_of_directory(&asked));
            }
            view.note(
                "a directory that is named by its URI comes from sources that speak mmTP alone, so the URLs \
                 beside it are not used: mirrors need the Metalink of its files (see mirror-list make)",
            );
        }
        return from_sources(args, &uri, view);
    }
    match asked.metalink.take_if(|(metalink, _)| metalink.files.len() > 1) {
        Some((metalink, base)) => {
            let named = Named::of(&asked);
            several::get(args, metalink, base, &named, view)
        }
        None if asked.lists.len() + usize::from(asked.metalink.is_some()) > 1 => Err(Failure::usage(
            "two Metalinks: fetch other Metalinks by themselves, or put all URLs of one file into one",
        )),
        None => from_mirrors(args, asked, view),
    }
}

/// What else the command line names, beside a Metalink.
struct Named {
    /// The origins of URLs.
    origins: Vec<(bool, String, u16)>,
    /// Whether there are URLs of files.
    urls: bool,
    /// How many URLs of Metalinks there are.
    lists: usize,
    /// Whether there is a URI.
    uri: bool,
}

impl Named {
    fn of(asked: &Asked) -> Self {
        Self {
            origins: asked.urls.iter().chain(&asked.lists).map(look::origin).collect(),
            urls: !asked.urls.is_empty(),
            lists: asked.lists.len(),
            uri: asked.uri.is_some(),
        }
    }
}

/// Fetches a content of which the URI says all.
fn from_sources(args: &Get, uri: &Uri, view: &mut View) -> Outcome {
    if uri.collection && args.http.checksum.is_some() {
        return Err(Failure::usage("--checksum is of one file, and the URI is of a directory"));
    }
    let sources = resolve(args, Some(uri), view)?;
    if sources.is_empty() {
        return Err(no_source());
    }
    let mut transfer = Transfer::new(args, &sources, None, view)?;
    // A name is needed where the target is not named in full; without one in the URI a source is asked.
    let needed = args.output.as_deref().is_none_or(|output| {
        output.as_os_str().as_bytes().ends_with(b"/") || (!uri.collection && output.is_dir())
    });
    let name = match &uri.name {
        // A source may not choose a hidden name: some programs obey files by theirs.
        None if needed => transfer.name_of(uri.id, view)?.filter(|name| is_harmless(name)),
        name => name.clone(),
    };
    let place = if uri.collection { directory_destination } else { destination };
    let path = place(args.output.as_deref(), name.as_deref(), &uri.id)?;
    let proof = args.http.checksum.map_or(Proof::Root, Proof::Sha256);
    let whole = if uri.collection {
        directory(args, uri, &path, &mut transfer, view)
    } else {
        // Its blocks are verified as they come, whatever the whole is to be.
        let place = Place::of(&path)?;
        file(args, uri.id, proof, place, &mut transfer, view).map(drop)
    };
    view.finish(&transfer.summary(&uri.id, show(&path), whole.as_ref().err()));
    whole
}

/// Whether a name that somebody else chose may be that of a file here: not a hidden one, for some programs
/// obey files by their names.
fn is_harmless(name: &[u8]) -> bool {
    names::component(name).is_ok() && !name.starts_with(b".")
}

fn client(args: &Get) -> Outcome<Client> {
    Client::start(args.http.options()).map_err(|e| Failure::usage(e.to_string()))
}

/// Fetches a content that HTTP servers have, and perhaps others too.
fn from_mirrors(args: &Get, asked: Asked, view: &mut View) -> Outcome {
    let uri = asked.uri.clone();
    // With mirrors, sources that cannot be looked up are no reason to give up.
    let sources = match resolve(args, uri.as_ref(), view) {
        Err(failure) if failure.code == Code::Unreachable => Vec::new(),
        resolved => resolved?,
    };
    let mut client = client(args)?;
    let said = Said { id: uri.as_ref().map(|uri| uri.id), sha256: args.http.checksum };
    let (named, named_list) = (Named::of(&asked), !asked.lists.is_empty());
    let timeout = Span::from_secs(args.timeout);
    let looked = look::look(asked, said, &args.via, timeout, &mut client, view);
    let mut found = match (looked, &uri) {
        (Err(failure), Some(uri))
            if !sources.is_empty()
                && matches!(failure.code, Code::NotFound | Code::Unreachable | Code::Refused) =>
        {
            view.note(&format!("{}: going on without mirrors", failure.message));
            return from_sources(args, uri, view);
        }
        (looked, _) => match looked? {
            Looked::One(found) => *found,
            Looked::Several(metalink, url) => {
                // Beside a URL there is one only if that is of the same directory.
                let alone = Named { urls: named.urls && named_list, ..named };
                return several::get(args, metalink, Base::Url(url), &alone, view);
            }
        },
    };
    if !sources.is_empty() && !found.named {
        return Err(Failure::usage(
            "--from needs the content's id, which neither URL nor Metalink tell: give the anabranch: URI too",
        ));
    }
    if !sources.is_empty() {
        // They are verified as they come.
        found.mirrors.iter_mut().for_each(|mirror| mirror.seen_at = None);
    }
    view.note(&found.how());
    let name = uri.and_then(|uri| uri.name).or(found.name.clone()).filter(|name| is_harmless(name));
    let path = destination(args.output.as_deref(), name.as_deref(), &found.id)?;
    let End { id, summary, whole } =
        found_one(args, &found, &sources, client, &mut || Place::of(&path), view)?;
    if whole.is_ok() && !found.named {
        view.note(&format!("its id is {id}; {URI_HINT}{id}?len={}", id.length));
    }
    view.finish(&Summary { target: show(path), ..summary });
    whole
}

/// How the transfer of one file ended.
struct End {
    id: ContentId,
    /// Without its place.
    summary: Summary,
    whole: Outcome,
}

/// Fetches a file of which mirrors, and perhaps `sources`, are known to have it; it goes to `place`.
fn found_one(
    args: &Get,
    found: &Found,
    sources: &[(String, Vec<SocketAddr>)],
    client: Client,
    place: &mut dyn FnMut() -> Outcome<Place>,
    view: &mut View,
) -> Outcome<End> {
    if let Some(end) = there::already(args.force, found, place, view)? {
        return Ok(end);
    }
    // Whoever says --force wants fetched again what has never been verified.
    let anew = args.force && found.since().is_some();
    let mut place = || place().map(|place| place.anew(anew));
    let mut verified =
        if sources.is_empty() || found.since().is_some() { found.verified() } else { Verified::Blocks };
    let parts = |client: Client, lent: bool| Parts {
        client,
        length: found.id.length,
        check: found.check.clone(),
        lent,
        mirrors: found.mirrors.clone(),
    };
    let mut transfer = Transfer::new(args, sources, Some(parts(client, !sources.is_empty())), view)?;
    let mut whole = file(args, found.id, found.proof, place()?, &mut transfer, view);
    let mut banned = Vec::new();
    if transfer.is_deserted() {
        banned = transfer.summary(&found.id, String::new(), None).banned;
        verified = found.verified();
        view.note(&format!("no source answers that speaks mmTP: mirrors alone go on; {}", found.how()));
        transfer = Transfer::new(args, &[], Some(parts(self::client(args)?, false)), view)?;
        whole = file(args, found.id, found.proof, place()?, &mut transfer, view);
    }
    if let (Ok(Some(root)), true) = (&whole, found.named)
        && *root != found.id.root
    {
        // The SHA-256 was what it had to be; where blocks cannot be verified, the root is seen only now.
        whole = Err(Failure::new(
            Code::Corrupt,
            "it has the SHA-256 of --checksum, but not the BLAKE3 of the URI or the Metalink: they name \
             different contents",
        ));
    }
    if let (Err(failure), Some(recalled)) = (&mut whole, &found.recalled)
        && failure.code == Code::Corrupt
    {
        failure.message = doubted(found, recalled, &transfer, &failure.message);
    }
    let id = whole.as_ref().ok().copied().flatten().map_or(found.id, |root| ContentId { root, ..found.id });
    if whole.is_ok() && !found.named {
        // Nobody knows who brought what an earlier run left.
        let is_fresh = transfer.resumed_bytes() == 0;
        let came = match verified {
            Verified::Nothing if is_fresh && transfer.brought_by().count() == 1 => Came::Alone,
            Verified::Nothing => Came::Mixed,
            _ => Came::Verified,
        };
        let validated = transfer.mirrors().filter_map(|(url, validator)| Some((url, validator?)));
        known::remember(validated, id, came);
    }
    let whole = whole.map(drop);
    let failure = whole.as_ref().err();
    let unverified_since = found.since().map(str::to_owned);
    let mut summary = Summary { verified, unverified_since, ..transfer.summary(&id, String::new(), failure) };
    if failure.is_some() && !found.named {
        // That of the journal says nothing to anybody.
        summary.content = None;
    }
    summary.banned.splice(..0, banned);
    Ok(End { id, summary, whole })
}

/// What came is not what was `recalled`: what is to be said of that. What is remembered is forgotten only if
/// the very URL that it is of has sent something else.
fn doubted(found: &Found, recalled: &known::Recalled, transfer: &Transfer, message: &str) -> String {
    let known::Recalled { url, day, id, .. } = recalled;
    let is_it = |mirror: &str| mirror == url.as_str();
    let is_alone = transfer.resumed_bytes() == 0 && transfer.brought_by().eq([url.as_str()]);
    // Where blocks are verified, it is known who sent what.
    let has_lied = matches!(found.check, Check::Leaves(_)) && transfer.liars().any(is_it);
    if is_alone || has_lied {
        known::forget(found.mirrors.iter().map(|mirror| &mirror.url), id);
        return format!(
            "{url} says that it has not changed since an earlier transfer, but its content is another: \
             what was known of it is forgotten, and the same command fetches what is there now"
        );
    }
    let advice = match found.mirrors.len() {
        1 => "run the same command again",
        _ => "name one mirror alone",
    };
    let host = look::host(url);
    format!("{message}; it was held against what {host} had on {day} and says it still has: {advice}")
}

/// Fetches one file; returns its root, if it was looked at.
fn file(
    args: &Get,
    id: ContentId,
    proof: Proof,
    place: Place,
    transfer: &mut Transfer,
    view: &mut View,
) -> Outcome<Option<[u8; 32]>> {
    let open = Box::new(move || Ok(place));
    let mut arrivals = Arrivals::new(vec![Wanted { id, proof, executable: false, open }], args.force);
    transfer.run(&mut arrivals, view)?;
    Ok(arrivals.root())
}

fn directory(args: &Get, uri: &Uri, path: &Path, transfer: &mut Transfer, view: &mut View) -> Outcome {
    if uri.id.length > mmtp::collection::MANIFEST_MAX as u64 {
        return Err(Failure::usage("the URI says it is a directory, but its manifest is too long to be one"));
    }
    let manifest = transfer.fetch_manifest(uri.id, view)?;
    let collection = Collection::parse(&manifest).map_err(|e| {
        Failure::other(format!("the URI says it is a directory, but its content is no manifest: {e}"))
    })?;
    let root = std::rc::Rc::new(Directory::create(path)?);
    let wanted = collection.entries().iter().map(|entry| {
        let (root, path) = (root.clone(), entry.path.clone());
        let open = Box::new(move || root.place(path.split(|b| *b == b'/')));
        Wanted { id: entry.id, proof: Proof::Root, executable: entry.executable, open }
    });
    transfer.run(&mut Arrivals::new(wanted.collect(), args.force), view)
}

fn no_source() -> Failure {
    Failure::usage("no source: the URI names none (was it in quotes?), so name one with --from HOST:PORT")
}

/// The URI of a directory with nothing but mirrors beside it, which have no use for it.
fn no_source_of_directory(beside: &Asked) -> Failure {
    let what = if beside.metalink.is_some() || !beside.lists.is_empty() {
        "leave it out, and what the Metalink names comes from mirrors"
    } else {
        "mirrors of a directory need the Metalink of its files (DIR.meta4, see mirror-list make): fetch that \
         instead"
    };
    Failure::usage(format!(
        "the URI is of a directory and names no source that speaks mmTP: {what}; or name a source with \
         --from HOST:PORT"
    ))
}

/// The addresses of every source: those of the URI and those of `--from`, each once.
fn resolve(args: &Get, uri: Option<&Uri>, view: &mut View) -> Outcome<Vec<(String, Vec<SocketAddr>)>> {
    let mut hosts: Vec<HostPort> = Vec::new();
    for text in uri.iter().flat_map(|uri| &uri.from) {
        hosts.push(text.parse().map_err(|e| Failure::usage(format!("source {text} in the URI: {e}")))?);
    }
    hosts.extend(args.from.iter().cloned());
    let mut sources: Vec<(String, Vec<SocketAddr>)> = Vec::new();
    let mut unknown = Vec::new();
    for host in hosts {
        let name = host.to_string();
        if sources.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let found = match (host.host.as_str(), host.port).to_socket_addrs() {
            Ok(found) => found,
            Err(e) => {
                view.note(&format!("cannot look up {name}: {e}"));
                unknown.push(name);
                continue;
            }
        };
        sources.push((name, ways::one_a_family(found)));
    }
    if sources.is_empty() && !unknown.is_empty() {
        let message = format!("no source can be looked up: {}", unknown.join(", "));
        return Err(Failure::new(Code::Unreachable, message));
    }
    if sources.len() > mmtp::subscriber::SOURCES_MAX {
        return Err(Failure::usage(format!("{} sources at most", mmtp::subscriber::SOURCES_MAX)));
    }
    Ok(sources)
}
