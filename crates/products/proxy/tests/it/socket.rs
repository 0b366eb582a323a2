//! Tests of trunk sockets between two network namespaces joined by two cables. They need root and iproute2;
//! without these, they say so and pass. They touch nothing outside these namespaces.
#![cfg(target_os = "linux")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::time::Duration;

use anabranch_net::mptcp_socket::SubflowInfo;
use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, PathManager, SockDiag, TcpState};
use anabranch_net::{Egress, Namespace};
use anabranch_proxy::socket::{Connection, Listener, SocketOptions, connect, subflows, why_single_path};
use anabranch_proxy::trunk::Transport;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::time::{sleep, timeout};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Two hosts with two networks between them, 10.79.1.0/24 and 10.79.2.0/24. The client is host 1 and the
/// server is host 2, which announces its second address.
struct Hosts {
    client: Namespace,
    server: Namespace,
}

impl Hosts {
    fn new() -> Option<Self> {
        let [client, server] = match [Namespace::new(), Namespace::new()] {
            [Ok(client), Ok(server)] => [client, server],
            [Err(e), _] | [_, Err(e)] => {
                anabranch_net::testing::refused(e);
                return None;
            }
        };
        let there = format!("/proc/{}/fd/{}", std::process::id(), server.as_fd().as_raw_fd());
        for n in [1, 2] {
            let cable = format!("link add a{n} type veth peer name b{n} netns {there}");
            for (space, commands) in [
                (&client, [cable, format!("addr add 10.79.{n}.1/24 dev a{n}"), format!("link set a{n} up")]),
                (
                    &server,
                    [
                        format!("addr add 10.79.{n}.2/24 dev b{n}"),
                        format!("link set b{n} up"),
                        "link show".into(),
                    ],
                ),
            ] {
                commands.iter().for_each(|command| run_ip(space, command));
            }
        }
        let limits = Limits { subflows: 2, add_addr_accepted: 2 };
        for space in [&client, &server] {
            space.run(|| PathManager::open().unwrap().set_limits(limits).unwrap()).unwrap();
        }
        let signal = Endpoint { flags: EndpointFlags::SIGNAL, ..Endpoint::subflow(ip("10.79.2.2"), None) };
        server.run(|| PathManager::open().unwrap().add_endpoint(&signal).unwrap()).unwrap();
        Some(Self { client, server })
    }

    fn listen(&self, runtime: &Handle, address: &str) -> Listener {
        self.server.run(|| bind(runtime, address)).unwrap()
    }

    fn connect(
        &self,
        runtime: &Handle,
        address: &str,
        options: &SocketOptions,
    ) -> std::io::Result<Connection> {
        self.client.run(|| runtime.block_on(connect(at(address), options))).unwrap()
    }
}

fn bind(runtime: &Handle, address: &str) -> Listener {
    let _inside = runtime.enter();
    Listener::bind(at(address), &SocketOptions::default()).unwrap()
}

fn run_ip(space: &Namespace, arguments: &str) {
    let run = || Command::new("ip").args(arguments.split_whitespace()).output();
    let done = space.run(run).unwrap().expect("iproute2 is installed");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

const LONG: Duration = Duration::from_secs(10);

/// Exchanges a few bytes so that further subflows may begin, and waits at most `most` for `count` subflows.
/// Returns whether there are as many.
async fn has_subflows(near: &mut Connection, far: &mut Connection, count: usize, most: Duration) -> bool {
    for (from, to) in [(true, 1_u8), (false, 2)] {
        let (one, other) = if from { (&mut *near, &mut *far) } else { (&mut *far, &mut *near) };
        one.stream.write_all(&[to; 100]).await.unwrap();
        other.stream.read_exact(&mut [0; 100]).await.unwrap();
    }
    let all_there = async {
        // A subflow whose SYN is in flight is in the kernel's list too, but has no RTT yet.
        let open = |all: Vec<SubflowInfo>| all.iter().filter(|subflow| subflow.tcp.rtt_us > 0).count();
        while subflows(&near.stream).unwrap().map_or(0, |(_, all)| open(all)) < count {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(most, all_there).await.is_ok()
}

#[test]
fn a_listener_for_one_address_gets_subflows_to_another_that_is_announced() {
    let Some(hosts) = Hosts::new() else { return };
    let runtime = runtime();
    let listener = hosts.listen(runtime.handle(), "10.79.1.2:7000");
    assert_eq!(listener.local_addr().unwrap(), at("10.79.1.2:7000"));
    let mut near = hosts.connect(runtime.handle(), "10.79.1.2:7000", &SocketOptions::default()).unwrap();
    let (mut far, peer) = runtime.block_on(listener.accept()).unwrap();
    assert_eq!((near.transport, far.transport), (Transport::Mptcp, Transport::Mptcp));
    assert_eq!(peer.ip(), ip("10.79.1.1"));
    assert!(runtime.block_on(has_subflows(&mut near, &mut far, 2, LONG)));

    // Checks the kernel's information about both subflows.
    let (info, mut all) = subflows(&near.stream).unwrap().unwrap();
    all.sort_by_key(|subflow| subflow.remote);
    assert_eq!(
        all.iter().map(|s| s.remote).collect::<Vec<_>>(),
        [at("10.79.1.2:7000"), at("10.79.2.2:7000")]
    );
    assert_eq!(all[1].local.ip(), ip("10.79.2.1"));
    assert!(all.iter().all(|s| s.tcp.rtt_us > 0 && s.tcp.snd_mss > 500), "{all:?}");
    assert_eq!((info.fallback, info.bytes_sent), (false, 100));

    // A connection that begins at the other address is closed.
    let mut wrong = hosts.connect(runtime.handle(), "10.79.2.2:7000", &SocketOptions::default()).unwrap();
    let (accepted, read) = runtime.block_on(async {
        let accepted = timeout(Duration::from_millis(300), listener.accept()).await;
        (accepted, timeout(LONG, wrong.stream.read_u8()).await.unwrap())
    });
    assert!(accepted.is_err() && read.is_err());
}

/// Shows the limit of the kernel for which the listener is made. If this fails, the kernel has no such limit
/// any more, and the listener may be simpler.
#[test]
fn a_socket_that_is_bound_to_one_address_does_not() {
    let Some(hosts) = Hosts::new() else { return };
    let runtime = runtime();
    let listener = hosts.server.run(|| {
        let _inside = runtime.enter();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&at("10.79.1.2:7000").into()).unwrap();
        socket.listen(8).unwrap();
        TcpListener::from_std(socket.into()).unwrap()
    });
    let listener = listener.unwrap();
    let mut near = hosts.connect(runtime.handle(), "10.79.1.2:7000", &SocketOptions::default()).unwrap();
    let (stream, _) = runtime.block_on(listener.accept()).unwrap();
    let mut far = Connection { stream, transport: Transport::Mptcp };
    assert!(!runtime.block_on(has_subflows(&mut near, &mut far, 2, Duration::from_secs(1))));
}

#[test]
fn where_one_end_has_no_mptcp_it_is_tcp_and_both_can_say_why() {
    for is_client_without in [true, false] {
        let Some(hosts) = Hosts::new() else { return };
        let runtime = runtime();
        let without = if is_client_without { &hosts.client } else { &hosts.server };
        without.sysctl("net.mptcp.enabled", "0").unwrap();
        let listener = hosts.listen(runtime.handle(), "0.0.0.0:7000");
        let near = hosts.connect(runtime.handle(), "10.79.1.2:7000", &SocketOptions::default()).unwrap();
        let (far, _) = runtime.block_on(listener.accept()).unwrap();
        let (lacking, other) = if is_client_without { (near, far) } else { (far, near) };
        assert_eq!((lacking.transport, other.transport), (Transport::NoMptcp, Transport::Tcp));
        let why = without.run(|| why_single_path(Transport::NoMptcp, Transport::Tcp)).unwrap().unwrap();
        assert!(why.contains("net.mptcp.enabled"), "{why}");
        let why = why_single_path(Transport::Tcp, Transport::NoMptcp).unwrap();
        assert_eq!(why, "the other end has no MPTCP");
        assert_eq!(subflows(&other.stream).unwrap(), None);
    }
    assert_eq!(why_single_path(Transport::Mptcp, Transport::Mptcp), None);
    assert!(why_single_path(Transport::Tcp, Transport::Tcp).unwrap().contains("path"));
}

#[test]
fn the_controller_and_the_address_are_those_that_were_named_or_it_is_an_error() {
    let Some(hosts) = Hosts::new() else { return };
    let runtime = runtime();
    let listener = hosts.listen(runtime.handle(), "[::]:7000");
    let options = |name: &str, from: &str| SocketOptions {
        congestion: Some(name.to_owned()),
        egress: Egress::of_address(ip(from)),
    };
    let mut near = hosts.connect(runtime.handle(), "10.79.1.2:7000", &options("reno", "10.79.1.1")).unwrap();
    assert!(near.stream.nodelay().unwrap());
    assert_eq!(near.stream.local_addr().unwrap().ip(), ip("10.79.1.1"));
    let (mut far, peer) = runtime.block_on(listener.accept()).unwrap();
    assert_eq!(peer.ip().to_canonical(), ip("10.79.1.1"), "the wildcard of IPv6 takes IPv4 too");
    assert!(runtime.block_on(has_subflows(&mut near, &mut far, 2, LONG)));
    let live = || SockDiag::open().unwrap().tcp(TcpState::LIVE).unwrap();
    let all = hosts.client.run(live).unwrap();
    let names: Vec<_> = all.iter().filter_map(|socket| socket.congestion.as_deref()).collect();
    assert_eq!(names, ["reno", "reno"], "both subflows");
    let error = |options| {
        let connected = hosts.connect(runtime.handle(), "10.79.1.2:7000", &options);
        connected.map(|_| ()).unwrap_err().to_string()
    };
    assert!(error(options("none", "10.79.1.1")).contains("`none`: the kernel has no such one"));
    assert!(error(options("reno", "192.0.2.1")).contains("192.0.2.1"));
    let _inside = runtime.enter();
    let foreign = Listener::bind(at("192.0.2.1:0"), &SocketOptions::default()).unwrap_err();
    assert_eq!(foreign.kind(), std::io::ErrorKind::AddrNotAvailable);
}

/// With tuning, the buffer would begin small, and subflows that join later would keep the small size.
#[test]
fn both_ends_may_receive_as_much_as_tuning_may_reach() {
    let Some(hosts) = Hosts::new() else { return };
    let runtime = runtime();
    let listener = hosts.listen(runtime.handle(), "10.79.1.2:7000");
    let near = hosts.connect(runtime.handle(), "10.79.1.2:7000", &SocketOptions::default()).unwrap();
    let (far, _) = runtime.block_on(listener.accept()).unwrap();
    let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    let most: usize = limits.split_whitespace().nth(2).unwrap().parse().unwrap();
    for (end, connection) in [("client", &near), ("server", &far)] {
        let size = socket2::SockRef::from(&connection.stream).recv_buffer_size().unwrap();
        assert!(size >= most / 2, "the {end} has {size} of {most}");
    }
}

/// Prints for each option whether a TCP socket and whether an MPTCP socket accept it. ENOENT means that this
/// kernel lacks an upper-layer protocol, which TCP would accept.
const OPTIONS: &str = r#"
import errno, socket
def takes(protocol, level, number, value):
    one = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    with one() as s, one() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        s.connect(listener.getsockname())
        try:
            s.setsockopt(level, number, value)
        except OSError as e:
            return e.errno == errno.ENOENT
        return True
options = ("TCP_USER_TIMEOUT", 6, 18, 1000), ("TCP_ULP", 6, 31, b"tls"), ("SO_ZEROCOPY", 1, 60, 1)
for name, *option in options:
    print(name, *(takes(protocol, *option) for protocol in (6, 262)))
"#;

/// Trunks do without these: probes detect a dead link, rustls encrypts, and bytes are copied. If this fails,
/// the kernel can do more than Linux 6.18, and trunks may use it.
#[test]
fn mptcp_has_no_user_timeout_no_tls_and_no_zero_copy() {
    let python = Command::new("python3").args(["-c", OPTIONS]).output();
    let Ok(output) = python else {
        anabranch_net::testing::skip("there is no python3");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "TCP_USER_TIMEOUT True False\nTCP_ULP True False\nSO_ZEROCOPY True False\n");
}
