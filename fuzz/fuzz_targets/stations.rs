//! Any bytes as what the kernel says of WiFi stations: no panic, and readings that no watch for fading panics
//! at.
#![no_main]

use anabranch_algo::Time;
use anabranch_algo::wifi::FadeWatch;
use anabranch_net::netlink::Station;
use anabranch_net::netlink::message::Messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (mut watch, mut now) = (FadeWatch::new(), 0);
    let bodies = Messages(bytes).map(|message| message.body).chain([bytes]);
    for station in bodies.filter_map(Station::parse) {
        now += u64::from(station.inactive_ms.unwrap_or(100)) * 1_000_000;
        watch.read(Time::from_nanos(now), station.reading());
        let _ = watch.packet_time();
    }
});
