//! Any bytes as what a program says to a SOCKS5 proxy: the same outcome however they are cut, no byte for the
//! origin that was not sent, and no answer where none is due.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_proxy::ingress::{Handshake, Progress, Users};

fn run(users: &Users, pieces: &[&[u8]]) -> (Progress, Vec<u8>) {
    let (mut handshake, mut out) = (Handshake::socks(users.clone()), Vec::new());
    let mut progress = Progress::More;
    for piece in pieces {
        match &mut progress {
            Progress::More => progress = handshake.handle(piece, &mut out),
            Progress::Wanted(request) => request.first.extend_from_slice(piece),
            Progress::Refused | Progress::Associate(_) => {}
        }
    }
    (progress, out)
}

fuzz_target!(|input: (bool, Vec<u16>, &[u8])| {
    let (has_users, cuts, bytes) = input;
    let users = has_users.then(|| ("u".to_owned(), "p".to_owned()));
    let users = Users::new(users);
    let whole = run(&users, &[bytes]);
    if let Progress::Wanted(request) = &whole.0 {
        assert!(bytes.ends_with(&request.first) && request.first.len() < bytes.len());
        assert_eq!(request.accepted()[..2], [5, 0]);
        assert!(!has_users || whole.1 == [5, 2, 1, 0]);
    }
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| usize::from(*cut)).filter(|cut| *cut <= bytes.len()).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
    assert_eq!(run(&users, &pieces), whole);
});
