//! Checks OpenPGP signatures of a file (RFC 9580, section 10.4: detached) with the keys of a keyring.
//!
//! The program with which the system checks its own packages does the check: `sqv` of Sequoia, or else `gpgv`
//! of GnuPG. So the system decides which keys are expired or revoked and which algorithms are too weak, and
//! its updates keep these decisions current.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use data_encoding::BASE64;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::{Error, Result};

/// The largest keyring that is read, in bytes. A distribution's keyring has some hundred KiB.
const KEYRING_MAX: u64 = 64 << 20;
/// The largest signature that is read, in bytes.
pub(crate) const SIGNATURE_MAX: usize = 64 << 10;

/// The largest number of signatures that are kept.
const SIGNATURES_MAX: usize = 64;

/// Holds the keys whose signatures are accepted.
#[derive(Clone, Debug)]
pub(crate) struct Keyring {
    /// The certificates, in binary.
    keys: Vec<u8>,
    path: PathBuf,
    verifier: Verifier,
}

/// Names the program that checks signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verifier {
    Sqv,
    Gpgv,
}

/// Demands of a file that at least one of these signatures is good, by a key of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    keyring: Arc<Keyring>,
    signatures: Arc<[Vec<u8>]>,
}

impl Signed {
    /// Checks the signatures of `file`. Returns the verdict of the first good signature, or else the most
    /// informative verdict.
    ///
    /// # Errors
    /// The errors of [`Keyring::verify`].
    pub(crate) fn verify(&self, file: &File) -> Result<Verdict> {
        let mut bad = None;
        for signature in self.signatures.iter() {
            match self.keyring.verify(signature, file)? {
                good @ Verdict::Good(_) => return Ok(good),
                // This signature may still be good for other bytes.
                other @ Verdict::OtherBytes(_) if !matches!(bad, Some(Verdict::OtherBytes(_))) => {
                    bad = Some(other);
                }
                other => bad = bad.or(Some(other)),
            }
        }
        Ok(match bad {
            Some(Verdict::OtherBytes(why)) => Verdict::OtherBytes(self.keyring.none_good(&why)),
            Some(Verdict::Useless(why)) => Verdict::Useless(self.keyring.none_good(&why)),
            _ => Verdict::Useless(self.keyring.none_good("there is none")),
        })
    }
}

/// Holds the signatures that were found for a file, and the keyring with which one of them must be good.
#[derive(Default)]
pub(crate) struct Signatures {
    /// The keyring; `None` if no signatures are wanted.
    keyring: Option<Arc<Keyring>>,
    /// The signatures that have not been examined yet.
    came: Vec<Vec<u8>>,
    /// The signatures that can be good, for some bytes.
    useful: Vec<Vec<u8>>,
    /// The reason why the first signature that is not in `useful` cannot be good for any bytes.
    useless: Option<String>,
    /// The first server that could not be asked for a signature, and the reason.
    unanswered: Option<String>,
}

impl Signatures {
    pub(crate) const fn of(keyring: Option<Arc<Keyring>>) -> Self {
        Self { keyring, came: Vec::new(), useful: Vec::new(), useless: None, unanswered: None }
    }

    pub(crate) const fn are_wanted(&self) -> bool {
        self.keyring.is_some()
    }

    /// Adds a signature from any server. Bytes that are not a signature, such as an error page, are ignored.
    pub(crate) fn add(&mut self, signature: Vec<u8>) {
        const BEGIN: &[u8] = b"-----BEGIN PGP SIGNATURE-----";
        let is_armored = signature.windows(BEGIN.len()).any(|at| at == BEGIN);
        let is_new = [&self.came, &self.useful].into_iter().all(|known| !known.contains(&signature));
        let is_one = is_armored || is_packet(&signature);
        if self.keyring.is_some() && is_one && is_new && self.came.len() + self.useful.len() < SIGNATURES_MAX
        {
            self.came.push(signature);
        }
    }

    /// Records that a server that may have a signature could not answer. `why` names the server.
    pub(crate) fn could_not_come(&mut self, why: String) {
        self.unanswered.get_or_insert(why);
    }

    /// Returns whether a signature was found that can be good for some bytes.
    pub(crate) fn may_be_good(&mut self) -> bool {
        !self.useful().is_empty()
    }

    /// Returns the signatures that can be good for some bytes.
    pub(crate) fn useful(&mut self) -> &[Vec<u8>] {
        // An error is ignored here: `signed` fails with it.
        let _ = self.look();
        &self.useful
    }

    /// Examines the new signatures against an empty file, which already shows whether the ring has a usable
    /// key.
    fn look(&mut self) -> Result<()> {
        let Some(keyring) = &self.keyring else { return Ok(()) };
        let nothing =
            nameless(&[]).map_err(|e| Error::system(format!("no memory for a signature: {e}")).because(e))?;
        while let Some(signature) = self.came.first() {
            let verdict = keyring.verify(signature, &nothing)?;
            let signature = self.came.remove(0);
            match verdict {
                Verdict::Useless(why) => drop(self.useless.get_or_insert(why)),
                Verdict::Good(_) | Verdict::OtherBytes(_) => self.useful.push(signature),
            }
        }
        Ok(())
    }

    /// Returns the demand on the file, if the user wants a signature. The demand has all signatures that may
    /// prove good.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if no signature was found.
    /// - [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if none can be good, and a server that may
    ///   have another could not be asked.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if none can be good, whatever bytes arrive.
    pub(crate) fn signed(&mut self) -> Result<Option<Signed>> {
        self.look()?;
        let Some(keyring) = self.keyring.clone() else { return Ok(None) };
        if !self.useful.is_empty() {
            return Ok(Some(Signed { keyring, signatures: self.useful.clone().into() }));
        }
        let useless = self.useless.take().map(|why| keyring.none_good(&why));
        Err(match (useless, self.unanswered.take()) {
            (useless, Some(why)) => {
                let useless = useless.map_or_else(String::new, |useless| format!("{useless}; "));
                Error::unreachable(format!(
                    "nothing is fetched without a good OpenPGP signature: {useless}and who may have one \
                     could not be asked, {why}"
                ))
            }
            (Some(why), None) => Error::corrupt(format!("nothing is fetched, for whatever comes, {why}")),
            (None, None) => Error::not_found(
                "there is no OpenPGP signature of the file: neither in a Metalink, nor named by a server, \
                 nor beside it (.asc, .sig)",
            ),
        })
    }
}

/// Gives the verdict of a verifier on a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The signature is good. The text is the fingerprint, in hexadecimal, of the key that made it.
    Good(String),
    /// The signature belongs to other bytes. The text is the verifier's reason.
    OtherBytes(String),
    /// No bytes make the signature good: it is no signature, or its key is not in the ring, expired, revoked
    /// or weak. The text is the verifier's reason.
    Useless(String),
}

impl Keyring {
    /// Reads a keyring: binary or armored certificates, as `gpg --export` writes them.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the file cannot be read or is no keyring, or if no
    /// verifier is installed.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |e: &dyn std::fmt::Display| {
            Error::usage(format!("the keyring {} cannot be used: {e}", path.display())).at(path)
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(KEYRING_MAX + 1).read_to_end(&mut bytes))
            .map_err(|e| failed(&e).because(e))?;
        if bytes.len() as u64 > KEYRING_MAX {
            return Err(failed(&format!("it has more than {} MiB", KEYRING_MAX >> 20)));
        }
        let keys = dearmored(bytes).map_err(|e| failed(&e))?;
        let verifier = [Verifier::Sqv, Verifier::Gpgv].into_iter().find(|verifier| verifier.is_installed());
        let verifier = verifier.ok_or_else(|| {
            Error::usage(
                "`keyring` needs a program that checks OpenPGP signatures: install gpgv (of GnuPG) or sqv",
            )
        })?;
        Ok(Self { keys, path: path.to_owned(), verifier })
    }

    /// Checks whether `signature`, binary or armored, is a signature of `file` by a key of this ring.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the verifier cannot run.
    fn verify(&self, signature: &[u8], file: &File) -> Result<Verdict> {
        let failed =
            |e: io::Error| Error::system(format!("{} does not run: {e}", self.verifier.program())).because(e);
        // Both are handed over as files without a name, so that no other program can change them.
        let keys = nameless(&self.keys).map_err(failed)?;
        let signature = nameless(signature).map_err(failed)?;
        let name = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut command = Command::new(self.verifier.program());
        if self.verifier == Verifier::Gpgv {
            command.args(["--status-fd", "1", "--quiet"]);
        }
        command.args(["--keyring", &name(&keys), &name(&signature), "/dev/stdin"]).env("LC_ALL", "C");
        let output = command.stdin(file.try_clone().map_err(failed)?).output().map_err(failed)?;
        let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if let Some(fingerprint) = self.verifier.signer(&said).filter(|_| output.status.success()) {
            return Ok(Verdict::Good(fingerprint));
        }
        let is_of_others = self.verifier.is_of_other_bytes(&said, &why);
        let why = self.verifier.reason(&said, &why);
        Ok(if is_of_others { Verdict::OtherBytes(why) } else { Verdict::Useless(why) })
    }

    /// Returns the message that no signature is good.
    fn none_good(&self, why: &str) -> String {
        format!("it has no good signature by a key of {} ({why})", self.path.display())
    }
}

impl Verifier {
    const fn program(self) -> &'static str {
        match self {
            Self::Sqv => "sqv",
            Self::Gpgv => "gpgv",
        }
    }

    fn is_installed(self) -> bool {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|dir| dir.join(self.program()).is_file())
    }

    /// Returns the fingerprint of the key that made a good signature, from the program's output.
    fn signer(self, said: &str) -> Option<String> {
        match self {
            // The output has a line for each good signature: the fingerprint of its certificate.
            Self::Sqv => Some(said.lines().next()?.trim().to_owned()),
            // See GnuPG's doc/DETAILS. Only GOODSIG excludes expired and revoked keys.
            Self::Gpgv => {
                said.lines().find(|line| line.starts_with("[GNUPG:] GOODSIG "))?;
                let valid = said.lines().find_map(|line| line.strip_prefix("[GNUPG:] VALIDSIG "))?;
                valid.split(' ').next_back().map(str::to_owned)
            }
        }
    }

    /// Returns whether a signature that is not good belongs to other bytes. The verifiers report this only if
    /// they are sure; otherwise the signature or its key is at fault.
    fn is_of_other_bytes(self, said: &str, why: &str) -> bool {
        match self {
            Self::Sqv => why.contains("Message has been manipulated"),
            Self::Gpgv => said.lines().any(|line| line.starts_with("[GNUPG:] BADSIG ")),
        }
    }

    /// Returns the reason why a signature is not good.
    fn reason(self, said: &str, why: &str) -> String {
        // See GnuPG's doc/DETAILS. For such a key, GnuPG also reports that the signature itself is good.
        let status =
            |word: &str| said.lines().find_map(|line| line.strip_prefix("[GNUPG:] ")?.strip_prefix(word));
        let key = |rest: &str| rest.split_whitespace().next().unwrap_or_default().to_owned();
        let last = why.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it is no signature").trim();
        if let Some(rest) = status("EXPKEYSIG ") {
            format!("its key {} has expired", key(rest))
        } else if let Some(rest) = status("REVKEYSIG ") {
            format!("its key {} is revoked", key(rest))
        } else if status("EXPSIG ").is_some() {
            "the signature itself has expired".to_owned()
        } else if let Some(rest) = status("NO_PUBKEY ") {
            format!("{last}: {}", key(rest))
        } else {
            last.to_owned()
        }
    }
}

/// Makes a file in memory that child processes can open through their own `/proc/self/fd`.
fn nameless(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"anabranch", MFdFlags::empty())?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Returns whether the bytes begin as a packet does: with the highest bit set (RFC 9580, section 4.2).
fn is_packet(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0x80 != 0)
}

/// Decodes armored blocks (RFC 9580, section 6.2). Bytes that are not armored are returned unchanged.
fn dearmored(bytes: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
    const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";
    let Some(text) = std::str::from_utf8(&bytes).ok().filter(|text| text.contains(BEGIN)) else {
        return if is_packet(&bytes) {
            Ok(bytes)
        } else {
            Err("it has no OpenPGP certificate in it; `gpg --export` writes one")
        };
    };
    let mut keys = Vec::new();
    for block in text.split(BEGIN).skip(1) {
        let (block, _) = block.split_once(END).ok_or("an armored block does not end")?;
        // Headers end with an empty line. The line with `=` is a checksum, which has lost its meaning.
        let lines = block.trim_start_matches([' ', '\t']).lines().skip(1).map(str::trim);
        let body = lines.skip_while(|line| line.contains(": ")).filter(|line| !line.starts_with('='));
        let body: String = body.collect();
        keys.extend(BASE64.decode(body.as_bytes()).map_err(|_| "an armored block is not base64")?);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_no_keyring_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).expect("a file");
            Keyring::open(&path).map(|_| ()).expect_err("no keyring").to_string()
        };
        assert!(open("text", b"hello").contains("no OpenPGP certificate"));
        assert!(open("cut", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA").contains("does not end"));
        let missing =
            Keyring::open(&dir.path().join("missing")).map(|_| ()).expect_err("no file").to_string();
        assert!(missing.contains("missing") && missing.contains("No such file"), "{missing}");
    }
}
