//! `get --keyring`: a file signed by a key of the user arrives from any server; no other file does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::anabranch;
use crate::common::fetch::{Ground, killed_when, leaf_list, names, run};
use crate::peers::site::{PATH, Reply, Site, Switch, honest, wrong};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;

/// A key, and the means to sign with it.
struct Signing {
    home: tempfile::TempDir,
    /// The options that set the time for `gpg`.
    then: &'static [&'static str],
}

impl Signing {
    fn new() -> Option<Self> {
        Self::since(&[], "never")
    }

    /// Makes a key in 2020 that has expired; it signs as if it were still 2020.
    fn expired() -> Option<Self> {
        Self::since(&["--faked-system-time", "20200101T000000"], "1y")
    }

    fn since(then: &'static [&'static str], expires: &str) -> Option<Self> {
        let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !is_there("gpg") || !(is_there("gpgv") || is_there("sqv")) {
            anabranch_net::testing::skip("gpg, and gpgv or sqv, are not installed");
            return None;
        }
        let new = Self { home: tempfile::tempdir().expect("a directory"), then };
        new.gpg(&["--quick-gen-key", "--passphrase", "", "T <t@example.org>", "ed25519", "sign", expires]);
        Some(new)
    }

    fn gpg(&self, args: &[&str]) -> Vec<u8> {
        let mut command = Command::new("gpg");
        command.arg("--homedir").arg(self.home.path()).args([
            "--batch",
            "--yes",
            "--pinentry-mode",
            "loopback",
        ]);
        let output = command.args(self.then).args(args).output().expect("gpg");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Returns an armored signature of a file.
    fn sign(&self, file: &Path) -> Vec<u8> {
        self.gpg(&["--armor", "--detach-sign", "--output", "-", file.to_str().expect("UTF-8")])
    }

    /// Writes the keyring with these options of `gpg`, and returns the option that names it.
    fn option(&self, how: &[&str]) -> String {
        let path: PathBuf = self.home.path().join("keyring");
        fs::write(&path, self.gpg(&[how, &["--export"]].concat())).expect("a file");
        format!("--keyring={}", path.display())
    }

    /// Revokes the key.
    fn revoke(&self) {
        let certificates = fs::read_dir(self.home.path().join("openpgp-revocs.d")).expect("gpg makes one");
        let certificate = certificates.last().expect("one").expect("one").path();
        // A colon in the certificate prevents its use by mistake.
        let text = fs::read_to_string(&certificate).expect("a file").replace(":-----BEGIN", "-----BEGIN");
        fs::write(&certificate, text).expect("a file");
        self.gpg(&["--import", certificate.to_str().expect("UTF-8")]);
    }
}

impl Drop for Signing {
    fn drop(&mut self) {
        let _ =
            Command::new("gpgconf").arg("--homedir").arg(self.home.path()).args(["--kill", "all"]).output();
    }
}

/// Makes a server of the content, with `beside` as `NAME.asc`.
fn site(content: &[u8], beside: Option<&[u8]>) -> Site {
    let (content, beside) = (content.to_vec(), beside.map(<[u8]>::to_vec));
    Site::answering(move |request| match (request.path.as_str(), &beside) {
        (PATH, _) => honest(request, &content, "\"v1\""),
        ("/f.bin.asc", Some(signature)) => Reply::new(200, signature),
        _ => Reply::new(404, b"no such file"),
    })
}

/// Returns the bytes of the file that were requested, except for the request that shows its length. At the
/// end, some are requested from two servers.
fn asked_bytes(sites: &[&Site]) -> usize {
    let seen = sites.iter().flat_map(|site| site.seen().clone());
    let ranges = seen.filter(|request| request.path == PATH && request.is_for_bytes());
    ranges.map(|request| request.range().expect("a range").len()).sum()
}

#[test]
fn a_file_with_a_good_signature_arrives_and_no_other_does() {
    let Some(signing) = Signing::new() else { return };
    let stranger = Signing::new().expect("it is there");
    let ground = Ground::new(3_000_000);
    let signature = signing.sign(&ground.source());
    let mut wrong = ground.content.clone();
    wrong[2_000_000] ^= 1;
    let keyring = signing.option(&["--armor"]);
    let get = |site: &Site, keyring: &str| run(ground.get_named(&[site.url()], &["--json", keyring]));

    let done = get(&site(&wrong, Some(&signature)), &keyring).expect(5);
    assert!(done.err.contains("no good signature"), "{}", done.err);
    let done = get(&site(&ground.content, Some(&signature)), &stranger.option(&[])).expect(5);
    assert!(done.err.contains("no good signature"), "{}", done.err);
    let done = get(&site(&ground.content, None), &keyring).expect(3);
    assert!(done.err.contains("no OpenPGP signature"), "{}", done.err);
    assert!(names(&ground.to()).is_empty(), "nothing has the name: {:?}", names(&ground.to()));

    let done = get(&site(&ground.content, Some(&signature)), &keyring).expect(0);
    ground.assert_arrived();
    let summary = done.summary();
    assert!(summary["verified_by"].as_str().is_some_and(|by| by.starts_with("signature by ")), "{summary}");
    assert_eq!(summary["verified"], "whole");
}

#[test]
fn of_a_liar_and_an_honest_mirror_the_signature_tells_who_is_right() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(3_000_000);
    let signature = signing.sign(&ground.source());
    let wrong: Vec<u8> = ground.content.iter().map(|byte| byte ^ 1).collect();
    let sites = [site(&wrong, Some(&signature)), site(&ground.content, None)];
    let urls = sites.each_ref().map(Site::url);
    run(ground.get_named(&urls, &["--json", &signing.option(&[])])).expect(0);
    ground.assert_arrived();
}

#[test]
fn the_signature_of_a_metalink_counts_whoever_offers_it() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(300_000);
    let signature = String::from_utf8(signing.sign(&ground.source())).expect("armored");
    let site = site(&ground.content, None);
    let text = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>300000</size>\
         <signature mediatype=\"application/pgp-signature\">{signature}</signature>\
         <url>{}</url></file></metalink>",
        site.url()
    );
    let list = ground.dir.path().join("f.meta4");
    fs::write(&list, text).expect("a file");
    let done = run(ground.get_named(&[list], &["--json", &signing.option(&[])])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "whole");
}

#[test]
fn what_makes_no_sense_beside_a_keyring_is_said() {
    let ground = Ground::new(1_000);
    let site = Site::good(&ground.content);
    let done = run(ground.get_named(&[site.url()], &["--keyring=/dev/null"])).expect(2);
    assert!(done.err.contains("no OpenPGP certificate"), "{}", done.err);
}

#[test]
fn binary_signatures_and_keyrings_are_as_good_and_a_revoked_key_is_none() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(300_000);
    let signature =
        signing.gpg(&["--detach-sign", "--output", "-", ground.source().to_str().expect("UTF-8")]);
    let site = site(&ground.content, Some(&signature));
    run(ground.get_named(&[site.url()], &[&signing.option(&[])])).expect(0);
    ground.assert_arrived();
    fs::remove_file(ground.target()).expect("it arrived");
    signing.revoke();
    let done = run(ground.get_named(&[site.url()], &[&signing.option(&[])])).expect(5);
    assert!(done.err.contains("no good signature") && names(&ground.to()).is_empty(), "{}", done.err);
}

#[test]
fn where_every_block_is_verified_the_error_is_of_the_signature_too() {
    let (Some(signing), Some(stranger)) = (Signing::new(), Signing::new()) else { return };
    let ground = Ground::new(300_000);
    let site = site(&ground.content, Some(&signing.sign(&ground.source())));
    let made = anabranch().arg("mirror-list").arg("make").arg(ground.source()).arg(site.url()).output();
    assert!(made.expect("the command").status.success());
    let list = ground.dir.path().join("source.meta4");
    let get = |keyring: &str| run(ground.get_named(&[list.as_os_str()], &["--json", keyring]));
    let done = get(&stranger.option(&[])).expect(5);
    assert!(done.err.contains("no good signature") && names(&ground.to()).is_empty(), "{}", done.err);
    assert_eq!(done.summary()["verified_by"], serde_json::Value::Null);
    get(&signing.option(&[])).expect(0);
    ground.assert_arrived();
}

/// The user demands the signature, so `get` waits longer for it than for optional files.
#[test]
fn a_signature_that_takes_its_time_is_waited_for() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(30_000);
    let (content, signature) = (ground.content.clone(), signing.sign(&ground.source()));
    let site = Site::answering(move |request| match request.path.as_str() {
        PATH => honest(request, &content, "\"v1\""),
        "/f.bin.asc" => {
            std::thread::sleep(std::time::Duration::from_secs(5));
            Reply::new(200, &signature)
        }
        _ => Reply::new(404, b"no such file"),
    });
    run(ground.get_named(&[site.url()], &["--json", &signing.option(&[])])).expect(0);
    ground.assert_arrived();
}

/// No bytes can make such a signature valid.
#[test]
fn a_key_that_is_not_in_the_keyring_is_told_before_the_first_byte() {
    let (Some(signing), Some(stranger)) = (Signing::new(), Signing::new()) else { return };
    let ground = Ground::new(3_000_000);
    let signature = signing.sign(&ground.source());
    let both = [site(&ground.content, Some(&signature)), site(&ground.content, Some(b"<html>"))];
    let urls = both.each_ref().map(Site::url);
    let done = run(ground.get_named(&urls, &["--json", &stranger.option(&[])])).expect(5);
    assert!(done.err.contains("no good signature") && done.err.contains("No public key"), "{}", done.err);
    assert!(asked_bytes(&both.each_ref()) == 0 && names(&ground.to()).is_empty(), "{}", done.out);
    run(ground.get_named(&urls, &["--json", &signing.option(&[])])).expect(0);
    ground.assert_arrived();
}

#[test]
fn a_key_that_has_expired_or_is_revoked_costs_no_second_fetch() {
    let (Some(expired), Some(revoked)) = (Signing::expired(), Signing::new()) else { return };
    let ground = Ground::new(3_000_000);
    for (signing, why) in [(&expired, "has expired"), (&revoked, "is revoked")] {
        let signature = signing.sign(&ground.source());
        if signing.then.is_empty() {
            signing.revoke();
        }
        let all = [0; 3].map(|_| site(&ground.content, Some(&signature)));
        let urls = all.each_ref().map(Site::url);
        let done = run(ground.get_named(&urls, &["--json", &signing.option(&[])])).expect(5);
        assert!(done.err.contains("no good signature") && done.err.contains(why), "{}", done.err);
        assert!(!done.err.contains("alone") && !done.notes().contains("alone"), "{}\n{}", done.err, done.out);
        let asked = asked_bytes(&all.each_ref());
        assert!(asked < 3_000_000 * 7 / 4, "{asked}\n{}", done.out);
        assert!(!ground.target().exists());
    }
}

/// The hash already determines the bytes, so no other bytes can be signed.
#[test]
fn what_has_the_hash_and_no_good_signature_is_neither_fetched_again_nor_lost() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(3_000_000);
    let other = ground.dir.path().join("other");
    fs::write(&other, b"other").expect("a file");
    let bad = signing.sign(&other);
    let uri = Uri::new(ContentId::of(&ground.content)).to_string();
    let bad_ones = [0; 3].map(|_| site(&ground.content, Some(&bad)));
    let urls = bad_ones.each_ref().map(Site::url);
    let names_of = |urls: &[String]| [std::slice::from_ref(&uri), urls].concat();
    let keyring = signing.option(&[]);
    for asked in [&names_of(&urls)[..], &names_of(&urls)[..2]] {
        let done = run(ground.get_named(asked, &["--json", &keyring])).expect(5);
        assert!(done.err.contains("no good signature") && done.err.contains("f.part"), "{}", done.err);
        assert!(!done.err.contains("alone"), "{}", done.err);
        let bytes = asked_bytes(&bad_ones.each_ref());
        assert!(bytes < 3_000_000 * 7 / 4, "{bytes} in all so far\n{}", done.out);
        ground.assert_part();
    }
    let good = site(&ground.content, Some(&signing.sign(&ground.source())));
    let done = run(ground.get_named(&names_of(&[good.url()]), &["--json", &keyring])).expect(0);
    assert_eq!(asked_bytes(&[&good]), 0, "{}", done.out);
    assert!(done.summary()["verified_by"].as_str().is_some_and(|by| by.starts_with("signature by ")));
    ground.assert_arrived();
}

#[test]
fn what_is_there_already_is_recognised_by_its_signature() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(3_000_000);
    let signature = signing.sign(&ground.source());
    let site = site(&ground.content, Some(&signature));
    let get = |more: &[&str]| {
        let keyring = signing.option(&[]);
        run(ground.get_named(&[site.url()], &[&["--json", keyring.as_str()], more].concat()))
    };
    fs::copy(ground.source(), ground.target()).expect("a copy");
    let done = get(&[]).expect(0);
    assert_eq!(asked_bytes(&[&site]), 0, "{}", done.out);
    let summary = done.summary();
    assert_eq!((&summary["verified"], &summary["complete"]), (&"whole".into(), &true.into()), "{summary}");
    assert!(summary["verified_by"].as_str().is_some_and(|by| by.starts_with("signature by ")), "{summary}");
    ground.assert_arrived();
    // A file with other content stays.
    let mut wrong = ground.content.clone();
    wrong[1_000_000] ^= 1;
    fs::write(ground.target(), &wrong).expect("a file");
    let done = get(&[]).expect(6);
    assert!(done.err.contains("with other content"), "{}", done.err);
    assert!(asked_bytes(&[&site]) == 0 && fs::read(ground.target()).expect("a file") == wrong);
    get(&["--force"]).expect(0);
    ground.assert_arrived();
}

/// If a signature is demanded, it is not enough that the servers report no change.
#[test]
fn what_is_remembered_does_not_stand_for_a_signature() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(30_000);
    let other = ground.dir.path().join("other");
    fs::write(&other, b"other").expect("a file");
    let (content, signature) = (ground.content.clone(), signing.sign(&other));
    let site = Site::answering(move |request| match request.path.as_str() {
        PATH => honest(request, &content, "\"v1\"")
            .without("etag")
            .with("last-modified", "Sun, 22 Nov 2026 10:00:00 GMT"),
        "/f.bin.asc" => Reply::new(200, &signature),
        _ => Reply::new(404, b"no such file"),
    });
    let cache = ground.dir.path().join("cache");
    let get = |more: &[&str]| {
        let mut command = ground.get_named(&[site.url()], more);
        command.env("XDG_CACHE_HOME", &cache);
        run(command)
    };
    get(&["--json"]).expect(0);
    assert_eq!(get(&["--json"]).expect(0).summary()["verified"], "unchanged");
    let done = get(&["--json", &signing.option(&[])]).expect(6);
    assert!(done.err.contains("with other content"), "{}", done.err);
}

/// Two liars agree on a length, and both send the valid signature of the file that the third server has.
#[test]
fn whose_length_most_servers_say_does_not_decide_where_a_signature_does() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(3_000_000);
    let signature = signing.sign(&ground.source());
    let longer = crate::common::noise(4_000_000);
    for liars in [1, 2] {
        let mut sites: Vec<Site> = (0..liars).map(|_| site(&longer, Some(&signature))).collect();
        sites.push(site(&ground.content, Some(&signature)));
        let urls: Vec<String> = sites.iter().map(Site::url).collect();
        run(ground.get_named(&urls, &["--json", &signing.option(&[])])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
        // The honest server does not tell a length. A liar with the right length falls silent: its bytes are
        // not mixed with those that come.
        let untold = Site::untold(&ground.content);
        let wrong = wrong(&ground.content);
        let silent = Switch::default().silent_after(1_000_000, &wrong, 4_000_000);
        let last = sites.len() - 1;
        let urls = [&urls[..last], &[silent.url(), untold.url()]].concat();
        let args = ["--json", &signing.option(&[]), "--timeout", "4"];
        run(ground.get_named(&urls, &args)).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
}

/// Each server tells the true hashes of its own file, and two of three are liars.
#[test]
fn hashes_that_servers_say_do_not_keep_a_signed_file_away() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(300_000);
    let signature = signing.sign(&ground.source());
    let mut wrong = ground.content.clone();
    wrong[150_000] ^= 1;
    let site = |content: &[u8]| {
        let (content, signature) = (content.to_vec(), signature.clone());
        Site::answering(move |request| match request.path.as_str() {
            PATH => honest(request, &content, "\"v1\""),
            "/f.bin.asc" => Reply::new(200, &signature),
            "/f.bin.b3leaves" => Reply::new(200, &leaf_list(&content)),
            _ => Reply::new(404, b"no such file"),
        })
    };
    let sites = [site(&wrong), site(&ground.content), site(&wrong)];
    run(ground.get_named(&sites.each_ref().map(Site::url), &["--json", &signing.option(&[])])).expect(0);
    ground.assert_arrived();
}

/// The mirror with the signature may have any place in the user's list.
#[test]
fn a_signature_is_looked_for_beside_every_mirror_that_is_named() {
    let Some(signing) = Signing::new() else { return };
    let stranger = Signing::new().expect("it is there");
    let ground = Ground::new(300_000);
    let (good, foreign) = (signing.sign(&ground.source()), stranger.sign(&ground.source()));
    for beside in [None, Some(&foreign[..])] {
        let mut sites: Vec<Site> = (0..5).map(|_| site(&ground.content, beside)).collect();
        sites.push(site(&ground.content, Some(&good)));
        let urls: Vec<String> = sites.iter().map(Site::url).collect();
        run(ground.get_named(&urls, &["--json", &signing.option(&[])])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
}

/// By now the server has a longer file, which is signed as well.
#[test]
fn a_part_of_another_length_is_not_in_the_way_of_what_is_signed() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(6_000_000);
    let old = ground.dir.path().join("old");
    fs::write(&old, crate::common::noise(5_000_000)).expect("a file");
    let is_new = Switch::default();
    let (was, signature) =
        (fs::read(&old).expect("a file"), [&old, &ground.source()].map(|it| signing.sign(it)));
    let (switch, content) = (is_new.clone(), ground.content.clone());
    let site = Site::answering(move |request| {
        let (content, etag) = if switch.is_turned() { (&content, "\"v2\"") } else { (&was, "\"v1\"") };
        match request.path.as_str() {
            PATH => honest(request, content, etag).at(4_000_000),
            "/f.bin.asc" => Reply::new(200, &signature[usize::from(switch.is_turned())]),
            _ => Reply::new(404, b"no such file"),
        }
    });
    let get = || ground.get_named(&[site.url()], &["--json", &signing.option(&[])]);
    killed_when(get(), || site.body_bytes() > 3_000_000);
    is_new.set(true);
    run(get()).expect(0);
    ground.assert_arrived();
}

/// A server that answers "not now" may have a signature, so it is asked again, as for the file itself.
#[test]
fn a_signature_that_cannot_come_now_is_asked_for_again() {
    let Some(signing) = Signing::new() else { return };
    let stranger = Signing::new().expect("it is there");
    let ground = Ground::new(300_000);
    let (good, foreign) = (signing.sign(&ground.source()), stranger.sign(&ground.source()));
    let busy = |times: usize| {
        let (content, good, asked) = (ground.content.clone(), good.clone(), AtomicUsize::new(0));
        Site::answering(move |request| match request.path.as_str() {
            PATH => honest(request, &content, "\"v1\""),
            "/f.bin.asc" if asked.fetch_add(1, Ordering::Relaxed) < times => {
                Reply::new(429, b"later").with("retry-after", "1")
            }
            "/f.bin.asc" => Reply::new(200, &good),
            _ => Reply::new(404, b"no such file"),
        })
    };
    let liar = site(&wrong(&ground.content), Some(&foreign));
    for beside in [None, Some(&liar)] {
        let honest = busy(2);
        let urls: Vec<String> = beside.into_iter().chain([&honest]).map(Site::url).collect();
        run(ground.get_named(&urls, &["--json", &signing.option(&[])])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
    // If that goes on, the usual time-out applies, and the error names the server that could not be asked.
    let (never, option) = (busy(usize::MAX), signing.option(&[]));
    let done = run(ground.get_named(&[never.url()], &["--json", "--timeout", "3", &option])).expect(4);
    assert!(done.err.contains("could not be asked") && done.err.contains(&never.name()), "{}", done.err);
    assert_eq!(asked_bytes(&[&never]), 0);
}

/// The same signature means the same file, whether or not the server tells versions apart.
#[test]
fn a_part_is_known_again_by_the_signature() {
    let Some(signing) = Signing::new() else { return };
    let ground = Ground::new(4_000_000);
    let signature = signing.sign(&ground.source());
    for gives_version in [false, true] {
        let (content, signature, count) = (ground.content.clone(), signature.clone(), AtomicUsize::new(0));
        let site = Site::answering(move |request| match request.path.as_str() {
            PATH if gives_version => {
                let etag = format!("\"{}\"", count.fetch_add(1, Ordering::Relaxed));
                honest(request, &content, &etag).at(2_000_000)
            }
            PATH => honest(request, &content, "").without("etag").at(2_000_000),
            "/f.bin.asc" => Reply::new(200, &signature),
            _ => Reply::new(404, b"no such file"),
        });
        let get = || ground.get_named(&[site.url()], &["--json", &signing.option(&[])]);
        killed_when(get(), || site.body_bytes() > 1_500_000);
        ground.assert_part();
        run(get()).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
}
