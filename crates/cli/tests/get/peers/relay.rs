//! A relay between receivers and a source that changes packets.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_mmtp::wire::{self, DATA_HEADER, Packet};

/// A relay on loopback, which ends when this is dropped.
pub(crate) struct Relay {
    /// The address at which the relay listens.
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Relays to `source`, but flips bits in the payload of every `every`-th DATA packet.
    pub(crate) fn liar(source: SocketAddr, every: usize) -> Self {
        let mut count = 0;
        Self::start(source, move |packet| {
            if let Ok(Packet::Data(_)) = wire::parse(packet) {
                count += 1;
                if count % every == 0 {
                    packet[DATA_HEADER + (packet.len() - DATA_HEADER) / 2] ^= 0x20;
                }
            }
            true
        })
    }

    /// Relays to `source`. `pass` may change a packet that comes back, and says whether to forward it.
    fn start(source: SocketAddr, mut pass: impl FnMut(&mut [u8]) -> bool + Send + 'static) -> Self {
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
                    let _ = back.send(&buffer[..len]);
                }
                for (to, back) in &backs {
                    while let Ok(len) = back.recv(&mut buffer) {
                        idle = false;
                        let packet = &mut buffer[..len];
                        if pass(packet) {
                            let _ = front.send_to(packet, to);
                        }
                    }
                }
                if idle {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { address, stop, thread: Some(thread) }
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
