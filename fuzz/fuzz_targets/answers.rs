//! Any bytes as what a web server sends: the same answers however they are cut, and no byte that was not
//! sent.
#![no_main]

use anabranch_http::client::parse_responses;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u16>, &[u8])| {
    let (cuts, bytes) = input;
    let whole = parse_responses(&[bytes]);
    assert!(whole.0.iter().map(|(_, body)| body.len()).sum::<usize>() <= bytes.len());
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| usize::from(*cut)).filter(|cut| *cut <= bytes.len()).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
    assert_eq!(parse_responses(&pieces), whole);
});
