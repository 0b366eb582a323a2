//! Any bytes as capsules that a program sends for CONNECT-UDP: no panic; the same datagrams however the bytes
//! are cut, none longer than one of UDP; what is read, written again, is read as the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use anabranch_proxy::ingress::capsule::{Capsules, Malformed, PAYLOAD_BYTES_MAX, Passed, encode};

type Outcome = (Vec<Bytes>, Result<bool, Malformed>, Passed);

fn run(pieces: &[&[u8]]) -> Outcome {
    let (mut capsules, mut all) = (Capsules::default(), Vec::new());
    for piece in pieces {
        let mut bytes = Bytes::copy_from_slice(piece);
        loop {
            match capsules.next(&mut bytes) {
                Ok(Some(payload)) => all.push(payload),
                Ok(None) => break,
                Err(e) => return (all, Err(e), capsules.passed()),
            }
        }
        assert!(bytes.is_empty());
    }
    (all, Ok(capsules.is_between()), capsules.passed())
}

fuzz_target!(|input: (Vec<u16>, &[u8])| {
    let (cuts, bytes) = input;
    let whole = run(&[bytes]);
    assert!(whole.0.iter().all(|payload| payload.len() <= PAYLOAD_BYTES_MAX));
    assert!(whole.0.iter().map(Bytes::len).sum::<usize>() <= bytes.len());
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| usize::from(*cut)).filter(|cut| *cut <= bytes.len()).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
    assert_eq!(run(&pieces), whole);
    let mut again = Vec::new();
    whole.0.iter().for_each(|payload| encode(payload, &mut again));
    assert_eq!(run(&[&again]), (whole.0, Ok(true), Passed::default()));
});
