//! TLS 1.3 (RFC 8446) between client and server, with raw public keys (RFC 7250) that both ends know. It uses
//! no certificates, authorities, host names or dates.
//!
//! Sessions are not resumed, because a client that was removed from the list could return with its ticket.
//! Nothing is sent before the handshake is over (0-RTT), because it could be replayed; a trunk exists before
//! it is needed.

mod errors;
mod verifier;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use tokio_rustls::rustls::crypto::ring::{self, sign::any_eddsa_type};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, ConnectionCommon, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::keys::{Clients, KeyPair, Pairing, PublicKey};
pub use errors::{TlsError, explain, is_key_unknown};
pub use verifier::WrongKey;
use verifier::{KnownClients, PinnedServer};

/// The label of exported keys for legs (RFC 8446 section 7.5).
const LEG_LABEL: &[u8] = b"EXPORTER-anabranch-proxy-leg";

/// Returns the secret from which the keys of a leg are derived; both ends of the connection have it. Returns
/// `None` before the handshake is over.
#[must_use]
pub fn leg_secret<D>(connection: &ConnectionCommon<D>) -> Option<[u8; 32]> {
    connection.export_keying_material([0; 32], LEG_LABEL, None).ok()
}

/// The name of the protocol in TLS (RFC 7301).
pub const ALPN: &[u8] = b"anabranch-proxy/1";
/// The longest time that a handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's side of TLS.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
}

/// The server's side of TLS. A changed list of clients needs a new one.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    clients: Arc<Clients>,
}

/// Returns the key pair in the form that rustls needs.
fn certified(pair: &KeyPair) -> Arc<CertifiedKey> {
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pair.to_pkcs8()));
    let key = key.expect("an Ed25519 key in PKCS #8");
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(pair.public().to_spki())], key))
}

impl ClientTls {
    /// Creates the client's side from a pairing.
    #[must_use]
    pub fn new(pairing: &Pairing) -> Self {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(PinnedServer::new(pairing.server, &provider));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(
                &pairing.client,
            ))));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config) }
    }

    /// Makes a TLS connection. If the server does not know the client's key, that shows at the first read
    /// ([`explain`]), because the client's part of the handshake ends before the server has checked the key.
    ///
    /// # Errors
    /// If the handshake fails or takes too long, or if the server has another key; see [`TlsError`].
    pub async fn connect<S>(&self, connection: S) -> Result<client::TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let nobody = ServerName::from(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let connecting = TlsConnector::from(Arc::clone(&self.config)).connect(nobody, connection);
        let stream = timeout(HANDSHAKE_TIMEOUT, connecting).await.map_err(|_| TlsError::Timeout)??;
        match stream.get_ref().1.alpn_protocol() {
            Some(ALPN) => Ok(stream),
            _ => Err(TlsError::Alpn),
        }
    }
}

impl ServerTls {
    /// Creates the side of a server with this key pair, for these clients.
    #[must_use]
    pub fn new(pair: &KeyPair, clients: Clients) -> Self {
        let (provider, clients) = (Arc::new(ring::default_provider()), Arc::new(clients));
        let verifier = Arc::new(KnownClients::new(Arc::clone(&clients), &provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(pair))));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Self { config: Arc::new(config), clients }
    }

    /// Makes a TLS connection within [`HANDSHAKE_TIMEOUT`]. Returns it with the client's name.
    ///
    /// # Errors
    /// If the handshake fails or takes too long, or if the client is unknown; see [`TlsError`].
    pub async fn accept<S>(&self, connection: S) -> Result<(server::TlsStream<S>, String), TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_within(HANDSHAKE_TIMEOUT, connection).await
    }

    /// Makes a TLS connection within this time. Returns it with the client's name.
    ///
    /// # Errors
    /// If the handshake fails or takes too long, or if the client is unknown; see [`TlsError`].
    pub async fn accept_within<S>(
        &self,
        within: Duration,
        connection: S,
    ) -> Result<(server::TlsStream<S>, String), TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = TlsAcceptor::from(Arc::clone(&self.config)).accept(connection);
        let stream = timeout(within, accepting).await.map_err(|_| TlsError::Timeout)??;
        let session = stream.get_ref().1;
        if session.alpn_protocol() != Some(ALPN) {
            return Err(TlsError::Alpn);
        }
        let shown = session.peer_certificates().and_then(|shown| PublicKey::from_spki(shown.first()?));
        let name = shown.and_then(|key| self.clients.name(&key)).ok_or(TlsError::UnknownClient)?;
        let name = name.to_owned();
        Ok((stream, name))
    }
}
