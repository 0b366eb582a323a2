//! Compares LRU and OPC on the same requests: the hit ratios of a packet cache for a Zipf catalogue, over one
//! path, and over two with a cache on each. `cargo run --release -p anabranch-overlay --example cache_replay`
//! prints the table of crates/protocols/overlay/README.md.

use std::io::Write as _;

use anabranch_algo::{SplitMix64, Time};
use anabranch_mmtp::id::SEGMENT_BLOCKS;
use anabranch_mmtp::peer::WayBack;
use anabranch_mmtp::wire::{self, Cookie, Packet, Range, RangeKind};
use anabranch_mmtp::{ChunksPerBlock, ContentId};
use anabranch_overlay::cache::{Answer, PacketCache, Policy};
use anabranch_topology::graph::NodeId;

/// The number of contents, each of 4 to 16 MiB, 2 GiB in all. Content number n is asked for in proportion to
/// n^-0.8.
const CONTENTS: usize = 200;
const ZIPF: f64 = 0.8;
const MIB: u64 = 1 << 20;
/// The bytes of all caches together: an eighth of the contents.
const CAPACITY: usize = 256 << 20;
/// The number of fetches of whole contents. Those of the first half only warm the caches.
const FETCHES: usize = 600;
/// The receivers that fetch at one time and take turns, a request each.
const RECEIVERS: usize = 8;
/// The chunks that a receiver asks for in its turn.
const REQUEST: u64 = 8;
/// The cut: packets of 16 KiB, because their order counts, not their size.
const CUT: u8 = 1;

/// The path that a chunk takes.
#[derive(Clone, Copy)]
enum Striping {
    OnePath,
    /// Two paths in turn, for units of this many chunks: the same in each fetch.
    InTurn(u64),
    /// One of two paths, drawn for each unit of this many chunks, differently in each fetch.
    Drawn(u64),
}

/// Returns a random number of 0 or more and less than 1.
fn unit(random: &mut SplitMix64) -> f64 {
    (random.bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// One fetch under way.
struct Fetch {
    content: ContentId,
    /// The next chunk.
    next: u64,
    /// The seed from which the paths are drawn.
    seed: u64,
    counts: bool,
}

impl Fetch {
    fn path(&self, striping: Striping, chunk: u64) -> usize {
        match striping {
            Striping::OnePath => 0,
            Striping::InTurn(unit) => (chunk / unit % 2) as usize,
            Striping::Drawn(unit) => (SplitMix64(self.seed ^ (chunk / unit)).bits() % 2) as usize,
        }
    }
}

/// Returns the contents in the order in which they are asked for.
fn catalogue(random: &mut SplitMix64) -> Vec<ContentId> {
    let weights: Vec<f64> = (1..=CONTENTS).map(|n| (n as f64).powf(-ZIPF)).collect();
    let sum: f64 = weights.iter().sum();
    let one = |random: &mut SplitMix64| {
        let mut left = unit(random) * sum;
        let n = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        let n = n.unwrap_or(CONTENTS - 1) as u64;
        let mut root = [0; 32];
        root[..8].copy_from_slice(&SplitMix64(n).bits().to_be_bytes());
        ContentId { root, length: MIB * (4 + SplitMix64(n ^ 0x5a5a).bits() % 13) }
    };
    (0..FETCHES).map(|_| one(random)).collect()
}

/// Asks for `chunks` of a content past a cache. Returns how many of them the cache had.
fn ask(cache: &mut PacketCache, way_back: &WayBack, tag: u64, content: &ContentId, chunks: &[u64]) -> u64 {
    let cut = ChunksPerBlock::new(CUT).expect("in range");
    let ranges: Vec<Range> =
        chunks.iter().map(|first| Range { kind: RangeKind::Data(cut), first: *first, count: 1 }).collect();
    let mut request = Vec::new();
    wire::emit_request(&mut request, tag, Some(&Cookie([1; 16])), true, content, &ranges);
    let (hits, rest) = match cache.request(Time::ZERO, way_back, &request) {
        Answer::PassOn => (0, Some(request)),
        Answer::Hit { replies, rest, .. } => (replies.len() as u64, rest),
    };
    let rest = rest.as_deref().map(wire::parse);
    if let Some(Ok(Packet::Request(rest))) = rest {
        for chunk in rest.ranges.flat_map(|range| range.first..range.first + u64::from(range.count)) {
            let mut packet = Vec::new();
            wire::emit_data(&mut packet, tag, cut, chunk, &[0], cut.chunk_bytes());
            cache.reply(Time::ZERO, way_back, &packet);
        }
    }
    hits
}

/// Returns the hit ratio over the second half of the fetches.
fn replay(policy: Policy, striping: Striping) -> f64 {
    let mut random = SplitMix64(1);
    let order = catalogue(&mut random);
    let paths = if matches!(striping, Striping::OnePath) { 1 } else { 2 };
    let mut caches: Vec<_> =
        (0..paths).map(|node| PacketCache::new(policy, CAPACITY / paths, NodeId(node as u32))).collect();
    let way_backs: Vec<_> = (0..RECEIVERS).map(|receiver| WayBack([receiver as u8; _])).collect();
    for cache in &mut caches {
        for way_back in &way_backs {
            let (mut request, mut cookie) = (Vec::new(), Vec::new());
            let meta = Range { kind: RangeKind::Meta, first: 0, count: 1 };
            wire::emit_request(&mut request, 0, None, true, &order[0], &[meta]);
            cache.request(Time::ZERO, way_back, &request);
            wire::emit_cookie(&mut cookie, 0, &Cookie([1; 16]));
            cache.reply(Time::ZERO, way_back, &cookie);
        }
    }
    let (mut begun, mut tag, mut asked, mut hits) = (0, 0, 0, 0);
    let mut fetches: Vec<Option<Fetch>> = (0..RECEIVERS).map(|_| None).collect();
    let cut = ChunksPerBlock::new(CUT).expect("in range");
    loop {
        let mut idle = true;
        for (fetch, way_back) in fetches.iter_mut().zip(&way_backs) {
            if fetch.is_none() && begun < FETCHES {
                let (content, seed) = (order[begun], random.bits());
                *fetch = Some(Fetch { content, next: 0, seed, counts: begun >= FETCHES / 2 });
                begun += 1;
            }
            let Some(this) = fetch else { continue };
            idle = false;
            let chunks = this.next..(this.next + REQUEST).min(this.content.chunks(cut));
            for (path, cache) in caches.iter_mut().enumerate() {
                let mine: Vec<u64> = chunks.clone().filter(|n| this.path(striping, *n) == path).collect();
                if mine.is_empty() {
                    continue;
                }
                tag += 1;
                let had = ask(cache, way_back, tag, &this.content, &mine);
                if this.counts {
                    asked += mine.len() as u64;
                    hits += had;
                }
            }
            this.next = chunks.end;
            if this.next >= this.content.chunks(cut) {
                *fetch = None;
            }
        }
        if idle {
            return hits as f64 / asked as f64;
        }
    }
}

fn main() -> std::io::Result<()> {
    const SEGMENT: u64 = SEGMENT_BLOCKS * CUT as u64;
    let mut out = std::io::stdout().lock();
    writeln!(out, "| paths | LRU | OPC | OPC by content |")?;
    writeln!(out, "| --- | --- | --- | --- |")?;
    for (name, striping) in [
        ("one", Striping::OnePath),
        ("two, segments drawn", Striping::Drawn(SEGMENT)),
        ("two, segments in turn", Striping::InTurn(SEGMENT)),
        ("two, chunks drawn", Striping::Drawn(1)),
        ("two, chunks in turn", Striping::InTurn(1)),
    ] {
        let [lru, opc, content] =
            [Policy::Lru, Policy::Opc, Policy::OpcByContent].map(|p| replay(p, striping));
        writeln!(out, "| {name} | {lru:.3} | {opc:.3} | {content:.3} |")?;
    }
    Ok(())
}
