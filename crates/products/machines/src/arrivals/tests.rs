//! Real QEMUs, without a guest: what an agent makes of them is under test.

use std::path::Path;

use anabranch_net::testing::skip;

use super::*;
use crate::config::{Accelerator, Disk, Format};

const ID: [u8; 16] = [1; 16];

/// A host, and what is on it.
struct Host {
    dir: tempfile::TempDir,
    store: Store,
    clock: Clock,
    /// QEMUs that the test has started.
    children: Vec<Child>,
}

impl Host {
    /// `None` if no QEMU is installed.
    fn new() -> Option<Self> {
        if launch::installed().is_err() {
            skip("needs QEMU");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s")).unwrap();
        fs::write(dir.path().join("disk"), vec![0; 1 << 20]).unwrap();
        Some(Self { dir, store, clock: Clock::start(), children: Vec::new() })
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn config(&self, has_disk: bool) -> Config {
        let text = "name = \"web\"\nmemory_mb = 16\nkernel = \"/x\"";
        let mut config = Config::parse(text).unwrap();
        config.accelerator = Accelerator::Tcg;
        config.kernel = None;
        if has_disk {
            let path = self.root().canonicalize().unwrap().join("disk");
            config.disks = vec![Disk { path, format: Format::Raw, shared: true }];
        }
        config
    }

    fn know(&self, config: Config) {
        let places = self.store.places(&config.name).unwrap();
        let (qmp, look) = (places.qmp(), Some(places.look()));
        let (name, origin) = (config.name.clone(), Origin::Arrived);
        let machine = Machine { name, config: Some(config), qmp, look, beat: None, pid: None, origin };
        self.store.put(&machine).unwrap();
    }

    /// Starts a QEMU.
    fn start(&mut self, config: &Config, waits: bool) -> Qmp {
        let places = self.store.places(&config.name).unwrap();
        let started = launch::start(config, &places, waits, self.clock).unwrap();
        self.children.push(started.child);
        started.qmp
    }

    fn write(&self, state: Arrival) {
        let (id, client, name) = (MoveId::new(ID), "src".to_owned(), "web".to_owned());
        self.store.set_arrival(&Incoming { id, client, name, state, disks: vec![], shadow: None }).unwrap();
    }

    fn state(&self) -> Option<Arrival> {
        self.store.arrival(&MoveId::new(ID)).unwrap().map(|arrival| arrival.state)
    }

    /// Starts an agent.
    fn recover(&self) -> (Arrivals, Vec<String>) {
        let allowed = Allowed { memory_bytes: Some(64 << 20), disks: vec![self.root().into()], nets: vec![] };
        Arrivals::recover(self.store.clone(), allowed, self.clock).unwrap()
    }

    /// Whether anything of the machine is left.
    fn is_empty(&mut self) -> bool {
        let has_ended = self.children.iter_mut().all(|child| child.try_wait().unwrap().is_some());
        has_ended && self.state().is_none() && self.store.find("web").unwrap().is_none()
    }

    fn prepare(&self, config: Config) -> Prepare {
        let key = "ab".repeat(32);
        Prepare { id: MoveId::new(ID), config, key, post_copy: false, ipv6: false, disk_bytes: vec![] }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the answer of an agent.
fn told(arrivals: &Arrivals, asked: Asked) -> Arrival {
    let decided = arrivals.decide("src", &MoveId::new(ID), asked, arrivals.clock.now()).unwrap();
    let Told::Decided { state, .. } = decided.told else { panic!("{:?}", decided.told) };
    state
}

#[test]
fn a_machine_that_may_run_is_run_by_whoever_comes_next() {
    let Some(mut host) = Host::new() else { return };
    let config = host.config(true);
    host.know(config.clone());
    let mut qmp = host.start(&config, false);
    let mut stop = |store: &Host| {
        qmp.execute("stop", json!({})).unwrap();
        while qmp.event(store.clock.now()).unwrap().is_some() {}
        store.write(Arrival::Starting);
        qmp.status().unwrap()
    };
    assert_eq!(stop(&host), "paused");
    drop(qmp);
    // The agent was killed after its record.
    let (arrivals, done) = host.recover();
    assert_eq!(done, ["web from src runs"]);
    assert_eq!((host.state(), told(&arrivals, Asked::Abort)), (Some(Arrival::Running), Arrival::Running));
    // A request came to nothing, and its connection is lost.
    let mut look = Qmp::connect(&host.store.places("web").unwrap().look(), host.clock).unwrap();
    look.execute("stop", json!({})).unwrap();
    host.write(Arrival::Starting);
    assert_eq!(told(&arrivals, Asked::Resume), Arrival::Running);
    assert_eq!((host.state(), look.status().unwrap()), (Some(Arrival::Running), "running".to_owned()));
}

#[test]
fn a_machine_that_cannot_run_is_given_back() {
    let Some(mut host) = Host::new() else { return };
    let config = host.config(true);
    // Another QEMU holds the lock of the disk, so `cont` fails.
    let holder = Config { name: "other".to_owned(), ..config.clone() };
    drop(host.start(&holder, false));
    let holder = host.children.pop();
    host.know(config.clone());
    drop(host.start(&config, true));
    host.write(Arrival::Starting);
    let (arrivals, done) = host.recover();
    assert!(done[0].contains("runs on at its source") && done[0].contains("lock"), "{done:?}");
    host.children.iter_mut().for_each(|child| drop(child.wait()));
    assert!(host.is_empty());
    assert_eq!(told(&arrivals, Asked::Resume), Arrival::Refused);
    host.children.extend(holder);
}

#[test]
fn a_machine_that_is_gone_stops_no_agent() {
    let Some(mut host) = Host::new() else { return };
    // With a disk it may have left its traces, and does not go back to an older state.
    for (has_disk, said, word) in
        [(true, "is lost", Arrival::Running), (false, "runs on at its source", Arrival::Refused)]
    {
        host.know(host.config(has_disk));
        host.write(Arrival::Starting);
        fs::write(host.root().join("s/arrivals").join(format!("{}.json", MoveId::new([2; 16]))), "{")
            .unwrap();
        let (arrivals, done) = host.recover();
        assert!(done.iter().any(|text| text.contains(said)), "{done:?}");
        assert!(done.iter().any(|text| text.contains("is not known any more")), "{done:?}");
        assert_eq!(told(&arrivals, Asked::Resume), word);
    }
    assert!(host.is_empty());
}

#[test]
fn a_machine_that_had_not_arrived_leaves_nothing() {
    let Some(mut host) = Host::new() else { return };
    let config = host.config(true);
    for state in [Arrival::Waiting, Arrival::Refused] {
        host.know(config.clone());
        drop(host.start(&config, true));
        host.write(state);
        let (_, done) = host.recover();
        assert_eq!(done, ["web from src had not arrived, and is given up"]);
        host.children.iter_mut().for_each(|child| drop(child.wait()));
        assert!(host.is_empty());
    }
}

#[test]
fn a_dead_qemu_is_not_whole_and_what_is_not_known_is_not_written() {
    let Some(mut host) = Host::new() else { return };
    let (arrivals, _) = host.recover();
    assert_eq!(told(&arrivals, Asked::Abort), Arrival::Refused);
    assert_eq!(host.state(), None, "a number that nobody has prepared");
    let prepare = host.prepare(host.config(true));
    let held = host.store.lock("web").unwrap();
    let busy = arrivals.prepare("src", &prepare).unwrap_err().to_string();
    assert!(busy.contains("in use by another command"), "{busy}");
    drop(held);
    if let Err(e) = arrivals.prepare("src", &prepare) {
        assert!(host.is_empty());
        return skip(format!("QEMU cannot listen for a move here: {e}"));
    }
    assert_eq!(host.state(), Some(Arrival::Waiting));
    let other = arrivals.decide("other", &MoveId::new(ID), Asked::Abort, host.clock.now());
    assert!(other.is_err(), "the move of another client");
    assert_eq!(arrivals.memory_given(), 16 << 20);
    let pid = host.store.find("web").unwrap().unwrap().pid.unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    let before = host.clock.now();
    assert_eq!(told(&arrivals, Asked::Resume), Arrival::Waiting, "it is not whole");
    assert_eq!(told(&arrivals, Asked::Abort), Arrival::Refused);
    assert!(host.clock.now().since(before) < Span::from_secs(5));
    assert!(host.is_empty() && !host.root().join("s/machines/web/key").exists());
    assert_eq!(arrivals.memory_given(), 0);
}

#[test]
fn memory_is_given_for_as_long_as_a_machine_runs() {
    let Some(mut host) = Host::new() else { return };
    let config = host.config(false);
    host.know(config.clone());
    drop(host.start(&config, false));
    host.write(Arrival::Running);
    let (arrivals, done) = host.recover();
    assert_eq!((done.len(), arrivals.memory_given()), (0, 16 << 20));
    let left = arrivals.memory_left(&arrivals.lock());
    assert!(left <= 48 << 20, "{left}");
    launch::end(Qmp::connect(&host.store.places("web").unwrap().qmp(), host.clock).unwrap(), host.clock)
        .unwrap();
    assert_eq!(arrivals.memory_given(), 0);
}

#[test]
fn a_guest_does_not_fill_the_disk() {
    let Some(host) = Host::new() else { return };
    let (arrivals, _) = host.recover();
    host.know(host.config(false));
    let console = host.store.places("web").unwrap().console();
    fs::write(&console, vec![b'x'; 64 << 10]).unwrap();
    arrivals.shorten_logs(1 << 20);
    assert_eq!(fs::metadata(&console).unwrap().len(), 64 << 10);
    arrivals.shorten_logs(32 << 10);
    assert_eq!(fs::metadata(&console).unwrap().len(), 0);
}
