//! The tags of links, the FID of a path, and the forwarder of a node. A topology manager knows the graph. So
//! it counts the links beside a path that would match by accident, and chooses the table of tags with the
//! fewest.

use crate::fid::{
    Bits, EXACT_LINKS_MAX, Egress, FILTER_BITS, Fid, Header, Kind, Limits, Refusal, TABLES, TAG_BITS,
};
use crate::graph::{Graph, LinkId, NodeId};

/// The FID of a path, and figures about its quality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoded {
    /// The identifier.
    pub fid: Fid,
    /// The share of bits that are set, of 248 bits or, in an exact domain, one bit per link.
    pub fill: f64,
    /// The number of links beside the path that packets also cross by accident. They begin at nodes of the
    /// path; links back are not counted.
    pub false_positives: usize,
}

impl Encoded {
    /// Returns the header of packets on the path.
    #[must_use]
    pub fn header(&self, path: &[LinkId]) -> Header {
        Header::new(self.fid, path.len())
    }
}

/// The reason why a path has no FID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The path has more links than a FID has room for, in every table.
    #[error("{0} links are more than fit into a forwarding identifier")]
    TooLong(usize),
    /// The domain has more links than an exact FID has bits.
    #[error("a domain of {0} links, expected at most {EXACT_LINKS_MAX} for exact forwarding identifiers")]
    TooManyLinks(usize),
}

/// Makes a tag of different bits from a stream of random bytes.
pub(crate) fn tag(mut random: impl FnMut() -> u8) -> Bits {
    let mut tag = Bits::NONE;
    while tag.ones() < TAG_BITS as u32 {
        let bit = usize::from(random());
        if bit < FILTER_BITS {
            tag.set(bit);
        }
    }
    tag
}

/// Returns a stream of bytes from a hash, as long as needed.
pub(crate) fn stream(hasher: &blake3::Hasher) -> impl FnMut() -> u8 {
    let mut reader = hasher.finalize_xof();
    let (mut block, mut next) = ([0; 32], 32);
    move || {
        if next == block.len() {
            reader.fill(&mut block);
            next = 0;
        }
        next += 1;
        block[next - 1]
    }
}

/// Makes the FID with the table of tags that gives the fewest false positives. Among equals it takes the
/// least fill, then the lowest table. `tag_of` returns the tag for a table, the incoming link and the
/// outgoing link.
pub(crate) fn choose(
    graph: &Graph,
    path: &[LinkId],
    limits: Limits,
    selector: u8,
    tag_of: impl Fn(usize, Option<LinkId>, LinkId) -> Bits,
) -> Result<Encoded, EncodeError> {
    let tables = if limits.kind == Kind::Exact { 1 } else { TABLES };
    let before = |place: usize| place.checked_sub(1).map(|place| path[place]);
    let filter = |table: usize| {
        let tags = path.iter().enumerate().map(|(place, id)| tag_of(table, before(place), *id));
        (table, tags.fold(Bits::NONE, Bits::or))
    };
    let false_positives = |table: usize, bits: &Bits| {
        let mut count = 0;
        for (place, node) in graph.visits(path).into_iter().enumerate() {
            let ingress = before(place);
            let others = graph.outgoing(node).iter().filter(|id| path.get(place) != Some(id));
            let others = others.filter(|id| ingress.is_none() || graph.link(**id).reverse != ingress);
            count += others.filter(|id| bits.has(&tag_of(table, ingress, **id))).count();
        }
        count
    };
    let fits = (0..tables).map(filter).filter(|(_, bits)| bits.ones() <= limits.ones_max);
    let best = fits
        .map(|(table, bits)| (false_positives(table, &bits), bits.ones(), table, bits))
        .min()
        .ok_or(EncodeError::TooLong(path.len()))?;
    let (false_positives, ones, table, bits) = best;
    let fid = Fid { kind: limits.kind, selector: selector | table as u8, bits };
    Ok(Encoded { fid, fill: f64::from(ones) / limits.bits.max(1) as f64, false_positives })
}

/// The tags of all links of a domain.
#[derive(Clone, Debug)]
pub enum Tags {
    /// One bit per link; this is the number of links.
    Exact(usize),
    /// For each link, one tag per table.
    Lipsin(Vec<[Bits; TABLES]>),
}

impl Tags {
    /// Gives each link one bit.
    ///
    /// # Errors
    /// If there are more links than bits.
    pub fn exact(graph: &Graph) -> Result<Self, EncodeError> {
        let links = graph.links().len();
        if links > EXACT_LINKS_MAX { Err(EncodeError::TooManyLinks(links)) } else { Ok(Self::Exact(links)) }
    }

    /// Makes tables of tags from a seed. The same seed gives the same tables.
    #[must_use]
    pub fn lipsin(links: usize, seed: u64) -> Self {
        let tag = |link: usize, table: usize| {
            let mut hasher = blake3::Hasher::new_derive_key("anabranch 2026 LIPSIN link tags");
            hasher.update(&seed.to_le_bytes()).update(&(link as u64).to_le_bytes()).update(&[table as u8]);
            tag(stream(&hasher))
        };
        Self::Lipsin((0..links).map(|link| std::array::from_fn(|table| tag(link, table))).collect())
    }

    /// Makes exact tags if the domain is small enough, else tables.
    #[must_use]
    pub fn of(graph: &Graph, seed: u64) -> Self {
        Self::exact(graph).unwrap_or_else(|_| Self::lipsin(graph.links().len(), seed))
    }

    /// Returns the tag of a link.
    ///
    /// # Panics
    /// If the link or the table does not exist.
    #[must_use]
    pub fn tag(&self, table: usize, link: LinkId) -> Bits {
        match self {
            Self::Exact(links) => {
                assert!(link.index() < *links, "a link of the domain");
                let mut tag = Bits::NONE;
                tag.set(link.index());
                tag
            }
            Self::Lipsin(tags) => tags[link.index()][table],
        }
    }

    fn limits(&self) -> Limits {
        match self {
            Self::Exact(links) => Limits::exact(*links),
            Self::Lipsin(_) => Limits::filter(Kind::Lipsin),
        }
    }

    /// Returns the bits of a path: the OR of the tags of its links.
    ///
    /// # Panics
    /// If a link or the table does not exist.
    #[must_use]
    pub fn filter(&self, table: usize, path: &[LinkId]) -> Bits {
        path.iter().fold(Bits::NONE, |bits, link| bits.or(self.tag(table, *link)))
    }

    /// Makes the FID of a path. `graph` must be the graph that these tags belong to.
    ///
    /// # Errors
    /// If the path is too long for a FID.
    pub fn encode(&self, graph: &Graph, path: &[LinkId]) -> Result<Encoded, EncodeError> {
        choose(graph, path, self.limits(), 0, |table, _, link| self.tag(table, link))
    }

    /// Returns the forwarder of a node. It knows only the links that begin at the node.
    #[must_use]
    pub fn forwarder(&self, graph: &Graph, node: NodeId) -> Forwarder {
        let tables = if matches!(self, Self::Exact(_)) { 1 } else { TABLES };
        let entry = |id: &LinkId| Entry {
            egress: Egress { link: *id, reverse: graph.link(*id).reverse },
            tags: std::array::from_fn(|table| if table < tables { self.tag(table, *id) } else { Bits::NONE }),
        };
        Forwarder { limits: self.limits(), entries: graph.outgoing(node).iter().map(entry).collect() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    egress: Egress,
    tags: [Bits; TABLES],
}

/// The forwarding rule at one node of a domain with exact or LIPSIN tags.
#[derive(Clone, Debug)]
pub struct Forwarder {
    limits: Limits,
    entries: Vec<Entry>,
}

impl Forwarder {
    /// Puts the links that a packet goes on by into `out`, and returns the header that it has there.
    /// `ingress` is the link that the packet came by; `None` if it begins here.
    ///
    /// # Errors
    /// If the packet must be dropped whatever its links; `out` is empty then.
    pub fn forward(
        &self,
        header: &Header,
        ingress: Option<LinkId>,
        out: &mut Vec<LinkId>,
    ) -> Result<Header, Refusal> {
        out.clear();
        let next = self.limits.pass(header)?;
        let table = header.fid.table();
        let matching =
            |entry: &&Entry| header.fid.bits().has(&entry.tags[table]) && !entry.egress.leads_back(ingress);
        out.extend(self.entries.iter().filter(matching).map(|entry| entry.egress.link));
        Ok(next)
    }
}
