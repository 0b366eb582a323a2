//! Tests of `anabranch kernel load`, `unload` and `status` as an administrator and as another user runs them:
//! a default in another namespace, wrong arguments, missing privileges, and a killed load. They need root,
//! iproute2 and eBPF; without these, they say so and pass. A controller that is already loaded is not
//! touched.
#![cfg(all(target_os = "linux", feature = "kernel"))]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::fetch::skipped;
use crate::common::netns::Net;
use crate::common::{anabranch, wait_until};
use anabranch_net::Clock;
use anabranch_net::testing::{Alone, alone};
use nix::fcntl::{Flock, FlockArg};

/// The controller that these tests load; other tests use others.
const NAME: &str = "wvegas";
const PINS: &str = "/sys/fs/bpf/anabranch";
const STATE_DIR: &str = "/run/anabranch";
const RECORD: &str = "/run/anabranch/congestion.json";
/// The usual id of the unprivileged user `nobody`.
const NOBODY: u32 = 65_534;
/// The number of times that a load and an unload are killed.
const KILLS: u32 = 12;

struct World {
    net: Net,
    /// The name of the namespace `lab` for `ip netns`.
    name: String,
    /// The record of other namespaces' defaults before the test.
    record: Option<String>,
    /// Keeps other tests out, because loaded controllers belong to the machine.
    _alone: Alone,
}

impl World {
    fn new(test: &'static str) -> Option<Self> {
        let alone = alone();
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            skipped(format!("{test}: the kernel has no BTF"));
            return None;
        }
        if listed() || pinned() {
            skipped(format!("{test}: {NAME} is loaded here"));
            return None;
        }
        let net = Net::new(test, &["lab"])?;
        let name = format!("anabranch-{}-{test}-lab", std::process::id());
        Some(Self { net, name, record: record(), _alone: alone })
    }

    /// Returns the default of new sockets in the namespace.
    fn default(&self) -> String {
        let mut cat = Command::new("cat");
        cat.arg("/proc/sys/net/ipv4/tcp_congestion_control");
        text(&self.net.inside("lab", &cat).output().expect("cat").stdout).trim().into()
    }

    fn load(&self) -> Command {
        kernel(&["load", NAME, "--tcp", "--default", "--netns", &self.name])
    }

    /// Checks that nothing of the controller is left.
    fn is_clean(&self, before: &str) {
        assert_eq!(self.default(), before);
        assert_eq!(record(), self.record);
        assert!(!Path::new(RECORD).with_extension("new").exists() || self.record.is_some());
        assert!(!pinned());
        wait_until(5, || !listed());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // This is needed if a test failed.
        let _ = kernel(&["unload", NAME]).output();
    }
}

fn kernel(words: &[&str]) -> Command {
    let mut command = anabranch();
    command.arg("kernel").args(words);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(mut command: Command) -> Output {
    command.output().expect("it runs")
}

fn listed() -> bool {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    names.unwrap_or_default().split_whitespace().any(|name| name == NAME)
}

fn pinned() -> bool {
    Path::new(PINS).join(NAME).exists()
}

fn record() -> Option<String> {
    fs::read_to_string(RECORD).ok()
}

#[test]
fn a_default_in_a_namespace_is_put_back_from_anywhere() {
    let Some(world) = World::new("default") else { return };
    let before = world.default();
    let loaded = run(world.load());
    assert!(loaded.status.success(), "{loaded:?}");
    let says = format!("loaded: {NAME}; {NAME} is the default of new sockets in namespace {}\n", world.name);
    assert_eq!(text(&loaded.stdout), says);
    assert_eq!(world.default(), NAME);
    let unloaded = run(kernel(&["unload", NAME]));
    let says = format!(
        "unloaded: {NAME}\n{before} is the default of new sockets again in namespace {}\n",
        world.name
    );
    assert_eq!(text(&unloaded.stdout), says, "{unloaded:?}");
    world.is_clean(&before);
    let again = run(kernel(&["unload", NAME]));
    assert_eq!(again.status.code(), Some(8), "{again:?}");

    // A default that a user has set in a namespace is removed too. The earlier default is unknown then.
    assert!(run(kernel(&["load", NAME, "--tcp"])).status.success());
    let mut choose = Command::new("sysctl");
    choose.args(["-w", &format!("net.ipv4.tcp_congestion_control={NAME}")]);
    assert!(run(world.net.inside("lab", &choose)).status.success());
    let unloaded = run(kernel(&["unload", NAME]));
    let now = world.default();
    assert_ne!(now, NAME);
    let says = format!("{now} is the default of new sockets now in namespace {}: what it was", world.name);
    assert!(text(&unloaded.stdout).contains(&says), "{unloaded:?}");
    wait_until(5, || !listed());

    // A namespace that no longer exists is forgotten.
    let gone = Net::new("gone", &["lab"]).expect("as the first");
    let name = format!("anabranch-{}-gone-lab", std::process::id());
    let loaded = run(kernel(&["load", NAME, "--tcp", "--default", "--netns", &name]));
    assert!(loaded.status.success(), "{loaded:?}");
    assert_ne!(record(), world.record);
    drop(gone);
    let unloaded = run(kernel(&["unload", NAME]));
    let says = format!("unloaded: {NAME}\nforgotten: 1 namespace with another default that is gone\n");
    assert_eq!(text(&unloaded.stdout), says, "{unloaded:?}");
    assert_eq!(record(), world.record);
}

/// `ip netns exec` gives its command a `/sys` of its own, which ends with the command.
#[test]
fn where_sys_is_the_commands_own_nothing_is_loaded_and_the_right_command_is_said() {
    let Some(world) = World::new("private") else { return };
    let before = world.default();
    let inside = |words: &[&str]| run(world.net.inside("lab", &kernel(words)));
    for (words, right) in [
        (&["load", NAME, "--tcp"][..], format!("load {NAME} --tcp`")),
        (
            &["load", NAME, "--tcp", "--default"],
            format!("load {NAME} --default --netns {} --tcp`", world.name),
        ),
    ] {
        let refused = inside(words);
        assert_eq!(refused.status.code(), Some(8), "{refused:?}");
        let said = text(&refused.stderr);
        assert!(said.contains("ip netns exec"), "{said}");
        assert!(said.contains(&format!("sudo anabranch kernel {right}")), "{said}");
        world.is_clean(&before);
    }
    // Controllers of the machine are listed inside the namespace too, but cannot be removed from there.
    assert!(run(kernel(&["load", NAME, "--tcp"])).status.success());
    let status = inside(&["status"]);
    assert!(text(&status.stdout).contains(&format!("{NAME}: loaded, pinned elsewhere\n")), "{status:?}");
    for words in [&["unload", NAME][..], &["unload", "--all"], &["group", "lo=1"], &["load", NAME, "--tcp"]] {
        let refused = inside(words);
        assert_eq!(refused.status.code(), Some(8), "{words:?}: {refused:?}");
        assert!(text(&refused.stderr).contains("sudo anabranch kernel "), "{words:?}: {refused:?}");
    }
    assert!(pinned() && listed());
    assert!(run(kernel(&["unload", NAME])).status.success());
    world.is_clean(&before);
}

#[test]
fn what_is_remembered_of_defaults_is_locked_and_never_thrown_away() {
    let Some(world) = World::new("record") else { return };
    let before = world.default();
    fs::create_dir_all(STATE_DIR).expect("made");
    // Another process holds the lock, so a load waits.
    let held = Flock::lock(File::open(STATE_DIR).expect("there"), FlockArg::LockExclusive).expect("free");
    let mut loading = world.load().stdout(Stdio::null()).spawn().expect("it runs");
    wait_until(5, pinned);
    thread::sleep(Duration::from_millis(300));
    assert!(loading.try_wait().expect("a child").is_none() && world.default() == before, "it waits");
    drop(held);
    assert!(loading.wait().expect("a child").success());
    assert_eq!(world.default(), NAME);

    let remembered = record().expect("the default of before");
    fs::write(RECORD, "{\"12\":").expect("written");
    for words in [&["unload", NAME][..], &["unload", "--all"]] {
        let refused = run(kernel(words));
        assert_eq!(refused.status.code(), Some(8), "{refused:?}");
        assert!(text(&refused.stderr).contains(RECORD), "{refused:?}");
        assert!(pinned() && record().as_deref() == Some("{\"12\":"), "nothing is done");
    }
    fs::write(RECORD, remembered).expect("written");
    assert!(run(kernel(&["unload", NAME])).status.success());
    world.is_clean(&before);
}

#[test]
fn arguments_are_looked_at_before_anything_is_done() {
    let Some(world) = World::new("arguments") else { return };
    for name in ["nosuch", "", "../netns", "/proc/self/ns/net"] {
        let refused = run(kernel(&["load", NAME, "--tcp", "--default", "--netns", name]));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(&format!("no network namespace `{name}`")), "{refused:?}");
        assert!(text(&refused.stderr).contains(&world.name), "it says which there are: {refused:?}");
        assert!(!pinned() && !listed());
    }
    let refused = run(kernel(&["load", NAME, "nosuch"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(!pinned() && !listed());
}

#[test]
fn whoever_is_not_root_is_told_what_each_command_needs() {
    let Some(_world) = World::new("nobody") else { return };
    // The built command may be in a directory that this user cannot enter.
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("anabranch");
    fs::copy(env!("CARGO_BIN_EXE_anabranch-kernel"), &copy).expect("copied");
    for path in [dir.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let nobody = |words: &str| {
        let mut command = Command::new(&copy);
        command.arg("kernel").args(words.split(' ')).current_dir("/").uid(NOBODY).gid(NOBODY);
        command.output().expect("it runs")
    };
    assert!(run(kernel(&["load", NAME, "--tcp"])).status.success());
    let status = nobody("status");
    assert!(status.status.success(), "{status:?}");
    for says in
        ["MPTCP here: ", "default of new sockets here: ", &format!("{NAME}: loaded\n"), "shown to root"]
    {
        assert!(text(&status.stdout).contains(says), "{says}: {status:?}");
    }
    for (words, says) in [
        ("load lia", "cannot load congestion control: that needs root"),
        // A missing privilege is reported before other errors.
        (format!("load {NAME}").as_str(), "cannot load congestion control: that needs root"),
        (format!("load {NAME} --default").as_str(), "cannot load congestion control: that needs root"),
        ("unload --all", "cannot unload congestion control: that needs root"),
        ("unload wvegas", "cannot unload congestion control: that needs root"),
        ("group", "the groups"),
    ] {
        let refused = nobody(words);
        assert_eq!(refused.status.code(), Some(8), "{words}: {refused:?}");
        assert!(text(&refused.stderr).contains(says), "{words}: {refused:?}");
    }
    let watched = nobody("watch --once --interval 50ms");
    assert!(watched.status.success(), "{watched:?}");
    assert!(text(&watched.stderr).contains("without root"), "{watched:?}");
}

#[test]
fn nothing_is_left_of_a_load_or_an_unload_that_was_killed() {
    let Some(world) = World::new("killed") else { return };
    let before = world.default();
    // If no other controllers are loaded, all may be unloaded.
    let others = fs::read_dir(PINS).is_ok_and(|entries| entries.count() > 0);
    let unload = || kernel(&["unload", if others { NAME } else { "--all" }]);
    let clock = Clock::start();
    assert!(run(world.load()).status.success());
    let loading = clock.now();
    assert!(run(unload()).status.success());
    let unloading = clock.now().since(loading);
    let loading = loading.since(anabranch_algo::Time::ZERO);
    world.is_clean(&before);
    let mut seen = [0; 3];
    for kill in 0..2 * KILLS {
        // First loads are killed, then unloads of a complete load, each up to a bit longer than it takes.
        let mut command = world.load();
        let mut whole = loading;
        if kill >= KILLS {
            assert!(run(world.load()).status.success());
            (command, whole) = (unload(), unloading);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        let part = whole.as_micros() * 11 * u64::from(kill % KILLS) / (10 * u64::from(KILLS - 1));
        thread::sleep(Duration::from_micros(part));
        child.kill().expect("it is ended by force");
        child.wait().expect("it has ended");
        seen[usize::from(pinned()) + usize::from(world.default() == NAME)] += 1;
        // If the load had no effect, there is nothing to unload.
        let unloaded = run(unload());
        assert!(matches!(unloaded.status.code(), Some(0 | 8)), "{unloaded:?}");
        world.is_clean(&before);
    }
    if !others {
        assert!(!Path::new(PINS).exists());
    }
    println!("killed: {} with nothing, {} with a part, {} with all", seen[0], seen[1], seen[2]);
}
