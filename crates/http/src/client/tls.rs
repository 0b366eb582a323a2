//! TLS: which certificates are trusted.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::error::FetchError;

/// The largest file of certificates that is read, bytes. The system's are about 200 KiB.
const CA_BYTES_MAX: u64 = 16 << 20;

/// The certificates in the PEM file `path`.
///
/// # Errors
/// The error of reading; `InvalidData` if it has no certificate.
pub(super) fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut pem = Vec::new();
    File::open(path)?.take(CA_BYTES_MAX).read_to_end(&mut pem)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "no certificate in it")),
        Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
    }
}

/// What every connection is made with: TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1 (ALPN, RFC 7301). `roots` are
/// trusted besides the system's; `insecure` trusts every certificate.
///
/// # Errors
/// One clause: a certificate cannot be used.
pub(super) fn config(roots: &[CertificateDer<'static>], insecure: bool) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let mut config = if insecure {
        let verifier = Arc::new(NoVerifier(provider));
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    } else {
        let mut store = RootCertStore::empty();
        // Missing or invalid certificates of the system are no error here: a server whose issuer is unknown
        // then fails with that reason.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for root in roots {
            store.add(root.clone()).map_err(|e| format!("a certificate cannot be used: {e}"))?;
        }
        builder.with_root_certificates(store).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Maps the error of a handshake: TLS's own, or the connection's.
pub(super) fn handshake_error(error: &io::Error) -> FetchError {
    use rustls::{CertificateError, Error};
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return FetchError::Broken(format!("the TLS handshake broke off: {error}"));
    };
    let why = match tls {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => "the certificate's issuer is not known here".to_owned(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is for another host".to_owned()
            }
            CertificateError::Revoked => "the certificate was revoked".to_owned(),
            other => format!("the certificate is invalid: {other}"),
        },
        Error::InvalidMessage(_) => "the server does not speak TLS".to_owned(),
        other => other.to_string(),
    };
    FetchError::Tls(why)
}

/// Trusts every certificate (`insecure`). Signatures are still checked, so that all bytes come from one
/// server.
#[derive(Debug)]
struct NoVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
