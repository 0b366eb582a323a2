//! Measures short objects: 100 × 10 KB at a round trip of 50 ms, in round trips.
//!
//! `cargo run --release -p anabranch-lab --example small_objects`

use anabranch_algo::{Rate, Span};
use anabranch_lab::small_objects;

fn main() {
    println!("|   bytes | Mbit/s | cold RTTs | warm RTTs |");
    println!("| ------: | -----: | --------: | --------: |");
    for (bytes, mbits) in
        [(1_000, 100), (10_000, 20), (10_000, 100), (50_000, 100), (100_000, 100), (1_000_000, 100)]
    {
        let times =
            small_objects::measure(100, bytes, Span::from_millis(50), Rate::from_bits(mbits * 1_000_000), 1);
        let (cold, warm) = times.medians();
        println!("| {bytes:>7} | {mbits:>6} | {cold:>9.2} | {warm:>9.2} |");
        assert_eq!(times.violations, Vec::<String>::new());
    }
}
