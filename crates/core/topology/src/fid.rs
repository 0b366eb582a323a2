//! Forwarding identifiers (FIDs): 32 bytes in each packet that name the links it takes, so that a forwarder
//! keeps no state of any flow. Each link has a tag of a few bits. A FID is the OR of the tags of its links. A
//! forwarder sends a packet over each link whose tag is in the FID. The idea is LIPSIN's (Jokela et al.,
//! SIGCOMM 2009).
//!
//! | kind | tags | false positives |
//! | --- | --- | --- |
//! | exact (0) | one bit of 256 per link | none; for domains of at most [`EXACT_LINKS_MAX`] links |
//! | LIPSIN (1) | 5 bits of 248 per link, from the table (of 8) in its last byte | rare, known beforehand |
//! | keyed (2) | as LIPSIN, from a key and the incoming link; last byte: the epoch | as LIPSIN |
//!
//! Three rules limit wrong or forged FIDs. A FID with too many bits leads nowhere, a packet never goes back
//! over the line that it came by, and the hop limit ends every loop. No tag means "deliver here": an endpoint
//! is a node of its own, and every packet that arrives over its line is for it.

use crate::graph::LinkId;

/// The bytes of a FID.
pub const FID_BYTES: usize = 32;
/// The bytes of a [`Header`]: the kind, the hop limit, the FID.
pub const HEADER_BYTES: usize = 2 + FID_BYTES;
/// The most directed links of a domain with exact FIDs.
pub const EXACT_LINKS_MAX: usize = 8 * FID_BYTES;
/// The bits of the filter in a LIPSIN or keyed FID (m).
pub const FILTER_BITS: usize = 248;
/// The bits of a tag (k).
pub const TAG_BITS: usize = 5;
/// The number of tables of tags (d).
pub const TABLES: usize = 8;
/// The most bits that may be set in a filter: half of them. A path of about 34 links sets as many.
pub const ONES_MAX: u32 = FILTER_BITS as u32 / 2;
/// How many links a packet may cross beyond those of its path.
pub const HOPS_SPARE: u8 = 2;
/// How many epochs a keyed FID tells apart.
pub const EPOCHS: u32 = 32;

/// A set of 256 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits([u64; 4]);

impl Bits {
    /// The empty set.
    pub const NONE: Self = Self([0; 4]);

    /// Sets a bit.
    ///
    /// # Panics
    /// If `bit` is not 0 to 255.
    pub const fn set(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    /// Returns the bits that are in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        Self([a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]])
    }

    /// Whether all bits of a tag are in this set.
    #[must_use]
    pub const fn has(&self, tag: &Self) -> bool {
        let (a, b) = (&self.0, &tag.0);
        ((b[0] & !a[0]) | (b[1] & !a[1]) | (b[2] & !a[2]) | (b[3] & !a[3])) == 0
    }

    /// Returns how many bits are set.
    #[must_use]
    pub const fn ones(&self) -> u32 {
        let bits = &self.0;
        bits[0].count_ones() + bits[1].count_ones() + bits[2].count_ones() + bits[3].count_ones()
    }

    /// Whether a bit with this number or a higher one is set.
    const fn any_from(&self, bit: usize) -> bool {
        let mut word = 0;
        while word < 4 {
            let begins = bit.saturating_sub(64 * word);
            if begins < 64 && self.0[word] >> begins != 0 {
                return true;
            }
            word += 1;
        }
        false
    }
}

/// The kind of a FID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Each link has one bit.
    Exact = 0,
    /// The tags come from fixed tables.
    Lipsin = 1,
    /// The tags come from a key.
    Keyed = 2,
}

/// A forwarding identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fid {
    pub(crate) kind: Kind,
    /// The table. In a keyed FID this is (epoch mod [`EPOCHS`]) × 8 + table, in an exact FID 0.
    pub(crate) selector: u8,
    pub(crate) bits: Bits,
}

impl Fid {
    /// Returns the kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the bits, without table and epoch.
    #[must_use]
    pub const fn bits(&self) -> &Bits {
        &self.bits
    }

    /// Returns the table of tags that the FID was made from.
    #[must_use]
    pub const fn table(&self) -> usize {
        self.selector as usize % TABLES
    }

    /// Returns the epoch of a keyed FID, modulo [`EPOCHS`].
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        (self.selector as usize / TABLES) as u32
    }

    /// Encodes the FID as 32 bytes. They do not contain the kind.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FID_BYTES] {
        let mut bytes = [0; FID_BYTES];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(self.bits.0) {
            eight.copy_from_slice(&word.to_le_bytes());
        }
        if self.kind != Kind::Exact {
            bytes[FID_BYTES - 1] = self.selector;
        }
        bytes
    }

    fn from_bytes(kind: Kind, bytes: &[u8; FID_BYTES]) -> Result<Self, FidError> {
        let mut bytes = *bytes;
        let mut selector = 0;
        if kind != Kind::Exact {
            selector = std::mem::take(&mut bytes[FID_BYTES - 1]);
        }
        if kind == Kind::Lipsin && usize::from(selector) >= TABLES {
            return Err(FidError::Table(selector));
        }
        let mut words = [0; 4];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*eight);
        }
        Ok(Self { kind, selector, bits: Bits(words) })
    }
}

/// The reason why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FidError {
    /// There are too few bytes.
    #[error("{0} bytes, expected {HEADER_BYTES}")]
    Short(usize),
    /// The kind is unknown.
    #[error("a forwarding identifier of kind {0}, expected 0, 1 or 2")]
    Kind(u8),
    /// The table does not exist.
    #[error("tags of table {0}, expected 0 to 7")]
    Table(u8),
}

/// The fields of a packet that forwarders read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many links the packet may still cross.
    pub hop_limit: u8,
    /// The links that the packet must cross.
    pub fid: Fid,
}

impl Header {
    /// Creates the header for a path of `links` links.
    #[must_use]
    pub fn new(fid: Fid, links: usize) -> Self {
        let hops = u8::try_from(links).unwrap_or(u8::MAX);
        Self { hop_limit: hops.saturating_add(HOPS_SPARE), fid }
    }

    /// Whether the FID has at most the bits of the tags of as many links as the packet may cross, where the
    /// packet begins; later its hop limit is less. Each further bit makes it likelier that a random FID
    /// contains the tag of a link.
    #[must_use]
    pub const fn fits_hop_limit(&self) -> bool {
        let links = self.hop_limit.saturating_sub(HOPS_SPARE) as u32;
        self.fid.bits.ones() <= TAG_BITS as u32 * links
    }

    /// Parses the header at the beginning of a packet. Returns it with the bytes behind it.
    ///
    /// # Errors
    /// If `bytes` do not begin with a header; the error says why.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FidError> {
        let Some(([kind, hop_limit, fid @ ..], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(FidError::Short(bytes.len()));
        };
        let kind = match kind {
            0 => Kind::Exact,
            1 => Kind::Lipsin,
            2 => Kind::Keyed,
            _ => return Err(FidError::Kind(*kind)),
        };
        Ok((Self { hop_limit: *hop_limit, fid: Fid::from_bytes(kind, fid)? }, rest))
    }

    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.fid.kind as u8;
        bytes[1] = self.hop_limit;
        bytes[2..].copy_from_slice(&self.fid.to_bytes());
        bytes
    }
}

/// The reason why a forwarder drops a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The packet has crossed as many links as it may.
    #[error("hop limit")]
    HopLimit,
    /// The FID is of another kind than those of this domain.
    #[error("a forwarding identifier of another kind")]
    Kind,
    /// The FID has more bits than one that was made for a path.
    #[error("too many bits in the forwarding identifier")]
    Overfull,
    /// The FID has a bit that belongs to no link of the domain.
    #[error("a bit of no link in the forwarding identifier")]
    NoLink,
    /// The FID is of an epoch whose key is not known here any more, or not yet.
    #[error("a forwarding identifier of another epoch")]
    Epoch,
}

/// The limits that all FIDs of a domain must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) kind: Kind,
    /// The most bits that may be set.
    pub(crate) ones_max: u32,
    /// The first bit that no FID has.
    pub(crate) bits: usize,
}

impl Limits {
    /// The limits of a domain with this many directed links. A path visits no node twice, so it uses at most
    /// half of the links of a domain whose lines have two directions.
    pub(crate) const fn exact(links: usize) -> Self {
        Self { kind: Kind::Exact, ones_max: links as u32 / 2, bits: links }
    }

    pub(crate) const fn filter(kind: Kind) -> Self {
        Self { kind, ones_max: ONES_MAX, bits: FILTER_BITS }
    }

    /// Returns the header for the next link, if the packet may go on.
    pub(crate) fn pass(&self, header: &Header) -> Result<Header, Refusal> {
        let bits = &header.fid.bits;
        match header.hop_limit.checked_sub(1) {
            None => Err(Refusal::HopLimit),
            _ if header.fid.kind != self.kind => Err(Refusal::Kind),
            _ if bits.ones() > self.ones_max => Err(Refusal::Overfull),
            _ if bits.any_from(self.bits) => Err(Refusal::NoLink),
            Some(hop_limit) => Ok(Header { hop_limit, ..*header }),
        }
    }
}

/// A link that a forwarder may send over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    pub(crate) link: LinkId,
    /// The other direction of the same line. Packets that came by it do not go back over this link.
    pub(crate) reverse: Option<LinkId>,
}

impl Egress {
    pub(crate) fn leads_back(&self, ingress: Option<LinkId>) -> bool {
        ingress.is_some() && self.reverse == ingress
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits() {
        let (mut a, mut b) = (Bits::NONE, Bits::NONE);
        for bit in [0, 63, 64, 255] {
            a.set(bit);
        }
        b.set(64);
        assert!(a.has(&b) && !b.has(&a) && a.has(&Bits::NONE));
        b.set(65);
        assert!(!a.has(&b));
        assert_eq!((a.ones(), a.or(b).ones()), (4, 5));
        assert!(a.any_from(255) && a.any_from(0) && b.any_from(65) && !b.any_from(66) && !a.any_from(256));
    }

    #[test]
    fn what_is_no_header() {
        assert_eq!(Header::parse(&[0; 33]), Err(FidError::Short(33)));
        let mut bytes = [0; 40];
        bytes[0] = 3;
        assert_eq!(Header::parse(&bytes), Err(FidError::Kind(3)));
        (bytes[0], bytes[33]) = (1, 8);
        assert_eq!(Header::parse(&bytes), Err(FidError::Table(8)));
        bytes[33] = 7;
        let (header, rest) = Header::parse(&bytes).expect("a header");
        assert_eq!(
            (header.fid.kind(), header.fid.table(), header.hop_limit, rest.len()),
            (Kind::Lipsin, 7, 0, 6)
        );
        (bytes[0], bytes[33]) = (2, 0xff);
        let (header, _) = Header::parse(&bytes).expect("a header");
        assert_eq!((header.fid.epoch(), header.fid.table(), header.fid.bits().ones()), (31, 7, 0));
    }

    #[test]
    fn what_goes_nowhere() {
        let header = |kind: u8, hop_limit: u8, fid: [u8; FID_BYTES]| {
            let bytes = [&[kind, hop_limit][..], &fid[..]].concat();
            Header::parse(&bytes).expect("a header").0
        };
        let exact = Limits::exact(20);
        assert_eq!(exact.pass(&header(0, 0, [0; 32])), Err(Refusal::HopLimit));
        assert_eq!(exact.pass(&header(1, 1, [0; 32])), Err(Refusal::Kind));
        assert_eq!(exact.pass(&header(0, 1, [0xff; 32])), Err(Refusal::Overfull), "all ones");
        let mut fid = [0; 32];
        fid[..2].copy_from_slice(&[0xff, 0x07]);
        assert_eq!(exact.pass(&header(0, 1, fid)), Err(Refusal::Overfull), "11 of 20");
        fid = [0; 32];
        fid[2] = 0x10;
        assert_eq!(exact.pass(&header(0, 1, fid)), Err(Refusal::NoLink), "bit 20");
        fid[2] = 0x08;
        assert_eq!(exact.pass(&header(0, 1, fid)).map(|h| h.hop_limit), Ok(0));
        fid = [0xff; 32];
        fid[31] = 0;
        assert_eq!(Limits::filter(Kind::Lipsin).pass(&header(1, 9, fid)), Err(Refusal::Overfull));
    }

    proptest! {
        #[test]
        fn what_parses_is_the_same_again(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((header, rest)) = Header::parse(&bytes) {
                prop_assert_eq!(&header.to_bytes()[..], &bytes[..HEADER_BYTES]);
                prop_assert_eq!(rest, &bytes[HEADER_BYTES..]);
            }
        }
    }
}
