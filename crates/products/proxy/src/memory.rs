//! How much memory the trunks of a server may have together for bytes that wait: their clients
//! [share](anabranch_algo::fair_share) it. Where it is full, the client that has most gives way: of its
//! trunks the one whose bytes nobody has taken for longest resets the streams that hold the most.

use std::fs;

/// What all trunks may have, as part of the host's memory, and at least.
const PART: u64 = 8;
const BYTES_MIN: u64 = 64 << 20;

/// Bytes that all trunks may hold here.
pub(crate) fn shared_bytes() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    total.map_or(BYTES_MIN, |bytes| (bytes / PART).max(BYTES_MIN))
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"));
    kib?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_memory_is_what_the_kernel_says() {
        assert_eq!(total_bytes("MemTotal:        4039868 kB\nMemFree: 1 kB\n"), Some(4_039_868 << 10));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert!(shared_bytes() >= BYTES_MIN);
    }
}
