//! A job as answers show it: all values are texts, as in aria2.

use std::path::PathBuf;

use anabranch::{PathProgress, Progress};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use url::Url;

use crate::daemon::State;
use crate::destination::{Base, Destination};
use crate::job::{Job, Known, Source, Status};

/// The bytes of a piece. Pieces are only shown: bytes are verified in blocks of another size.
const PIECE_BYTES: u64 = 1 << 20;

/// The keys that a caller wants; all if none are named.
pub(super) struct Keys<'a>(Option<Vec<&'a str>>);

impl<'a> Keys<'a> {
    pub(super) fn new(keys: Option<Vec<&'a str>>) -> Self {
        Self(keys.filter(|keys| !keys.is_empty()))
    }

    fn wants(&self, key: &str) -> bool {
        self.0.as_ref().is_none_or(|keys| keys.contains(&key))
    }
}

/// The length of a job's content and what has arrived of it, in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    total_bytes: u64,
    done_bytes: u64,
}

/// Returns the sizes of a job, with the numbers of its transfer if it is active.
fn sizes(state: &State, job: &Job) -> Sizes {
    let Known { total_bytes, done_bytes, .. } = job.known;
    let known = Sizes { total_bytes, done_bytes };
    let of_transfer = live(state, job, |progress| {
        let total_bytes = progress.total_bytes?;
        // A run begins at zero, until it has looked at what earlier runs left.
        let done_bytes = if progress.done_bytes > 0 { progress.done_bytes } else { known.done_bytes };
        Some(Sizes { total_bytes, done_bytes })
    });
    of_transfer.flatten().unwrap_or(known)
}

/// Shows the progress of an active job to `look`; `None` for another job.
fn live<T>(state: &State, job: &Job, look: impl FnOnce(&Progress) -> T) -> Option<T> {
    let transfer = state.transfer(job.gid).filter(|_| job.status == Status::Active)?;
    Some(look(&transfer.progress()))
}

/// Returns the rate at which a job receives now, in bytes a second.
pub(super) fn speed(state: &State, job: &Job) -> u64 {
    let sum = |progress: &Progress| progress.paths.iter().map(|path| path.rate_bytes).sum();
    live(state, job, sum).unwrap_or_default()
}

/// Returns where a job's file goes, as far as its options say.
fn place(base: &Base, job: &Job) -> Destination {
    base.named(&job.options).unwrap_or_else(|_| Destination { dir: base.path().to_owned(), file: None })
}

/// Returns the directory of a job.
pub(super) fn directory(base: &Base, job: &Job) -> String {
    text(place(base, job).dir)
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap_or_else(|path| path.to_string_lossy().into_owned())
}

/// Shows a job.
pub(super) fn status(state: &State, base: &Base, job: &Job, keys: &Keys<'_>) -> Value {
    let mut shown = Map::new();
    let known = sizes(state, job);
    let is_open = |path: &&PathProgress| path.state == anabranch::PathState::Open;
    let connections = || {
        let count = live(state, job, |progress| progress.paths.iter().filter(is_open).count());
        count.unwrap_or_default()
    };
    let mut put = |key: &str, value: &dyn Fn() -> Option<Value>| {
        if keys.wants(key)
            && let Some(value) = value()
        {
            shown.insert(key.to_owned(), value);
        }
    };
    let number = |number: u64| Some(json!(number.to_string()));
    put("gid", &|| Some(json!(job.gid)));
    put("status", &|| Some(json!(job.status.name())));
    put("totalLength", &|| number(known.total_bytes));
    put("completedLength", &|| number(known.done_bytes));
    put("uploadLength", &|| number(0));
    put("downloadSpeed", &|| number(speed(state, job)));
    put("uploadSpeed", &|| number(0));
    put("connections", &|| number(connections() as u64));
    put("numPieces", &|| number(known.total_bytes.div_ceil(PIECE_BYTES)));
    put("pieceLength", &|| number(PIECE_BYTES));
    put("bitfield", &|| bitfield(job.status, known.total_bytes).map(Value::String));
    put("dir", &|| Some(json!(directory(base, job))));
    put("files", &|| Some(files(state, base, job)));
    let end = job.end.as_ref();
    put("errorCode", &|| end.map(|end| json!(end.code.to_string())));
    put("errorMessage", &|| end.map(|end| json!(end.message)));
    let checked = || live(state, job, |progress| progress.checked_bytes).flatten();
    put("verifiedLength", &|| checked().and_then(number));
    Value::Object(shown)
}

/// Returns which pieces are there, one bit each in hexadecimal digits. It is only known when all are.
fn bitfield(status: Status, total_bytes: u64) -> Option<String> {
    let pieces = total_bytes.div_ceil(PIECE_BYTES);
    if status != Status::Complete || pieces == 0 || pieces > 1 << 20 {
        return None;
    }
    let digit = |index: u64| match pieces.saturating_sub(4 * index) {
        0 => '0',
        1 => '8',
        2 => 'c',
        3 => 'e',
        _ => 'f',
    };
    Some((0..pieces.div_ceil(8) * 2).map(digit).collect())
}

/// Shows the files of a job: one, as the files of a Metalink are not known apart.
pub(super) fn files(state: &State, base: &Base, job: &Job) -> Value {
    let known = sizes(state, job);
    let path = if job.known.path.is_empty() { likely_path(base, job) } else { job.known.path.clone() };
    let mut file = json!({
        "index": "1",
        "path": path,
        "length": known.total_bytes.to_string(),
        "completedLength": known.done_bytes.to_string(),
        "selected": "true",
    });
    // The macro would copy a value.
    file["uris"] = uris(state, job);
    Value::Array(vec![file])
}

/// Returns the path that a job's file will have, as far as that shows; empty if it does not.
fn likely_path(base: &Base, job: &Job) -> String {
    let Ok(place) = base.named(&job.options) else { return String::new() };
    let path = place.file.or_else(|| {
        let Source::Uris(uris) = &job.source else { return None };
        let url = Url::parse(uris.first()?).ok()?;
        let name = percent_decode_str(url.path_segments()?.next_back()?).decode_utf8_lossy().into_owned();
        let is_name = !name.is_empty() && !name.contains('/');
        is_name.then(|| place.dir.join(name))
    });
    path.map(text).unwrap_or_default()
}

/// Shows the URIs of a job, and which of them are used.
pub(super) fn uris(state: &State, job: &Job) -> Value {
    let Source::Uris(uris) = &job.source else { return json!([]) };
    let hosts = live(state, job, |progress| {
        progress.paths.iter().map(|path| host_of(&path.source).to_owned()).collect::<Vec<_>>()
    });
    let is_used = |uri: &str| match &hosts {
        Some(hosts) => hosts.iter().any(|host| host_in(uri).as_ref() == Some(host)),
        None => job.status.is_result(),
    };
    let show = |uri: &String| json!({"uri": uri, "status": if is_used(uri) { "used" } else { "waiting" }});
    uris.iter().map(show).collect()
}

/// Shows the servers of an active job, each with its rate.
pub(super) fn servers(state: &State, job: &Job) -> Value {
    let uris = match &job.source {
        Source::Uris(uris) => uris.as_slice(),
        Source::Metalink(_) => &[],
    };
    let server = |path: &PathProgress| {
        let host = host_of(&path.source);
        let of_host = uris.iter().find(|uri| host_in(uri).is_some_and(|of| of == host));
        let uri = of_host.map_or(path.source.as_str(), String::as_str);
        json!({"uri": uri, "currentUri": uri, "downloadSpeed": path.rate_bytes.to_string()})
    };
    let servers = live(state, job, |progress| progress.paths.iter().map(server).collect::<Vec<_>>());
    json!([{"index": "1", "servers": servers.unwrap_or_default()}])
}

/// Returns the host and port of a source as the library names it, without the address that it adds.
fn host_of(source: &str) -> &str {
    source.split_once(" (").or_else(|| source.split_once(" [")).map_or(source, |(host, _)| host)
}

/// Returns the host of a URI. The port follows if the URI names another one than its scheme's.
fn host_in(uri: &str) -> Option<String> {
    let url = Url::parse(uri).ok()?;
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}
