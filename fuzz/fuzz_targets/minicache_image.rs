//! An image of any bytes: what is read of it is read without a panic, an object whose blocks prove right
//! has the hash of its name, and an object that is added takes nothing from another one.

#![no_main]

use std::io;
use std::sync::{Arc, Mutex};

use anabranch_cache::digest::{Digest, HashKind, Hasher};
use anabranch_minicache::disk::Disk;
use anabranch_minicache::image::{Described, Image, Writer};
use anabranch_minicache::layout::{Entry, Layout, Text};
use anabranch_minicache::proof::Proof;
use anabranch_mmtp::ContentId;
use libfuzzer_sys::fuzz_target;

struct Memory(Mutex<Vec<u8>>);

impl Disk for Memory {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        let range = usize::try_from(offset).ok().and_then(|at| bytes.get(at..at.checked_add(out.len())?));
        out.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
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

/// Takes bytes from the front; zeros at the end.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let mut taken = [0; N];
    let count = bytes.len().min(N);
    taken[..count].copy_from_slice(&bytes[..count]);
    *bytes = &bytes[count..];
    taken
}

fn content(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|n| (n >> 6) as u8 ^ seed).collect()
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((superblock, _)) = bytes.split_first_chunk()
        && let Ok(layout) = Layout::parse(superblock)
    {
        assert_eq!(layout.superblock(), *superblock);
        return;
    }
    let layout = Layout::new(16, 4_096, 24).unwrap();
    let mut disk = vec![0; layout.image_bytes() as usize];
    disk[..64].copy_from_slice(&layout.superblock());
    let mut bytes = bytes;
    for slot in 0..16 {
        let [kind, seed, chunk] = take(&mut bytes);
        let at = layout.entry_at(slot) as usize;
        let entry = match kind % 4 {
            0 => continue,
            1 => take(&mut bytes),
            kind => {
                // A whole entry: of any content, or of one that is there.
                let length = u64::from_le_bytes(take(&mut bytes)) >> (seed % 64);
                let there = content(seed, length as usize % 20_000);
                let id = match kind {
                    2 => ContentId { root: take(&mut bytes), length },
                    _ => ContentId::of(&there),
                };
                let mut hasher = Hasher::new(HashKind::Sha512Of256);
                hasher.update(&there);
                let digest = if kind == 2 { Digest::Sha512(take(&mut bytes)) } else { hasher.finish() };
                let place = layout.chunk_at(u64::from(chunk % 24)) as usize;
                if kind == 3 && place + there.len() <= disk.len() {
                    disk[place..place + there.len()].copy_from_slice(&there);
                }
                let first_chunk =
                    if chunk > 240 { u64::MAX - u64::from(seed) } else { u64::from(chunk % 24) };
                let (media_type, label) = (Text::cut("a/b"), Text::default());
                Entry { generation: u64::from(seed), id, digest, first_chunk, media_type, label }.encode()
            }
        };
        disk[at..at + 256].copy_from_slice(&entry);
    }
    for (to, byte) in disk[layout.chunks_at() as usize..].iter_mut().zip(bytes) {
        *to ^= byte;
    }
    let image = Arc::new(Image::of(Memory(Mutex::new(disk))).unwrap());
    let mut right = Vec::new();
    for (slot, entry) in image.table().entries() {
        for name in entry.names() {
            let found = image.table().find(&name).expect("a whole entry is found");
            assert!(image.table().entry(found.slot).unwrap().names().contains(&name));
        }
        let proof = Proof::new(&entry, &layout);
        if proof.prove(image.disk(), 0..entry.id.length, &mut Vec::new()).is_ok() {
            let mut data = vec![0; entry.id.length as usize];
            image.disk().read_at(proof.place(0), &mut data).unwrap();
            assert_eq!(ContentId::of(&data), entry.id);
            right.push((slot, entry));
        }
    }
    let checked = image.check(|_| ());
    assert!(checked.objects >= right.len() as u64);
    let body = content(7, 17_000);
    if let Ok(mut writer) = Writer::begin(&image, body.len() as u64, HashKind::Sha256, false) {
        writer.write(&body).unwrap();
        if let Ok(slot) = writer.finish(None, Described::default()) {
            let entry = image.table().entry(slot).unwrap();
            right.push((slot, entry));
        }
        for (slot, entry) in right {
            assert_eq!(image.table().entry(slot), Some(entry));
            Proof::new(&entry, &layout).prove(image.disk(), 0..entry.id.length, &mut Vec::new()).unwrap();
        }
    }
});
