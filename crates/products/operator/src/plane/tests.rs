//! A plane with native functions, in virtual time: the same code that modules have.

use anabranch_function::abi::ABI;
use anabranch_function::firewall::Firewall;
use anabranch_function::function::Instance;
use anabranch_function::packet::echo_request;

use super::*;

const USER: Mac = Mac([0x02, 0, 0, 0, 0, 0xaa]);
const SERVER: Mac = Mac([0x02, 0, 0, 0, 0, 0xbb]);
const USER_IP: u32 = 0x0a01_0002;
const SERVER_IP: u32 = 0x0a02_0009;

/// A firewall that is compiled into this test; a packet of `poison` bytes kills it.
struct Native(Box<Instance<Firewall>>, usize);

impl Handle for Native {
    fn packet(
        &mut self,
        now_ms: u64,
        from: Side,
        place: &mut [u8; PACKET_BYTES_MAX],
        len: usize,
    ) -> std::result::Result<Answer, String> {
        if len == self.1 { Err("poison".into()) } else { Ok(self.0.packet(now_ms, from, place, len)) }
    }

    fn report(&mut self) -> Result<String> {
        let mut place = [0; 1_024];
        let len = self.0.report(&mut place);
        Ok(String::from_utf8_lossy(&place[..len]).into_owned())
    }

    fn state(&mut self) -> Result<Vec<u8>> {
        Ok(vec![ABI as u8])
    }
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn spec(name: &str, n: u8) -> Spec {
    Spec {
        name: name.into(),
        function: "firewall".into(),
        module: String::new(),
        settings: vec![],
        inside: format!("10.1.0.{n}/24").parse().unwrap(),
        outside: Some(format!("10.2.0.{n}/24").parse().unwrap()),
        gateway: Some("10.2.0.254".parse().unwrap()),
        mac: Mac([2, 0, 0, 0, 0, n]),
        seed: 7,
    }
}

struct Bed {
    plane: Plane,
    sent: Vec<(Side, Vec<u8>)>,
}

impl Bed {
    fn new() -> Self {
        let mut bed = Self { plane: Plane::new(), sent: Vec::new() };
        bed.add(&spec("a", 1)).unwrap();
        bed
    }

    fn add(&mut self, spec: &Spec) -> Result {
        let mut wall = Box::new(Instance::<Firewall>::new());
        wall.start(&spec.to_lines()).unwrap();
        let sent = &mut self.sent;
        let mut send = |side: Side, frame: &[u8]| sent.push((side, frame.to_vec()));
        self.plane.add(at(0), spec, Box::new(Native(wall, 99)), 0, false, &mut send)
    }

    /// Hands in a frame, and returns what was sent.
    fn come(&mut self, ms: u64, side: Side, frame: &[u8]) -> Vec<(Side, Vec<u8>)> {
        let sent = &mut self.sent;
        sent.clear();
        let mut send = |side: Side, frame: &[u8]| sent.push((side, frame.to_vec()));
        self.plane.handle(at(ms), side, frame, &mut send);
        std::mem::take(&mut self.sent)
    }

    fn counters(&mut self) -> Counters {
        self.plane.look(at(0), "a").unwrap().counters
    }
}

fn frame(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    Header { to, from, ethertype: IPV4 }.write(&mut frame);
    frame.extend(packet);
    // As Ethernet does.
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ping(to: u32, sequence: u16) -> Vec<u8> {
    frame(Mac([2, 0, 0, 0, 0, 1]), USER, &echo_request(USER_IP, to, 5, sequence))
}

#[test]
fn who_asks_for_an_address_is_told_and_pings_are_answered() {
    let mut bed = Bed::new();
    assert_eq!(bed.sent.len(), 2, "it says at both sides where it is");
    let ask = |ip: [u8; 4]| Arp::request(USER, USER_IP.into(), ip.into()).to_frame(Mac::BROADCAST);
    let sent = bed.come(1, Side::Inside, &ask([10, 1, 0, 1]));
    let answer = Arp::parse(&sent[0].1).unwrap();
    assert_eq!((answer.mac, answer.target_mac, answer.is_request), (Mac([2, 0, 0, 0, 0, 1]), USER, false));
    assert!(bed.come(1, Side::Inside, &ask([10, 1, 0, 7])).is_empty());
    assert!(bed.come(1, Side::Inside, &ask([10, 2, 0, 1])).is_empty(), "that is at the other side");
    let sent = bed.come(2, Side::Inside, &ping(0x0a01_0001, 1));
    assert_eq!((sent[0].0, Header::parse(&sent[0].1).unwrap().to), (Side::Inside, USER));
    assert_eq!(sent[0].1.len(), HEADER_BYTES + 28, "without the padding");
}

#[test]
fn a_packet_waits_for_its_next_hop_and_comes_back() {
    let mut bed = Bed::new();
    for sequence in 0..3 {
        let sent = bed.come(1, Side::Inside, &ping(SERVER_IP, sequence));
        assert_eq!(sent.len(), usize::from(sequence == 0), "one request");
    }
    let arp = Arp {
        is_request: false,
        mac: SERVER,
        sender: SERVER_IP.into(),
        target: [10, 2, 0, 1].into(),
        target_mac: Mac([2, 0, 0, 0, 0, 1]),
    };
    let sent = bed.come(2, Side::Outside, &arp.to_frame(Mac([2, 0, 0, 0, 0, 1])));
    assert_eq!(sent.len(), 3);
    let (side, out) = &sent[0];
    assert_eq!((*side, Header::parse(out).unwrap().to, out[HEADER_BYTES + 8]), (Side::Outside, SERVER, 63));
    // A packet for elsewhere goes to the gateway.
    let sent = bed.come(3, Side::Inside, &ping(0x0808_0808, 9));
    assert_eq!(Arp::parse(&sent[0].1).unwrap().target, Ipv4Addr::new(10, 2, 0, 254));
    // The answer to the ping is an open flow; one with another identifier is none.
    let mut reply = echo_request(SERVER_IP, USER_IP, 5, 0);
    reply[20] = 0;
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let user = Arp::request(USER, USER_IP.into(), [10, 1, 0, 1].into());
    bed.come(4, Side::Inside, &user.to_frame(Mac::BROADCAST));
    assert_eq!(bed.come(5, Side::Outside, &frame(mac, SERVER, &reply)).len(), 1);
    reply[25] = 6;
    assert!(bed.come(5, Side::Outside, &frame(mac, SERVER, &reply)).is_empty());
    assert_eq!(bed.counters(), Counters { came: 6, passed: 5, replied: 0, dropped: 1, lost: 0 });
}

#[test]
fn packets_wait_while_it_stands_still_and_go_on_in_order() {
    let mut bed = Bed::new();
    assert_eq!(bed.plane.hold(at(5), "a").unwrap(), (vec![ABI as u8], 5));
    assert!(bed.plane.hold(at(5), "a").is_err());
    for sequence in 0..WAITING_MAX as u16 + 3 {
        assert!(bed.come(6, Side::Inside, &ping(0x0a01_0001, sequence)).is_empty());
    }
    let mut answers = Vec::new();
    let mut send = |_: Side, frame: &[u8]| answers.push(frame[HEADER_BYTES + 27]);
    bed.plane.go_on(at(7), "a", &mut send).unwrap();
    assert_eq!((answers.len(), &answers[..3]), (WAITING_MAX, &[0, 1, 2][..]));
    assert_eq!(bed.counters().lost, 3);
    // One that has left answers nothing, and keeps what still comes.
    bed.plane.hold(at(8), "a").unwrap();
    bed.plane.leave("a").unwrap();
    assert!(bed.come(9, Side::Inside, &ping(0x0a01_0001, 1)).is_empty());
    let ask = Arp::request(USER, USER_IP.into(), [10, 1, 0, 1].into());
    assert!(bed.come(9, Side::Inside, &ask.to_frame(Mac::BROADCAST)).is_empty(), "the other host answers");
    assert_eq!(bed.plane.take_waiting("a").unwrap().len(), 2);
}

#[test]
fn a_function_that_fails_harms_itself_alone() {
    let mut bed = Bed::new();
    bed.add(&spec("b", 2)).unwrap();
    let mut poison = vec![0x45, 0, 0, 99];
    poison.resize(99, 0);
    bed.come(1, Side::Inside, &frame(Mac([2, 0, 0, 0, 0, 1]), USER, &poison));
    assert_eq!(bed.plane.look(at(1), "a").unwrap().phase, Phase::Failed("poison".into()));
    assert!(bed.come(2, Side::Inside, &ping(0x0a01_0001, 1)).is_empty());
    assert!(bed.plane.report("a").is_err() && bed.plane.hold(at(2), "a").is_err());
    let other = frame(Mac([2, 0, 0, 0, 0, 2]), USER, &echo_request(USER_IP, 0x0a01_0002, 5, 1));
    assert_eq!(bed.come(3, Side::Inside, &other).len(), 1);
}

#[test]
fn names_and_addresses_are_taken_once_and_free_again() {
    let mut bed = Bed::new();
    let taken = |spec: Spec, bed: &mut Bed| assert!(matches!(bed.add(&spec), Err(Error::Refused(_))));
    taken(spec("a", 9), &mut bed);
    taken(Spec { mac: Mac([2, 0, 0, 0, 0, 9]), ..spec("b", 1) }, &mut bed);
    taken(Spec { mac: Mac([2, 0, 0, 0, 0, 1]), ..spec("b", 9) }, &mut bed);
    assert!(bed.plane.remove("a") && !bed.plane.remove("a"));
    bed.add(&spec("b", 1)).unwrap();
    assert_eq!((bed.plane.len(), bed.plane.entries.len()), (1, 1));
}

#[test]
fn what_is_no_packet_is_counted() {
    let mut bed = Bed::new();
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    for len in 0..HEADER_BYTES {
        bed.come(1, Side::Inside, &vec![0; len]);
    }
    bed.come(1, Side::Inside, &frame(USER, SERVER, &[0x45; 40]));
    assert_eq!(bed.plane.unclaimed(), HEADER_BYTES as u64 + 1);
    let mut long = echo_request(USER_IP, SERVER_IP, 1, 1);
    long[2] = 9;
    bed.come(1, Side::Inside, &frame(mac, USER, &long));
    let mut old = echo_request(USER_IP, SERVER_IP, 1, 1);
    old[8] = 1;
    bed.come(1, Side::Inside, &frame(mac, USER, &old));
    assert_eq!(bed.counters().lost, 2);
}
