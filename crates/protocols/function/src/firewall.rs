//! A firewall with a memory of flows: users begin flows; from outside comes what belongs to one, errors of
//! ICMP about one, and what is allowed. Later fragments are dropped, because they have no ports.

use crate::abi::{Side, Verdict};
use crate::flow::Flow;
use crate::function::{About, Function};
use crate::packet::{Ends, Packet};
use crate::report::Report;
use crate::settings::{Wrong, number_within, service};
use crate::table::{Plain, Table};

/// The number of sets of flows: 1,024 flows in all.
const SETS: usize = 256;
/// The most services that are allowed or denied.
const RULES_MAX: usize = 16;
/// How long a flow may be silent, unless set, milliseconds.
const IDLE_MS: u64 = 120_000;

/// A service: a protocol and a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Service {
    protocol: u16,
    port: u16,
}

const NO_SERVICE: Service = Service { protocol: 0, port: 0 };

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Nothing(u32);

#[expect(unsafe_code, reason = "it is an integer")]
// SAFETY: it is a number.
unsafe impl Plain for Nothing {}

/// A firewall.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Firewall {
    allowed: [Service; RULES_MAX],
    denied: [Service; RULES_MAX],
    /// How long a flow may be silent, milliseconds; 0 for [`IDLE_MS`].
    idle_ms: u64,
    passed: u64,
    dropped: u64,
    /// Flows that were forgotten while in use, because there was no room.
    forgotten: u64,
    flows: Table<Flow, Nothing, SETS>,
}

#[expect(unsafe_code, reason = "a firewall is integers")]
// SAFETY: it consists of numbers, services and a table of plain entries.
unsafe impl Plain for Firewall {}

fn matches(services: &[Service; RULES_MAX], ends: &Ends) -> bool {
    // ICMP has no ports.
    let port = if ends.protocol == crate::packet::ICMP { 0 } else { ends.to.port };
    let wanted = Service { protocol: u16::from(ends.protocol), port };
    services.contains(&wanted)
}

impl Firewall {
    const fn idle_ms(&self) -> u64 {
        if self.idle_ms == 0 { IDLE_MS } else { self.idle_ms }
    }

    fn is_wanted(&mut self, about: About, packet: &Packet<'_>) -> bool {
        let idle_ms = self.idle_ms();
        let Some(ends) = packet.ends() else {
            // An error belongs to the flow of the packet in it, which went the other way.
            let Some(inner) = packet.inner_ends() else { return false };
            let flow = Flow::of(inner, about.from.other());
            return self.flows.peek(&flow, about.seed, about.now_ms, idle_ms).is_some();
        };
        let flow = Flow::of(ends, about.from);
        if self.flows.get(&flow, about.seed, about.now_ms, idle_ms).is_some() {
            return true;
        }
        let may_begin = match about.from {
            Side::Inside => !matches(&self.denied, &ends),
            Side::Outside => matches(&self.allowed, &ends),
        };
        if may_begin {
            let (_, is_lost) = self.flows.add(flow, Nothing(0), about.seed, about.now_ms, idle_ms);
            self.forgotten += u64::from(is_lost);
        }
        may_begin
    }
}

impl Function for Firewall {
    const NEW: Self = Self {
        allowed: [NO_SERVICE; RULES_MAX],
        denied: [NO_SERVICE; RULES_MAX],
        idle_ms: 0,
        passed: 0,
        dropped: 0,
        forgotten: 0,
        flows: Table::new(Flow::NONE, Nothing(0)),
    };

    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        let list = match key {
            "allow" => &mut self.allowed,
            "deny" => &mut self.denied,
            "idle" => {
                self.idle_ms = 1_000 * number_within(value, 1, 86_400, "1 to 86400 seconds")?;
                return Ok(());
            }
            _ => return Err(Wrong("a firewall has allow, deny and idle")),
        };
        let (protocol, port) = service(value)?;
        let free = list.iter_mut().find(|rule| **rule == NO_SERVICE).ok_or(Wrong("16 services at most"))?;
        *free = Service { protocol: u16::from(protocol), port };
        Ok(())
    }

    fn begin(&mut self, _addresses: [u32; 2]) -> Result<(), Wrong> {
        Ok(())
    }

    fn packet(&mut self, about: About, packet: &mut Packet<'_>) -> Verdict {
        if self.is_wanted(about, packet) {
            self.passed += 1;
            Verdict::Pass
        } else {
            self.dropped += 1;
            Verdict::Drop
        }
    }

    fn report(&self, now_ms: u64, report: &mut Report<'_>) {
        report.number("passed", self.passed);
        report.number("dropped", self.dropped);
        report.number("flows", self.flows.count(now_ms, self.idle_ms()));
        report.number("forgotten", self.forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::PACKET_BYTES_MAX;
    use crate::function::Instance;
    use crate::packet::{End, TCP, UDP};
    use crate::test_packets::{echo, error_about, transport};

    const USER: End = End { address: 0x0a01_0002, port: 4_000 };
    const SERVER: End = End { address: 0xc000_0201, port: 443 };

    fn ask(of: &mut Instance<Firewall>, now_ms: u64, from: Side, bytes: &[u8]) -> Verdict {
        let mut place = [0; PACKET_BYTES_MAX];
        place[..bytes.len()].copy_from_slice(bytes);
        of.packet(now_ms, from, &mut place, bytes.len()).verdict
    }

    #[test]
    fn only_what_a_user_began_comes_in() {
        let mut wall = Instance::<Firewall>::new();
        wall.start("inside 10.1.0.1\nseed 5\nidle 10\nallow tcp/22\ndeny udp/53").unwrap();
        let (out, back) = (transport(TCP, USER, SERVER, b""), transport(TCP, SERVER, USER, b""));
        assert_eq!(ask(&mut wall, 1, Side::Outside, &back), Verdict::Drop);
        assert_eq!(ask(&mut wall, 2, Side::Inside, &out), Verdict::Pass);
        assert_eq!(ask(&mut wall, 10_000, Side::Outside, &back), Verdict::Pass);
        assert_eq!(ask(&mut wall, 20_001, Side::Outside, &back), Verdict::Drop, "it was idle");
        let ssh = transport(TCP, SERVER, End { port: 22, ..USER }, b"");
        assert_eq!(ask(&mut wall, 20_002, Side::Outside, &ssh), Verdict::Pass);
        let dns = transport(UDP, USER, End { port: 53, ..SERVER }, b"");
        assert_eq!(ask(&mut wall, 20_002, Side::Inside, &dns), Verdict::Drop);
    }

    #[test]
    fn errors_about_a_flow_come_in_and_others_do_not() {
        let mut wall = Instance::<Firewall>::new();
        wall.start("inside 10.1.0.1").unwrap();
        let out = transport(UDP, USER, SERVER, b"x");
        assert_eq!(ask(&mut wall, 1, Side::Inside, &out), Verdict::Pass);
        assert_eq!(ask(&mut wall, 1, Side::Outside, &error_about(&out, 9)), Verdict::Pass);
        let other = transport(UDP, USER, End { port: 1, ..SERVER }, b"x");
        assert_eq!(ask(&mut wall, 1, Side::Outside, &error_about(&other, 9)), Verdict::Drop);
    }

    #[test]
    fn its_own_address_answers_pings_and_others_are_flows() {
        let mut wall = Instance::<Firewall>::new();
        wall.start("inside 10.1.0.1").unwrap();
        let own = echo(true, USER.address, 0x0a01_0001, 1);
        assert_eq!(ask(&mut wall, 1, Side::Inside, &own), Verdict::Reply);
        let out = echo(true, USER.address, SERVER.address, 7);
        assert_eq!(ask(&mut wall, 1, Side::Inside, &out), Verdict::Pass);
        let back = echo(false, SERVER.address, USER.address, 7);
        assert_eq!(ask(&mut wall, 1, Side::Outside, &back), Verdict::Pass);
        assert_eq!(ask(&mut wall, 1, Side::Outside, &echo(true, 9, USER.address, 7)), Verdict::Drop);
    }

    #[test]
    fn wrong_settings_say_what_is_wrong() {
        let error = |settings| Instance::<Firewall>::new().start(settings).unwrap_err();
        assert_eq!(error("inside 10.1.0.1\nallow tcp"), ("allow tcp", service("tcp").unwrap_err()));
        assert_eq!(error("color red").0, "color red");
        assert_eq!(error("idle 0").1, Wrong("1 to 86400 seconds"));
        let mut wall = Instance::<Firewall>::new();
        let many = (0..16).try_for_each(|_| wall.start("allow tcp/1"));
        assert!(many.is_ok() && wall.start("allow tcp/1").is_err());
    }
}
