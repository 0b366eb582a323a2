//! How much of a guest's memory is in use: what QEMU sends in its first pass. QEMU does not say it, so
//! pages of its process are looked at (proc(5), `smaps` and `mem`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use crate::model::PAGE;

/// The most pages that are looked at.
const SAMPLE_MAX: u64 = 16_384;
/// The pages that are read at once.
const RUN: u64 = 4;

/// Returns the bytes of a guest's memory that hold anything but zeros, by a sample of the memory of its QEMU;
/// `None` if this process may not look at it, or finds no memory of this size.
#[must_use]
pub fn used_bytes(pid: i32, memory_bytes: u64) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let (start, len) = maps.lines().filter_map(range).find(|(_, len)| *len == memory_bytes)?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let pages = len / PAGE;
    let runs = (pages / RUN).clamp(1, SAMPLE_MAX / RUN);
    let (mut seen, mut used) = (0, 0);
    let mut bytes = vec![0; (RUN * PAGE) as usize];
    for run in 0..runs {
        // Runs are spread evenly; what guests keep has no period of its own at this scale.
        let first = pages * run / runs;
        if memory.read_exact_at(&mut bytes, start + first * PAGE).is_err() {
            continue;
        }
        for page in bytes.chunks_exact(PAGE as usize) {
            seen += 1;
            used += u64::from(page.iter().any(|byte| *byte != 0));
        }
    }
    (seen > 0).then(|| {
        u64::try_from(u128::from(memory_bytes) * u128::from(used) / u128::from(seen as u64)).unwrap_or(0)
    })
}

/// Returns the beginning and the length of a mapping, of a line of `maps`.
fn range(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
    Some((from, to.checked_sub(from)?))
}

/// Returns the memory of this host that programs can still have, bytes (proc(5), `MemAvailable`).
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_used_part_of_a_memory_of_our_own_is_found() {
        // A mapping of a size that no other one of this process has.
        let len = (32 << 20) + 7 * PAGE as usize;
        let mut memory = vec![0_u8; len];
        memory[..len / 4].fill(1);
        // The allocator adds a page in front of so large a block.
        let size = fs::read_to_string("/proc/self/maps").unwrap();
        let address = memory.as_ptr() as u64;
        let is_it = |(start, len): &(u64, u64)| (*start..start + len).contains(&address);
        let (_, size) = size.lines().filter_map(range).find(is_it).unwrap();
        let used = used_bytes(std::process::id() as i32, size).unwrap();
        let share = used as f64 / len as f64;
        assert!((0.2..0.3).contains(&share), "{share}");
        assert_eq!(used_bytes(std::process::id() as i32, 12_345), None);
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
