use std::ffi::OsStr;

use anabranch_mirror::digests::{Digests, Hasher};
use anabranch_mmtp::id::BLOCK_BYTES;

use super::part::is_zero;
use super::*;
use crate::error::ErrorKind;
use crate::{ErrorPlace, Hint};

use std::fs;
use std::path::Path;

use proptest::prelude::*;

/// Returns a content in which blocks 2 and 5 are zeros and the last block is short.
fn content() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..7 * BLOCK_BYTES + 100).map(|i| (i * i / 7 + i) as u8 | 1).collect();
    for block in [2, 5] {
        bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].fill(0);
    }
    bytes
}

fn open_at(path: &Path, id: ContentId, force: bool) -> Result<(Target, Bitmap)> {
    Target::open(DestPath::of(path)?, id, &Aliases::default(), FinalCheck::ROOT, force, &mut |_| true)
}

fn recorded(aliases: &[[u8; 32]]) -> Aliases {
    Aliases { recorded: aliases.to_vec(), ..Aliases::default() }
}

fn put(target: &mut Target, bytes: &[u8], block: u64) -> Result<()> {
    let id = ContentId::of(bytes);
    let from = block as usize * BLOCK_BYTES;
    let bytes = &bytes[from..from + id.block_len(block)];
    target.write(block, bytes, cv_of(&id, block, bytes), 0)
}

fn missing(id: &ContentId, there: &Bitmap) -> Vec<u64> {
    (0..id.blocks()).filter(|block| !there.contains(*block)).collect()
}

fn complete(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    let id = ContentId::of(bytes);
    let (mut target, there) = open_at(path, id, false)?;
    for block in missing(&id, &there).into_iter().rev() {
        put(&mut target, bytes, block)?;
    }
    assert_eq!(target.bytes_done(), id.length);
    let path = target.path();
    target.finish(&mut |_| true).map(|_| path)
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).expect("a directory").count()
}

#[test]
fn files_of_all_sizes_arrive() {
    let dir = tempfile::tempdir().expect("a directory");
    for len in [0, 1, 16_383, 16_384, 16_385, 7 * 16_384 + 100] {
        let path = dir.path().join(len.to_string());
        complete(&path, &content()[..len]).expect("a file");
        assert_eq!(fs::read(&path).expect("a file"), &content()[..len]);
    }
    assert_eq!(entries(dir.path()), 6);
}

#[test]
fn files_with_odd_names_arrive() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    for name in [&b"two words"[..], b"new\nline", b"\xff\xfe", &[b'n'; 255], b"-rf", b".part"] {
        let path = dir.path().join(OsStr::from_bytes(name));
        complete(&path, b"content").expect("a file");
        assert_eq!(fs::read(&path).expect("a file"), b"content");
    }
    assert_eq!(entries(dir.path()), 6);
}

#[test]
fn what_was_flushed_is_there_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let (bytes, id) = (content(), ContentId::of(&content()));
    let (mut target, _) = open_at(&path, id, false).expect("a target");
    for block in [6, 0, 7, 2] {
        put(&mut target, &bytes, block).expect("written");
    }
    target.flush().expect("written");
    put(&mut target, &bytes, 3).expect("held back");
    // This is like kill -9: no destructor does more than close the files.
    drop(target);
    assert!(!path.exists());
    let (target, there) = open_at(&path, id, false).expect("a target");
    assert_eq!(missing(&id, &there), [1, 3, 4, 5]);
    assert_eq!(target.bytes_done(), 3 * BLOCK_BYTES as u64 + 100);
    drop(target);
    complete(&path, &bytes).expect("a file");
    assert_eq!(fs::read(&path).expect("a file"), bytes);
}

#[test]
fn a_whole_part_needs_nothing_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let (bytes, id) = (content(), ContentId::of(&content()));
    let (mut target, _) = open_at(&path, id, false).expect("a target");
    (0..id.blocks()).for_each(|g| put(&mut target, &bytes, g).expect("written"));
    target.flush().expect("written");
    drop(target);
    let (target, there) = open_at(&path, id, false).expect("a target");
    assert!(missing(&id, &there).is_empty());
    target.finish(&mut |_| true).expect("a file");
    assert_eq!((fs::read(&path).expect("a file"), entries(dir.path())), (bytes, 1));
}

#[test]
fn two_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let id = ContentId::of(&content());
    let first = open_at(&path, id, false).expect("a target");
    for force in [false, true] {
        let failure = open_at(&path, id, force).expect_err("locked");
        assert_eq!(failure.kind(), ErrorKind::Target);
        assert!(failure.to_string().contains("another get"), "{failure}");
    }
    drop(first);
    open_at(&path, id, false).expect("a target");
}

#[test]
fn existing_files_are_safe() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, b"precious").expect("a file");
    assert_eq!(complete(&path, &content()).expect_err("exists").kind(), ErrorKind::Target);
    assert_eq!((fs::read(&path).expect("a file"), entries(dir.path())), (b"precious".to_vec(), 1));
    // A file of the same length is not replaced either.
    assert_eq!(complete(&path, b"Precious").expect_err("exists").kind(), ErrorKind::Target);
    // A file with the same content is no error.
    complete(&path, b"precious").expect("there already");
    // A file that appears while the transfer runs is not replaced either.
    let other = dir.path().join("g");
    let (mut target, _) = open_at(&other, ContentId::of(b"new"), false).expect("a target");
    put(&mut target, b"new", 0).expect("written");
    fs::write(&other, b"meanwhile").expect("a file");
    assert_eq!(target.finish(&mut |_| true).expect_err("exists").kind(), ErrorKind::Target);
    assert_eq!(fs::read(&other).expect("a file"), b"meanwhile");
    // With `force`, the file is replaced.
    let (target, there) = open_at(&other, ContentId::of(b"new"), true).expect("a target");
    assert!(missing(&ContentId::of(b"new"), &there).is_empty());
    target.finish(&mut |_| true).expect("a file");
    assert_eq!(fs::read(&other).expect("a file"), b"new");
}

#[test]
fn a_part_of_something_else_is_safe() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let part = dir.path().join("f.part");
    fs::write(&part, b"a file of the user's").expect("a file");
    assert_eq!(complete(&path, &content()).expect_err("in the way").kind(), ErrorKind::Target);
    assert_eq!(
        (fs::read(&part).expect("a file"), entries(dir.path())),
        (b"a file of the user's".to_vec(), 1)
    );
    fs::remove_file(&part).expect("removed");
    let (mut target, _) = open_at(&path, ContentId::of(b"one"), false).expect("a target");
    put(&mut target, b"one", 0).expect("written");
    target.flush().expect("written");
    drop(target);
    let failure = complete(&path, b"two").expect_err("other content");
    assert!(failure.kind() == ErrorKind::Target && failure.to_string().contains("`overwrite`"));
    let (_, there) = open_at(&path, ContentId::of(b"two"), true).expect("a target");
    assert_eq!(missing(&ContentId::of(b"two"), &there), [0]);
    complete(&path, b"two").expect("a file");
}

#[test]
fn things_in_the_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = ContentId::of(b"x");
    fs::create_dir(dir.path().join("d")).expect("a directory");
    fs::create_dir(dir.path().join("p.part")).expect("a directory");
    fs::write(dir.path().join("victim"), b"untouched").expect("a file");
    std::os::unix::fs::symlink("victim", dir.path().join("l")).expect("a link");
    std::os::unix::fs::symlink("victim", dir.path().join("m.part")).expect("a link");
    std::os::unix::fs::symlink("victim", dir.path().join("n.part.journal")).expect("a link");
    for name in ["d", "p", "l", "m", "n", "none/x", "victim/x"] {
        assert_eq!(open_at(&dir.path().join(name), id, false).expect_err(name).kind(), ErrorKind::Target);
    }
    for name in ["d", "p", "m", "n"] {
        assert_eq!(open_at(&dir.path().join(name), id, true).expect_err(name).kind(), ErrorKind::Target);
    }
    assert_eq!(open_at(Path::new("/dev/null"), id, true).expect_err("a device").kind(), ErrorKind::Target);
    assert_eq!(fs::read(dir.path().join("victim")).expect("a file"), b"untouched");
}

#[test]
fn wrong_hashes_never_get_the_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes = content();
    let id = ContentId::of(&bytes);
    let (mut target, _) = open_at(&path, id, false).expect("a target");
    (0..id.blocks() - 1).for_each(|g| put(&mut target, &bytes, g).expect("written"));
    target.write(7, [1; 100], [7; 32], 0).expect("written");
    assert_eq!(target.finish(&mut |_| true).expect_err("not the root").kind(), ErrorKind::Target);
    // The next run of the same command begins afresh.
    assert_eq!(entries(dir.path()), 0);
    let (mut target, there) = open_at(&path, id, false).expect("a target");
    assert_eq!(missing(&id, &there).len(), 8);
    put(&mut target, &bytes, 7).expect("written");
    assert_eq!(target.finish(&mut |_| true).expect_err("blocks are missing").kind(), ErrorKind::Target);
    let (_, there) = open_at(&path, id, false).expect("a target");
    assert_eq!(missing(&id, &there), [0, 1, 2, 3, 4, 5, 6]);
    assert!(!path.exists());
    complete(&path, &bytes).expect("a file");
}

#[test]
fn consistent_but_wrong_parts_do_not_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes = content();
    let id = ContentId::of(&bytes);
    // The journal agrees with the part, but not with the root; no check at opening finds that.
    let (mut target, _) = open_at(&path, id, false).expect("a target");
    (0..7).for_each(|g| put(&mut target, &bytes, g).expect("written"));
    target.write(7, [1; 100], cv_of(&id, 7, &[1; 100]), 0).expect("written");
    target.flush().expect("written");
    drop(target);
    let (target, there) = open_at(&path, id, false).expect("a target");
    assert!(missing(&id, &there).is_empty());
    let failure = target.finish(&mut |_| true).expect_err("not the root");
    assert!(failure.to_string().contains("run the same `Get` again"), "{failure}");
    complete(&path, &bytes).expect("a file");
    assert_eq!((fs::read(&path).expect("a file"), entries(dir.path())), (bytes, 1));
}

#[test]
fn only_the_file_that_was_written_gets_the_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let part = dir.path().join("f.part");
    let bytes = content();
    let id = ContentId::of(&bytes);
    for (force, replaced) in [(false, true), (true, true), (true, false)] {
        let (mut target, _) = open_at(&path, id, force).expect("a target");
        (0..id.blocks()).for_each(|g| put(&mut target, &bytes, g).expect("written"));
        fs::remove_file(&part).expect("removed");
        if replaced {
            fs::write(&part, b"somebody's").expect("a file");
        }
        assert_eq!(target.finish(&mut |_| true).expect_err("another file").kind(), ErrorKind::Target);
        assert!(!path.exists());
        if replaced {
            // The file is not taken for a part either.
            assert_eq!(open_at(&path, id, false).expect_err("in the way").kind(), ErrorKind::Target);
            assert_eq!(fs::read(&part).expect("a file"), b"somebody's");
            fs::remove_file(&part).expect("removed");
        }
    }
    complete(&path, &bytes).expect("a file");
    assert_eq!(entries(dir.path()), 1);
}

#[test]
fn leftovers_beside_a_whole_file_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let (part, journal) = (dir.path().join("f.part"), dir.path().join("f.part.journal"));
    let bytes = content();
    let id = ContentId::of(&bytes);
    complete(&path, &bytes).expect("a file");
    // These are the files after a crash after the rename, and after one between link and unlink.
    for linked in [false, true] {
        fs::write(&journal, journal::header(&id)).expect("a file");
        if linked {
            fs::hard_link(&path, &part).expect("a link");
        }
        complete(&path, &bytes).expect("there already");
        assert_eq!((fs::read(&path).expect("a file"), entries(dir.path())), (bytes.clone(), 1));
    }
    // Files of other contents are kept.
    fs::write(&part, b"somebody's").expect("a file");
    complete(&path, &bytes).expect("there already");
    fs::write(&journal, journal::header(&ContentId::of(b"other"))).expect("a file");
    complete(&path, &bytes).expect("there already");
    assert_eq!(entries(dir.path()), 3);
}

#[test]
fn files_of_a_directory_named_like_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = Directory::create(dir.path()).expect("a directory");
    let bytes = content();
    let files: [(&str, &[u8]); 5] = [
        ("x", &bytes),
        ("x.part", b""),
        ("x.part.journal", &bytes[..40_000]),
        ("y", &bytes[1..]),
        ("y.part/z", b"z"),
    ];
    let open = || {
        files.map(|(name, bytes)| {
            let place = root.place(name.split('/').map(str::as_bytes)).expect("a place");
            Target::open(
                place,
                ContentId::of(bytes),
                &Aliases::default(),
                FinalCheck::ROOT,
                true,
                &mut |_| true,
            )
            .expect("a target")
        })
    };
    // This is like kill -9.
    for ((target, _), (_, bytes)) in open().iter_mut().zip(files) {
        if !bytes.is_empty() {
            put(target, bytes, 0).expect("written");
            target.flush().expect("written");
        }
    }
    for ((mut target, there), (_, bytes)) in open().into_iter().zip(files) {
        let id = ContentId::of(bytes);
        let missing = missing(&id, &there);
        assert_eq!(missing.len() as u64, id.blocks().saturating_sub(1));
        for block in missing {
            put(&mut target, bytes, block).expect("written");
        }
        target.finish(&mut |_| true).expect("a file");
    }
    for (name, bytes) in files {
        assert!(fs::read(dir.path().join(name)).expect("a file") == bytes, "{name}");
    }
    assert_eq!((entries(dir.path()), entries(&dir.path().join("y.part"))), (5, 1));
}

/// Opens a content of which only the length is known, as from mirrors without hashes.
fn open_unproven(path: &Path, length: usize) -> (Target, Bitmap) {
    let id = ContentId { root: [7; 32], length: length as u64 };
    let place = DestPath::of(path).expect("a place");
    Target::open(place, id, &Aliases::default(), FinalCheck::NOTHING, false, &mut |_| true).expect("a target")
}

fn put_bytes(target: &mut Target, block: u64, bytes: &[u8]) {
    let cv = cv_of(&target.id, block, bytes);
    target.write(block, bytes, cv, 0).expect("written");
}

/// If no hash of the parts is known, the part records which mirror brought which block.
#[test]
fn what_mirrors_left_is_marked_and_what_does_not_count_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let id = ContentId { root: [7; 32], length: 4 * BLOCK_BYTES as u64 };
    let url = "http://a/f";
    let version = |name: u8| Version { url: journal::url_clue(url), name: [name; 32] };
    let aliases = |name: u8| Aliases {
        versions: vec![version(name)],
        ..recorded(&[[name; 32], journal::url_clue(url)])
    };
    let open = |name: u8| {
        let place = DestPath::of(&path).expect("a place");
        Target::open(place, id, &aliases(name), FinalCheck::NOTHING, false, &mut |_| true)
            .expect("a target")
            .0
    };
    let bytes = [5; BLOCK_BYTES];
    let mut target = open(7);
    let number = target.records().expect("a part").number_of(url).expect("its version has a name");
    for (block, mark) in [(0, 0), (1, number), (2, 9)] {
        target.write(block, bytes, cv_of(&id, block, &bytes), mark).expect("written");
    }
    target.flush().expect("written");
    drop(target);
    let mut target = open(7);
    let records = target.records().expect("a part");
    assert_eq!([0, 1, 2, 3].map(|block| records.mark(block)), [0, number, 9, 0]);
    assert_eq!((records.number_of(url), records.has_changed(url)), (Some(number), false));
    assert_eq!((records.cv(1), records.cv(3)), (Some(cv_of(&id, 1, &bytes)), None));
    let mut counts = Bitmap::new(4);
    counts.insert(1);
    target.count_only(&counts);
    assert_eq!(target.bytes_done(), BLOCK_BYTES as u64);
    target.discard_if_empty();
    assert_eq!(open(7).bytes_done(), 3 * BLOCK_BYTES as u64, "what does not count is kept");
    let target = open(8);
    let records = target.records().expect("a part");
    assert_eq!((records.number_of(url), records.has_changed(url)), (None, true), "it has another version");
}

/// The knowledge about a content may change from one transfer to the next.
#[test]
fn a_part_is_taken_up_by_any_name_that_it_has_had() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes = content();
    let id = ContentId::of(&bytes);
    let open = |root: [u8; 32], aliases: &[[u8; 32]]| {
        let place = DestPath::of(&path).expect("a place");
        let id = ContentId { root, ..id };
        Target::open(place, id, &recorded(aliases), FinalCheck::NOTHING, false, &mut |_| true)
    };
    let url = |number: u8| [number; 32];
    // The names are: two URLs; then the second alone, with the root; then the root alone; then another URL
    // with the root.
    let steps: [(_, &[_], u64); 4] =
        [(url(1), &[url(2)], 0), (url(2), &[id.root], 1), (id.root, &[], 2), (url(3), &[id.root], 3)];
    for (root, aliases, there) in steps {
        let (mut target, found) = open(root, aliases).expect("a target");
        let found: Vec<u64> = (0..id.blocks()).filter(|block| found.contains(*block)).collect();
        assert_eq!(found, (0..there).collect::<Vec<_>>());
        put(&mut target, &bytes, there).expect("written");
        target.flush().expect("written");
    }
    let stranger = open(url(4), &[url(5)]).expect_err("another content");
    assert!(stranger.to_string().contains("was begun with another hash"), "{stranger}");
    let (mut target, found) = open(url(1), &[]).expect("a target");
    for block in missing(&id, &found) {
        put(&mut target, &bytes, block).expect("written");
    }
    assert_eq!(target.finish(&mut |_| true).expect("a file").root, id.root);
    assert!(fs::read(&path).expect("a file") == bytes && entries(dir.path()) == 1);
}

/// The URL of the part is named again with another URL beside it, so the user says that both have the same
/// file.
#[test]
fn a_part_is_taken_up_if_the_url_that_it_is_of_is_named_and_does_not_answer() {
    let bytes = content();
    let id = ContentId { root: [1; 32], ..ContentId::of(&bytes) };
    let [a, b] = ["http://a/f", "http://b/f"].map(journal::url_clue);
    let begun: [(&[_], bool); 3] =
        [(&[a], true), (&[a, journal::HASH_CLUE], false), (&[a, journal::NOTHING_CLUE], false)];
    for (begun, continues) in begun {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |root: [u8; 32], aliases: &Aliases| {
            let place = DestPath::of(&dir.path().join("f")).expect("a place");
            Target::open(place, ContentId { root, ..id }, aliases, FinalCheck::NOTHING, false, &mut |_| true)
        };
        let (mut target, _) = open(id.root, &recorded(begun)).expect("a target");
        put(&mut target, &bytes, 0).expect("written");
        target.flush().expect("written");
        drop(target);
        let of = |unanswered: &[_]| Aliases {
            recorded: vec![b],
            unanswered: unanswered.to_vec(),
            ..Aliases::default()
        };
        open([2; 32], &of(&[])).expect_err("of a URL that is not named");
        open([2; 32], &of(&[b])).expect_err("of another URL");
        let taken_up = open([2; 32], &of(&[a]));
        assert_eq!(taken_up.is_ok(), continues);
        let Ok((target, _)) = taken_up else { continue };
        assert!(target.bytes_done() > 0);
        drop(target);
        // From now on the part belongs to the other URL too.
        open([2; 32], &of(&[])).expect("a target");
    }
}

/// Messages tell people to remove the part, and they do; its journal stays.
#[test]
fn a_journal_without_its_part_is_in_nobodys_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, bytes) = (dir.path().join("f"), content());
    let (mut target, _) = open_at(&path, ContentId::of(&bytes), false).expect("a target");
    put(&mut target, &bytes, 0).expect("written");
    target.flush().expect("written");
    drop(target);
    let other = ContentId { root: [1; 32], ..ContentId::of(&bytes) };
    assert!(open_at(&path, other, false).is_err(), "another content's part");
    fs::remove_file(dir.path().join("f.part")).expect("the part");
    for id in [other, ContentId::of(&bytes[1..])] {
        let (target, there) = open_at(&path, id, false).expect("a target");
        assert_eq!(missing(&id, &there).len() as u64, id.blocks());
        drop(target);
        fs::remove_file(dir.path().join("f.part")).expect("the part");
    }
    // A file that is not a journal belongs to another program or person.
    fs::write(dir.path().join("f.part.journal"), "dear diary").expect("a file");
    let says = open_at(&path, other, false).expect_err("in the way").to_string();
    assert!(says.contains("f.part.journal is there and is not a journal of this program"), "{says}");
}

/// One of two URLs has another version than when the part was begun. It is not asked, and its version does
/// not become a name of the part.
#[test]
fn a_version_of_now_is_no_name_of_an_earlier_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = content();
    let id = ContentId::of(&bytes);
    let [a, b] = ["http://a/f", "http://b/f"].map(journal::url_clue);
    let [a1, a2, b1] = [[1; 32], [2; 32], [3; 32]];
    let open = |names: &[([u8; 32], [u8; 32])]| {
        let place = DestPath::of(&dir.path().join("f")).expect("a place");
        let versions: Vec<Version> = names.iter().map(|&(url, name)| Version { url, name }).collect();
        let others = names[1..].iter().map(|(_, name)| *name);
        let recorded = others.chain(names.iter().map(|(url, _)| *url)).collect();
        let aliases = Aliases { recorded, versions, ..Aliases::default() };
        let id = ContentId { root: names[0].1, ..id };
        Target::open(place, id, &aliases, FinalCheck::NOTHING, false, &mut |_| true)
    };
    let mut left = Vec::new();
    for names in [[(a, a1), (b, b1)], [(a, a2), (b, b1)], [(b, b1), (a, a2)], [(b, b1), (a, a1)]] {
        let (mut target, found) = open(&names).expect("a target");
        let block = missing(&id, &found)[0];
        left.push(target.records().expect("a part").has_changed("http://a/f"));
        put(&mut target, &bytes, block).expect("written");
        target.flush().expect("written");
        drop(target);
        assert!(open(&[(a, a2)]).is_err(), "it is another version");
    }
    assert_eq!(left, [false, true, true, false]);
}

#[test]
fn zeros_replace_what_was_revoked() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = content();
    let id = ContentId::of(&bytes);
    for flushed in [false, true] {
        let path = dir.path().join(flushed.to_string());
        let (mut target, _) = open_at(&path, id, false).expect("a target");
        // All blocks but the last come from a liar.
        for block in 0..7 {
            put_bytes(&mut target, block, &[0xaa; BLOCK_BYTES]);
        }
        put(&mut target, &bytes, 7).expect("written");
        if flushed {
            target.flush().expect("written");
        }
        target.forget(0..7).expect("forgotten");
        assert_eq!(target.bytes_done(), 100);
        target.forget(0..7).expect("forgotten already");
        (0..7).for_each(|g| put(&mut target, &bytes, g).expect("written"));
        assert_eq!(target.bytes_done(), id.length);
        target.finish(&mut |_| true).expect("a file");
        assert!(fs::read(&path).expect("a file") == bytes, "flushed: {flushed}");
    }
}

/// All blocks of a version were wrong. The part records that for the same hash, and which mirror was tried
/// last.
#[test]
fn a_refuted_version_is_known_for_that_hash() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = ContentId { root: [7; 32], length: 3 * BLOCK_BYTES as u64 };
    let (url, other) = ("http://a/f", "http://b/f");
    let open = |version: Option<[u8; 32]>, hash: u8| {
        let place = DestPath::of(&dir.path().join("f")).expect("a place");
        let version = version.map(|name| Version { url: journal::url_clue(url), name });
        let recorded = [journal::HASH_CLUE, [9; 32]].into_iter().chain(version.map(|v| v.name)).collect();
        let aliases = Aliases { recorded, versions: version.into_iter().collect(), ..Aliases::default() };
        let digests = Digests { sha256: Some([hash; 32]), ..Digests::default() };
        let proof = FinalCheck::of(RootCheck::Unknown, digests);
        Target::open(place, id, &aliases, proof, false, &mut |_| true).expect("a target").0
    };
    let mut target = open(Some([1; 32]), 0xab);
    put_bytes(&mut target, 0, &[1; BLOCK_BYTES]);
    target.refute(url).expect("recorded");
    target.refute(url).expect("recorded already");
    target.tried_alone(other).expect("recorded");
    target.tried_alone(url).expect("recorded");
    target.flush().expect("written");
    drop(target);
    for (version, hash, is_refuted) in [
        (Some([1; 32]), 0xab, true),
        (Some([2; 32]), 0xab, false),
        (None, 0xab, false),
        (Some([1; 32]), 0xcd, false),
    ] {
        let target = open(version, hash);
        let records = target.records().expect("a part");
        assert_eq!((records.is_refuted(url), records.is_refuted(other)), (is_refuted, false), "{version:?}");
        assert_eq!((records.was_tried_alone(url), records.was_tried_alone(other)), (true, false));
        assert_eq!(records.number_of(url).is_some(), version.is_some());
    }
}

#[test]
fn what_was_revoked_is_missing_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let (bytes, id) = (content(), ContentId::of(&content()));
    let (mut target, _) = open_at(&path, id, false).expect("a target");
    (0..6).for_each(|g| put(&mut target, &bytes, g).expect("written"));
    target.flush().expect("written");
    put(&mut target, &bytes, 7).expect("held back");
    target.forget(1..3).expect("forgotten");
    // The range ends beyond the last block; the next one is empty.
    target.forget(5..u64::MAX).expect("forgotten");
    target.forget(4..4).expect("nothing");
    assert_eq!(target.bytes_done(), 3 * BLOCK_BYTES as u64);
    // This is like kill -9.
    drop(target);
    let (target, there) = open_at(&path, id, false).expect("a target");
    assert_eq!(missing(&id, &there), [1, 2, 5, 6, 7]);
    assert_eq!(target.bytes_done(), 3 * BLOCK_BYTES as u64);
    drop(target);
    complete(&path, &bytes).expect("a file");
    assert_eq!(fs::read(&path).expect("a file"), bytes);
}

#[test]
fn the_last_copy_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let length = 30 * BLOCK_BYTES;
    let (mut target, _) = open_unproven(&path, length);
    // These are as many blocks as are held back at once, in an order that must be changed; zeros come last.
    for byte in [1, 0] {
        (0..30).rev().for_each(|g| put_bytes(&mut target, g, &[byte; BLOCK_BYTES]));
        assert_eq!(target.bytes_done(), length as u64);
    }
    target.finish(&mut |_| true).expect("a file");
    assert!(fs::read(&path).expect("a file") == vec![0; length]);
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes = vec![0; 300 * BLOCK_BYTES];
    complete(&path, &bytes).expect("a file");
    let meta = fs::metadata(&path).expect("a file");
    assert_eq!(meta.len(), bytes.len() as u64);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
}

#[test]
fn zeros_replace_what_a_crash_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes = content();
    let (target, _) = open_at(&path, ContentId::of(&bytes), false).expect("a target");
    drop(target);
    fs::write(dir.path().join("f.part"), vec![0xaa; 9 * BLOCK_BYTES]).expect("a file");
    complete(&path, &bytes).expect("a file");
    assert_eq!(fs::read(&path).expect("a file"), bytes);
}

#[test]
fn a_check_can_be_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, b"there").expect("a file");
    let stopped = Target::open(
        DestPath::of(&path).expect("a place"),
        ContentId::of(b"there"),
        &Aliases::default(),
        FinalCheck::ROOT,
        false,
        &mut |_| false,
    );
    assert_eq!(stopped.expect_err("stopped").kind(), ErrorKind::Interrupted);
}

#[test]
fn zero_detection() {
    for len in (0..40).chain([255, 256, 257, 600]) {
        let mut bytes = vec![0; len];
        assert!(is_zero(&bytes));
        for at in 0..len {
            bytes[at] = 1;
            assert!(!is_zero(&bytes));
            bytes[at] = 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// After any sequence of writes, revocations, flushes and resumptions, the file has the bytes written
    /// last.
    #[test]
    fn the_last_word_counts(
        steps in proptest::collection::vec((0_u8..8, 0_u64..8, 0_u64..4, 0_u8..3), 0..60),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        let length = 7 * BLOCK_BYTES + 100;
        let (mut target, _) = open_unproven(&path, length);
        let mut expected: [Option<u8>; 8] = [None; 8];
        let len = |block: usize| if block == 7 { 100 } else { BLOCK_BYTES };
        for (what, block, more, byte) in steps {
            match what {
                0..=4 => {
                    put_bytes(&mut target, block, &vec![byte; len(block as usize)]);
                    expected[block as usize] = Some(byte);
                }
                5 => {
                    target.forget(block..block + more).expect("forgotten");
                    expected.iter_mut().skip(block as usize).take(more as usize).for_each(|e| *e = None);
                }
                6 => target.flush().expect("written"),
                _ => {
                    target.flush().expect("written");
                    drop(target);
                    let (again, there) = open_unproven(&path, length);
                    target = again;
                    let left = (0..8).filter(|g| expected[*g as usize].is_none()).collect::<Vec<_>>();
                    prop_assert_eq!(missing(&target.id, &there), left);
                }
            }
            let there = (0..8).filter(|g| expected[*g].is_some()).map(|g| len(g) as u64);
            prop_assert_eq!(target.bytes_done(), there.sum::<u64>());
        }
        for block in (0..8).filter(|g| expected[*g].is_none()) {
            put_bytes(&mut target, block as u64, &vec![0; len(block)]);
        }
        target.finish(&mut |_| true).expect("a file");
        let whole = (0..8).flat_map(|g| vec![expected[g].unwrap_or(0); len(g)]).collect::<Vec<_>>();
        prop_assert!(fs::read(&path).expect("a file") == whole);
    }

    /// After any damage to part and journal, the file arrives complete. A block whose record and bytes are
    /// undamaged is not requested again.
    #[test]
    fn any_damage_is_survived(
        order in Just((0_u64..8).collect::<Vec<_>>()).prop_shuffle(),
        written in 0_usize..=8,
        part_len in proptest::option::of(0_u64..9 * BLOCK_BYTES as u64),
        journal_len in proptest::option::of(0_u64..64 + 9 * 40),
        flips in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>(), 1_u8..), 0..4),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        let (part, journal) = (dir.path().join("f.part"), dir.path().join("f.part.journal"));
        let bytes = content();
        let id = ContentId::of(&bytes);
        let (mut target, _) = open_at(&path, id, false).expect("a target");
        for block in &order[..written] {
            put(&mut target, &bytes, *block).expect("written");
        }
        target.flush().expect("written");
        drop(target);
        for (file, len) in [(&part, part_len), (&journal, journal_len)] {
            if let Some(len) = len {
                fs::OpenOptions::new().write(true).open(file).expect("a file").set_len(len).expect("cut");
            }
        }
        for (in_part, at, by) in &flips {
            let file = if *in_part { &part } else { &journal };
            let mut damaged = fs::read(file).expect("a file");
            if !damaged.is_empty() {
                let at = at.index(damaged.len());
                damaged[at] ^= by;
                fs::write(file, damaged).expect("a file");
            }
        }
        let untouched = part_len.is_none() && journal_len.is_none() && flips.is_empty();
        match open_at(&path, id, false) {
            Ok((target, there)) => {
                if untouched {
                    prop_assert_eq!(missing(&id, &there).len(), 8 - written);
                }
                drop(target);
                complete(&path, &bytes).expect("a file");
                prop_assert_eq!(fs::read(&path).expect("a file"), bytes);
                prop_assert_eq!(entries(dir.path()), 1);
            }
            // A damaged header is not recognised; then nothing is changed without `force`.
            Err(failure) => {
                prop_assert_eq!(failure.kind(), ErrorKind::Target);
                prop_assert!(!untouched);
                open_at(&path, id, true).expect("a target");
            }
        }
    }
}

/// A hash tells which file is meant. When the file is complete, other parts of the requested URLs are
/// removed, and no others.
#[test]
fn a_part_of_another_length_stays_until_the_file_is_here() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let (old, new) = (content()[..3 * BLOCK_BYTES].to_vec(), content()[..2 * BLOCK_BYTES].to_vec());
    let (old_id, new_id) = (ContentId::of(&old), ContentId::of(&new));
    let [a, b] = ["http://a/f", "http://b/f"].map(journal::url_clue);
    let asks = |urls: &[[u8; 32]]| Aliases {
        recorded: [urls, &[journal::HASH_CLUE]].concat(),
        urls: urls.to_vec(),
        ..Aliases::default()
    };
    let tried = |id: ContentId, urls: &[[u8; 32]]| {
        let place = DestPath::of(&path).expect("a place");
        Target::open(place, id, &asks(urls), FinalCheck::ROOT, false, &mut |_| true)
    };
    let open = |id: ContentId, urls: &[[u8; 32]]| tried(id, urls).expect("a target").0;
    for (urls, left) in [(vec![b], 3), (vec![a, b], 1)] {
        let mut target = open(old_id, &[a]);
        put(&mut target, &old, 0).expect("written");
        assert!(target.note_of_what_stays().is_none());
        target.flush().expect("written");
        drop(target);
        let held = open(old_id, &[a]);
        assert!(tried(new_id, &urls).expect_err("locked").to_string().contains("another get is writing"));
        drop(held);
        let mut target = open(new_id, &urls);
        assert!(tried(old_id, &[a]).expect_err("locked").to_string().contains("another get is writing"));
        let note = target.note_of_what_stays().expect("a note");
        assert!(note.contains("f.part is of another file, of 49152 bytes"), "{note}");
        put(&mut target, &new, 0).expect("written");
        target.flush().expect("written");
        drop(target);
        assert_eq!(entries(dir.path()), 4);
        assert_eq!(open(old_id, &[a]).bytes_done(), BLOCK_BYTES as u64, "it is as it was");
        let mut target = open(new_id, &urls);
        assert_eq!(target.bytes_done(), BLOCK_BYTES as u64, "so is this");
        put(&mut target, &new, 1).expect("written");
        target.finish(&mut |_| true).expect("whole");
        assert_eq!(entries(dir.path()), left);
        fs::remove_file(&path).expect("the file");
    }
}

#[test]
fn messages_name_the_file_and_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, part) = (dir.path().join("f"), dir.path().join("f.part"));
    let (short, id) = (ContentId::of(b"short"), ContentId::of(b"same length"));
    let why = |id| open_at(&path, id, false).expect_err("in the way").to_string();
    fs::write(&part, b"somebody's").expect("a file");
    let in_the_way = open_at(&path, id, false).expect_err("in the way");
    assert_eq!(in_the_way.place(), Some(&ErrorPlace::Path(part.clone())));
    assert_eq!(in_the_way.hints().collect::<Vec<_>>(), [Hint::Overwrite]);
    assert!(why(id).contains("f.part is there and has no journal: "), "{}", why(id));
    open_at(&path, id, true).expect("it is replaced");
    // No hash tells which file is meant.
    let (place, of_url) = (DestPath::of(&path).expect("a place"), recorded(&[journal::url_clue("http://a")]));
    let opened = Target::open(place, short, &of_url, FinalCheck::NOTHING, false, &mut |_| true);
    let failure = opened.expect_err("in the way").to_string();
    assert!(failure.contains("f.part is there and is of a content of 11 bytes, not of 5: "), "{failure}");
    let other = ContentId { root: [7; 32], ..id };
    assert!(
        why(other)
            .contains("was begun with another hash, or one of another kind: give that one too to go on")
    );
    fs::write(dir.path().join("f.part.journal"), [1; 64]).expect("a file");
    assert!(why(id).contains("f.part is there and its journal cannot be used (not a journal "));

    let proof = FinalCheck::of(RootCheck::Unknown, Digests::of_sha256([0xab; 32]));
    let place = DestPath::of(&path).expect("a place");
    let (mut target, _) =
        Target::open(place, short, &Aliases::default(), proof, true, &mut |_| true).expect("a target");
    put(&mut target, b"short", 0).expect("written");
    let failure = target.finish(&mut |_| true).expect_err("another hash");
    assert_eq!(failure.kind(), ErrorKind::Corrupt);
    let failure = failure.to_string();
    assert!(failure.contains("f has the SHA-256 f9b0078b5df596d2"), "{failure}");
    assert!(failure.contains(&format!(", expected SHA-256 {}: ", "ab".repeat(32))), "{failure}");
    assert!(failure.contains("f.part is removed"), "{failure}");
    assert_eq!(entries(dir.path()), 0);
}

fn is_right(target: &mut Target) -> bool {
    matches!(target.check(&mut |_| true), Ok(Checked::Right(None)))
}

#[test]
fn what_only_a_server_calls_wrong_is_kept_under_another_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(dir.path().join("f.unverified"), b"mine").expect("a file");
    let short = ContentId::of(b"short");
    let proof =
        FinalCheck::of(RootCheck::Unknown, Digests { sha512: Some([0xab; 64]), ..Digests::default() });
    let place = DestPath::of(&path).expect("a place");
    let demands = Demands { if_wrong: IfWrong::Keep, ..proof.into() };
    let (mut target, _) =
        Target::open(place, short, &Aliases::default(), demands, false, &mut |_| true).expect("a target");
    put(&mut target, b"short", 0).expect("written");
    assert!(!is_right(&mut target));
    let failure = target.finish(&mut |_| true).expect_err("another hash");
    assert_eq!(failure.kind(), ErrorKind::Corrupt);
    assert!(failure.to_string().contains("it is kept as "), "{failure}");
    assert!(failure.to_string().ends_with("f.unverified.2"), "{failure}");
    assert_eq!(fs::read(dir.path().join("f.unverified.2")).expect("a file"), b"short");
    assert_eq!(fs::read(dir.path().join("f.unverified")).expect("a file"), b"mine");
    assert_eq!(entries(dir.path()), 2);
}

#[test]
fn what_was_found_right_is_looked_at_again_once_it_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, short) = (dir.path().join("f"), ContentId::of(b"short"));
    let mut hasher = Hasher::of(&Digests::of_sha256([0; 32]));
    hasher.update(b"short");
    let proof = FinalCheck::of(RootCheck::Unknown, hasher.finish());
    let open = || {
        let place = DestPath::of(&path).expect("a place");
        Target::open(place, short, &Aliases::default(), proof, true, &mut |_| true).expect("a target").0
    };
    let mut target = open();
    put(&mut target, b"short", 0).expect("written");
    assert!(is_right(&mut target));
    put_bytes(&mut target, 0, b"wrong");
    assert_eq!(target.finish(&mut |_| true).expect_err("it changed").kind(), ErrorKind::Corrupt);
    let mut target = open();
    put_bytes(&mut target, 0, b"wrong");
    assert!(!is_right(&mut target));
    put_bytes(&mut target, 0, b"short");
    assert!(is_right(&mut target));
    target.finish(&mut |_| true).expect("it is right");
    assert_eq!(fs::read(&path).expect("a file"), b"short");
}

#[test]
fn reading_the_whole_again_is_shown_and_stopped_without_a_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let bytes = vec![7; 5 << 20];
    let id = ContentId::of(&bytes);
    let mut hasher = Hasher::of(&Digests::of_sha256([0; 32]));
    hasher.update(&bytes);
    let proof = FinalCheck::of(RootCheck::Blocks, hasher.finish());
    let open = || {
        let place = DestPath::of(&path).expect("a place");
        Target::open(place, id, &Aliases::default(), proof, false, &mut |_| true).expect("a target")
    };
    let (mut target, _) = open();
    for block in 0..id.blocks() {
        put(&mut target, &bytes, block).expect("written");
    }
    let mut read = Vec::new();
    let stopped = target.finish(&mut |bytes| {
        read.push(bytes);
        read.len() < 3
    });
    assert_eq!(stopped.expect_err("stopped").kind(), ErrorKind::Interrupted);
    assert_eq!(read, [1 << 20, 2 << 20, 3 << 20]);
    let (target, there) = open();
    assert!(missing(&id, &there).is_empty(), "all of it is still there");
    target.finish(&mut |_| true).expect("a file");
    assert!(fs::read(&path).expect("a file") == bytes);
}
