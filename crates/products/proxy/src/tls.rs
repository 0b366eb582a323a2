//! TLS of trunks: the proxy's name in it, and the secrets of legs. The crate `house` has the rest.

use tokio_rustls::rustls::ConnectionCommon;

pub use anabranch_house::tls::{
    ClientTls, HANDSHAKE_TIMEOUT, ServerTls, TlsError, WrongKey, explain, is_key_unknown,
};

/// The name of the protocol in TLS (RFC 7301).
pub const ALPN: &[u8] = b"anabranch-proxy/1";

/// The label of exported keys for legs (RFC 8446 section 7.5).
const LEG_LABEL: &[u8] = b"EXPORTER-anabranch-proxy-leg";

/// Returns the secret from which the keys of a leg are derived; both ends of the connection have it. Returns
/// `None` before the handshake is over.
#[must_use]
pub fn leg_secret<D>(connection: &ConnectionCommon<D>) -> Option<[u8; 32]> {
    connection.export_keying_material([0; 32], LEG_LABEL, None).ok()
}
