//! The queue on disk: a database of redb with each job by its identifier.
//!
//! One thread commits. A commit takes all changes that wait (group commit) and is on the disk when it
//! returns, so many requests at once cost one fsync. A request is answered when [`Journal::wait`] says that
//! its change is written. Jobs that have only become active or waiting by themselves are written, too: after
//! a kill, those that ran are known.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_net::private_file::{self, Access};
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError};
use tokio::sync::watch;

use crate::gid::Gid;
use crate::job::Job;

/// The kind of the file, with the version of its content.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("anabranch daemon");
/// Each job by its identifier, as JSON.
const JOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("jobs");
/// The version of the content.
const FORMAT: u64 = 1;
/// The bytes of the file that are kept in memory. The queue itself is in memory anyway.
const CACHE_BYTES: usize = 1 << 20;

/// Why a queue cannot be opened, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(String);

/// The changes of jobs: their JSON, or `None` for those that are gone.
type Changes = BTreeMap<Gid, Option<Vec<u8>>>;

/// A number that grows with each change, so that a change can be waited for until it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// How far the thread is.
#[derive(Clone, Debug, Default)]
struct Progress {
    written: u64,
    /// Why the last commit failed. Its changes are part of the next one.
    failed: Option<String>,
}

#[derive(Default)]
struct Pending {
    changes: Changes,
    newest: u64,
    written: u64,
    is_over: bool,
}

/// The open file; see the [module](self).
pub struct Journal {
    pending: Arc<(Mutex<Pending>, Condvar)>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the queue in a file, or makes the file, and returns the jobs that it has.
    ///
    /// # Errors
    /// If the file is none of ours, is in use or damaged, or cannot be read or written; if other users can
    /// write it.
    pub fn open(path: &Path) -> Result<(Self, Vec<Job>), OpenError> {
        let database = open(path)?;
        let jobs = load(&database).map_err(|e| failure(path, &e))?;
        let pending = Arc::<(Mutex<Pending>, Condvar)>::default();
        let (told, progress) = watch::channel(Progress::default());
        let (own, path) = (Arc::clone(&pending), path.to_owned());
        let work = move || write_all(&database, &path, &own, &told);
        let thread = thread::Builder::new().name("queue".into()).spawn(work);
        let thread = Some(thread.map_err(|e| OpenError(format!("cannot start a thread: {e}")))?);
        Ok((Self { pending, progress, thread }, jobs))
    }

    /// Takes changes that are to be written: each job that has changed, or `None` if it is gone.
    pub fn submit<'a>(&self, changes: impl IntoIterator<Item = (Gid, Option<&'a Job>)>) -> Ticket {
        let mut pending = lock(&self.pending.0);
        let before = pending.newest;
        for (gid, job) in changes {
            // Serializing a job cannot fail: it has no map with keys that are no text.
            let record = job.map(|job| serde_json::to_vec(job).unwrap_or_default());
            pending.changes.insert(gid, record);
            pending.newest += 1;
        }
        let ticket = Ticket(pending.newest);
        if pending.newest != before {
            self.pending.1.notify_all();
        }
        ticket
    }

    /// Waits until all changes so far are on the disk, at most `patience`.
    pub fn flush(&self, patience: Duration) {
        let pending = lock(&self.pending.0);
        let newest = pending.newest;
        drop(self.pending.1.wait_timeout_while(pending, patience, |pending| pending.written < newest));
    }

    /// Waits until the changes of a ticket are on the disk.
    ///
    /// # Errors
    /// If they cannot be written now; they are tried again with the next change.
    pub async fn wait(&self, ticket: Ticket) -> Result<(), String> {
        let mut progress = self.progress.clone();
        let is_done = |progress: &Progress| progress.written >= ticket.0 || progress.failed.is_some();
        let Ok(now) = progress.wait_for(is_done).await else {
            return Err("the queue's file is closed".to_owned());
        };
        match &now.failed {
            Some(why) if now.written < ticket.0 => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

/// Writes what waits, and closes the file.
impl Drop for Journal {
    fn drop(&mut self) {
        lock(&self.pending.0).is_over = true;
        self.pending.1.notify_all();
        // A thread that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Commits changes until the journal is dropped.
fn write_all(
    database: &Database,
    path: &Path,
    pending: &(Mutex<Pending>, Condvar),
    told: &watch::Sender<Progress>,
) {
    let mut waiting = lock(&pending.0);
    let mut unwritten = Changes::new();
    loop {
        if waiting.changes.is_empty() {
            if waiting.is_over {
                return;
            }
            waiting = pending.1.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        unwritten.append(&mut waiting.changes);
        let newest = waiting.newest;
        drop(waiting);
        match commit(database, &unwritten) {
            Ok(()) => {
                unwritten.clear();
                lock(&pending.0).written = newest;
                pending.1.notify_all();
                told.send_replace(Progress { written: newest, failed: None });
            }
            Err(error) => {
                let failed = Some(failure(path, &error).0);
                told.send_modify(|progress| progress.failed = failed);
            }
        }
        waiting = lock(&pending.0);
    }
}

fn commit(database: &Database, changes: &Changes) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut jobs = write.open_table(JOBS)?;
        for (gid, record) in changes {
            let gid = gid.to_string();
            match record {
                Some(record) => drop(jobs.insert(gid.as_str(), record.as_slice())?),
                None => drop(jobs.remove(gid.as_str())?),
            }
        }
    }
    Ok(write.commit()?)
}

/// Opens the database and checks that it is ours.
fn open(path: &Path) -> Result<Database, OpenError> {
    let shown = path.display();
    let io_failed = |e: io::Error| OpenError(format!("cannot use the queue {shown}: {e}"));
    let failed = |e: redb::Error| failure(path, &e);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(io_failed)?;
    // Who can write the file could have anything fetched; who can read it reads passwords in URLs.
    private_file::check(&file, path, Access::Secret).map_err(io_failed)?;
    let file = FileBackend::new(file).map_err(|e| failed(e.into()))?;
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.create_with_backend(file).map_err(|e| failed(e.into()))?;
    let read = database.begin_read().map_err(|e| failed(e.into()))?;
    let format = match read.open_table(ABOUT) {
        Ok(about) => about.get("format").map_err(|e| failed(e.into()))?.map(|format| format.value()),
        Err(TableError::TableDoesNotExist(_)) => {
            let is_new = read.list_tables().map_err(|e| failed(e.into()))?.next().is_none();
            drop(read);
            if !is_new {
                return Err(OpenError(format!("{shown} is no queue of anabranch daemon: name another file")));
            }
            return found(&database).map_err(failed).map(|()| database);
        }
        Err(error) => return Err(failed(error.into())),
    };
    drop(read);
    match format {
        Some(FORMAT) => Ok(database),
        _ => Err(OpenError(format!("{shown} was written by a newer anabranch: use that one"))),
    }
}

/// Writes the kind of the file into a new file.
fn found(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(ABOUT)?.insert("format", FORMAT)?;
    write.open_table(JOBS)?;
    Ok(write.commit()?)
}

fn load(database: &Database) -> Result<Vec<Job>, redb::Error> {
    let read = database.begin_read()?;
    let mut jobs = Vec::new();
    for record in read.open_table(JOBS)?.iter()? {
        let (_, record) = record?;
        let job = serde_json::from_slice(record.value());
        jobs.push(job.map_err(|e| redb::Error::Corrupted(format!("a job cannot be read: {e}")))?);
    }
    Ok(jobs)
}

fn failure(path: &Path, error: &redb::Error) -> OpenError {
    let shown: PathBuf = path.to_owned();
    let shown = shown.display();
    OpenError(match error {
        redb::Error::DatabaseAlreadyOpen => format!("another daemon uses the queue {shown}"),
        redb::Error::Corrupted(why) => format!("the queue {shown} is damaged: {why}: move it away"),
        error => format!("cannot use the queue {shown}: {error}"),
    })
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::job::{End, Known, Options, Source, Status};

    fn job(number: u64) -> Job {
        Job {
            gid: Gid::new(number).expect("not zero"),
            source: Source::Uris(vec!["http://a.example/\u{9b}".into(), "https://b.example/f".into()]),
            options: Options::from([("out".to_owned(), "f".to_owned())]),
            status: Status::Error,
            place: -7,
            known: Known { total_bytes: u64::MAX, done_bytes: 1, path: "/d/f".into() },
            end: Some(End { code: End::NETWORK, message: "no server".into() }),
        }
    }

    fn wait(journal: &Journal, ticket: Ticket) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(journal.wait(ticket))
    }

    #[test]
    fn what_is_written_is_there_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("queue.redb");
        let (journal, jobs) = Journal::open(&path).expect("a new file");
        assert_eq!(jobs, []);
        let busy = Journal::open(&path).err().expect("one user at a time").to_string();
        assert!(busy.contains("another daemon uses"), "{busy}");
        let all = [job(1), job(2), job(3)];
        let ticket = journal.submit(all.iter().map(|job| (job.gid, Some(job))));
        wait(&journal, ticket).expect("written");
        let ticket = journal.submit([(all[1].gid, None)]);
        wait(&journal, ticket).expect("written");
        journal.flush(Duration::from_secs(5));
        drop(journal);
        let (_, jobs) = Journal::open(&path).expect("ours");
        assert_eq!(jobs, [job(1), job(3)]);
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("queue.redb");
        fs::write(&path, vec![b'x'; 10_000]).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        assert!(Journal::open(&path).is_err());
        let path = dir.path().join("open.redb");
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        let refused = Journal::open(&path).err().expect("others can read it").to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        assert!(Journal::open(&dir.path().join("none/queue.redb")).is_err());
    }
}
