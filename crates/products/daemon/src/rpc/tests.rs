use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::daemon::Settings;
use crate::destination::Base;
use crate::job::Options;

/// A daemon that starts no transfer on its own: its jobs are added as paused ones.
fn rpc() -> (Rpc, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    let base = dir.path().join("downloads");
    fs::create_dir(&state).and_then(|()| fs::create_dir(&base)).expect("made");
    let base = Base::new(&base, false).expect("a directory");
    let settings = Settings {
        base,
        state,
        via: Vec::new(),
        counts: None,
        limits: Vec::new(),
        options: Options::new(),
        is_insecure: false,
    };
    let daemon = Daemon::start(settings).expect("a daemon");
    (Rpc::new(daemon, Token::new("s").expect("a token")), dir)
}

fn send(rpc: &Rpc, request: &Value) -> (Value, u16) {
    let reply = rpc.answer(request.to_string().as_bytes());
    (serde_json::from_str(&reply.text).expect("JSON"), reply.http_status)
}

fn call(rpc: &Rpc, method: &str, params: Value) -> Result<Value, String> {
    let Value::Array(mut params) = params else { panic!("a list of parameters") };
    params.insert(0, json!("token:s"));
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let (answer, status) = send(rpc, &request);
    assert_eq!((&answer["id"], &answer["jsonrpc"]), (&json!(7), &json!("2.0")));
    match answer.get("error") {
        None => {
            assert_eq!(status, 200);
            Ok(answer["result"].clone())
        }
        Some(error) => {
            assert_eq!((&error["code"], status), (&json!(1), 400), "{answer}");
            Err(error["message"].as_str().expect("a sentence").to_owned())
        }
    }
}

fn add(rpc: &Rpc, gid: &str) -> String {
    let uris = ["http://a.example/f.iso", "https://b.example/f.iso"];
    let gid = call(rpc, "aria2.addUri", json!([uris, {"pause": "true", "gid": gid}])).expect("added");
    gid.as_str().expect("a GID").to_owned()
}

#[test]
fn what_is_no_request_is_refused_as_aria2_does() {
    let (rpc, _dir) = rpc();
    let token = "token:s";
    for (request, code, status) in [
        ("{", -32_700, 500),
        ("", -32_700, 500),
        ("{}", -32_600, 400),
        ("5", -32_600, 400),
        (r#"{"jsonrpc":"2.0","method":"aria2.getVersion","params":["token:s"]}"#, -32_600, 400),
        (r#"{"id":1,"method":5,"params":["token:s"]}"#, -32_600, 400),
        (r#"{"id":1,"method":"aria2.getVersion","params":{"a":1}}"#, -32_602, 500),
        (r#"{"id":1,"method":"aria2.getVersion"}"#, 1, 400),
        (r#"{"id":1,"method":"aria2.getVersion","params":["token:wrong"]}"#, 1, 400),
        (r#"{"id":1,"method":"no","params":["token:s"]}"#, 1, 400),
    ] {
        let reply = rpc.answer(request.as_bytes());
        let answer: Value = serde_json::from_str(&reply.text).expect("JSON");
        assert_eq!((&answer["error"]["code"], reply.http_status), (&json!(code), status), "{request}");
    }
    let methods = send(&rpc, &json!({"id": 1, "method": "system.listMethods"}));
    assert_eq!((methods.0["result"].as_array().expect("a list").len(), methods.1), (37, 200));
    let batch = json!([{"id": 1, "method": "aria2.getVersion", "params": [token]}, 5, {"id": 2}]);
    let (batch, status) = send(&rpc, &batch);
    assert_eq!((batch.as_array().expect("a list").len(), status), (2, 200));
    assert_eq!(batch[0]["result"]["version"], "1.37.0");
    let calls = json!([{"methodName": "aria2.getVersion", "params": [token]},
        {"methodName": "aria2.tellStatus", "params": [token, "abcd"]},
        {"methodName": "aria2.tellStatus", "params": ["abcd"]},
        {"methodName": "system.multicall", "params": [[]]}, {"methodName": "system.listMethods"}, 5]);
    let (answer, _) = send(&rpc, &json!({"id": 1, "method": "system.multicall", "params": [calls]}));
    let all = answer["result"].as_array().expect("a list");
    assert_eq!(all[0][0]["version"], "1.37.0");
    assert_eq!(all[1]["message"], "GID abcd is not found");
    assert_eq!(all[2]["message"], "Unauthorized");
    assert_eq!(all[3]["message"], "Recursive system.multicall forbidden.");
    assert_eq!((all[4][0].as_array().expect("a list").len(), all.len()), (37, 6));
}

#[test]
fn every_method_is_in_the_table() {
    let (rpc, _dir) = rpc();
    for method in METHODS.iter().filter(|name| name.starts_with("aria2.")) {
        if let Err(why) = call(&rpc, method, json!([])) {
            assert!(!why.starts_with("No such method"), "{method}: {why}");
        }
    }
    assert_eq!(METHODS.iter().filter(|name| name.starts_with("aria2.")).count(), 33);
}

#[test]
fn a_job_is_added_shown_and_changed() {
    let (rpc, dir) = rpc();
    let gid = add(&rpc, "aaaaaaaaaaaaaaaa");
    let status = call(&rpc, "aria2.tellStatus", json!(["aaaa"])).expect("it is there");
    let base = dir.path().join("downloads").canonicalize().expect("there");
    let uris = json!([{"uri": "http://a.example/f.iso", "status": "waiting"},
        {"uri": "https://b.example/f.iso", "status": "waiting"}]);
    let wanted = json!({"gid": gid, "status": "paused", "totalLength": "0", "completedLength": "0",
        "uploadLength": "0", "downloadSpeed": "0", "uploadSpeed": "0", "connections": "0", "numPieces": "0",
        "pieceLength": "1048576", "dir": base,
        "files": [{"index": "1", "path": base.join("f.iso"), "length": "0", "completedLength": "0",
            "selected": "true", "uris": uris}]});
    assert_eq!(status, wanted);
    let some = call(&rpc, "aria2.tellStatus", json!(["aaaa", ["gid", "status", 5, "no"]])).expect("there");
    assert_eq!(some, json!({"gid": gid, "status": "paused"}));
    let change = json!([gid, 1, ["http://a.example/f.iso", "http://no.example/"], ["http://c.example/f"], 0]);
    assert_eq!(call(&rpc, "aria2.changeUri", change), Ok(json!([1, 1])));
    let uris = call(&rpc, "aria2.getUris", json!([gid])).expect("it waits");
    assert_eq!(
        (&uris[0]["uri"], &uris[1]["uri"]),
        (&json!("http://c.example/f"), &json!("https://b.example/f.iso"))
    );
    let options = json!([gid, {"max-download-limit": "100K", "out": "new.iso", "no-such": "x"}]);
    assert_eq!(call(&rpc, "aria2.changeOption", options), Ok(json!("OK")));
    let options = call(&rpc, "aria2.getOption", json!([gid])).expect("it waits");
    assert_eq!((&options["max-download-limit"], &options["out"]), (&json!("102400"), &json!("new.iso")));
    assert_eq!((&options["split"], &options["dir"]), (&json!("5"), &json!(base)));
    assert_eq!(call(&rpc, "aria2.remove", json!([gid])), Ok(json!(gid)));
    let removed = call(&rpc, "aria2.tellStatus", json!([gid, ["status", "errorCode"]])).expect("a result");
    assert_eq!(removed, json!({"status": "removed", "errorCode": "31"}));
    assert_eq!(call(&rpc, "aria2.removeDownloadResult", json!([gid])), Ok(json!("OK")));
    assert_eq!(call(&rpc, "aria2.tellStatus", json!([gid])), Err(format!("GID {gid} is not found")));
}

#[test]
fn what_is_refused_has_a_sentence() {
    let (rpc, _dir) = rpc();
    let gid = add(&rpc, "aaaaaaaaaaaaaaaa");
    add(&rpc, "aaaaaaaaaaaaaaab");
    let url = "http://a.example/f";
    let magnet = "magnet:?xt=urn:btih:248d0a1cd08284299de78d5c1ed359bb46717d8c";
    for (method, params, why) in [
        ("aria2.addUri", json!([[magnet]]), "BitTorrent is not spoken here"),
        ("aria2.addTorrent", json!(["ZDg6YW5ub3VuY2U="]), "BitTorrent is not spoken here"),
        ("aria2.addTorrent", json!([]), "The parameter at 0 is required but missing."),
        ("aria2.addUri", json!([[url, "ftp://a.example/f"]]), "is ftp"),
        ("aria2.addUri", json!([["/etc/passwd"]]), "Unrecognized URI"),
        ("aria2.addUri", json!([["file:///etc/passwd"]]), "Unrecognized URI"),
        ("aria2.addUri", json!([["http:/etc/passwd"]]), "Unrecognized URI"),
        ("aria2.addUri", json!([["http://"]]), "http://"),
        ("aria2.addUri", json!([[]]), "URI is not provided."),
        ("aria2.addUri", json!([url]), "The parameter at 0 has wrong type."),
        ("aria2.addUri", json!([[url], 5]), "The parameter at 1 has wrong type."),
        ("aria2.addUri", json!([[url], {}, -1]), "Position must be greater than or equal to 0."),
        ("aria2.addUri", json!([[url], {"gid": gid}]), "is already used"),
        ("aria2.addUri", json!([[url], {"gid": "zz"}]), "Invalid GID zz"),
        ("aria2.addUri", json!([[url], {"dir": "/etc"}]), "--allow-any-dir"),
        ("aria2.addUri", json!([[url], {"out": "../x"}]), "'..'"),
        ("aria2.addUri", json!([[url], {"on-download-complete": "/bin/sh"}]), ""),
        ("aria2.changeGlobalOption", json!([{"on-download-complete": "/bin/sh"}]), "run programs"),
        ("aria2.changeGlobalOption", json!([{"dir": "/"}]), "leads out"),
        ("aria2.changeGlobalOption", json!([{"max-concurrent-downloads": "0"}]), "max-concurrent-downloads"),
        ("aria2.addMetalink", json!(["QQ=="]), "Could not parse Metalink XML document."),
        ("aria2.tellStatus", json!(["zz"]), "Invalid GID zz"),
        ("aria2.tellStatus", json!(["aaaa"]), "GID aaaa is not unique"),
        ("aria2.tellStatus", json!(["bbbb"]), "GID bbbb is not found"),
        ("aria2.pause", json!([gid]), "cannot be paused now"),
        ("aria2.removeDownloadResult", json!([gid]), "Could not remove download result"),
        ("aria2.getServers", json!([gid]), "No active download for GID#"),
        ("aria2.changePosition", json!([gid, 0, "POS_NO"]), "Illegal argument."),
        ("aria2.changeUri", json!([gid, 0, [], []]), "greater than or equal to 1."),
        ("aria2.changeUri", json!([gid, 2, [], []]), "fileIndex is out of range"),
        ("aria2.changeUri", json!([gid, 1, [], ["ftp://x/"]]), "is ftp"),
        ("aria2.tellStopped", json!([0, -1]), "must be greater than or equal to 0."),
        ("aria2.tellWaiting", json!([0]), "The parameter at 1 is required but missing."),
    ] {
        match call(&rpc, method, params.clone()) {
            Err(said) => assert!(said.contains(why), "{method} {params}: {said}"),
            // An option of the daemon in a job is ignored, as aria2 does.
            Ok(_) => assert!(why.is_empty(), "{method} {params}"),
        }
    }
}

#[test]
fn lists_have_pages_from_both_ends() {
    let (rpc, _dir) = rpc();
    let all: Vec<String> = (1..=4).map(|number| add(&rpc, &format!("{number}000000000000000"))).collect();
    let page = |method: &str, offset: i64, number: i64| {
        let page = call(&rpc, method, json!([offset, number, ["gid"]])).expect("a page");
        let gids = page
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| 1 + all.iter().position(|gid| job["gid"] == *gid).expect("one of ours"));
        gids.collect::<Vec<_>>()
    };
    assert_eq!(page("aria2.tellWaiting", 0, 2), [1, 2]);
    assert_eq!(page("aria2.tellWaiting", 3, 9), [4]);
    assert_eq!(page("aria2.tellWaiting", -1, 2), [4, 3]);
    assert_eq!(page("aria2.tellWaiting", -3, 9), [2, 1]);
    assert_eq!(page("aria2.tellWaiting", -5, 9), [0_usize; 0]);
    assert_eq!(call(&rpc, "aria2.changePosition", json!([all[3], 0, "POS_SET"])), Ok(json!(0)));
    assert_eq!(page("aria2.tellWaiting", 0, 9), [4, 1, 2, 3]);
    for gid in &all[..2] {
        call(&rpc, "aria2.forceRemove", json!([gid])).expect("it is paused");
    }
    assert_eq!((page("aria2.tellStopped", 0, 9), page("aria2.tellStopped", -1, 1)), (vec![1, 2], vec![2]));
    let stat = call(&rpc, "aria2.getGlobalStat", json!([])).expect("numbers");
    assert_eq!((&stat["numWaiting"], &stat["numStopped"]), (&json!("2"), &json!("2")));
    assert_eq!(call(&rpc, "aria2.purgeDownloadResult", json!([])), Ok(json!("OK")));
    assert_eq!(page("aria2.tellStopped", 0, 9), [0_usize; 0]);
}

#[test]
fn global_options_are_the_defaults_of_new_jobs() {
    let (rpc, dir) = rpc();
    let global =
        json!([{"user-agent": "me/1", "max-overall-download-limit": "1M", "out": "x", "dir": "sub"}]);
    assert_eq!(call(&rpc, "aria2.changeGlobalOption", global), Ok(json!("OK")));
    let gid = add(&rpc, "aaaaaaaaaaaaaaaa");
    let options = call(&rpc, "aria2.getOption", json!([gid])).expect("it waits");
    let sub = dir.path().canonicalize().expect("there").join("downloads/sub");
    assert_eq!((&options["user-agent"], &options["dir"]), (&json!("me/1"), &json!(sub)));
    assert_eq!((options.get("out"), options.get("max-overall-download-limit")), (None, None));
    let global = call(&rpc, "aria2.getGlobalOption", json!([])).expect("options");
    assert_eq!(global["max-overall-download-limit"], "1048576");
    assert_eq!((global.get("out"), &global["dir"]), (None, &json!(sub)));
}

/// Returns any JSON.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("token:s")),
        Just(json!("aaaaaaaaaaaaaaaa")),
        Just(json!("http://a.example/f")),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let key = prop_oneof!["[a-z-]{0,12}", Just("id".to_owned()), Just("dir".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn any_text_gets_an_answer() {
    let (rpc, _dir) = rpc();
    add(&rpc, "aaaaaaaaaaaaaaaa");
    // Jobs that these calls add must not run.
    call(&rpc, "aria2.changeGlobalOption", json!([{"max-concurrent-downloads": "1"}])).expect("set");
    let methods: Vec<&str> = METHODS.to_vec();
    let strategy = (any_json(), prop::collection::vec(any_json(), 0..5), prop::sample::select(methods));
    proptest!(ProptestConfig::with_cases(400), |((json, mut params, method) in strategy)| {
        let is_answer = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        prop_assert!(is_answer(&rpc.answer(json.to_string().as_bytes()).text));
        let broken = format!("{json}x");
        prop_assert!(is_answer(&rpc.answer(broken.as_bytes()).text));
        params.insert(0, json!("token:s"));
        let request = json!({"id": 1, "method": method, "params": params});
        let reply = rpc.answer(request.to_string().as_bytes());
        prop_assert!(is_answer(&reply.text), "{}", reply.text);
        prop_assert!(is_answer(&unwritten(&reply.text, "full")));
    });
    rpc.daemon().end(std::time::Duration::from_secs(5));
}
