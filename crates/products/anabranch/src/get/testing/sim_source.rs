//! A source that speaks mmTP in the simulated world: the real publisher, without a socket.

use std::net::SocketAddr;
use std::rc::Rc;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher};
use anabranch_mmtp::tree::Outboard;

struct MemoryStore(Outboard);

impl ContentStore for MemoryStore {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.id();
        (id.root == *root).then_some(ContentInfo { id, name: b"f", collection: false })
    }
}

/// A source of one content.
pub(super) struct SimSource {
    publisher: Publisher<MemoryStore>,
    content: Rc<Vec<u8>>,
}

impl SimSource {
    pub(super) fn new(content: &Rc<Vec<u8>>) -> Self {
        let publisher = Publisher::new(MemoryStore(Outboard::of_bytes(content)), [7; 32]);
        Self { publisher, content: Rc::clone(content) }
    }

    /// Returns the packets that answer the packet `bytes`.
    pub(super) fn answer(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        self.publisher.handle(now, (from.into(), bytes));
        while let Output::Send(reply) = self.publisher.poll(now) {
            let tree = &self.publisher.store().0;
            packets.extend(reply.body.packets(|_| tree, |_, range| &self.content[range]));
        }
        packets
    }
}
