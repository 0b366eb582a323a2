use anabranch_net::testing::write_secret;

use super::*;
use crate::event::Door;
use crate::quota::UserLimits;

fn error<S: Settings + std::fmt::Debug>(text: &str) -> String {
    parse::<S>(text).unwrap_err().to_string()
}

#[test]
fn every_default_is_one_and_every_setting_can_be_set_and_shown() {
    fn all<S: Settings + std::fmt::Debug>() {
        let defaults = S::defaults();
        for key in S::KEYS {
            assert_eq!(defaults.texts(key.name).map(|t| t.concat()).as_deref(), key.default, "{}", key.name);
            assert!(!key.docs().is_empty() && !key.docs().contains("  "), "{}", key.name);
            assert!(key.docs().ends_with(|c: char| c != '.'), "{}: no full stop, as in help", key.name);
        }
        let again: S = parse(&defaults.to_toml()).unwrap();
        assert_eq!(again, defaults);
        let names: std::collections::BTreeSet<_> = S::KEYS.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), S::KEYS.len());
    }
    all::<Server>();
    all::<Client>();
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_the_nearest_key() {
    assert_eq!(
        error::<Server>("\nlitsen = \"[::]:1\"\n"),
        "line 2: unknown key `litsen`: did you mean `listen`?"
    );
    assert!(
        error::<Server>("zzzzzz = 1\n").starts_with("line 1: unknown key `zzzzzz`; there are listen, allow")
    );
    assert_eq!(error::<Server>("plain = \"yes\"\n"), "line 1: plain: expected true or false");
    assert_eq!(
        error::<Server>("max-connections = \"5\"\n"),
        "line 1: max-connections: expected a number, without quotes"
    );
    assert_eq!(
        error::<Server>("max-connections = 0\n"),
        "line 1: max-connections: expected a number from 1 on"
    );
    assert!(
        error::<Server>("allow = [\"10.0.0.0/8\", 1]\n")
            .contains("line 1: allow: expected a list of NET[:PORT]")
    );
    assert!(error::<Server>("allow = \"10.0.0.1/8\"\n").contains("did you mean 10.0.0.0/8?"));
    assert!(
        error::<Client>("# one\n[socks]\nx = 1\n").starts_with("line 2: socks: expected ADDR:PORT in quotes")
    );
    assert!(error::<Client>("server = \"a\"\nserver = \"b\"\n").contains("line 2: "));
    assert!(error::<Client>("idle-timeout = 30\n").contains("expected TIME in quotes"));
    assert!(error::<Client>("idle-timeout = \"0 s\"\n").contains("out of range"));
    assert!(error::<Client>("max-rate = \"1k\"\n").contains("1500 bytes a second"));
}

#[test]
fn flags_are_over_the_file_and_defaults_under_both() {
    let file: Client =
        parse("server = \"a.example\"\nplain = true\nsocks = \"127.0.0.1:1\"\nmax-rate = \"8Mbit\"\n")
            .unwrap();
    let mut flags = Client::default();
    flags.set("socks", &["127.0.0.1:2".to_owned(), "127.0.0.1:3".to_owned()]).unwrap();
    flags.set("strict-socks", &[]).unwrap();
    assert!(flags.set("socks", &["nowhere".to_owned()]).unwrap_err().contains("ADDR:PORT"));
    let all = flags.over(file);
    let options = all.options().unwrap();
    let doors = ["127.0.0.1:2", "127.0.0.1:3"].map(|at| (Door::Socks, at.parse().unwrap()));
    assert_eq!(options.doors, doors);
    assert!(options.is_strict);
    assert_eq!(options.timeouts, crate::flows::Timeouts::default(), "one default, written twice");
    let rate = Some(anabranch_algo::Rate::from_bytes(1_000_000));
    assert_eq!(options.user_limits, UserLimits { rate, ..UserLimits::default() });
    let again: Client = parse(&all.to_toml()).unwrap();
    assert_eq!(again, all);
}

#[test]
fn secrets_are_not_shown_and_have_files() {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users");
    write_secret(&users, "# who\nann:secret\n\nbob:hidden:too\n").unwrap();
    let text = format!(
        "server = \"a\"\nplain = true\nuser = \"eve:sesame\"\nuser-file = {:?}\n",
        users.display().to_string()
    );
    let client: Client = parse(&text).unwrap();
    let options = client.options().unwrap();
    assert!(options.users.admits(b"bob", b"hidden:too") && options.users.admits(b"eve", b"sesame"));
    assert!(!client.to_toml().contains("sesame") && !format!("{client:?}").contains("sesame"));
    write_secret(&users, "ann\n").unwrap();
    let error = client.options().unwrap_err().to_string();
    assert!(error.ends_with("users:1: expected NAME:PASSWORD"), "{error}");
    std::fs::write(&users, "").unwrap();
    let nobody = Client { user: None, ..client };
    assert!(nobody.options().unwrap_err().to_string().contains("has no users"), "else it is open to all");
}

#[test]
fn a_secret_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (users, pair) = (dir.path().join("users"), dir.path().join("laptop.pair"));
    let server = crate::keys::KeyPair::generate().unwrap().public();
    write_secret(&users, "ann:secret\n").unwrap();
    write_secret(&pair, crate::keys::Pairing::new(server).unwrap().to_line()).unwrap();
    let text =
        format!("server = \"a\"\npair-file = {:?}\nuser-file = {:?}\n", pair.display().to_string(), users);
    let client: Client = parse(&text).unwrap();
    client.options().unwrap();
    for file in [&users, &pair] {
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = client.options().unwrap_err().to_string();
            let mend = format!("(mode {mode:o}): chmod 600 {}", file.display());
            assert!(error.contains(&mend), "{error}");
        }
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o400)).unwrap();
        client.options().unwrap();
    }
}

#[test]
fn what_makes_no_sense_together_is_an_error() {
    let client = |text: &str| parse::<Client>(text).unwrap().options().unwrap_err().to_string();
    assert!(client("plain = true").contains("which server?"));
    assert!(client("server = \"a\"").contains("whose key?"));
    assert!(client("server = \"a\"\nplain = true\npair = \"x\"").contains("exclude each other"));
    assert!(client("server = \"a\"\npair = \"x\"").contains("no line of"));
    let server = |text: &str| parse::<Server>(text).unwrap().check().unwrap_err().to_string();
    assert!(server("plain = true").contains("`from`"));
    assert!(server("from = \"10.0.0.0/8\"").contains("`plain` only"));
    assert!(server("").contains("`state-dir`"));
}

#[test]
fn a_reload_tells_what_holds_at_once_and_what_does_not() {
    let before: Server = parse("deny = \":25\"\nmax-connections = 5\n").unwrap();
    let after: Server = parse("listen = \"[::]:1\"\ndeny = \":25\"\nallow = \"10.0.0.0/8\"\n").unwrap();
    let changes = changes(&before, &after);
    assert_eq!(changes.live, ["allow", "max-connections"]);
    assert_eq!(changes.restart, ["listen"]);
}

/// One text for every command that has the option.
#[test]
fn links_are_explained_as_by_every_command() {
    let key = Client::KEYS.iter().find(|key| key.name == "via").unwrap();
    let docs = key.docs().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(docs.starts_with(anabranch_net::via::HELP), "{docs}");
    assert_eq!(key.value, anabranch_net::via::VALUE);
    let mut client = Client::default();
    for (wrong, says) in [
        ("wlan0:limit=5M", "`limit` of wlan0: the proxy cannot do that, but backup, cost, cap"),
        ("192.0.2.7", "192.0.2.7 is an address"),
    ] {
        assert!(client.set("via", &[wrong.to_owned()]).unwrap_err().contains(says), "{wrong}");
    }
}
