//! Remembers the contents that URLs had in earlier transfers, with the validators of that time: trust on
//! first use. A URL with the same strong validator and the same length has the same content, or its server
//! lies. A URL with a query, a name or a password may be secret, and is not written down.
//!
//! How the content was proved is written down too: a content that was fetched without any hash is no better
//! proved by having been seen before.
//!
//! The file is `urls.jsonl` in the directory that the caller names. It has one JSON object a line; other
//! lines are ignored. A process that changes the file locks the directory, so that no lines are lost while
//! another process rewrites the file.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::parse_root;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// The lines that are kept when the file is pruned. Up to twice as many are read.
const LINES_MAX: usize = 8_192;

/// How a content was proved when it was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Provenance {
    /// It was compared with a hash.
    Verified,
    /// There was no hash, and all of it came from this one URL.
    Alone,
    /// There was no hash, and it came from several URLs, each of which may have something else.
    Mixed,
}

#[derive(Deserialize, Serialize)]
struct Line {
    url: String,
    /// A strong `ETag`, with its quotes, or else a `Last-Modified`.
    validator: String,
    length: u64,
    root: String,
    came: Provenance,
    /// The date of the transfer in UTC, such as `2026-11-22`.
    day: String,
}

/// A content that a URL had in an earlier transfer.
#[derive(Clone, Debug)]
pub(super) struct HistoryEntry {
    pub(super) id: ContentId,
    pub(super) url: Url,
    pub(super) came: Provenance,
    /// The date of the transfer in UTC, such as `2026-11-22`.
    pub(super) day: String,
    /// Whether the validator is a strong `ETag`, so that the same validator means the same bytes. The same
    /// date does not always mean that.
    pub(super) strong: bool,
}

/// The history in this directory. Without a directory nothing is known, and nothing is written.
#[derive(Clone, Debug, Default)]
pub(super) struct History(pub(super) Option<PathBuf>);

impl History {
    /// Returns the contents that these URLs had with these validators and this length: the verified ones
    /// first, then the others, both in the order of the URLs. A [mixed](Provenance::Mixed) content is
    /// returned only if none of these URLs has changed since.
    pub(super) fn recall<'a>(
        &self,
        validated: impl Iterator<Item = (&'a Url, &'a str)>,
        length: u64,
    ) -> Vec<HistoryEntry> {
        let validated: Vec<_> = validated.filter(|(url, _)| is_public(url)).collect();
        let file = self.path().filter(|_| !validated.is_empty()).and_then(|path| File::open(path).ok());
        let Some(file) = file else { return Vec::new() };
        let lines = BufReader::new(file).split(b'\n').take(2 * LINES_MAX).map_while(Result::ok);
        let lines = lines.filter_map(|line| serde_json::from_slice(&line).ok());
        let lines: Vec<Line> = lines.filter(|line: &Line| line.length == length).collect();
        recall_of(&validated, &lines)
    }

    /// Records that these URLs, with these validators, have this content or delivered parts of it. Errors are
    /// ignored, because they are no reason for a transfer to fail.
    pub(super) fn remember<'a>(
        &self,
        validated: impl Iterator<Item = (&'a str, &'a str)>,
        id: ContentId,
        came: Provenance,
    ) {
        let day = today();
        let line = |(url, validator): (&str, &str)| {
            let url = Url::parse(url).ok().filter(is_public)?;
            let line = Line {
                url: url.as_str().to_owned(),
                validator: validator.to_owned(),
                length: id.length,
                root: id.to_string(),
                came,
                day: day.clone(),
            };
            Some(serde_json::to_string(&line).ok()? + "\n")
        };
        let text: String = validated.filter_map(line).collect();
        let Some(path) = self.path().filter(|_| !text.is_empty()) else { return };
        if let Some(parent) = path.parent() {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
        }
        let _lock = self.lock();
        if append(&path, &text).is_ok() {
            prune(&path);
        }
    }

    /// Forgets everything about those of these URLs that once had this content. The content proved to be
    /// wrong for one of them, so the records of the others must not be trusted instead.
    pub(super) fn forget<'a>(&self, urls: impl Iterator<Item = &'a Url>, id: &ContentId) {
        let Some(path) = self.path() else { return };
        let _lock = self.lock();
        let Ok(text) = fs::read_to_string(&path) else { return };
        let urls: Vec<&str> = urls.map(Url::as_str).collect();
        replace(&path, without(&text, &urls, id).into_iter());
    }

    /// The path of the history file; `None` without a directory, or if something other than a regular file is
    /// there, such as a pipe.
    fn path(&self) -> Option<PathBuf> {
        let path = self.0.as_ref()?.join("urls.jsonl");
        fs::metadata(&path).map_or(true, |there| there.is_file()).then_some(path)
    }

    /// Waits for the lock that keeps other processes from changing the file. Returns `None` where files
    /// cannot be locked; the file is then changed without a lock.
    fn lock(&self) -> Option<Flock<File>> {
        Flock::lock(File::open(self.0.as_ref()?).ok()?, FlockArg::LockExclusive).ok()
    }
}

/// Appends lines; first ends an incomplete line that a crash may have left.
fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let (end, mut last) = (file.metadata()?.len(), *b"\n");
    if end > 0 {
        file.read_exact_at(&mut last, end - 1)?;
    }
    let torn = if last == *b"\n" { "" } else { "\n" };
    file.write_all(format!("{torn}{text}").as_bytes())
}

fn recall_of(validated: &[(&Url, &str)], lines: &[Line]) -> Vec<HistoryEntry> {
    // The last line of a URL counts.
    let last = |url: &Url, validator: Option<&str>| {
        let is_it = |l: &&Line| l.url == url.as_str() && validator.is_none_or(|v| l.validator == v);
        lines.iter().rev().find(is_it)
    };
    let is_unchanged = |line: &Line| {
        validated.iter().all(|(url, validator)| {
            last(url, None).is_none_or(|known| known.validator == *validator && known.root == line.root)
        })
    };
    let entry = |(url, validator): &(&Url, &str)| {
        let line = last(url, Some(validator))?;
        let root = parse_root(&line.root).ok()?;
        (line.came != Provenance::Mixed || is_unchanged(line)).then(|| HistoryEntry {
            id: ContentId { root, length: line.length },
            url: (*url).clone(),
            came: line.came,
            day: line.day.clone(),
            strong: line.validator.starts_with('"'),
        })
    };
    let mut entries: Vec<HistoryEntry> = validated.iter().filter_map(entry).collect();
    entries.sort_by_key(|entry| entry.came != Provenance::Verified);
    entries
}

#[expect(clippy::disallowed_methods, reason = "people are told the date; nothing is decided by it")]
fn today() -> String {
    date(SystemTime::now())
}

/// Returns the date in UTC, such as `2026-11-22`.
fn date(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // The date format of HTTP (RFC 9110 section 5.6.7): Sun, 22 Nov 2026 10:00:00 GMT.
    let text = httpdate::fmt_http_date(time);
    let mut words = text.split(' ').skip(1);
    let mut word = || words.next().unwrap_or_default();
    let (day, month, year) = (word(), word(), word());
    let month = MONTHS.iter().position(|name| *name == month).map_or(0, |number| number + 1);
    format!("{year}-{month:02}-{day}")
}

/// Returns the lines of `text` without those of the URLs among `urls` that once had the content `id`.
fn without<'t>(text: &'t str, urls: &[&str], id: &ContentId) -> Vec<&'t str> {
    let lines = text.lines().filter_map(|text| Some((text, serde_json::from_str::<Line>(text).ok()?)));
    let lines: Vec<(&str, Line)> = lines.collect();
    let had = |(_, line): &&(&str, Line)| {
        urls.contains(&line.url.as_str()) && parse_root(&line.root).is_ok_and(|root| root == id.root)
    };
    // Older lines of the same URLs must not be believed instead.
    let doubted: BTreeSet<&str> = lines.iter().filter(had).map(|(_, line)| line.url.as_str()).collect();
    lines.iter().filter(|(_, line)| !doubted.contains(line.url.as_str())).map(|(text, _)| *text).collect()
}

/// Rewrites the file once it has twice [`LINES_MAX`] lines: drops lines that later ones have replaced, and
/// keeps the last [`LINES_MAX`] of the rest.
fn prune(path: &Path) {
    let Ok(text) = fs::read_to_string(path) else { return };
    if text.lines().count() >= 2 * LINES_MAX {
        let live = live(&text);
        replace(path, live[live.len().saturating_sub(LINES_MAX)..].iter().copied());
    }
}

/// Returns the last line for each URL, validator and length, in the order of the file.
fn live(text: &str) -> Vec<&str> {
    let mut known = BTreeSet::new();
    let mut is_last = |text: &&str| {
        let line = serde_json::from_str::<Line>(text).ok();
        line.is_some_and(|line| known.insert((line.url, line.validator, line.length)))
    };
    let mut lines: Vec<&str> = text.lines().rev().filter(|line| is_last(line)).collect();
    lines.reverse();
    lines
}

fn replace<'a>(path: &Path, lines: impl Iterator<Item = &'a str>) {
    let kept: String = lines.flat_map(|line| [line, "\n"]).collect();
    let new = path.with_extension("new");
    // A file that a crash left there may have other permissions.
    let _ = fs::remove_file(&new);
    let mut open = OpenOptions::new();
    open.write(true).create_new(true).mode(0o600);
    let _ = open
        .open(&new)
        .and_then(|mut file| file.write_all(kept.as_bytes()))
        .and_then(|()| fs::rename(&new, path));
}

fn is_public(url: &Url) -> bool {
    !url.has_credentials() && !url.has_query()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_kept_for_the_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("urls.jsonl");
        let old: String = (0..2 * LINES_MAX - 1).map(|n| a_line(&format!("http://old/{n}")) + "\n").collect();
        let new = a_line("http://new/");
        fs::write(&path, old.clone() + &new + "\n").expect("written");
        prune(&path);
        let text = fs::read_to_string(&path).expect("read");
        let last = old.lines().last().expect("many");
        assert!(text.lines().count() == LINES_MAX && text.ends_with(&format!("{last}\n{new}\n")));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }

    fn a_line(url: &str) -> String {
        let line = Line {
            url: url.into(),
            validator: "\"1\"".into(),
            length: 1,
            root: ContentId::of(b"x").to_string(),
            came: Provenance::Alone,
            day: "2026-11-22".into(),
        };
        serde_json::to_string(&line).expect("a line")
    }

    /// A URL that is fetched every day fills the file with equal lines.
    #[test]
    fn what_is_said_again_and_again_pushes_nothing_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("urls.jsonl");
        let (rare, daily) = (a_line("http://rare/"), a_line("http://daily/") + "\n");
        fs::write(&path, format!("{rare}\nno line\n{}", daily.repeat(2 * LINES_MAX))).expect("written");
        prune(&path);
        assert_eq!(fs::read_to_string(&path).expect("read"), format!("{rare}\n{daily}"));
    }

    #[test]
    fn nobody_loses_what_is_written_while_the_file_is_pruned() {
        let dir = tempfile::tempdir().expect("a directory");
        let history = History(Some(dir.path().into()));
        let path = history.path().expect("a file");
        // With this many lines, each call of `remember` prunes the file.
        let old = (a_line("http://old/") + "\n").repeat(2 * LINES_MAX);
        let (id, urls) = (ContentId::of(b"y"), (0..8).map(|n| format!("http://new/{n}")));
        fs::write(&path, old).expect("written");
        std::thread::scope(|scope| {
            for url in urls.clone() {
                let history = &history;
                scope.spawn(move || {
                    let validated = [(url.as_str(), "\"2\"")].into_iter();
                    history.remember(validated, id, Provenance::Verified);
                });
            }
        });
        for url in urls.map(|url| Url::parse(&url).expect("a URL")) {
            assert!(history.recall([(&url, "\"2\"")].into_iter(), 1).len() == 1, "{}", url.as_str());
        }
    }

    #[test]
    fn what_a_crash_left_of_a_line_costs_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let history = History(Some(dir.path().into()));
        fs::write(history.path().expect("a file"), &a_line("http://a/")[..30]).expect("written");
        let url = Url::parse("http://b/").expect("a URL");
        let id = ContentId::of(b"y");
        history.remember([(url.as_str(), "\"2\"")].into_iter(), id, Provenance::Verified);
        assert!(history.recall([(&url, "\"2\"")].into_iter(), 1).len() == 1);
    }

    #[test]
    fn without_a_directory_nothing_is_known_and_nothing_written() {
        let (history, url) = (History::default(), Url::parse("http://a/").expect("a URL"));
        history.remember([(url.as_str(), "\"1\"")].into_iter(), ContentId::of(b"x"), Provenance::Alone);
        assert!(history.path().is_none());
        assert!(history.recall([(&url, "\"1\"")].into_iter(), 1).is_empty());
    }

    #[test]
    fn days_have_dates() {
        let all = [0, 59, 11_016, 11_017, 20_513, 20_779, 47_540];
        let all = all.map(|days| date(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400)));
        let want = [
            "1970-01-01",
            "1970-03-01",
            "2000-02-29",
            "2000-03-01",
            "2026-03-01",
            "2026-11-22",
            "2100-02-28",
        ];
        assert_eq!(all, want);
    }

    #[test]
    fn a_mixture_is_known_only_while_none_of_its_urls_changes() {
        let urls = ["http://a/f", "http://b/f", "http://c/f"].map(|url| Url::parse(url).expect("a URL"));
        let line = |url: usize, validator: &str, came: Provenance| Line {
            url: urls[url].as_str().to_owned(),
            validator: validator.to_owned(),
            length: 1,
            root: ContentId::of(b"x").to_string(),
            came,
            day: "2026-11-22".into(),
        };
        let lines = [line(0, "\"1\"", Provenance::Mixed), line(1, "today", Provenance::Mixed)];
        let recalled = |validated: &[(usize, &str)], lines: &[Line]| {
            let validated: Vec<_> = validated.iter().map(|(url, v)| (&urls[*url], *v)).collect();
            let known = recall_of(&validated, lines);
            known.iter().map(|known| (known.came, known.strong)).collect::<Vec<_>>()
        };
        let [mixed, dated] = [true, false].map(|strong| (Provenance::Mixed, strong));
        assert_eq!(recalled(&[(0, "\"1\""), (1, "today")], &lines), [mixed, dated]);
        assert_eq!(recalled(&[(0, "\"1\""), (2, "\"9\"")], &lines), [mixed], "of a third nothing is known");
        assert_eq!(recalled(&[(1, "today")], &lines), [dated], "a date is weak");
        assert_eq!(recalled(&[(0, "\"1\""), (1, "tomorrow")], &lines), []);
        assert_eq!(recalled(&[(2, "\"9\"")], &lines), []);
        let alone = [line(0, "\"1\"", Provenance::Alone), line(1, "\"5\"", Provenance::Mixed)];
        assert_eq!(recalled(&[(0, "\"1\""), (1, "\"6\"")], &alone), [(Provenance::Alone, true)]);
        let both = [line(0, "\"1\"", Provenance::Alone), line(1, "\"5\"", Provenance::Verified)];
        let [first, second] = [Provenance::Verified, Provenance::Alone].map(|came| (came, true));
        assert_eq!(recalled(&[(0, "\"1\""), (1, "\"5\"")], &both), [first, second]);
    }

    #[test]
    fn what_was_wrong_of_one_is_forgotten_of_all_that_were_named() {
        let (wrong, right) = (ContentId::of(b"x"), ContentId::of(b"y"));
        let line = |url: &str, id: &ContentId| {
            let line = Line {
                url: url.to_owned(),
                validator: "\"1\"".into(),
                length: 1,
                root: id.to_string(),
                came: Provenance::Alone,
                day: "2026-11-22".into(),
            };
            serde_json::to_string(&line).expect("a line")
        };
        let all = [("a", &right), ("a", &wrong), ("b", &wrong), ("c", &right), ("d", &wrong)];
        let lines: Vec<String> = all.map(|(url, id)| line(url, id)).to_vec();
        let text = lines.join("\n");
        assert_eq!(without(&text, &["a", "b", "c"], &wrong), [&lines[3], &lines[4]]);
    }

    #[test]
    fn what_may_be_secret_is_not_written() {
        let url = |text| Url::parse(text).expect("a URL");
        assert!(is_public(&url("https://h/@scope/f")));
        assert!(!is_public(&url("https://h/f?token=1")));
        assert!(!is_public(&url("https://u:p@h/f")) && !is_public(&url("https://u@h/f")));
    }
}
