//! A stateless proof that a receiver can be reached at its address.
//!
//! A cookie is a keyed hash of an epoch and the receiver's IP address or its position in an overlay. A source
//! keeps one secret and no table. A receiver that echoes a cookie has shown that packets to its address reach
//! it. Replies may then be longer than [`AMPLIFICATION`] times its requests.
//!
//! A cookie is bound to the address and not to the port, as in TCP Fast Open (RFC 7413 §4.1.2). So a later
//! transfer from the same host may reuse it and saves a round trip. The price is that a host behind the same
//! address translator can borrow it (docs/security.md).

use std::net::IpAddr;

use anabranch_algo::{Span, Time};

use crate::peer::Peer;

use crate::wire::Cookie;

/// An unproven address gets at most this many bytes per byte that it sent, as in QUIC (RFC 9000 §8.1). Both
/// directions count the bytes that the network carries, each packet with its [headers](Peer::header_bytes).
pub const AMPLIFICATION: usize = 3;
/// The length of one epoch.
pub const EPOCH: Span = Span::from_secs(600);
/// A cookie is valid for this many epochs after its own: it lives 60 to 70 minutes.
pub const EPOCHS_VALID: u32 = 6;

/// The secret for issuing and checking cookies.
#[derive(Clone)]
pub struct CookieKey {
    secret: [u8; 32],
}

impl CookieKey {
    /// Creates a key with this secret. Anyone who knows the secret can forge proofs.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// Issues a cookie for a receiver at time `now`.
    #[must_use]
    pub fn issue(&self, now: Time, peer: &Peer) -> Cookie {
        self.cookie_of(epoch(now), peer)
    }

    /// Whether `cookie` was issued for this receiver and has not expired at `now`.
    #[must_use]
    pub fn check(&self, now: Time, peer: &Peer, cookie: &Cookie) -> bool {
        let Some(stamp) = cookie.0.first_chunk::<4>() else { return false };
        let stamp = u32::from_be_bytes(*stamp);
        let fresh = epoch(now).checked_sub(stamp).is_some_and(|age| age <= EPOCHS_VALID);
        // blake3's Hash compares in constant time. The stamp is public.
        fresh && blake3::hash(&self.cookie_of(stamp, peer).0) == blake3::hash(&cookie.0)
    }

    fn cookie_of(&self, stamp: u32, peer: &Peer) -> Cookie {
        let address = match peer.address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&stamp.to_be_bytes()).update(&address.octets());
        if let Some(way_back) = &peer.way_back {
            hasher.update(&way_back.0);
        }
        let mac = hasher.finalize();
        let mut cookie = [0; 16];
        cookie[..4].copy_from_slice(&stamp.to_be_bytes());
        cookie[4..].copy_from_slice(&mac.as_bytes()[..12]);
        Cookie(cookie)
    }
}

fn epoch(now: Time) -> u32 {
    u32::try_from(now.as_nanos() / EPOCH.as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::peer::WayBack;

    const HOME: &Peer = &peer(1, None);
    const AWAY: &Peer = &peer(2, None);

    const fn peer(host: u8, way_back: Option<WayBack>) -> Peer {
        let ip = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, host));
        Peer { address: std::net::SocketAddr::new(ip, 7_700), way_back }
    }

    #[test]
    fn good_at_home_only_and_for_an_hour() {
        let cookie_key = CookieKey::new([7; 32]);
        let start = Time::ZERO + EPOCH.times(3);
        let cookie = cookie_key.issue(start, HOME);
        assert!(cookie_key.check(start, HOME, &cookie));
        assert!(cookie_key.check(start + Span::from_secs(3_600), HOME, &cookie));
        assert!(!cookie_key.check(start + EPOCH.times(7), HOME, &cookie), "expired");
        assert!(!cookie_key.check(Time::ZERO, HOME, &cookie), "from the future");
        assert!(!cookie_key.check(start, AWAY, &cookie), "another address");
        assert!(!CookieKey::new([8; 32]).check(start, HOME, &cookie), "another secret");
        let mut elsewhere = *HOME;
        elsewhere.address.set_port(9);
        assert!(cookie_key.check(start, &elsewhere, &cookie), "another port");
    }

    #[test]
    fn behind_one_forwarder_each_has_its_own() {
        let cookie_key = CookieKey::new([7; 32]);
        let (one, other) = (peer(1, Some(WayBack([1; _]))), peer(1, Some(WayBack([2; _]))));
        let cookie = cookie_key.issue(Time::ZERO, &one);
        assert!(cookie_key.check(Time::ZERO, &one, &cookie));
        assert!(!cookie_key.check(Time::ZERO, &other, &cookie));
        assert!(!cookie_key.check(Time::ZERO, HOME, &cookie));
    }

    #[test]
    fn every_bit_counts() {
        let cookie_key = CookieKey::new([7; 32]);
        let cookie = cookie_key.issue(Time::ZERO, HOME);
        for bit in 0..128 {
            let mut forged = cookie;
            forged.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!cookie_key.check(Time::ZERO, HOME, &forged), "bit {bit}");
        }
    }
}
