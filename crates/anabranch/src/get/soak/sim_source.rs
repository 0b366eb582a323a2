//! A source that speaks mmTP, as the simulated world has it: the real publisher, without a socket.

use std::net::SocketAddr;
use std::rc::Rc;

use algo::{Machine as _, Output, Time};
use mmtp::id::BLOCK_BYTES;
use mmtp::publisher::{ContentInfo, ContentStore, Publisher, ReplyBody};
use mmtp::tree::Outboard;
use mmtp::wire;

struct Shelf(Outboard);

impl ContentStore for Shelf {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.id();
        (id.root == *root).then_some(ContentInfo { id, name: b"f", collection: false })
    }
}

/// See the [module](self).
pub(super) struct SimSource {
    publisher: Publisher<Shelf>,
    content: Rc<Vec<u8>>,
}

impl SimSource {
    pub(super) fn new(content: &Rc<Vec<u8>>) -> Self {
        let publisher = Publisher::new(Shelf(Outboard::of_bytes(content)), [7; 32]);
        Self { publisher, content: Rc::clone(content) }
    }

    /// The packets that answer one.
    pub(super) fn answer(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        self.publisher.handle(now, (from, bytes));
        while let Output::Send(reply) = self.publisher.poll(now) {
            match reply.body {
                ReplyBody::Packet(packet) => packets.push(packet),
                ReplyBody::Hashes { tag, level, first, count, .. } => {
                    let mut packet = Vec::new();
                    let cvs = self.publisher.store().0.cvs(level, first, count).expect("what it has");
                    wire::emit_hashes(&mut packet, tag, level, first, cvs);
                    packets.push(packet);
                }
                ReplyBody::Chunks { tag, content, cut, first, count } => {
                    for chunk in first..first + u64::from(count) {
                        let (block, offset, len) = content.chunk_extent(chunk, cut).expect("it exists");
                        let wire_len = content.chunk_wire_len(chunk, cut).expect("it exists");
                        let start = block as usize * BLOCK_BYTES + offset;
                        let (mut packet, bytes) = (Vec::new(), &self.content[start..start + len]);
                        wire::emit_data(&mut packet, tag, cut, chunk, bytes, wire_len);
                        packets.push(packet);
                    }
                }
            }
        }
        packets
    }
}
