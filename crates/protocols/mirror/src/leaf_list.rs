//! The files beside a file with which its bytes can be verified: the detached leaf list, and the line of
//! `b3sum`.
//!
//! A leaf list has the chaining value of every block (see [`anabranch_mmtp::tree`]), so that each 16 KiB
//! block of any mirror can be verified separately. A leaf list is refused unless its values merge to its
//! root. Its layout is in `docs/mirror-formats.md`.

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use anabranch_mmtp::tree::{ChainingValue, root_of_leaves};

use crate::checksum_lines;
use crate::url::encode_component;

/// The suffix that a file's leaf list adds to the name of the file.
pub const SUFFIX: &str = ".b3leaves";
/// The media type of a leaf list in a Metalink's `metaurl`.
pub const MEDIA_TYPE: &str = "application/x-anabranch-leaves";
/// The suffix that a file's line of `b3sum` adds to the name of the file.
pub const B3SUM_SUFFIX: &str = ".b3";
/// The most bytes of a leaf list that is read: enough for a content of 512 GiB.
pub const LEAVES_MAX: usize = (1 << 30) + HEAD_BYTES;
/// The most bytes of a file of `b3sum` lines that is read.
pub const B3SUM_MAX: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"anb3leaf";
const VERSION: u32 = 1;
/// The bytes of a leaf list before its chaining values.
pub const HEAD_BYTES: usize = 8 + 4 + 4 + 32 + 8;

/// Returns the relative reference (RFC 3986 §4.2) from a file of this name to its leaf list beside it.
#[must_use]
pub fn reference(name: &str) -> String {
    format!("{}{SUFFIX}", encode_component(name))
}

/// Returns the head of a content's leaf list, before the chaining values. Numbers are little-endian.
#[must_use]
pub fn head(id: &ContentId) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
    head[16..48].copy_from_slice(&id.root);
    head[48..].copy_from_slice(&id.length.to_le_bytes());
    head
}

/// The chaining values of a content's blocks, which merge to its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafList {
    id: ContentId,
    cvs: Vec<ChainingValue>,
}

/// Why bytes are not a leaf list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeafListError {
    /// The bytes do not begin like a leaf list.
    #[error("no leaf list: it does not begin with \"anb3leaf\"")]
    Magic,
    /// The leaf list has this unknown version.
    #[error("the leaf list is of version {0}, expected {VERSION}: a newer anabranch made it")]
    Version(u32),
    /// The leaf list is for blocks of this many bytes.
    #[error("the leaf list is of blocks of {0} bytes, expected {BLOCK_BYTES}")]
    Block(u32),
    /// The content has this length, which is over [`LENGTH_MAX`] or too long for [`LEAVES_MAX`].
    #[error("the leaf list is of a content of {0} bytes, longer than can be")]
    Length(u64),
    /// The leaf list has the wrong number of bytes.
    #[error("the leaf list has {found} bytes, expected {expected}")]
    Size {
        /// The number of bytes that it has.
        found: u64,
        /// The number of bytes that it should have.
        expected: u64,
    },
    /// The chaining values do not merge to the root.
    #[error("the leaf list does not give the content's root: it is corrupt")]
    Root,
}

impl LeafList {
    /// Creates the leaf list of a content. A content of at most one block has no chaining values. Returns
    /// `None` if the values do not merge to the root of `id`.
    #[must_use]
    pub fn new(id: ContentId, cvs: Vec<ChainingValue>) -> Option<Self> {
        if id.length > LENGTH_MAX || cvs.len() as u64 != count(id.length) {
            return None;
        }
        let right = match cvs[..] {
            [] => id.length > 0 || id.is_empty_content(),
            _ => root_of_leaves(cvs.iter().copied()) == Some(id.root),
        };
        right.then_some(Self { id, cvs })
    }

    /// Returns the content id.
    #[must_use]
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Returns the chaining values of all blocks, in order. Empty for a content of at most one block, whose
    /// bytes hash to the root directly.
    #[must_use]
    pub fn cvs(&self) -> &[ChainingValue] {
        &self.cvs
    }

    /// Returns the chaining values of all blocks, like [`cvs`](Self::cvs), and consumes the list.
    #[must_use]
    pub fn into_cvs(self) -> Vec<ChainingValue> {
        self.cvs
    }

    /// Returns the number of bytes of the leaf list of a content of `length` bytes.
    #[must_use]
    pub const fn encoded_len(length: u64) -> u64 {
        HEAD_BYTES as u64 + 32 * count(length)
    }

    /// Returns the most bytes to read of the leaf list of a content of `length` bytes: its length, but at
    /// most [`LEAVES_MAX`].
    #[must_use]
    pub fn max_len(length: u64) -> usize {
        let max = Self::encoded_len(length.min(LENGTH_MAX)).min(LEAVES_MAX as u64);
        usize::try_from(max).unwrap_or(LEAVES_MAX)
    }

    /// Writes the leaf list.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&head(&self.id)[..], self.cvs.as_flattened()].concat()
    }

    /// Reads a leaf list. Its values merge to the root in it. The caller checks whether that root and that
    /// length are the wanted ones (see [`id`](Self::id)). A wrong length with the same number of blocks is
    /// not found here. It is found when the last block arrives, whose bytes then do not match.
    ///
    /// # Errors If `bytes` is not a leaf list; the error says why.
    pub fn parse(bytes: &[u8]) -> Result<Self, LeafListError> {
        let (id, rest) = split_head(bytes)?;
        let expected = Self::encoded_len(id.length);
        if bytes.len() as u64 != expected {
            return Err(LeafListError::Size { found: bytes.len() as u64, expected });
        }
        let (cvs, _) = rest.as_chunks::<32>();
        Self::new(id, cvs.to_vec()).ok_or(LeafListError::Root)
    }
}

/// Returns the content id in the head of a leaf list, of which only the beginning is needed.
///
/// # Errors If the bytes are not the beginning of a leaf list, or are shorter than its head; the error says
/// why.
pub fn announced(beginning: &[u8]) -> Result<ContentId, LeafListError> {
    split_head(beginning).map(|(id, _)| id)
}

/// Splits a leaf list into the content id in its head, and the bytes behind the head.
fn split_head(bytes: &[u8]) -> Result<(ContentId, &[u8]), LeafListError> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(LeafListError::Magic)?;
    if magic != MAGIC {
        return Err(LeafListError::Magic);
    }
    let short = LeafListError::Size { found: bytes.len() as u64, expected: HEAD_BYTES as u64 };
    let (version, rest) = rest.split_first_chunk().ok_or(short.clone())?;
    match u32::from_le_bytes(*version) {
        VERSION => {}
        version => return Err(LeafListError::Version(version)),
    }
    let (block, rest) = rest.split_first_chunk().ok_or(short.clone())?;
    match u32::from_le_bytes(*block) {
        block if block as usize == BLOCK_BYTES => {}
        block => return Err(LeafListError::Block(block)),
    }
    let (root, rest) = rest.split_first_chunk::<32>().ok_or(short.clone())?;
    let (length, rest) = rest.split_first_chunk().ok_or(short)?;
    let id = ContentId { root: *root, length: u64::from_le_bytes(*length) };
    if id.length > LENGTH_MAX || LeafList::encoded_len(id.length) > LEAVES_MAX as u64 {
        return Err(LeafListError::Length(id.length));
    }
    Ok((id, rest))
}

/// Returns the number of chaining values for a content of `length` bytes.
const fn count(length: u64) -> u64 {
    match length.div_ceil(BLOCK_BYTES as u64) {
        1 => 0,
        blocks => blocks,
    }
}

/// A hash in the output of `b3sum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumLine {
    /// The BLAKE3 hash.
    pub root: [u8; 32],
    /// The name in the line, if it is another one than the file has.
    pub other_name: Option<Vec<u8>>,
}

/// Returns the BLAKE3 hash of the file `name` in the output of `b3sum`, with `--tag` or without; see
/// [`checksum_lines`]. The only line of a text counts even if it names another file: the caller tells the
/// user that name.
#[must_use]
pub fn b3sum(text: &[u8], name: &[u8]) -> Option<SumLine> {
    if text.len() > B3SUM_MAX {
        return None;
    }
    let root = |tag: Option<&[u8]>, hash: &[u8]| {
        hash.try_into().ok().filter(|_| tag.is_none_or(|tag| tag == b"BLAKE3"))
    };
    if let Some(root) = checksum_lines::find(text, name, root).unwrap_or(None) {
        return Some(SumLine { root, other_name: None });
    }
    // The list is beside the file, which may have had another name when it was hashed.
    let (root, other_name) = checksum_lines::only(text, root)?;
    Some(SumLine { root, other_name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_mmtp::tree::Outboard;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> LeafList {
        let tree = Outboard::of_bytes(bytes);
        LeafList::new(tree.id(), tree.leaves().to_vec()).expect("they give the root")
    }

    #[test]
    fn the_layout() {
        let content: Vec<u8> = (0..40_000_u32).map(|n| n as u8).collect();
        let leaves = of(&content);
        let bytes = leaves.encode();
        assert_eq!(&bytes[..16], b"anb3leaf\x01\0\0\0\0\x40\0\0");
        assert_eq!(&bytes[16..48], blake3::hash(&content).as_bytes());
        assert_eq!(&bytes[48..56], 40_000_u64.to_le_bytes());
        assert_eq!(bytes.len(), 56 + 3 * 32);
        assert_eq!(LeafList::encoded_len(40_000), bytes.len() as u64);
        assert_eq!(LeafList::parse(&bytes), Ok(leaves.clone()));
        assert_eq!(leaves.cvs().len(), 3);
        assert_eq!(leaves.id(), ContentId::of(&content));
        assert_eq!(leaves.into_cvs()[1], anabranch_mmtp::tree::block_cv(1, &content[16_384..32_768]));
    }

    #[test]
    fn one_block_has_none() {
        for content in [&b""[..], b"x", &[7; 16_384]] {
            let bytes = of(content).encode();
            assert_eq!(bytes.len(), 56);
            assert_eq!(LeafList::parse(&bytes).map(|leaves| leaves.id()), Ok(ContentId::of(content)));
        }
        assert_eq!(of(&[7; 16_385]).encode().len(), 56 + 64);
        // An empty content has only one valid root.
        assert_eq!(LeafList::new(ContentId { root: [0; 32], length: 0 }, Vec::new()), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let bytes = of(&[3; 50_000]).encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            if at == 48 {
                // The number of blocks, and so the leaves, are the same. Only the last block shows that the
                // length is wrong.
                assert_eq!(LeafList::parse(&bad).map(|leaves| leaves.id().length), Ok(50_000 ^ 0x40));
                continue;
            }
            let error = LeafList::parse(&bad).expect_err("a changed byte shows");
            match at {
                0..8 => assert_eq!(error, LeafListError::Magic),
                8..12 => assert!(matches!(error, LeafListError::Version(_))),
                12..16 => assert!(matches!(error, LeafListError::Block(_))),
                16..48 | 56.. => assert_eq!(error, LeafListError::Root),
                _ => {
                    assert!(
                        matches!(error, LeafListError::Size { .. } | LeafListError::Length(_)),
                        "{error}"
                    );
                }
            }
            assert!(error.to_string().len() > 20);
        }
        for len in 0..bytes.len() {
            assert!(LeafList::parse(&bytes[..len]).is_err());
            assert_eq!(announced(&bytes[..len]).is_ok(), len >= HEAD_BYTES);
        }
        assert_eq!(announced(&bytes), Ok(ContentId::of(&[3; 50_000])));
        assert!(LeafList::parse(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn references_are_relative() {
        assert_eq!(reference("a b:c/ä?.iso"), "a%20b%3Ac%2F%C3%A4%3F.iso.b3leaves");
    }

    #[test]
    fn lines_of_b3sum() {
        let (a, b) = (ContentId::of(b"a").root, ContentId::of(b"b").root);
        let hex = |root: &[u8; 32]| data_encoding::HEXLOWER.encode(root);
        let own = |text: &[u8], name: &[u8]| match b3sum(text, name) {
            Some(SumLine { root, other_name: None }) => Some(root),
            other => {
                assert_eq!(other, None, "{text:?}");
                None
            }
        };
        let two = format!("{}  x.iso\n{}  dir/y.iso\n", hex(&a), hex(&b).to_uppercase());
        assert_eq!(own(two.as_bytes(), b"x.iso"), Some(a));
        assert_eq!(own(two.as_bytes(), b"y.iso"), Some(b));
        assert_eq!(own(two.as_bytes(), b"iso"), None);
        assert_eq!(own(two.as_bytes(), b"z.iso"), None);
        // A single line is about the file beside it, even if that had another name when it was hashed.
        let only = b3sum(format!("{} *old\r\n", hex(&a)).as_bytes(), b"new");
        assert_eq!(only, Some(SumLine { root: a, other_name: Some(b"old".to_vec()) }));
        assert_eq!(own(hex(&a).as_bytes(), b"new"), Some(a));
        let tag = format!("BLAKE3 (a) = b) = {}\nBLAKE3 (c) = {}", hex(&a), hex(&b));
        assert_eq!(own(tag.as_bytes(), b"a) = b"), Some(a));
        assert_eq!(own(tag.as_bytes(), b"c"), Some(b));
        let escaped = format!("{}  x\n\\{}  a\\nb\\\\c\n", hex(&b), hex(&a));
        assert_eq!(own(escaped.as_bytes(), b"a\nb\\c"), Some(a));
        for none in ["", "\n", "<html>404</html>", &hex(&a)[1..], &format!("{}x", hex(&a))] {
            assert_eq!(own(none.as_bytes(), b"x"), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in vec(any::<u8>(), 0..200), header in any::<bool>()) {
            let bytes = if header { [&of(&[1; 20_000]).encode()[..48], &bytes].concat() } else { bytes };
            if let Ok(leaves) = LeafList::parse(&bytes) {
                prop_assert_eq!(leaves.encode(), bytes.clone());
            }
            let _ = b3sum(&bytes, b"name");
        }

        #[test]
        fn any_lines_are_survived(
            plain in "(\\\\?[0-9a-f]{63,65} {0,2}[*\\\\nr ]{0,6}\n?){0,3}",
            tagged in "(BLAKE3 \\([ )=]{0,9}[0-9a-f]{64}){0,2}",
        ) {
            let _ = b3sum(format!("{plain}{tagged}").as_bytes(), b"name");
        }
    }
}
