//! Lists what is published in a network, for `anabranch net ls`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use anabranch::network::{Name, Place, Publication, Scope, list};
use anabranch_algo::Span;
use anabranch_mmtp::ContentId;
use serde::Serialize;

use super::args::Ls;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::signals::stop_on_signals;
use crate::stdout::print;
use crate::view::{bytes, note, plural, printable};

/// The longest time to wait for an answer of the rendezvous.
const ANSWER_WITHIN: Span = Span::from_secs(5);

/// Reports a publication, as a line of JSON.
#[derive(Serialize)]
struct PublicationObject<'a> {
    name: String,
    scope: String,
    host: &'a str,
    port: u16,
    content: String,
    length: u64,
    collection: bool,
    /// Whether no host publishes a newer content under the name.
    newest: bool,
    changed_ms: u64,
    issued_ms: u64,
    lease_s: u32,
}

/// The hosts that publish the same content under the same name.
struct Row<'a> {
    publication: &'a Publication,
    hosts: Vec<&'a str>,
    newest: bool,
}

/// Lists what is published.
///
/// # Errors
/// 2 if this machine is no host of a network or the network has no such scope, 4 if the rendezvous does not
/// answer.
pub(super) fn ls(args: &Ls) -> Outcome {
    let scope = args.scope.as_deref().map(scope).transpose()?;
    let place = args.member.place()?;
    let listing = list(&place, scope.as_ref(), args.most as usize, ANSWER_WITHIN, &stop_on_signals()?)?;
    let text = if args.json {
        objects(&place, &listing.publications)
    } else {
        table(&rows(&place, &listing.publications))
    };
    print(text.as_bytes())?;
    if listing.publications.is_empty() && !args.json {
        let what = scope.map_or_else(String::new, |scope| format!(" under {scope}/"));
        note(&format!("nothing is published{what} in {} now", place.domain().name));
    }
    if listing.more {
        let shown = plural(listing.publications.len(), "publication");
        note(&format!("{shown} shown, and there are more: --most N shows more of them, SCOPE fewer"));
    }
    if listing.unbelieved > 0 {
        note(&format!(
            "{} left out: not signed by the owner of the scope, or over by the clock of this machine",
            plural(listing.unbelieved as usize, "publication")
        ));
    }
    Ok(())
}

/// Parses a scope. The end of a name's scope, `/`, may follow it.
fn scope(text: &str) -> Outcome<Scope> {
    let alone = text.strip_suffix('/').unwrap_or(text);
    if alone.contains('/') {
        return Err(Failure::usage(format!(
            "{} is a name, expected a scope: the part before the slash, such as films",
            printable(text)
        )));
    }
    alone.parse().map_err(|e: anabranch::network::NameError| Failure::usage(printable(&e.to_string())))
}

/// Returns the newest content under each name: the one of the publication with the latest version.
fn newest(publications: &[Publication]) -> BTreeMap<&Name, ContentId> {
    let mut latest: BTreeMap<&Name, &Publication> = BTreeMap::new();
    for publication in publications {
        let known = latest.entry(&publication.name).or_insert(publication);
        if publication.version_ms > known.version_ms {
            *known = publication;
        }
    }
    latest.into_iter().map(|(name, publication)| (name, publication.content)).collect()
}

/// Puts publications of the same content together; of a name the newest content comes first.
fn rows<'a>(place: &'a Place, publications: &'a [Publication]) -> Vec<Row<'a>> {
    let newest = newest(publications);
    let mut rows: Vec<Row<'a>> = Vec::new();
    for publication in publications {
        let host = place.name_of(publication.node);
        let is_same = |row: &&mut Row<'_>| row.publication.content == publication.content;
        let of_name = rows.iter_mut().rev().take_while(|row| row.publication.name == publication.name);
        match { of_name }.find(is_same) {
            Some(row) if row.hosts.last() != Some(&host) => row.hosts.push(host),
            Some(_) => {}
            None => {
                let newest = newest[&publication.name] == publication.content;
                rows.push(Row { publication, hosts: vec![host], newest });
            }
        }
    }
    // The rows of a name are neighbours, and this sort keeps the order of equal ones.
    rows.sort_by(|a, b| {
        let key = |row: &Row<'a>| (&row.publication.name, !row.newest, Reverse(row.publication.version_ms));
        key(a).cmp(&key(b))
    });
    rows
}

fn table(rows: &[Row<'_>]) -> String {
    let name = |row: &Row<'_>| row.publication.name.to_string();
    let length = |row: &Row<'_>| match row.publication.collection {
        true => "directory".to_owned(),
        false => bytes(row.publication.content.length),
    };
    let widest = |cell: &dyn Fn(&Row<'_>) -> String| {
        rows.iter().map(|row| console::measure_text_width(&printable(&cell(row)))).max().unwrap_or(0)
    };
    let (names, lengths) = (widest(&name), widest(&length));
    let mut out = String::new();
    for row in rows {
        let (name, hosts) = (name(row), row.hosts.join(", "));
        let name = console::pad_str(&printable(&name), names, console::Alignment::Left, None).into_owned();
        let older = if row.newest { "" } else { " (older)" };
        let _ = writeln!(out, "{name}  {:>lengths$}  {}{older}", length(row), printable(&hosts));
    }
    out
}

fn objects(place: &Place, publications: &[Publication]) -> String {
    let newest = newest(publications);
    let object = |publication: &Publication| {
        json::text(
            "publication",
            &PublicationObject {
                name: publication.name.to_string(),
                scope: publication.name.scope().to_string(),
                host: place.name_of(publication.node),
                port: publication.port,
                content: publication.content.to_string(),
                length: publication.content.length,
                collection: publication.collection,
                newest: newest[&publication.name] == publication.content,
                changed_ms: publication.version_ms,
                issued_ms: publication.issued_ms,
                lease_s: publication.lease_s,
            },
        )
    };
    publications.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts may have the same bytes in files of different ages.
    #[test]
    fn the_newest_content_is_that_of_all_its_hosts() {
        let publication = |node: u32, version_ms: u64, byte: u8| Publication {
            name: "films/film.mkv".parse().expect("a name"),
            content: ContentId { root: [byte; 32], length: 7 },
            collection: false,
            node: anabranch_topology::graph::NodeId(node),
            port: 1,
            version_ms,
            issued_ms: 0,
            lease_s: 60,
        };
        let all = [publication(1, 5, 1), publication(2, 9, 1), publication(3, 7, 2)];
        let newest = newest(&all);
        assert!(newest.values().eq([&all[0].content]));
    }
}
