//! Reads a whole image and compares everything with its hashes.

use super::opened::Image;
use crate::disk::Disk;
use crate::layout::Entry;
use crate::proof::{Proof, ProofError};

/// The bytes that are compared at once.
const STEP_BYTES: u64 = 1 << 20;

/// Damage that was found.
#[derive(Debug)]
pub enum Damage {
    /// A slot has bytes that are no entry: it is treated as empty.
    Entry(u32),
    /// An object is not found by its names, because the index is crowded there.
    Hidden(u32, Box<Entry>),
    /// An object shares chunks with the one before it in the image.
    Shared(u32, Box<Entry>),
    /// Bytes of an object are not what was written, or cannot be read.
    Object(u32, Box<Entry>, ProofError),
}

/// The result of reading all of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of things that are damaged.
    pub damaged: u64,
}

impl<D: Disk> Image<D> {
    /// Reads all entries and all objects, and compares them with their hashes. Tells `told` what is damaged.
    pub fn check(&self, mut told: impl FnMut(Damage)) -> Checked {
        let mut checked = Checked::default();
        let mut tell = |checked: &mut Checked, damage| {
            checked.damaged += 1;
            told(damage);
        };
        for slot in (0..self.layout().entries()).filter(|slot| self.table().is_damaged(*slot)) {
            tell(&mut checked, Damage::Entry(slot));
        }
        let mut objects: Vec<(u32, Entry)> = self.table().entries().collect();
        objects.sort_by_key(|(_, entry)| entry.first_chunk);
        let (mut end, mut buffer) = (0, Vec::new());
        for (slot, entry) in objects {
            checked.objects += 1;
            checked.bytes += entry.id.length;
            if entry.first_chunk < end {
                tell(&mut checked, Damage::Shared(slot, Box::new(entry)));
            }
            end = end.max(entry.first_chunk + self.layout().chunks_of(entry.id.length));
            if entry.names().iter().any(|name| self.table().find(name).is_none()) {
                tell(&mut checked, Damage::Hidden(slot, Box::new(entry)));
            }
            let proof = Proof::new(&entry, self.layout());
            let steps = (0..entry.id.length.max(1)).step_by(STEP_BYTES as usize);
            let proven = steps.into_iter().try_for_each(|at| {
                let range = at..(at + STEP_BYTES).min(entry.id.length);
                proof.prove(self.disk(), range, &mut buffer)
            });
            if let Err(error) = proven {
                tell(&mut checked, Damage::Object(slot, Box::new(entry), error));
            }
        }
        checked
    }
}
