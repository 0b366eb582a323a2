//! Interfaces that disappear, and links that carry less than their ends promise. These tests run in network
//! namespaces, which need root; without root, each prints a line that it is skipped.

use std::fs;
use std::net::SocketAddr;

use crate::common::Server;
use crate::common::fetch::{Done, Ground, run, spawn};
use crate::common::netns::Net;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;

/// Makes a client `c` with two links, `left` and `right`, to a server `s` that has an address on each.
fn two_links(test: &str) -> Option<Net> {
    let net = Net::new(test, &["c", "s"])?;
    net.link(1_500, [("c", "left", &["10.9.1.1/24"]), ("s", "left", &["10.9.1.2/24"])]);
    net.link(1_500, [("c", "right", &["10.9.2.1/24"]), ("s", "right", &["10.9.2.2/24"])]);
    Some(net)
}

/// Runs one process that listens on both links, with a limit of 2 MB/s for both together.
fn serve_both(net: &Net, ground: &Ground) -> Server {
    let listen = ["--listen=10.9.1.2:0", "--listen=10.9.2.2:0", "--limit=2M"];
    net.serve("s", &ground.source(), &listen)
}

/// Returns the row of `source` in a progress report.
fn row<'a>(event: &'a serde_json::Value, source: &SocketAddr) -> Option<&'a serde_json::Value> {
    let rows = event["paths"].as_array()?;
    rows.iter().find(|row| row["source"] == source.to_string())
}

fn state(done: &Done, source: &SocketAddr) -> String {
    let summary = done.summary();
    row(&summary["last"], source).expect("a row")["state"].as_str().expect("a state").to_owned()
}

#[test]
fn an_interface_that_is_removed_leaves_its_work_to_the_other() {
    let Some(net) = two_links("removed") else { return };
    let ground = Ground::new(3_000_000);
    let server = serve_both(&net, &ground);
    let running = spawn(net.inside("c", &ground.get(&server.addresses, &[])));
    ground.wait_recorded(30);
    net.ip("c", "link del dev right");
    running.wait_note("10.9.2.2");
    let done = running.end().expect(0);
    ground.assert_arrived();
    assert!(done.out.contains("via 10.9.2.1%right is gone"), "{}", done.out);
    assert_eq!(state(&done, &server.addresses[1]), "interface gone");
    assert_eq!(state(&done, &server.addresses[0]), "open");
    assert!(done.bytes_from(server.addresses[1]) > 0, "both were used before");
}

#[test]
fn a_named_interface_that_goes_down_and_comes_back_is_used_again() {
    let Some(net) = two_links("returns") else { return };
    let ground = Ground::new(8_000_000);
    let server = serve_both(&net, &ground);
    let named = ["--via=left", "--via=right", "--disjoint"];
    let running = spawn(net.inside("c", &ground.get(&server.addresses, &named)));
    ground.wait_recorded(30);
    net.ip("c", "link set dev right down");
    running.wait_note("via right is gone");
    // The second link is gone for a while, and the transfer goes on over the other.
    let before = ground.recorded().len();
    ground.wait_recorded(before + 30);
    let came = |event: &serde_json::Value| {
        row(event, &server.addresses[1]).filter(|row| row["state"] == "interface gone")?["bytes"].as_u64()
    };
    let down = running.wait_event(|event| came(event).is_some());
    net.ip("c", "link set dev right up");
    running.wait_note("via right is back");
    let done = running.end().expect(0);
    ground.assert_arrived();
    let (before, after) = (came(&down).expect("bytes"), done.bytes_from(server.addresses[1]));
    assert!(after > before + 500_000, "{before} bytes before, {after} after");
    assert_eq!(state(&done, &server.addresses[1]), "open");
}

#[test]
fn an_address_that_is_taken_away_and_given_back_is_used_again() {
    let Some(net) = two_links("address") else { return };
    let ground = Ground::new(6_000_000);
    let server = serve_both(&net, &ground);
    let running = spawn(net.inside("c", &ground.get(&server.addresses, &["--disjoint"])));
    ground.wait_recorded(30);
    net.ip("c", "addr del 10.9.2.1/24 dev right");
    running.wait_note("via 10.9.2.1%right is gone");
    net.ip("c", "addr add 10.9.2.1/24 dev right");
    running.wait_note("via 10.9.2.1%right is back");
    let done = running.end().expect(0);
    ground.assert_arrived();
    assert_eq!(state(&done, &server.addresses[1]), "open");
    assert!(done.bytes_from(server.addresses[1]) > 1_000_000, "{}", done.out);
}

/// The cable at the far end is pulled: the interface here stays up and reports nothing, but packets vanish.
#[test]
fn a_link_that_goes_dead_far_away_leaves_its_work_to_the_other() {
    let _few = anabranch_net::testing::among_few();
    let Some(net) = two_links("dead") else { return };
    let ground = Ground::new(3_000_000);
    let server = serve_both(&net, &ground);
    let running = spawn(net.inside("c", &ground.get(&server.addresses, &[])));
    ground.wait_recorded(30);
    // The server's answers cannot get back.
    net.ip("s", "route add blackhole 10.9.2.1/32");
    let done = running.end().expect(0);
    ground.assert_arrived();
    assert_eq!(state(&done, &server.addresses[1]), "silent");
    let elapsed_s = done.summary()["last"]["elapsed_s"].as_f64().expect("a number");
    assert!(elapsed_s < 5.0, "{elapsed_s} s for 1.5 s of data");
}

#[test]
fn with_the_only_interface_gone_it_waits_and_goes_on_when_it_is_back() {
    let Some(net) = two_links("only") else { return };
    let ground = Ground::new(6_000_000);
    let server = serve_both(&net, &ground);
    let from = [server.addresses[0]];
    let running = spawn(net.inside("c", &ground.get(&from, &["--via=left", "--timeout=30"])));
    ground.wait_recorded(30);
    net.ip("c", "link set dev left down");
    running.wait_note("via left is gone");
    running.wait_note("no source answers");
    net.ip("c", "link set dev left up");
    running.wait_note("via left is back");
    running.end().expect(0);
    ground.assert_arrived();
}

/// The link of the default route is dead from the start, and its interface does not show it.
#[test]
fn mirrors_are_asked_over_the_other_link_if_the_kernels_choice_is_dead() {
    let Some(net) = two_links("default") else { return };
    let ground = Ground::new(3_000_000);
    net.ip("s", "addr add 10.9.9.1/32 dev lo");
    net.ip("c", "route add 10.9.9.1 via 10.9.1.2");
    net.ip("c", "route add 10.9.9.1 via 10.9.2.2 metric 200");
    let _server = net.serve("s", &ground.source(), &["--http=10.9.9.1:8080"]);
    net.ip("s", "route add blackhole 10.9.1.1/32");
    let name = ground.source().file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    let url = format!("http://10.9.9.1:8080/{name}");
    let done = run(net.inside("c", &ground.get_named(&[url], &["--json"]))).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("tried over other links"), "{}", done.notes());
}

/// Returns the bytes that have come over an interface.
fn bytes_via(event: &serde_json::Value, device: &str) -> u64 {
    let rows = event["paths"].as_array().into_iter().flatten();
    let of = rows.filter(|row| row["via"].as_str().is_some_and(|via| via.contains(device)));
    of.filter_map(|row| row["bytes"].as_u64()).sum()
}

/// The better link goes dead far away, where this host does not see it, and comes back.
#[test]
fn a_backup_carries_only_while_the_better_link_is_silent() {
    let _few = anabranch_net::testing::among_few();
    let Some(net) = two_links("backup") else { return };
    net.ip("s", "addr add 10.9.9.9/32 dev lo");
    net.ip("c", "route add 10.9.9.9/32 via 10.9.1.2");
    net.ip("c", "route add 10.9.9.9/32 via 10.9.2.2 metric 9");
    let ground = Ground::new(10_000_000);
    let server =
        net.serve("s", &ground.source(), &["--listen=10.9.9.9:0", "--http=10.9.9.9:0", "--limit=1M"]);
    let url = server.offers[0]["http"][0].as_str().expect("a URL").to_owned();
    let names = ["--json", "--via=left", "--via=right:backup"];
    let running = spawn(net.inside("c", &ground.get_named(&[url], &names)));
    let begun = running.wait_event(|event| bytes_via(event, "left") > 500_000);
    assert_eq!(bytes_via(&begun, "right"), 0, "{begun}");
    net.ip("s", "route add blackhole 10.9.1.1/32");
    running.wait_note("the link right is used now");
    running.wait_event(|event| bytes_via(event, "right") > 500_000);
    net.ip("s", "route del blackhole 10.9.1.1/32");
    running.wait_note("the link right waits");
    let done = running.end().expect(0);
    ground.assert_arrived();
    let carried = |event: &serde_json::Value| ["left", "right"].map(|device| bytes_via(event, device));
    let end = carried(&done.summary()["last"]);
    assert!(end[0] > 3_000_000 && end[1] < 7_000_000, "{end:?}");
}

#[test]
fn a_cap_ends_the_use_of_a_link_and_is_known_to_the_next_get() {
    let Some(net) = two_links("cap") else { return };
    let ground = Ground::new(4_000_000);
    let server = serve_both(&net, &ground);
    let state = ground.source().with_file_name("state");
    let get = |more: &[&str]| {
        let options = [&["--via=right:cap=3MB/month", "--disjoint"], more].concat();
        let mut command = net.inside("c", &ground.get(&server.addresses, &options));
        command.env("STATE_DIRECTORY", &state);
        command
    };
    let done = run(get(&["--via=left"])).expect(0);
    ground.assert_arrived();
    let came = done.bytes_from(server.addresses[1]);
    assert!((500_000..=3_000_000).contains(&came), "{came}: {}", done.out);
    assert!(done.notes().contains("the link right has carried"), "{}", done.notes());
    fs::remove_file(ground.target()).expect("removed");
    // The next one knows it from the start: with the other link it does without, and alone it fails.
    let done = run(get(&["--via=left"])).expect(0);
    assert_eq!(bytes_via(&done.summary()["last"], "right"), 0, "{}", done.out);
    fs::remove_file(ground.target()).expect("removed");
    let done = run(get(&[])).expect(4);
    assert!(
        done.err.contains("no link may carry more in this period: the link right has carried"),
        "{}",
        done.err
    );
}

#[test]
fn a_mirror_is_asked_over_an_interface_that_comes_up_later_and_goes_again() {
    let Some(net) = two_links("later") else { return };
    // The server has an address to which both links lead.
    net.ip("s", "addr add 10.9.9.9/32 dev lo");
    net.ip("c", "link set dev right down");
    net.ip("c", "route add 10.9.9.9/32 via 10.9.1.2");
    let ground = Ground::new(8_000_000);
    let listen = ["--listen=10.9.9.9:0", "--http=10.9.9.9:0", "--limit=2M"];
    let server = net.serve("s", &ground.source(), &listen);
    let url = server.offers[0]["http"][0].as_str().expect("a URL").to_owned();
    let names = [Uri::new(ContentId::of(&ground.content)).to_string(), url];
    let running = spawn(net.inside("c", &ground.get_named(&names, &["--json"])));
    ground.wait_recorded(30);
    net.ip("c", "link set dev right up");
    net.ip("c", "route add 10.9.9.9/32 via 10.9.2.2 metric 9");
    let both = running.wait_event(|event| bytes_via(event, "right") > 500_000);
    assert!(bytes_via(&both, "left") > 0, "it began over the other: {both}");
    net.ip("c", "link set dev right down");
    running.wait_note("via 10.9.2.1%right is gone");
    let done = running.end().expect(0);
    ground.assert_arrived();
    assert!(bytes_via(&done.summary()["last"], "right") > 500_000, "{}", done.out);
}

#[test]
fn with_no_route_it_ends_with_status_4_at_once() {
    let Some(net) = Net::new("routeless", &["c"]) else { return };
    let ground = Ground::new(1);
    for far in ["198.51.100.1:9", "[2001:db8::1]:9"] {
        let far: SocketAddr = far.parse().expect("an address");
        let done = run(net.inside("c", &ground.get(&[far], &[]))).expect(4);
        let said = format!("no way to any source: no route to {}", far.ip());
        assert!(done.err.contains(&said), "{}", done.err);
        assert_eq!(done.out.trim().lines().count(), 1, "it did not even begin: {}", done.out);
        assert_eq!(
            (&done.summary()["exit"], &done.summary()["content"]),
            (&4.into(), &serde_json::Value::Null)
        );
    }
}

/// Returns the mean UDP payload of the packets that a source has sent, which shows the size of its chunks.
fn mean_bytes(server: Server) -> u64 {
    let totals = server.end();
    let number = |name: &str| totals[name].as_u64().expect("a number");
    number("sent_bytes") / number("sent_packets")
}

/// 1280 is the smallest MTU that IPv6 allows.
#[test]
fn a_link_with_an_mtu_of_1280_carries_it_without_fragments() {
    let Some(net) = Net::new("mtu1280", &["c", "s"]) else { return };
    let here: &[&str] = &["10.9.1.1/24", "fd09:1::1/64"];
    let there: &[&str] = &["10.9.1.2/24", "fd09:1::2/64"];
    net.link(1_280, [("c", "eth", here), ("s", "eth", there)]);
    let ground = Ground::new(3_000_000);
    for listen in ["--listen=10.9.1.2:0", "--listen=[fd09:1::2]:0"] {
        let server = net.serve("s", &ground.source(), &[listen]);
        run(net.inside("c", &ground.get(&[server.address], &[]))).expect(0);
        ground.assert_arrived();
        let mean = mean_bytes(server);
        assert!((1_050..=1_232).contains(&mean), "{listen}: {mean}");
        fs::remove_file(ground.target()).expect("removed");
    }
    assert_eq!(net.fragments(), 0);
}

/// Makes a client `c` and a server `s`, with routers `r1` and `r2` between them, and a tunnel between the
/// routers.
fn tunnel(test: &str) -> Option<Net> {
    let net = Net::new(test, &["c", "r1", "r2", "s"])?;
    for (n, [left, right]) in [(1, ["c", "r1"]), (2, ["r1", "r2"]), (3, ["r2", "s"])] {
        let ends = [1, 2].map(|i| [format!("10.9.{n}.{i}/24"), format!("fd09:{n}::{i}/64")]);
        let [here, there] = ends.each_ref().map(|pair| pair.each_ref().map(String::as_str));
        net.link(1_500, [(left, &format!("to-{right}"), &here), (right, &format!("to-{left}"), &there)]);
    }
    net.route_between("r1");
    net.route_between("r2");
    for (name, to, by) in
        [("c", "default", "1::2"), ("s", "default", "3::1"), ("r1", "3", "2::2"), ("r2", "1", "2::1")]
    {
        let v4 = if to == "default" { to.to_owned() } else { format!("10.9.{to}.0/24") };
        let v6 = if to == "default" { to.to_owned() } else { format!("fd09:{to}::/64") };
        net.ip(name, &format!("route add {v4} via 10.9.{}", by.replace("::", ".")));
        net.ip(name, &format!("-6 route add {v6} via fd09:{by}"));
    }
    Some(net)
}

fn set_tunnel_mtu(net: &Net, mtu: u32) {
    net.ip("r1", &format!("link set dev to-r2 mtu {mtu}"));
    net.ip("r2", &format!("link set dev to-r1 mtu {mtu}"));
}

/// Both ends have an MTU of 1,500, and neither sees that a tunnel between two routers carries less.
#[test]
fn a_tunnel_on_the_way_is_found_and_carries_it_without_fragments() {
    let Some(net) = tunnel("tunnel") else { return };
    let ground = Ground::new(3_000_000);
    // Each entry is the source, the tunnel's MTU, and the chunk that fits with IP and UDP (28 or 48) and our
    // 20 bytes.
    for (listen, mtu, chunk) in [
        ("--listen=10.9.3.2:0", 1_420, 1_366),
        ("--listen=[fd09:3::2]:0", 1_420, 1_261),
        ("--listen=10.9.3.2:0", 1_300, 1_171),
    ] {
        set_tunnel_mtu(&net, mtu);
        let server = net.serve("s", &ground.source(), &[listen]);
        run(net.inside("c", &ground.get(&[server.address], &[]))).expect(0);
        ground.assert_arrived();
        let mean = mean_bytes(server);
        assert!((chunk - 110..=chunk + 20).contains(&mean), "{listen} through {mtu}: {mean}");
        fs::remove_file(ground.target()).expect("removed");
    }
    assert_eq!(net.fragments(), 0);
}

/// The route changes, and packets that fitted before now vanish.
#[test]
fn a_way_that_narrows_in_the_middle_is_noticed() {
    let _few = anabranch_net::testing::among_few();
    let Some(net) = tunnel("narrows") else { return };
    let ground = Ground::new(4_000_000);
    let server = net.serve("s", &ground.source(), &["--listen=10.9.3.2:0", "--limit=2M"]);
    let running = spawn(net.inside("c", &ground.get(&[server.address], &[])));
    ground.wait_recorded(60);
    set_tunnel_mtu(&net, 1_300);
    let done = running.end().expect(0);
    ground.assert_arrived();
    let elapsed_s = done.summary()["last"]["elapsed_s"].as_f64().expect("a number");
    assert!(elapsed_s < 8.0, "{elapsed_s} s for 2 s of data");
    assert_eq!(net.fragments(), 0);
}
