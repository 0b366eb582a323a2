//! Stores that want credentials: a client gets what came by its own credentials, and nothing that came by
//! others.

use tempfile::TempDir;

use crate::bed::{Cache, Origin, Page, bytes, sha256};

const ANNA: &str = "Authorization: Bearer anna\r\n";
const OTTO: &str = "Authorization: Bearer otto\r\n";

fn cache(preset: &str, origin: &Origin) -> Cache {
    let settings = ["", "pass_credentials = true"];
    Cache::with_settings(TempDir::new().unwrap(), "/", preset, &[origin.url()], settings)
}

#[test]
fn an_object_is_for_those_who_have_the_credentials_by_which_it_came() {
    let (origin, body) = (Origin::start(), bytes(1_500_000, 1));
    let path = format!("/v2/a/blobs/sha256:{}", sha256(&body));
    origin.put(&path, Page { wants: Some("Bearer anna".into()), ..Page::new(body.clone()) });
    let cache = cache("oci", &origin);
    assert_eq!(cache.get(&path).status, 401, "the client is asked who it is");
    assert_eq!(cache.ask("GET", &path, OTTO).status, 403);
    let answer = cache.ask("GET", &path, ANNA);
    assert!(answer.status == 200 && answer.body == body, "{}", answer.head);
    cache.wait_until_stored(1);
    let asked = origin.asked(&path).len();
    let again = cache.ask("GET", &path, ANNA);
    assert_eq!((again.status, again.field("cache-status")), (200, Some("anabranch; hit")));
    assert!(again.body == body && again.field("cache-control").is_some_and(|c| c.starts_with("private")));
    assert_eq!(origin.asked(&path).len(), asked, "it is kept for her");
    // Others are sent to the source, which refuses them.
    assert_eq!((cache.get(&path).status, cache.ask("GET", &path, OTTO).status), (401, 403));
    assert!(origin.asked(&path).len() > asked);
    // What everybody gets, she gets too, from the one copy.
    origin.put(&path, Page::new(body.clone()));
    assert!(cache.get(&path).body == body);
    cache.wait_until_stored(2);
    let asked = origin.asked(&path).len();
    for fields in ["", ANNA, OTTO] {
        let answer = cache.ask("GET", &path, fields);
        assert!(answer.body == body && answer.field("cache-status") == Some("anabranch; hit"));
    }
    assert_eq!(origin.asked(&path).len(), asked);
}

#[test]
fn a_document_is_for_those_who_have_the_credentials_by_which_it_came() {
    let origin = Origin::start();
    let page = |text: &str, who: &str| Page {
        wants: Some(format!("Bearer {who}")),
        ..Page::new(text).with("Cache-Control: max-age=600")
    };
    origin.put("/v2/a/tags/list", page("hers", "anna"));
    let cache = cache("oci", &origin);
    assert_eq!(cache.ask("GET", "/v2/a/tags/list", ANNA).text(), "hers");
    origin.put("/v2/a/tags/list", page("his", "otto"));
    assert_eq!(cache.ask("GET", "/v2/a/tags/list", OTTO).text(), "his");
    assert_eq!(cache.ask("GET", "/v2/a/tags/list", ANNA).text(), "hers", "from the store");
    assert_eq!(cache.get("/v2/a/tags/list").status, 401);
}

#[test]
fn credentials_go_nowhere_unless_the_settings_say_so() {
    let (origin, body) = (Origin::start(), bytes(10_000, 2));
    let path = format!("/v2/a/blobs/sha256:{}", sha256(&body));
    origin.put(&path, Page { wants: Some("Bearer anna".into()), ..Page::new(body) });
    let cache = Cache::start("/", "oci", &[&origin]);
    assert_eq!(cache.ask("GET", &path, ANNA).status, 502);
}
