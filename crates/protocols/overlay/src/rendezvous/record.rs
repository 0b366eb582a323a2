//! The record that a rendezvous keeps of a [`Key`](crate::publication::Key), and its bytes.

use anabranch_algo::Time;

use crate::bytes::{FieldError, Reader};
use crate::publication::SignedPublication;

/// The record of a [`Key`](crate::publication::Key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The last publication, or withdrawal, of the host under the name.
    pub signed: SignedPublication,
    /// Until this time since 1970 an earlier publication may still look valid, so this record is kept to
    /// refuse it.
    pub guards_until: Time,
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no record of a publication")]
pub struct RecordError;

impl From<FieldError> for RecordError {
    fn from(_: FieldError) -> Self {
        Self
    }
}

impl Record {
    /// Whether answers no longer contain the record: it is a withdrawal, or its lease has ended.
    #[must_use]
    pub fn is_over(&self, now: Time) -> bool {
        self.signed.publication.lease_s == 0 || self.signed.publication.ends() <= now
    }

    /// Returns the record as bytes: `guards_until` in nanoseconds, and the signed publication as in a
    /// message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.guards_until.as_nanos().to_be_bytes().to_vec();
        self.signed.put(&mut out);
        out
    }

    /// Reads a record from its bytes.
    ///
    /// # Errors
    /// If the bytes are no record.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader(bytes);
        let guards_until = Time::from_nanos(reader.u64()?);
        let signed = SignedPublication::read(&mut reader)?;
        if reader.0.is_empty() { Ok(Self { signed, guards_until }) } else { Err(RecordError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publication::tests::{NOW, key, publication};

    #[test]
    fn a_record_is_bytes() {
        let record = Record { signed: key().sign("square", publication("films/x")), guards_until: NOW };
        let bytes = record.to_bytes();
        assert_eq!(Record::parse(&bytes), Ok(record));
        for cut in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..cut]), Err(RecordError), "{cut}");
        }
        assert_eq!(Record::parse(&[&bytes[..], &[0]].concat()), Err(RecordError));
    }
}
