//! TLS 1.3 (RFC 8446) between client and server, with raw public keys (RFC 7250) that both ends know. It uses
//! no certificates, authorities, host names or dates.
//!
//! Sessions are not resumed, because a client that was removed from the list could return with its ticket.
//! Nothing is sent before the handshake is over (0-RTT), because it could be replayed.

mod errors;
mod verifier;

use std::net::{Ipv4Addr, TcpStream};
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
use tokio_rustls::rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::keys::{Clients, KeyPair, Pairing, PublicKey};
pub use errors::{TlsError, explain, is_key_unknown};
pub use verifier::WrongKey;
use verifier::{KnownClients, PinnedServer};

/// The longest time that a handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's side of TLS, for one protocol inside it.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    alpn: &'static [u8],
}

/// A connection of a client for a thread.
pub type ClientStream = StreamOwned<ClientConnection, TcpStream>;
/// A connection of a server for a thread.
pub type ServerStream = StreamOwned<ServerConnection, TcpStream>;

/// The server's side of TLS, for one protocol inside it. A changed list of clients needs a new one.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    alpn: &'static [u8],
    clients: Arc<Clients>,
}

/// Returns the name that a client gives rustls: servers are known by their keys alone.
fn nobody() -> ServerName<'static> {
    ServerName::from(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// Returns the key pair in the form that rustls needs.
fn certified(pair: &KeyPair) -> Arc<CertifiedKey> {
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pair.to_pkcs8()));
    let key = key.expect("an Ed25519 key in PKCS #8");
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(pair.public().to_spki())], key))
}

impl ClientTls {
    /// Creates the client's side from a pairing. `alpn` is the protocol's name in TLS (RFC 7301).
    #[must_use]
    pub fn new(pairing: &Pairing, alpn: &'static [u8]) -> Self {
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
        config.alpn_protocols = vec![alpn.to_vec()];
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), alpn }
    }

    /// Makes a TLS connection as [`connect`](Self::connect) does, in a thread. The connection's time-outs are
    /// the caller's.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_blocking(&self, mut connection: TcpStream) -> Result<ClientStream, TlsError> {
        let mut tls = ClientConnection::new(Arc::clone(&self.config), nobody())
            .map_err(|e| TlsError::Handshake(e.to_string()))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut connection)?;
        }
        match tls.alpn_protocol() == Some(self.alpn) {
            true => Ok(StreamOwned::new(tls, connection)),
            false => Err(TlsError::Alpn),
        }
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
        let connecting = TlsConnector::from(Arc::clone(&self.config)).connect(nobody(), connection);
        let stream = timeout(HANDSHAKE_TIMEOUT, connecting).await.map_err(|_| TlsError::Timeout)??;
        match stream.get_ref().1.alpn_protocol() == Some(self.alpn) {
            true => Ok(stream),
            false => Err(TlsError::Alpn),
        }
    }
}

impl ServerTls {
    /// Creates the side of a server with this key pair, for these clients. `alpn` is the protocol's name in
    /// TLS (RFC 7301).
    #[must_use]
    pub fn new(pair: &KeyPair, clients: Clients, alpn: &'static [u8]) -> Self {
        let (provider, clients) = (Arc::new(ring::default_provider()), Arc::new(clients));
        let verifier = Arc::new(KnownClients::new(Arc::clone(&clients), &provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(pair))));
        config.alpn_protocols = vec![alpn.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Self { config: Arc::new(config), alpn, clients }
    }

    /// Makes a TLS connection in a thread. Returns it with the client's name. The connection's time-outs are
    /// the caller's.
    ///
    /// # Errors
    /// If the handshake fails, or if the client is unknown; see [`TlsError`].
    pub fn accept_blocking(&self, mut connection: TcpStream) -> Result<(ServerStream, String), TlsError> {
        let mut tls = ServerConnection::new(Arc::clone(&self.config))
            .map_err(|e| TlsError::Handshake(e.to_string()))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut connection)?;
        }
        let name = self.name_of(&tls)?;
        Ok((StreamOwned::new(tls, connection), name))
    }

    /// Returns the name of the client at the other end of a connection.
    fn name_of(&self, session: &ServerConnection) -> Result<String, TlsError> {
        if session.alpn_protocol() != Some(self.alpn) {
            return Err(TlsError::Alpn);
        }
        let shown = session.peer_certificates().and_then(|shown| PublicKey::from_spki(shown.first()?));
        let name = shown.and_then(|key| self.clients.name(&key)).ok_or(TlsError::UnknownClient)?;
        Ok(name.to_owned())
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
        let name = self.name_of(stream.get_ref().1)?;
        Ok((stream, name))
    }
}
