//! The results: one line of JSON a test, appended and synced, so that a night that was cut goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::network::Interface;
use crate::plan::Plan;
use crate::schedule::Test;
use crate::setting::{Interfaces, Transport};

/// The name of the file with the results.
pub const RESULTS: &str = "results.jsonl";
/// The name of the file with the plan that the results belong to.
pub const PLAN: &str = "plan.json";

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The program ended well.
    Ok,
    /// The program failed, or something that it needs died.
    Failed,
    /// The program took too long and was killed.
    Timeout,
    /// Something that the test needs is not installed.
    Skipped,
}

/// Bytes and packets on the emulated links of an interface, with headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Bytes from the phone.
    pub up_bytes: u64,
    /// Bytes towards the phone.
    pub down_bytes: u64,
}

impl Wire {
    /// Returns the bytes of both directions.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.up_bytes + self.down_bytes
    }
}

/// Connections by the interfaces that carried their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Connections whose data went over WiFi alone, and their data in bytes.
    pub wifi: (u64, u64),
    /// Connections whose data went over the mobile interface alone, and their data in bytes.
    pub cell: (u64, u64),
    /// Connections whose data went over both, and their data in bytes.
    pub both: (u64, u64),
    /// Connections without data.
    pub empty: u64,
}

impl Connections {
    /// Returns all connections that carried data.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.wifi.0 + self.cell.0 + self.both.0
    }

    /// Returns the data of all connections, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.wifi.1 + self.cell.1 + self.both.1
    }
}

/// What the captures of a test tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captured {
    /// The connections.
    pub connections: Connections,
    /// The data that each interface was the first to carry, bytes.
    pub data_bytes: BTreeMap<Interface, u64>,
    /// The median round-trip time of each subflow with data, by interface and direction of the data, ms.
    pub rtt_ms: BTreeMap<Interface, RoundTrips>,
    /// The data that the phone sent, the part of it that it reinjected, and the part that TCP retransmitted.
    pub up: Sent,
    /// The same for the server.
    pub down: Sent,
    /// Handovers from one subflow to another.
    pub handovers: u64,
    /// Subflows besides the first that carried no data.
    pub unused_subflows: u64,
}

/// Median round-trip times of subflows, ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrips {
    /// From the phone's data to its acknowledgement, as the phone saw it.
    pub up: Vec<f64>,
    /// From the server's data to its acknowledgement, as the server saw it.
    pub down: Vec<f64>,
}

/// The data of a direction, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// Each byte counted once.
    pub unique_bytes: u64,
    /// Sent again on another subflow.
    pub reinjected_bytes: u64,
    /// Sent again on the same subflow.
    pub retransmitted_bytes: u64,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The name of the test.
    pub test: String,
    /// The profile.
    pub profile: String,
    /// The transport.
    pub transport: Transport,
    /// The interfaces that were on.
    pub interfaces: Interfaces,
    /// The interface with the default route.
    pub default: Interface,
    /// The network.
    pub network: String,
    /// How it ended.
    pub ending: Ending,
    /// Why it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The time from the program's start to its end.
    pub seconds: f64,
    /// The numbers that the program reported, by name.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// The line that the program reported, if it is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The bytes on the links of each interface.
    #[serde(default)]
    pub wire: BTreeMap<Interface, Wire>,
    /// What the captures tell; `null` if there are none.
    #[serde(default)]
    pub captured: Option<Captured>,
    /// What was wrong without ending the test, for example packets that the emulator was late with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl TestResult {
    /// Makes the result of a test that ended so, without numbers.
    #[must_use]
    pub fn new(test: &Test, ending: Ending, why: Option<String>) -> Self {
        Self {
            test: test.to_string(),
            profile: test.profile.clone(),
            transport: test.transport,
            interfaces: test.interfaces,
            default: test.default,
            network: test.network.clone(),
            ending,
            why,
            seconds: 0.0,
            values: BTreeMap::new(),
            line: None,
            wire: BTreeMap::new(),
            captured: None,
            notes: Vec::new(),
        }
    }
}

/// The file of results in a directory, and what it has so far.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    file: File,
    /// The results in the order in which the tests ran.
    pub results: Vec<TestResult>,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing the file is not enough: a child of this process has it too until its exec(3).
        let _ = self.file.unlock();
    }
}

impl Journal {
    /// Opens the directory of a plan's results, or makes it. A last line that was cut is dropped.
    ///
    /// # Errors
    /// If the directory has the results of another plan, another process writes them, or the directory cannot
    /// be used; the error is a sentence.
    pub fn open(dir: &Path, plan: &Plan) -> io::Result<Self> {
        let said =
            |what: &str, e: &io::Error| io::Error::new(e.kind(), format!("{}: {what}: {e}", dir.display()));
        fs::create_dir_all(dir).map_err(|e| said("cannot be made", &e))?;
        let text = serde_json::to_string_pretty(plan).map_err(io::Error::other)? + "\n";
        let (known, path) = (dir.join(PLAN), dir.join(RESULTS));
        match fs::read_to_string(&known) {
            Ok(before) if before == text => {}
            Ok(_) => {
                return Err(io::Error::other(format!(
                    "{} has the results of another plan ({PLAN} is what it was): go on with that plan, or \
                     name another directory with --out",
                    dir.display()
                )));
            }
            Err(_) if path.exists() => {
                return Err(io::Error::other(format!(
                    "{} has {RESULTS} without {PLAN}: name another directory with --out",
                    dir.display()
                )));
            }
            Err(_) if fs::read_dir(dir).map_err(|e| said("it cannot be read", &e))?.next().is_some() => {
                return Err(io::Error::other(format!(
                    "{} has files, and no {PLAN}: name a new directory with --out",
                    dir.display()
                )));
            }
            Err(_) => write_synced(&known, &text).map_err(|e| said("the plan cannot be written", &e))?,
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|e| said("the results cannot be written", &e))?;
        if file.try_lock().is_err() {
            return Err(io::Error::other(format!("{}: another process writes its results", dir.display())));
        }
        let before = fs::read(&path).map_err(|e| said("the results cannot be read", &e))?;
        // A process that was killed may have cut its last line, also within a character.
        let whole = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut results = Vec::new();
        for (number, line) in before[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            let result = serde_json::from_slice(line).map_err(|e| {
                let place = format!("{}:{}", path.display(), number + 1);
                io::Error::other(format!("{place}: this is no result ({e}): remove the line"))
            })?;
            note(&mut results, result);
        }
        if whole < before.len() {
            file.set_len(whole as u64)?;
        }
        Ok(Self { dir: dir.to_owned(), file, results })
    }

    /// Returns the directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends a result, which is on the disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, result: TestResult) -> io::Result<()> {
        let line = serde_json::to_string(&result).map_err(io::Error::other)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        note(&mut self.results, result);
        Ok(())
    }

    /// Returns the tests that have no result, in their order. A test that was skipped has none: its program
    /// may have been installed since.
    #[must_use]
    pub fn missing(&self, tests: &[Test]) -> Vec<Test> {
        let ran = self.results.iter().filter(|result| result.ending != Ending::Skipped);
        let known: BTreeSet<&str> = ran.map(|result| result.test.as_str()).collect();
        tests.iter().filter(|test| !known.contains(test.to_string().as_str())).cloned().collect()
    }
}

/// Adds a result, instead of an earlier one of the same test.
fn note(results: &mut Vec<TestResult>, result: TestResult) {
    results.retain(|earlier| earlier.test != result.test);
    results.push(result);
}

/// Writes a file that is whole or not there.
fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    fn plan() -> Plan {
        Plan::parse(Plan::built_in("quick").expect("a plan"), Path::new("")).expect("a plan")
    }

    #[test]
    fn a_night_that_was_cut_goes_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let (plan, path) = (plan(), dir.path().join("night"));
        let tests = Schedule::of(&plan).tests;
        let mut journal = Journal::open(&path, &plan).expect("a journal");
        assert_eq!(journal.missing(&tests), tests);
        for test in &tests[..2] {
            journal.add(TestResult::new(test, Ending::Ok, None)).expect("written");
        }
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(path.join(RESULTS)).expect("a file");
        file.write_all("{\"test\":\"web/mpé".as_bytes().split_last().expect("bytes").1).expect("written");
        drop(file);
        let mut journal = Journal::open(&path, &plan).expect("a journal");
        assert_eq!(journal.results.len(), 2);
        assert_eq!(journal.missing(&tests), tests[2..]);
        journal.add(TestResult::new(&tests[2], Ending::Failed, Some("no".into()))).expect("written");
        let error = Journal::open(&path, &plan).expect_err("it is in use").to_string();
        assert!(error.contains("another process"), "{error}");
        drop(journal);
        let journal = Journal::open(&path, &plan).expect("a journal");
        assert_eq!(journal.results[2].why.as_deref(), Some("no"));
        assert_eq!(journal.missing(&tests), tests[3..]);
    }

    #[test]
    fn a_skipped_test_runs_once_its_program_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let (plan, path) = (plan(), dir.path().join("night"));
        let tests = Schedule::of(&plan).tests;
        let mut journal = Journal::open(&path, &plan).expect("a journal");
        journal.add(TestResult::new(&tests[0], Ending::Skipped, Some("no git".into()))).expect("written");
        assert_eq!(journal.missing(&tests), tests);
        journal.add(TestResult::new(&tests[0], Ending::Ok, None)).expect("written");
        drop(journal);
        let journal = Journal::open(&path, &plan).expect("a journal");
        assert_eq!((journal.results.len(), journal.results[0].ending), (1, Ending::Ok));
        assert_eq!(journal.missing(&tests), tests[1..]);
    }

    #[test]
    fn a_directory_with_other_files_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("index.html"), "mine").expect("written");
        let error = Journal::open(dir.path(), &plan()).expect_err("it has files").to_string();
        assert!(error.contains("no plan.json") && error.contains("--out"), "{error}");
    }

    #[test]
    fn another_plan_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut plan = plan();
        drop(Journal::open(dir.path(), &plan).expect("a journal"));
        plan.seed += 1;
        let error = Journal::open(dir.path(), &plan).expect_err("another plan").to_string();
        assert!(error.contains("results of another plan") && error.contains("--out"), "{error}");
        fs::remove_file(dir.path().join(PLAN)).expect("removed");
        let error = Journal::open(dir.path(), &plan).expect_err("no plan").to_string();
        assert!(error.contains("without plan.json"), "{error}");
    }

    #[test]
    fn a_line_that_is_no_result_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(Journal::open(dir.path(), &plan()).expect("a journal"));
        fs::write(dir.path().join(RESULTS), "nonsense\n").expect("written");
        let error = Journal::open(dir.path(), &plan()).expect_err("nonsense").to_string();
        assert!(error.contains("results.jsonl:1"), "{error}");
    }
}
