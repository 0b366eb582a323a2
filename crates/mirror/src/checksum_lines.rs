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

/// What `fits` makes of the hash of the file `name`. It is told the kind of hash, if the line tells it, and
/// the hash; lines of which it makes nothing do not count. If no line has this name but all that is there is
/// one hash, it is that: files are renamed.
pub fn find<T>(text: &[u8], name: &[u8], fits: impl Fn(Option<&[u8]>, &[u8]) -> Option<T>) -> Option<T> {
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let lines = lines.filter_map(read);
    let mut all = lines.filter_map(|line| Some((fits(line.tag, &line.hash)?, line.name)));
    let (first, own) = all.next()?;
    if own.is_none_or(|own| is_named(&own, name)) {
        return Some(first);
    }
    let mut others = 0;
    for (hash, own) in all {
        if own.is_some_and(|own| is_named(&own, name)) {
            return Some(hash);
        }
        others += 1;
    }
    (others == 0).then_some(first)
}

/// Whether a path in a list of hashes is that of the file: it may have directories in front.
fn is_named(own: &[u8], name: &[u8]) -> bool {
    own == name || own.strip_suffix(name).is_some_and(|dirs| dirs.ends_with(b"/"))
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
