//! Processes that are killed: a writer leaves whole objects, a worker is replaced.

use std::env;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anabranch_minicache::image::{Image, ImageError, Use};
use anabranch_minicache::keeper::{self, Keeper};
use anabranch_minicache::serve::{Serving, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::{Client, Ground, bytes, get, path_of, put, root_of};

/// The variables that make the tests of these names a writer, or a worker, of this image.
const WRITES: &str = "ANABRANCH_MINICACHE_TEST_WRITES";
const SERVES: &str = "ANABRANCH_MINICACHE_TEST_SERVES";
const OBJECTS: usize = 60;

fn body(number: usize) -> Vec<u8> {
    bytes(1 + (number * 7_919) % 120_000, number as u8)
}

fn itself(test: &str, variable: &str, path: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test]).env(variable, path).stdout(Stdio::null());
    command
}

/// Writes objects until it is killed, if it is told where; removes every fifth again.
#[test]
fn writer() {
    let Some(path) = env::var_os(WRITES) else { return };
    // The test looks at the image meanwhile.
    let image = loop {
        match Image::open(Path::new(&path), Use::Write) {
            Ok(image) => break Arc::new(image),
            Err(ImageError::Busy) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    };
    for number in (0..OBJECTS).cycle() {
        if image.table().find(&root_of(&body(number))).is_none() {
            let slot = put(&image, &body(number));
            if number % 5 == 0 {
                image.remove(slot).unwrap();
            }
        }
    }
}

#[test]
fn a_killed_writer_leaves_whole_objects_and_no_others() {
    let ground = Ground::new(300, &[]);
    let mut before = 0;
    for round in 1..=10 {
        let mut child = itself("kills::writer", WRITES, &ground.path()).spawn().unwrap();
        // The start differs from machine to machine, the moment of the work each time.
        while Image::open(&ground.path(), Use::Read).is_ok() {
            assert!(child.try_wait().unwrap().is_none(), "it cannot write");
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_micros(3_700 * round));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it still wrote");
        let image = Image::open(&ground.path(), Use::Read).unwrap();
        let checked = image.check(|damage| panic!("{damage:?}"));
        assert!(checked.objects >= before, "no whole object was lost");
        // One that is removed again may have been there.
        before = checked.objects.saturating_sub(1);
        for (_, entry) in image.table().entries() {
            assert!((0..OBJECTS).any(|number| entry.names()[0] == root_of(&body(number))));
        }
    }
    assert!(before > 3, "it wrote");
}

/// Serves on its standard input, if it is told what.
#[test]
fn worker() {
    let Some(path) = env::var_os(SERVES) else { return };
    let image = Image::open(Path::new(&path), Use::Read).unwrap();
    let _serving = Serving::start(image, &keeper::inherited().unwrap(), Settings::default(), |_| {}).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn a_killed_worker_is_replaced_and_streams_resume_by_a_range() {
    let object = bytes(4_000_000, 9);
    let ground = Ground::new(100, &[&object]);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let path = ground.path();
    let keeper = Keeper::start(socket, move |_| itself("kills::worker", SERVES, &path), |_| {}).unwrap();
    let ask = |from: usize| {
        let mut client = Client::connect(address);
        let fields = format!("Range: bytes={from}-\r\n");
        client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n{fields}\r\n", path_of(&object)).as_bytes());
        client
    };
    // The heads wait until a worker lives.
    let mut streams: Vec<(Client, Vec<u8>)> = (0..50).map(|_| (ask(0), vec![0; 100_000])).collect();
    for (client, part) in &mut streams {
        assert_eq!(client.head().status, 206);
        assert_eq!(client.read(part), 100_000);
    }
    for round in 1..=3 {
        let worker = keeper.worker().expect("one lives") as i32;
        kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
        for (client, part) in &mut streams {
            take(client, part, &object, usize::MAX);
            if part.len() < object.len() {
                *client = ask(part.len());
                assert_eq!(client.head().status, 206, "round {round}");
                take(client, part, &object, 10_000);
            }
        }
        assert!(keeper.restarts() >= round);
    }
    for (client, part) in &mut streams {
        take(client, part, &object, usize::MAX);
        assert_eq!(part.len(), object.len());
    }
    assert!(get(address, "/status").text().contains("\"restarts\":"));
}

/// Returns the CPU time that a process has taken, in ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
    fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
}

#[test]
fn a_worker_without_descriptors_refuses_and_does_not_spin() {
    let object = bytes(40_000, 3);
    let ground = Ground::new(10, &[&object]);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let path = ground.path();
    let command = move |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
        command.args(["--exact", "kills::worker"]).env(SERVES, &path).stdout(Stdio::null());
        command
    };
    let keeper = Keeper::start(socket, command, |_| {}).unwrap();
    assert_eq!(get(address, &path_of(&object)).status, 200);
    let worker = keeper.worker().expect("one lives");
    let mut idle: Vec<Client> = (0..200).map(|_| Client::connect(address)).collect();
    thread::sleep(Duration::from_millis(300));
    let before = ticks(worker);
    thread::sleep(Duration::from_millis(700));
    let taken = ticks(worker) - before;
    assert!(taken < 10, "{taken}0 ms of CPU time while nothing happens");
    let late: Vec<u16> = idle.iter_mut().skip(150).map(|client| client.head().status).collect();
    assert!(late.iter().all(|status| *status == 503), "who comes too late is told so: {late:?}");
    drop(idle);
    // Those that wait in the kernel are refused or served in the meantime.
    let mut answers = (0..100).map(|_| {
        thread::sleep(Duration::from_millis(20));
        get(address, &path_of(&object)).status
    });
    assert!(answers.any(|status| status == 200));
    assert_eq!(keeper.restarts(), 0);
}

/// Takes up to `most` more bytes of a stream, which must be the object's.
fn take(client: &mut Client, part: &mut Vec<u8>, object: &[u8], most: usize) {
    let mut more = vec![0; (object.len() - part.len()).min(most)];
    let read = client.read(&mut more);
    part.extend_from_slice(&more[..read]);
    assert!(*part == object[..part.len()], "no wrong byte");
}
