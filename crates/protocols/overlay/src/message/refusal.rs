//! Reasons of a [`Body::Refused`](super::Body::Refused).

use crate::publication::Rejection;

/// The message is for another service.
pub const NOT_HERE: u8 = 1;
/// The node in the message did not send it, or does not exist.
pub const OTHER_NODE: u8 = 2;
/// The domain has no such class.
pub const UNKNOWN_CLASS: u8 = 3;

/// All rejections.
pub const REJECTIONS: [Rejection; 7] = [
    Rejection::UnknownScope,
    Rejection::Signature,
    Rejection::Expired,
    Rejection::Replayed,
    Rejection::NoHost,
    Rejection::OtherHost,
    Rejection::Full,
];

/// Returns the code of a rejection, and its stable name for counters.
const fn row(rejection: Rejection) -> (u8, &'static str) {
    match rejection {
        Rejection::UnknownScope => (10, "unknown-scope"),
        Rejection::Signature => (11, "wrong-signature"),
        Rejection::Expired => (12, "expired"),
        Rejection::Replayed => (13, "replayed"),
        Rejection::NoHost => (14, "no-host"),
        Rejection::OtherHost => (15, "other-host"),
        Rejection::Full => (16, "full"),
    }
}

/// Returns the code of a rejection.
#[must_use]
pub const fn of(rejection: Rejection) -> u8 {
    row(rejection).0
}

/// Returns the stable name of a rejection, for counters.
#[must_use]
pub const fn name(rejection: Rejection) -> &'static str {
    row(rejection).1
}

/// Returns the meaning of a code, as a clause.
#[must_use]
pub fn text(reason: u8) -> String {
    match reason {
        NOT_HERE => "the service is not there".into(),
        OTHER_NODE => "the message names a node that did not send it".into(),
        UNKNOWN_CLASS => "the domain has no such class".into(),
        _ => REJECTIONS
            .into_iter()
            .find(|rejection| of(*rejection) == reason)
            .map_or_else(|| format!("refused with reason {reason}"), |rejection| rejection.to_string()),
    }
}
