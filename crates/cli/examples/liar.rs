//! A source that lies, for tests and comparisons: it offers FILE under its true name and flips 8 bytes of
//! every million in what it sends.
//!
//!     cargo run --release -p anabranch-cli --example liar -- FILE ADDR:PORT

use std::net::{SocketAddr, UdpSocket};

use algo::{Machine as _, Output};
use mmtp::id::BLOCK_BYTES;
use mmtp::publisher::{ContentInfo, ContentStore, Publisher, ReplyBody};
use mmtp::tree::Outboard;
use mmtp::uri::Uri;
use mmtp::wire;

/// One run of wrong bytes begins at each multiple of this.
const EVERY: usize = 1_000_000;
/// How long it is.
const FLIPPED: usize = 8;

struct Shelf(Outboard);

impl ContentStore for Shelf {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.id();
        (id.root == *root).then_some(ContentInfo { id, name: b"lies", collection: false })
    }
}

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
    let clock = net::Clock::start();
    let mut publisher = Publisher::new(Shelf(tree), [0x55; 32]);
    let (mut buffer, mut packet) = (vec![0; 65_536], Vec::new());
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        let now = clock.now();
        publisher.handle(now, (from, &buffer[..len]));
        while let Output::Send(reply) = publisher.poll(now) {
            match reply.body {
                ReplyBody::Packet(packet) => drop(socket.send_to(&packet, reply.to)),
                ReplyBody::Hashes { tag, level, first, count, .. } => {
                    packet.clear();
                    let Some(cvs) = publisher.store().0.cvs(level, first, count) else { continue };
                    wire::emit_hashes(&mut packet, tag, level, first, cvs);
                    drop(socket.send_to(&packet, reply.to));
                }
                ReplyBody::Chunks { tag, content, cut, first, count } => {
                    for chunk in first..first + u64::from(count) {
                        let extent = content.chunk_extent(chunk, cut).zip(content.chunk_wire_len(chunk, cut));
                        let Some(((block, offset, len), wire_len)) = extent else { continue };
                        let start = usize::try_from(block)? * BLOCK_BYTES + offset;
                        packet.clear();
                        wire::emit_data(&mut packet, tag, cut, chunk, &bytes[start..start + len], wire_len);
                        drop(socket.send_to(&packet, reply.to));
                    }
                }
            }
        }
    }
}
