//! Any text: what parses, printed, parses to the same URI.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::collection::is_file_name;
use anabranch_mmtp::uri::{Uri, UriError, host_port};

/// So that the fuzzer need not find a whole name first.
const NAME: &str = "anabranch:b3:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa?";

fuzz_target!(|text: &str| {
    let _ = host_port(text);
    for text in [text.to_owned(), format!("{NAME}{text}")] {
        let Ok(uri) = text.parse::<Uri>().map_err(|error| error.to_string()) else { continue };
        assert!(uri.name.as_deref().is_none_or(is_file_name));
        assert!(uri.from.iter().all(|source| host_port(source).is_ok()));
        match uri.to_string().parse() {
            Ok(again) => assert_eq!(uri, again),
            // Encoding may make it longer.
            Err(error) => assert!(matches!(error, UriError::TooLong(_)), "{error}"),
        }
    }
});
