//! A source that lies, for tests and comparisons: it offers FILE under its true name and flips 8 bytes of
//! every million in what it sends.
//!
//!     cargo run --release -p anabranch-cli --example liar -- FILE ADDR:PORT

#[path = "../../products/anabranch/tests/memory_source/mod.rs"]
mod memory_source;

use std::net::{SocketAddr, UdpSocket};

use anabranch_mmtp::tree::Outboard;
use anabranch_mmtp::uri::Uri;
use memory_source::MemorySource;

/// One run of wrong bytes begins at each multiple of this.
const EVERY: usize = 1_000_000;
/// How long it is.
const FLIPPED: usize = 8;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let (Some(file), Some(listen)) = (args.next(), args.next()) else {
        anyhow::bail!("usage: liar FILE ADDR:PORT");
    };
    let mut bytes = std::fs::read(file)?;
    let tree = Outboard::of_bytes(&bytes);
    for start in (0..bytes.len()).step_by(EVERY) {
        let end = (start + FLIPPED).min(bytes.len());
        bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0xff);
    }
    let listen: SocketAddr = listen.to_string_lossy().parse()?;
    let socket = UdpSocket::bind(listen)?;
    println!("{}", Uri::new(tree.id()));
    let clock = anabranch_net::Clock::start();
    let mut source = MemorySource::new(tree.id(), tree, bytes);
    let mut buffer = vec![0; 65_536];
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        for packet in source.answer(clock.now(), from, &buffer[..len]) {
            let _ = socket.send_to(&packet, from);
        }
    }
}
