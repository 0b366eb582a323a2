//! Files that are their owner's alone, and comparisons that give nothing away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Why such a file cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The system says so.
    Io(io::Error),
    /// Its mode, which is this, lets others at it.
    Open(u32),
}

/// Reads a file that nobody but its owner can read or write, so many bytes of it at most.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unreadable> {
    let file = File::open(path).map_err(Unreadable::Io)?;
    let mode = file.metadata().map_err(Unreadable::Io)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Unreadable::Open(mode));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    Ok(bytes)
}

/// Writes such a file, which appears whole or not at all, and in no other's place.
pub(crate) fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let draft = path.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::hard_link(&draft, path)
    };
    let written = write();
    // If it is somebody else's of the same number, from before a crash, it is of no use either.
    let _ = fs::remove_file(&draft);
    written
}

/// Whether two secrets are the same. Takes as long whichever byte is wrong.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
