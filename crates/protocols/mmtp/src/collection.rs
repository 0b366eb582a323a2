//! The manifest of a directory. A manifest is itself a content, and one directory has exactly one encoding.
//!
//! The format is in `docs/wire-mmtp.md`. A manifest comes from outside, so it is checked. A [`Collection`] is
//! safe to lay out on disk below one directory: no path is absolute, leaves the directory, comes twice, or is
//! a file and a directory at once.

use core::fmt;

use crate::id::{ContentId, LENGTH_MAX};

/// The first line of every manifest.
pub const MAGIC: &[u8] = b"anabranch collection 1\n";
/// The most bytes of a manifest.
pub const MANIFEST_MAX: usize = 64 << 20;
/// The most files of a collection.
pub const ENTRIES_MAX: usize = 1_000_000;
/// The most bytes of a path: Linux's limit without the final NUL.
pub const PATH_MAX: usize = 4_095;
/// The most bytes of one component of a path.
pub const COMPONENT_MAX: usize = 255;

/// The mode bit of an executable file (bit 0).
const EXECUTABLE: u8 = 1;
/// The bytes of an encoded entry besides its path.
const FIXED: usize = 2 + 1 + 32 + 8;

/// One file of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path below the directory: components separated by `/`, of any bytes but NUL.
    pub path: Vec<u8>,
    /// Whether the file may be executed.
    pub executable: bool,
    /// The file's content.
    pub id: ContentId,
}

/// The files of a directory: checked, and sorted by the bytes of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    entries: Vec<Entry>,
}

/// The reason why files or bytes are not a collection. Entries are counted from 0, in the order of their
/// paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionError {
    /// The bytes do not begin with [`MAGIC`].
    Magic,
    /// The bytes end within this entry.
    Truncated(usize),
    /// The manifest would be longer than [`MANIFEST_MAX`].
    TooLong,
    /// There are more than [`ENTRIES_MAX`] files.
    TooMany,
    /// The path of this entry is not allowed. It is empty, absolute or too long, or has a component that is
    /// empty, `.`, `..`, over [`COMPONENT_MAX`] bytes long, or contains a NUL.
    Path(usize),
    /// The path of this entry does not sort after the path before it.
    Order(usize),
    /// This entry has the same path as the entry before it.
    Duplicate(usize),
    /// This entry lies below a path that is a file.
    BelowFile(usize),
    /// The mode of this entry has unknown bits.
    Mode(usize),
    /// The length of this entry is over [`LENGTH_MAX`].
    Length(usize),
}

impl fmt::Display for CollectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not a manifest: it does not begin with \"anabranch collection 1\""),
            Self::Truncated(n) => write!(f, "the manifest ends within entry {n}"),
            Self::TooLong => write!(f, "the manifest is longer than {MANIFEST_MAX} bytes"),
            Self::TooMany => write!(f, "the collection has more than {ENTRIES_MAX} files"),
            Self::Path(n) => write!(
                f,
                "the path of entry {n} is not allowed (empty, absolute, over {PATH_MAX} bytes, or with a \
                 component that is empty, \".\", \"..\", over {COMPONENT_MAX} bytes, or has a NUL)"
            ),
            Self::Order(n) => write!(f, "entry {n} is not in order"),
            Self::Duplicate(n) => write!(f, "entry {n} has the same path as the one before"),
            Self::BelowFile(n) => write!(f, "entry {n} lies below a path that is a file"),
            Self::Mode(n) => write!(f, "the mode of entry {n} has unknown bits"),
            Self::Length(n) => write!(f, "the length of entry {n} is over {LENGTH_MAX} bytes"),
        }
    }
}

impl core::error::Error for CollectionError {}

impl Collection {
    /// Creates a collection of these files, which may be in any order.
    ///
    /// # Errors
    /// If the files break a rule of collections; the error says which.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, CollectionError> {
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        check(&entries)?;
        Ok(Self { entries })
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// If `bytes` is not a manifest; the error says why.
    pub fn parse(bytes: &[u8]) -> Result<Self, CollectionError> {
        if bytes.len() > MANIFEST_MAX {
            return Err(CollectionError::TooLong);
        }
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(CollectionError::Magic)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let n = entries.len();
            if n == ENTRIES_MAX {
                return Err(CollectionError::TooMany);
            }
            let (entry, mode) = take_entry(&mut rest).ok_or(CollectionError::Truncated(n))?;
            if mode & !EXECUTABLE != 0 {
                return Err(CollectionError::Mode(n));
            }
            entries.push(entry);
        }
        check(&entries)?;
        Ok(Self { entries })
    }

    /// Returns the manifest. The same files always give the same bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(encoded_len(&self.entries));
        out.extend_from_slice(MAGIC);
        for entry in &self.entries {
            out.extend_from_slice(&(entry.path.len() as u16).to_be_bytes());
            out.extend_from_slice(&entry.path);
            out.push(if entry.executable { EXECUTABLE } else { 0 });
            out.extend_from_slice(&entry.id.root);
            out.extend_from_slice(&entry.id.length.to_be_bytes());
        }
        out
    }

    /// Returns the files, sorted by the bytes of their paths.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the total length of all files in bytes, at most `u64::MAX`.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.id.length))
    }
}

/// Whether `name` may be the name of a file in a directory: it is not empty, `.` or `..`, has no `/` and no
/// NUL, and at most [`COMPONENT_MAX`] bytes.
#[must_use]
pub fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= COMPONENT_MAX
        && !name.iter().any(|b| matches!(b, b'/' | 0))
}

fn encoded_len(entries: &[Entry]) -> usize {
    MAGIC.len() + entries.iter().map(|entry| FIXED + entry.path.len()).sum::<usize>()
}

fn take_entry(rest: &mut &[u8]) -> Option<(Entry, u8)> {
    let (path_len, bytes) = rest.split_first_chunk()?;
    let (path, bytes) = bytes.split_at_checked(usize::from(u16::from_be_bytes(*path_len)))?;
    let (mode, bytes) = bytes.split_first()?;
    let (root, bytes) = bytes.split_first_chunk()?;
    let (length, bytes) = bytes.split_first_chunk()?;
    *rest = bytes;
    let id = ContentId { root: *root, length: u64::from_be_bytes(*length) };
    Some((Entry { path: path.to_vec(), executable: mode & EXECUTABLE != 0, id }, *mode))
}

/// Checks every rule of collections.
fn check(entries: &[Entry]) -> Result<(), CollectionError> {
    if entries.len() > ENTRIES_MAX {
        return Err(CollectionError::TooMany);
    }
    // The earlier paths that the current path begins with. In the order of bytes, all paths that begin with
    // one path follow it directly. Beginning with a path does not mean lying below it: `a-b` lies between `a`
    // and `a/b`.
    let mut open: Vec<&[u8]> = Vec::new();
    for (n, Entry { path, id, .. }) in entries.iter().enumerate() {
        if path.len() > PATH_MAX || !path.split(|byte| *byte == b'/').all(is_file_name) {
            return Err(CollectionError::Path(n));
        }
        if id.length > LENGTH_MAX {
            return Err(CollectionError::Length(n));
        }
        if let Some(before) = n.checked_sub(1).and_then(|n| entries.get(n)) {
            match path.cmp(&before.path) {
                core::cmp::Ordering::Less => return Err(CollectionError::Order(n)),
                core::cmp::Ordering::Equal => return Err(CollectionError::Duplicate(n)),
                core::cmp::Ordering::Greater => {}
            }
        }
        while open.pop_if(|prefix| !path.starts_with(prefix)).is_some() {}
        if open.iter().any(|prefix| path.get(prefix.len()) == Some(&b'/')) {
            return Err(CollectionError::BelowFile(n));
        }
        open.push(path);
    }
    // This comes after the check of the paths, so that the sum cannot overflow if a usize has 32 bits.
    if encoded_len(entries) > MANIFEST_MAX {
        return Err(CollectionError::TooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(path: &[u8]) -> Entry {
        Entry { path: path.to_vec(), executable: path.starts_with(b"a"), id: ContentId::of(path) }
    }

    fn of(paths: &[&[u8]]) -> Result<Collection, CollectionError> {
        Collection::new(paths.iter().map(|path| entry(path)).collect())
    }

    #[test]
    fn a_directory_there_and_back() {
        let paths: [&[u8]; 7] = [b"z", b"a/b/c", b"a-b", b"a/b/d", b"new\nline", b"not utf-8 \xff", b"..."];
        let collection = of(&paths).unwrap();
        let bytes = collection.encode();
        assert_eq!(Collection::parse(&bytes).as_ref(), Ok(&collection));
        assert_eq!(collection.entries().len(), 7);
        assert_eq!(collection.entries()[1].path, b"a-b");
        assert_eq!(collection.total_bytes(), paths.iter().map(|path| path.len() as u64).sum());
        let mut back = paths;
        back.reverse();
        assert_eq!(of(&back).unwrap().encode(), bytes);
        assert_eq!(Collection::parse(MAGIC), Ok(Collection::default()));
        for len in 0..bytes.len() {
            match Collection::parse(&bytes[..len]) {
                Err(CollectionError::Magic) => assert!(len < MAGIC.len()),
                Err(CollectionError::Truncated(_)) => {}
                // The bytes before an entry's end are a manifest of fewer entries.
                Ok(shorter) => assert_eq!(shorter.encode(), &bytes[..len]),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn paths_that_are_not_allowed() {
        let long = [b'x'; 256];
        let deep = b"d/".repeat(2_049);
        let bad: [&[u8]; 13] = [
            b"",
            b"/",
            b"/etc/passwd",
            b"a/",
            b"a//b",
            b".",
            b"..",
            b"a/./b",
            b"a/../b",
            b"../b",
            b"nul\0",
            &long,
            &deep[..4_097],
        ];
        for path in bad {
            assert_eq!(of(&[path]), Err(CollectionError::Path(0)), "{:?}", path.escape_ascii().to_string());
        }
        assert!(of(&[&long[..255], &deep[..4_095]]).is_ok());
    }

    #[test]
    fn a_file_is_no_directory() {
        assert_eq!(of(&[b"a", b"a-b", b"a.", b"a/b"]), Err(CollectionError::BelowFile(3)));
        assert_eq!(of(&[b"a/b", b"a/b/c/d"]), Err(CollectionError::BelowFile(1)));
        assert_eq!(of(&[b"a", b"a"]), Err(CollectionError::Duplicate(1)));
        assert!(of(&[b"a", b"a-b", b"ab/c", b"a-b.c/d"]).is_ok());
    }

    /// Paths that each begin with the path before are the slowest to check.
    #[test]
    fn a_hostile_manifest_is_checked_quickly() {
        let path = [b'x'; 255];
        let paths = (1..=255).map(|len| &path[..len]).collect::<Vec<_>>();
        assert!(of(&paths).is_ok());
        let many = (0..200_000_u32).map(|i| entry(format!("{i:07}/f").as_bytes())).collect();
        assert!(Collection::new(many).is_ok());
    }

    #[test]
    fn what_else_is_wrong_with_manifests() {
        let good = of(&[b"a", b"b"]).unwrap().encode();
        let at = MAGIC.len();
        let swapped = [MAGIC, &good[at + FIXED + 1..], &good[at..at + FIXED + 1]].concat();
        assert_eq!(Collection::parse(&swapped), Err(CollectionError::Order(1)));
        let mut mode = good.clone();
        mode[at + 3] = 2;
        assert_eq!(Collection::parse(&mode), Err(CollectionError::Mode(0)));
        let mut length = good.clone();
        length[at + 36] = 0xff;
        assert_eq!(Collection::parse(&length), Err(CollectionError::Length(0)));
        assert_eq!(Collection::parse(&vec![0; MANIFEST_MAX + 1]), Err(CollectionError::TooLong));
        assert_eq!(Collection::parse(b"anabranch collection 2\n"), Err(CollectionError::Magic));
        let many = (0..=ENTRIES_MAX).map(|i| entry(i.to_string().as_bytes())).collect();
        assert_eq!(Collection::new(many), Err(CollectionError::TooMany));
        let long = b"0123456789abcdef/".repeat(240);
        let many = (0..17_000).map(|i| entry(&[&long[..], i.to_string().as_bytes()].concat())).collect();
        assert_eq!(Collection::new(many), Err(CollectionError::TooLong));
    }

    proptest! {
        #[test]
        fn what_is_accepted_has_one_encoding(
            paths in proptest::collection::btree_set("[a-c./-]{1,6}", 0..12),
        ) {
            let paths: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
            if let Ok(collection) = of(&paths) {
                prop_assert_eq!(Collection::parse(&collection.encode()), Ok(collection.clone()));
                for (i, a) in paths.iter().enumerate() {
                    for b in &paths[i + 1..] {
                        prop_assert!(!b.starts_with(&[a, &b"/"[..]].concat()));
                    }
                }
            }
        }
    }
}
