//! OpenPGP signatures of a file (RFC 9580, section 10.4: detached), held against the keys of a keyring.
//!
//! They are checked by the program that the system checks its own packages with: `sqv` of Sequoia, or else
//! `gpgv` of GnuPG. Which keys are expired or revoked, and which algorithms are too weak, is for the system
//! to say, and its updates keep that right.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use data_encoding::BASE64;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::{Error, Result};

/// Bytes of a keyring: a distribution's has some hundred KiB.
const KEYRING_MAX: u64 = 64 << 20;
/// Bytes of a signature.
pub(crate) const SIGNATURE_MAX: usize = 64 << 10;

/// Signatures that are kept at most.
const SIGNATURES_MAX: usize = 64;

/// Keys whose signatures are accepted.
#[derive(Clone, Debug)]
pub(crate) struct Keyring {
    /// In binary.
    keys: Vec<u8>,
    path: PathBuf,
    verifier: Verifier,
}

/// The program that checks signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verifier {
    Sqv,
    Gpgv,
}

/// What a file has to be signed by: one of these signatures at least, by a key of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    keyring: Arc<Keyring>,
    signatures: Arc<[Vec<u8>]>,
}

impl Signed {
    /// What the signatures of `file` come to: the first that is good, else the one that says most.
    ///
    /// # Errors
    /// As [`Keyring::verify`].
    pub(crate) fn verify(&self, file: &File) -> Result<Verdict> {
        let mut bad = None;
        for signature in self.signatures.iter() {
            match self.keyring.verify(signature, file)? {
                good @ Verdict::Good(_) => return Ok(good),
                // Of other bytes it may be good yet.
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

/// The signatures that came of a file, and by whose key one of them has to be.
#[derive(Default)]
pub(crate) struct Signatures {
    /// None: they are not looked for.
    keyring: Option<Arc<Keyring>>,
    /// Those that have not been looked at.
    came: Vec<Vec<u8>>,
    /// Those that some bytes make good.
    useful: Vec<Vec<u8>>,
    /// Why no bytes make the first of the others good.
    useless: Option<String>,
    /// Who could not be asked for one, and why.
    unanswered: Option<String>,
}

impl Signatures {
    pub(crate) const fn of(keyring: Option<Arc<Keyring>>) -> Self {
        Self { keyring, came: Vec::new(), useful: Vec::new(), useless: None, unanswered: None }
    }

    pub(crate) const fn are_wanted(&self) -> bool {
        self.keyring.is_some()
    }

    /// One has come, from anywhere. What is none, such as a page that says so, does not count.
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

    /// A server could not answer that was asked for one; `why` names it.
    pub(crate) fn could_not_come(&mut self, why: String) {
        self.unanswered.get_or_insert(why);
    }

    /// Whether one has come that some bytes make good.
    pub(crate) fn may_be_good(&mut self) -> bool {
        !self.useful().is_empty()
    }

    /// Those of them that some bytes make good.
    pub(crate) fn useful(&mut self) -> &[Vec<u8>] {
        // Whoever takes them is told what fails.
        let _ = self.look();
        &self.useful
    }

    /// Looks at those that have come: whether its key is there is seen of other bytes too.
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

    /// What the file has to be signed by, if the user says so: the signatures that may turn out to be good.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if there is no signature,
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if a server could not be asked that may have
    /// one, [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if none can be good whatever comes.
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

/// What a verifier says of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is good; the fingerprint of the key that made it, hexadecimal.
    Good(String),
    /// It is one of other bytes: why, as the verifier says.
    OtherBytes(String),
    /// No bytes make it good: its key is not in the ring, expired, revoked or weak, or it is no signature.
    /// Why, as the verifier says.
    Useless(String),
}

impl Keyring {
    /// Reads a keyring: binary or armored certificates, as `gpg --export` writes them.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it cannot be read or is none, or if no verifier is
    /// installed.
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

    /// Whether `signature`, binary or armored, is one of `file` by a key of this ring.
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

    /// What is said where no signature is good.
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

    /// Who made a signature that is good, of what the program says.
    fn signer(self, said: &str) -> Option<String> {
        match self {
            // A line for each good signature: the fingerprint of its certificate.
            Self::Sqv => Some(said.lines().next()?.trim().to_owned()),
            // GnuPG's doc/DETAILS. GOODSIG alone has neither an expired nor a revoked key.
            Self::Gpgv => {
                said.lines().find(|line| line.starts_with("[GNUPG:] GOODSIG "))?;
                let valid = said.lines().find_map(|line| line.strip_prefix("[GNUPG:] VALIDSIG "))?;
                valid.split(' ').next_back().map(str::to_owned)
            }
        }
    }

    /// Whether a signature that is not good is one of other bytes. Only of that a verifier is sure to say so:
    /// anything else is the fault of the signature or its key.
    fn is_of_other_bytes(self, said: &str, why: &str) -> bool {
        match self {
            Self::Sqv => why.contains("Message has been manipulated"),
            Self::Gpgv => said.lines().any(|line| line.starts_with("[GNUPG:] BADSIG ")),
        }
    }

    /// Why a signature is not good.
    fn reason(self, said: &str, why: &str) -> String {
        // What GnuPG's doc/DETAILS has; it calls a signature by such a key good beside it.
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

/// A file in memory that child processes can open by their own `/proc/self/fd`.
fn nameless(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"anabranch", MFdFlags::empty())?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Whether it begins as a packet does: with the highest bit set (RFC 9580, section 4.2).
fn is_packet(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0x80 != 0)
}

/// Armored blocks (RFC 9580, section 6.2) as the bytes that they stand for; what is not armored as it is.
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
        // Headers end with an empty line; the line of `=` is a checksum that means nothing any more.
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
