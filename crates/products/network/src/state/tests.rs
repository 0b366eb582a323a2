use std::fs;
use std::sync::Arc;

use anabranch::ErrorKind;
use anabranch_algo::Span;
use anabranch_mmtp::ContentId;
use anabranch_overlay::domain_file;
use anabranch_overlay::publication::ScopeKey;
use redb::TableHandle as _;

use super::*;

const NOW: Time = Time::from_nanos(1_800_000_000_000_000_000);

fn domain(name: &str, key: &ScopeKey, hosts: [&str; 3]) -> Arc<Domain> {
    let lines = hosts.map(|host| format!("[[line]]\nbetween = [\"r\", \"{host}\"]\n")).concat();
    let text = format!(
        "name = \"{name}\"\nforwarders = [\"r\"]\n[rendezvous]\nnode = \"rv\"\n[topology]\nnode = \"rv\"\n\
         port = 7702\n[scopes]\nfilms = \"{}\"\n{lines}",
        key.public()
    );
    Arc::new(domain_file::read(&text).expect("a domain"))
}

fn key(byte: u8) -> ScopeKey {
    ScopeKey::new([byte; 32]).expect("a key")
}

fn record(domain: &Domain, host: &str, name: &str, lease_s: u32, guards_s: u64) -> Record {
    let publication = Publication {
        name: name.parse().expect("a name"),
        content: ContentId { root: [3; 32], length: 20_000 },
        collection: false,
        node: domain.graph.by_name(host).expect("a host"),
        port: 26_227,
        version_ms: 5,
        issued_ms: NOW.as_nanos() / 1_000_000,
        lease_s,
    };
    let signed = key(7).sign(&domain.name, publication);
    Record { signed, guards_until: NOW + Span::from_secs(guards_s) }
}

struct Bed {
    dir: tempfile::TempDir,
    domain: Arc<Domain>,
}

impl Bed {
    fn new() -> Self {
        // The directory is in memory if possible, because each test writes its file several times.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        Self { dir, domain: domain("small", &key(7), ["a", "b", "rv"]) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn open_at(&self, domain: &Arc<Domain>, now: Time) -> Result<(State, String, Rendezvous)> {
        let mut machine = Rendezvous::new(Arc::clone(domain));
        let (state, told) = State::open(&self.path(), domain, now, &mut machine)?;
        Ok((state, told, machine))
    }

    fn open(&self) -> Result<(State, String, Rendezvous)> {
        self.open_at(&self.domain, NOW)
    }

    /// Makes a file with three publications, of which the last is withdrawn.
    fn filled(&self) {
        let (mut state, ..) = self.open().expect("a new one");
        for (host, name, lease_s) in [("a", "films/x", 60), ("b", "films/x", 90), ("b", "films/y", 0)] {
            state.push(Change::Kept(record(&self.domain, host, name, lease_s, 90)));
        }
        state.write().expect("written");
    }

    fn refused(&self) -> Error {
        self.open().map(drop).expect_err("it is no state that can be used")
    }
}

#[test]
fn a_new_start_takes_back_what_is_good_still() {
    let bed = Bed::new();
    assert!(bed.open().expect("a new one").1.contains("which has none yet"));
    bed.filled();
    let (state, told, machine) = bed.open().expect("a state");
    assert_eq!((state.stats().taken_back, state.stats().remembered, machine.len()), (2, 1, 3));
    assert!(
        told.starts_with("took back 2 publications from ") && told.contains("remembers 1 that"),
        "{told}"
    );
    drop(state);
    let (state, ..) = bed.open_at(&bed.domain, NOW + Span::from_secs(70)).expect("a state");
    assert_eq!((state.stats().taken_back, state.stats().remembered), (1, 2));
    drop(state);
    let (state, told, machine) = bed.open_at(&bed.domain, NOW + Span::from_secs(90)).expect("a state");
    assert_eq!((state.stats().expired, machine.len()), (3, 0), "{told}");
    drop(state);
    let (state, ..) = bed.open().expect("a state");
    assert_eq!(state.stats(), &StateStats::default(), "what was too old is out of the file");
}

#[test]
fn what_is_forgotten_waits_for_what_must_be_written() {
    let bed = Bed::new();
    bed.filled();
    let (mut state, ..) = bed.open().expect("a state");
    let gone = Key::of(&record(&bed.domain, "a", "films/x", 60, 90).signed.publication);
    state.push(Change::Forgotten(gone));
    state.write().expect("nothing to do");
    assert_eq!(state.stats().commits, 0);
    state.push(Change::Kept(record(&bed.domain, "a", "films/z", 60, 60)));
    state.write().expect("written");
    state.write().expect("nothing to do");
    assert_eq!(state.stats().commits, 1);
    drop(state);
    assert_eq!(bed.open().expect("a state").0.stats().taken_back, 2, "x of b, and z");
}

#[test]
fn what_the_domain_has_changed_is_dropped() {
    for changed in [domain("small", &key(8), ["a", "b", "rv"]), domain("small", &key(7), ["b", "a", "rv"])] {
        let bed = Bed::new();
        bed.filled();
        let (state, told, machine) = bed.open_at(&changed, NOW).expect("a state");
        assert_eq!((state.stats().foreign, machine.len()), (3, 0));
        assert!(told.ends_with("3 are of scopes or nodes that the domain has changed"), "{told}");
    }
    let bed = Bed::new();
    bed.filled();
    let more = domain("small", &key(7), ["a", "b", "rv"]);
    assert_eq!(bed.open_at(&more, NOW).expect("a state").0.stats().foreign, 0);
}

#[test]
fn one_process_at_a_time() {
    let bed = Bed::new();
    let first = bed.open().expect("a new one");
    let error = bed.refused();
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Target);
    assert!(why.contains("is in use by another rendezvous: end that one"), "{why}");
    drop(first);
    bed.open().expect("it is free again");
}

#[test]
fn what_is_another_thing_is_left_alone() {
    let bed = Bed::new();
    for text in ["a letter to somebody", &"a long one ".repeat(100_000)] {
        fs::write(bed.path(), text).expect("written");
        let error = bed.refused();
        let (kind, why) = (error.kind(), error.message());
        assert_eq!(kind, ErrorKind::Usage);
        assert!(why.contains("is no state of a rendezvous: name another file"), "{why}");
        assert!(fs::read_to_string(bed.path()).expect("a file") == text);
    }
    fs::remove_file(bed.path()).expect("removed");
    const OTHER: TableDefinition<'_, u64, u64> = TableDefinition::new("prices");
    for name in [OTHER.name(), ABOUT.name()] {
        let database = Database::create(bed.path()).expect("a database");
        let write = database.begin_write().expect("begun");
        write.open_table(TableDefinition::<u64, u64>::new(name)).expect("a table").insert(1, 2).expect("put");
        write.commit().expect("committed");
        drop(database);
        let error = bed.refused();
        let (kind, why) = (error.kind(), error.message());
        assert_eq!(kind, ErrorKind::Usage);
        assert!(why.contains("is no state of a rendezvous"), "{why}");
        fs::remove_file(bed.path()).expect("removed");
    }
    fs::create_dir(bed.path()).expect("a directory");
    let error = bed.refused();
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Target);
    assert!(why.contains("it is a directory"), "{why}");
    fs::remove_dir(bed.path()).expect("removed");
    let mut machine = Rendezvous::new(Arc::clone(&bed.domain));
    let nowhere = bed.path().join("state");
    let Err(error) = State::open(&nowhere, &bed.domain, NOW, &mut machine).map(drop) else {
        panic!("another error")
    };
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Target);
    assert!(why.contains("there is no such directory"), "{why}");
}

#[test]
fn a_state_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    bed.filled();
    let mode = fs::metadata(bed.path()).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "it was made for its user");
    fs::set_permissions(bed.path(), fs::Permissions::from_mode(0o666)).expect("set");
    let error = bed.refused();
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Target);
    assert!(why.contains("(mode 666): chmod 600 "), "{why}");
}

#[test]
fn the_state_of_another_domain_or_of_a_newer_version() {
    let bed = Bed::new();
    bed.filled();
    let other = bed.open_at(&domain("large", &key(7), ["a", "b", "rv"]), NOW);
    let Err(error) = other.map(drop) else { panic!("another error") };
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Usage);
    assert!(why.contains("is the state of the domain small, not of large: name another file"), "{why}");
    let database = Database::create(bed.path()).expect("a database");
    let write = database.begin_write().expect("begun");
    write.open_table(ABOUT).expect("a table").insert("format", &[FORMAT + 1][..]).expect("put");
    write.commit().expect("committed");
    drop(database);
    let error = bed.refused();
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Usage);
    assert!(why.contains("was written by a newer anabranch: use that one"), "{why}");
}

#[test]
fn a_damaged_file_is_told_and_never_a_panic() {
    let bed = Bed::new();
    bed.filled();
    let good = fs::read(bed.path()).expect("a file");
    let mut told = 0;
    let mut check = |bad: &[u8]| {
        fs::write(bed.path(), bad).expect("written");
        match bed.open() {
            // The damage may be in an unused part, or be repaired from the other half of the header.
            Ok((state, ..)) => assert_eq!(state.stats().foreign, 0),
            Err(error) if error.message().contains("is damaged (") => {
                assert_eq!(error.kind(), ErrorKind::Target);
                told += 1;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Usage | ErrorKind::Target) => {}
            Err(other) => panic!("{other:?}"),
        }
    };
    for at in (0..good.len()).step_by(97).chain(0..320) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        check(&bad);
    }
    for cut in (1..good.len()).step_by(4_096) {
        check(&good[..cut]);
    }
    assert!(told > 20, "{told}");
    for cut in [200, 5_000] {
        fs::write(bed.path(), &good[..cut]).expect("written");
        let why = bed.open().map(drop).expect_err("it was cut short").to_string();
        assert!(why.contains("remove it"), "{cut}: {why}");
    }
}
