//! Writes the copy of a capture that others may have, and reads or makes its key.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access};
use anabranch_trace::Frame;
use anabranch_trace::anonymise::{Anonymiser, KEY_BYTES, Keys};

use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::new_file;

/// The largest size of a key file: a key in hexadecimal digits, with its end of line.
const KEY_FILE_BYTES_MAX: u64 = 2 * KEY_BYTES as u64 + 2;

/// Holds a copy that is being written.
pub(super) struct Copy {
    path: PathBuf,
    to: Anonymiser<BufWriter<File>>,
    result: io::Result<()>,
}

impl Copy {
    /// Begins a new file. Its key is read from `key_file`; without one, the key is new and is not kept.
    ///
    /// # Errors
    /// 2 if the key cannot be used; 6 if the file exists already or cannot be written.
    pub(super) fn begin(path: &Path, key_file: Option<&Path>) -> Outcome<Self> {
        let key = key_file.map_or_else(new_key, kept_key)?;
        let failed = |e| new_file::failed(path, &e);
        let to = File::create_new(path).and_then(|file| Anonymiser::new(BufWriter::new(file), key));
        Ok(Self { path: path.to_owned(), to: to.map_err(failed)?, result: Ok(()) })
    }

    pub(super) fn frame(&mut self, frame: &Frame<'_>, keys: impl Fn(SocketAddr, SocketAddr) -> Keys) {
        if self.result.is_ok() {
            self.result = self.to.frame(frame, keys);
        }
    }

    pub(super) fn finish(self) -> Outcome {
        let finished = self.result.and_then(|()| self.to.finish());
        finished.map(drop).map_err(|e| new_file::failed(&self.path, &e))
    }
}

#[expect(clippy::disallowed_methods, reason = "a key comes from the system")]
fn new_key() -> Outcome<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key)
        .map_err(|e| Failure::other(format!("the system has no random numbers: {e}")))?;
    Ok(key)
}

/// Reads the key from a file, and makes the file if it does not exist.
fn kept_key(path: &Path) -> Outcome<[u8; KEY_BYTES]> {
    let unusable = |why: String| Failure::usage(format!("{} is no key: {why}", show(path))).at(path);
    match private_file::read_secret(path, KEY_FILE_BYTES_MAX) {
        Ok(text) => {
            let digits = str::from_utf8(&text).map_or("", str::trim_end);
            let is_key = digits.len() == 2 * KEY_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_key);
            key.map(u128::to_be_bytes).ok_or_else(|| unusable("32 hexadecimal digits are wanted".into()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let key = new_key()?;
            let text = format!("{:032x}\n", u128::from_be_bytes(key));
            private_file::create(path, Access::Secret, text.as_bytes())
                .map_err(|e| new_file::failed(path, &e))?;
            Ok(key)
        }
        Err(e) => Err(unusable(e.to_string())),
    }
}
