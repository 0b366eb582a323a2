//! `setup` and `teardown` on real kernels. Needs root; says so and passes without.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use crate::mptcp_network::{FAR, FAR6, TestNetwork, carry, in_own_thread, ip, subflows, until};
use anabranch_kernel::uplinks::{Error, Options, plan, plan_teardown, setup, teardown};
use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, Netlink, PathManager, SockDiag, TcpState};

const ENABLED: &str = "/proc/sys/net/mptcp/enabled";

/// All that `setup` may change, as it is now.
fn dump() -> Vec<String> {
    let (netlink, manager) = (Netlink::open().unwrap(), PathManager::open().unwrap());
    let mut all: Vec<String> = netlink.routes().unwrap().iter().map(|route| format!("{route:?}")).collect();
    all.extend(netlink.rules().unwrap().iter().map(|rule| format!("{rule:?}")));
    all.extend(netlink.addresses().unwrap().iter().map(|address| format!("{address:?}")));
    all.extend(manager.endpoints().unwrap().iter().map(|endpoint| format!("{endpoint:?}")));
    all.push(format!("{:?}", manager.limits().unwrap()));
    all.push(fs::read_to_string(ENABLED).unwrap());
    all.sort();
    all
}

fn options(dir: &Path, backup: &[&str]) -> Options {
    Options {
        backup: backup.iter().map(|name| (*name).into()).collect(),
        state_dir: dir.into(),
        ..Options::new(vec!["up1".into(), "up2".into()])
    }
}

fn journals(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("uplinks-")).count()
}

#[test]
fn both_uplinks_carry_and_everything_is_put_back() {
    in_own_thread(|| {
        let Some(network) = TestNetwork::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        fs::write(ENABLED, "0").unwrap();
        // As strict as a host can be about where packets come from (RFC 3704).
        fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
        let before = dump();
        let planned = plan(&options(dir.path(), &[])).unwrap();
        assert_eq!(dump(), before, "a plan changes nothing");
        assert_eq!(journals(dir.path()), 0);
        let done = setup(&options(dir.path(), &[])).unwrap();
        assert_eq!(done.describe(), planned.describe());
        // The switch, the limits; per family and uplink two routes, two rules, an endpoint.
        assert_eq!(done.changes().len(), 2 + 4 * 5, "{:#?}", done.describe());
        assert_eq!(journals(dir.path()), 1);
        assert!(setup(&options(dir.path(), &[])).unwrap().changes().is_empty(), "nothing has changed");

        let (mut near, mut far, _listener) = network.connect(FAR);
        carry(&mut near, &mut far, 100_000);
        let both = subflows(2);
        assert_eq!([both[0].local.ip(), both[1].local.ip()], [ip("10.1.0.1"), ip("10.2.0.1")]);
        assert!(both.iter().all(|socket| !socket.subflow.unwrap().flags.is_backup()));
        carry(&mut near, &mut far, 64_000_000);
        let sent: Vec<_> = subflows(2).iter().map(|socket| socket.info.unwrap().bytes_acked).collect();
        assert!(sent.iter().all(|bytes| *bytes > 1_000_000), "both carry: {sent:?}");
        let netlink = Netlink::open().unwrap();
        for name in ["up1", "up2"] {
            assert!(netlink.link(name).unwrap().tx_bytes > 1_000_000, "{name} carries");
        }
        drop((near, far));
        until("it is closed", || {
            SockDiag::open().unwrap().tcp(&[TcpState::Established]).unwrap().is_empty().then_some(())
        });

        // IPv6 as well.
        let (mut near, mut far, _listener6) = network.connect(FAR6);
        carry(&mut near, &mut far, 100_000);
        let both = until("the subflows are there", || {
            let mut all = SockDiag::open().unwrap().tcp(&[TcpState::Established]).unwrap();
            all.retain(|socket| socket.subflow.is_some() && socket.local.is_ipv6());
            all.sort_by_key(|socket| socket.local);
            (all.len() == 2).then_some(all)
        });
        assert_eq!([both[0].local.ip(), both[1].local.ip()], [ip("fd77:1::1"), ip("fd77:2::1")]);

        let back = teardown(dir.path()).unwrap().expect("there is something to put back");
        assert_eq!(back.changes().len(), done.changes().len());
        // The kernel closes the subflows from an endpoint that goes.
        assert_eq!(back.notes(), ["1 connection has no subflow but from these addresses, and ends"]);
        assert_eq!(dump(), before);
        assert_eq!(journals(dir.path()), 0);
        assert!(teardown(dir.path()).unwrap().is_none(), "and now there is not");
        drop((near, far));
    });
}

#[test]
fn a_backup_rests_until_it_is_needed() {
    in_own_thread(|| {
        let Some(network) = TestNetwork::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        setup(&options(dir.path(), &["up2"])).unwrap();
        let (mut near, mut far, _listener) = network.connect(FAR);
        carry(&mut near, &mut far, 100_000);
        let both = subflows(2);
        let backups: Vec<_> = both.iter().map(|socket| socket.subflow.unwrap().flags.is_backup()).collect();
        assert_eq!(backups, [false, true]);
        carry(&mut near, &mut far, 10_000_000);
        let sent: Vec<_> = subflows(2).iter().map(|socket| socket.info.unwrap().bytes_acked).collect();
        assert!(sent[0] >= 10_000_000 && sent[1] < 1_000, "{sent:?}");
        // The first provider fails: the connection goes on.
        let netlink = Netlink::open().unwrap();
        netlink.set_link(netlink.index("up1").unwrap(), Some(false), None).unwrap();
        carry(&mut near, &mut far, 1_000_000);
        let error = plan(&options(dir.path(), &["up2"])).unwrap_err();
        assert!(
            matches!(error, Error::Unusable(_)) && error.to_string().starts_with("up1 is down"),
            "{error}"
        );
        // What went with the interface is no obstacle.
        teardown(dir.path()).unwrap().unwrap();
        assert!(PathManager::open().unwrap().endpoints().unwrap().is_empty());
    });
}

#[test]
fn it_can_be_cut_off_after_any_step() {
    in_own_thread(|| {
        let Some(_network) = TestNetwork::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        let manager = PathManager::open().unwrap();
        // What is there before: an endpoint that is replaced, one that is not, and limits.
        let other =
            Endpoint { id: 9, flags: EndpointFlags::SIGNAL, ..Endpoint::subflow(ip("192.0.2.1"), None) };
        manager.add_endpoint(&other).unwrap();
        let replaced = Endpoint { id: 5, ..Endpoint::subflow(ip("10.1.0.1"), None) };
        manager.add_endpoint(&replaced).unwrap();
        manager.set_limits(Limits { subflows: 1, add_addr_accepted: 5 }).unwrap();
        let before = dump();
        let whole = plan(&options(dir.path(), &["up2"])).unwrap().changes().len();
        assert!(whole > 20);
        for steps in 0..=whole {
            let plan = plan(&options(dir.path(), &["up2"])).unwrap();
            plan.write_intent(dir.path()).unwrap();
            for change in &plan.changes()[..steps] {
                change.apply().unwrap();
            }
            // Here somebody pulled the plug. The way back is cut off half-way too.
            let back = plan_teardown(dir.path()).unwrap().expect("the journal is there");
            for change in &back.changes()[..back.changes().len() / 2] {
                change.apply().unwrap();
            }
            teardown(dir.path()).unwrap().expect("the journal is still there");
            assert_eq!(dump(), before, "after {steps} of {whole} steps");
            assert!(teardown(dir.path()).unwrap().is_none());
        }
        // Or it is taken up again.
        let plan = plan(&options(dir.path(), &["up2"])).unwrap();
        plan.write_intent(dir.path()).unwrap();
        for change in &plan.changes()[..whole / 2] {
            change.apply().unwrap();
        }
        let rest = setup(&options(dir.path(), &["up2"])).unwrap();
        assert_eq!(rest.changes().len(), whole - whole / 2);
        assert!(setup(&options(dir.path(), &["up2"])).unwrap().changes().is_empty());
        teardown(dir.path()).unwrap().unwrap();
        assert_eq!(dump(), before);
    });
}

#[test]
fn another_address_and_a_vanished_interface() {
    in_own_thread(|| {
        let Some(network) = TestNetwork::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        let before = dump();
        setup(&options(dir.path(), &[])).unwrap();
        let netlink = Netlink::open().unwrap();
        let device = netlink.index("up2").unwrap();
        let default = netlink.routes().unwrap().into_iter().find(|route| {
            route.is_default() && route.dst.0.is_ipv4() && route.device == Some(device) && route.table == 254
        });
        // DHCP gives another address; the routes through the interface go with the old one and come again.
        netlink.del_address(device, ip("10.2.0.1"), 24).unwrap();
        netlink.add_address(device, ip("10.2.0.77"), 24).unwrap();
        let _ = netlink.add_route(&default.unwrap());
        let changed = setup(&options(dir.path(), &[])).unwrap().describe();
        assert!(changed.contains(&"mptcp endpoint del 10.2.0.1 dev up2".to_owned()), "{changed:#?}");
        assert!(changed.contains(&"mptcp endpoint add 10.2.0.77 dev up2 subflow".to_owned()), "{changed:#?}");
        assert!(changed.iter().all(|line| line.contains("10.2.0.")), "{changed:#?}");
        let (mut near, mut far, _listener) = network.connect(FAR);
        carry(&mut near, &mut far, 100_000);
        assert_eq!(subflows(2)[1].local.ip(), ip("10.2.0.77"));
        teardown(dir.path()).unwrap().unwrap();
        netlink.del_address(device, ip("10.2.0.77"), 24).unwrap();
        netlink.add_address(device, ip("10.2.0.1"), 24).unwrap();
        let _ = netlink.add_route(&default.unwrap());
        assert_eq!(dump(), before);

        setup(&options(dir.path(), &["up2"])).unwrap();
        netlink.del_link(device).unwrap();
        let gone = teardown(dir.path()).unwrap().unwrap();
        assert!(!gone.notes().iter().any(|note| note.contains("put back")), "{:?}", gone.notes());
        let rest = until("the routes of the interface are gone", || {
            let now = dump();
            now.iter().all(|line| before.contains(line)).then_some(now)
        });
        assert!(rest.len() < before.len());
        let error = plan(&options(dir.path(), &[])).unwrap_err();
        assert_eq!(error.to_string(), "up2 does not exist; there is up1");
    });
}

#[test]
fn routes_more_special_than_the_default_are_kept() {
    in_own_thread(|| {
        let Some(_network) = TestNetwork::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        let netlink = Netlink::open().unwrap();
        // A private network behind the first uplink, reached from the second one's address too.
        let private = anabranch_net::netlink::Route {
            device: Some(netlink.index("up1").unwrap()),
            gateway: Some(ip("10.1.0.2")),
            ..anabranch_net::netlink::Route::to(ip("10.88.0.0"), 16)
        };
        netlink.add_route(&private).unwrap();
        setup(&options(dir.path(), &[])).unwrap();
        let device = |from: &str, to: &str| {
            let asked = std::process::Command::new("ip").args(["route", "get", to, "from", from]).output();
            let Ok(asked) = asked else { return None };
            let words = String::from_utf8(asked.stdout).unwrap();
            words.split_whitespace().skip_while(|word| *word != "dev").nth(1).map(str::to_owned)
        };
        let Some(way) = device("10.2.0.1", "10.88.0.1") else {
            return anabranch_net::testing::skip("no iproute2");
        };
        assert_eq!(way, "up1");
        assert_eq!(device("10.2.0.1", "203.0.113.1").as_deref(), Some("up2"));
        assert_eq!(device("10.1.0.1", "203.0.113.1").as_deref(), Some("up1"));
        teardown(dir.path()).unwrap().unwrap();
        assert_eq!(device("10.2.0.1", "203.0.113.1").as_deref(), Some("up1"), "as without us");
    });
}
