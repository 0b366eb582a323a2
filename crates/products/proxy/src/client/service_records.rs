//! Servers that DNS names: the service records (RFC 2782) of `_anabranch-proxy._tcp`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::random::random;
use crate::trunk::Destination;

/// The least and the longest time until records are looked up again, whatever their own time to live says.
const AGAIN_MIN: Duration = Duration::from_secs(30);
const AGAIN_MAX: Duration = Duration::from_secs(3_600);
/// The time that a DNS server has for an answer, and how often each is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 2;
const DNS_PORT: u16 = 53;
const UDP_BYTES_MAX: usize = 4_096;

/// The servers of a name, and when to look again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) servers: Vec<Destination>,
    pub(super) again: Duration,
}

/// Looks up the servers of a name with the host's own DNS servers.
///
/// # Errors
/// If no DNS server answers, or if the name has no such record.
pub(super) async fn look_up(name: &str) -> io::Result<Found> {
    look_up_at(&dns_servers("/etc/resolv.conf".as_ref()), name).await
}

/// Returns the DNS servers of a file like /etc/resolv.conf; the host itself if it names none.
fn dns_servers(file: &Path) -> Vec<SocketAddr> {
    let config = std::fs::read(file).ok().and_then(|text| resolv_conf::Config::parse(text).ok());
    let named = config.map(|config| config.nameservers).unwrap_or_default();
    let servers: Vec<_> =
        named.into_iter().map(|server| SocketAddr::new(IpAddr::from(server), DNS_PORT)).collect();
    if servers.is_empty() { vec![(Ipv4Addr::LOCALHOST, DNS_PORT).into()] } else { servers }
}

async fn look_up_at(dns: &[SocketAddr], name: &str) -> io::Result<Found> {
    let query = format!("_anabranch-proxy._tcp.{}", name.trim_end_matches('.'));
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for _ in 0..ROUNDS {
        for server in dns {
            match timeout(TIMEOUT, ask(*server, &query)).await {
                Ok(Ok(answer)) => return read(&query, &answer),
                Ok(Err(e)) => failure = e,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
    }
    Err(failure)
}

fn malformed(error: simple_dns::SimpleDnsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Asks one DNS server over UDP, and over TCP if the answer is too long for that (RFC 1035 section 4.2).
/// Returns the answer to this question; others are dropped.
async fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<u8>> {
    let id = u16::from_be_bytes(random().ok_or_else(|| io::Error::other("there are no random numbers"))?);
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let of = Name::new(name).map_err(malformed)?;
    packet.questions.push(Question::new(of, QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN), false));
    let query = packet.build_bytes_vec().map_err(malformed)?;
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&query).await?;
    let mut bytes = vec![0; UDP_BYTES_MAX];
    loop {
        let len = socket.recv(&mut bytes).await?;
        let Ok(answer) = Packet::parse(&bytes[..len]) else { continue };
        if !is_answer(&answer, id, name) {
            continue;
        }
        if !answer.has_flags(PacketFlag::TRUNCATION) {
            bytes.truncate(len);
            return Ok(bytes);
        }
        break;
    }
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes()[..], &query].concat()).await?;
    let mut bytes = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut bytes).await?;
    let is_right = Packet::parse(&bytes).is_ok_and(|answer| is_answer(&answer, id, name));
    if is_right { Ok(bytes) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Whether a message answers this question.
fn is_answer(answer: &Packet<'_>, id: u16, name: &str) -> bool {
    let asks = |question: &Question<'_>| question.qname.to_string().eq_ignore_ascii_case(name);
    answer.id() == id && answer.has_flags(PacketFlag::RESPONSE) && answer.questions.iter().any(asks)
}

/// Returns the servers of an answer.
fn read(name: &str, answer: &[u8]) -> io::Result<Found> {
    let answer = Packet::parse(answer).map_err(malformed)?;
    let none = |why: &str| Err(io::Error::new(io::ErrorKind::NotFound, format!("{name} {why}")));
    match answer.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return none("does not exist"),
        code => return none(&format!("cannot be looked up: {code:?}")),
    }
    let records: Vec<_> = answer
        .answers
        .iter()
        .filter_map(|record| match &record.rdata {
            RData::SRV(service) => Some((service, record.ttl)),
            _ => None,
        })
        .collect();
    // Only the lowest priority counts. Weights say how load is spread, which servers announce themselves. The
    // target "." says that there is no service.
    let first = records.iter().map(|(service, _)| service.priority).min();
    let best = records.iter().filter(|(service, _)| Some(service.priority) == first);
    let servers: Vec<Destination> = best
        .filter_map(|(service, _)| {
            let target = service.target.to_string();
            Destination::from_name(target.trim_end_matches('.').as_bytes(), service.port).ok()
        })
        .collect();
    if servers.is_empty() {
        return none("names no server");
    }
    let lives = records.iter().map(|(_, ttl)| u64::from(*ttl)).min().unwrap_or(0);
    Ok(Found { servers, again: Duration::from_secs(lives).clamp(AGAIN_MIN, AGAIN_MAX) })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Socket;
    use std::thread;

    use simple_dns::ResourceRecord;
    use simple_dns::rdata::SRV;

    use super::*;

    const NAME: &str = "_anabranch-proxy._tcp.proxy.example";

    /// The answer to a query, with these records: priority, port, target.
    fn answer(query: &[u8], records: &[(u16, u16, &'static str)]) -> Vec<u8> {
        let query = Packet::parse(query).unwrap();
        let mut packet = Packet::new_reply(query.id());
        packet.questions.clone_from(&query.questions);
        for (priority, port, target) in records {
            let target = Name::new_unchecked(target);
            let service = SRV { priority: *priority, weight: 1, port: *port, target };
            let name = Name::new_unchecked(NAME);
            packet.answers.push(ResourceRecord::new(name, CLASS::IN, 45, RData::SRV(service)));
        }
        packet.build_bytes_vec_compressed().unwrap()
    }

    /// A DNS server that answers each query with some datagrams.
    fn dns(answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
        let socket = Socket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                for answer in answers(&bytes[..len]) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        address
    }

    fn look(dns: &[SocketAddr]) -> io::Result<Found> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(look_up_at(dns, "proxy.example"))
    }

    #[test]
    fn the_records_of_the_lowest_priority_name_the_servers() {
        let records = &[(10, 26_228, "a.example"), (20, 1, "c.example"), (10, 443, "b.example")];
        let server = dns(move |query| {
            // Datagrams that answer nothing come first.
            let mut forged = answer(query, &[(0, 1, "evil.example")]);
            forged[0] ^= 1;
            vec![vec![1, 2, 3], forged, query.to_vec(), answer(query, records)]
        });
        let found = look(&[server]).unwrap();
        let servers = ["a.example:26228", "b.example:443"].map(|name| name.parse().unwrap());
        assert_eq!(found, Found { servers: servers.to_vec(), again: Duration::from_secs(45) });
    }

    #[test]
    fn no_service_no_name_and_nonsense_are_errors() {
        let none = look(&[dns(|query| vec![answer(query, &[(0, 0, ".")])])]).unwrap_err();
        assert!(none.to_string().contains("names no server"), "{none}");
        let empty = look(&[dns(|query| vec![answer(query, &[])])]).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::NotFound);
        let unknown = look(&[dns(|query| {
            let mut bytes = answer(query, &[]);
            bytes[3] |= 3;
            vec![bytes]
        })])
        .unwrap_err();
        assert!(unknown.to_string().contains("does not exist"), "{unknown}");
        // A DNS server that refuses is followed by the next one.
        let closed = Socket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let right = dns(|query| vec![answer(query, &[(1, 5, "a.example")])]);
        assert_eq!(look(&[closed, right]).unwrap().servers.len(), 1);
    }

    #[test]
    fn the_hosts_own_dns_servers_are_asked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        std::fs::write(&file, "search example\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n").unwrap();
        let servers: Vec<String> = dns_servers(&file).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.53:53", "[2001:db8::53]:53"]);
        assert_eq!(dns_servers(&dir.path().join("none")), ["127.0.0.1:53".parse().unwrap()]);
    }
}
