//! Every given hash is checked. If two statements about a file contradict each other, the error names both.

use std::fs;
use std::path::PathBuf;

use crate::common::fetch::{Done, Ground, leaf_list, names, run};
use crate::common::{anabranch, noise};
use crate::peers::site::{PATH, Reply, Site, honest};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256, Sha512};

const LENGTH: usize = 3_000_000;
const PIECE: usize = 1 << 20;

/// Writes a hash as an element of a Metalink.
fn hash(kind: &str, bytes: &[u8]) -> String {
    format!("<hash type=\"{kind}\">{}</hash>", hex(kind, bytes))
}

fn hex(kind: &str, bytes: &[u8]) -> String {
    match kind {
        "blake3" => blake3::hash(bytes).to_hex().to_string(),
        "sha-256" => HEXLOWER.encode(&Sha256::digest(bytes)),
        _ => HEXLOWER.encode(&Sha512::digest(bytes)),
    }
}

/// Writes a Metalink to a file. Each entry is a name, a length, and further elements.
fn metalink(ground: &Ground, files: &[(&str, usize, String)]) -> PathBuf {
    let file = |(name, length, inner): &(&str, usize, String)| {
        format!("<file name=\"{name}\"><size>{length}</size>{inner}</file>")
    };
    let files: String = files.iter().map(file).collect();
    let path = ground.dir.path().join("f.meta4");
    fs::write(&path, format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>"))
        .expect("a file");
    path
}

fn url(site: &Site) -> String {
    format!("<url>{}</url>", site.url())
}

/// Returns the bytes of the file that were requested. At the end, some are requested from two servers.
fn asked_bytes(sites: &[Site]) -> usize {
    let seen = sites.iter().flat_map(|site| site.seen().clone());
    let ranges = seen.filter(|request| request.path == PATH && request.is_for_bytes());
    ranges.map(|request| request.range().expect("a range").len()).sum()
}

fn assert_both_are_named(done: &Done, right: (&str, &[u8]), wrong: (&str, &[u8])) {
    for (kind, bytes) in [right, wrong] {
        let says = format!("{} {}", kind.to_ascii_uppercase(), hex(kind, bytes));
        assert!(done.err.contains(&says), "{says}: {}", done.err);
    }
    assert!(done.err.contains("contradicts itself"), "{}", done.err);
    assert!(!done.err.contains("alone"), "{}", done.err);
}

#[test]
fn of_several_hashes_in_a_metalink_every_one_counts() {
    let other = noise(1_000);
    for (right, wrong) in
        [("blake3", "sha-256"), ("sha-256", "blake3"), ("sha-256", "sha-512"), ("blake3", "sha-512")]
    {
        let ground = Ground::new(LENGTH);
        let sites = [0; 3].map(|_| Site::good(&ground.content));
        let urls: String = sites.iter().map(url).collect();
        let inner = format!("{}{}{urls}", hash(right, &ground.content), hash(wrong, &other));
        let list = metalink(&ground, &[("f.bin", LENGTH, inner)]);
        let done = run(ground.get_named(&[&list], &["--json"])).expect(5);
        assert_both_are_named(&done, (right, &ground.content), (wrong, &other));
        // No mirror can have better bytes, and what came matches one of the two hashes.
        assert!(done.banned().is_empty(), "{}", done.out);
        assert!(asked_bytes(&sites) < LENGTH * 7 / 4, "{right} {wrong}: {}", asked_bytes(&sites));
        ground.assert_part();
        // A file that is there already is not accepted either.
        fs::copy(ground.source(), ground.target()).expect("a copy");
        let done = run(ground.get_named(&[&list], &["--json"])).expect(5);
        assert_both_are_named(&done, (right, &ground.content), (wrong, &other));
        assert!(asked_bytes(&sites) < LENGTH * 7 / 4, "{right} {wrong}: {}", asked_bytes(&sites));
    }
}

#[test]
fn a_hash_of_the_whole_counts_beside_pieces_and_leaves() {
    let (ground, other) = (Ground::new(LENGTH), noise(1_000));
    let sites = [0; 2].map(|_| Site::good(&ground.content));
    let urls: String = sites.iter().map(url).collect();
    let pieces: String =
        ground.content.chunks(PIECE).map(|piece| format!("<hash>{}</hash>", hex("sha-256", piece))).collect();
    let pieces = format!("<pieces length=\"{PIECE}\" type=\"sha-256\">{pieces}</pieces>{urls}");
    let list = metalink(&ground, &[("f.bin", LENGTH, format!("{}{pieces}", hash("sha-512", &other)))]);
    let done = run(ground.get_named(&[&list], &["--json"])).expect(5);
    assert!(done.err.contains(&hex("sha-512", &other)), "{}", done.err);
    assert!(!ground.target().exists());
    for name in names(&ground.to()) {
        fs::remove_file(ground.to().join(name)).expect("removed");
    }
    fs::write(ground.dir.path().join("f.b3leaves"), leaf_list(&ground.content)).expect("a file");
    let leaves = "<metaurl mediatype=\"application/x-anabranch-leaves\">f.b3leaves</metaurl>";
    let hashes = format!("{}{}", hash("blake3", &ground.content), hash("sha-256", &other));
    let list = metalink(&ground, &[("f.bin", LENGTH, format!("{hashes}{leaves}{urls}"))]);
    let done = run(ground.get_named(&[&list], &["--json"])).expect(5);
    assert_both_are_named(&done, ("blake3", &ground.content), ("sha-256", &other));
    assert!(done.notes().contains("by BLAKE3, and the whole by SHA-256"), "{}", done.notes());
    // If all hashes are right, the file arrives, and every block is verified.
    let hashes = format!("{}{}", hash("blake3", &ground.content), hash("sha-512", &ground.content));
    let list = metalink(&ground, &[("f.bin", LENGTH, format!("{hashes}{leaves}{urls}"))]);
    let done = run(ground.get_named(&[&list], &["--json"])).expect(0);
    assert_eq!(done.summary()["verified"], "blocks");
    ground.assert_arrived();
}

#[test]
fn what_is_read_in_order_is_held_against_every_hash() {
    let (ground, other) = (Ground::new(LENGTH), noise(1_000));
    let site = Site::good(&ground.content);
    let hashes = format!("{}{}", hash("blake3", &ground.content), hash("sha-256", &other));
    let list = metalink(&ground, &[("f.bin", LENGTH, format!("{hashes}{}", url(&site)))]);
    let mut command = anabranch();
    command.args(["get", "--output", "-"]).arg(&list);
    let output = command.output().expect("a process");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{err}");
    assert!(err.contains("contradicts itself") && err.contains("handed over"), "{err}");
}

#[test]
fn a_small_file_of_a_directory_has_every_hash_and_its_mirror_is_not_to_blame() {
    let (ground, other) = (Ground::new(20_000), noise(1_000));
    let site = Site::good(&ground.content);
    let right = format!("{}{}", hash("blake3", &ground.content), hash("sha-256", &ground.content));
    let wrong = format!("{}{}", hash("blake3", &ground.content), hash("sha-256", &other));
    let file = |name, hashes: &str| (name, 20_000, format!("{hashes}{}", url(&site)));
    let list = metalink(&ground, &[file("good", &right), file("bad", &wrong)]);
    let done = run(ground.get_named(&[&list], &["--json"])).expect(5);
    assert_both_are_named(&done, ("blake3", &ground.content), ("sha-256", &other));
    assert!(done.err.contains("(bad)") && done.banned().is_empty(), "{}", done.err);
    assert!(!done.notes().contains("wrong bytes"), "{}", done.notes());
    assert_eq!(names(&ground.target()), ["good"]);
}

/// The author of the URI and the author of the hash may have meant different files.
#[test]
fn a_uri_and_a_checksum_of_different_contents_give_no_file() {
    let (ground, other) = (Ground::new(LENGTH), noise(1_000));
    let sites = [0; 2].map(|_| Site::good(&ground.content));
    let uri = Uri::new(ContentId::of(&ground.content)).to_string();
    let checksum = format!("--checksum={}", hex("sha-256", &other));
    let asked = [uri, sites[0].url(), sites[1].url()];
    let done = run(ground.get_named(&asked, &["--json", &checksum])).expect(5);
    assert_both_are_named(&done, ("blake3", &ground.content), ("sha-256", &other));
    assert!(!ground.target().exists() && asked_bytes(&sites) < LENGTH * 7 / 4, "{}", done.out);
}

#[test]
fn a_server_that_contradicts_itself_is_told_and_what_came_is_kept() {
    let (ground, other) = (Ground::new(LENGTH), noise(1_000));
    let content = ground.content.clone();
    let list = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>{LENGTH}</size>{}{}\
         </file></metalink>",
        hash("blake3", &content),
        hash("sha-256", &other)
    );
    let site = Site::answering(move |request| match request.path.as_str() {
        PATH => honest(request, &content, "\"v1\""),
        "/f.bin.meta4" => Reply::new(200, list.as_bytes()),
        _ => Reply::new(404, b"no such file"),
    });
    let done = run(ground.get_named(&[site.url()], &["--json"])).expect(5);
    assert_both_are_named(&done, ("blake3", &ground.content), ("sha-256", &other));
    assert_eq!(names(&ground.to()), ["f.unverified"]);
    assert!(fs::read(ground.to().join("f.unverified")).expect("kept") == ground.content);
}
