//! Lines of what `sha256sum`, `b3sum` and their like print: `HASH  NAME`, where a name with a backslash or a
//! line feed is escaped, and a backslash is in front of the line; or `KIND (NAME) = HASH` of `--tag`.

use data_encoding::HEXLOWER_PERMISSIVE;

/// A line that could be read.
struct Line<'a> {
    /// The kind of hash, if the line tells it.
    tag: Option<&'a [u8]>,
    hash: Vec<u8>,
    name: Option<Vec<u8>>,
}

/// Several lines may mean the file, and have different hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// What `fits` makes of the hash of the file `name`, a path or only its last component. It is told the kind
/// of hash, if the line tells it, and the hash; lines of which it makes nothing do not count. Of several
/// lines with this last component the one counts whose directories are those of `name`, from the last one
/// on. If no line has this name but all that is there is one hash, it is that: files are renamed.
///
/// # Errors
/// [`Ambiguous`] if nothing tells which of several hashes it is.
pub fn find<T: PartialEq>(
    text: &[u8],
    name: &[u8],
    fits: impl Fn(Option<&[u8]>, &[u8]) -> Option<T>,
) -> Result<Option<T>, Ambiguous> {
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let lines = lines.filter_map(read);
    let mut all = lines.filter_map(|line| Some((fits(line.tag, &line.hash)?, line.name)));
    let Some((first, own)) = all.next() else { return Ok(None) };
    // A hash alone is that of the file.
    let rank = |own: Option<Vec<u8>>| own.map_or(Some((true, 0)), |own| rank(&own, name));
    let (mut best_rank, mut best, mut is_one, mut others) = (rank(own), first, true, 0);
    for (hash, own) in all {
        others += 1;
        match rank(own) {
            Some(rank) if best_rank.is_none_or(|best| best < rank) => {
                (best_rank, best, is_one) = (Some(rank), hash, true);
            }
            Some(rank) if best_rank == Some(rank) => is_one &= best == hash,
            _ => {}
        }
    }
    match best_rank {
        Some(_) if !is_one => Err(Ambiguous),
        None if others > 0 => Ok(None),
        _ => Ok(Some(best)),
    }
}

/// How well a path in a list of hashes fits the file: whether all of it is the end of `name`, and how many
/// components are the same, from the last one on. None if not even the last one is.
fn rank(own: &[u8], name: &[u8]) -> Option<(bool, usize)> {
    let parts =
        |path| <[u8]>::split(path, |byte| *byte == b'/').rev().filter(|part| !matches!(*part, b"" | b"."));
    let (own, name): (Vec<&[u8]>, Vec<&[u8]>) = (parts(own).collect(), parts(name).collect());
    let same = own.iter().zip(&name).take_while(|(own, name)| own == name).count();
    (same > 0).then_some((same == own.len(), same))
}

fn read(line: &[u8]) -> Option<Line<'_>> {
    let (line, escaped) = line.strip_prefix(b"\\").map_or((line, false), |line| (line, true));
    let named = |name: &[u8]| Some(if escaped { unescape(name) } else { name.to_vec() });
    if let Some(open) = line.windows(2).position(|w| w == b" (")
        && line[..open].iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    {
        let rest = &line[open + 2..];
        let close = rest.windows(4).rposition(|w| w == b") = ")?;
        let hash = HEXLOWER_PERMISSIVE.decode(&rest[close + 4..]).ok()?;
        return Some(Line { tag: Some(&line[..open]), hash, name: named(&rest[..close]) });
    }
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (hex, rest) = line.split_at(digits);
    let hash = HEXLOWER_PERMISSIVE.decode(hex).ok()?;
    if rest.is_empty() {
        return Some(Line { tag: None, hash, name: None });
    }
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    Some(Line { tag: None, hash, name: named(name) })
}

fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        out.push(match (byte, bytes.as_slice().first()) {
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b'\\')) => b'\\',
            (byte, _) => {
                out.push(*byte);
                continue;
            }
        });
        bytes.next();
    }
    out
}
