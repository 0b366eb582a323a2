//! Any bytes as what a program says to an HTTP proxy: the same outcome however they are cut; a head for the
//! origin that is a head, in origin form, without what is the proxy's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_proxy::ingress::{Body, Handshake, Progress, Users};

/// `None`: the end of a body cannot be known, which may show sooner or later.
fn run(users: &Users, pieces: &[&[u8]]) -> Option<(Progress, Vec<u8>)> {
    let (mut handshake, mut out) = (Handshake::http(users.clone()), Vec::new());
    let mut progress = Progress::More;
    for piece in pieces {
        match &mut progress {
            Progress::More => progress = handshake.handle(piece, &mut out),
            Progress::Wanted(request) => {
                let taken = request.body.take(piece).ok()?;
                request.first.extend_from_slice(&piece[..taken]);
            }
            Progress::Associate(wanted) => wanted.first.extend_from_slice(piece),
            Progress::Refused => {}
        }
    }
    let is_ambiguous = out.windows(27).any(|words| words == b"where the body of this requ");
    (!is_ambiguous).then_some((progress, out))
}

fuzz_target!(|input: (bool, Vec<u16>, &[u8])| {
    let (has_users, cuts, bytes) = input;
    let users = has_users.then(|| ("u".to_owned(), "p".to_owned()));
    let users = Users::new(users);
    let whole = run(&users, &[bytes]);
    if let Some((Progress::Wanted(request), out)) = &whole {
        assert!(out.is_empty());
        if request.is_answered_by_origin() {
            let mut fields = [httparse::EMPTY_HEADER; 256];
            let mut head = httparse::Request::new(&mut fields);
            assert!(head.parse(&request.first).is_ok_and(|status| status.is_complete()));
            assert!(head.path.is_some_and(|path| path.starts_with('/') || path == "*"));
            let of = |name: &str| head.headers.iter().filter(|f| f.name.eq_ignore_ascii_case(name)).count();
            assert_eq!((of("host"), of("connection"), of("proxy-authorization")), (1, 1, 0));
            assert!(of("content-length") + of("transfer-encoding") <= 1 || of("content-length") == 0);
        } else {
            assert_eq!(request.body, Body::Endless);
            assert!(bytes.ends_with(&request.first));
        }
    }
    if let Some((Progress::Associate(wanted), out)) = &whole {
        assert!(out.is_empty() && wanted.to.is_some());
        assert!(bytes.ends_with(&wanted.first));
    }
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| usize::from(*cut)).filter(|cut| *cut <= bytes.len()).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
    assert_eq!(run(&users, &pieces), whole);
});
