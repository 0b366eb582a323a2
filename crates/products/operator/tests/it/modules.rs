//! Modules as they may come from anywhere: each harms itself at most.

use anabranch_function::abi::{ABI, Answer, PACKET_BYTES_MAX, Side, Verdict};
use anabranch_function::packet::echo_request;
use anabranch_net::testing;
use anabranch_operator::wasm::{FUEL_PACKET, Instance, Settings, Wasm};
use anabranch_operator::{Error, functions};

/// Settings that every function takes, at the end of those of one.
pub(crate) fn settings(of: &str) -> String {
    let more = if of == "limiter" { "rate 1M\n" } else { "" };
    format!("inside 10.1.0.1\noutside 10.2.0.1\nseed 5\n{more}")
}

/// Whether the functions were built; otherwise it says that the test is skipped.
pub(crate) fn are_built() -> bool {
    if functions::ALL.is_empty() {
        testing::skip("packet functions: Rust has no target wasm32-unknown-unknown");
    }
    !functions::ALL.is_empty()
}

fn wasm(instances_max: u32) -> Wasm {
    Wasm::new(Settings { instances_max, ..Settings::default() }).unwrap()
}

/// Makes a module that has the ABI, with this body of `anabranch_packet` and more fields.
fn module(abi: u32, packet: &str, more: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (memory (export "memory") 1)
            (data (i32.const 16) "\00\10\00\00\00\08\00\00\00\20\00\00\10\00\00\00")
            (func (export "anabranch_abi") (result i32) (i32.const {abi}))
            (func (export "anabranch_area") (result i32) (i32.const 16))
            (func (export "anabranch_start") (param i32) (result i32) (i32.const 0))
            (func (export "anabranch_report") (result i32) (i32.const 0))
            (func (export "anabranch_packet") (param i64 i32 i32) (result i32) {packet})
            {more})"#
    );
    wat::parse_str(text).unwrap()
}

fn start(wasm: &Wasm, module: &[u8]) -> Result<Instance, Error> {
    let mut instance = wasm.instantiate(&wasm.compile(module)?)?;
    instance.start(&settings(""))?;
    Ok(instance)
}

fn ask(instance: &mut Instance, bytes: &[u8]) -> Result<Answer, String> {
    let mut place = [0; PACKET_BYTES_MAX];
    place[..bytes.len()].copy_from_slice(bytes);
    instance.packet(1, Side::Inside, &mut place, bytes.len())
}

const PASS: &str = "(i32.or (i32.const 0x10000) (local.get 2))";

#[test]
fn garbage_is_no_module() {
    let wasm = wasm(4);
    for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0", &[0xff; 4_096], &[0; 2 << 20]] {
        let refused = wasm.compile(bytes).and_then(|program| wasm.instantiate(&program));
        assert!(matches!(refused, Err(Error::Usage(_))), "{} bytes", bytes.len());
    }
    for (name, module) in functions::ALL {
        // A wrong byte makes no module, or another function, which keeps to its limits.
        for at in (0..module.len()).step_by(2_003) {
            let mut other = module.to_vec();
            other[at] ^= 0x11;
            let Ok(program) = wasm.compile(&other) else { continue };
            let Ok(mut instance) = wasm.instantiate(&program) else { continue };
            let _ = instance.start(&settings(name));
            let _ = ask(&mut instance, &echo_request(1, 2, 3, 4));
            let _ = instance.report();
        }
    }
}

#[test]
fn another_abi_and_imports_are_refused() {
    let wasm = wasm(4);
    let refusal = |module: &[u8]| match start(&wasm, module) {
        Err(Error::Usage(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(start(&wasm, &module(ABI, PASS, "")).is_ok());
    assert!(refusal(&module(ABI + 1, PASS, "")).contains("ABI 2"));
    let importing = wat::parse_str(r#"(module (import "wasi" "fd_write" (func)))"#).unwrap();
    assert!(refusal(&importing).contains("imports wasi.fd_write"));
    let nothing = wat::parse_str(r#"(module (memory (export "memory") 1))"#).unwrap();
    assert!(refusal(&nothing).contains("anabranch_abi"));
    let large = wat::parse_str(r#"(module (memory (export "memory") 32))"#).unwrap();
    refusal(&large);
    // An area that leads out of the memory.
    let text = r#"(data (i32.const 16) "\00\10\00\00\00\08\00\00\00\20\00\00\00\00\00\7f")"#;
    assert!(refusal(&module(ABI, PASS, text)).contains("anabranch_area"));
}

#[test]
fn an_endless_loop_ends() {
    let wasm = wasm(4);
    let mut instance = start(&wasm, &module(ABI, "(loop $l (br $l)) (unreachable)", "")).unwrap();
    let failed = ask(&mut instance, &[0; 20]).unwrap_err();
    assert!(failed.contains("fuel"), "{failed}");
    let at_start = module(ABI, PASS, "(func $s (loop $l (br $l))) (start $s)");
    assert!(matches!(start(&wasm, &at_start), Err(Error::Usage(text)) if text.contains("fuel")));
    // One that calls itself without end uses up its stack, or its fuel.
    let deep = module(ABI, "(call $f)", "(func $f (result i32) (call $f))");
    assert!(ask(&mut start(&wasm, &deep).unwrap(), &[0; 20]).is_err());
    const { assert!(FUEL_PACKET < 1_000_000) }
}

#[test]
fn memory_has_an_end() {
    let wasm = wasm(4);
    // It takes pages until it gets none, and says how many it has.
    let greedy = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (memory.size)";
    let mut instance = start(&wasm, &module(ABI, greedy, "")).unwrap();
    assert_eq!(ask(&mut instance, &[0; 20]).unwrap(), Answer { verdict: Verdict::Drop, len: 16 });
    assert!(ask(&mut instance, &[0; 20]).is_ok());
}

#[test]
fn a_wrong_answer_ends_it() {
    let wasm = wasm(4);
    for answer in ["0x30001", "0x1ffff"] {
        let mut instance = start(&wasm, &module(ABI, &format!("(i32.const {answer})"), "")).unwrap();
        assert!(ask(&mut instance, &[0; 20]).is_err(), "{answer}");
    }
}

#[test]
fn one_more_than_there_may_be_is_refused() {
    let wasm = wasm(3);
    let module = module(ABI, PASS, "");
    let mut all: Vec<Instance> = (0..3).map(|_| start(&wasm, &module).unwrap()).collect();
    let refused = start(&wasm, &module).unwrap_err();
    assert_eq!(refused, Error::Refused("there are 3 instances here, which is the limit".into()));
    all.pop();
    assert!(start(&wasm, &module).is_ok());
}

#[test]
fn a_state_goes_to_another_instance_of_its_module_alone() {
    if !are_built() {
        return;
    }
    let wasm = wasm(8);
    let begin = |name: &str| {
        let mut instance = wasm.instantiate(&wasm.compile(functions::find(name).unwrap()).unwrap()).unwrap();
        instance.start(&settings(name)).unwrap();
        instance
    };
    for (name, _) in functions::ALL {
        let mut first = begin(name);
        let out = ask(&mut first, &echo_request(0x0a01_0002, 0x0808_0808, 7, 1)).unwrap();
        assert_eq!(out.verdict, Verdict::Pass, "{name}");
        let state = first.state().unwrap();
        let mut second = begin(name);
        assert_ne!(second.state().unwrap(), state, "{name}");
        second.set_state(&state).unwrap();
        assert_eq!(second.report().unwrap(), first.report().unwrap());
        assert!(second.report().unwrap().contains("passed 1\n"), "{name}");
        for (other, _) in functions::ALL.iter().filter(|(other, _)| other != name) {
            assert!(matches!(begin(other).set_state(&state), Err(Error::Refused(_))), "{name} to {other}");
        }
    }
    let error = wasm.instantiate(&wasm.compile(functions::find("nat44").unwrap()).unwrap()).unwrap();
    let mut nat = error;
    assert_eq!(
        nat.start("inside 10.1.0.1\nseed 1\n"),
        Err(Error::Usage("the function says: a NAT needs an outside address".into()))
    );
    assert_eq!(
        nat.start("outside 10.1.0.1\nblock 99\n"),
        Err(Error::Usage("the function says: block 99: 1 to 64 ports".into()))
    );
    let unknown = functions::find("firewal").unwrap_err().to_string();
    assert!(unknown.contains("firewall, limiter, nat44"), "{unknown}");
}
