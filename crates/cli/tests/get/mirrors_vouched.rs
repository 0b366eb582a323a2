//! Which bytes are right: liars that vouch for themselves, false hashes, and mirrors that lie although the
//! user knows a hash of the whole file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::common::fetch::{Done, Ground, checksum, leaf_list, names, run, spawn};
use crate::common::{Server, anabranch, wait_until};
use crate::peers::site::{PATH, Reply, Site, honest, wrong};
use data_encoding::{BASE64, HEXLOWER};
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

const LENGTH: usize = 3_000_000;
const PIECE: usize = 1 << 20;

fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

fn sha384(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha384::digest(bytes))
}

fn sha512(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha512::digest(bytes))
}

/// Makes a Metalink of a file called `name`, with further elements.
fn metalink(name: &str, length: usize, inner: &str) -> String {
    format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"{name}\"><size>{length}</size>\
         {inner}</file></metalink>"
    )
}

/// Makes elements with the hashes of these bytes, of every kind that counts.
fn hashes(bytes: &[u8]) -> String {
    let pieces: String = bytes.chunks(PIECE).map(|piece| format!("<hash>{}</hash>", sha256(piece))).collect();
    format!(
        "<hash type=\"sha-256\">{}</hash><pieces length=\"{PIECE}\" type=\"sha-256\">{pieces}</pieces>",
        sha256(bytes)
    )
}

fn repr_digest(bytes: &[u8]) -> String {
    format!("sha-256=:{}:", BASE64.encode(&Sha256::digest(bytes)))
}

/// Makes a server of these bytes, with `more` at other paths.
fn server(
    bytes: &[u8],
    more: Vec<(String, Vec<u8>)>,
    twist: impl Fn(Reply) -> Reply + Send + Sync + 'static,
) -> Site {
    let bytes = bytes.to_vec();
    Site::answering(move |request| {
        let path = request.path.as_str();
        match more.iter().find(|(place, _)| place == path) {
            Some((_, body)) => Reply::new(200, body),
            None if path == PATH => twist(honest(request, &bytes, "\"v\"")),
            None => Reply::new(404, b""),
        }
    })
}

fn plain(bytes: &[u8]) -> Site {
    // The servers are slow, so that all of them take part.
    server(bytes, Vec::new(), |reply| reply.at(6_000_000))
}

/// Gets these URLs into an empty directory, under their own names.
fn get_there(ground: &Ground, urls: &[String], more: &[&str]) -> Done {
    let mut command = anabranch();
    command.current_dir(ground.to()).args(["get", "--json", "--timeout=20"]).args(urls).args(more);
    run(command)
}

/// Makes the files by which a liar vouches for its own bytes, with their paths.
type Vouching = fn(&[u8]) -> Vec<(String, Vec<u8>)>;

const WAYS: [(&str, Vouching); 4] = [
    ("a Metalink that a header field links to", |bad| {
        vec![("/h.meta4".into(), metalink("evil", bad.len(), &hashes(bad)).into_bytes())]
    }),
    ("a Metalink beside the file", |bad| {
        vec![(format!("{PATH}.meta4"), metalink("evil", bad.len(), &hashes(bad)).into_bytes())]
    }),
    ("a leaf list beside the file", |bad| vec![(format!("{PATH}.b3leaves"), leaf_list(bad))]),
    ("a line of b3sum beside the file", |bad| {
        vec![(format!("{PATH}.b3"), format!("{}  f.bin\n", blake3::hash(bad).to_hex()).into_bytes())]
    }),
];

fn liar(bad: &[u8], vouch: Vouching) -> Site {
    let more = vouch(bad);
    let is_linked = more.iter().any(|(path, _)| path == "/h.meta4");
    let own = repr_digest(bad);
    server(bad, more, move |reply| {
        let reply = reply.at(6_000_000).with("repr-digest", own.clone());
        match is_linked {
            true => reply.with("link", "</h.meta4>; rel=describedby; type=\"application/metalink4+xml\""),
            false => reply,
        }
    })
}

#[test]
fn a_liar_does_not_vouch_for_itself_against_others() {
    let ground = Ground::new(LENGTH);
    let bad = wrong(&ground.content);
    for honest_ones in [2, 4] {
        let good: Vec<Site> = (0..honest_ones).map(|_| plain(&ground.content)).collect();
        for (way, vouch) in WAYS {
            let liar = liar(&bad, vouch);
            for is_first in [true, false] {
                let mut urls: Vec<String> = good.iter().map(Site::url).collect();
                urls.insert(if is_first { 0 } else { 1 }, liar.url());
                let done = get_there(&ground, &urls, &[]).expect(0);
                assert_eq!(names(&ground.to()), ["f.bin"], "{way}: the name is that of the user's URL");
                let file = ground.to().join("f.bin");
                assert!(
                    fs::read(&file).expect("a file") == ground.content,
                    "{way}, first: {is_first}: {}",
                    done.out
                );
                fs::remove_file(file).expect("removed");
                assert_eq!(done.banned(), [liar.name()], "{way}: {}", done.out);
                let summary = done.summary();
                assert_eq!(
                    (&summary["verified"], summary["verified_by"].is_null()),
                    (&"nothing".into(), true)
                );
                assert!(!done.notes().contains("verified by"), "{way}: {}", done.notes());
                // The liar is banned before anything is fetched, so its hashes are not even considered.
                assert!(done.notes().contains("than most mirrors: banned"), "{way}: {}", done.notes());
            }
        }
    }
}

#[test]
fn what_a_duplicate_says_of_itself_does_not_count() {
    let ground = Ground::new(LENGTH);
    let bad = wrong(&ground.content);
    for (way, vouch) in WAYS {
        // The number of liars does not matter: the server that the user named decides.
        let liars = [(); 3].map(|()| liar(&bad, vouch));
        let links: Vec<String> =
            liars.iter().map(|liar| format!("<{}>; rel=duplicate", liar.url())).collect();
        let links = links.join(", ");
        let named =
            server(&ground.content, Vec::new(), move |reply| reply.at(3_000_000).with("link", links.clone()));
        let done = get_there(&ground, &[named.url()], &[]).expect(0);
        assert!(
            fs::read(ground.to().join("f.bin")).expect("a file") == ground.content,
            "{way}: {}",
            done.out
        );
        fs::remove_file(ground.to().join("f.bin")).expect("removed");
        assert!(!done.banned().contains(&named.name()), "{way}: {}", done.out);
        assert_eq!(done.summary()["verified"], "nothing");
    }
}

#[test]
fn one_alone_is_its_own_authority_and_is_called_so() {
    let ground = Ground::new(LENGTH);
    for (way, vouch) in WAYS {
        let site = liar(&ground.content, vouch);
        let done = run(ground.get_named(&[site.url()], &["--json"])).expect(0);
        ground.assert_arrived();
        let by = format!("self-asserted by {}", site.name());
        assert_eq!(done.summary()["verified_by"], by, "{way}: {}", done.out);
        let says = format!("compared, by hashes that {} itself offers", site.name());
        assert!(done.advice().contains(&says), "{way}: {}", done.out);
        let done = run(ground.get_named(&[site.url()], &["--force"])).expect(0);
        let says = format!("UNVERIFIED, but as {} itself says", site.name());
        assert!(done.err.contains(&says) && !done.err.contains(" verified"), "{way}: {}", done.err);
        fs::remove_file(ground.target()).expect("removed");
        // The user's hash ranks higher.
        let done = run(ground.get_named(&[site.url()], &["--json", &checksum(&ground.content)])).expect(0);
        assert_eq!(done.summary()["verified_by"], "user");
        fs::remove_file(ground.target()).expect("removed");
    }
}

/// Returns all forms of a content's hash that `--checksum` accepts.
fn spellings(content: &[u8]) -> Vec<String> {
    let (short, middle, long) = (sha256(content), sha384(content), sha512(content));
    let mut all: Vec<String> =
        ["", "sha256:", "sha256=", "sha-256=", "SHA-256:"].map(|kind| format!("{kind}{short}")).into();
    all.extend(["", "sha384:", "sha-384="].map(|kind| format!("{kind}{middle}")));
    all.extend(["", "sha512:", "sha512=", "sha-512="].map(|kind| format!("{kind}{long}")));
    all.push(short.to_uppercase());
    all
}

#[test]
fn checksums_as_people_have_them() {
    let ground = Ground::new(LENGTH);
    let site = Site::good(&ground.content);
    let get = |value: &str| run(ground.get_named(&[site.url()], &["--json", "--checksum", value]));
    for spelling in spellings(&ground.content) {
        let done = get(&spelling).expect(0);
        ground.assert_arrived();
        let summary = done.summary();
        assert_eq!(
            (&summary["verified"], &summary["verified_by"]),
            (&"whole".into(), &"user".into()),
            "{spelling}"
        );
        fs::remove_file(ground.target()).expect("removed");
    }
    for spelling in spellings(b"something else") {
        let done = get(&spelling).expect(5);
        assert!(done.err.contains("expected SHA-"), "{spelling}: {}", done.err);
        // The only mirror has these bytes, and the hash may be mistyped.
        assert_eq!(names(&ground.to()), ["f.unverified"], "{spelling}");
        assert!(fs::read(ground.to().join("f.unverified")).expect("kept") == ground.content);
        fs::remove_file(ground.to().join("f.unverified")).expect("removed");
    }
    let list = ground.dir.path().join("SHA256SUMS");
    let place = list.to_str().expect("UTF-8");
    let lines = |content: &[u8]| format!("{}  other.bin\n{} *f.bin\n", sha256(b"other"), sha256(content));
    fs::write(&list, lines(&ground.content)).expect("a file");
    get(place).expect(0);
    ground.assert_arrived();
    fs::remove_file(ground.target()).expect("removed");
    fs::write(&list, lines(b"something else")).expect("a file");
    get(place).expect(5);
    fs::remove_file(ground.to().join("f.unverified")).expect("removed");
    let tagged = format!("SHA512 (f.bin) = {}\nSHA512 (x) = {}\n", sha512(&ground.content), sha512(b"x"));
    let shorter = format!("{}  f.bin\n{}  x\n", sha384(&ground.content), sha384(b"x"));
    for text in [tagged, shorter] {
        fs::write(&list, text).expect("a file");
        get(place).expect(0);
        fs::remove_file(ground.target()).expect("removed");
    }
    fs::write(&list, format!("{}  a\n{}  b\n", sha256(b"a"), sha256(b"b"))).expect("a file");
    let done = get(place).expect(2);
    assert!(done.err.contains("no SHA-256, SHA-384 or SHA-512 of f.bin"), "{}", done.err);
    for bad in ["md5=00", "sha-256=00", "no-such-file"] {
        let done = get(bad).expect(2);
        assert!(done.err.contains("is no checksum"), "{bad}: {}", done.err);
    }
}

#[test]
fn a_metalink_of_any_strong_hash_is_held_against_the_file() {
    let ground = Ground::new(LENGTH);
    let site = Site::good(&ground.content);
    let path = ground.dir.path().join("f.meta4");
    let get = |inner: &str| {
        let list = metalink("f.bin", LENGTH, &format!("{inner}<url>{}</url>", site.url()));
        fs::write(&path, list).expect("a file");
        run(ground.get_named(&[&path], &["--json"]))
    };
    let whole = |bytes: &[u8]| format!("<hash type=\"sha-512\">{}</hash>", sha512(bytes));
    let pieces = |bytes: &[u8]| {
        let each: String =
            bytes.chunks(PIECE).map(|piece| format!("<hash>{}</hash>", sha512(piece))).collect();
        format!("<pieces length=\"{PIECE}\" type=\"sha-512\">{each}</pieces>")
    };
    let of_384 = |list: &str| {
        let shorter = |bytes: &[u8], list: String| list.replace(&sha512(bytes), &sha384(bytes));
        let list = ground.content.chunks(PIECE).fold(list.to_owned(), |list, piece| shorter(piece, list));
        shorter(&ground.content, list).replace("sha-512", "sha-384")
    };
    for (inner, verified) in [(whole(&ground.content), "whole"), (pieces(&ground.content), "pieces")] {
        for (inner, kind) in [(of_384(&inner), "by SHA-384"), (inner, "by SHA-512")] {
            let done = get(&inner).expect(0);
            ground.assert_arrived();
            let summary = done.summary();
            assert_eq!((&summary["verified"], &summary["verified_by"]), (&verified.into(), &"user".into()));
            assert!(done.notes().contains(kind), "{}", done.notes());
            fs::remove_file(ground.target()).expect("removed");
        }
    }
    let bad = wrong(&ground.content);
    // One wrong hash of two is enough for an error.
    let both = format!("<hash type=\"sha-256\">{}</hash>{}", sha256(&ground.content), whole(&bad));
    for inner in [whole(&bad), pieces(&bad), both] {
        let done = get(&inner).expect(5);
        assert!(!ground.target().exists(), "{}", done.out);
        for name in names(&ground.to()) {
            fs::remove_file(ground.to().join(name)).expect("removed");
        }
    }
    // These weak hashes are wrong, and are ignored.
    let weak =
        format!("<hash type=\"sha-1\">{}</hash><hash type=\"md5\">{}</hash>", "0".repeat(40), "0".repeat(32));
    let done = get(&weak).expect(0);
    assert_eq!(done.summary()["verified"], "nothing");
    assert!(done.notes().contains("no other hashes than sha-1, md5"), "{}", done.notes());
}

/// Makes a server for each of `lies`; it sends only wrong bytes if that is true. All of them take part.
fn sites(content: &[u8], lies: &[bool]) -> Vec<Site> {
    let bad = wrong(content);
    lies.iter().map(|lies| plain(if *lies { &bad } else { content })).collect()
}

/// The checksum may be mistyped, because no server contradicts another.
#[test]
fn what_all_mirrors_have_is_kept_though_it_is_not_what_the_hash_is_of() {
    let ground = Ground::new(LENGTH);
    let sites = sites(&ground.content, &[false, false]);
    let other = format!("sha256:{}", sha256(b"another file"));
    let urls: Vec<String> = sites.iter().map(Site::url).collect();
    let done = run(ground.get_named(&urls, &["--json", "--checksum", &other])).expect(5);
    assert!(done.err.contains("mistyped") && done.err.contains("all have the same bytes"), "{}", done.err);
    assert_eq!(names(&ground.to()), ["f.unverified"]);
    assert!(fs::read(ground.to().join("f.unverified")).expect("kept") == ground.content);
}

#[test]
fn a_directory_that_its_server_describes_is_called_so() {
    let ground = Ground::new(1);
    let album = ground.dir.path().join("album");
    fs::create_dir(&album).expect("a directory");
    for name in ["a", "b"] {
        fs::write(album.join(name), name).expect("a file");
    }
    let server = Server::start_at(&album, "127.0.0.1:0", &["--http", "127.0.0.1:0"]);
    let urls = server.offers.iter().filter_map(|offer| offer["http"][0].as_str());
    let url = urls.filter(|url| url.ends_with('/')).max_by_key(|url| url.len()).expect("the directory's");
    let done = run(ground.get_named(&[url], &["--json"])).expect(0);
    let summary = done.summary();
    assert_eq!(summary["verified"], "files", "{summary}");
    let by = summary["verified_by"].as_str().expect("who");
    assert!(by.starts_with("self-asserted by 127.0.0.1:"), "{by}");
    fs::remove_dir_all(ground.target()).expect("removed");
    // A Metalink that the user names counts as the user's word.
    let list = format!("{}.meta4", url.trim_end_matches('/'));
    let done = run(ground.get_named(&[list], &["--json"])).expect(0);
    assert_eq!(done.summary()["verified_by"], "user");
}

/// Lists of distributions contain many files of the same name.
#[test]
fn of_several_files_of_one_name_in_a_list_the_directories_decide() {
    let ground = Ground::new(100_000);
    let site = Site::good(&ground.content);
    let [other, own] = ["aa".repeat(32), HEXLOWER.encode(&Sha256::digest(&ground.content))];
    let list = ground.dir.path().join("SHA256SUMS");
    let get = |lines: &str| {
        fs::write(&list, lines).expect("a list");
        run(ground.get_named(&[site.url()], &["--json", &format!("--checksum={}", list.display())]))
    };
    let done = get(&format!("{other}  a/f.bin\n{own}  b/f.bin\n")).expect(2);
    assert!(done.err.contains("several hashes"), "{}", done.err);
    get(&format!("{other}  a/f.bin\n{own}  ./f.bin\n{other}  b/f.bin\n")).expect(0);
    ground.assert_arrived();
}

/// After an interruption, the message does not call bytes verified for which only a server vouches.
#[test]
fn an_interrupted_transfer_says_who_vouches() {
    let content = Ground::new(LENGTH).content;
    let site = server(&content, vec![(format!("{PATH}.b3leaves"), leaf_list(&content))], |reply| {
        reply.at(1_000_000)
    });
    for json in [true, false] {
        let ground = Ground::new(LENGTH);
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let running = spawn(ground.get_named(&[site.url()], more));
        wait_until(20, || ground.to().join("f.part").metadata().is_ok_and(|meta| meta.blocks() > 1_000));
        running.signal(Signal::SIGINT);
        let done = running.end().expect(130);
        if json {
            let by = format!("self-asserted by {}", site.name());
            assert_eq!(
                (&done.summary()["verified"], &done.summary()["verified_by"]),
                (&"blocks".into(), &by.into())
            );
        } else {
            assert!(done.err.contains(" UNVERIFIED, but as "), "{}", done.err);
        }
    }
}

/// Pieces may be too long to be checked as they come. If the user's Metalink has no other hash, nothing is
/// fetched. The hash of a single piece counts as a hash of the whole file.
#[test]
fn pieces_that_cannot_be_checked_are_not_passed_over() {
    let ground = Ground::new(1_000_000);
    let (good, bad) = (plain(&ground.content), plain(&wrong(&ground.content)));
    let of = |each: usize| -> String {
        let hashes = ground.content.chunks(each).map(|piece| format!("<hash>{}</hash>", sha256(piece)));
        format!("<pieces length=\"{each}\" type=\"sha-256\">{}</pieces>", hashes.collect::<String>())
    };
    let whole = format!("<hash type=\"sha-256\">{}</hash>", sha256(&ground.content));
    let get = |inner: &str, site: &Site, code: i32| {
        let path = ground.dir.path().join("f.meta4");
        let url = format!("<url>{}</url>", site.url());
        fs::write(&path, metalink("f", ground.content.len(), &[inner, &url].concat())).expect("a file");
        let done = run(ground.get_named(&[path.to_str().expect("UTF-8")], &["-q"])).expect(code);
        let _ = fs::remove_file(ground.target());
        let _ = fs::remove_file(ground.to().join("f.unverified"));
        done.err
    };
    for site in [&good, &bad] {
        let said = get(&of(100_000), site, 2);
        assert!(said.contains("pieces of 100000 bytes, and these cannot be checked"), "{said}");
        assert!(names(&ground.to()).is_empty(), "{:?}", names(&ground.to()));
    }
    for inner in [of(1_000_000), [of(100_000), whole].concat()] {
        get(&inner, &bad, 5);
        get(&inner, &good, 0);
    }
}
