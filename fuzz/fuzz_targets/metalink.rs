//! Any bytes: what is read has safe names, can be written, and reads the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_mirror::metalink::{MIRRORS_MAX, Metalink, PIECES_MAX, Pieces, is_safe_name};

/// So that the fuzzer need not find the namespaces first.
const FOUR: &str = "<metalink xmlns='urn:ietf:params:xml:ns:metalink'>";
const THREE: &str = "<metalink xmlns='http://www.metalinker.org/'><files>";

fuzz_target!(|bytes: &[u8]| {
    let texts = [
        bytes.to_vec(),
        [FOUR.as_bytes(), bytes, b"</metalink>"].concat(),
        [THREE.as_bytes(), bytes, b"</files></metalink>"].concat(),
    ];
    for text in texts {
        let Ok(mut read) = Metalink::parse(&text).map_err(|error| error.to_string()) else { continue };
        for file in &mut read.files {
            assert!(is_safe_name(&file.name) && file.mirrors.len() <= MIRRORS_MAX);
            assert!(file.mirrors.iter().all(|mirror| mirror.url.as_str().starts_with("http")));
            assert!(file.mirrors.is_sorted_by_key(|mirror| mirror.priority));
            if let Some(pieces) = &file.pieces {
                assert!(pieces.bytes > 0 && pieces.hashes.len() <= PIECES_MAX);
                let count = pieces.hashes.len() as u64;
                assert!(file.size.is_none_or(|size| Pieces::count(size, pieces.bytes) == count));
            }
            let _ = (file.content(), file.sibling_leaf_list());
            file.ignored_hashes.clear();
            (file.ignored_pieces, file.ignored_mirrors) = (Vec::new(), 0);
        }
        let written = read.emit().expect("what was read can be written");
        assert_eq!(Metalink::parse(written.as_bytes()), Ok(read));
    }
});
