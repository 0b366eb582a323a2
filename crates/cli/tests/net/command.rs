//! Tests of `anabranch net` as scripts use it.

use crate::common::anabranch;
use assert_cmd::assert::OutputAssertExt as _;
use serde_json::Value;

fn net(args: &str) -> String {
    let mut command = anabranch();
    let assert = command.arg("net").args(args.split(' ')).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8")
}

fn paths(args: &str) -> Vec<Value> {
    let out = net(&format!("paths {args} --json"));
    let objects = out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    objects.filter(|object: &Value| object["event"] == "path").collect()
}

#[test]
fn networks_are_listed_and_shown() {
    let list = net("show");
    assert_eq!(list.lines().count(), 15);
    assert!(list.contains("Nsfnet: 13 nodes (3 with one neighbour), 15 lines, density 0.192"), "{list}");
    let shown = net("show nsfnet");
    assert_eq!(shown.lines().count(), 16, "{shown}");
    let svg = net("show Geant2012 --svg");
    assert!(svg.starts_with("<svg") && svg.matches("<circle").count() == 40);
}

#[test]
fn paths_have_groups_and_identifiers() {
    let shortest = paths("Geant2012 --from IE --to TR -k 4");
    assert_eq!(shortest.len(), 4);
    assert!(shortest.is_sorted_by_key(|path| path["cost"].as_u64()));
    let pair = paths("Geant2012 --from IE --to TR -k 2 --algorithm node-disjoint --cost delay");
    let groups: Vec<_> = pair.iter().map(|path| path["group"].as_u64()).collect();
    assert_eq!(groups, [Some(0), Some(1)]);
    for path in shortest.iter().chain(&pair) {
        assert_eq!((&path["nodes"][0], path["forward"]["kind"].as_str()), (&"IE".into(), Some("exact")));
        let ones = |way: &str| -> u32 {
            let fid = path[way]["fid"].as_str().expect("hexadecimal");
            fid.chars().map(|c| c.to_digit(16).expect("a digit").count_ones()).sum()
        };
        let links = path["links"].as_array().expect("links").len();
        assert_eq!((ones("forward") as usize, ones("backward") as usize), (links, links));
    }
    let told = net("paths Uninett2011 --from UiO --to UNIS -k 2");
    assert!(told.contains("path 2: group 0, 5 links") && told.contains("strays 0"), "{told}");
}

#[test]
fn a_file_is_a_network_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let text =
        "network mine\nnode a\nnode b\x1b[1m\nnode c\nlink 0 1 8M 3ms\nlink 1 2 16M 4ms\nlink 0 2 1M 9ms\n";
    std::fs::write(dir.path().join("mine"), text).expect("a file");
    let run = |args: &[&str]| {
        let output = anabranch().current_dir(dir.path()).arg("net").args(args).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = run(&["paths", "mine", "--from", "a", "--to", "c", "--cost", "delay"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("path 1: group 0, 2 links, 7.00 ms, 8 Mbit/s"), "{out}");
    assert!(!out.contains('\x1b') && out.contains("path 2: group 1, 1 link, 9.00 ms, 1 Mbit/s"), "{out}");
    // The ring has more lines than exact identifiers have bits.
    let nodes: String = (0..150).map(|n| format!("node n{n:03}\n")).collect();
    let lines: String = (0..150).map(|n| format!("link {n} {}\n", (n + 1) % 150)).collect();
    std::fs::write(dir.path().join("ring"), nodes + &lines).expect("a file");
    let (_, out, _) = run(&["paths", "ring", "--from", "n000", "--to", "n010", "-k", "2"]);
    assert!(out.contains("there lipsin") && out.contains("group 1, 140 links"), "{out}");
    assert!(out.contains("there 140 links are more than fit"), "{out}");
    // A network that is printed in our form is read as the same network.
    let (_, text, _) = run(&["show", "mine", "--text"]);
    std::fs::write(dir.path().join("again"), &text).expect("a file");
    assert_eq!(run(&["show", "again", "--text"]).1, text);
    std::fs::write(dir.path().join("bad"), "node a\nlink 0 7\n").expect("a file");
    for (args, code, says) in [
        (&["show", "bad"][..], 2, "bad: line 2: there is no node \"7\""),
        (&["show", "gone"], 2, "neither a file nor a network"),
        (&["show", "--svg"], 2, "NAME|FILE"),
        (&["paths", "mine", "--from", "x", "--to", "c"], 2, "no node \"x\""),
        (&["paths", "mine", "--from", "a", "--to", "a"], 2, "one node"),
        (&["paths", "mine", "--from", "a", "--to", "b", "-k", "0"], 2, "-k"),
    ] {
        let (status, out, err) = run(args);
        assert_eq!((status, out.as_str()), (Some(code), ""), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
    std::fs::write(dir.path().join("apart"), "node a\nnode b\n").expect("a file");
    assert_eq!(run(&["paths", "apart", "--from", "a", "--to", "b"]).0, Some(3));
}

#[test]
fn a_domain_file_is_drawn_with_the_paths_of_a_transfer() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |args: &[&str]| {
        let output = anabranch().current_dir(dir.path()).arg("net").args(args).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run(&["new"]).0, Some(0));
    let (code, out, err) = run(&["show", "demo.toml", "--from", "a", "--to", "p1"]);
    assert_eq!(code, Some(0), "{err}");
    for line in [
        "demo.toml: the domain demo, 10 nodes, 5 of them forward, 18 lines; as its file says\n",
        "\n  rv  host, rendezvous\n",
        "\n  r1  forwarder\n",
        "\n  a — r1: 5.00 ms, 50 Mbit/s\n",
        "\npath 1: group 0, 10.00 ms, 20 Mbit/s: a → r1 → p1\n",
        "\npath 3: group 2, 35.00 ms, 30 Mbit/s: a → r3 → r5 → p1\n",
    ] {
        assert!(out.contains(line), "{line}{out}");
    }
    assert_eq!(out.lines().count(), 1 + 10 + 18 + 3);
    let (_, svg, _) = run(&["show", "demo.toml", "--from", "a", "--to", "p1", "--svg"]);
    let count = |what: &str| svg.matches(what).count();
    assert_eq!((count("<circle"), count("<rect"), count("<line "), count("<polyline")), (5, 1 + 5, 18, 3));
    assert!(svg.contains(">5.00 ms, 50 Mbit/s<") && svg.contains(">topology manager<"), "{svg}");
    let (_, json, _) = run(&["show", "demo.toml", "--from", "a", "--to", "p1", "--json"]);
    let objects: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |event: &str| objects.iter().filter(|object| object["event"] == event).collect::<Vec<_>>();
    let [domain] = of("domain")[..] else { panic!("{json}") };
    assert_eq!((&domain["live"], &domain["down"]), (&false.into(), &Value::Null));
    assert_eq!((of("node").len(), of("line").len(), of("path").len()), (10, 18, 3));
    assert_eq!(of("path")[0]["nodes"], serde_json::json!(["a", "r1", "p1"]));
    let (_, text, _) = run(&["show", "demo.toml", "--text"]);
    std::fs::write(dir.path().join("demo"), text).expect("a file");
    assert!(run(&["show", "demo"]).1.starts_with("demo: 10 nodes"));
    std::fs::write(dir.path().join("bad.toml"), "name = 7\n").expect("a file");
    for (args, code, says) in [
        (&["show", "gone.toml"][..], 2, "gone.toml: "),
        (&["show", "bad.toml"], 2, "bad.toml: line 1: "),
        (&["show", "demo.toml", "--from", "a", "--to", "a"], 2, "one host"),
        (&["show", "demo.toml", "--from", "r1", "--to", "a"], 2, "r1 forwards"),
        (&["show", "demo.toml", "--from", "a", "--to", "p3"], 2, "did you mean p"),
        (&["show", "demo.toml", "--to", "p1"], 2, "--from"),
        (&["show", "demo.toml", "--from", "p1"], 2, "--to"),
        (&["show", "demo.toml", "--from", "a", "--to", "films/x"], 2, "does not say who publishes"),
        (&["show", "demo.toml", "--domain", "demo.toml"], 2, "--domain"),
        (&["show", "demo", "--from", "a", "--to", "p1"], 2, "net paths"),
        (&["show", "--domain", "demo.toml", "--node", "r1"], 2, "r1 forwards"),
    ] {
        let (status, out, err) = run(args);
        assert_eq!((status, out.as_str()), (Some(code), ""), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

#[test]
fn a_class_has_its_own_paths_and_one_that_is_unknown_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |args: &[&str]| {
        let output = anabranch().current_dir(dir.path()).args(args).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run(&["net", "new"]).0, Some(0));
    let transfer = ["net", "show", "demo.toml", "--from", "a", "--to", "p1"];
    let none = run(&[&transfer[..], &["--class", "bulk"]].concat());
    assert_eq!((none.0, &*none.1), (Some(2), ""));
    assert!(none.2.contains("--class: the domain demo has no class bulk; it has: none"), "{}", none.2);
    // The classes in the file's remarks become valid classes when they are uncommented.
    let file = std::fs::read_to_string(dir.path().join("demo.toml")).expect("a file");
    let (before, rest) = file.split_once("# [class.bulk]\n").expect("a class");
    let mut lines = rest.lines();
    let table: Vec<&str> = lines.by_ref().map_while(|line| line.strip_prefix("# ")).collect();
    assert_eq!(table.len(), 3, "{rest}");
    let rest: Vec<&str> = lines.collect();
    let urgent = "[class.urgent]\npaths = 1\n";
    let file = [before, "[class.bulk]\n", &table.join("\n"), "\n", urgent, &rest.join("\n")].concat();
    std::fs::write(dir.path().join("demo.toml"), file).expect("written");
    let count = |class: &[&str]| {
        let (code, out, err) = run(&[&transfer[..], class].concat());
        assert_eq!(code, Some(0), "{err}");
        out.lines().filter(|line| line.starts_with("path ")).count()
    };
    assert_eq!((count(&[]), count(&["--class", "bulk"]), count(&["--class", "urgent"])), (3, 2, 1));
    let member = ["--domain", "demo.toml", "--node", "a"];
    let get = [&["get", "films/x"], &member[..], &["--class", "fast"]].concat();
    let live = [&["net", "show"], &member[..], &["--to", "p1", "--class", "fast"]].concat();
    let known = "--class: the domain demo has no class fast; it has: bulk, urgent";
    for (args, says) in [
        (&get[..], known),
        (&live, known),
        (&["net", "show", "demo.toml", "--class", "bulk"], "--to"),
        (&["get", "http://127.0.0.1:9/f", "--class", "bulk"], "--class is of a name in a network"),
    ] {
        let (status, out, err) = run(args);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

/// The environment says that names are looked up in a network, so an invalid name is reported as such.
#[test]
fn a_name_that_is_wrong_is_called_a_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |args: &[&str]| {
        let mut command = anabranch();
        command.current_dir(dir.path()).args(args);
        command.env("ANABRANCH_DOMAIN", "demo.toml").env("ANABRANCH_NODE", "a");
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    assert_eq!(run(&["net", "new"]).0, Some(0));
    for bad in ["films//x", "films/", "films/x/"] {
        let (code, said) = run(&["get", bad]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("label") && !said.contains("URL"), "{bad}: {said}");
    }
    // A text that is no name gets another error.
    let (code, said) = run(&["get", "Films//x"]);
    assert!(code == Some(2) && said.contains("nor a URL"), "{said}");
}
