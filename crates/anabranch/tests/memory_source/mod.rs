//! A source of one content in memory, without a socket. It sends what it is told to, right or wrong.

use std::net::SocketAddr;

use algo::{Machine as _, Output, Time};
use mmtp::ContentId;
use mmtp::id::BLOCK_BYTES;
use mmtp::publisher::{ContentInfo, ContentStore, Publisher, ReplyBody};
use mmtp::tree::Outboard;
use mmtp::wire;

struct Offer(ContentId);

impl ContentStore for Offer {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        (*root == self.0.root).then_some(ContentInfo { id: self.0, name: b"f", collection: false })
    }
}

/// The source.
pub(crate) struct MemorySource {
    publisher: Publisher<Offer>,
    tree: Outboard,
    bytes: Vec<u8>,
}

impl MemorySource {
    /// Offers `id`, and sends `bytes` and the hashes of `tree` for it.
    pub(crate) fn new(id: ContentId, tree: Outboard, bytes: Vec<u8>) -> Self {
        assert_eq!(bytes.len() as u64, id.length, "wrong bytes, but as many");
        Self { publisher: Publisher::new(Offer(id), [9; 32]), tree, bytes }
    }

    /// The packets that answer a request.
    pub(crate) fn answer(&mut self, now: Time, from: SocketAddr, request: &[u8]) -> Vec<Vec<u8>> {
        self.publisher.handle(now, (from, request));
        let mut packets = Vec::new();
        while let Output::Send(reply) = self.publisher.poll(now) {
            match reply.body {
                ReplyBody::Packet(packet) => packets.push(packet),
                ReplyBody::Hashes { tag, level, first, count, .. } => {
                    let mut packet = Vec::new();
                    let cvs = self.tree.cvs(level, first, count).expect("chaining values");
                    wire::emit_hashes(&mut packet, tag, level, first, cvs);
                    packets.push(packet);
                }
                ReplyBody::Chunks { tag, content, cut, first, count } => {
                    packets.extend((first..first + u64::from(count)).map(|chunk| {
                        let (block, offset, len) = content.chunk_extent(chunk, cut).expect("a chunk");
                        let wire_len = content.chunk_wire_len(chunk, cut).expect("a chunk");
                        let start = block as usize * BLOCK_BYTES + offset;
                        let mut packet = Vec::new();
                        let bytes = &self.bytes[start..start + len];
                        wire::emit_data(&mut packet, tag, cut, chunk, bytes, wire_len);
                        packet
                    }));
                }
            }
        }
        packets
    }
}
