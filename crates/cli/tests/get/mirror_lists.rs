//! Files that servers offer beside a file must not cost more memory or time than the file itself.

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::fetch::{Ground, leaf_list, run, spawn};
use crate::peers::site::{PATH, Reply, Site, honest};
use anabranch_http::client::METADATA_BYTES;
use anabranch_mirror::leaf_list::{LeafList, head};
use anabranch_mmtp::ContentId;

const LIST: &str = "/f.bin.b3leaves";

/// Makes a server of the content that answers requests for the leaf list with `list`.
fn with_list(content: &[u8], list: impl Fn() -> Reply + Send + Sync + 'static) -> Site {
    let content = content.to_vec();
    Site::answering(move |request| match request.path.as_str() {
        PATH => honest(request, &content, "\"v1\""),
        LIST => list(),
        _ => Reply::new(404, b""),
    })
}

#[test]
fn a_leaf_list_that_is_claimed_to_be_huge_takes_no_memory() {
    const CLAIMED: u64 = 512 << 30;
    // The list is as large as a test machine can hold several times, and its head is right.
    let id = ContentId { root: [7; 32], length: CLAIMED };
    let mut list = head(&id).to_vec();
    list.resize(200 << 20, 7);
    let site = Site::answering(move |request| match request.path.as_str() {
        PATH if !request.is_for_bytes() => Reply::new(206, &[0; METADATA_BYTES as usize])
            .with("content-range", format!("bytes 0-{}/{CLAIMED}", METADATA_BYTES - 1)),
        LIST => {
            let length = LeafList::encoded_len(CLAIMED).to_string();
            Reply::new(200, &list).with("content-length", length)
        }
        _ => Reply::new(404, b""),
    });
    let ground = Ground::new(1);
    let mut running = spawn(ground.get_named(&[site.url()], &["--json"]));
    let mut peak = 0;
    while !running.has_ended() {
        peak = peak.max(running.peak_bytes().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    let done = running.end();
    assert_ne!(done.code, Some(0), "{}", done.out);
    assert!(peak > 0 && peak < 128 << 20, "{} MiB at most", peak >> 20);
}

#[test]
fn a_leaf_list_that_trickles_does_not_delay_the_start() {
    let ground = Ground::new(2_000_000);
    let list = leaf_list(&ground.content);
    let slow = with_list(&ground.content, move || Reply::new(200, &list).at(2));
    let good = Site::good(&ground.content);
    let clock = anabranch_net::Clock::start();
    let done = run(ground.get_named(&[slow.url(), good.url()], &["--json", "--timeout", "25"])).expect(0);
    let took_s = clock.now().as_nanos() / 1_000_000_000;
    ground.assert_arrived();
    assert!(done.notes().contains("comes too slowly"), "{}", done.out);
    assert!(took_s < 15, "it took {took_s} s");
}

/// An mmTP path begins a block and never answers; then the mirror brings that block too.
#[test]
fn a_dead_source_keeps_no_block_from_a_mirror_with_a_leaf_list() {
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let from = nobody.local_addr().expect("an address").to_string();
    for length in [100_000, 2_000_000] {
        let ground = Ground::new(length);
        let list = leaf_list(&ground.content);
        let site = with_list(&ground.content, move || Reply::new(200, &list));
        let id = ContentId::of(&ground.content);
        let uri = format!("anabranch:{id}?len={length}&name=f.bin");
        let args = ["--from", &from, "--json", "--timeout", "20"];
        let done = run(ground.get_named(&[uri, site.url()], &args)).expect(0);
        ground.assert_arrived();
        assert!(done.bytes_from(site.address) >= length as u64 - 16_384, "{}", done.out);
        let elapsed_s = done.summary()["last"]["elapsed_s"].as_f64().expect("a number");
        assert!(elapsed_s < 10.0, "{elapsed_s} s");
    }
}

#[test]
fn a_leaf_list_that_takes_its_time_is_used() {
    let ground = Ground::new(2_000_000);
    let list = leaf_list(&ground.content);
    // At this pace, four thousand bytes take five seconds, longer than a server may be silent.
    let site = with_list(&ground.content, move || Reply::new(200, &list).at(800));
    let done = run(ground.get_named(&[site.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    let advice = done.summary()["advice"].to_string();
    assert!(advice.contains("every 16 KiB is only compared, by hashes that"), "{}", done.out);
}
