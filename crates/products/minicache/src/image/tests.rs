use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_cache::digest::HashKind;
use proptest::prelude::*;

use super::*;
use crate::disk::Disk;
use crate::layout::hashes_at;
use crate::layout::{Entry, Layout, LayoutError, SUPERBLOCK_BYTES};
use crate::name::Name;
use crate::proof::Proof;

/// A disk that forgets what was not synced, and at a given operation loses its power.
#[derive(Default)]
struct Forgetful {
    state: Mutex<State>,
    /// The operations until the power is lost.
    left: AtomicUsize,
}

#[derive(Clone, Default)]
struct State {
    durable: Vec<u8>,
    seen: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

const SECTOR: usize = 512;

impl Forgetful {
    fn new(durable: Vec<u8>, left: usize) -> Self {
        let state = State { seen: durable.clone(), durable, pending: Vec::new() };
        Self { state: Mutex::new(state), left: AtomicUsize::new(left) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spend(&self) -> io::Result<()> {
        let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| io::Error::other("the power is gone"))
    }

    /// Returns what is there after a crash: of each write that was not synced nothing, all, or any sectors
    /// (any pieces of 16 bytes, if it is no longer than a sector), as `random` says.
    fn crash(&self, mut random: impl FnMut() -> u8) -> Vec<u8> {
        let State { mut durable, pending, .. } = self.lock().clone();
        for (at, bytes) in pending {
            let size = if bytes.len() <= SECTOR { 16 } else { SECTOR };
            let fate = random() % 4;
            for (n, piece) in bytes.chunks(size).enumerate() {
                let arrives = fate == 0 || fate > 1 && random().is_multiple_of(2);
                if arrives {
                    let at = at + n * size;
                    durable[at..at + piece.len()].copy_from_slice(piece);
                }
            }
        }
        durable
    }
}

impl Disk for Forgetful {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        let bytes = state.seen.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // The write that meets the end of the power is under way: any part of it may arrive.
        let spent = self.spend();
        let mut state = self.lock();
        state.seen[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        state.pending.push((offset as usize, bytes.to_vec()));
        spent
    }

    fn sync(&self) -> io::Result<()> {
        self.spend()?;
        let mut state = self.lock();
        for (at, bytes) in std::mem::take(&mut state.pending) {
            state.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

fn layout() -> Layout {
    Layout::new(16, 4_096, 64).unwrap()
}

fn blank() -> Vec<u8> {
    let mut bytes = vec![0; layout().image_bytes() as usize];
    bytes[..SUPERBLOCK_BYTES].copy_from_slice(&layout().superblock());
    bytes
}

fn body(number: usize) -> Vec<u8> {
    let length = [3, 1, 16_384, 16_385, 40_000, 90_000][number % 6];
    (0..length).map(|n: usize| (n * 31 + (n >> 8) * 7 + number * 13) as u8).collect()
}

fn put<D: Disk>(image: &Arc<Image<D>>, bytes: &[u8], evicts: bool) -> Result<u32, ImageError> {
    let mut writer = Writer::begin(image, bytes.len() as u64, HashKind::Sha256, evicts)?;
    for part in bytes.chunks(7_001) {
        writer.write(part)?;
    }
    writer.finish(None, Described::default())
}

/// Returns the bytes of an object, each block compared.
fn read<D: Disk>(image: &Image<D>, slot: u32, entry: &Entry) -> Vec<u8> {
    assert_eq!(image.table().entry(slot).as_ref(), Some(entry));
    let proof = Proof::new(entry, image.layout());
    proof.prove(image.disk(), 0..entry.id.length, &mut Vec::new()).expect("no wrong byte");
    let mut out = vec![0; entry.id.length as usize];
    image.disk().read_at(proof.place(0), &mut out).unwrap();
    out
}

fn name(number: usize) -> Name {
    Name::Root(*blake3::hash(&body(number)).as_bytes())
}

/// Puts objects until the power is lost or all are there; some push others out. Returns the numbers of
/// those that must be there, and of one that may be.
fn work(image: &Arc<Image<Forgetful>>) -> (Vec<usize>, bool) {
    let mut there: Vec<usize> = Vec::new();
    for number in 0..14 {
        let is_there = |number: &usize| image.table().find(&name(*number)).is_some();
        let Ok(slot) = put(image, &body(number), true) else {
            // What was being pushed out when the power went may be there or not.
            there.retain(is_there);
            return (there, false);
        };
        image.table().count_hit(slot, number as u64);
        there.push(number);
        there.retain(is_there);
    }
    (there, true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(anabranch_net::testing::extent(3, 60)))]
    #[test]
    fn power_lost_at_any_step_loses_no_object_and_shows_no_wrong_byte(seed in any::<u64>()) {
        let mut random = seed | 1;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 32) as u8
        };
        for step in 0.. {
            let image = Arc::new(Image::of(Forgetful::new(blank(), step)).unwrap());
            let (there, done) = work(&image);
            let left = Forgetful::new(image.disk().crash(&mut next), usize::MAX);
            let after = Arc::new(Image::of(left).unwrap());
            for number in &there {
                let found = after.table().find(&name(*number)).expect("it was promised to be there");
                let entry = after.table().entry(found.slot).unwrap();
                prop_assert!(read(&after, found.slot, &entry) == body(*number));
            }
            let mut found = 0;
            for (slot, entry) in after.table().entries() {
                let number = (0..14).find(|number| entry.names()[0] == name(*number)).expect("one of ours");
                prop_assert!(read(&after, slot, &entry) == body(number));
                found += 1;
            }
            // At most the object that arrived, and the one that went for it, are there besides.
            prop_assert!(found <= there.len() + 2);
            // Room that was not published is free.
            let used: u64 = after.table().entries().map(|(_, e)| after.layout().chunks_of(e.id.length)).sum();
            prop_assert_eq!(after.room().used_chunks, used);
            if done {
                prop_assert!(step > 40 && !there.contains(&0), "some were pushed out");
                break;
            }
        }
    }
}

#[test]
fn an_object_is_found_after_the_next_start_and_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = Arc::new(Image::create(&path, layout()).unwrap());
    assert!(matches!(Image::open(&path, Use::Read), Err(ImageError::Busy)));
    let slot = put(&image, &body(4), false).unwrap();
    let entry = image.table().entry(slot).unwrap();
    assert!(read(&image, slot, &entry) == body(4));
    let mut writer = Writer::begin(&image, 3, HashKind::Sha512, false).unwrap();
    writer.write(b"abc").unwrap();
    assert!(matches!(writer.write(b"d"), Err(ImageError::Wrong(_))), "more than announced");
    assert!(matches!(writer.finish(Some(&name(1)), Described::default()), Err(ImageError::Wrong(_))));
    let short = Writer::begin(&image, 3, HashKind::Sha512, false).unwrap();
    assert!(matches!(short.finish(None, Described::default()), Err(ImageError::Wrong(_))));
    assert_eq!(image.room().objects, 1);
    assert!(matches!(
        Writer::begin(&image, 300_000, HashKind::Sha256, true),
        Err(ImageError::NoRoom(300_000))
    ));
    assert_eq!(image.room().objects, 1, "what cannot fit pushes nothing out");
    drop(image);
    let image = Image::open(&path, Use::Read).unwrap();
    assert!(
        Image::open(&path, Use::Read).is_ok()
            && matches!(Image::open(&path, Use::Write), Err(ImageError::Busy))
    );
    let [root, digest] = entry.names();
    assert_eq!(image.table().find(&root), image.table().find(&digest));
    assert!(matches!(Image::create(&path, layout()), Err(ImageError::Io(_))));
}

#[test]
fn damage_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = Arc::new(Image::create(&path, layout()).unwrap());
    let [good, bad, lost] = [1, 5, 3].map(|number| put(&image, &body(number), false).unwrap());
    let at = |slot| image.layout().chunk_at(image.table().entry(slot).unwrap().first_chunk);
    image.disk().write_at(at(bad) + 40_000, b"!").unwrap();
    // A hash of a block of the other object.
    image.disk().write_at(at(lost) + hashes_at(16_385) + 32, b"!").unwrap();
    image.disk().write_at(image.layout().entry_at(9) + 3, b"!").unwrap();
    let mut damage = Vec::new();
    drop(image);
    let image = Image::open(&path, Use::Read).unwrap();
    let checked = image.check(|what| damage.push(what));
    assert_eq!((checked.objects, checked.damaged, checked.bytes), (3, 3, 1 + 90_000 + 16_385));
    assert!(matches!(&damage[0], Damage::Entry(9)));
    let objects = damage[1..].iter().map(|what| match what {
        Damage::Object(slot, _, crate::proof::ProofError::Damaged(block)) => (*slot, *block),
        other => panic!("{other:?}"),
    });
    assert_eq!(objects.collect::<Vec<_>>(), [(bad, 2), (lost, 0)], "{good} is right");
    let proof = Proof::new(&image.table().entry(bad).unwrap(), image.layout());
    assert!(proof.prove(image.disk(), 50_000..90_000, &mut Vec::new()).is_ok(), "other blocks are right");
    assert!(proof.prove(image.disk(), 49_000..50_000, &mut Vec::new()).is_err());
    File::options().write(true).open(&path).unwrap().set_len(90_000).unwrap();
    assert!(matches!(Image::open(&path, Use::Read), Err(ImageError::Short(90_000, _))));
    std::fs::write(&path, b"no image").unwrap();
    assert!(matches!(Image::open(&path, Use::Read), Err(ImageError::Layout(LayoutError::Magic))));
}

#[test]
fn nothing_is_added_where_objects_share_chunks() {
    let image = Arc::new(Image::of(Forgetful::new(blank(), usize::MAX)).unwrap());
    let slot = put(&image, &body(5), false).unwrap();
    let entry = image.table().entry(slot).unwrap();
    let other = Entry { first_chunk: entry.first_chunk + 1, ..entry };
    image.disk().write_at(layout().entry_at(9), &other.encode()).unwrap();
    let image = Arc::new(Image::of(Forgetful::new(image.disk().lock().seen.clone(), usize::MAX)).unwrap());
    assert!(matches!(put(&image, &body(1), true), Err(ImageError::Shared)));
    let mut damage = Vec::new();
    image.check(|what| damage.push(what));
    assert!(matches!(damage[..], [Damage::Shared(9, _), Damage::Object(9, ..)]), "{damage:?}");
}
