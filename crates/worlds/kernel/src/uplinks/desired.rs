//! Computes the desired configuration from the present one and the options. Makes no system calls.

use std::net::IpAddr;

use anabranch_net::netlink::{
    Address, ENDPOINTS_MAX, Endpoint, EndpointFlags, Limits, Link, MAIN_TABLE, Route, RouteKind, Rule,
};

use super::current::CurrentConfig;
use super::journal::{Journal, is_implicit, is_ours, with_ip};
use super::{Error, Options, Program, RULE_PRIORITY, Result, UPLINKS_MAX};

/// The metric that the kernel gives an IPv6 route without one.
const METRIC6: u32 = 1_024;
/// The tables that belong to the kernel: default, main and local; and 0, which means none.
const TABLES_TAKEN: [u32; 4] = [0, 253, 254, 255];

/// The desired configuration, in the order in which it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DesiredConfig {
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Endpoints that must not exist, whoever made them.
    pub(crate) withheld: Vec<Endpoint>,
    /// Addresses whose endpoints are made anew though they are there.
    pub(crate) renewed: Vec<IpAddr>,
    pub(crate) limits: Limits,
    /// Whether the journal remembers endpoints that existed before as wanted, too.
    pub(crate) remembers_all: bool,
    /// Notes for the administrator.
    pub(crate) notes: Vec<String>,
}

pub(crate) fn desired(
    options: &Options,
    current: &CurrentConfig,
    journal: &Journal,
) -> Result<DesiredConfig> {
    check_options(options)?;
    let remembers_all = options.program.is_some();
    let mut desired = DesiredConfig { remembers_all, ..DesiredConfig::default() };
    for (n, name) in options.interfaces.iter().enumerate() {
        let table = options.table_base.saturating_add(n as u32);
        check_table_is_free(table, current, journal)?;
        match add_uplink(&mut desired, current, name, table, options.backup.contains(name)) {
            Err(e @ Error::Unusable(_)) if options.program.is_some() => desired.notes.push(e.to_string()),
            added => added?,
        }
    }
    if let Some(program) = &options.program {
        adapt(&mut desired, program, current, &journal.endpoints());
    }
    cap(&mut desired, current, &journal.endpoints());
    if current.user_manager {
        desired
            .notes
            .push("net.mptcp.pm_type is 1: a program manages the paths, and endpoints are not used".into());
    }
    desired.limits = limits(&desired.endpoints, current, &journal.endpoints());
    Ok(desired)
}

fn check_options(options: &Options) -> Result<()> {
    let usage = |text: String| Err(Error::Usage(text));
    let Options { interfaces, backup, table_base, .. } = options;
    if interfaces.is_empty() && options.program.is_none() {
        return usage("no interface is named".into());
    }
    if interfaces.len() > UPLINKS_MAX {
        return usage(format!("the kernel uses {UPLINKS_MAX} uplinks at most, not {}", interfaces.len()));
    }
    if let Some(name) =
        interfaces.iter().enumerate().find(|(n, name)| interfaces[..*n].contains(name)).map(|(_, name)| name)
    {
        return usage(format!("{name} is named twice"));
    }
    if let Some(name) = backup.iter().find(|name| !interfaces.contains(name)) {
        return usage(format!(
            "{name} is to be a backup but is not among the interfaces to use: name it there too"
        ));
    }
    if !interfaces.is_empty() && interfaces.iter().all(|name| backup.contains(name)) {
        return usage("every interface is a backup: leave one that is not".into());
    }
    let last = table_base.checked_add((interfaces.len() as u32).saturating_sub(1));
    match last {
        Some(last) if !TABLES_TAKEN.iter().any(|taken| (*table_base..=last).contains(taken)) => Ok(()),
        _ => usage(format!("tables from {table_base} on include one that belongs to the kernel")),
    }
}

/// Adapts the endpoints to what a program says of them.
fn adapt(desired: &mut DesiredConfig, program: &Program, current: &CurrentConfig, ours: &[Endpoint]) {
    for endpoint in &mut desired.endpoints {
        endpoint.id = program.ids.get(&endpoint.ip).copied().unwrap_or(0);
        if program.fullmesh {
            endpoint.flags = endpoint.flags | EndpointFlags::FULLMESH;
        }
    }
    if program.leaves_others {
        let others = current.endpoints.iter().filter(|found| !is_ours(ours, found));
        let others: Vec<_> = others.filter(|found| !is_implicit(found)).collect();
        for endpoint in desired.endpoints.extract_if(.., |e| others.iter().any(|other| other.ip == e.ip)) {
            let other = others.iter().find(|other| other.ip == endpoint.ip);
            desired.notes.extend(other.map(|other| {
                let Endpoint { ip, id, flags, .. } = other;
                format!(
                    "{ip} has an endpoint that another program made (number {id}, {flags}): it is left as \
                     it is"
                )
            }));
        }
    }
    let index = |name: &String| current.links.iter().find(|link| link.name == *name).map(|link| link.index);
    let without: Vec<_> = program.without.iter().filter_map(index).collect();
    let is_out = |e: &mut Endpoint| e.device.is_some_and(|device| without.contains(&device));
    desired.withheld = desired.endpoints.extract_if(.., is_out).collect();
    let is_kept = |found: &&Endpoint| {
        let is_usable = with_ip(&desired.endpoints, found).is_some();
        program.kept.contains(&found.ip) && is_ours(ours, found) && !is_usable
    };
    let kept: Vec<_> = current.endpoints.iter().filter(is_kept).copied().collect();
    desired.withheld.retain(|e| with_ip(&kept, e).is_none());
    desired.endpoints.extend(kept);
    desired.renewed.clone_from(&program.renewed);
}

/// Leaves out endpoints that the kernel has no room for beside those of others: first backups, then those
/// that are not there yet.
fn cap(desired: &mut DesiredConfig, current: &CurrentConfig, ours: &[Endpoint]) {
    let max = ENDPOINTS_MAX as usize;
    let is_removed = |e: &Endpoint| !is_implicit(e) && with_ip(&desired.withheld, e).is_some();
    let is_other =
        |e: &&Endpoint| !is_ours(ours, e) && with_ip(&desired.endpoints, e).is_none() && !is_removed(e);
    let others = current.endpoints.iter().filter(is_other).count();
    // A kernel that has more already has room for more.
    if others > max || desired.endpoints.len() <= max - others {
        return;
    }
    let mut order = desired.endpoints.clone();
    order.sort_by_key(|e| (e.flags.has(EndpointFlags::BACKUP), with_ip(&current.endpoints, e).is_none()));
    let left_out = order.split_off(max - others);
    desired.endpoints.retain(|e| !left_out.contains(e));
    desired.notes.extend(left_out.iter().map(|e| {
        format!(
            "{} gets no endpoint: the kernel has {max} at most, and {others} are not of this set-up",
            e.ip
        )
    }));
}

/// Refuses a routing table that has routes other than ours.
fn check_table_is_free(table: u32, current: &CurrentConfig, journal: &Journal) -> Result<()> {
    let ours = journal.routes();
    let foreign = current.routes.iter().find(|route| route.table == table && !ours.contains(route));
    foreign.map_or(Ok(()), |route| {
        let text = format!(
            "routing table {table} is in use ({route}): remove its routes if nothing needs them, or \
             choose other tables with --table-base if you run `kernel setup`"
        );
        Err(Error::Unusable(text))
    })
}

/// Adds all that one uplink needs.
pub(super) fn add_uplink(
    desired: &mut DesiredConfig,
    current: &CurrentConfig,
    name: &str,
    table: u32,
    backup: bool,
) -> Result<()> {
    let unfit = |text: String| Err(Error::Unusable(format!("{name} {text}")));
    let Some(link) = current.links.iter().find(|link| link.name == name) else {
        let names: Vec<_> = current.links.iter().filter(|l| !l.loopback).map(|l| l.name.as_str()).collect();
        return unfit(format!("does not exist; there is {}", names.join(", ")));
    };
    if link.loopback {
        return unfit("leads only back to this host".into());
    }
    if !link.up {
        return unfit(format!("is down: switch it on (ip link set {name} up) and try again"));
    }
    if !link.carrier {
        return unfit("has no carrier: is the cable in, the network joined?".into());
    }
    let addresses = [false, true].map(|ipv6| (ipv6, address(current, link, ipv6)));
    if addresses.iter().all(|(_, address)| address.is_none()) {
        return unfit("has no address that connections could use".into());
    }
    let (mut used, mut notes) = (0, Vec::new());
    for (ipv6, address) in addresses {
        let Some(address) = address else { continue };
        let Some(default) = default_route(current, link.index, ipv6) else {
            if current.leads.contains(&address.ip) {
                used += 1;
                desired.endpoints.push(endpoint(&address, backup));
                continue;
            }
            let version = if ipv6 { "IPv6" } else { "IPv4" };
            notes.push(format!(
                "{name}: {} is left out, for the main table has no {version} default route through {name}",
                address.ip
            ));
            continue;
        };
        used += 1;
        add_family(desired, current, &address, &default, table, backup);
    }
    if used == 0 {
        return unfit(format!(
            "has no default route in the main table, so its gateway is unknown: its DHCP client or \
             `ip route add default via GATEWAY dev {name} metric 700` makes one"
        ));
    }
    desired.notes.append(&mut notes);
    Ok(())
}

fn endpoint(address: &Address, backup: bool) -> Endpoint {
    let mut endpoint = Endpoint::subflow(address.ip, Some(address.device));
    if backup {
        endpoint.flags = endpoint.flags | EndpointFlags::BACKUP;
    }
    endpoint
}

/// Returns the address that the kernel would choose for a connection through the link.
fn address(current: &CurrentConfig, link: &Link, ipv6: bool) -> Option<Address> {
    let temporary = current.temporary.get(&link.index).copied().unwrap_or(false);
    let fits = |a: &&Address| a.device == link.index && a.ip.is_ipv6() == ipv6 && a.global && a.is_usable();
    let all: Vec<_> = current.addresses.iter().filter(fits).collect();
    // A secondary IPv6 address is a temporary one. An address of a private network (RFC 4193) comes last.
    let other = |a: &&Address| {
        let private = matches!(a.ip, IpAddr::V6(ip) if ip.is_unique_local());
        (private, a.is_secondary() != (ipv6 && temporary))
    };
    all.into_iter().min_by_key(other).copied()
}

fn in_main(current: &CurrentConfig, device: u32, ipv6: bool) -> impl Iterator<Item = &Route> {
    current.routes.iter().filter(move |route| {
        let fits = route.table == MAIN_TABLE && route.kind == RouteKind::Unicast;
        fits && route.device == Some(device) && route.dst.0.is_ipv6() == ipv6
    })
}

fn default_route(current: &CurrentConfig, device: u32, ipv6: bool) -> Option<Route> {
    in_main(current, device, ipv6)
        .filter(|route| route.is_default())
        .min_by_key(|route| route.metric)
        .copied()
}

/// Adds all that one address of an uplink needs.
fn add_family(
    desired: &mut DesiredConfig,
    current: &CurrentConfig,
    address: &Address,
    default: &Route,
    table: u32,
    backup: bool,
) {
    let ipv6 = address.ip.is_ipv6();
    let metric = if ipv6 { METRIC6 } else { 0 };
    let template = Route { device: Some(address.device), table, metric, ..Route::to(default.dst.0, 0) };
    // The networks of the interface come first, because the gateway is in one of them.
    for route in in_main(current, address.device, ipv6) {
        let link_local = matches!(route.dst.0, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if route.is_default() || route.gateway.is_some() || link_local {
            continue;
        }
        let connected = Route { dst: route.dst, source: route.source, ..template };
        if !desired.routes.contains(&connected) {
            desired.routes.push(connected);
        }
    }
    desired.routes.push(Route { gateway: default.gateway, onlink: default.onlink, ..template });
    let mut special = Rule::from_address(address.ip, MAIN_TABLE, RULE_PRIORITY - 1);
    special.suppress_prefix = Some(0);
    desired.rules.extend([special, Rule::from_address(address.ip, table, RULE_PRIORITY)]);
    desired.endpoints.push(endpoint(address, backup));
}

/// Computes the limits. A connection begins on one endpoint and joins from the others. It also joins once to
/// each address that the peer announces. Assumes as many of those as there are uplinks, since the peer has
/// the same reasons to have several.
fn limits(endpoints: &[Endpoint], current: &CurrentConfig, old: &[Endpoint]) -> Limits {
    let count = |ipv6: bool| {
        let others = current.endpoints.iter().filter(|e| e.flags.has(EndpointFlags::SUBFLOW));
        let others = others.filter(|e| endpoints.iter().chain(old).all(|ours| ours.ip != e.ip));
        endpoints.iter().chain(others).filter(|e| e.ip.is_ipv6() == ipv6).count() as u32
    };
    let own = count(false).max(count(true));
    let at_least = |now: u32, needed: u32| now.max(needed.min(ENDPOINTS_MAX));
    Limits {
        subflows: at_least(current.limits.subflows, own.saturating_sub(1) + own),
        add_addr_accepted: at_least(current.limits.add_addr_accepted, own),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Two uplinks, `wlan0` with both families and `wwan0` without a gateway.
    pub(crate) fn current() -> CurrentConfig {
        let link = |index, name: &str| Link {
            index,
            name: name.into(),
            up: true,
            carrier: true,
            loopback: index == 1,
            ..Link::default()
        };
        let address = |device, text: &str, prefix| Address {
            device,
            ip: ip(text),
            prefix,
            peer: None,
            global: true,
            flags: 0x80,
        };
        let route = |device, dst: &str, prefix, gateway: Option<&str>, metric| Route {
            device: Some(device),
            gateway: gateway.map(ip),
            metric,
            ..Route::to(ip(dst), prefix)
        };
        CurrentConfig {
            namespace: (1, 2),
            links: vec![link(1, "lo"), link(2, "wlan0"), link(3, "wwan0")],
            addresses: vec![
                address(2, "192.168.1.7", 24),
                address(2, "2001:db8::7", 64),
                address(3, "10.9.8.7", 32),
            ],
            routes: vec![
                route(2, "0.0.0.0", 0, Some("192.168.1.1"), 600),
                route(2, "192.168.1.0", 24, None, 600),
                route(3, "0.0.0.0", 0, None, 700),
                route(2, "fe80::", 64, None, 256),
                route(2, "2001:db8::", 64, None, 256),
                route(2, "::", 0, Some("fe80::1"), 600),
            ],
            limits: Limits { subflows: 2, add_addr_accepted: 0 },
            enabled: "1".into(),
            ..CurrentConfig::default()
        }
    }

    pub(crate) fn options() -> Options {
        Options {
            backup: vec!["wwan0".into()],
            table_base: 100,
            ..Options::new(vec!["wlan0".into(), "wwan0".into()])
        }
    }

    fn refusal(options: &Options, current: &CurrentConfig) -> String {
        desired(options, current, &Journal::default()).unwrap_err().to_string()
    }

    #[test]
    fn two_uplinks() {
        let desired = desired(&options(), &current(), &Journal::default()).unwrap();
        let routes: Vec<_> = desired.routes.iter().map(Route::to_string).collect();
        let expected = [
            "192.168.1.0/24 dev 2 table 100",
            "default via 192.168.1.1 dev 2 table 100",
            "2001:db8::/64 dev 2 table 100 metric 1024",
            "default (IPv6) via fe80::1 dev 2 table 100 metric 1024",
            "default dev 3 table 101",
        ];
        assert_eq!(routes, expected);
        let rules: Vec<_> = desired.rules.iter().map(Rule::to_string).collect();
        let expected = [
            "26226: from 192.168.1.7 lookup main suppress_prefixlength 0",
            "26227: from 192.168.1.7 lookup 100",
            "26226: from 2001:db8::7 lookup main suppress_prefixlength 0",
            "26227: from 2001:db8::7 lookup 100",
            "26226: from 10.9.8.7 lookup main suppress_prefixlength 0",
            "26227: from 10.9.8.7 lookup 101",
        ];
        assert_eq!(rules, expected);
        let flags: Vec<_> = desired.endpoints.iter().map(|e| format!("{} {}", e.ip, e.flags)).collect();
        assert_eq!(flags, ["192.168.1.7 subflow", "2001:db8::7 subflow", "10.9.8.7 subflow backup"]);
        assert_eq!(desired.limits, Limits { subflows: 3, add_addr_accepted: 2 });
        assert!(desired.notes.is_empty());
    }

    #[test]
    fn a_program_takes_what_can_be_used_and_what_leads_to_its_servers() {
        let mut current = current();
        // There is no default route through wwan0, but packets from its address leave by it.
        current.routes.remove(2);
        current.leads = vec![ip("10.9.8.7")];
        let named = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let options = Options::for_program(named(&["wlan0", "wwan0", "usb0"]), vec![ip("203.0.113.1")]);
        let desired = desired(&options, &current, &Journal::default()).unwrap();
        let ips: Vec<_> = desired.endpoints.iter().map(|e| (e.ip, e.device)).collect();
        assert_eq!(
            ips,
            [(ip("192.168.1.7"), Some(2)), (ip("2001:db8::7"), Some(2)), (ip("10.9.8.7"), Some(3))]
        );
        assert_eq!(desired.routes.len(), 4, "wwan0 needs none");
        assert!(desired.routes.iter().all(|route| route.table == options.table_base));
        assert_eq!(desired.notes, ["usb0 does not exist; there is wlan0, wwan0"]);

        let mut options = options;
        options.program.as_mut().unwrap().without = named(&["wlan0"]);
        let less = super::desired(&options, &current, &Journal::default()).unwrap();
        assert_eq!(less.endpoints.iter().map(|e| e.device).collect::<Vec<_>>(), [Some(3)]);
        assert_eq!((less.routes, less.rules), (desired.routes, desired.rules));
        assert_eq!(less.withheld.len(), 2);
        options.program.as_mut().unwrap().without = named(&["wlan0", "wwan0"]);
        let none = super::desired(&options, &current, &Journal::default()).unwrap();
        assert_eq!((none.endpoints.len(), none.limits), (0, current.limits));
    }

    #[test]
    fn limits_are_never_lowered() {
        let mut current = current();
        current.limits = Limits { subflows: 8, add_addr_accepted: 1 };
        let limits = desired(&options(), &current, &Journal::default()).unwrap().limits;
        assert_eq!(limits, Limits { subflows: 8, add_addr_accepted: 2 });
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let whole = current();
        let mut current = whole.clone();
        current.links[2].up = false;
        assert_eq!(
            refusal(&options(), &current),
            "wwan0 is down: switch it on (ip link set wwan0 up) and try again"
        );
        let mut current = whole.clone();
        current.links[1].carrier = false;
        assert!(refusal(&options(), &current).starts_with("wlan0 has no carrier"));
        let mut current = whole.clone();
        current.addresses.pop();
        assert_eq!(refusal(&options(), &current), "wwan0 has no address that connections could use");
        let mut current = whole.clone();
        current.routes.remove(2);
        assert!(refusal(&options(), &current).starts_with("wwan0 has no default route in the main table"));
        let mut current = whole.clone();
        current.routes[5].metric = 0;
        current.routes.remove(0);
        let notes = desired(&options(), &current, &Journal::default()).unwrap().notes;
        assert!(notes[0].starts_with("wlan0: 192.168.1.7 is left out"), "{notes:?}");
        let mut current = whole.clone();
        current.routes.push(Route { table: 101, ..Route::to(ip("10.0.0.0"), 8) });
        assert!(
            refusal(&options(), &current).starts_with("routing table 101 is in use (10.0.0.0/8 table 101)")
        );

        let with = |interfaces: &[&str], backup: &[&str], table_base| Options {
            backup: backup.iter().map(|name| (*name).into()).collect(),
            table_base,
            ..Options::new(interfaces.iter().map(|name| (*name).into()).collect())
        };
        for (options, says) in [
            (with(&["eth9"], &[], 100), "eth9 does not exist; there is wlan0, wwan0"),
            (with(&["lo"], &[], 100), "lo leads only back to this host"),
            (with(&[], &[], 100), "no interface is named"),
            (with(&["wlan0", "wlan0"], &[], 100), "wlan0 is named twice"),
            (with(&["wlan0"], &["wwan0"], 100), "wwan0 is to be a backup but"),
            (with(&["wlan0"], &["wlan0"], 100), "every interface is a backup"),
            (with(&["wlan0", "wwan0"], &[], 252), "tables from 252 on include"),
            (with(&["wlan0", "wwan0"], &[], u32::MAX), "tables from 4294967295 on include"),
        ] {
            assert!(refusal(&options, &whole).starts_with(says), "{}", refusal(&options, &whole));
        }
    }

    #[test]
    fn the_kernels_choice_of_an_address() {
        let mut current = current();
        let mut add = |text: &str, flags| {
            let one = Address { ip: ip(text), flags, ..current.addresses[1] };
            current.addresses.insert(0, one);
        };
        add("2001:db8::dead", 0x20);
        add("2001:db8::7e", 0x01);
        let choose = |current: &CurrentConfig| address(current, &current.links[1], true).unwrap().ip;
        assert_eq!(choose(&current), ip("2001:db8::7"));
        current.temporary.insert(2, true);
        assert_eq!(choose(&current), ip("2001:db8::7e"));
        current.addresses.insert(0, Address { ip: ip("fd00::7"), flags: 0x01, ..current.addresses[0] });
        assert_eq!(choose(&current), ip("2001:db8::7e"));
    }
}
