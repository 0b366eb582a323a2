//! `get --keyring`: a file that is signed by a key of the user's arrives, whoever has it; no other does.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::anabranch;
use common::fetch::{Ground, names, run};
use common::site::{PATH, Reply, Site, honest};

/// A key, and what signs with it.
struct Signing {
    home: tempfile::TempDir,
}

impl Signing {
    fn new() -> Option<Self> {
        let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !is_there("gpg") || !(is_there("gpgv") || is_there("sqv")) {
            net::testing::skip("gpg, and gpgv or sqv, are not installed");
            return None;
        }
        let new = Self { home: tempfile::tempdir().expect("a directory") };
        new.gpg(&["--quick-gen-key", "--passphrase", "", "T <t@example.org>", "ed25519", "sign", "never"]);
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
        let output = command.args(args).output().expect("gpg");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// An armored signature of a file.
    fn sign(&self, file: &Path) -> Vec<u8> {
        self.gpg(&["--armor", "--detach-sign", "--output", "-", file.to_str().expect("UTF-8")])
    }

    /// The option that names its keyring, which `gpg` writes with these options.
    fn option(&self, how: &[&str]) -> String {
        let path: PathBuf = self.home.path().join("keyring");
        fs::write(&path, self.gpg(&[how, &["--export"]].concat())).expect("a file");
        format!("--keyring={}", path.display())
    }

    /// Revokes the key.
    fn revoke(&self) {
        let certificates = fs::read_dir(self.home.path().join("openpgp-revocs.d")).expect("gpg makes one");
        let certificate = certificates.last().expect("one").expect("one").path();
        // A colon keeps it from being used by mistake.
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

/// A server of the content, with what lies beside it as `NAME.asc`.
fn site(content: &[u8], beside: Option<&[u8]>) -> Site {
    let (content, beside) = (content.to_vec(), beside.map(<[u8]>::to_vec));
    Site::answering(move |request| match (request.path.as_str(), &beside) {
        (PATH, _) => honest(request, &content, "\"v1\""),
        ("/f.bin.asc", Some(signature)) => Reply::new(200, signature),
        _ => Reply::new(404, b"no such file"),
    })
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

/// The user demands it: it is waited for longer than what merely may lie beside a file.
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
