//! Tests of TLS between real sockets: which clients are admitted, and the errors at both ends.

use std::sync::Arc;

use anabranch_proxy::keys::{Clients, KeyPair, Pairing};
use anabranch_proxy::tls::{ALPN, ClientTls, ServerTls, TlsError, explain};
use anabranch_proxy::trunk::{Settings, Side, Transport};
use anabranch_proxy::trunk_task::{End, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, WantsClientCert};
use tokio_rustls::rustls::crypto::ring::sign::any_eddsa_type;
use tokio_rustls::rustls::crypto::ring::{self};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion,
};

async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// Makes a server's keys, and the pairing of a client that it knows as "laptop".
fn paired() -> (KeyPair, Clients, Pairing) {
    let server = KeyPair::generate().unwrap();
    let pairing = Pairing::new(server.public()).unwrap();
    let list = format!("[[client]]\nname = \"laptop\"\nkey = \"{}\"\n", pairing.client.public());
    (server, Clients::parse(&list).unwrap(), pairing)
}

#[tokio::test]
async fn a_trunk_goes_through_tls_and_the_server_knows_whose_it_is() {
    let (server, clients, pairing) = paired();
    let pairing: Pairing = pairing.to_line().parse().unwrap();
    let (near, far) = connection().await;
    let (client, server) = (ClientTls::new(&pairing, ALPN), ServerTls::new(&server, clients, ALPN));
    let (near, far) = tokio::join!(client.connect(near), server.accept(far));
    let (far, name) = far.unwrap();
    assert_eq!(name, "laptop");
    let settings = Settings { transport: Transport::Mptcp, ..Settings::default() };
    let (client, task) = start(near.unwrap(), Side::Client, settings);
    tokio::spawn(task);
    let (server, task) = start(far, Side::Server, settings);
    tokio::spawn(task);
    assert_eq!(client.hello().await, Ok(Transport::Mptcp));
    let stream = client.open("192.0.2.1:1".parse().unwrap(), false).unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let writing = tokio::spawn({
        let sent = sent.clone();
        async move {
            stream.write_all(sent.into()).await.unwrap();
            stream.finish();
            stream
        }
    });
    let accepted = server.accept().await.unwrap();
    let mut read = Vec::new();
    while let Some(bytes) = accepted.stream.read(usize::MAX).await.unwrap() {
        read.extend_from_slice(&bytes);
    }
    assert!(read == sent);
    drop((writing.await.unwrap(), accepted, client));
    assert_eq!(server.ended().await, End::Closed);
}

#[tokio::test]
async fn another_server_is_refused_by_the_client_which_names_both_keys() {
    let (server, _, pairing) = paired();
    let (other, clients, _) = paired();
    let (near, far) = connection().await;
    let (client, other_tls) = (ClientTls::new(&pairing, ALPN), ServerTls::new(&other, clients, ALPN));
    let (near, far) = tokio::join!(client.connect(near), other_tls.accept(far));
    let error = near.unwrap_err();
    assert!(matches!(error, TlsError::WrongKey(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains(&server.public().to_string()) && text.contains(&other.public().to_string()));
    assert!(far.is_err());
}

#[tokio::test]
async fn an_unknown_client_is_refused_and_told_so() {
    let (server, _, pairing) = paired();
    let (near, far) = connection().await;
    let (client, server) =
        (ClientTls::new(&pairing, ALPN), ServerTls::new(&server, Clients::default(), ALPN));
    let (near, far) = tokio::join!(client.connect(near), server.accept(far));
    assert!(matches!(far.unwrap_err(), TlsError::UnknownClient));
    // A trunk sees the refusal at its first read.
    let (client, task) = start(near.unwrap(), Side::Client, Settings::default());
    tokio::spawn(task);
    let error = client.hello().await.unwrap_err().to_string();
    assert!(error.contains("does not know this client's key"), "{error}");
}

/// A verifier that accepts every server, for a client that is not ours.
#[derive(Debug)]
struct Anybody {
    is_raw: bool,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.is_raw
    }
}

fn foreign(
    version: &'static SupportedProtocolVersion,
    is_raw: bool,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody { is_raw }))
}

/// Connects with this configuration. Returns the server's error, and the client's error at its first read.
async fn refusal(config: ClientConfig, server: &ServerTls) -> (TlsError, String) {
    let (near, far) = connection().await;
    let name = ServerName::try_from("origin.example").unwrap();
    let client = async {
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, near).await?;
        stream.write_all(b"hello").await?;
        stream.read_u8().await
    };
    let (said, refused) = tokio::join!(client, server.accept(far));
    (refused.map(|_| ()).unwrap_err(), explain(&said.unwrap_err()))
}

#[tokio::test]
async fn clients_that_are_not_ours_are_refused_for_what_they_lack() {
    let (server, clients, pairing) = paired();
    let tls = ServerTls::new(&server, clients, ALPN);

    let mut keyless = foreign(&TLS13, true).with_no_client_auth();
    keyless.alpn_protocols = vec![ALPN.to_vec()];
    let (refused, said) = refusal(keyless, &tls).await;
    assert!(refused.to_string().contains("no raw public key"), "{refused}");
    assert!(said.contains("ends TLS"), "{said}");

    let mut old = foreign(&TLS12, false).with_no_client_auth();
    old.alpn_protocols = vec![ALPN.to_vec()];
    let (refused, said) = refusal(old, &tls).await;
    assert!(refused.to_string().contains("TLS 1.3"), "{refused}");
    assert!(said.contains("protocol version"), "{said}");

    let with_key = || {
        let der = PrivatePkcs8KeyDer::from(pairing.client.to_pkcs8());
        let shown = vec![CertificateDer::from(pairing.client.public().to_spki())];
        let key = Arc::new(CertifiedKey::new(shown, any_eddsa_type(&der).unwrap()));
        foreign(&TLS13, true).with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)))
    };
    let mut other = with_key();
    other.alpn_protocols = vec![b"h2".to_vec()];
    let (refused, said) = refusal(other, &tls).await;
    assert!(matches!(refused, TlsError::Alpn), "{refused}");
    assert!(said.contains("does not want this protocol"), "{said}");

    let (near, far) = connection().await;
    let connector = TlsConnector::from(Arc::new(with_key()));
    let name = ServerName::try_from("origin.example").unwrap();
    let (_near, refused) = tokio::join!(connector.connect(name, near), tls.accept(far));
    assert!(matches!(refused.unwrap_err(), TlsError::Alpn), "no protocol's name at all");

    let (mut near, far) = connection().await;
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let refused = tls.accept(far).await.unwrap_err();
    assert!(refused.to_string().contains("does not speak TLS"), "{refused}");
}
