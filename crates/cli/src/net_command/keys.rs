//! `anabranch net keys`: makes the keys of the members of a domain with keyed identifiers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anabranch::network::MemberKey;
use anabranch_net::private_file::read_secret;
use anabranch_network::new_services_key;
use anabranch_overlay::domain::Domain;
use anabranch_topology::graph::NodeId;

use super::domain_args::Keys;
use super::file::{find, read};
use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::network_options::KEY_BYTES_MAX;
use crate::new_file::create_secret;
use crate::stdout::print;

/// The file of the services' key. The files of forwarders' keys are named in a similar way.
const SERVICES: &str = "services.key";

/// Makes the keys that are missing.
///
/// # Errors
/// 2 if the domain cannot be read or has open identifiers, or if an existing file is no key of the domain; 6
/// if a file cannot be written.
pub(super) fn keys(args: &Keys) -> Outcome {
    let path = find(&args.file)?;
    let (_, domain) = read(&path)?;
    if !domain.is_keyed() {
        return Err(Failure::usage(format!(
            "{}: the domain {} has open identifiers: identifiers = \"keyed\" would have it need keys",
            show(&path),
            domain.name
        )));
    }
    let dir = args.dir.clone().unwrap_or_else(|| path.with_extension("keys"));
    make_dir(&dir).map_err(|e| Failure::target(format!("cannot make {}: {e}", show(&dir))))?;
    let services = dir.join(SERVICES);
    let file_of = |node: NodeId| dir.join(format!("{}.key", domain.graph.node(node).name));
    let mut there = Vec::new();
    for node in domain.forwarders() {
        there.extend(read_key(&domain, &file_of(node))?.map(|key| (node, key)));
    }
    let key = match (read_key(&domain, &services)?, there.first()) {
        (Some(MemberKey::Services(key)), _) => key,
        (Some(_), _) => return Err(Failure::usage(format!("{} is that of a forwarder", show(&services)))),
        (None, Some((node, _))) => {
            return Err(Failure::usage(format!(
                "{} is there and {} is not: put that back, or remove all keys to make others",
                show(file_of(*node)),
                show(&services)
            )));
        }
        (None, None) => {
            let key = new_services_key()?;
            create_secret(&services, &MemberKey::Services(key.clone()).secret_text(&domain))?;
            key
        }
    };
    let text_of = |node| MemberKey::of_forwarder(&key, node).secret_text(&domain);
    if let Some((node, _)) = there.iter().find(|(node, known)| known.secret_text(&domain) != text_of(*node)) {
        return Err(Failure::usage(format!(
            "{} does not follow from {}: remove one of them",
            show(file_of(*node)),
            show(&services)
        )));
    }
    let mut made = Vec::new();
    for node in domain.forwarders().filter(|node| !there.iter().any(|(known, _)| known == node)) {
        create_secret(&file_of(node), &text_of(node))?;
        made.push(domain.graph.node(node).name.clone());
    }
    let made = match &made[..] {
        [] => format!("all keys are in {}", show(&dir)),
        made => format!("keys of {} are in {}", made.join(", "), show(&dir)),
    };
    let there = match there.len() {
        0 => String::new(),
        there => format!(" ({there} of forwarders were there)"),
    };
    let (file, dir) = (show(&path), show(&dir));
    print(format!(
        "{made}{there}; give each forwarder its own, and nobody else:\n  \
         anabranch rendezvous --domain {file} --key {dir}/{SERVICES}\n  \
         anabranch topology --domain {file} --key {dir}/{SERVICES}\n  \
         anabranch forward --domain {file} --key {dir}/NODE.key\n"
    ))
}

/// Returns the texts of new keys for a domain on this machine: the key of its services, and the keys of its
/// forwarders in their order.
///
/// # Errors
/// 1 if the system has no random numbers.
#[cfg(target_os = "linux")]
pub(super) fn for_trial(domain: &Domain) -> Outcome<(String, Vec<String>)> {
    let key = new_services_key()?;
    let of_forwarders = domain.forwarders().map(|node| MemberKey::of_forwarder(&key, node));
    let of_forwarders = of_forwarders.map(|key| key.secret_text(domain)).collect();
    Ok((MemberKey::Services(key).secret_text(domain), of_forwarders))
}

fn read_key(domain: &Domain, file: &Path) -> Outcome<Option<MemberKey>> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", show(file)));
    match read_secret(file, KEY_BYTES_MAX) {
        Ok(text) => MemberKey::parse(domain, &String::from_utf8_lossy(&text))
            .map(Some)
            .map_err(|e| wrong(e.to_string())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(wrong(format!("cannot read it: {e}"))),
    }
}

/// Makes a directory that only its owner can read, unless it exists.
fn make_dir(dir: &PathBuf) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
