//! Any text as the value of a header field, and as a URL.
#![no_main]

use anabranch_mirror::http_fields::{
    ETag, LINKS_MAX, PRIORITY_LAST, digest, disposition_name, links, repr_digest,
};
use anabranch_mirror::url::Url;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let base = Url::parse("https://user:pass@example.org:8443/a/b;c?d").expect("a URL");
    let links = links(text, &base);
    assert!(links.len() <= LINKS_MAX);
    for link in links {
        assert!((1..=PRIORITY_LAST).contains(&link.priority));
        assert_eq!(Url::parse(link.url.as_str()), Ok(link.url));
    }
    let _ = (repr_digest(text), digest(text), disposition_name(text));
    if let Some(tag) = ETag::parse(text) {
        assert_eq!(ETag::parse(&tag.text).map(|again| again.text), Some(tag.text));
    }
    if let Ok(url) = Url::parse(text) {
        assert!(!url.host().is_empty() && matches!(url.as_str().get(..4), Some("http")));
        let _ = (url.file_name(), url.sibling(".b3leaves"), url.join(text));
        assert!(Url::parse(&url.to_string()).is_ok_and(|shown| !shown.has_credentials()));
    }
});
