//! `anabranch get`: fetches a file or a directory from all sources that have it.
//!
//! What happens in which order: read the URI, look the sources up, open the target (which finds what an
//! earlier run left there), then let `Transfer` run the subscriber over sockets until everything is here. A
//! directory is two transfers over the same paths: its manifest into memory, then its files.

mod arrivals;
mod groups;
mod paths;
mod transfer;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use mmtp::collection::Collection;
use mmtp::uri::Uri;

use crate::args::{Get, HostPort};
use crate::exit::{Code, Failure, Outcome};
use crate::names::{self, show};
use crate::target::{Directory, Place, destination, directory_destination};
use crate::view::{Mode, View};
use arrivals::{Arrivals, Wanted};
use transfer::Transfer;

/// Fetches what `args` say.
///
/// # Errors
/// With the exit status that scripts rely on; see [`crate::exit`].
pub fn get(args: &Get) -> Outcome {
    let uri: Uri = args.uri.parse().map_err(|e| Failure::usage(format!("not a URI of ours: {e}")))?;
    if args.output.as_deref().is_some_and(|output| output.as_os_str() == "-") {
        return Err(Failure::usage(
            "standard output is not supported: groups arrive in any order; ./- is a file of that name",
        ));
    }
    let mut view = View::new(Mode::of(args.json, args.quiet));
    let sources = resolve(args, &uri, &mut view)?;
    let mut transfer = Transfer::new(args, &sources, &mut view)?;
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
    let whole = if uri.collection {
        directory(args, &uri, &path, &mut transfer, &mut view)
    } else {
        file(args, &uri, path.clone(), &mut transfer, &mut view)
    };
    view.finish(&transfer.summary(&uri.id, show(&path), whole.as_ref().err()));
    whole
}

fn file(args: &Get, uri: &Uri, path: PathBuf, transfer: &mut Transfer, view: &mut View) -> Outcome {
    let place = Place::of(&path)?;
    let mut arrivals = Arrivals::new(
        vec![Wanted { id: uri.id, executable: false, open: Box::new(move || Ok(place)) }],
        args.force,
    );
    transfer.run(&mut arrivals, view)
}

fn directory(
    args: &Get,
    uri: &Uri,
    path: &std::path::Path,
    transfer: &mut Transfer,
    view: &mut View,
) -> Outcome {
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
        Wanted { id: entry.id, executable: entry.executable, open }
    });
    transfer.run(&mut Arrivals::new(wanted.collect(), args.force), view)
}

/// The addresses of every source: those of the URI and those of `--from`, each once.
fn resolve(args: &Get, uri: &Uri, view: &mut View) -> Outcome<Vec<(String, Vec<SocketAddr>)>> {
    let mut hosts: Vec<HostPort> = Vec::new();
    for text in &uri.from {
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
    if sources.is_empty() {
        return Err(Failure::usage(
            "no source: the URI names none (was it in quotes?), so name one with --from HOST:PORT",
        ));
    }
    if sources.len() > mmtp::subscriber::SOURCES_MAX {
        return Err(Failure::usage(format!("{} sources at most", mmtp::subscriber::SOURCES_MAX)));
    }
    Ok(sources)
}
