//! Keeps results in a file: one JSON object a line, appended whole as soon as a run ends. The next start
//! reads the file and skips the runs that it holds. An incomplete last line (the process was killed, the
//! disk full) is cut off. Several processes may append to one file: each locks it (flock(2)) to read, cut or
//! append, so that no process takes a line that is being written for an incomplete one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::{Plan, Task, VERSION, fingerprint};
use crate::World;
use crate::digest::Digest;
use crate::outcome::{Outcome, Series};

/// Longest line that is read as a result, bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// The bytes with which every line begins.
const BEGIN: &[u8] = b"{\"scenario\":";

/// The identity of a result: equal keys have equal results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The scenario's name.
    pub scenario: String,
    /// [`fingerprint`] of the scenario that was run.
    pub text: String,
    /// The controller under comparison.
    pub controller: String,
    /// The seed.
    pub seed: u64,
    /// World in which it ran.
    pub world: World,
    /// [`VERSION`] of the code.
    pub code: String,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Identity of the result.
    #[serde(flatten)]
    pub key: Key,
    /// Name of the case, for the reader.
    pub case: Option<String>,
    /// Values that were set, for the reader.
    pub set: BTreeMap<String, String>,
    /// Names of the values in `outcome`, in their order.
    pub metrics: Vec<String>,
    /// Results of the run.
    pub outcome: Outcome,
}

/// Returns the keys of a plan's tasks, in the order of `tasks`.
#[must_use]
pub fn keys(plan: &Plan, tasks: &[Task]) -> Vec<Key> {
    let code = code(plan.scenario.controllers.known.has_own());
    let texts: Vec<String> = plan.variants.iter().map(|variant| fingerprint(&variant.scenario)).collect();
    let key = |task: &Task| Key {
        scenario: plan.name.clone(),
        text: texts[task.variant].clone(),
        controller: task.controller.clone(),
        seed: task.seed,
        world: task.world,
        code: code.clone(),
    };
    tasks.iter().map(key).collect()
}

/// Returns the version of the code that makes the results. With controllers of the program, it includes a
/// hash of the program's file, because their sources are not known here.
fn code(has_own: bool) -> String {
    if !has_own {
        return VERSION.into();
    }
    let program = std::env::current_exe().and_then(std::fs::read);
    match program {
        Ok(bytes) => format!("{VERSION}-{:016x}", Digest::of(&bytes).0),
        // Without the file's hash any program may have made the results: they belong to this process alone.
        Err(_) => format!("{VERSION}-of-process-{}", std::process::id()),
    }
}

impl Record {
    /// Creates the line of a run that has ended.
    #[must_use]
    pub fn new(plan: &Plan, task: &Task, key: &Key, outcome: Outcome) -> Self {
        let variant = &plan.variants[task.variant];
        Self {
            key: key.clone(),
            case: variant.case.clone(),
            set: plan.set_in(variant).collect(),
            metrics: task.scenario.measure.iter().map(|measure| measure.metric.clone()).collect(),
            outcome,
        }
    }
}

/// A file of results, open for appending.
#[derive(Debug)]
pub struct Store {
    file: File,
}

/// The results that a file already held.
#[derive(Debug, Default)]
pub struct LoadedResults {
    /// Results whose keys were requested.
    pub results: BTreeMap<Key, Outcome>,
    /// Number of lines that are not results: written by another program, or incomplete.
    pub strange: usize,
}

impl Store {
    /// Opens or creates a file, and reads the results whose keys are in `wanted`.
    ///
    /// # Errors
    /// If the file cannot be read or written, or holds something other than results.
    pub fn open(path: &Path, wanted: &BTreeSet<Key>) -> io::Result<(Self, LoadedResults)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let lock = Locked::new(file.try_clone()?)?;
        let (mut found, mut end, mut at) = (LoadedResults::default(), 0_u64, 0_u64);
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            let head = &line[..line.len().min(BEGIN.len())];
            // A wrong file name must not destroy a user's file.
            if at == 0 && !BEGIN.starts_with(head) {
                let what = "it exists and holds no results of this command: name another file";
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
            at += read;
            if line.last() != Some(&b'\n') {
                if read < LINE_BYTES_MAX {
                    break;
                }
                found.strange += 1;
                continue;
            }
            end = at;
            match serde_json::from_slice::<Record>(&line) {
                // Runs that were late are run again.
                Ok(Record { key, outcome, .. }) if wanted.contains(&key) && !outcome.is_late() => {
                    found.results.insert(key, outcome);
                }
                Ok(_) => {}
                Err(_) => found.strange += 1,
            }
        }
        if end < at {
            file.set_len(end)?;
        }
        drop(lock);
        Ok((Self { file }, found))
    }

    /// Appends one whole line while the file is locked against other processes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        if line.len() as u64 >= LINE_BYTES_MAX && !record.outcome.series.is_empty() {
            // Drop the lines over time, which only serve drawing, so that the result stays readable.
            let outcome = Outcome { series: Series::default(), ..record.outcome.clone() };
            line = serde_json::to_vec(&Record { outcome, ..record.clone() })?;
        }
        line.push(b'\n');
        let _lock = Locked::new(self.file.try_clone()?)?;
        if !self.ends_with_a_line()? {
            // Another process was killed while it wrote a line: end that line.
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(&line)
    }

    fn ends_with_a_line(&mut self) -> io::Result<bool> {
        let mut last = [b'\n'];
        if self.file.seek(SeekFrom::End(0))? > 0 {
            self.file.seek(SeekFrom::End(-1))?;
            self.file.read_exact(&mut last)?;
        }
        Ok(last == [b'\n'])
    }
}

/// A file that is locked against other processes that lock it.
struct Locked(File);

impl Locked {
    /// Waits for the lock. On file systems without locks the file is used unlocked.
    fn new(file: File) -> io::Result<Self> {
        match file.lock() {
            Err(e)
                if e.kind() != ErrorKind::Unsupported && e.raw_os_error() != Some(Errno::ENOLCK as i32) =>
            {
                Err(e)
            }
            _ => Ok(Self(file)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Unlock explicitly: copies of the descriptor would keep the file open, and so the lock.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use std::fs;
    use std::path::PathBuf;

    fn plan() -> Plan {
        let text = "title = \"t\"\nduration = \"1 s\"\nseeds = 4\n\
                    [[measure]]\nmetric = \"m\"\nkind = \"goodput\"\n\
                    [link.c]\nrate = \"1 Mbit/s\"\n[flow.a]\npaths = [{ via = [\"c\"] }]\n";
        Plan::new("t", Scenario::parse(text, "t").expect("a scenario"), &[]).expect("a plan")
    }

    fn file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn outcome(value: f64) -> Outcome {
        Outcome { values: vec![Some(value), None], digest: u64::MAX, ..Outcome::default() }
    }

    #[test]
    fn what_was_written_is_read_and_a_torn_line_is_cut_off() {
        let (plan, path) = (plan(), file("store"));
        let tasks = plan.tasks();
        let keys = keys(&plan, &tasks);
        let wanted: BTreeSet<Key> = keys.iter().cloned().collect();
        let awkward = 0.1 + 0.2 / 3.0;
        let (mut store, found) = Store::open(&path, &wanted).expect("a file");
        assert!(found.results.is_empty());
        for i in 0..2 {
            let record = Record::new(&plan, &tasks[i], &keys[i], outcome(awkward + i as f64));
            store.append(&record).expect("written");
        }
        let whole = fs::read(&path).expect("bytes");
        let torn = &whole[..whole.len() / 2 - 7];
        fs::write(&path, [&whole, torn].concat()).expect("torn");
        let (mut store, found) = Store::open(&path, &wanted).expect("a file");
        assert_eq!(fs::read(&path).expect("bytes"), whole, "cut off");
        assert_eq!((found.results.len(), found.strange), (2, 0));
        assert_eq!(found.results[&keys[1]], outcome(awkward + 1.0), "to the last bit");
        store.append(&Record::new(&plan, &tasks[2], &keys[2], outcome(2.0))).expect("written");
        let (_, found) = Store::open(&path, &wanted).expect("a file");
        assert_eq!(found.results.len(), 3);
        // Results of another version, which were not requested, are not read.
        let other = Key { code: "0".into(), ..keys[0].clone() };
        let (_, found) = Store::open(&path, &BTreeSet::from([other])).expect("a file");
        assert_eq!((found.results.len(), found.strange), (0, 0));
        fs::remove_file(&path).expect("removed");
    }

    /// A process that opens the file waits while another one writes, and so never cuts off an incomplete
    /// line.
    #[test]
    fn a_line_that_is_being_written_is_not_taken_for_a_torn_one() {
        let (plan, path) = (plan(), file("two"));
        let tasks = plan.tasks();
        let keys = keys(&plan, &tasks);
        let wanted: BTreeSet<Key> = keys.iter().cloned().collect();
        let record = |i: usize| Record::new(&plan, &tasks[i], &keys[i], outcome(i as f64));
        let line = [serde_json::to_vec(&record(0)).expect("JSON"), b"\n".to_vec()].concat();
        let (first, second) = line.split_at(line.len() / 2);
        let mut writer = OpenOptions::new().append(true).create(true).open(&path).expect("a file");
        let lock = Locked::new(writer.try_clone().expect("a descriptor")).expect("locked");
        writer.write_all(first).expect("written");
        let opened = std::thread::scope(|scope| {
            let opening = scope.spawn(|| Store::open(&path, &wanted).expect("a file"));
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!opening.is_finished(), "it waits");
            writer.write_all(second).expect("written");
            drop(lock);
            opening.join().expect("opened")
        });
        assert_eq!((opened.1.results.len(), opened.1.strange), (1, 0));
        // A line that another, killed process left incomplete does not spoil the next line.
        let mut store = opened.0;
        writer.write_all(&first[..20]).expect("written");
        store.append(&record(1)).expect("written");
        let (_, found) = Store::open(&path, &wanted).expect("a file");
        assert_eq!((found.results.len(), found.strange), (2, 1));
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn what_is_to_be_drawn_is_kept_with_its_gaps() {
        use crate::outcome::{Line, SeriesKind};
        let (plan, path) = (plan(), file("series"));
        let tasks = plan.tasks();
        let keys = keys(&plan, &tasks);
        let line = Line { kind: SeriesKind::Cwnd, name: "a/0".into(), values: vec![0.1, f32::NAN, 3.0] };
        let series = Series { step_s: 0.05, lines: vec![line] };
        let (mut store, _) = Store::open(&path, &BTreeSet::new()).expect("a file");
        let drawn = Outcome { series, ..outcome(1.0) };
        store.append(&Record::new(&plan, &tasks[0], &keys[0], drawn)).expect("written");
        let (_, found) = Store::open(&path, &BTreeSet::from([keys[0].clone()])).expect("a file");
        let values = &found.results[&keys[0]].series.lines[0].values;
        assert!(values[0] == 0.1 && values[1].is_nan() && values[2] == 3.0, "{values:?}");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn only_a_torn_line() {
        let path = file("torn");
        for torn in ["", "{\"sc", "{\"scenario\":\"t\",\"case\":nu"] {
            fs::write(&path, torn).expect("written");
            Store::open(&path, &BTreeSet::new()).expect("a file");
            assert_eq!(fs::read(&path).expect("bytes"), b"");
        }
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let path = file("notes");
        for text in ["my notes", "my notes\n", "{\"event\":1}\n"] {
            fs::write(&path, text).expect("written");
            let error = Store::open(&path, &BTreeSet::new()).expect_err("not ours");
            assert!(error.to_string().contains("no results"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        fs::remove_file(&path).expect("removed");
    }
}
