//! Fetches the content that a request names, from all sources and mirrors that have it.
//!
//! First the sources are looked up, and HTTP servers are asked for the file and its metadata. Then the target
//! is opened, which finds the part that an earlier run left. Then a [`ContentFetch`] runs the subscriber and
//! the mirrors until all blocks are here. All of this happens in one [`EventLoop`]. A directory from sources
//! is two transfers over the same paths: its manifest into memory, then its files. A directory from mirrors,
//! which a Metalink of several files describes, is fetched by [`directory`](super::directory).

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use anabranch_mmtp::collection::Collection;
use anabranch_mmtp::uri::Uri;

use super::attempt;
use super::content_fetch::ContentFetch;
use super::directory;
use super::event_loop::EventLoop;
use super::from_servers;
use super::locators::{Beside, Locators};
use super::name_lookup::look_up;
use super::network_source::{self, NetworkName};
use super::offered_names::OfferedNames;
use super::outcome::Outcome;
use super::request::Request;
use super::routes::one_a_family;
use super::sink::{Destination, Job, Sink, Wanted};
use super::sockets::Sockets;
use super::world::World;
use crate::error::ErrorKind;
use crate::event::{Event, Observer};
use crate::filenames::lossy;
use crate::host_port::HostPort;
use crate::target::{Aliases, FinalCheck, RootCheck};
use crate::{Error, ErrorPlace, Report, Result, VouchedBy};

/// Fetches the content that `locators` name over real sockets. The last event reports the end.
pub(super) fn fetch(request: &Request, locators: Locators, observer: &mut Observer<'_>) -> Result<Report> {
    match Sockets::new(&request.http, observer) {
        Ok(mut world) => fetch_in(&mut world, request, locators, observer),
        Err(error) => failed(error, observer),
    }
}

/// Fetches the content that `locators` name in `world`. The last event reports the end.
pub(super) fn fetch_in(
    world: &mut dyn World,
    request: &Request,
    locators: Locators,
    observer: &mut Observer<'_>,
) -> Result<Report> {
    let events = EventLoop::new(world, observer, request.timeout).with_links(&request.links);
    match events.and_then(|mut events| fetch_named(request, locators, &mut events)) {
        Ok(Outcome { report, result }) => {
            if report.last.total_bytes.is_some_and(|total| total > 0) || report.complete {
                observer.send(Event::Progress(Box::new(report.last.clone())));
            }
            observer.send(Event::Finished(Box::new(report.clone())));
            result.map(|()| report)
        }
        Err(error) => failed(error, observer),
    }
}

/// Fetches the content that `locators` name and returns the outcome. It sends no event about the end.
///
/// # Errors
/// Fails with the error that stopped the transfer before there was anything to report.
pub(super) fn outcome(request: &Request, locators: Locators, observer: &mut Observer<'_>) -> Result<Outcome> {
    let mut world = Sockets::new(&request.http, observer)?;
    let events = EventLoop::new(&mut world, observer, request.timeout).with_links(&request.links);
    fetch_named(request, locators, &mut events?)
}

/// Ends a transfer that failed before there was anything to report.
pub(super) fn failed(error: Error, observer: &mut Observer<'_>) -> Result<Report> {
    observer.send(Event::Finished(Box::default()));
    Err(error)
}

/// Fetches the content that `named` names, and returns the outcome. If only one server or source is named,
/// errors about sources carry its place.
///
/// # Errors
/// Fails with the error that stopped the transfer before there was anything to report.
pub(super) fn fetch_named(
    request: &Request,
    named: Locators,
    events: &mut EventLoop<'_, '_>,
) -> Result<Outcome> {
    let place = named.only_place(&request.from);
    let about = |error: Error| match &place {
        Some(place) if error.kind().is_of_sources() => error.at(place.clone()),
        _ => error,
    };
    let Outcome { report, result } = fetch_all(request, named, events).map_err(about)?;
    Ok(Outcome { report, result: result.map_err(about) })
}

fn fetch_all(request: &Request, mut named: Locators, events: &mut EventLoop<'_, '_>) -> Result<Outcome> {
    if let Some(name) = named.network.take() {
        return from_network(request, &name, events);
    }
    if let Some(uri) = named.uri.clone().filter(|uri| uri.collection || !named.is_web()) {
        if named.is_web() {
            if uri.from.is_empty() && request.from.is_empty() {
                return Err(no_source_of_directory(&named));
            }
            events.observer.notice(
                "a directory that is named by its URI comes from sources that speak mmTP alone, so the URLs \
                 beside it are not used: mirrors need the Metalink of its files (see `MirrorList::make`)",
            );
        }
        return from_sources(request, &uri, events);
    }
    match named.metalink.take_if(|(metalink, _)| metalink.files.len() > 1) {
        Some((metalink, origin)) => {
            directory::get(request, metalink, origin, VouchedBy::User, &Beside::of(&named), events)
        }
        None if named.lists.len() + usize::from(named.metalink.is_some()) > 1 => Err(Error::usage(
            "two Metalinks: fetch other Metalinks by themselves, or put all URLs of one file into one",
        )),
        None => from_mirrors(request, &named, events),
    }
}

/// Fetches a content by its name in a network.
fn from_network(request: &Request, name: &NetworkName, events: &mut EventLoop<'_, '_>) -> Result<Outcome> {
    if !request.from.is_empty() || !request.links.ends.is_empty() {
        return Err(Error::usage(
            "`from_source` and `via` do not go with a name in a network: it says who has it and which ways \
             lead there",
        ));
    }
    let network = network_source::look_up(name, request.timeout, events)?;
    let found = &network.found;
    let file_name = Some(found.file_name.clone().into_bytes());
    let uri = Uri { name: file_name, collection: found.collection, ..Uri::new(found.content) };
    check_for_sources(request, &uri)?;
    let content = ContentFetch::through(request, network, events)?;
    fetch_verified(request, &uri, content, events)
}

/// Checks that sources that speak mmTP can serve the request.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if they cannot: for a directory that is read in order, for
/// one with a checksum, and for a request with a keyring.
fn check_for_sources(request: &Request, uri: &Uri) -> Result<()> {
    if uri.collection {
        request.allow_directory()?;
    }
    if request.keyring.is_some() {
        return Err(Error::usage(
            "`keyring` is for a file that mirrors have: sources that speak mmTP have no signatures of it",
        ));
    }
    if uri.collection && !request.digests.is_empty() {
        return Err(Error::usage("`checksum` is of one file, and this is a directory"));
    }
    Ok(())
}

/// Fetches the content of a URI from sources that speak mmTP.
fn from_sources(request: &Request, uri: &Uri, events: &mut EventLoop<'_, '_>) -> Result<Outcome> {
    check_for_sources(request, uri)?;
    let sources = resolve(request, Some(uri), events)?;
    if sources.is_empty() {
        return Err(Error::usage(
            "no source: the URI names none (was it in quotes?), so name one with `from_source` HOST:PORT",
        ));
    }
    let content = ContentFetch::new(request, &sources, None, events)?;
    fetch_verified(request, uri, content, events)
}

/// Fetches a content whose id is known, so that each block is verified when it arrives.
fn fetch_verified(
    request: &Request,
    uri: &Uri,
    mut content: ContentFetch,
    events: &mut EventLoop<'_, '_>,
) -> Result<Outcome> {
    // If the target is not named in full, the content needs a name. If the URI has none, a source is asked.
    let needed = request.output.needs_name(uri.collection);
    let mut names = OfferedNames::default();
    names.offer("the URI", uri.name.clone());
    if uri.name.is_none() && needed {
        names.offer("the source", content.name_of(uri.id, events)?);
    }
    let path = names.path(request, uri.collection, &uri.id, events.observer)?;
    let demands = FinalCheck::of(RootCheck::Blocks, request.digests).into();
    let whole = if uri.collection {
        collection(request, uri, &path, &mut content, events)
    } else {
        // The blocks are verified as they arrive, whether or not the whole file must have a checksum too.
        let place = request.reader.is_none().then(|| request.place(&path)).transpose()?;
        let wanted = Wanted { id: uri.id, aliases: Aliases::default(), demands };
        attempt::transfer(request, wanted, place, &mut content, events).map(drop)
    };
    Ok(Outcome { report: content.report(&uri.id, lossy(&path), whole.is_ok()), result: whole })
}

/// Fetches a content from HTTP servers, and from sources that speak mmTP if there are any.
fn from_mirrors(request: &Request, named: &Locators, events: &mut EventLoop<'_, '_>) -> Result<Outcome> {
    // Mirrors can still serve the content if no source can be looked up.
    let sources = match resolve(request, named.uri.as_ref(), events) {
        Err(error) if error.kind() == ErrorKind::Unreachable => Vec::new(),
        resolved => resolved?,
    };
    if request.keyring.is_some() && request.reader.is_some() {
        return Err(Error::usage(
            "`keyring` is of the whole file, which nobody has before it is read in order: name a file for it",
        ));
    }
    match (from_servers::fetch(request, named, &sources, events)?, &named.uri) {
        (Some(outcome), _) => Ok(outcome),
        (None, Some(uri)) => from_sources(request, uri, events),
        (None, None) => Err(Error::not_found("no mirror has the file")),
    }
}

/// Fetches a directory from sources: its manifest, then its files.
fn collection(
    request: &Request,
    uri: &Uri,
    path: &Path,
    content: &mut ContentFetch,
    events: &mut EventLoop<'_, '_>,
) -> Result<()> {
    if uri.id.length > anabranch_mmtp::collection::MANIFEST_MAX as u64 {
        return Err(Error::usage("the URI says it is a directory, but its manifest is too long to be one"));
    }
    let manifest = content.fetch_manifest(uri.id, events)?;
    let collection = Collection::parse(&manifest).map_err(|e| {
        Error::system(format!("the URI says it is a directory, but its content is no manifest: {e}"))
            .because(e)
    })?;
    let root = Rc::new(request.output.directory(path)?);
    if root.is_empty() {
        // In a directory with files, an earlier run may have left parts; they are looked at when each file is
        // opened.
        let total = collection.entries().iter().map(|entry| entry.id.length).fold(0, u64::saturating_add);
        root.check_room(path, total)?;
    }
    let jobs = collection.entries().iter().map(|entry| {
        let (root, path) = (root.clone(), entry.path.clone());
        let open = Box::new(move || root.place(path.split(|b| *b == b'/')).map(Destination::File));
        let executable = entry.executable;
        let demands = FinalCheck::ROOT.into();
        Job { wanted: Wanted { id: entry.id, aliases: Aliases::default(), demands }, executable, open }
    });
    let jobs = jobs.collect();
    let mut arrivals = Sink::new(jobs, request.force);
    content.run(&mut arrivals, events).and_then(|()| arrivals.result()).inspect_err(|_| root.remove_empty())
}

/// Returns the error for a directory's URI that names no source, with only mirrors `beside` it: mirrors
/// cannot serve a directory by its URI.
fn no_source_of_directory(beside: &Locators) -> Error {
    let what = if beside.metalink.is_some() || !beside.lists.is_empty() {
        "leave it out, and what the Metalink names comes from mirrors"
    } else {
        "mirrors of a directory need the Metalink of its files (DIR.meta4, see `MirrorList::make`): fetch \
         that instead"
    };
    Error::usage(format!(
        "the URI is of a directory and names no source that speaks mmTP: {what}; or name a source with \
         `from_source` HOST:PORT"
    ))
}

/// Looks up the addresses of every source in the URI and in the request. Each source is returned once.
fn resolve(
    request: &Request,
    uri: Option<&Uri>,
    events: &mut EventLoop<'_, '_>,
) -> Result<Vec<(String, Vec<SocketAddr>)>> {
    let mut hosts: Vec<HostPort> = Vec::new();
    for text in uri.iter().flat_map(|uri| &uri.from) {
        hosts.push(text.parse().map_err(|e| {
            Error::usage(format!("source {text} in the URI: {e}")).at(ErrorPlace::Address(text.clone()))
        })?);
    }
    hosts.extend(request.from.iter().cloned());
    let mut sources: Vec<(String, Vec<SocketAddr>)> = Vec::new();
    let mut unknown = Vec::new();
    let names: Vec<String> = hosts.iter().map(|host| host.host.clone()).collect();
    look_up(&names, "nothing was fetched", events)?;
    for host in hosts {
        let name = host.to_string();
        if sources.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let found = match events.world.resolve(&host.host).unwrap_or_else(|| Ok(Vec::new())) {
            Ok(found) => found,
            Err(e) => {
                events.observer.notice(&format!("cannot look up {name}: {e}"));
                unknown.push(name);
                continue;
            }
        };
        sources.push((name, one_a_family(found.into_iter(), host.port)));
    }
    if sources.is_empty() && !unknown.is_empty() {
        let message = format!("no source can be looked up: {}", unknown.join(", "));
        return Err(Error::unreachable(message));
    }
    if sources.len() > anabranch_mmtp::subscriber::SOURCES_MAX {
        return Err(Error::usage(format!("{} sources at most", anabranch_mmtp::subscriber::SOURCES_MAX)));
    }
    Ok(sources)
}
