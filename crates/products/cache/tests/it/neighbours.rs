//! Caches on one LAN: hosts are network namespaces on a bridge.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_cache::digest::{Digest, HashKind};
use anabranch_cache::gateway::Event;
use anabranch_cache::store::{Key, Meta, Store, Writer};
use anabranch_net::testing::refused;
use anabranch_net::{Clock, Namespace};
use tempfile::TempDir;

use crate::bed::{Answer, Cache, Origin, Page, bytes, sha256};
use crate::clients::{has, run};

/// The settings of a cache that shares.
const SHARES: &str = "[neighbours]\ninterfaces = [\"lan0\"]\n";

/// Hosts `10.77.0.1` and so on, each with an interface `lan0` on the bridge of `hub`.
struct Lan {
    hub: Namespace,
    hosts: Vec<Namespace>,
}

impl Lan {
    /// Makes a LAN with this many hosts; `None` where that is not possible.
    fn new(hosts: usize) -> Option<Self> {
        if !has("ip", &["-V"]) {
            return None;
        }
        let hub = Namespace::new().map_err(refused).ok()?;
        let lan = Self { hub, hosts: (0..hosts).map(|_| Namespace::new().unwrap()).collect() };
        ip(&lan.hub, "link add lan type bridge");
        ip(&lan.hub, "link set lan up");
        for (number, host) in (1..).zip(&lan.hosts) {
            let place = format!("/proc/{}/fd/{}", std::process::id(), host.as_fd().as_raw_fd());
            ip(&lan.hub, &format!("link add port{number} type veth peer name lan0 netns {place}"));
            ip(&lan.hub, &format!("link set port{number} master lan up"));
            ip(host, &format!("address add 10.77.0.{number}/24 dev lan0"));
            ip(host, "link set lan0 up");
        }
        Some(lan)
    }

    /// Starts a web server on a host.
    fn origin(&self, number: usize) -> Origin {
        self.hosts[number - 1].run(|| Origin::start_at(&format!("10.77.0.{number}"))).unwrap()
    }

    /// Starts a cache of OCI's objects on a host.
    fn cache(&self, number: usize, origin: &Origin, settings: &str) -> Cache {
        self.cache_in(TempDir::new().unwrap(), number, origin, settings)
    }

    fn cache_in(&self, dir: TempDir, number: usize, origin: &Origin, settings: &str) -> Cache {
        let start = || Cache::with_settings(dir, "/", "oci", &[origin.url()], [settings, ""]);
        self.hosts[number - 1].run(start).unwrap()
    }

    /// Asks the cache of a host, on that host.
    fn get(&self, number: usize, cache: &Cache, path: &str) -> Answer {
        self.hosts[number - 1].run(|| cache.get(path)).unwrap()
    }

    fn number(&self, host: usize, cache: &Cache, name: &str) -> u64 {
        self.hosts[host - 1].run(|| cache.number(name)).unwrap()
    }

    /// Waits until a cache knows this many others.
    fn wait_for_neighbours(&self, host: usize, cache: &Cache, wanted: u64) {
        self.wait_until(|| self.number(host, cache, "neighbours") >= wanted, "neighbours");
    }

    fn wait_until(&self, is: impl Fn() -> bool, what: &str) {
        for _ in 0..2_000 {
            if is() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{what}");
    }

    /// Returns the UDP datagrams that a host has sent.
    fn datagrams(&self, number: usize) -> u64 {
        let text = self.hosts[number - 1].run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
        let text = text.unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("Udp:"))
            .map(|row| row.split(' ').collect())
            .collect();
        let column = rows[0].iter().position(|name| *name == "OutDatagrams").unwrap();
        rows[1][column].parse().unwrap()
    }
}

fn ip(space: &Namespace, words: &str) {
    space.run(|| run(Command::new("ip").args(words.split(' ')))).unwrap();
}

fn blob(body: &[u8]) -> String {
    format!("/v2/a/blobs/sha256:{}", sha256(body))
}

#[test]
fn the_second_cache_of_a_lan_gets_an_object_from_the_first() {
    let Some(lan) = Lan::new(4) else { return };
    let (origin, body) = (lan.origin(4), bytes(5_000_000, 1));
    let path = blob(&body);
    origin.put(&path, Page::new(body.clone()));
    let secret = TempDir::new().unwrap();
    let key = secret.path().join("key");
    anabranch_net::testing::write_secret(&key, "sixteen bytes or more").unwrap();
    let keyed = format!("{SHARES}key_file = \"{}\"\n", key.display());
    for settings in [SHARES, &keyed] {
        let first = lan.cache(1, &origin, settings);
        assert!(lan.get(1, &first, &path).body == body);
        lan.wait_until(|| lan.number(1, &first, "objects") == 1, "it is stored");
        let before = origin.sent_bytes();
        let second = lan.cache(2, &origin, settings);
        lan.wait_for_neighbours(2, &second, 1);
        let answer = lan.get(2, &second, &path);
        assert!(answer.status == 200 && answer.body == body, "{}", answer.head);
        assert_eq!(origin.sent_bytes(), before, "the origin sent nothing");
        assert_eq!(lan.number(2, &second, "neighbour_bytes"), 5_000_000);
        assert_eq!(lan.number(2, &second, "from_neighbours"), 1);
        assert_eq!(lan.number(1, &first, "shared"), 1);
        lan.wait_until(|| lan.number(2, &second, "objects") == 1, "it is stored");
        // A third one gets it from both; what none of them has comes from the origin at once.
        let third = lan.cache(3, &origin, settings);
        lan.wait_for_neighbours(3, &third, 2);
        assert!(lan.get(3, &third, &path).body == body);
        assert_eq!(origin.sent_bytes(), before);
        let other = bytes(300_000, 2);
        origin.put(&blob(&other), Page::new(other.clone()));
        assert!(lan.get(3, &third, &blob(&other)).body == other);
        assert_eq!(origin.sent_bytes(), before + 300_000);
        // What is no object of a hash is not asked for.
        let sent = lan.datagrams(3);
        lan.get(3, &third, "/v2/a/manifests/latest");
        assert_eq!(lan.datagrams(3), sent);
    }
    // Who does not have the secret gets nothing.
    let first = lan.cache(1, &origin, &keyed);
    lan.get(1, &first, &path);
    let stranger = lan.cache(2, &origin, SHARES);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(lan.number(2, &stranger, "neighbours") + lan.number(1, &first, "neighbours"), 0);
}

#[test]
fn a_cache_that_does_not_share_sends_no_packet() {
    let Some(lan) = Lan::new(3) else { return };
    let (origin, body) = (lan.origin(3), bytes(200_000, 3));
    let path = blob(&body);
    origin.put(&path, Page::new(body.clone()));
    let sharing = lan.cache(1, &origin, SHARES);
    let quiet = lan.cache(2, &origin, "");
    assert!(lan.get(2, &quiet, &path).body == body);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(lan.datagrams(2), 0);
    assert!(lan.datagrams(1) > 0, "the other one looks for neighbours");
    drop(sharing);
}

/// Makes a store that has other bytes under the name of an object.
fn lies(of: &[u8], length: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = Store::open(&dir.path().join("store"), 1 << 30).unwrap();
    let mut writer = Writer::begin(&store).unwrap();
    writer.write(&bytes(length, 99)).unwrap();
    let digest = Digest::from_hex(HashKind::Sha256, &sha256(of)).unwrap();
    let meta = Meta { url: "lie".to_owned(), verified: Some(digest.to_string()), ..Meta::default() };
    writer.finish(&Key::of_digest(&digest), &meta).unwrap();
    dir
}

#[test]
fn a_lying_neighbour_costs_time_and_nothing_else() {
    let Some(lan) = Lan::new(3) else { return };
    let (origin, body) = (lan.origin(3), bytes(3_000_000, 4));
    let path = blob(&body);
    origin.put(&path, Page::new(body.clone()));
    for length in [3_000_000, 10] {
        let liar = lan.cache_in(lies(&body, length), 1, &origin, SHARES);
        let cache = lan.cache(2, &origin, SHARES);
        lan.wait_for_neighbours(2, &cache, 1);
        let answer = lan.get(2, &cache, &path);
        assert!(answer.status == 200 && answer.body == body, "{} {}", answer.head, answer.text());
        let events = cache.events.lock().unwrap().clone();
        let named =
            |event: &Event| matches!(event, Event::WrongBytes { source, .. } if source == "10.77.0.1");
        assert!(events.iter().any(named), "{events:?}");
        // It is not asked again.
        let other = bytes(100_000, 5);
        origin.put(&blob(&other), Page::new(other.clone()));
        assert!(lan.get(2, &cache, &blob(&other)).body == other);
        assert_eq!(lan.number(2, &cache, "from_neighbours"), 0);
        drop(liar);
    }
}

/// Takes a neighbour from the LAN while it sends an object, and returns how long the object took in all.
fn death_in_the_middle(settings: &str) -> Option<Span> {
    const LENGTH: usize = 30_000_000;
    let lan = Lan::new(3)?;
    let (origin, body) = (lan.origin(3), bytes(LENGTH, 6));
    let path = blob(&body);
    origin.put(&path, Page::new(body.clone()));
    let first = lan.cache(1, &origin, settings);
    assert!(lan.get(1, &first, &path).body == body);
    lan.wait_until(|| lan.number(1, &first, "objects") == 1, "it is stored");
    let second = lan.cache(2, &origin, settings);
    lan.wait_for_neighbours(2, &second, 1);
    let clock = Clock::start();
    let begun = clock.now();
    let answer = thread::scope(|scope| {
        let asker = scope.spawn(|| lan.get(2, &second, &path));
        lan.wait_until(|| lan.number(2, &second, "neighbour_bytes") > 0, "the neighbour sends");
        ip(&lan.hub, "link set port1 down");
        asker.join().unwrap()
    });
    let took = clock.now().since(begun);
    assert!(answer.status == 200 && answer.body == body, "{} {}", answer.head, answer.body.len());
    let brought = lan.number(2, &second, "neighbour_bytes");
    assert!(brought < LENGTH as u64, "it died in the middle");
    Some(took)
}

#[test]
fn a_neighbour_may_die_in_the_middle() {
    if let Some(took) = death_in_the_middle(SHARES) {
        assert!(took < Span::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_neighbour_may_die_after_its_bytes_were_handed_on() {
    let secret = TempDir::new().unwrap();
    let key = secret.path().join("key");
    anabranch_net::testing::write_secret(&key, "sixteen bytes or more").unwrap();
    let keyed = format!("{SHARES}key_file = \"{}\"\n", key.display());
    if let Some(took) = death_in_the_middle(&keyed) {
        assert!(took < Span::from_secs(10), "{took:?}");
    }
}
