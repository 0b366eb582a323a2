//! What a packet costs in each function alone, without a device: as a module of WebAssembly, and compiled in.
//! `cargo run --release -p anabranch-operator --example calls`

use std::hint::black_box;

use anabranch_function::abi::{PACKET_BYTES_MAX, Side, Verdict};
use anabranch_function::function::{Function, Instance};
use anabranch_function::packet::echo_request;
use anabranch_function::{firewall::Firewall, limiter::Limiter, nat44::Nat44};
use anabranch_net::Clock;
use anabranch_operator::functions;
use anabranch_operator::wasm::{Settings, Wasm};

const PACKETS: u32 = 500_000;
/// Rounds, of which the best counts: other programs only ever make one slower.
const ROUNDS: u32 = 5;
const SETTINGS: &str = "inside 10.1.0.1\noutside 10.2.0.1\nseed 5\n";

/// Returns the packets a second of the best round; `ask` handles the packet of this number.
fn best(clock: Clock, mut ask: impl FnMut(u64)) -> f64 {
    let round = |_| {
        let begin = clock.now();
        (0..u64::from(PACKETS)).for_each(&mut ask);
        clock.now().since(begin).as_nanos()
    };
    let shortest = (0..ROUNDS).map(round).min().unwrap_or(1);
    f64::from(PACKETS) * 1e9 / shortest as f64
}

/// The packet of this number: 16 users with 8 flows each.
fn packet(number: u64, place: &mut [u8; PACKET_BYTES_MAX]) -> usize {
    let bytes = echo_request(0x0a01_0010 + (number % 16) as u32, 0x0808_0808, (number / 16 % 8) as u16, 1);
    place[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}

fn native<F: Function>(clock: Clock, settings: &str) -> f64 {
    let mut instance = Box::new(Instance::<F>::new());
    instance.start(settings).expect("settings");
    let mut place = [0; PACKET_BYTES_MAX];
    best(clock, |number| {
        let len = packet(number, &mut place);
        let answer = instance.packet(1 + number / 1_000, Side::Inside, &mut place, len);
        assert_eq!(black_box(answer).verdict, Verdict::Pass);
    })
}

fn main() -> Result<(), anabranch_operator::Error> {
    let clock = Clock::start();
    let wasm = Wasm::new(Settings { instances_max: 16, ..Settings::default() })?;
    println!(
        "| function | module, bytes | as WebAssembly | compiled into the program |\n| --- | --- | --- | --- |"
    );
    for (name, module) in functions::ALL {
        let more = if *name == "limiter" { "rate 100G\nburst 4G\n" } else { "" };
        let settings = format!("{SETTINGS}{more}");
        let mut instance = wasm.instantiate(&wasm.compile(module)?)?;
        instance.start(&settings)?;
        let mut place = [0; PACKET_BYTES_MAX];
        let module_rate = best(clock, |number| {
            let len = packet(number, &mut place);
            let answer = instance.packet(1 + number / 1_000, Side::Inside, &mut place, len);
            assert_eq!(black_box(answer).map(|answer| answer.verdict), Ok(Verdict::Pass));
        });
        let native_rate = match *name {
            "firewall" => native::<Firewall>(clock, &settings),
            "limiter" => native::<Limiter>(clock, &settings),
            _ => native::<Nat44>(clock, &settings),
        };
        let millions = |rate: f64| rate / 1e6;
        println!(
            "| `{name}` | {} | {:.1} M/s | {:.1} M/s |",
            module.len(),
            millions(module_rate),
            millions(native_rate)
        );
    }
    Ok(())
}
