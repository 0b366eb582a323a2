//! Someone on the way: relays between receivers and a source, and may look at packets or change them.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Looks at a packet and may change it; the first argument tells whether it goes to the source.
pub(crate) type Hook = Box<dyn FnMut(bool, &mut Vec<u8>) + Send>;

/// A relay on loopback, until dropped.
pub(crate) struct Relay {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Relays to `source`.
    pub(crate) fn start(source: SocketAddr, mut hook: Hook) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = front.local_addr().expect("an address");
        front.set_nonblocking(true).expect("a mode");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
            let mut buffer = vec![0; 1 << 16];
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                while let Ok((len, from)) = front.recv_from(&mut buffer) {
                    idle = false;
                    let back = backs.entry(from).or_insert_with(|| {
                        let back = UdpSocket::bind("127.0.0.1:0").expect("a socket");
                        back.connect(source).expect("connected");
                        back.set_nonblocking(true).expect("a mode");
                        back
                    });
                    let mut packet = buffer[..len].to_vec();
                    hook(true, &mut packet);
                    let _ = back.send(&packet);
                }
                for (to, back) in &backs {
                    while let Ok(len) = back.recv(&mut buffer) {
                        idle = false;
                        let mut packet = buffer[..len].to_vec();
                        hook(false, &mut packet);
                        let _ = front.send_to(&packet, to);
                    }
                }
                if idle {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// Relays to `source`, but flips bits in the payload of every `every`-th DATA.
    pub(crate) fn liar(source: SocketAddr, every: usize) -> Self {
        let mut count = 0;
        Self::start(
            source,
            Box::new(move |_, packet| {
                if let Ok(mmtp::wire::Packet::Data(_)) = mmtp::wire::parse(packet) {
                    count += 1;
                    if count % every == 0 {
                        let at = mmtp::wire::DATA_HEADER + (packet.len() - mmtp::wire::DATA_HEADER) / 2;
                        packet[at] ^= 0x20;
                    }
                }
            }),
        )
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
