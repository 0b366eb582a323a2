//! The web sites that the server has: pages of many objects, made from a rule.

use anabranch_algo::SplitMix64;

/// The number of sites.
pub const SITES: u32 = 12;
/// The fewest and the most objects of a page, besides the page itself.
const OBJECTS: (u64, u64) = (8, 60);
/// The least and the greatest size of an object, bytes.
const BYTES: (f64, f64) = (300.0, 300_000.0);
/// Most objects are around this size, bytes, as HTTP Archive has the median of an object.
const MEDIAN_BYTES: f64 = 8_000.0;
/// One standard deviation of the logarithm of sizes.
const SPREAD: f64 = 1.3;

/// Returns the sizes of a site's objects, bytes: the page first. The same site has the same objects always.
#[must_use]
pub fn objects(site: u32) -> Vec<u64> {
    let mut numbers = SplitMix64(u64::from(site) + 1);
    let count = OBJECTS.0 + numbers.below(OBJECTS.1 - OBJECTS.0 + 1);
    (0..=count).map(|_| size(&mut numbers)).collect()
}

/// Returns a size: its logarithm is normal, by the sum of twelve uniform numbers.
fn size(numbers: &mut SplitMix64) -> u64 {
    let sum: f64 = (0..12).map(|_| (numbers.bits() >> 11) as f64 / (1_u64 << 53) as f64).sum();
    (MEDIAN_BYTES * (SPREAD * (sum - 6.0)).exp()).clamp(BYTES.0, BYTES.1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_pages_as_the_web_has_them() {
        let mut all = Vec::new();
        for site in 0..SITES {
            let sizes = objects(site);
            assert_eq!(sizes, objects(site));
            assert!((9..=61).contains(&sizes.len()), "{}", sizes.len());
            all.extend(sizes);
        }
        all.sort_unstable();
        let (median, total) = (all[all.len() / 2], all.iter().sum::<u64>());
        assert!((5_000..12_000).contains(&median), "{median}");
        assert!((3_000_000..20_000_000).contains(&total), "{total}");
    }
}
