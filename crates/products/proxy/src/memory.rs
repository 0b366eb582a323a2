//! The limit on the memory of a server's trunks for waiting bytes. Clients
//! [share](anabranch_algo::fair_share) it. If it is full, the client with the most bytes gives way: the one
//! of its trunks whose bytes have waited longest resets the streams that hold the most.

use std::fs;

/// The part of the host's memory that all trunks may use, and the least number of bytes.
const PART: u64 = 8;
const BYTES_MIN: u64 = 64 << 20;

/// Returns the number of bytes that all trunks may hold on this host.
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
