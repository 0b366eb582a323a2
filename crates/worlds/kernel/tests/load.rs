//! Controllers as anyone on the machine meets them: chosen by name, there after whoever loaded them is gone,
//! and nothing left over when they are unloaded. Needs root; says so and passes without.
//!
//! Controllers that are loaded already are used and left; others are loaded and unloaded. Settings are
//! changed in network namespaces of the tests' own only.
#![cfg(feature = "ebpf")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_kernel::Error;
use anabranch_kernel::controllers::{
    Controller, Options, PIN_DIR, available, linux_name, load, loaded, unload, unload_all,
};
use anabranch_kernel::default_cc;
use anabranch_net::{Namespace, testing};
use socket2::{Domain, Type};

const OPTIONS: Options = Options { tcp: true, verbose: false };
/// Whom nobody is (the number of `nobody` on every Linux that has one).
const NOBODY: u32 = 65_534;
/// How often a process is killed while it loads and unloads, and when at the latest, in ms.
const KILLS: u64 = 12;
const KILLED_BY_MS: u64 = 700;
/// What it loads.
const KILLED: [&str; 2] = ["coupled", "ewtcp"];

/// One test at a time: what is loaded is the machine's.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for its turn; `None`, with a line that says why, where this cannot be tested.
fn turn() -> Option<MutexGuard<'static, ()>> {
    let why = if !nix::unistd::geteuid().is_root() {
        "not root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "the kernel has no BTF"
    } else if let Err(e) = Namespace::new() {
        testing::refused(format!("controllers in the kernel ({e})"));
        return None;
    } else {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    };
    testing::skip(format!("controllers in the kernel ({why})"));
    None
}

/// A controller, loaded; unloaded again if it was not before.
struct Loaded(&'static Controller, bool);

impl Loaded {
    fn new(name: &str) -> Self {
        let controller = Controller::by_name(name).unwrap();
        match load(&[controller], OPTIONS) {
            Ok(()) => Self(controller, true),
            Err(Error::Loaded(_)) => Self(controller, false),
            Err(e) => panic!("{name}: {e}"),
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.1 {
            let _ = unload(&[self.0]);
        }
    }
}

/// Runs one of the tests below that are ignored, in a process of its own.
fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// A connection over the loopback device that uses the controller from its beginning, and carries data.
fn carries(linux: &str) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tcp_congestion(linux.as_bytes()).unwrap();
    socket.connect(&listener.local_addr().unwrap().into()).unwrap();
    let name = socket.tcp_congestion().unwrap();
    assert_eq!(String::from_utf8_lossy(&name).trim_end_matches('\0'), linux);
    let (mut from, mut to) = (TcpStream::from(socket), listener.accept().unwrap().0);
    thread::scope(|scope| {
        scope.spawn(move || from.write_all(&vec![7; 3_000_000]).unwrap());
        assert_eq!(std::io::copy(&mut to, &mut std::io::sink()).unwrap(), 3_000_000);
    });
}

#[test]
fn anyone_may_choose_it() {
    let Some(_turn) = turn() else { return };
    let nmcc = Loaded::new("nmcc");
    carries(nmcc.0.linux);
    // The test binary may lie where nobody may go.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    for path in [dir.path(), &copy] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let nobody = || {
        let mut command = Command::new(&copy);
        command.args(["--exact", "child_that_chooses", "--ignored", "--nocapture"]);
        command.current_dir("/").uid(NOBODY).gid(NOBODY);
        command
    };
    succeeds(&mut nobody());
    let space = Namespace::new().unwrap();
    space.run(|| succeeds(&mut nobody())).unwrap();
}

#[test]
#[ignore = "the unprivileged half of anyone_may_choose_it"]
fn child_that_chooses() {
    assert_eq!(nix::unistd::geteuid().as_raw(), NOBODY);
    assert_eq!(linux_name("nmcc").unwrap().as_deref(), Some("nmcc"));
    carries("nmcc");
    let why = load(&[Controller::by_name("lia").unwrap()], OPTIONS).unwrap_err();
    assert_eq!(why, Error::Permission("cannot load congestion control".into()));
}

#[test]
fn a_namespace_has_it_as_its_default_and_has_back_what_it_had() {
    let Some(_turn) = turn() else { return };
    let (nmcc, lia) = (Loaded::new("nmcc"), Loaded::new("lia"));
    let space = Namespace::new().unwrap();
    let here = default_cc::get().unwrap();
    let chosen = || {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let name = socket2::SockRef::from(&stream).tcp_congestion().unwrap();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    };
    space.sysctl("net.ipv4.tcp_congestion_control", nmcc.0.linux).unwrap();
    assert_eq!(space.run(chosen).unwrap(), "nmcc");
    space.sysctl("net.ipv4.tcp_congestion_control", "reno").unwrap();
    space
        .run(|| {
            // What was before the first stays what comes back.
            default_cc::set(nmcc.0).unwrap();
            assert_eq!((default_cc::get().unwrap(), chosen()), ("nmcc".into(), "nmcc".into()));
            default_cc::set(lia.0).unwrap();
            assert_eq!((default_cc::get().unwrap(), chosen()), ("lia".into(), "lia".into()));
            let back = |reset: &default_cc::Reset| -> Vec<String> {
                assert!(reset.failed.is_empty(), "{reset:?}");
                let here = reset.restored.iter().filter(|back| back.location == "here");
                here.map(|back| back.default.clone()).collect()
            };
            let none = default_cc::reset(&[nmcc.0]).unwrap();
            assert!(back(&none).is_empty(), "it is another that is the default");
            assert_eq!(default_cc::get().unwrap(), "lia");
            let reset = default_cc::reset(&[lia.0]).unwrap();
            assert_eq!((back(&reset), default_cc::get().unwrap()), (vec!["reno".into()], "reno".into()));
            default_cc::set(lia.0).unwrap();
        })
        .unwrap();
    // From elsewhere: it is found by the descriptor that this process has of it.
    let reset = default_cc::reset(&[lia.0]).unwrap();
    let place = format!("in a namespace held by process {} ", std::process::id());
    let found = reset.restored.iter().filter(|back| back.location.starts_with(&place)).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{reset:?}");
    space
        .run(|| {
            assert_eq!(default_cc::get().unwrap(), "reno");
            // Who has chosen another meanwhile keeps that.
            default_cc::set(lia.0).unwrap();
            std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap();
            let reset = default_cc::reset(&[lia.0]).unwrap();
            assert!(!reset.restored.iter().any(|back| back.location == "here"), "{reset:?}");
            assert_eq!(default_cc::get().unwrap(), "reno");
        })
        .unwrap();
    assert_eq!(default_cc::get().unwrap(), here, "elsewhere nothing has changed");
}

/// What is in the kernel of these controllers: programs, maps and pins.
fn traces(controllers: &[&'static Controller]) -> Vec<String> {
    let ours = |name: &str| {
        // A program is HOOK_NAME, a map NAME_ops, both cut at 15 bytes.
        let whole =
            |c: &&Controller| ["ack", "cut", "init", "release", "undo"].map(|on| format!("{on}_{}", c.linux));
        let of = |c: &&Controller| {
            name == c.linux
                || whole(c).iter().any(|whole| whole.starts_with(name) && name.len() >= whole.len().min(15))
        };
        controllers.iter().any(of)
    };
    let programs = libbpf_rs::query::ProgInfoIter::default();
    let mut all: Vec<String> = programs.map(|one| one.name.to_string_lossy().into_owned()).collect();
    let maps = libbpf_rs::query::MapInfoIter::default();
    all.extend(maps.map(|one| one.name.to_string_lossy().into_owned()));
    all.extend(available().unwrap());
    all.retain(|name| ours(name));
    let pins = controllers.iter().map(|controller| controller.pin_dir()).filter(|pins| pins.exists());
    all.extend(pins.map(|pins| pins.display().to_string()));
    all
}

/// Waits until there are none: the kernel frees programs after a grace period.
fn no_traces(controllers: &[&'static Controller]) {
    for _ in 0..500 {
        if traces(controllers).is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("left over: {:?}", traces(controllers));
}

/// Those that are loaded and unloaded by force; `None`, with a word why, if somebody uses one now.
fn spare() -> Option<[&'static Controller; 2]> {
    let controllers = KILLED.map(|name| Controller::by_name(name).unwrap());
    let pinned = controllers.iter().any(|controller| controller.pin_dir().exists());
    // Programs that nobody holds any more are freed after a grace period.
    let there = (0..500).map(|_| traces(&controllers)).find(|there| {
        let settled = pinned || there.is_empty();
        if !settled {
            thread::sleep(Duration::from_millis(10));
        }
        settled
    });
    let there = there.unwrap_or_else(|| traces(&controllers));
    if !there.is_empty() {
        testing::skip(format!("loading and killing: in use here ({there:?})"));
        return None;
    }
    Some(controllers)
}

/// Unloads what is there of them; everything, if all is.
fn clean(controllers: &[&'static Controller], all: bool) {
    if all {
        unload_all().unwrap();
        assert!(!PathBuf::from(PIN_DIR).exists());
    } else {
        for controller in controllers {
            match unload(&[controller]) {
                Ok(()) | Err(Error::NotLoaded(_)) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    no_traces(controllers);
}

fn start(name: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = child(name).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    (child, lines)
}

#[test]
fn it_outlives_its_loader_and_leaves_nothing_when_killed() {
    let Some(_turn) = turn() else { return };
    let Some(controllers) = spare() else { return };
    // With nobody else's loaded, everything may go.
    let all = loaded().is_empty() && !Path::new(PIN_DIR).exists();

    succeeds(&mut child("child_that_loads"));
    assert!(controllers.iter().all(|controller| controller.is_loaded()));
    controllers.iter().for_each(|controller| carries(controller.linux));
    assert_eq!(load(&controllers, OPTIONS), Err(Error::Loaded("coupled".into())));
    clean(&controllers, all);
    assert_eq!(unload(&controllers), Err(Error::NotLoaded("coupled".into())));

    let (mut whole, mut half, mut none) = (0, 0, 0);
    for kill in 0..KILLS {
        let (mut child, mut lines) = start("child_that_loads_for_ever");
        assert!(lines.any(|line| line.contains("loading now")));
        // Spread over the time that loading and unloading take, and different each time.
        thread::sleep(Duration::from_millis((kill * 2_654_435_761) % KILLED_BY_MS));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        match controllers.iter().filter(|controller| controller.is_loaded()).count() {
            0 => none += 1,
            1 => half += 1,
            _ => whole += 1,
        }
        // What is half there is no obstacle for who wants it whole.
        if kill % 2 == 0 {
            for controller in controllers {
                match load(&[controller], OPTIONS) {
                    Ok(()) | Err(Error::Loaded(_)) => carries(controller.linux),
                    Err(e) => panic!("after a kill: {e}"),
                }
            }
        }
        clean(&controllers, all);
    }
    println!("killed {KILLS} times: {none} with none loaded, {half} with one, {whole} with both");
}

#[test]
#[ignore = "the process that loads in it_outlives_its_loader_and_leaves_nothing_when_killed"]
fn child_that_loads() {
    load(&KILLED.map(|name| Controller::by_name(name).unwrap()), OPTIONS).unwrap();
}

#[test]
#[ignore = "the process that is killed in it_outlives_its_loader_and_leaves_nothing_when_killed"]
fn child_that_loads_for_ever() {
    let controllers = KILLED.map(|name| Controller::by_name(name).unwrap());
    println!("loading now");
    loop {
        load(&controllers, OPTIONS).unwrap();
        unload(&controllers).unwrap();
    }
}
