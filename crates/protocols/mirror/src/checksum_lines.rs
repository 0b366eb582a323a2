//! Reads the lines that `sha256sum`, `b3sum` and similar programs print.
//!
//! A line is `HASH  NAME`, or with `--tag` `KIND (NAME) = HASH`. A name with a backslash or a line feed is
//! escaped, and then the line begins with a backslash.
//!
//! Lines that people and other programs write are read, too: with one blank or a tab before the name, as
//! `KIND(NAME)= HASH` as OpenSSL prints it, after a byte-order mark, and with a carriage return at the end. A
//! line that begins with `#` is a comment.

use data_encoding::HEXLOWER_PERMISSIVE;

/// A line that could be read.
struct Line<'a> {
    /// The kind of hash, if the line names it.
    tag: Option<&'a [u8]>,
    hash: Vec<u8>,
    name: Option<Vec<u8>>,
}

/// Several lines may be about the file, and have different hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// Returns the lines of a text; `None` for a line that cannot be read.
fn lines(text: &[u8]) -> impl Iterator<Item = Option<Line<'_>>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).map(read)
}

/// Finds the hash of the file `name`, a path or only its last component, in a list of hashes.
///
/// `fits` gets the kind of hash, if the line names it, and the hash. It returns the hash as the caller needs
/// it, or `None` if the line does not count. If several lines have this last component, the one counts that
/// has most directories in common with `name`, from the last one on. A hash without a name is that of the
/// file only if every line could be read and no line names another file.
///
/// # Errors [`Ambiguous`] if several lines match equally well and have different hashes.
pub fn find<T: PartialEq>(
    text: &[u8],
    name: &[u8],
    fits: impl Fn(Option<&[u8]>, &[u8]) -> Option<T>,
) -> Result<Option<T>, Ambiguous> {
    let names_it = |line: Line<'_>| line.name.is_none_or(|own| rank(&own, name).is_some());
    let is_of_one_file = lines(text).all(|line| line.is_some_and(names_it));
    let mut best: Option<((bool, usize), T)> = None;
    let mut is_one = true;
    for line in lines(text).flatten() {
        let rank = match &line.name {
            Some(own) => rank(own, name),
            None => is_of_one_file.then_some((true, 0)),
        };
        let Some((rank, hash)) = rank.zip(fits(line.tag, &line.hash)) else { continue };
        match &best {
            Some((before, same)) if *before == rank => is_one &= *same == hash,
            Some((before, _)) if *before > rank => {}
            _ => (best, is_one) = (Some((rank, hash)), true),
        }
    }
    if is_one { Ok(best.map(|(_, hash)| hash)) } else { Err(Ambiguous) }
}

/// Returns the hash in a text that has a single line, even if that line names another file, and the name in
/// that line. `fits` works as in [`find`]. Returns `None` if the line does not count, or if there are
/// several.
pub fn only<T>(
    text: &[u8],
    fits: impl Fn(Option<&[u8]>, &[u8]) -> Option<T>,
) -> Option<(T, Option<Vec<u8>>)> {
    let mut lines = lines(text);
    let line = lines.next()??;
    let hash = fits(line.tag, &line.hash).filter(|_| lines.next().is_none())?;
    Some((hash, line.name))
}

/// Returns how well the path `own` in a list of hashes matches the file `name`: whether all of `own` is the
/// end of `name`, and how many components are equal, from the last one on. `None` if the last components
/// differ.
fn rank(own: &[u8], name: &[u8]) -> Option<(bool, usize)> {
    let parts =
        |path| <[u8]>::split(path, |byte| *byte == b'/').rev().filter(|part| !matches!(*part, b"" | b"."));
    let (own, name): (Vec<&[u8]>, Vec<&[u8]>) = (parts(own).collect(), parts(name).collect());
    let same = own.iter().zip(&name).take_while(|(own, name)| own == name).count();
    (same > 0).then_some((same == own.len(), same))
}

fn read(line: &[u8]) -> Option<Line<'_>> {
    let (line, escaped) = line.strip_prefix(b"\\").map_or((line, false), |line| (line, true));
    let (tag, hash, name) = tagged(line).or_else(|| plain(line))?;
    let hash = HEXLOWER_PERMISSIVE.decode(hash).ok()?;
    Some(Line { tag, hash, name: name.map(|name| if escaped { unescape(name) } else { name.to_vec() }) })
}

/// The kind, the hash and the name of a line.
type Parts<'a> = (Option<&'a [u8]>, &'a [u8], Option<&'a [u8]>);

/// Reads `KIND (NAME) = HASH`, or the same with fewer blanks.
fn tagged(line: &[u8]) -> Option<Parts<'_>> {
    let open = line.iter().position(|b| *b == b'(')?;
    let close = line.iter().rposition(|b| *b == b')').filter(|close| open < *close)?;
    let kind = line[..open].trim_ascii_end();
    let hash = line[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let is_kind = !kind.is_empty() && kind.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    is_kind.then_some((Some(kind), hash, Some(&line[open + 1..close])))
}

/// Reads `HASH  NAME` or `HASH *NAME`, the same with one blank or a tab, or `HASH` alone.
fn plain(line: &[u8]) -> Option<Parts<'_>> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (hash, rest) = line.split_at(digits);
    let before = [&b"  "[..], b" *", b" ", b"\t"];
    let name = before.iter().find_map(|before| rest.strip_prefix(*before));
    (rest.is_empty() || name.is_some()).then_some((None, hash, name))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first byte of the hash of `f.bin` in a list. Only hashes of two bytes count.
    fn found(text: &str) -> Option<u8> {
        let fits = |_: Option<&[u8]>, hash: &[u8]| (hash.len() == 2).then(|| hash[0]);
        find(text.as_bytes(), b"/pub/f.bin", fits).expect("one at most")
    }

    #[test]
    fn lines_as_people_write_them() {
        for line in [
            "aa00  f.bin",
            "aa00 *f.bin",
            "aa00 f.bin",
            "aa00\tf.bin",
            "aa00  ./f.bin\r",
            "\u{feff}aa00  f.bin",
            "SHA256 (f.bin) = aa00",
            "SHA256(f.bin)= aa00",
            "SHA2-256(f.bin)=aa00",
            "# of today\n\naa00  f.bin",
            "aa00",
        ] {
            assert_eq!(found(line), Some(0xaa), "{line:?}");
            let is_named = line.contains("f.bin");
            let beside = format!("{line}\nbb00  g.bin\n");
            assert_eq!(found(&beside), is_named.then_some(0xaa), "{beside:?}");
        }
        assert_eq!(found("aa00 (f).bin\nbb00  f.bin"), Some(0xbb));
        assert_eq!(found("aa00  f.bin (1) = x\nbb00  f.bin"), Some(0xbb));
    }

    /// A hash that may be another file's is not used.
    #[test]
    fn a_hash_of_another_file_is_not_taken() {
        for text in
            ["bb00  g.bin", "what is this\nbb00", "bb00\ncc00  g.bin", "bb00f.bin", "SHA256 (f.bin = bb00"]
        {
            assert_eq!(found(text), None, "{text:?}");
        }
        let fits = |_: Option<&[u8]>, hash: &[u8]| Some(hash.to_vec());
        assert_eq!(only(b"aa  old.iso\r\n", fits), Some((vec![0xaa], Some(b"old.iso".to_vec()))));
        assert_eq!(only(b"aa  old.iso\nbb", fits), None);
    }
}
