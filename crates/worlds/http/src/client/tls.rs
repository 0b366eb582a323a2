//! TLS: decides which certificates are trusted, and says in words why a handshake failed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::rustls;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::error::FetchError;
use crate::tls_error::{self, words};

/// The most bytes of a file of certificates that are read. The system's has about 200 KiB.
const CA_BYTES_MAX: u64 = 16 << 20;

/// Reads the certificates in the PEM file `path`.
///
/// # Errors
/// If the file cannot be read. The error is `InvalidData` if the file has no certificate.
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

/// The most configurations that are kept.
const CONFIGS_MAX: usize = 16;

/// What a configuration depends on: the certificates that are trusted besides the system's, and whether every
/// certificate is.
type Trust = (Vec<CertificateDer<'static>>, bool);

/// The TLS configurations of all clients of an engine. Each holds the sessions that its connections may
/// resume.
#[derive(Default)]
pub(super) struct TlsConfigs(Mutex<Vec<(Trust, Arc<ClientConfig>)>>);

impl TlsConfigs {
    /// Returns the configuration for these certificates, which is made when it is first needed.
    ///
    /// # Errors
    /// As [`config`].
    pub(super) fn get(
        &self,
        roots: &[CertificateDer<'static>],
        insecure: bool,
    ) -> Result<Arc<ClientConfig>, String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|((known, every), _)| known == roots && *every == insecure);
        if let Some((_, config)) = known {
            return Ok(Arc::clone(config));
        }
        let config = config(roots, insecure)?;
        if all.len() >= CONFIGS_MAX {
            all.remove(0);
        }
        all.push(((roots.to_vec(), insecure), Arc::clone(&config)));
        Ok(config)
    }
}

/// Returns the TLS configuration of all connections: TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1 (ALPN, RFC
/// 7301). `roots` are trusted besides the system's certificates, both as issuers and as certificates of
/// servers. With `insecure`, every certificate is trusted.
///
/// # Errors
/// If a certificate cannot be used. The error is one clause.
fn config(roots: &[CertificateDer<'static>], insecure: bool) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let mut config = if insecure {
        let verifier = Arc::new(NoVerifier(provider));
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    } else {
        let mut store = RootCertStore::empty();
        // Missing or invalid certificates of the system are no error here. A server whose issuer is then
        // unknown fails with that reason.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for root in roots {
            store.add(root.clone()).map_err(|e| format!("a certificate cannot be used: {}", text(&e)))?;
        }
        if roots.is_empty() {
            builder.with_root_certificates(store).with_no_client_auth()
        } else {
            let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build();
            let chains = chains.map_err(|e| format!("a certificate cannot be used: {e}"))?;
            let verifier = Arc::new(OwnVerifier { chains, own: roots.to_vec() });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Converts the error of a handshake, which is either TLS's own or the connection's.
pub(super) fn handshake_error(error: &io::Error) -> FetchError {
    match tls_error::of(error) {
        Some(error) => FetchError::Tls(text(error)),
        None => FetchError::Broken(format!("the TLS handshake broke off: {error}")),
    }
}

/// Returns one clause that describes the error for people.
fn text(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate_text(why),
        Error::General(why) => why.clone(),
        other => tls_error::text(other, "the server"),
    }
}

fn certificate_text(error: &CertificateError) -> String {
    let text = match error {
        CertificateError::UnknownIssuer => {
            "the certificate's issuer is not known here: name its certificate with `ca_file` if you know it"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another host"
        }
        CertificateError::Revoked => "the certificate was revoked",
        CertificateError::Other(_) if is_authority(error) => {
            "the certificate is an authority's, not a server's: name it with `ca_file` if you know that this \
             server has it"
        }
        CertificateError::Other(other) => return format!("the certificate is invalid: {}", words(&other.0)),
        other => return format!("the certificate is invalid: {}", words(other)),
    };
    text.to_owned()
}

/// Whether the only fault is that a server uses an authority's certificate (RFC 5280 section 4.2.1.9).
fn is_authority(error: &CertificateError) -> bool {
    let CertificateError::Other(other) = error else { return false };
    matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Trusts servers by their issuers, and also servers that present one of the caller's `own` certificates, as
/// curl does. `openssl req -x509` makes such a certificate. It is an authority's, which other clients accept
/// from no server, and often its only name is the common name.
#[derive(Debug)]
struct OwnVerifier {
    chains: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for OwnVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let result =
            self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let Err(Error::InvalidCertificate(mut why)) = result else { return result };
        if self.own.iter().all(|own| own != end_entity) {
            return Err(why.into());
        }
        // The certificate's dates have been checked before this error is found.
        if is_authority(&why) {
            match verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name) {
                Err(Error::InvalidCertificate(name)) => why = name,
                other => return other.map(|()| ServerCertVerified::assertion()),
            }
        }
        match &why {
            CertificateError::NotValidForNameContext { presented, .. }
                if presented.is_empty() && is_common_name(end_entity, &server_name.to_str()) =>
            {
                Ok(ServerCertVerified::assertion())
            }
            _ => Err(why.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Whether the subject's common name (RFC 5280 section 4.1.2.6) is `name`. Call this only for a certificate
/// that the caller has: a common name in any other certificate proves nothing (RFC 9525 section 6.3).
fn is_common_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    /// The DER encoding of the attribute's type, id-at-commonName.
    const TYPE: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return false };
    let subject = certificate.subject();
    let at = subject.windows(TYPE.len()).rposition(|bytes| bytes == TYPE);
    // Behind the type come a string's tag, its length in one byte, and its bytes.
    let Some([_tag, length, text @ ..]) = at.and_then(|at| subject.get(at + TYPE.len()..)) else {
        return false;
    };
    text.get(..usize::from(*length)).is_some_and(|text| text.eq_ignore_ascii_case(name.as_bytes()))
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
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
