//! Describes errors of TLS in words for people. rustls itself mostly writes the names of its types.

use std::fmt::Debug;
use std::io;

use tokio_rustls::rustls::Error;

/// Returns the TLS error inside an I/O error of an encrypted connection, if there is one.
#[must_use]
pub fn of(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Returns one clause that describes `error`. `peer` names the other end, such as "the server".
#[must_use]
pub fn text(error: &Error, peer: &str) -> String {
    match error {
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => format!("{peer} does not speak TLS"),
        Error::AlertReceived(alert) => format!("{peer} ends TLS: {}", words(alert)),
        Error::PeerIncompatible(why) => format!("{peer} wants another kind of TLS: {}", words(why)),
        Error::PeerMisbehaved(why) => format!("{peer} does not keep to TLS: {}", words(why)),
        other => words(other),
    }
}

/// Returns the name of an enum variant as words: `HandshakeFailure` becomes "handshake failure".
#[must_use]
pub fn words(variant: &impl Debug) -> String {
    let mut words = String::new();
    for c in format!("{variant:?}").chars().take_while(char::is_ascii_alphanumeric) {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}
