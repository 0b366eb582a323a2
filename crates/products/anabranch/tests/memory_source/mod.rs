//! A source of one content in memory, without a socket. It sends what it is told to, right or wrong.

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher};
use anabranch_mmtp::tree::Outboard;

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
        self.publisher.handle(now, (from.into(), request));
        let mut packets = Vec::new();
        while let Output::Send(reply) = self.publisher.poll(now) {
            packets.extend(reply.body.packets(|_| &self.tree, |_, range| &self.bytes[range]));
        }
        packets
    }
}
