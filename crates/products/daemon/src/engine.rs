//! Runs jobs: turns one into an [`anabranch::Get`], and its events into numbers.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch::{
    Client, Control, Download, Error, ErrorKind, Event, Get, Hint, Progress, Rate, Report, SharedLimit, Stop,
};

use crate::destination::Base;
use crate::job::{End, Job, Known, Options, Source};
use crate::options::{is_true, size, value};
use crate::queue::Outcome;

/// How often a transfer reports its progress. aria2 measures its speeds over ten seconds.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// The least limit, in bytes a second: less would never let a packet pass.
const LIMIT_MIN: u64 = 1_500;

/// What all transfers share.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The directory of downloads.
    pub base: Base,
    /// The directory of the daemon's own files.
    pub state: PathBuf,
    /// The links that are used if a job names none; all if it is empty.
    pub via: Vec<String>,
    /// The directory for the counts of links with a cap.
    pub counts: Option<PathBuf>,
    /// The limit of all transfers together.
    pub overall: SharedLimit,
    /// Whether any certificate is believed, as the user of this machine may want.
    pub is_insecure: bool,
    /// The threads of HTTP.
    pub client: Client,
}

/// A transfer that runs.
#[derive(Debug)]
pub struct Transfer {
    stop: Stop,
    limit: SharedLimit,
    progress: Mutex<Progress>,
}

impl Transfer {
    /// Stops it soon; what has arrived is kept.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Sets its own limit from its options.
    pub fn set_limit(&self, options: &Options) {
        self.limit.set(limit(options));
    }

    /// Returns its progress.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the limit that a job's options set.
fn limit(options: &Options) -> Option<Rate> {
    rate(value(options, "max-download-limit"))
}

/// Reads a limit as options have it, in which 0 is none.
#[must_use]
pub fn rate(value: Option<&str>) -> Option<Rate> {
    let bytes = value.and_then(size).filter(|bytes| *bytes > 0)?;
    Some(Rate::from_bytes(bytes.max(LIMIT_MIN)))
}

impl Engine {
    /// Starts the transfer of a job on a thread of its own. `ended` is called there at its end.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left; `ended` is not called then.
    pub fn start(
        &self,
        job: Job,
        ended: impl FnOnce(Outcome, Known) + Send + 'static,
    ) -> Result<Arc<Transfer>, End> {
        let stop = Stop::new().map_err(|e| end(&e))?;
        let limit = SharedLimit::new(limit(&job.options));
        let transfer = Arc::new(Transfer { stop, limit, progress: Mutex::default() });
        let (own, engine) = (Arc::clone(&transfer), self.clone());
        let work = move || {
            let (outcome, known) = engine.run(&job, &own);
            ended(outcome, known);
        };
        let started = thread::Builder::new().name("download".into()).spawn(work);
        let failed = |e| End { code: End::UNKNOWN, message: format!("cannot start a thread: {e}") };
        started.map_err(failed)?;
        Ok(transfer)
    }

    /// Runs the transfer of a job to its end.
    fn run(&self, job: &Job, transfer: &Transfer) -> (Outcome, Known) {
        let mut report = Report::default();
        let result = self.download(job, transfer).and_then(|download| {
            let listener = |event| {
                match event {
                    Event::Progress(progress) => *transfer.progress() = *progress,
                    Event::Finished(last) => report = *last,
                    _ => {}
                }
                Control::Continue
            };
            download.run(listener).map(drop).map_err(|e| (e.kind() == ErrorKind::Interrupted, end(&e)))
        });
        let last = &report.last;
        let mut known = job.known.clone();
        known.total_bytes = last.total_bytes.unwrap_or(known.total_bytes);
        // A run that learned nothing, as the server did not answer, leaves what is there.
        if last.total_bytes.is_some() {
            known.done_bytes = last.done_bytes;
        }
        if !report.target.is_empty() {
            known.path = self.shown(&report.target);
        }
        let outcome = match result {
            Ok(()) => Outcome::Complete,
            Err((true, _)) => Outcome::Stopped,
            Err((false, end)) => Outcome::Failed(end),
        };
        (outcome, known)
    }

    /// Returns the path of a file without a link, if it is there.
    fn shown(&self, target: &str) -> String {
        let path = self.base.path().join(target);
        path.to_string_lossy().into_owned()
    }

    /// Makes the request that a job's options describe. Failures have whether the transfer was stopped.
    fn download(&self, job: &Job, transfer: &Transfer) -> Result<Download, (bool, End)> {
        let wrong = |message: String| (false, End { code: End::OPTION, message });
        let place = self.base.destination(&job.options).map_err(wrong)?;
        let directory = place.file.as_deref().and_then(Path::parent).unwrap_or(&place.dir);
        let made = fs::DirBuilder::new().recursive(true).mode(0o777).create(directory);
        made.map_err(|e| {
            let message = format!("cannot make the directory {}: {e}", directory.display());
            (false, End { code: End::FILE, message })
        })?;
        // A link that was put there meanwhile is noticed here.
        self.base.destination(&job.options).map_err(wrong)?;
        let get = self.named(&job.source).map_err(|e| (false, end(&e)))?;
        let get = with_options(get, job).map_err(wrong)?;
        let get = match value(&job.options, "interface") {
            Some(link) => get.via(link),
            None => self.via.iter().fold(get, Get::via),
        };
        let get = self.counts.iter().fold(get, Get::state_dir);
        let get = get
            .client(&self.client)
            .insecure(self.is_insecure)
            .history(&self.state)
            .limited_by(&self.overall)
            .limited_by(&transfer.limit)
            .progress_every(PROGRESS_EVERY);
        let download = match place.file {
            Some(file) => get.to_file(file),
            None => get.to_directory(place.dir),
        };
        Ok(download
            .overwrite(is_true(&job.options, "allow-overwrite"))
            .adopt(is_true(&job.options, "continue"))
            .stopped_by(&transfer.stop))
    }

    /// Checks that a source can be fetched, as far as that shows without a server.
    ///
    /// # Errors
    /// If it cannot; a sentence.
    pub fn check(&self, source: &Source) -> Result<(), String> {
        self.named(source).map(drop).map_err(|e| end(&e).message)
    }

    fn named(&self, source: &Source) -> anabranch::Result<Get> {
        match source {
            Source::Uris(uris) => Get::new(uris),
            Source::Metalink(text) => {
                let file = ScratchFile::new(&self.state, text.as_bytes());
                let file =
                    file.map_err(|e| Error::system(format!("cannot write the Metalink: {e}")).because(e))?;
                let path = file.0.to_string_lossy();
                // The requester does not know the file.
                Get::new([&path]).map_err(|e| {
                    let message = e.message().replace(&*path, "the Metalink");
                    e.with_message(message)
                })
            }
        }
    }
}

/// A file that is removed when this is dropped.
struct ScratchFile(PathBuf);

impl ScratchFile {
    fn new(directory: &Path, bytes: &[u8]) -> io::Result<Self> {
        let mut random = [0; 8];
        #[expect(
            clippy::disallowed_methods,
            reason = "the name must be free in a directory that others share"
        )]
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let path = directory.join(format!("{:016x}.meta4", u64::from_ne_bytes(random)));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let made = Self(path);
        io::Write::write_all(&mut file, bytes)?;
        Ok(made)
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // It is in the daemon's own directory, and harms nothing if it stays.
        let _ = fs::remove_file(&self.0);
    }
}

/// Sets what the options of a job say of HTTP.
fn with_options(mut get: Get, job: &Job) -> Result<Get, String> {
    let options = &job.options;
    let given = |name| value(options, name);
    if let Some(hash) = given("checksum") {
        get = get.checksum(hash.parse().map_err(|e: Error| e.to_string())?);
    }
    for line in given("header").into_iter().flat_map(str::lines) {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("no header field: {line}"))?;
        get = get.header(name.trim(), value.trim());
    }
    if let Some(agent) = options.get("user-agent") {
        get = get.header("User-Agent", agent);
    }
    match (given("referer"), &job.source) {
        (Some("*"), Source::Uris(uris)) => get = get.header("Referer", uris.first().map_or("", |uri| uri)),
        (Some(referer), _) => get = get.header("Referer", referer),
        (None, _) => {}
    }
    if is_true(options, "http-no-cache") {
        get = get.header("Cache-Control", "no-cache").header("Pragma", "no-cache");
    }
    if let Some(user) = given("http-user") {
        get = get.user(user, given("http-passwd").unwrap_or_default());
    }
    if let Some(seconds) = given("timeout").and_then(|text| text.parse().ok()) {
        get = get.timeout(Duration::from_secs(seconds));
    }
    Ok(match proxy(job)? {
        Some(proxy) => get.proxy(proxy),
        None => get,
    })
}

/// Returns the proxy of a job. There is one for all of its URIs.
fn proxy(job: &Job) -> Result<Option<String>, String> {
    let uris = match &job.source {
        Source::Uris(uris) => uris.as_slice(),
        Source::Metalink(_) => &[],
    };
    let of = |uri: &String| {
        let own = if uri.to_ascii_lowercase().starts_with("https:") { "https-proxy" } else { "http-proxy" };
        value(&job.options, own).or_else(|| value(&job.options, "all-proxy"))
    };
    let mut all: Vec<Option<&str>> = uris.iter().map(of).collect();
    if all.is_empty() {
        all.push(value(&job.options, "all-proxy"));
    }
    if all.iter().any(|other| *other != all[0]) {
        return Err("the URIs of one file must have one proxy: set 'all-proxy'".to_owned());
    }
    Ok(all[0].map(|proxy| match proxy.contains("://") {
        true => proxy.to_owned(),
        false => format!("http://{proxy}"),
    }))
}

/// Returns the end of a job for an error of the library.
fn end(error: &Error) -> End {
    let is_full =
        |e: &io::Error| matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let system = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let code = match error.kind() {
        ErrorKind::Usage => End::OPTION,
        ErrorKind::NotFound => End::NOT_FOUND,
        ErrorKind::Unreachable => End::NETWORK,
        ErrorKind::Corrupt => End::CHECKSUM,
        ErrorKind::Target if system.is_some_and(is_full) => End::DISK_FULL,
        ErrorKind::Target if error.hints().any(|hint| hint == Hint::Overwrite) => End::FILE_EXISTS,
        ErrorKind::Target => End::FILE,
        ErrorKind::Refused => End::REFUSED,
        _ => End::UNKNOWN,
    };
    let message = Hint::replace(error.message(), |hint| match hint {
        Hint::Checksum => "the option 'checksum'",
        Hint::Header => "the option 'header'",
        Hint::Limit => "the option 'max-download-limit'",
        Hint::Overwrite => "the option 'allow-overwrite'",
        Hint::Proxy => "the option 'all-proxy'",
        Hint::ToDirectory => "the option 'dir'",
        Hint::ToFile => "the option 'out'",
        Hint::User => "the options 'http-user' and 'http-passwd'",
        Hint::Via => "the option 'interface'",
        other => other.name(),
    });
    End { code, message: message.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gid::Gid;
    use crate::job::Status;

    fn job(uris: &[&str], options: &[(&str, &str)]) -> Job {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Job {
            gid: Gid::new(1).expect("not zero"),
            source: Source::Uris(uris.iter().map(|uri| (*uri).to_owned()).collect()),
            options: options.collect(),
            status: Status::Waiting,
            place: 0,
            known: Known::default(),
            end: None,
        }
    }

    #[test]
    fn one_proxy_for_all_uris() {
        let both = ["http://a.example/f", "HTTPS://b.example/f"];
        let of = |uris: &[&str], options: &[(&str, &str)]| proxy(&job(uris, options));
        assert_eq!(of(&both, &[]), Ok(None));
        assert_eq!(of(&both, &[("all-proxy", "p:8080")]), Ok(Some("http://p:8080".into())));
        assert_eq!(of(&both[1..], &[("https-proxy", "socks5://p")]), Ok(Some("socks5://p".into())));
        assert_eq!(of(&both[..1], &[("https-proxy", "socks5://p")]), Ok(None));
        assert!(of(&both, &[("https-proxy", "p")]).is_err());
    }

    #[test]
    fn errors_have_the_codes_of_aria2_and_name_its_options() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        for (error, code) in [
            (Error::not_found("x"), End::NOT_FOUND),
            (Error::target("f is there: let `overwrite` replace it"), End::FILE_EXISTS),
            (Error::target("no room").because(full), End::DISK_FULL),
            (Error::target("read-only"), End::FILE),
            (Error::refused("401: give them with `user`"), End::REFUSED),
            (Error::corrupt("x"), End::CHECKSUM),
        ] {
            let end = end(&error);
            assert!(end.code == code && !end.message.contains('`'), "{end:?}");
        }
        assert_eq!(rate(Some("0")), None);
        assert_eq!(rate(Some("1")).map(Rate::as_bytes), Some(LIMIT_MIN));
    }
}
