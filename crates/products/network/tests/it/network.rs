//! Tests of a publish/subscribe network in one program over loopback: forwarders, services, publishers and a
//! receiver, and the ends of some of them.

#[cfg(target_os = "linux")]
mod tap;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch::network::{Destination, LookedPath, MemberKey, NetworkLook, Place, ScopeKey, look};
use anabranch::{Control, Error, ErrorKind, Event, Get, Rate, Report, Serve, Source, Stop};
use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use anabranch_net::testing::write_secret;
use anabranch_network::{self as network, CachePolicy, ServiceEvent};

const LINES: &[(&str, &str)] = &[
    ("a", "r1"),
    ("r1", "r2"),
    ("r1", "r3"),
    ("r1", "r4"),
    ("r2", "r5"),
    ("r3", "r5"),
    ("r4", "r5"),
    ("r5", "p1"),
    ("r5", "p2"),
    ("r5", "rv"),
    ("r4", "tm"),
    ("r3", "tm"),
];
const FORWARDERS: &[&str] = &["r1", "r2", "r3", "r4", "r5"];

type Run = fn(&Place, &Stop, &mut dyn FnMut(Option<String>) -> Control) -> anabranch::Result<()>;

/// A member that runs on a thread of its own.
struct Running {
    stop: Stop,
    thread: JoinHandle<anabranch::Result<()>>,
}

impl Running {
    fn end(self) {
        self.stop.stop();
        self.thread.join().expect("no panic").expect("no error");
    }
}

/// A domain whose addresses are 127.91.`number`.*, and its running members.
struct Bed {
    dir: tempfile::TempDir,
    key: Arc<ScopeKey>,
    running: BTreeMap<&'static str, Running>,
    notices: (Sender<String>, Receiver<String>),
}

impl Bed {
    fn new(number: u8) -> Self {
        Self::with(number, "")
    }

    /// Makes a bed with additional keys in the domain's file.
    fn with(number: u8, more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let key = Arc::new(ScopeKey::new([number; 32]).expect("a key"));
        let names: Vec<String> = FORWARDERS.iter().map(|name| format!("{name:?}")).collect();
        let mut text = format!(
            "name = \"test\"\n{more}\nforwarders = [{}]\n[rendezvous]\nnode = \"rv\"\n[topology]\n\
             node = \"tm\"\n[scopes]\nfilms = \"{}\"\n",
            names.join(", "),
            key.public()
        );
        for (line, (a, b)) in LINES.iter().enumerate() {
            let [one, other] = [2 * line + 1, 2 * line + 2].map(|host| format!("127.91.{number}.{host}"));
            text += &format!("[[line]]\nbetween = [{a:?}, {b:?}]\naddresses = [{one:?}, {other:?}]\n");
        }
        fs::write(dir.path().join("net.toml"), text).expect("a file");
        let mut new = Self { dir, key, running: BTreeMap::new(), notices: channel() };
        if new.place("a").domain().is_keyed() {
            new.make_keys();
        }
        FORWARDERS.iter().for_each(|name| new.forward(name));
        new.start("rv", |place, stop, listener| {
            network::rendezvous(place, None, stop, &mut |event| listener(notice(event))).map(drop)
        });
        new.start("tm", |place, stop, listener| {
            network::manage_topology(place, stop, &mut |event| listener(notice(event))).map(drop)
        });
        new
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn place(&self, node: &str) -> Place {
        Place::new(&self.path("net.toml"), Some(node)).expect("a node")
    }

    /// Writes the keys of all members, each into a file with the member's name.
    fn make_keys(&self) {
        let place = self.place("a");
        let services = network::new_services_key().expect("random numbers");
        let write = |name: &str, key: MemberKey| {
            write_secret(&self.path(name), key.secret_text(place.domain())).expect("a file");
        };
        for node in place.domain().forwarders() {
            let name = &place.domain().graph.node(node).name;
            write(name, MemberKey::of_forwarder(&services, node));
        }
        for name in ["rv", "tm"] {
            write(name, MemberKey::Services(services.clone()));
        }
    }

    fn forward(&mut self, name: &'static str) {
        self.start(name, |place, stop, listener| {
            network::forward(place, None, stop, &mut |event| listener(notice(event))).map(drop)
        });
    }

    fn forward_with_cache(&mut self, name: &'static str) {
        self.start(name, |place, stop, listener| {
            network::forward(place, Some((CachePolicy::Lru, 64 << 20)), stop, &mut |event| {
                listener(notice(event))
            })
            .map(drop)
        });
    }

    fn start(&mut self, node: &'static str, run: Run) {
        let (mut place, stop) = (self.place(node), Stop::new().expect("a stop"));
        if place.domain().is_keyed() {
            place = place.with_key(&self.path(node)).expect("its key");
        }
        let (its, notices) = (stop.clone(), self.notices.0.clone());
        let (told, listens) = channel();
        let thread = std::thread::spawn(move || {
            run(&place, &its, &mut |notice| {
                // A member's first event is that it listens.
                let _ = told.send(());
                notice.into_iter().for_each(|text| drop(notices.send(text)));
                Control::Continue
            })
        });
        listens.recv_timeout(Duration::from_secs(10)).expect("it listens");
        self.running.insert(node, Running { stop, thread });
    }

    fn end(&mut self, node: &str) {
        self.running.remove(node).expect("it runs").end();
    }

    /// Publishes a file from a host, and waits until it is published.
    fn publish(&self, node: &str, file: &str, content: &[u8]) -> Source {
        let path = self.path(&format!("{node}-{file}"));
        fs::write(&path, content).expect("a file");
        let place = self.place(node);
        let line = LINES.iter().position(|(_, b)| *b == node).expect("a line");
        let toml = fs::read_to_string(self.path("net.toml")).expect("a file");
        let address = toml.lines().filter(|line| line.starts_with("addresses")).nth(line).expect("a line");
        let address = address.split('"').nth(3).expect("two addresses");
        let name = format!("films/{file}").parse().expect("a name");
        let serve = Serve::new().path(path).expect("it is there").cache(None);
        let serve = serve.listen(format!("{address}:0").parse().expect("an address"));
        serve.publish(&place, name, Arc::clone(&self.key)).start().expect("a source")
    }

    fn get(&self, name: &str) -> Get {
        Get::name(&self.place("a"), name).expect("a name").timeout(Duration::from_secs(20))
    }

    /// Fetches by name until enough hosts publish it, because publications take a moment.
    fn fetch(&self, name: &str, hosts: usize, listener: impl FnMut(&Event)) -> Report {
        self.fetch_at(name, hosts, Rate::from_bytes(20_000_000), listener)
    }

    /// Fetches by name at this rate, until enough hosts publish it.
    fn fetch_at(&self, name: &str, hosts: usize, rate: Rate, mut listener: impl FnMut(&Event)) -> Report {
        let target = self.path("got");
        let clock = Clock::start();
        let end = clock.now() + Span::from_secs(20);
        loop {
            // An existing file would be taken as it is.
            let _ = fs::remove_file(&target);
            let download = self.get(name).limit(rate).to_file(&target);
            let result = download.overwrite(true).run(|event| {
                listener(&event);
                Control::Continue
            });
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound && clock.now() < end => {}
                Ok(report) if sources(&report) < hosts && clock.now() < end => {}
                result => return result.expect("it is fetched"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.stop.stop();
        }
    }
}

fn notice<S>(event: ServiceEvent<S>) -> Option<String> {
    match event {
        ServiceEvent::Notice(text) => Some(text),
        _ => None,
    }
}

/// Returns how many sources have sent bytes.
fn sources(report: &Report) -> usize {
    let mut names: Vec<&str> =
        report.last.paths.iter().filter(|path| path.bytes > 0).map(|path| &*path.source).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn a_name_is_fetched_from_two_publishers_over_six_paths() {
    let bed = Bed::new(1);
    let bytes = content(8_000_000);
    let _sources = [bed.publish("p1", "f", &bytes), bed.publish("p2", "f", &bytes)];
    let report = bed.fetch("films/f", 2, |_| {});
    assert!(fs::read(bed.path("got")).expect("a file") == bytes);
    let used = report.last.paths.iter().filter(|path| path.bytes > 0);
    let mut vias: Vec<(&str, &str)> = used.map(|path| (&*path.source, &*path.via)).collect();
    vias.sort_unstable();
    let all = ["r1 r2 r5", "r1 r3 r5", "r1 r4 r5"];
    assert_eq!(vias, [all.map(|via| ("p1", via)), all.map(|via| ("p2", via))].concat());
    assert!(report.complete && report.banned.is_empty());
}

#[test]
fn a_forwarder_ends_and_the_transfer_does_not() {
    let mut bed = Bed::new(2);
    let bytes = content(60_000_000);
    let _sources = [bed.publish("p1", "f", &bytes), bed.publish("p2", "f", &bytes)];
    bed.fetch("films/f", 2, |_| {});
    let mut victim = bed.running.remove("r2");
    let clock = Clock::start();
    let mut ended: Option<Time> = None;
    let mut changed = None;
    let report = bed.fetch("films/f", 2, |event| match event {
        Event::Progress(progress) if progress.done_bytes > 10_000_000 => {
            if let Some(victim) = victim.take() {
                victim.end();
                ended = Some(clock.now());
            }
        }
        Event::Notice(text) if text.contains("the network has changed: 4 paths, 6 before") => {
            changed = ended.map(|ended| clock.now().since(ended));
        }
        _ => {}
    });
    assert!(fs::read(bed.path("got")).expect("a file") == bytes, "whole and right");
    let changed = changed.expect("it was told of the change while it went on");
    assert!(changed < Span::from_secs(2), "new paths after {changed:?}");
    let lost = report.last.paths.iter().filter(|path| path.via.contains("r2"));
    assert_eq!(lost.filter(|path| path.bytes > 0).count(), 2, "they were used before");
    let told: Vec<String> = bed.notices.1.try_iter().collect();
    assert!(told.iter().any(|text| text == "the line r1 – r2 is down"), "{told:?}");
    // The forwarder is started again.
    bed.forward("r2");
    std::thread::sleep(Duration::from_secs(1));
    let report = bed.fetch("films/f", 2, |_| {});
    let back = report.last.paths.iter().filter(|path| path.via.contains("r2") && path.bytes > 0);
    assert_eq!(back.count(), 2);
}

/// Forwarders accept identifiers of at most three epochs. So the transfer has other identifiers at its end
/// than at its beginning. No event reports that, because the paths are the same.
#[test]
fn a_transfer_lasts_longer_than_its_identifiers() {
    // An epoch has at least 8 s, and this takes more than three.
    if anabranch_net::testing::extent(true, false) {
        return;
    }
    let bed = Bed::with(11, "identifiers = \"keyed\"\nepoch_s = 8");
    let bytes = content(26_000_000);
    let _sources = [bed.publish("p1", "f", &bytes), bed.publish("p2", "f", &bytes)];
    bed.fetch_at("films/f", 2, Rate::from_bytes(1_000_000), |event| match event {
        Event::Notice(text) => assert!(!text.contains("the network has changed"), "{text}"),
        Event::Progress(progress) => {
            assert!(progress.paths.iter().all(|path| path.timeouts < 3), "{:?}", progress.paths);
        }
        _ => {}
    });
    assert!(fs::read(bed.path("got")).expect("a file") == bytes);
}

/// In a domain with keyed identifiers, each member needs its own key; in other domains, it must have none.
#[test]
fn members_need_the_keys_that_are_theirs() {
    let bed = Bed::with(12, "identifiers = \"keyed\"");
    let stop = Stop::new().expect("a stop");
    let forward = |place: &Place| network::forward(place, None, &stop, &mut |_| Control::Stop).map(drop);
    let manage = |place: &Place| network::manage_topology(place, &stop, &mut |_| Control::Stop).map(drop);
    let rendezvous =
        |place: &Place| network::rendezvous(place, None, &stop, &mut |_| Control::Stop).map(drop);
    let with = |node: &str, key: &str| bed.place(node).with_key(&bed.path(key)).expect("a key");
    let says = |result: anabranch::Result<()>, what: &str| {
        let error = result.expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    };
    says(forward(&bed.place("r1")), "has keyed identifiers: name the file of r1 with `key`");
    says(manage(&bed.place("tm")), "name the file of its services with `key`");
    says(rendezvous(&bed.place("rv")), "name the file of its services with `key`");
    says(forward(&with("r1", "r2")), "the key is that of r2: give that of r1");
    says(forward(&with("r1", "rv")), "that of the services of test, which no forwarder needs");
    says(manage(&with("tm", "r2")), "the key is that of r2: give that of its services");
    let no_key = |file: &str, what: &str| {
        let error = bed.place("r1").with_key(&bed.path(file)).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    };
    no_key("none", "No such file");
    write_secret(&bed.path("other"), "identifiers = \"keyed\"").expect("a file");
    no_key("other", "it is no key of a domain's services or of a forwarder");
    write_secret(&bed.path("bytes"), [0xff; 9]).expect("a file");
    no_key("bytes", "it is no key of a domain's services or of a forwarder");
    fs::set_permissions(bed.path("r2"), fs::Permissions::from_mode(0o644)).expect("set");
    no_key("r2", "other users can read it (mode 644): chmod 600 ");
    let open = Bed::new(13);
    let place = open.place("r1").with_key(&bed.path("r1")).expect("a key of a domain of this name");
    says(forward(&place), "has open identifiers, for which there are no keys");
}

#[test]
fn a_host_is_told_how_the_network_is() {
    let mut bed = Bed::new(9);
    let _sources = [bed.publish("p1", "f", b"a film"), bed.publish("p2", "f", b"a film")];
    bed.fetch("films/f", 1, |_| {});
    let (place, stop) = (bed.place("a"), Stop::new().expect("a stop"));
    let domain = Arc::clone(place.domain());
    let node = |name: &str| domain.graph.by_name(name).expect("a node");
    let look = |place: &Place, to: Option<Destination>, within| {
        look(place, to.as_ref(), None, Span::from_millis(within), &stop)
    };
    // Forwarders report every 5 s, and publications take a moment.
    let look_until = |to: &Destination, is_it: &dyn Fn(&NetworkLook) -> bool| {
        let clock = Clock::start();
        loop {
            let now = look(&place, Some(to.clone()), 5_000).expect("an answer");
            if is_it(&now) || clock.now() > Time::ZERO + Span::from_secs(15) {
                break now;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let to_p1 = Destination::Host(node("p1"));
    let all = look_until(&to_p1, &|now| now.forwarders == 5);
    assert_eq!((all.forwarders, &all.down[..], all.paths.len()), (5, &[][..], 3), "{all:?}");
    let by_name = Destination::Name("films/f".parse().expect("a name"));
    let named = look_until(&by_name, &|now| now.publishers.len() == 2);
    let mut publishers = named.publishers.clone();
    publishers.sort_unstable();
    assert_eq!((publishers, named.paths.len()), (vec![node("p1"), node("p2")], 6));

    bed.end("r2");
    let left = look_until(&to_p1, &|now| now.down.len() == 2);
    let line = |line: &u32| [LINES[*line as usize].0, LINES[*line as usize].1];
    assert_eq!(left.down.iter().map(line).collect::<Vec<_>>(), [["r1", "r2"], ["r2", "r5"]]);
    let visited = |path: &LookedPath| domain.graph.visits(&path.links);
    assert_eq!(left.paths.len(), 2);
    for path in &left.paths {
        let nodes = visited(path);
        assert_eq!((nodes.first(), nodes.last()), (Some(&node("a")), Some(&node("p1"))));
        assert!(path.to == node("p1") && !nodes.contains(&node("r2")));
    }

    let nothing = Destination::Name("films/nothing".parse().expect("a name"));
    assert!(matches!(&look(&place, Some(nothing), 5_000), Err(e) if e.kind() == ErrorKind::NotFound));
    let elsewhere = Destination::Name("books/x".parse().expect("a name"));
    for (from, to) in [("a", Some(elsewhere)), ("a", Some(Destination::Host(node("a")))), ("r1", None)] {
        assert!(
            matches!(&look(&bed.place(from), to, 5_000), Err(e) if e.kind() == ErrorKind::Usage),
            "{from}"
        );
    }
    bed.end("rv");
    let silent = look(&place, Some(by_name), 1_000).expect_err("nobody answers");
    assert_eq!(silent.to_string(), "the rendezvous of test does not answer a");
    bed.end("tm");
    let silent = look(&place, Some(to_p1), 1_000).expect_err("nobody answers");
    assert_eq!(silent.to_string(), "the topology manager of test does not answer a");
}

#[test]
fn what_has_passed_a_cache_is_not_fetched_from_the_source_again() {
    let mut bed = Bed::new(8);
    bed.end("r1");
    bed.forward_with_cache("r1");
    let bytes = content(8_000_000);
    let source = bed.publish("p1", "f", &bytes);
    bed.fetch("films/f", 1, |_| {});
    let first = source.stats().sent_bytes;
    assert!(first > 8_000_000, "{first}");
    bed.fetch("films/f", 1, |_| {});
    assert!(fs::read(bed.path("got")).expect("a file") == bytes);
    let second = source.stats().sent_bytes - first;
    assert!(second < 400_000, "{second} of {first} bytes came from the source again");
}

#[test]
fn without_its_services_a_transfer_goes_on_and_a_new_one_says_who_is_missing() {
    let mut bed = Bed::new(3);
    let bytes = content(40_000_000);
    let _source = bed.publish("p1", "f", &bytes);
    bed.fetch("films/f", 1, |_| {});
    let mut services = [bed.running.remove("rv"), bed.running.remove("tm")];
    bed.fetch("films/f", 1, |event| {
        if matches!(event, Event::Progress(progress) if progress.done_bytes > 5_000_000) {
            services.iter_mut().filter_map(Option::take).for_each(Running::end);
        }
    });
    assert!(services.iter().all(Option::is_none), "they ended while it ran");
    assert!(fs::read(bed.path("got")).expect("a file") == bytes);
    let mut told = Vec::new();
    let get = bed.get("films/f").timeout(Duration::from_secs(4));
    let error = get.to_file(bed.path("new")).run(|event| {
        if let Event::Notice(text) = event {
            told.push(text);
        }
        Control::Continue
    });
    let Err(error) = error else { panic!("{error:?}") };
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Unreachable);
    assert!(why.contains("the rendezvous of the domain test does not answer"), "{why}");
    assert!(told.iter().any(|text| text.contains("the rendezvous does not answer; it is asked on")));
    assert!(!bed.path("new").exists() && !bed.path("new.part").exists());
}

#[test]
fn what_nobody_publishes_is_not_found() {
    let bed = Bed::new(4);
    let error = bed.get("films/nothing").to_file(bed.path("x")).run(|_| Control::Continue);
    let Err(error) = error else { panic!("{error:?}") };
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::NotFound);
    assert_eq!(why, "nobody in the domain test publishes films/nothing");
    let source = bed.publish("p1", "f", b"short");
    bed.fetch("films/f", 1, |_| {});
    // A source that ends withdraws its publications.
    source.stop();
    source.wait().expect("it ends");
    let error = bed.get("films/f").to_file(bed.path("y")).run(|_| Control::Continue);
    assert!(matches!(&error, Err(e) if e.kind() == ErrorKind::NotFound), "{error:?}");
}

#[test]
fn a_content_is_found_by_its_uri_too() {
    let bed = Bed::new(5);
    let bytes = content(100_000);
    let source = bed.publish("p1", "f", &bytes);
    bed.fetch("films/f", 1, |_| {});
    let uri = source.uris().next().expect("a URI");
    let uri = uri.split("&from").next().expect("a URI");
    bed.get(uri).to_file(bed.path("x")).run(|_| Control::Continue).expect("it is fetched");
    assert!(fs::read(bed.path("x")).expect("a file") == bytes);
}

#[test]
fn the_newest_file_of_a_name_is_fetched() {
    let bed = Bed::new(6);
    let _old = bed.publish("p1", "f", b"the old film");
    bed.fetch("films/f", 1, |_| {});
    std::thread::sleep(Duration::from_millis(50));
    let _new = bed.publish("p2", "f", b"the new film");
    let clock = Clock::start();
    let end = clock.now() + Span::from_secs(10);
    let mut told = Vec::new();
    loop {
        bed.fetch("films/f", 1, |event| {
            if let Event::Notice(text) = event {
                told.push(text.clone());
            }
        });
        if fs::read(bed.path("got")).expect("a file") == b"the new film" {
            break;
        }
        assert!(clock.now() < end, "the new one is not fetched: {told:?}");
    }
    assert!(told.iter().any(|text| text.contains("one host publishes an older content")), "{told:?}");
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let bed = Bed::new(7);
    let place = |node| Place::new(&bed.path("net.toml"), node);
    let usage = |error: Result<(), Error>, why: &str| {
        let Err(error) = error else { panic!("{error:?}") };
        let (kind, text) = (error.kind(), error.message());
        assert_eq!(kind, ErrorKind::Usage);
        assert!(text.contains(why), "{text}");
    };
    usage(place(Some("nowhere")).map(drop), "there is no node \"nowhere\"; there are a, r1");
    // Loopback addresses are not listed, so no node is found by them.
    usage(place(None).map(drop), "Or say which node with `node`");
    usage(Place::new(&bed.path("none.toml"), None).map(drop), "No such file");
    let r1 = bed.place("r1");
    usage(Get::name(&r1, "films/f").map(drop), "r1 forwards");
    usage(Get::name(&bed.place("a"), "films").map(drop), "expected SCOPE/LABEL");
    usage(Get::name(&bed.place("a"), "songs/f").map(drop), "has no scope songs; it has: films");
    let via = bed.get("films/f").via("lo").to_file(bed.path("x")).run(|_| Control::Continue);
    usage(via.map(drop), "do not go with a name in a network");
    fs::write(bed.path("f"), b"x").expect("a file");
    let publish = |node: &str, name: &str, key: Arc<ScopeKey>| {
        let serve = Serve::new().path(bed.path("f")).expect("it is there");
        let serve = serve.listen(([127, 0, 0, 1], 0).into()).cache(None);
        serve.publish(&bed.place(node), name.parse().expect("a name"), key).start().map(drop)
    };
    let other = Arc::new(ScopeKey::new([99; 32]).expect("a key"));
    usage(publish("p1", "films/f", other), "the key is not that of the scope films");
    usage(publish("p1", "songs/f", Arc::clone(&bed.key)), "has no scope songs; it has: films");
    usage(publish("r1", "films/f", Arc::clone(&bed.key)), "hosts publish");
    let stop = Stop::new().expect("a stop");
    let forward = network::forward(&bed.place("p1"), None, &stop, &mut |_| Control::Stop);
    usage(forward.map(drop), "p1 is a host");
    let rendezvous = network::rendezvous(&bed.place("tm"), None, &stop, &mut |_| Control::Stop);
    usage(rendezvous.map(drop), "rendezvous is on rv, not on tm");
}

/// Two of the forwarders are taps, which see the whole field of the IP header. They send packets on without a
/// code point, as a network in between may.
#[cfg(target_os = "linux")]
#[test]
fn a_class_marks_requests_answers_and_what_is_sent_on() {
    use tap::{Seen, Tap};
    let classes =
        "class.bulk.dscp = \"le\"\nclass.urgent = { policy = \"shortest\", paths = 1, dscp = \"ef\" }";
    let mut bed = Bed::with(14, classes);
    let bytes = content(2_000_000);
    let _source = bed.publish("p1", "f", &bytes);
    bed.fetch("films/f", 1, |_| {});
    bed.end("r1");
    bed.end("r5");
    let taps = [Tap::start(&bed.place("r1")), Tap::start(&bed.place("r5"))];
    let fetch = |class: Option<&str>| {
        Tap::settle(&taps);
        let target = bed.path(class.unwrap_or("none"));
        let get = bed.get("films/f").limit(Rate::from_bytes(2_000_000));
        let get = class.into_iter().fold(get, |get, class| get.class(class).expect("a class"));
        let report = get.to_file(&target).run(|_| Control::Continue).expect("it is fetched");
        assert!(fs::read(&target).expect("a file") == bytes);
        let paths = report.last.paths.iter().filter(|path| path.bytes > 0).count();
        (paths, taps.each_ref().map(Tap::seen))
    };
    for (class, dscp, paths) in [(Some("bulk"), 1, 3), (Some("urgent"), 46, 1), (None, 0, 3)] {
        let (used, [at_r1, at_r5]) = fetch(class);
        assert_eq!(used, paths, "{class:?}");
        // These are requests of mmTP, answers of the source, and both as the forwarders in between have sent
        // them on.
        let of = |seen: &[Seen], from: &[&str]| -> Vec<u8> {
            let its = seen.iter().filter(|seen| seen.is_mmtp && from.contains(&&*seen.from));
            its.map(|seen| seen.field).collect()
        };
        let between = ["r2", "r3", "r4"];
        for (what, fields) in [
            ("requests", of(&at_r1, &["a"])),
            ("answers on their way", of(&at_r1, &between)),
            ("requests on their way", of(&at_r5, &between)),
            ("answers", of(&at_r5, &["p1"])),
        ] {
            assert!(!fields.is_empty(), "{class:?}: {what}");
            assert!(fields.iter().all(|field| field >> 2 == dscp), "{class:?}: {what}: {fields:?}");
        }
        // The marks of ECN are unchanged: the source's packets are ECN-capable where that was requested.
        let answers = of(&at_r5, &["p1"]);
        let capable = answers.iter().filter(|field| *field & 3 == 2).count();
        assert!(2 * capable > answers.len(), "{class:?}: {capable} of {}", answers.len());
        let others = at_r1.iter().chain(&at_r5).filter(|seen| !seen.is_mmtp);
        assert!(others.map(|seen| seen.field).all(|field| field == 0), "hellos and messages have none");
    }
    let says = |result: anabranch::Result<Get>, what: &str| match result {
        Err(error) => assert_eq!((error.kind(), error.message()), (ErrorKind::Usage, what)),
        _ => panic!("{what}"),
    };
    let known = "`class`: the domain test has no class fast; it has: bulk, urgent";
    says(bed.get("films/f").class("fast"), known);
    let url = Get::new(["http://a.example/f"]).expect("a URL").class("bulk");
    says(url, "`class` is of a name in a network: what is fetched from elsewhere has none");
    let (to_p1, place) = (bed.place("a").domain().graph.by_name("p1").expect("a node"), bed.place("a"));
    let stop = Stop::new().expect("a stop");
    let look = |class| {
        let to = Destination::Host(to_p1);
        look(&place, Some(&to), class, Span::from_secs(5), &stop).map(|look| look.paths.len())
    };
    assert_eq!((look(None).ok(), look(Some("urgent")).ok()), (Some(3), Some(1)));
    assert!(look(Some("fast")).is_err_and(|e| e.to_string() == known));
}

/// This also holds for a request from a host that is no forwarder.
#[cfg(target_os = "linux")]
#[test]
fn a_source_marks_with_what_its_domain_has_only() {
    use anabranch_mmtp::id::ChunksPerBlock;
    use anabranch_mmtp::wire::{self, Range, RangeKind};
    use anabranch_overlay::frame;
    let bed = Bed::with(15, "class.bulk.dscp = \"le\"");
    let bytes = content(100_000);
    let source = bed.publish("p1", "f", &bytes);
    let place = bed.place("a");
    let (domain, cut) = (place.domain(), ChunksPerBlock::new(16).expect("in range"));
    let p1 = domain.graph.by_name("p1").expect("a node");
    let way = domain
        .plan(place.node(), &[p1], 1, anabranch_topology::plan::Policy::Shortest, |_| true)
        .remove(0)
        .way;
    let stranger = tap::seeing("127.0.0.1:0".parse().expect("an address"));
    stranger.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    for (asked, dscp) in [(1, 1), (46, 0), (63, 0), (0, 0)] {
        let mark = anabranch_overlay::dscp::Dscp::new(asked).expect("one");
        let there = frame::marked(frame::header(&way.there, 26_227), mark);
        let mut request = frame::request_header(&there, &frame::header(&way.back, 40_000)).to_vec();
        let range = Range { kind: RangeKind::Data(cut), first: 0, count: 1 };
        wire::emit_request(&mut request, 5, None, false, &anabranch_mmtp::ContentId::of(&bytes), &[range]);
        stranger.send_to(&request, source.addresses()[0]).expect("sent");
        let (answer, _, field) = tap::receive(&stranger).expect("an answer");
        assert_eq!(field >> 2, dscp, "{asked}");
        assert_eq!(frame::mark(&answer), mark, "the way back is as it came");
    }
}
