//! Tests many transfers that share threads.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use std::{env, fs, process};

use anabranch::{Client, Get, Result, Transfer};

use crate::reader::{noise, serve, url};

/// The environment variable that tells the child the URL.
const URL: &str = "ANABRANCH_TEST_URL";
const TRANSFERS: usize = 30;
const AT_ONCE: usize = 4;

fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("Linux").count()
}

/// The server runs in this process and the transfers run in another, whose threads are counted.
#[test]
fn thirty_transfers_take_few_threads() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(2_000_000);
    let source = serve(dir.path(), &bytes);
    let child = process::Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "client::child", "--nocapture"])
        .env(URL, url(&source))
        .current_dir(&dir)
        .output()
        .expect("the child");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    for number in 0..TRANSFERS {
        assert!(fs::read(dir.path().join(number.to_string())).expect("a file") == bytes, "{number}");
    }
    let counted = |what: &str| {
        let rest = said.split(what).nth(1).unwrap_or_else(|| panic!("{what}: {said}"));
        rest.split_whitespace().next().and_then(|n| n.parse::<usize>().ok()).expect("a number")
    };
    // These are the workers, the thread of HTTP, and the thread that counts.
    assert!(counted("most threads:") <= AT_ONCE + 2, "{said}");
    assert_eq!(counted("threads left:"), 0, "{said}");
}

/// Does nothing unless it is run as a child.
#[test]
fn child() {
    let Ok(url) = env::var(URL) else { return };
    let before = threads();
    let is_over = Arc::new(AtomicBool::default());
    let seen = Arc::clone(&is_over);
    let counts = thread::spawn(move || {
        let mut most = 0;
        while !seen.load(Ordering::Relaxed) {
            most = most.max(threads());
            thread::sleep(Duration::from_millis(1));
        }
        most
    });
    let client = Client::at_once(NonZero::new(AT_ONCE).expect("some")).expect("a client");
    let start = |number: usize| Get::new([&url])?.client(&client).to_file(number.to_string()).start();
    let started: Vec<Transfer> = (0..TRANSFERS).map(start).collect::<Result<_>>().expect("transfers");
    for transfer in started {
        transfer.wait().expect("a file");
    }
    is_over.store(true, Ordering::Relaxed);
    println!("most threads:{}", counts.join().expect("a count") - before);
    drop(client);
    for _ in 0..500 {
        if threads() == before {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    println!("threads left:{}", threads() - before);
}

/// A transfer can be stopped before its turn, and the others go on.
#[test]
fn a_transfer_that_waits_for_its_turn_can_be_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(2_000_000);
    let source = serve(dir.path(), &bytes);
    let client = Client::at_once(NonZero::new(1).expect("one")).expect("a client");
    let get = Get::new([url(&source)]).expect("a URL").client(&client);
    let reader = get.read().expect("a reader");
    let waiting = get.to_file(dir.path().join("waiting")).start().expect("a transfer");
    let dropped = get.to_file(dir.path().join("dropped")).start().expect("a transfer");
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished(), "the reader has its place");
    drop((dropped, reader));
    waiting.wait().expect("a file");
    assert!(fs::read(dir.path().join("waiting")).expect("a file") == bytes);
    assert!(!dir.path().join("dropped").exists());
}
