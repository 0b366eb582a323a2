//! How exact and how fast the emulator is on this machine.
//!
//! `cargo run --release -p anabranch-net --example emulator -- [delay] [rate] [tbf] [offload] [packets]
//! [many] [--seconds N] [--probes N] [--emulators N] [--apart]` (without names: all). Needs root and
//! iproute2; every device is in a namespace that ends with the program.
//!
//! * `delay`: round trips of small UDP probes, 200 a second, over links that do nothing but delay.
//! * `rate`: what one TCP connection carries over a rated link, beside what it could: payload of a packet to
//!   its size. The queue holds two bandwidth-delay products, so that the link is never idle.
//! * `tbf`: the same through `tc qdisc tbf` on a veth pair.
//! * `offload`: one TCP connection over links that do nothing, in super-packets.
//! * `packets`: the same in packets of 1,500 bytes; CPU time is that of the emulator's thread, in which the
//!   kernel also receives what is written.
//! * `many`: emulators side by side in one thread (`--apart`: in one each), each with two links of 16 Mbit/s,
//!   and two TCP connections on each.
//!
//! Round trips include the time in which the kernel wakes the probing threads, which on a busy machine says
//! nothing about the emulator: `chrt -f 5` before the command makes them real-time, below the emulator.
//! Figures of throughput from a machine whose CPU pressure is not near 0 say little.
#![cfg_attr(not(target_os = "linux"), allow(unused, reason = "there is no emulator"))]

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the emulator is for Linux");
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use anabranch_algo::{Rate, Span};
    use anabranch_emulator::{Driver, Emulator, EmulatorHandle, Histogram, IpPacket, Snapshot};
    use anabranch_net::{Clock, Namespace, Tun};
    use anabranch_sim::LinkConfig;
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;

    type Result<T> = std::result::Result<T, Box<dyn Error>>;

    const MTU_BYTES: u32 = 1_500;
    /// TCP payload of a packet of that size, with timestamps.
    const PAYLOAD_BYTES: u32 = 1_448;
    /// How long a TCP connection has to fill its link.
    const WARM: Span = Span::from_secs(3);
    const PORT: u16 = 5_000;

    struct Options {
        parts: Vec<String>,
        seconds: u64,
        emulators: usize,
        probes: u64,
        apart: bool,
    }

    impl Options {
        fn read() -> Result<Self> {
            let mut options =
                Self { parts: Vec::new(), seconds: 10, emulators: 20, probes: 1_000, apart: false };
            let mut arguments = std::env::args().skip(1);
            while let Some(argument) = arguments.next() {
                let mut number = || arguments.next().ok_or(format!("{argument} needs a number"));
                match argument.as_str() {
                    "--seconds" => options.seconds = number()?.parse()?,
                    "--emulators" => options.emulators = number()?.parse()?,
                    "--probes" => options.probes = number()?.parse()?,
                    "--apart" => options.apart = true,
                    "delay" | "rate" | "tbf" | "offload" | "packets" | "many" => options.parts.push(argument),
                    _ => return Err(format!("what is `{argument}`? see the top of this file").into()),
                }
            }
            Ok(options)
        }

        fn wants(&self, part: &str) -> bool {
            self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
        }
    }

    pub(super) fn main() -> Result<()> {
        let options = Options::read()?;
        let before = pressure();
        let clock = Clock::start();
        if options.wants("delay") {
            for delay_ms in [20, 5, 1, 0] {
                delay(delay_ms, options.probes)?;
            }
        }
        if options.wants("rate") {
            for mbit in [12, 100, 300] {
                rate(mbit, options.seconds)?;
            }
        }
        if options.wants("tbf") {
            tbf(100, options.seconds)?;
        }
        if options.wants("offload") {
            unshaped(true, options.seconds)?;
        }
        if options.wants("packets") {
            unshaped(false, options.seconds)?;
        }
        if options.wants("many") {
            many(options.emulators, options.seconds, options.apart)?;
        }
        if let (Some(before), Some(after)) = (before, pressure()) {
            let share = (after - before) as f64 * 1e3 / clock.now().as_nanos() as f64;
            println!("some task waited for a CPU for {:.0} % of the time", share * 100.0);
        }
        Ok(())
    }

    /// How long some task waited for a CPU since the machine started, microseconds (`/proc/pressure/cpu`).
    fn pressure() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
        text.lines().next()?.split("total=").nth(1)?.trim().parse().ok()
    }

    fn tool(space: &Namespace, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        let done = space.run(|| command.output())??;
        if !done.status.success() {
            return Err(format!("{line}: {}", String::from_utf8_lossy(&done.stderr)).into());
        }
        Ok(())
    }

    /// Two hosts and a link in each direction, several times over: the addresses are 10.9.N.1 and 10.9.N.2.
    struct World {
        left: Namespace,
        right: Namespace,
        running: EmulatorHandle,
    }

    impl World {
        fn new(driver: &Driver, links: &[LinkConfig], offload: bool) -> Result<Self> {
            let (left, right) = (Namespace::new()?, Namespace::new()?);
            let mut net = anabranch_sim::Net::<IpPacket>::new(1);
            let mut routes = Vec::new();
            for (n, config) in links.iter().enumerate() {
                let down = net.link(&format!("down {n}"), config.clone());
                let up = net.link(&format!("up {n}"), config.clone());
                routes.push((net.route(&[down]), net.route(&[up])));
            }
            let mut emulator = Emulator::new(net);
            for (n, (down, up)) in routes.into_iter().enumerate() {
                let name = format!("p{n}");
                let near = emulator.add_port(Tun::new(&left, &name, MTU_BYTES, offload)?);
                let far = emulator.add_port(Tun::new(&right, &name, MTU_BYTES, offload)?);
                emulator.connect(near, far, down, Some(n as u32));
                emulator.connect(far, near, up, None);
                tool(&left, &format!("ip addr add 10.9.{n}.1 peer 10.9.{n}.2 dev {name}"))?;
                tool(&right, &format!("ip addr add 10.9.{n}.2 peer 10.9.{n}.1 dev {name}"))?;
            }
            left.sysctl("net.ipv4.tcp_congestion_control", "reno")?;
            Ok(Self { left, right, running: driver.start(emulator)? })
        }
    }

    fn ms(span: Span) -> f64 {
        span.as_nanos() as f64 / 1e6
    }

    fn lateness(of: &Histogram) -> String {
        let [p50, p99, max] = [of.quantile(0.5), of.quantile(0.99), of.max()].map(ms);
        format!("late by p50 {p50:.3}, p99 {p99:.3}, max {max:.3} ms")
    }

    /// Whatever makes the other figures worthless.
    fn violations(snapshot: &Snapshot) -> String {
        snapshot.violations().map(|violations| format!("; {violations}")).unwrap_or_default()
    }

    /// (a) Round trips.
    fn delay(delay_ms: u64, probes: u64) -> Result<()> {
        const EVERY: Duration = Duration::from_millis(5);
        let link = LinkConfig { delay: Span::from_millis(delay_ms), ..LinkConfig::default() };
        let world = World::new(&Driver::new()?, &[link], false)?;
        let echo = world.right.run(|| UdpSocket::bind(("10.9.0.2", PORT)))??;
        let probe = world.left.run(|| UdpSocket::bind(("10.9.0.1", PORT)))??;
        probe.connect(("10.9.0.2", PORT))?;
        for socket in [&echo, &probe] {
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        }
        let clock = Clock::start();
        let mut errors = Histogram::new();
        let (mut least, mut early) = (Span::MAX, 0);
        thread::scope(|scope| -> Result<()> {
            scope.spawn(|| {
                let mut buffer = [0; 64];
                while let Ok((len, from)) = echo.recv_from(&mut buffer) {
                    let _ = echo.send_to(&buffer[..len], from);
                }
            });
            scope.spawn(|| {
                for _ in 0..probes {
                    let _ = probe.send(&clock.now().as_nanos().to_be_bytes());
                    thread::sleep(EVERY);
                }
            });
            let mut buffer = [0; 8];
            for _ in 0..probes {
                probe.recv(&mut buffer)?;
                let took = clock.now().as_nanos() - u64::from_be_bytes(buffer);
                let ideal = Span::from_millis(2 * delay_ms).as_nanos();
                early += u64::from(took < ideal);
                least = least.min(Span::from_nanos(took));
                errors.record(Span::from_nanos(took.saturating_sub(ideal)));
            }
            Ok(())
        })?;
        let snapshot = world.running.stop();
        let [p50, p99, max] = [errors.quantile(0.5), errors.quantile(0.99), errors.max()].map(ms);
        println!(
            "delay {delay_ms:2} ms one way: {probes} round trips of {} ms, error p50 {p50:.3}, p99 {p99:.3}, \
             max {max:.3} ms, {early} early; {}{}",
            2 * delay_ms,
            lateness(&snapshot.lateness()),
            violations(&snapshot)
        );
        Ok(())
    }

    /// Bytes that TCP connections have carried, until it is dropped.
    struct Bulk {
        received: Arc<AtomicU64>,
        stop: Arc<AtomicBool>,
    }

    impl Bulk {
        /// `connections` from one namespace to `address` in the other.
        fn start(from: &Namespace, to: &Namespace, address: &str, connections: usize) -> Result<Self> {
            let listener = to.run(|| TcpListener::bind((address, PORT)))??;
            let bulk = Self { received: Arc::default(), stop: Arc::default() };
            for _ in 0..connections {
                let mut sender = from.run(|| TcpStream::connect((address, PORT)))??;
                let (mut receiver, _) = listener.accept()?;
                let (stop, received) = (bulk.stop.clone(), bulk.received.clone());
                thread::Builder::new().name("sender".into()).spawn(move || {
                    let chunk = vec![7; 1 << 18];
                    while !stop.load(Ordering::Relaxed) && sender.write_all(&chunk).is_ok() {}
                })?;
                let stop = bulk.stop.clone();
                thread::Builder::new().name("receiver".into()).spawn(move || {
                    let mut buffer = vec![0; 1 << 18];
                    while let Ok(len @ 1..) = receiver.read(&mut buffer) {
                        received.fetch_add(len as u64, Ordering::Relaxed);
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                })?;
            }
            Ok(bulk)
        }

        fn bytes(&self) -> u64 {
            self.received.load(Ordering::Relaxed)
        }
    }

    impl Drop for Bulk {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// What a connection carries in `seconds`, bits a second.
    fn measured(clock: &Clock, bulk: &Bulk, seconds: u64) -> f64 {
        let (start, before) = (clock.now(), bulk.bytes());
        clock.sleep_until(start + Span::from_secs(seconds));
        let (end, after) = (clock.now(), bulk.bytes());
        (after - before) as f64 * 8e9 / end.since(start).as_nanos() as f64
    }

    fn beside_ideal(bits: f64, mbit: u64) -> String {
        let ideal = mbit as f64 * 1e6 * f64::from(PAYLOAD_BYTES) / f64::from(MTU_BYTES);
        let error = (bits / ideal - 1.0) * 100.0;
        format!("{:.3} of {:.3} Mbit/s, {error:+.2} %", bits / 1e6, ideal / 1e6)
    }

    /// (b) Rates.
    fn rate(mbit: u64, seconds: u64) -> Result<()> {
        const DELAY: Span = Span::from_millis(10);
        let rate = Rate::from_bits(mbit * 1_000_000);
        let queue = 4 * rate.bytes_in(DELAY) + 10 * u64::from(MTU_BYTES);
        let world = World::new(&Driver::new()?, &[LinkConfig::new(rate, DELAY).queue_bytes(queue)], false)?;
        let clock = Clock::start();
        let bulk = Bulk::start(&world.left, &world.right, "10.9.0.2", 1)?;
        clock.sleep_until(clock.now() + WARM);
        let before = world.running.snapshot();
        let bits = measured(&clock, &bulk, seconds);
        drop(bulk);
        let snapshot = world.running.stop();
        let cpu = ms(snapshot.cpu) - ms(before.cpu);
        let wall = ms(snapshot.at.since(before.at));
        println!(
            "rate {mbit:3} Mbit/s: TCP {}; CPU {:.1} %; {}{}",
            beside_ideal(bits, mbit),
            cpu / wall * 100.0,
            lateness(&snapshot.lateness()),
            violations(&snapshot)
        );
        Ok(())
    }

    /// The same through the kernel's token bucket filter, which counts an Ethernet header a packet. Without
    /// segmentation offload, so that packets are the same.
    fn tbf(mbit: u64, seconds: u64) -> Result<()> {
        const ETHERNET_BYTES: u64 = 14;
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        let space = format!("/proc/{}/fd/{}", std::process::id(), right.as_fd().as_raw_fd());
        tool(&left, &format!("ip link add p0 type veth peer name p0 netns {space}"))?;
        for (space, own) in [(&left, 1), (&right, 2)] {
            tool(space, &format!("ip addr add 10.9.0.{own}/24 dev p0"))?;
            tool(space, "ip link set p0 up gso_max_segs 1")?;
        }
        let line = format!("tc qdisc add dev p0 root tbf rate {mbit}mbit burst 15kb limit 500kb");
        tool(&left, &line)?;
        let clock = Clock::start();
        let bulk = Bulk::start(&left, &right, "10.9.0.2", 1)?;
        clock.sleep_until(clock.now() + WARM);
        let bits = measured(&clock, &bulk, seconds);
        let counted = bits * (u64::from(MTU_BYTES) + ETHERNET_BYTES) as f64 / f64::from(MTU_BYTES);
        println!("tbf  {mbit:3} Mbit/s: TCP {}, with its Ethernet headers", beside_ideal(counted, mbit));
        Ok(())
    }

    fn usage() -> f64 {
        let used = getrusage(UsageWho::RUSAGE_SELF);
        used.map_or(0.0, |used| {
            (used.user_time().num_microseconds() + used.system_time().num_microseconds()) as f64
        })
    }

    /// (c), (d) Links that do nothing.
    fn unshaped(offload: bool, seconds: u64) -> Result<()> {
        let world = World::new(&Driver::new()?, &[LinkConfig::default()], offload)?;
        let clock = Clock::start();
        let bulk = Bulk::start(&world.left, &world.right, "10.9.0.2", 1)?;
        clock.sleep_until(clock.now() + Span::from_secs(1));
        let (before, used) = (world.running.snapshot(), usage());
        let bits = measured(&clock, &bulk, seconds);
        let (snapshot, used) = (world.running.snapshot(), usage() - used);
        drop(bulk);
        let packets = |of: &Snapshot| of.connections.iter().map(|c| c.packets).sum::<u64>();
        let packets = (packets(&snapshot) - packets(&before)) as f64;
        let data = (snapshot.connections[0].packets - before.connections[0].packets) as f64;
        let cpu = snapshot.cpu.as_nanos() as f64 - before.cpu.as_nanos() as f64;
        println!(
            "{}: TCP {:.2} Gbit/s, {:.0} kpps of which data {:.0}; {:.0} kpps a CPU second ({:.1} us \
             a packet), {:.0} with both TCP; {}{}",
            if offload { "unshaped, offload" } else { "unshaped, packets" },
            bits / 1e9,
            packets / seconds as f64 / 1e3,
            data / seconds as f64 / 1e3,
            packets / cpu * 1e6,
            cpu / packets / 1e3,
            packets / used * 1e3,
            lateness(&snapshot.lateness()),
            violations(&snapshot)
        );
        Ok(())
    }

    /// (f) Many at the same time.
    fn many(emulators: usize, seconds: u64, apart: bool) -> Result<()> {
        const MBIT: u64 = 16;
        const DELAY: Span = Span::from_millis(20);
        let rate = Rate::from_bits(MBIT * 1_000_000);
        let link = LinkConfig::new(rate, DELAY).queue_bytes(2 * rate.bytes_in(DELAY));
        let clock = Clock::start();
        let driver = Driver::new()?;
        let worlds = (0..emulators).map(|_| {
            let driver = if apart { Driver::new()? } else { driver.clone() };
            World::new(&driver, &[link.clone(), link.clone()], false)
        });
        let worlds = worlds.collect::<Result<Vec<_>>>()?;
        let mut bulks = Vec::new();
        for world in &worlds {
            for address in ["10.9.0.2", "10.9.1.2"] {
                bulks.push(Bulk::start(&world.left, &world.right, address, 2)?);
            }
        }
        clock.sleep_until(clock.now() + WARM);
        let snapshots = || worlds.iter().map(|world| world.running.snapshot()).collect::<Vec<_>>();
        let bytes = || bulks.iter().map(Bulk::bytes).sum::<u64>();
        let (before, used, start, since) = (snapshots(), usage(), bytes(), clock.now());
        clock.sleep_until(since + Span::from_secs(seconds));
        let (end, until, used, after) = (bytes(), clock.now(), usage() - used, snapshots());
        let nanos = until.since(since).as_nanos() as f64;
        let mut all = Histogram::new();
        let mut worst = Span::ZERO;
        for snapshot in &after {
            let of = snapshot.lateness();
            worst = worst.max(of.quantile(0.99));
            all.add(&of);
        }
        let packets =
            |of: &[Snapshot]| of.iter().flat_map(|s| &s.connections).map(|c| c.packets).sum::<u64>();
        let packets = (packets(&after) - packets(&before)) as f64;
        // Those that share a thread all tell of that.
        let threads = if apart { emulators } else { 1 };
        let cpu = |of: &[Snapshot]| of.iter().take(threads).map(|s| s.cpu.as_nanos()).sum::<u64>();
        let cpu = (cpu(&after) - cpu(&before)) as f64;
        let waits = |of: &[Snapshot]| of.iter().take(threads).map(|s| s.waits).sum::<u64>();
        let carried = (end - start) as f64 * 8e9 / nanos / bulks.len() as f64;
        drop(bulks);
        println!(
            "{emulators} emulators on {threads} thread{}: {:.1} kpps, TCP {} a link; \
             CPU of the emulators {:.0} % of one ({:.1} us a packet, {:.2} waits), of all {:.0} %; \
             {}, p99 of the latest {:.3} ms{}",
            if threads == 1 { "" } else { "s" },
            packets / nanos * 1e6,
            beside_ideal(carried, MBIT),
            cpu / nanos * 100.0,
            cpu / packets / 1e3,
            (waits(&after) - waits(&before)) as f64 / packets,
            used / nanos * 1e5,
            lateness(&all),
            ms(worst),
            after.iter().map(violations).find(|violations| !violations.is_empty()).unwrap_or_default()
        );
        Ok(())
    }
}
