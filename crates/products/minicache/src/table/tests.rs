use std::sync::Mutex;

use anabranch_cache::digest::Digest;
use anabranch_mmtp::ContentId;

use super::*;
use crate::layout::Text;

/// A disk in memory.
struct Memory(Mutex<Vec<u8>>);

impl Disk for Memory {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn layout(entries: u32) -> Layout {
    Layout::new(entries, 4_096, u64::from(entries)).unwrap()
}

fn empty(entries: u32) -> Memory {
    Memory(Mutex::new(vec![0; layout(entries).chunks_at() as usize]))
}

fn entry(number: u32) -> Entry {
    let hash = *blake3::hash(&number.to_le_bytes()).as_bytes();
    Entry {
        generation: u64::from(number) + 1,
        id: ContentId { root: *blake3::hash(&hash).as_bytes(), length: u64::from(number) },
        digest: if number.is_multiple_of(2) { Digest::Sha256(hash) } else { Digest::Sha512Of256(hash) },
        first_chunk: u64::from(number),
        media_type: Text::default(),
        label: Text::default(),
    }
}

#[test]
fn a_full_table_finds_every_object_by_both_names_and_nothing_else() {
    const ENTRIES: u32 = 4_096;
    let disk = empty(ENTRIES);
    for slot in 0..ENTRIES {
        disk.write_at(layout(ENTRIES).entry_at(slot), &entry(slot).encode()).unwrap();
    }
    let table = Table::read(&disk, layout(ENTRIES)).unwrap();
    for slot in 0..ENTRIES {
        let entry = entry(slot);
        for name in entry.names() {
            // The second time its check is not made again.
            for _ in 0..2 {
                let found = table.find(&name).expect("it is there");
                assert_eq!((found.slot, found.length), (slot, u64::from(slot)));
            }
        }
        let other_kind = match entry.digest {
            Digest::Sha256(hash) => Digest::Sha512Of256(hash),
            Digest::Sha512Of256(hash) => Digest::Sha256(hash),
            Digest::Sha512(_) => unreachable!(),
        };
        assert_eq!(table.find(&Name::Digest(other_kind)), None, "the same bytes of another hash");
        let mut root = entry.id.root;
        root[31] ^= 1;
        assert_eq!(table.find(&Name::Root(root)), None, "the whole name is compared");
    }
}

#[test]
fn a_torn_entry_is_empty_and_hides_no_other() {
    let (disk, layout) = (empty(16), layout(16));
    let good = entry(3);
    let mut torn = good.encode();
    torn[130] = 1;
    disk.write_at(layout.entry_at(0), &torn).unwrap();
    disk.write_at(layout.entry_at(1), &good.encode()).unwrap();
    let table = Table::read(&disk, layout).unwrap();
    assert_eq!(table.find(&good.names()[1]).map(|found| found.slot), Some(1));
    assert_eq!((table.is_damaged(0), table.is_damaged(1), table.is_damaged(2)), (true, false, false));
}

#[test]
fn a_slot_in_use_is_not_closed_and_a_closed_one_is_not_used() {
    let table = Table::read(&empty(16), layout(16)).unwrap();
    let (old, new) = (entry(3), entry(5));
    table.insert(7, &old).unwrap();
    let found = table.find(&old.names()[0]).unwrap();
    assert!(table.pin(&found));
    assert_eq!(table.pinned(&found), Some(old));
    assert!(!table.close(7), "an answer uses it");
    table.unpin(7);
    table.count_hit(7, 9);
    assert_eq!(table.uses(7), Use { hits: 1, bytes: 0, last_s: 9 });
    assert!(table.close(7));
    assert_eq!(table.find(&old.names()[0]), None);
    assert!(!table.pin(&found), "it is closed");
    table.clear(7);
    assert!(!table.pin(&found), "it is empty");
    table.insert(7, &new).unwrap();
    assert!(!table.pin(&found), "it is another one");
    assert_eq!(table.uses(7), Use::default());
    let found = table.find(&new.names()[1]).unwrap();
    assert!(table.pin(&found));
    assert_eq!(table.pinned(&found), Some(new));
}

#[test]
fn objects_come_and_go_for_ever() {
    let table = Table::read(&empty(16), layout(16)).unwrap();
    for number in 0..20_000 {
        let slot = number % 16;
        if number >= 16 {
            let old = Entry { first_chunk: 0, ..entry(number - 16) };
            assert_eq!(table.find(&old.names()[0]).map(|found| found.slot), Some(slot), "{number}");
            assert!(table.close(slot));
            table.clear(slot);
        }
        table.insert(slot, &Entry { first_chunk: 0, id: sized(number), ..entry(number) }).unwrap();
    }
}

fn sized(number: u32) -> ContentId {
    ContentId { length: 0, ..entry(number).id }
}
