//! The name of a content, and its division into parts.
//!
//! A content is named by the BLAKE3 root of its bytes and by their number. It is verified in *blocks* of 16
//! KiB and scheduled in *segments* of 64 blocks. It is carried in *chunks*, one per packet. The *cut*
//! ([`ChunksPerBlock`]) is the number of chunks of a block; for each path MTU there is a cut that fits.

use core::fmt;

/// The bytes of a block, the unit of verification. A block is 16 BLAKE3 chunks of 1 KiB, a power of two, so
/// that it is a subtree of BLAKE3's own tree.
pub const BLOCK_BYTES: usize = 16_384;
/// The blocks of a segment, the unit of scheduling: 1 MiB.
pub const SEGMENT_BLOCKS: u64 = 64;
/// The length of the longest content in bytes: 64 TiB, or 2³² blocks.
pub const LENGTH_MAX: u64 = 1 << 46;
/// The characters of the text form of a root: `b3:` and 52 characters of base32.
pub const ROOT_TEXT_CHARS: usize = 55;

/// The name of a content. The content's bytes can be checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId {
    /// The BLAKE3 hash of all bytes.
    pub root: [u8; 32],
    /// The length in bytes, at most [`LENGTH_MAX`].
    pub length: u64,
}

impl ContentId {
    /// Computes the name of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { root: *blake3::hash(bytes).as_bytes(), length: bytes.len() as u64 }
    }

    /// Returns the number of blocks. It is 0 for the empty content, which is verified by its name alone (see
    /// [`is_empty_content`](Self::is_empty_content)).
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.length.div_ceil(BLOCK_BYTES as u64)
    }

    /// Returns the length of a block in bytes: [`BLOCK_BYTES`], less for the last block, 0 beyond the end.
    #[must_use]
    pub const fn block_len(&self, block: u64) -> usize {
        match block.checked_mul(BLOCK_BYTES as u64) {
            Some(start) if start < self.length => {
                let left = self.length - start;
                if left < BLOCK_BYTES as u64 { left as usize } else { BLOCK_BYTES }
            }
            _ => 0,
        }
    }

    /// Returns the number of segments. Each has [`SEGMENT_BLOCKS`] blocks; the last one may have fewer.
    #[must_use]
    pub const fn segments(&self) -> u64 {
        self.blocks().div_ceil(SEGMENT_BLOCKS)
    }

    /// Whether this names the empty content. A length of 0 with another root names nothing.
    #[must_use]
    pub fn is_empty_content(&self) -> bool {
        self.length == 0 && self.root == *blake3::hash(&[]).as_bytes()
    }

    /// Returns the number of chunks of the whole content at this cut.
    #[must_use]
    pub const fn chunks(&self, cut: ChunksPerBlock) -> u64 {
        let full = self.length / BLOCK_BYTES as u64;
        let rest = (self.length % BLOCK_BYTES as u64) as usize;
        // Lengths over LENGTH_MAX are refused where they are received; saturate rather than rely on that.
        (full.saturating_mul(cut.get() as u64)).saturating_add(rest.div_ceil(cut.chunk_bytes()) as u64)
    }

    /// Returns the number of chunks of a block at this cut. A full block has `cut` of them, a shorter last
    /// block as many as its bytes need, and a block beyond the end 0.
    #[must_use]
    pub const fn chunks_in_block(&self, block: u64, cut: ChunksPerBlock) -> u32 {
        self.block_len(block).div_ceil(cut.chunk_bytes()) as u32
    }

    /// Returns the block of chunk `n`, the chunk's offset in that block, and how many bytes of the content it
    /// has. Returns `None` if the content has no such chunk. [`chunk_wire_len`](Self::chunk_wire_len)
    /// includes the padding.
    #[must_use]
    pub const fn chunk_extent(&self, n: u64, cut: ChunksPerBlock) -> Option<(u64, usize, usize)> {
        let block = n / cut.get() as u64;
        let offset = (n % cut.get() as u64) as usize * cut.chunk_bytes();
        let len = self.block_len(block);
        if offset >= len {
            return None;
        }
        let left = len - offset;
        Some((block, offset, if left < cut.chunk_bytes() { left } else { cut.chunk_bytes() }))
    }

    /// Returns the payload bytes of chunk `n` on the wire. All chunks of a full block are equally long,
    /// because UDP segmentation offload needs equal segments; the last one is padded with zeros. A shorter
    /// last block is not padded.
    #[must_use]
    pub const fn chunk_wire_len(&self, n: u64, cut: ChunksPerBlock) -> Option<usize> {
        match self.chunk_extent(n, cut) {
            Some((block, _, _)) if self.block_len(block) == BLOCK_BYTES => Some(cut.chunk_bytes()),
            Some((_, _, len)) => Some(len),
            None => None,
        }
    }
}

/// Writes the text form of the root: `b3:` and 52 characters of lower-case base32 (RFC 4648 §6) without
/// padding. The length is not part of it.
impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("b3:")?;
        base32().encode_display(&self.root).fmt(f)
    }
}

/// Parses the text form of a root (see `Display` of [`ContentId`]). Upper case is accepted.
///
/// # Errors
/// If `text` is not the text form of a root; the error says why.
pub fn parse_root(text: &str) -> Result<[u8; 32], RootError> {
    let (scheme, digits) = text.split_at_checked(3).ok_or(RootError::Scheme)?;
    if !scheme.eq_ignore_ascii_case("b3:") {
        return Err(RootError::Scheme);
    }
    let count = digits.chars().count();
    if count != ROOT_TEXT_CHARS - 3 {
        return Err(RootError::Chars(count));
    }
    let bytes = base32().decode(digits.to_ascii_lowercase().as_bytes()).map_err(|_| RootError::Digits)?;
    bytes.try_into().map_err(|_| RootError::Digits)
}

/// Returns the encoding: lower-case base32 of RFC 4648 §6 without padding.
fn base32() -> &'static data_encoding::Encoding {
    static BASE32: std::sync::LazyLock<data_encoding::Encoding> = std::sync::LazyLock::new(|| {
        let mut spec = data_encoding::Specification::new();
        spec.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
        spec.encoding().expect("32 distinct symbols are an encoding")
    });
    &BASE32
}

/// The reason why a text is not the text form of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootError {
    /// The text does not begin with `b3:`.
    Scheme,
    /// The text has this many characters after `b3:`, not 52.
    Chars(usize),
    /// A character is not one of `a-z2-7`, or the last one sets bits that no root has.
    Digits,
}

impl fmt::Display for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("the content's name must begin with \"b3:\" (BLAKE3)"),
            Self::Chars(n) => write!(f, "the content's name has {n} characters after \"b3:\", expected 52"),
            Self::Digits => f.write_str("the content's name is not base32 (letters a-z and digits 2-7)"),
        }
    }
}

impl core::error::Error for RootError {}

/// The cut: the number of packets that a full block is divided into. It is 1 to 64, so that chunks have
/// 16,384 down to 256 bytes.
///
/// Chunk `n` of a content is chunk `n % cut` of block `n / cut`. At every cut, the last chunk of a block has
/// at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunksPerBlock(u8);

impl ChunksPerBlock {
    /// The finest cut.
    pub const MAX: Self = Self(64);

    /// Creates a cut of `cut` packets per block. Returns `None` unless `cut` is 1 to 64.
    #[must_use]
    pub const fn new(cut: u8) -> Option<Self> {
        if cut >= 1 && cut <= Self::MAX.0 { Some(Self(cut)) } else { None }
    }

    /// Returns the coarsest cut whose chunks have at most `bytes` bytes. Returns `None` if `bytes` is under
    /// 256.
    #[must_use]
    pub const fn fitting(bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let cut = BLOCK_BYTES.div_ceil(bytes);
        if cut > Self::MAX.0 as usize { None } else { Some(Self(cut as u8)) }
    }

    /// Returns the number of packets of a full block.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the payload bytes of each packet of a full block.
    #[must_use]
    pub const fn chunk_bytes(self) -> usize {
        BLOCK_BYTES.div_ceil(self.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(length: u64) -> ContentId {
        ContentId { root: [7; 32], length }
    }

    #[test]
    fn chunks_tile_every_length_at_every_cut() {
        let lengths = [0, 1, 255, 256, 257, 1_366, 16_383, 16_384, 16_385, 32_768, 40_000];
        for cut in (1..=64).filter_map(ChunksPerBlock::new) {
            for id in lengths.map(sized) {
                let mut at = 0;
                for n in 0.. {
                    let Some((block, offset, len)) = id.chunk_extent(n, cut) else {
                        // Chunk numbers have no holes.
                        assert_eq!(n, id.chunks(cut));
                        break;
                    };
                    assert_eq!(at, block * BLOCK_BYTES as u64 + offset as u64, "{id:?} {cut:?} {n}");
                    assert!(len >= 1 && len <= cut.chunk_bytes());
                    let wire = id.chunk_wire_len(n, cut).unwrap();
                    let full = id.block_len(block) == BLOCK_BYTES;
                    assert_eq!(wire, if full { cut.chunk_bytes() } else { len });
                    at += len as u64;
                }
                assert_eq!(at, id.length);
                let sum: u64 = (0..id.blocks()).map(|g| u64::from(id.chunks_in_block(g, cut))).sum();
                assert_eq!(sum, id.chunks(cut));
                assert_eq!(id.chunks_in_block(id.blocks(), cut), 0);
            }
        }
    }

    #[test]
    fn the_edges() {
        assert_eq!(sized(LENGTH_MAX).blocks(), 1 << 32);
        assert_eq!(sized(LENGTH_MAX).segments(), 1 << 26);
        for id in [sized(0), sized(1), sized(u64::MAX), sized(LENGTH_MAX)] {
            assert_eq!(id.block_len(u64::MAX), 0);
            assert_eq!(id.chunk_extent(u64::MAX, ChunksPerBlock::MAX), None);
            let _ = (id.chunks(ChunksPerBlock::MAX), id.segments());
        }
        assert_eq!(ChunksPerBlock::new(0), None);
        assert_eq!(ChunksPerBlock::new(65), None);
        assert_eq!(ChunksPerBlock::new(12).unwrap().chunk_bytes(), 1_366);
        assert!(ContentId::of(b"").is_empty_content());
        assert!(!sized(0).is_empty_content());
    }

    #[test]
    fn a_fitting_cut_is_the_coarsest() {
        assert_eq!(ChunksPerBlock::fitting(0), None);
        assert_eq!(ChunksPerBlock::fitting(255), None);
        assert_eq!(ChunksPerBlock::fitting(usize::MAX), ChunksPerBlock::new(1));
        for bytes in 256..=20_000 {
            let cut = ChunksPerBlock::fitting(bytes).unwrap();
            assert!(cut.chunk_bytes() <= bytes);
            assert!(cut.get() == 1 || ChunksPerBlock::new(cut.get() - 1).unwrap().chunk_bytes() > bytes);
        }
    }

    #[test]
    fn text_form() {
        let id = ContentId::of(b"anabranch");
        let text = id.to_string();
        assert_eq!(text.len(), ROOT_TEXT_CHARS);
        assert_eq!(parse_root(&text), Ok(id.root));
        assert_eq!(parse_root(&text.to_uppercase()), Ok(id.root));
        assert_eq!(parse_root(&text[3..]), Err(RootError::Scheme));
        assert_eq!(parse_root(""), Err(RootError::Scheme));
        assert_eq!(parse_root("bß"), Err(RootError::Scheme));
        assert_eq!(parse_root(&text[..54]), Err(RootError::Chars(51)));
        assert_eq!(parse_root(&format!("b3:{}", "1".repeat(52))), Err(RootError::Digits));
        assert_eq!(parse_root(&format!("b3:{}", "ä".repeat(52))), Err(RootError::Digits));
        // 52 characters carry 260 bits. The last four bits must be zero, so that one root has only one text.
        assert_eq!(parse_root(&format!("b3:{}b", "a".repeat(51))), Err(RootError::Digits));
    }
}
