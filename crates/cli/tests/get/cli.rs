//! The command line as scripts use it.

use crate::common::anabranch;
use assert_cmd::assert::OutputAssertExt as _;
use clap::Parser as _;

fn stdout(args: &[&str]) -> String {
    let assert = anabranch().args(args).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8")
}

#[test]
fn help_teaches() {
    let help = stdout(&["--help"]);
    assert!(help.contains("Exit status:") && help.contains("130  interrupted"), "{help}");
    assert!(stdout(&["serve", "--help"]).contains("anabranch serve film.mkv"));
    let get = stdout(&["get", "--help"]);
    assert!(
        get.contains("--disjoint")
            && get.contains("--groups")
            && get.contains("nmcc")
            && get.contains("reno"),
        "{get}"
    );
    assert!(stdout(&["--version"]).starts_with("anabranch 0."));
}

#[test]
fn the_help_of_a_command_says_more_than_the_list() {
    for (command, says) in [
        ("serve", "Requests name content by its hash"),
        ("get", "Each source is asked from each local address"),
        ("mirror-list", "too; and NAME.b3leaves"),
        ("soak", "A seed that fails is printed"),
        ("lab", "A scenario is a TOML file"),
        ("lab run", "A run whose conditions were not met"),
        ("lab sweep", "With --out, each run becomes a line"),
        ("lab up", "The flows themselves are not started"),
        ("lab exec", "The program replaces this one"),
        ("lab down", "Programs that still run on its hosts are ended"),
        ("kernel", "Linux has MPTCP, but"),
        ("kernel load", "The sender decides"),
        (
            "kernel load",
            "Those that the kernel (TCP_CONGESTION, sysctl, `ip route ... congctl`) calls otherwise",
        ),
        ("kernel load", "cubic-coupled (to the kernel cubic_coupled), nmcc,"),
        ("kernel load", "cubic-coupled is CUBIC (RFC 9438)"),
        ("kernel unload", "In every network namespace where one is the default"),
        ("kernel status", "kernel.bpf_stats_enabled"),
        ("kernel group", "all subflows of a connection are one group"),
        ("kernel watch", "it slows nothing down"),
        ("kernel setup", "makes policy routes"),
        ("kernel teardown", "It does not matter whether setup came to its end"),
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = stdout(&words).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(says), "{command}: {help}");
    }
    let list = stdout(&["-h"]);
    assert!(list.contains("Fetch one file or directory from all sources that have it"), "{list}");
    assert!(!list.contains("Options of"), "{list}");
}

#[test]
fn wrong_usage_is_status_2() {
    for args in [
        &[][..],
        &["fetch"],
        &["serve"],
        &["get"],
        &["get", "ftp://example.org/"],
        &["get", "anabranch:b3:aa?len=1", "--from", "127.0.0.1:1"],
        &["get", "x", "--cc", "vegas"],
        &["serve", "x", "--limit", "fast"],
        &["serve", "x", "--listen", "example.org:1"],
    ] {
        anabranch().args(args).assert().code(2);
    }
}

#[test]
fn a_file_of_groups_is_wrong_in_a_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("groups");
    std::fs::write(&file, "# two providers\n192.0.2.1 lo dsl\nnothing\n").expect("a file");
    let uri = anabranch_mmtp::uri::Uri::new(anabranch_mmtp::ContentId::of(b"x")).to_string();
    let groups = format!("--groups={}", file.display());
    let assert = anabranch().args(["get", &uri, "--from", "127.0.0.1:1", &groups]).assert().code(2);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("groups:3: expected SOURCE [VIA] GROUP"), "{said}");
    anabranch().args(["get", &uri, "--from", "127.0.0.1:1", "--groups", "/no/such"]).assert().code(2);
}

#[test]
fn pages_and_completions() {
    assert!(stdout(&["man"]).contains(".SH \"EXIT STATUS\""));
    assert!(stdout(&["man", "get"]).contains("disjoint"), "that of the command");
    for name in ["proxy-client", "anabranch-proxy-client"] {
        assert!(stdout(&["man", name]).contains("pair\\-file"), "{name}");
    }
    anabranch().args(["man", "gte"]).assert().code(2);
    let dir = tempfile::tempdir().expect("a directory");
    stdout(&["man", dir.path().to_str().expect("UTF-8")]);
    assert!(dir.path().join("anabranch-get.1").exists());
    anabranch().args(["man", "/proc/none"]).assert().code(6);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(&["completions", shell]).contains("disjoint"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let shell = std::process::Command::new("sh")
        .args(["-c", "\"$0\" man | true", crate::common::program()])
        .output()
        .expect("a shell");
    assert!(shell.stderr.is_empty());
}

/// Units use the name alone, as sudo and systemd look it up, wherever README and docs/kernel.md install it.
#[test]
fn units_name_the_program_without_a_path_and_their_commands_make_sense() {
    let contrib = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    let mut seen = 0;
    for file in [
        "anabranch-kernel.service",
        "anabranch-kernel-uplinks.conf",
        "anabranch-proxy-client.service",
        "anabranch-proxy-server.service",
    ] {
        let text = std::fs::read_to_string(contrib.join(file)).expect("a unit").replace("\\\n", " ");
        for line in text.lines().filter(|line| line.starts_with("Exec")) {
            let (_, command) = line.split_once('=').expect("a setting");
            let words: Vec<&str> = command.trim_start_matches('-').split_whitespace().collect();
            if words[0] == "kill" {
                continue;
            }
            assert_eq!(words[0], "anabranch", "{file}: {line}");
            if let Err(e) = anabranch_cli::args::Cli::try_parse_from(&words) {
                panic!("{file}: {line}: {e}");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 7);
}

/// On a full disk, or if the reader has gone, the messages are lost, but nothing else.
#[cfg(target_os = "linux")]
#[test]
fn where_nobody_takes_what_is_said_the_exit_status_is_the_same() {
    let code = |args: &[&str], stderr: std::process::Stdio| {
        anabranch().args(args).stderr(stderr).status().expect("it runs").code()
    };
    for (args, wanted) in [
        (&["get", "http://127.0.0.1:1/x"][..], 4),
        (&["get", "--json", "http://127.0.0.1:1/x"], 4),
        (&["lab", "run", "nix"], 2),
        (&["mirror-list", "show", "nix"], 2),
        (&["proxy", "client"], 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        assert_eq!(code(args, full.into()), Some(wanted), "{args:?}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(code(args, writer.into()), Some(wanted), "{args:?}");
        assert_eq!(code(args, std::process::Stdio::null()), Some(wanted), "{args:?}");
    }
}
