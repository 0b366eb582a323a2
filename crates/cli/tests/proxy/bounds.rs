//! Tests that `anabranch proxy` is not disturbed by programs and origins that never read, or by a change of
//! the date.
#![cfg(target_os = "linux")]

use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::common::wait_until;
use crate::roles::{Role, client_command, connect_to, echo, echoes, origin, reset, server_command};

/// The number of connections that are not read. Each has at most 16 MiB of credit, and all of a trunk have 64
/// MiB.
const DEAF: usize = 64;
/// The most memory in bytes of a role with all these unread bytes.
const MEMORY_MAX: u64 = 256 << 20;

fn mebibytes(roles: &[&Role]) -> Vec<u64> {
    roles.iter().map(|role| role.memory() >> 20).collect()
}

#[test]
fn who_never_reads_costs_memory_that_is_bounded_and_given_back_to_others() {
    let _few = anabranch_net::testing::among_few();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let server = Role::start(&mut server_command(place, &[]), 1);
    let client = Role::start(&mut client_command(place, server.address("trunks"), &[]), 1);
    let (roles, socks) = ([&server, &client], client.address("socks"));
    let flood = origin(|mut stream| while stream.write_all(&[7; 64 * 1024]).is_ok() {});
    let deaf = origin(|_stream| sleep(Duration::from_secs(60)));
    let mut other = connect_to(socks, origin(echo));
    let programs: Vec<TcpStream> = (0..DEAF).map(|_| connect_to(socks, flood)).collect();
    // These programs send to origins that do not read.
    let mut uploads: Vec<TcpStream> = (0..DEAF).map(|_| connect_to(socks, deaf)).collect();
    for stream in &mut uploads {
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        while stream.write_all(&[7; 64 * 1024]).is_ok() {}
    }
    let first = mebibytes(&roles);
    sleep(Duration::from_secs(3));
    let then = mebibytes(&roles);
    println!("MiB of server and client: {first:?}, three seconds later {then:?}");
    for (role, (first, then)) in roles.iter().zip(first.iter().zip(&then)) {
        assert!(role.memory() < MEMORY_MAX, "{then} MiB");
        assert!(*then <= first + first / 4 + 8, "it grows: {first} MiB, {then} MiB");
    }
    assert!(echoes(&mut other), "others are served");
    programs.into_iter().chain(uploads).for_each(reset);
    wait_until(10, || roles.iter().all(|role| role.status(place)["open_connections"] == 1));
    assert!(echoes(&mut connect_to(socks, origin(echo))));
}

/// C code that replaces the date of a program by one that is off by the number of seconds in a file.
const DATE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *t) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, t);
    if (result == 0 && id == CLOCK_REALTIME) {
        long offset = 0;
        FILE *file = fopen(getenv("DATE_OFFSET"), "r");
        if (file && fscanf(file, "%ld", &offset) == 1)
            t->tv_sec += offset;
        if (file)
            fclose(file);
    }
    return result;
}
"#;

/// Compiles the library that changes the date. Returns `None` if there is no compiler.
fn date_library(place: &Path) -> Option<PathBuf> {
    let (source, library) = (place.join("date.c"), place.join("date.so"));
    std::fs::write(&source, DATE).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    if !made.is_ok_and(|status| status.success()) {
        anabranch_net::testing::skip("a date that is set: there is no C compiler");
        return None;
    }
    Some(library)
}

#[test]
fn a_date_that_is_set_disturbs_nothing() {
    // This must come before the library is loaded, because it reads the date.
    anabranch_net::testing::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let Some(library) = date_library(place) else { return };
    let file = place.join("offset");
    let set = |seconds: i64| std::fs::write(&file, seconds.to_string()).unwrap();
    let with_date = |mut command: Command| {
        command.env("LD_PRELOAD", &library).env("DATE_OFFSET", &file);
        command
    };
    let date = || {
        let mut date = Command::new("date");
        date.arg("+%s");
        let said = with_date(date).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().parse::<i64>().unwrap()
    };
    set(0);
    let now = date();
    let timeouts = ["--idle-timeout", "20s", "--handshake-timeout", "20s"];
    let server = Role::start(&mut with_date(server_command(place, &timeouts)), 1);
    let to = server.address("trunks");
    let client = Role::start(&mut with_date(client_command(place, to, &timeouts)), 1);
    let (socks, echo) = (client.address("socks"), origin(echo));
    let mut held = connect_to(socks, echo);
    assert!(echoes(&mut held));
    const YEARS: i64 = 10 * 365 * 86_400;
    for seconds in [YEARS, -YEARS, 3_600, 0] {
        set(seconds);
        assert!((now + seconds..now + seconds + 60).contains(&date()), "the date is not set");
        // All tasks that act once a second have run after this.
        sleep(Duration::from_millis(1_500));
        assert!(echoes(&mut held), "a connection goes on when the date moves by {seconds} s");
        assert!(echoes(&mut connect_to(socks, echo)), "and others begin");
        for role in [&server, &client] {
            let status = role.status(place);
            assert!((0.0..60.0).contains(&status["uptime_s"].as_f64().unwrap()), "{status}");
        }
    }
    assert!(client.said("trunk").iter().all(|line| line["up"] == true), "{:?}", client.said("trunk"));
}
