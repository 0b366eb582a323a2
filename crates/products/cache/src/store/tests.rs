use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

fn key(seed: u8) -> Key {
    Key::of_url(&format!("http://a.example/{seed}"))
}

fn put(store: &Store, length: usize, seed: u8) -> Arc<Object> {
    let mut writer = Writer::begin(store).unwrap();
    bytes(length, seed).chunks(5_000).for_each(|part| writer.write(part).unwrap());
    let meta = Meta { url: format!("http://a.example/{seed}"), ..Meta::default() };
    writer.finish(&key(seed), &meta).unwrap()
}

fn read(object: &Object) -> Result<Vec<u8>, ReadError> {
    let mut out = vec![0; object.length() as usize];
    object.read_at(0, &mut out).map(|()| out)
}

fn files(dir: &TempDir) -> usize {
    let all = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let objects: usize = all(dir.path().join("objects")).map(|path| all(path).count()).sum();
    objects + all(dir.path().join("incoming")).count()
}

#[test]
fn requests_for_one_object_share_its_file_until_that_changes() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    let put_first = put(&store, 100, 1);
    let [first, again] = [(); 2].map(|()| store.get(&key(1)).unwrap());
    assert!(Arc::ptr_eq(&first, &again) && Arc::ptr_eq(&first, &put_first));
    put(&store, 200, 1);
    assert_eq!(store.get(&key(1)).unwrap().length(), 200);
    assert_eq!(read(&first).unwrap(), bytes(100, 1), "a reader keeps the file that it began with");
    for seed in 2..200 {
        put(&store, 10, seed);
    }
    assert!(Arc::ptr_eq(&first, &again) && store.get(&key(1)).unwrap().length() == 200);
    let path = store.path(&key(1));
    fs::remove_file(&path).unwrap();
    assert!(store.get(&key(1)).is_none(), "it was removed by hand");
}

#[test]
fn objects_survive_a_restart_and_what_was_not_whole_is_gone() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    for (seed, length) in [(0, 0), (1, 1), (2, BLOCK_BYTES), (3, 3 * BLOCK_BYTES + 5)] {
        assert_eq!(read(&put(&store, length, seed)).unwrap(), bytes(length, seed));
    }
    let mut broken = Writer::begin(&store).unwrap();
    broken.write(b"begun").unwrap();
    assert!(Store::open(dir.path(), 1).is_err(), "it is in use");
    // What a killed process leaves.
    std::mem::forget(broken);
    let before = store.counters();
    // The forgotten writer holds the store and its lock, as no killed process does.
    let lock = dir.path().join("lock");
    fs::remove_file(lock).unwrap();
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    assert_eq!(store.counters(), before);
    assert_eq!(files(&dir), 4);
    let object = store.get(&key(3)).unwrap();
    assert_eq!(read(&object).unwrap(), bytes(3 * BLOCK_BYTES + 5, 3));
    assert_eq!(object.meta().url, "http://a.example/3");
    assert!(store.get(&key(9)).is_none());
}

#[test]
fn a_changed_byte_is_found_and_only_its_own_block_is_written_anew() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    let length = 3 * BLOCK_BYTES + 100;
    drop(put(&store, length, 7));
    let path = store.path(&key(7));
    let change = |at: u64| {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    change(BLOCK_BYTES as u64 + 9);
    let object = store.get(&key(7)).unwrap();
    assert!(matches!(read(&object), Err(ReadError::Damaged(Some(1)))));
    let mut first = vec![0; BLOCK_BYTES];
    object.read_at(0, &mut first).unwrap();
    let good = bytes(length, 7);
    let range = object.block_range(1);
    let block = &good[range.start as usize..range.end as usize];
    assert!(!object.repair(1, &first).unwrap() && !object.repair(1, &block[1..]).unwrap());
    assert!(!object.repair(99, block).unwrap());
    assert!(object.repair(1, block).unwrap());
    assert_eq!(read(&object).unwrap(), good);
    // A byte of the hashes: an open object has the right ones, and a new process gives the object up.
    change(length as u64 + 3);
    assert_eq!(read(&store.get(&key(7)).unwrap()).unwrap(), good);
    drop(object);
    drop(store);
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    assert!(store.get(&key(7)).is_none() && files(&dir) == 0);
    assert_eq!(store.counters().damaged, 1);
}

#[test]
fn the_files_take_no_more_than_the_capacity() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), 100_000).unwrap();
    for seed in 0..40 {
        drop(put(&store, 9_000, seed));
        assert!(store.counters().bytes <= 100_000);
    }
    let counters = store.counters();
    assert_eq!((counters.objects + counters.evicted, files(&dir)), (40, counters.objects as usize));
    // It does not fit, and can be read all the same.
    assert_eq!(read(&put(&store, 200_000, 99)).unwrap(), bytes(200_000, 99));
    assert!(store.get(&key(99)).is_none());
    drop(store);
    let store = Store::open(dir.path(), 50_000).unwrap();
    assert!(store.counters().bytes <= 50_000 && files(&dir) == store.counters().objects as usize);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever byte is changed and wherever a file is cut, no wrong byte is read.
    #[test]
    fn no_wrong_byte_is_read(
        length in 0..40_000_usize,
        at in any::<u64>(),
        bit in 0..8_u8,
        cut in any::<bool>(),
    ) {
        let dir = TempDir::new().unwrap();
        let store = Store::open(dir.path(), 1 << 30).unwrap();
        drop(put(&store, length, 1));
        let file = File::options().read(true).write(true).open(store.path(&key(1))).unwrap();
        let at = at % file.metadata().unwrap().len();
        if cut {
            file.set_len(at).unwrap();
        } else {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
        }
        // An open object has the right hashes in memory.
        let open = read(&store.get(&key(1)).unwrap());
        prop_assert!(open.is_err() || open.unwrap() == bytes(length, 1));
        drop(store);
        let store = Store::open(dir.path(), 1 << 30).unwrap();
        if let Some(object) = store.get(&key(1)) {
            prop_assert!(read(&object).is_err());
        }
    }

    #[test]
    fn any_range_is_read(length in 1..60_000_usize, from in any::<usize>(), len in any::<usize>()) {
        let dir = TempDir::new().unwrap();
        let object = put(&Store::open(dir.path(), 1 << 30).unwrap(), length, 5);
        let from = from % length;
        let mut out = vec![0; len % (length - from + 1)];
        object.read_at(from as u64, &mut out).unwrap();
        prop_assert_eq!(&out[..], &bytes(length, 5)[from..from + out.len()]);
        prop_assert!(object.read_at(length as u64, &mut [0]).is_err());
    }
}

/// A lack of descriptors or memory says nothing about an object.
#[test]
fn an_object_that_cannot_be_opened_now_stays() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    drop(put(&store, 100, 1));
    drop(store);
    let store = Store::open(dir.path(), 1 << 30).unwrap();
    let (path, aside) = (store.path(&key(1)), dir.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    // Opening a loop of links is an error of the system, as too many open files are.
    std::os::unix::fs::symlink(&path, &path).unwrap();
    assert!(store.get(&key(1)).is_none());
    fs::rename(&aside, &path).unwrap();
    assert_eq!(read(&store.get(&key(1)).unwrap()).unwrap(), bytes(100, 1));
    // A file that is gone is no object any more.
    fs::remove_file(&path).unwrap();
    assert!(store.get(&key(1)).is_none());
    assert_eq!(store.counters().objects, 0);
}
