//! Names, the scopes that own them, and publications: signed statements that a host offers a content under a
//! name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anabranch_algo::{Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::LENGTH_MAX;
use anabranch_topology::graph::NodeId;
use data_encoding::BASE32_NOPAD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::bytes::{FieldError, Reader};

/// The most bytes of a scope.
pub const SCOPE_MAX: usize = 40;
/// The most bytes of a label.
pub const LABEL_MAX: usize = 200;
/// The bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// The longest time for which a publication is valid.
pub const LEASE_MAX: Span = Span::from_secs(24 * 3_600);
/// How far the clocks of publishers may be ahead.
pub(crate) const AHEAD_MAX: Span = Span::from_secs(300);
/// The beginning of all signed bytes, so that a signature is valid for nothing else.
const CONTEXT: &[u8] = b"anabranch publication 1\n";

/// The owner of names: each name begins with a scope, whose key decides who may publish. 1 to 40 of a–z, 0–9
/// and `-`.
// Clones share the text, because a rendezvous has each name in several indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope(Arc<str>);

/// A name of content: `SCOPE/LABEL`. A label has no control characters, and neither begins nor ends with `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    scope: Scope,
    label: Arc<str>,
}

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The scope is invalid.
    #[error("{0:?} is no scope: expected 1 to {SCOPE_MAX} of a-z, 0-9 and -")]
    Scope(String),
    /// The label is invalid.
    #[error(
        "{0:?} is no label: expected 1 to {LABEL_MAX} bytes, without control characters, not at / at its ends"
    )]
    Label(String),
    /// The text has no slash.
    #[error("{0:?} is no name: expected SCOPE/LABEL")]
    NoLabel(String),
}

impl FromStr for Scope {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=SCOPE_MAX).contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self(text.into()));
        }
        Err(NameError::Scope(text.chars().take(SCOPE_MAX).collect()))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    /// Creates a name of a scope and a label.
    ///
    /// # Errors
    /// If `label` is no label.
    pub fn new(scope: Scope, label: &str) -> Result<Self, NameError> {
        let wrong = !(1..=LABEL_MAX).contains(&label.len())
            || label.chars().any(char::is_control)
            || label.starts_with('/')
            || label.ends_with('/');
        if wrong {
            return Err(NameError::Label(label.chars().take(LABEL_MAX).collect()));
        }
        Ok(Self { scope, label: label.into() })
    }

    /// Returns the bound that is before every name in their order. It is no name itself.
    pub(crate) fn lowest() -> Self {
        Self::lowest_of(Scope(Arc::default()))
    }

    /// Returns the bound that is before every name of a scope in their order. It is no name itself.
    pub(crate) fn lowest_of(scope: Scope) -> Self {
        Self { scope, label: Arc::default() }
    }

    /// Returns the scope, which owns the name.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the label, which follows the scope.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (scope, label) = text.split_once('/').ok_or_else(|| NameError::NoLabel(text.to_owned()))?;
        Self::new(scope.parse()?, label)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.label)
    }
}

/// The public key of a scope (Ed25519, RFC 8032), written in base32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 52 characters of base32")]
pub struct KeyError;

fn key_bytes(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = BASE32_NOPAD.decode(text.trim().to_ascii_uppercase().as_bytes()).map_err(|_| KeyError)?;
    bytes.try_into().map_err(|_| KeyError)
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Ok(Self(key_bytes(text)?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD.encode(&self.0))
    }
}

/// The secret key of a scope. Its holders may publish under the names of the scope.
pub struct ScopeKey {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl fmt::Debug for ScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeKey(.. of {})", self.public())
    }
}

impl FromStr for ScopeKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(key_bytes(text)?)
    }
}

impl ScopeKey {
    /// Creates a key from 32 random bytes.
    ///
    /// # Errors
    /// If `seed` is no seed of a key.
    pub fn new(seed: [u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError)?;
        Ok(Self { seed, pair })
    }

    /// Returns the public key, which checks the signatures of this key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(key)
    }

    /// Returns the key as text, which must be kept secret.
    #[must_use]
    pub fn secret_text(&self) -> String {
        BASE32_NOPAD.encode(&self.seed)
    }

    /// Signs a publication for a domain, given by its name.
    #[must_use]
    pub fn sign(&self, domain: &str, publication: Publication) -> SignedPublication {
        let signature = self.pair.sign(&publication.signed_bytes(domain));
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes.copy_from_slice(signature.as_ref());
        SignedPublication { publication, signature: bytes }
    }
}

/// The statement that a host offers a content under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The name.
    pub name: Name,
    /// The content.
    pub content: ContentId,
    /// Whether the content is the manifest of a directory.
    pub collection: bool,
    /// The host.
    pub node: NodeId,
    /// The UDP port of the publisher on the host.
    pub port: u16,
    /// The version, in milliseconds since 1970: of several contents of one name, that with the greatest is
    /// the newest.
    pub version_ms: u64,
    /// When the publication was signed, in milliseconds since 1970. Of two by one host, the later one counts.
    pub issued_ms: u64,
    /// How long the publication is valid, in seconds. 0 withdraws it.
    pub lease_s: u32,
}

/// A name, and the host and port that publish it: a rendezvous keeps one publication of each key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The name.
    pub name: Name,
    /// The host.
    pub node: NodeId,
    /// The UDP port of the host.
    pub port: u16,
}

/// Why a publication is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The domain has no such scope.
    #[error("unknown scope")]
    UnknownScope,
    /// The publication was not signed by the owner of its scope, or was signed for another domain.
    #[error("wrong signature")]
    Signature,
    /// The publication is no longer valid, or never was.
    #[error("expired, or the clock is wrong")]
    Expired,
    /// A later publication of the same host is known.
    #[error("an older one sent again")]
    Replayed,
    /// The domain has no such host.
    #[error("no such host")]
    NoHost,
    /// The publication was not sent by the host that it names.
    #[error("sent by another host")]
    OtherHost,
    /// The rendezvous has no room.
    #[error("no room")]
    Full,
}

impl Publication {
    /// Returns the bytes that are signed.
    fn signed_bytes(&self, domain: &str) -> Vec<u8> {
        let mut bytes = CONTEXT.to_vec();
        bytes.extend_from_slice(domain.as_bytes());
        bytes.push(b'\n');
        self.put(&mut bytes);
        bytes
    }

    /// Returns when the publication ends, as time since 1970.
    #[must_use]
    pub fn ends(&self) -> Time {
        Time::from_nanos(self.issued_ms.saturating_mul(1_000_000))
            + Span::from_secs(u64::from(self.lease_s)).min(LEASE_MAX)
    }
}

/// A publication, and the proof that the owner of its scope made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPublication {
    /// The publication.
    pub publication: Publication,
    /// The Ed25519 signature.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl SignedPublication {
    /// Checks that the publication was signed by this key for this domain, and is valid at the time `now`
    /// since 1970.
    ///
    /// # Errors
    /// The [`Rejection`] that the publication deserves.
    pub fn check(&self, domain: &str, key: &PublicKey, now: Time) -> Result<(), Rejection> {
        self.check_signature(domain, key)?;
        let issued = Time::from_nanos(self.publication.issued_ms.saturating_mul(1_000_000));
        // A withdrawal is valid for as long as the publication that it withdraws may be.
        let ends = if self.publication.lease_s == 0 { issued + LEASE_MAX } else { self.publication.ends() };
        if now + AHEAD_MAX < issued || now >= ends { Err(Rejection::Expired) } else { Ok(()) }
    }

    /// Checks that the publication was signed by this key for this domain, whether it is still valid or not.
    pub(crate) fn check_signature(&self, domain: &str, key: &PublicKey) -> Result<(), Rejection> {
        let bytes = self.publication.signed_bytes(domain);
        let key = UnparsedPublicKey::new(&ED25519, key.0);
        key.verify(&bytes, &self.signature).map_err(|_| Rejection::Signature)
    }
}

/// Appends a content id.
pub(crate) fn put_content(out: &mut Vec<u8>, content: &ContentId) {
    out.extend_from_slice(&content.root);
    out.extend_from_slice(&content.length.to_be_bytes());
}

/// Reads a content id.
pub(crate) fn read_content(reader: &mut Reader<'_>) -> Result<ContentId, FieldError> {
    let content = ContentId { root: reader.take()?, length: reader.u64()? };
    if content.length > LENGTH_MAX { Err(FieldError::Value) } else { Ok(content) }
}

impl Scope {
    /// Appends the scope.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        out.extend_from_slice(self.0.as_bytes());
    }

    /// Reads a scope.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.text()?.parse().map_err(|_| FieldError::Value)
    }
}

impl Name {
    /// Appends the name.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.scope.put(out);
        out.push(self.label.len() as u8);
        out.extend_from_slice(self.label.as_bytes());
    }

    /// Reads a name.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let scope = Scope::read(reader)?;
        Self::new(scope, reader.text()?).map_err(|_| FieldError::Value)
    }
}

impl Key {
    /// Returns the key of a publication.
    #[must_use]
    pub fn of(publication: &Publication) -> Self {
        Self { name: publication.name.clone(), node: publication.node, port: publication.port }
    }

    /// Returns the greatest key of a name.
    pub(crate) const fn last_of(name: Name) -> Self {
        Self { name, node: NodeId(u32::MAX), port: u16::MAX }
    }

    /// Returns the key as bytes, which no other key has.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Appends the key.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        out.extend_from_slice(&self.node.0.to_be_bytes());
        out.extend_from_slice(&self.port.to_be_bytes());
    }

    /// Reads a key.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self { name: Name::read(reader)?, node: NodeId(reader.u32()?), port: reader.u16()? })
    }
}

impl Publication {
    /// Appends the publication. These bytes are signed, too.
    fn put(&self, out: &mut Vec<u8>) {
        put_content(out, &self.content);
        out.push(u8::from(self.collection));
        out.extend_from_slice(&self.node.0.to_be_bytes());
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&self.version_ms.to_be_bytes());
        out.extend_from_slice(&self.issued_ms.to_be_bytes());
        out.extend_from_slice(&self.lease_s.to_be_bytes());
        self.name.put(out);
    }
}

impl SignedPublication {
    /// Appends the publication and its signature.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.publication.put(out);
        out.extend_from_slice(&self.signature);
    }

    /// Reads a publication and its signature.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let publication = Publication {
            content: read_content(reader)?,
            collection: reader.flag()?,
            node: NodeId(reader.u32()?),
            port: reader.u16()?,
            version_ms: reader.u64()?,
            issued_ms: reader.u64()?,
            lease_s: reader.u32()?,
            name: Name::read(reader)?,
        };
        Ok(Self { publication, signature: reader.take()? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NOW: Time = Time::from_nanos(1_800_000_000_000_000_000);

    pub(crate) fn key() -> ScopeKey {
        ScopeKey::new([7; 32]).expect("a key")
    }

    pub(crate) fn publication(name: &str) -> Publication {
        Publication {
            name: name.parse().expect("a name"),
            content: ContentId { root: [3; 32], length: 20_000 },
            collection: false,
            node: NodeId(2),
            port: 26_227,
            version_ms: 5,
            issued_ms: NOW.as_nanos() / 1_000_000,
            lease_s: 60,
        }
    }

    #[test]
    fn names() {
        let name: Name = "films/2026/trailer 1".parse().expect("a name");
        assert_eq!((name.scope().to_string(), name.label()), ("films".into(), "2026/trailer 1"));
        assert_eq!(name.to_string(), "films/2026/trailer 1");
        for wrong in ["films", "/x", "films/", "films//x", "films/x/", "Films/x", "films/a\nb"] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong:?}");
        }
        assert!(format!("s/{}", "x".repeat(LABEL_MAX)).parse::<Name>().is_ok());
        assert!(format!("s/{}", "x".repeat(LABEL_MAX + 1)).parse::<Name>().is_err());
    }

    #[test]
    fn keys_are_text() {
        let key = key();
        assert_eq!(key.secret_text().parse::<ScopeKey>().expect("a key").public(), key.public());
        assert_eq!(key.public().to_string().to_lowercase().parse(), Ok(key.public()));
        assert!("short".parse::<PublicKey>().is_err());
        assert!(!format!("{key:?}").contains(&key.secret_text()));
    }

    #[test]
    fn keys_differ_as_bytes() {
        let of = |name: &str, port| Key::of(&Publication { port, ..publication(name) }).to_bytes();
        assert_ne!(of("films/x", 1), of("films/x", 2));
        assert_ne!(of("films/x1", 1), of("films/x", 1));
    }

    #[test]
    fn only_the_owner_signs() {
        let key = key();
        let good = key.sign("d", publication("films/x"));
        let check = |signed: &SignedPublication, domain: &str, now| signed.check(domain, &key.public(), now);
        assert_eq!(check(&good, "d", NOW), Ok(()));
        assert_eq!(check(&good, "e", NOW), Err(Rejection::Signature), "another domain");
        let other = ScopeKey::new([8; 32]).expect("a key");
        assert_eq!(check(&other.sign("d", publication("films/x")), "d", NOW), Err(Rejection::Signature));
        type Change = fn(&mut Publication);
        let changes: [Change; 7] = [
            |it| it.name = "films/y".parse().expect("a name"),
            |it| it.content.root[0] ^= 1,
            |it| it.content.length += 1,
            |it| it.collection = true,
            |it| it.port += 1,
            |it| it.lease_s += 1,
            |it| it.version_ms += 1,
        ];
        for change in changes {
            let mut forged = good.clone();
            change(&mut forged.publication);
            assert_eq!(check(&forged, "d", NOW), Err(Rejection::Signature));
        }
    }

    #[test]
    fn a_lease_ends() {
        let key = key();
        let good = key.sign("d", publication("films/x"));
        let check = |now| good.check("d", &key.public(), now);
        assert_eq!(check(NOW + Span::from_secs(59)), Ok(()));
        assert_eq!(check(NOW + Span::from_secs(60)), Err(Rejection::Expired));
        let early = Time::from_nanos(NOW.as_nanos() - 301_000_000_000);
        assert_eq!(check(early), Err(Rejection::Expired), "from the future");
        let endless = key.sign("d", Publication { lease_s: u32::MAX, ..publication("films/x") });
        assert_eq!(endless.check("d", &key.public(), NOW + LEASE_MAX), Err(Rejection::Expired));
    }
}
