use super::*;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anabranch_mmtp::collection::Collection;

use super::builder::Builder;
use super::warnings::WARNINGS_MAX;
use crate::report::HashProgress;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * i / 3 + i) as u8).collect()
}

fn build(paths: &[PathBuf]) -> (Catalog, Vec<String>) {
    let builder = Builder::default();
    let catalog = builder.build(paths).expect("a catalog");
    let HashProgress { done_bytes, total_bytes, .. } = builder.job.progress(anabranch_algo::Span::ZERO);
    assert_eq!(done_bytes, total_bytes);
    (catalog, builder.warnings.take())
}

#[test]
fn ids_are_plain_blake3() {
    let dir = tempfile::tempdir().expect("a directory");
    for len in [0, 1, 16_384, 16_385, 3 << 20, (9 << 20) + 7] {
        let path = dir.path().join(len.to_string());
        fs::write(&path, bytes(len)).expect("a file");
        let (catalog, _) = build(&[path]);
        let id = ContentId::of(&bytes(len));
        assert_eq!(catalog.offers()[0].id, id);
        assert!(catalog.find(&id.root).is_some() && catalog.find(&[0; 32]).is_none());
    }
}

#[test]
fn chunks_are_the_files_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let content = bytes(5 * BLOCK_BYTES + 3_000);
    fs::write(&path, &content).expect("a file");
    let (catalog, _) = build(&[path]);
    let offer = &catalog.offers()[0];
    let mut out = vec![0xee; 64 * (BLOCK_BYTES + 20)];
    for cut in [1, 5, 12, 13, 64].into_iter().filter_map(ChunksPerBlock::new) {
        let chunks = offer.id.chunks(cut);
        for first in 0..chunks {
            let count = (chunks - first).min(7) as usize;
            let used = catalog.read_chunks(offer, cut, first, count, 20, &mut out).expect("chunks");
            let mut at = 0;
            for n in first..first + count as u64 {
                let (block, offset, len) = offer.id.chunk_extent(n, cut).expect("a chunk");
                let from = block as usize * BLOCK_BYTES + offset;
                assert_eq!(out[at + 20..at + 20 + len], content[from..from + len]);
                let wire_len = offer.id.chunk_wire_len(n, cut).expect("a chunk");
                assert!(out[at + 20 + len..at + 20 + wire_len].iter().all(|b| *b == 0));
                at += 20 + wire_len;
            }
            assert_eq!(at, used);
        }
        for (first, count) in [(chunks, 1), (chunks - 1, 2), (u64::MAX, 1), (0, 0), (0, 65)] {
            let outcome = catalog.read_chunks(offer, cut, first, count, 20, &mut out);
            assert!(matches!(outcome, Err(ReadError::Range)));
        }
        let outcome = catalog.read_chunks(offer, cut, 0, 2, 20, &mut [0; 100]);
        assert!(matches!(outcome, Err(ReadError::Range)));
    }
}

#[test]
fn a_changed_file_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let cut = ChunksPerBlock::new(12).expect("a cut");
    let mut out = vec![0; 1 << 16];
    let path = dir.path().join("f");
    type Change = fn(&Path);
    let changes: [Change; 5] = [
        |path| fs::write(path, bytes(40_000)).expect("overwritten"),
        |path| fs::write(path, b"short").expect("shortened"),
        |path| fs::remove_file(path).expect("removed"),
        |path| fs::remove_file(path).and_then(|()| fs::write(path, bytes(40_000))).expect("replaced"),
        |path| fs::remove_file(path).and_then(|()| symlink("/etc/passwd", path)).expect("linked"),
    ];
    for (n, change) in changes.iter().enumerate() {
        for read_before in [false, true] {
            let _ = fs::remove_file(&path);
            fs::write(&path, bytes(40_000)).expect("a file");
            let (catalog, _) = build(std::slice::from_ref(&path));
            let offer = &catalog.offers()[0];
            if read_before {
                catalog.read_chunks(offer, cut, 0, 12, 20, &mut out).expect("chunks");
            }
            // The change must be later than one step of the file system's clock.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change(&path);
            catalog.read_chunks(offer, cut, 0, 12, 20, &mut out).expect_err(&format!("change {n}"));
        }
    }
}

/// `chmod` and `ln` change the inode but not the bytes. A program that sets the time back may have changed
/// both.
#[test]
fn a_file_of_which_only_the_inode_changed_is_hashed_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, other) = (dir.path().join("f"), dir.path().join("g"));
    let (mut out, same, different) = (vec![0; 1000], bytes(40_000), vec![7; 40_000]);
    type Change<'a> = &'a dyn Fn();
    let back = |modified| File::options().write(true).open(&path).and_then(|f| f.set_modified(modified));
    let rewrite = |bytes: &[u8]| {
        let modified = fs::metadata(&path).and_then(|meta| meta.modified()).expect("a time");
        fs::write(&path, bytes).expect("written");
        back(modified).expect("set back");
    };
    let changes: [(Change<'_>, bool); 4] = [
        (&|| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode"), true),
        (&|| fs::hard_link(&path, &other).expect("a link"), true),
        (&|| rewrite(&same), true),
        (&|| rewrite(&different), false),
    ];
    for (n, (change, is_same)) in changes.iter().enumerate() {
        for read_before in [false, true] {
            let _ = fs::remove_file(&other);
            let _ = fs::remove_file(&path);
            fs::write(&path, &same).expect("a file");
            let (catalog, _) = build(std::slice::from_ref(&path));
            let offer = &catalog.offers()[0];
            if read_before {
                catalog.read_at(offer, 0, &mut out).expect("bytes");
            }
            // The change must be later than one step of the file system's clock.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change();
            let mut read = catalog.read_at(offer, 0, &mut out);
            assert!(matches!(read, Err(ReadError::InDoubt)), "{n}: {read:?}");
            while matches!(read, Err(ReadError::InDoubt)) {
                std::thread::yield_now();
                read = catalog.read_at(offer, 0, &mut out);
            }
            let said = catalog.said();
            match is_same {
                true => assert!(read.is_ok() && said.is_empty(), "{n}: {read:?} {said:?}"),
                false => assert!(matches!(read, Err(ReadError::Changed)), "{n}: {read:?}"),
            }
            let names_it = said.iter().any(|said| said.contains(path.to_str().expect("UTF-8")));
            assert_eq!(names_it, !is_same, "{said:?}");
            assert!(catalog.check(offer).is_ok() == *is_same && catalog.said().is_empty(), "told once");
        }
    }
}

#[test]
fn of_many_warnings_the_first_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("f"), b"f").expect("a file");
    for n in 0..WARNINGS_MAX + 30 {
        symlink("nowhere", dir.path().join(n.to_string())).expect("a link");
    }
    let (_, warnings) = build(&[dir.path().to_owned()]);
    assert_eq!(warnings.len(), WARNINGS_MAX + 1);
    assert_eq!(warnings.last().map(String::as_str), Some("skipped 30 more"));
}

#[test]
fn a_directory_is_a_collection_of_what_is_inside() {
    let dir = tempfile::tempdir().expect("a directory");
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("secret"), b"secret").expect("a file");
    let root = dir.path().join("album");
    fs::create_dir_all(root.join("a/b")).expect("directories");
    fs::write(root.join("a/b/one"), b"one").expect("a file");
    fs::write(root.join("two words\n"), b"two").expect("a file");
    symlink("a/b/one", root.join("inner")).expect("a link");
    symlink(root.join("a/b/one"), root.join("inner-absolute")).expect("a link");
    symlink(outside.path().join("secret"), root.join("out")).expect("a link");
    symlink("../../../../../../../../etc/passwd", root.join("a/up")).expect("a link");
    symlink("..", root.join("a/loop")).expect("a link");
    symlink("nowhere", root.join("dangling")).expect("a link");
    nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let (catalog, warnings) = build(std::slice::from_ref(&root));
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    let manifest = catalog.offers().last().expect("a manifest");
    assert!(manifest.collection && manifest.name == b"album");
    let mut out = vec![0; 1 << 16];
    let used = catalog
        .read_chunks(manifest, ChunksPerBlock::new(1).expect("a cut"), 0, 1, 0, &mut out)
        .expect("read");
    let collection = Collection::parse(&out[..used]).expect("a collection");
    let paths: Vec<_> = collection.entries().iter().map(|e| e.path.as_slice()).collect();
    assert_eq!(paths, [&b"a/b/one"[..], b"inner", b"inner-absolute", b"two words\n"]);
    for entry in collection.entries() {
        assert!(catalog.find(&entry.id.root).is_some());
    }
    assert!(catalog.find(&ContentId::of(b"secret").root).is_none());
    // The same directory has the same content id.
    assert_eq!(build(&[root]).0.offers().last().expect("a manifest").id, manifest.id);
}

#[test]
fn what_was_named_must_be_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    for path in [dir.path().join("none"), pipe, "/dev/null".into()] {
        assert!(Builder::default().build(&[path]).is_err());
    }
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    assert_eq!(build(&[empty]).0.offers().len(), 1);
}

#[test]
fn hashes_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, bytes(3 << 20)).expect("a file");
    let cache = dir.path().join("cache");
    let build = || {
        let builder = Builder { cache: Some(cache.clone()), ..Builder::default() };
        builder.build(std::slice::from_ref(&path)).expect("a catalog").offers()[0].id
    };
    // The file is too young: its hashes are not kept.
    let id = build();
    assert!(!cache.exists());
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    assert_eq!(build(), id);
    let file = fs::read_dir(&cache).expect("a cache").next().expect("a file").expect("a file").path();
    let good = fs::read(&file).expect("a file");
    assert_eq!(build(), id);
    fs::write(&file, vec![1; good.len()]).expect("damaged");
    assert_eq!(build(), id);
    assert_eq!(fs::read(&file).expect("a file"), good);
}

#[test]
fn many_files_are_not_all_open() {
    let dir = tempfile::tempdir().expect("a directory");
    for n in 0..OPEN_FILES_MAX + 20 {
        fs::write(dir.path().join(n.to_string()), n.to_string()).expect("a file");
    }
    let (catalog, _) = build(&[dir.path().to_owned()]);
    let mut out = [0; 64];
    for _ in 0..2 {
        for offer in catalog.offers().iter().filter(|offer| !offer.collection) {
            let used = catalog.read_chunks(offer, ChunksPerBlock::MAX, 0, 1, 0, &mut out).expect("a chunk");
            assert_eq!(out[..used], *offer.name);
        }
    }
    assert!(catalog.open.lock().expect("a lock").len() <= OPEN_FILES_MAX);
}
