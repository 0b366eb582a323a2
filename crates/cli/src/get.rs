//! `anabranch get`: fetches a file or a directory from all sources that have it.
//!
//! What happens in which order: read what was asked for, look the sources up, ask HTTP servers what they
//! have, open the target (which finds what an earlier run left there), then let `Transfer` run subscriber and
//! mirrors over sockets until everything is here. A directory is two transfers over the same paths: its
//! manifest into memory, then its files.

mod arrivals;
mod asked;
mod groups;
mod http;
mod known;
mod look;
mod paths;
mod pool;
mod rows;
mod transfer;
mod ways;
mod web;

pub use http::Http;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use algo::Span;
use http_world::client::Client;
use mmtp::ContentId;
use mmtp::collection::Collection;
use mmtp::uri::Uri;

use crate::args::{Get, HostPort};
use crate::exit::{Code, Failure, Outcome};
use crate::names::{self, show};
use crate::target::{Directory, Place, Proof, destination, directory_destination};
use crate::view::{Mode, Summary, Verified, View};
use arrivals::{Arrivals, Wanted};
use asked::Asked;
use look::Said;
use transfer::Transfer;
use web::Parts;

/// What comes before a content's name where it can be fetched by that.
const URI_HINT: &str = "with it others can be sure of it: anabranch:";

/// Fetches what `args` say.
///
/// # Errors
/// With the exit status that scripts rely on; see [`crate::exit`].
pub fn get(args: &Get) -> Outcome {
    if args.output.as_deref().is_some_and(|output| output.as_os_str() == "-") {
        return Err(Failure::usage(
            "standard output is not supported: groups arrive in any order; ./- is a file of that name",
        ));
    }
    let asked = Asked::read(&args.what)?;
    let view = View::new(Mode::of(args.json, args.quiet));
    match asked.uri.clone() {
        Some(uri) if !asked.is_web() || uri.collection => from_sources(args, &uri, view),
        _ => from_mirrors(args, asked, view),
    }
}

/// Fetches a content of which the URI says all.
fn from_sources(args: &Get, uri: &Uri, mut view: View) -> Outcome {
    if uri.collection && args.http.checksum.is_some() {
        return Err(Failure::usage("--checksum is of one file, and the URI is of a directory"));
    }
    let sources = resolve(args, Some(uri), &mut view)?;
    if sources.is_empty() {
        return Err(no_source());
    }
    let mut transfer = Transfer::new(args, &sources, None, &mut view)?;
    // A name is needed where the target is not named in full; without one in the URI a source is asked.
    let needed = args.output.as_deref().is_none_or(|output| {
        output.as_os_str().as_bytes().ends_with(b"/") || (!uri.collection && output.is_dir())
    });
    let name = match &uri.name {
        // A source may not choose a hidden name: some programs obey files by theirs.
        None if needed => transfer
            .name_of(uri.id, &mut view)?
            .filter(|name| names::component(name).is_ok() && !name.starts_with(b".")),
        name => name.clone(),
    };
    let place = if uri.collection { directory_destination } else { destination };
    let path = place(args.output.as_deref(), name.as_deref(), &uri.id)?;
    let proof = args.http.checksum.map_or(Proof::Root, Proof::Sha256);
    let whole = if uri.collection {
        directory(args, uri, &path, &mut transfer, &mut view)
    } else {
        // Its groups are verified as they come, whatever the whole is to be.
        file(args, uri.id, proof, path.clone(), &mut transfer, &mut view).map(drop)
    };
    view.finish(&transfer.summary(&uri.id, show(&path), whole.as_ref().err()));
    whole
}

/// Fetches a content that HTTP servers have, and perhaps others too.
fn from_mirrors(args: &Get, asked: Asked, mut view: View) -> Outcome {
    let uri = asked.uri.clone();
    // With mirrors, sources that cannot be looked up are no reason to give up.
    let sources = match resolve(args, uri.as_ref(), &mut view) {
        Err(failure) if failure.code == Code::Unreachable => Vec::new(),
        resolved => resolved?,
    };
    let start = || Client::start(args.http.options()).map_err(|e| Failure::usage(e.to_string()));
    let mut client = start()?;
    let said = Said { id: uri.as_ref().map(|uri| uri.id), sha256: args.http.checksum };
    let timeout = Span::from_secs(args.timeout);
    let looked = look::look(asked, said, &args.via, timeout, &mut client, &mut view);
    let mut found = match (looked, &uri) {
        (Err(failure), Some(uri))
            if !sources.is_empty() && matches!(failure.code, Code::NotFound | Code::Unreachable) =>
        {
            view.note(&format!("{}: going on without mirrors", failure.message));
            return from_sources(args, uri, view);
        }
        (looked, _) => looked?,
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
    let name = uri.and_then(|uri| uri.name).or(found.name.clone());
    let name = name.filter(|name| names::component(name).is_ok() && !name.starts_with(b"."));
    let path = destination(args.output.as_deref(), name.as_deref(), &found.id)?;
    let mut verified = if sources.is_empty() { found.verified() } else { Verified::Groups };
    let parts = Parts {
        client,
        length: found.id.length,
        check: found.check.clone(),
        lent: !sources.is_empty(),
        mirrors: found.mirrors.clone(),
    };
    let mut transfer = Transfer::new(args, &sources, Some(parts), &mut view)?;
    let mut whole = file(args, found.id, found.proof, path.clone(), &mut transfer, &mut view);
    let mut struck_off = Vec::new();
    if transfer.is_deserted() {
        struck_off = transfer.summary(&found.id, String::new(), None).struck_off;
        verified = found.verified();
        view.note(&format!("no source answers that speaks mmTP: mirrors alone go on; {}", found.how()));
        let (check, mirrors) = (found.check.clone(), found.mirrors.clone());
        let parts = Parts { client: start()?, length: found.id.length, check, lent: false, mirrors };
        transfer = Transfer::new(args, &[], Some(parts), &mut view)?;
        whole = file(args, found.id, found.proof, path.clone(), &mut transfer, &mut view);
    }
    if let (Ok(Some(root)), true) = (&whole, found.named)
        && *root != found.id.root
    {
        // The SHA-256 was what it had to be; where groups cannot be verified, the root is seen only now.
        whole = Err(Failure::new(
            Code::Corrupt,
            "it has the SHA-256 of --checksum, but not the BLAKE3 of the URI or the Metalink: they name \
             different contents",
        ));
    }
    if let (Err(failure), Some(url)) = (&whole, &found.recalled)
        && is_wrong(failure, &found.id, &path, &transfer)
    {
        known::forget(url);
        whole = Err(Failure::new(
            Code::Corrupt,
            format!(
                "{url} says that it has not changed since an earlier transfer, but its content is another: \
                 what was known of it is forgotten, and the same command fetches what is there now"
            ),
        ));
    }
    let id = whole.as_ref().ok().copied().flatten().map_or(found.id, |root| ContentId { root, ..found.id });
    // What several mirrors brought, and nothing proved, may be a mixture that none of them has.
    let is_learnt = !found.named && (verified != Verified::Nothing || transfer.mirrors().count() == 1);
    if whole.is_ok() && is_learnt {
        known::remember(transfer.mirrors(), id);
    }
    if whole.is_ok() && !found.named {
        view.note(&format!("its id is {id}; {URI_HINT}{id}?len={}", id.length));
    }
    let failure = whole.err();
    let mut summary = Summary { verified, ..transfer.summary(&id, show(&path), failure.as_ref()) };
    summary.struck_off.splice(..0, struck_off);
    view.finish(&summary);
    failure.map_or(Ok(()), Err)
}

/// Fetches one file; returns its root, if it was looked at.
fn file(
    args: &Get,
    id: ContentId,
    proof: Proof,
    path: PathBuf,
    transfer: &mut Transfer,
    view: &mut View,
) -> Outcome<Option<[u8; 32]>> {
    let place = Place::of(&path)?;
    let open = Box::new(move || Ok(place));
    let mut arrivals = Arrivals::new(vec![Wanted { id, proof, executable: false, open }], args.force);
    transfer.run(&mut arrivals, view)?;
    Ok(arrivals.root())
}

/// Whether a transfer failed because the whole of it was not right: then not even a part is left.
fn is_wrong(failure: &Failure, id: &ContentId, path: &Path, transfer: &Transfer) -> bool {
    let removed = || Place::of(path).is_ok_and(|place| !path.with_file_name(place.part_names().0).exists());
    match failure.code {
        Code::Corrupt => true,
        Code::Target => {
            let last = transfer.summary(id, String::new(), None).last;
            last.done_bytes == last.total_bytes && removed()
        }
        _ => false,
    }
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
        // One address a family: more of them commonly lead to the same machine by the same way.
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if addresses.iter().all(|a| a.is_ipv4() != address.is_ipv4()) {
                addresses.push(address);
            }
        }
        sources.push((name, addresses));
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
