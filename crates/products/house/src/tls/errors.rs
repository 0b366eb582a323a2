//! The errors of TLS connections, as sentences for people.

use std::io;

use anabranch_http::tls_error;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::tls::verifier::WrongKey;

/// The reason why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The handshake took too long.
    #[error("the TLS handshake was not over in time")]
    Timeout,
    /// The other side does not offer the protocol that is wanted inside TLS.
    #[error("the other side speaks TLS, but does not want this protocol")]
    Alpn,
    /// The server's key is not the one of the pairing.
    #[error("{0}")]
    WrongKey(WrongKey),
    /// The client's key is not in the server's list.
    #[error("the client's key is not known here")]
    UnknownClient,
    /// The client sent no key.
    #[error("the client shows no key")]
    NoClientKey,
    /// Another error; the text describes it.
    #[error("{0}")]
    Handshake(String),
}

/// Describes an error for people. Errors of TLS get their own text, all others keep theirs.
#[must_use]
pub fn explain(error: &io::Error) -> String {
    match tls_error::of(error) {
        Some(error) => text(error),
        None => error.to_string(),
    }
}

/// Whether the server ended the connection because it does not know this client's key.
#[must_use]
pub fn is_key_unknown(error: &io::Error) -> bool {
    matches!(tls_error::of(error), Some(Error::AlertReceived(AlertDescription::AccessDenied)))
}

impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        match tls_error::of(&error) {
            Some(Error::NoCertificatesPresented) => Self::NoClientKey,
            Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
                Self::UnknownClient
            }
            Some(Error::InvalidCertificate(CertificateError::Other(other))) => {
                match other.0.downcast_ref::<WrongKey>() {
                    Some(wrong) => Self::WrongKey(*wrong),
                    None => Self::Handshake(explain(&error)),
                }
            }
            Some(Error::NoApplicationProtocol) => Self::Alpn,
            _ => Self::Handshake(explain(&error)),
        }
    }
}

fn text(error: &Error) -> String {
    match error {
        Error::AlertReceived(AlertDescription::AccessDenied) => {
            "the server does not know this client's key: pair it again".to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => TlsError::Alpn.to_string(),
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server wants the client to show a key".to_owned()
        }
        Error::PeerIncompatible(PeerIncompatible::IncorrectCertificateTypeExtension) => {
            "the other side shows no raw public key (RFC 7250)".to_owned()
        }
        Error::PeerIncompatible(why) => {
            format!("the other side has no TLS 1.3 as it is wanted here: {}", tls_error::words(why))
        }
        other => tls_error::text(other, "the other side"),
    }
}
