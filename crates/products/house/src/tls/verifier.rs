//! Verifies the raw public keys of both ends: a key is known or it is not.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::keys::{Clients, PublicKey};

/// The error that a server has another key than expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKey {
    /// The key of the pairing.
    pub expected: PublicKey,
    /// The key of the server, if it is an Ed25519 key.
    pub shown: Option<PublicKey>,
}

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, shown } = self;
        match shown {
            Some(shown) => write!(f, "the server has the key {shown}; it was paired with {expected}"),
            None => write!(f, "the server shows no Ed25519 key; it was paired with {expected}"),
        }
    }
}

impl std::error::Error for WrongKey {}

/// Accepts only the server with this key.
#[derive(Debug)]
pub(super) struct PinnedServer {
    key: PublicKey,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedServer {
    pub(super) fn new(key: PublicKey, provider: &CryptoProvider) -> Self {
        Self { key, algorithms: provider.signature_verification_algorithms }
    }
}

/// Accepts the clients of a list.
#[derive(Debug)]
pub(super) struct KnownClients {
    clients: Arc<Clients>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl KnownClients {
    pub(super) fn new(clients: Arc<Clients>, provider: &CryptoProvider) -> Self {
        Self { clients, algorithms: provider.signature_verification_algorithms }
    }
}

fn verify(
    message: &[u8],
    spki: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
    verify_tls13_signature_with_raw_key(message, &spki, signed, algorithms)
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = PublicKey::from_spki(shown);
        if shown == Some(self.key) {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongKey { expected: self.key, shown };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // TLS 1.2 is off, so this is not reached. It would fail, because a raw key is no certificate.
        verify_tls12_signature(message, shown, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, shown, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for KnownClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match PublicKey::from_spki(shown).and_then(|key| self.clients.name(&key)) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            // The client gets the alert "access denied".
            None => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // TLS 1.2 is off, so this is not reached. It would fail, because a raw key is no certificate.
        verify_tls12_signature(message, shown, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, shown, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
