//! Compiles the functions that come with anabranch to WebAssembly: the crate `function`, and a module of
//! three lines for each function. Nothing is downloaded. If Rust has no library for WebAssembly here, there
//! are no built-in functions, and the program says how to get them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "wasm32-unknown-unknown";
/// The functions: the name, and the type.
const FUNCTIONS: [(&str, &str); 3] =
    [("firewall", "firewall::Firewall"), ("limiter", "limiter::Limiter"), ("nat44", "nat44::Nat44")];
/// The stack of a module, bytes: functions have no recursion and few locals.
const STACK_BYTES: u32 = 16 << 10;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../protocols/function/src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut table = String::from("&[");
    if has_target(&rustc) {
        if let Err(reason) = build(&rustc, &out) {
            println!("cargo::error=the packet functions cannot be built: {reason}");
            std::process::exit(1);
        }
        for (name, _) in FUNCTIONS {
            let path = out.join(format!("{name}.wasm"));
            table += &format!("({name:?}, include_bytes!({path:?}) as &[u8]), ");
        }
    } else {
        println!(
            "cargo::warning=no packet functions are built in: `rustup target add {TARGET}` makes it possible"
        );
    }
    fs::write(out.join("functions.rs"), table + "]").expect("OUT_DIR can be written");
}

/// Whether Rust has a library for WebAssembly. If it has none, this looks again when rustup has changed
/// something.
fn has_target(rustc: &OsStr) -> bool {
    let said = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let Ok(said) = said else { return false };
    let library = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    if library.exists() {
        return true;
    }
    let components = library.ancestors().nth(2).map(|rustlib| rustlib.join("components"));
    if let Some(components) = components.filter(|components| components.exists()) {
        println!("cargo::rerun-if-changed={}", components.display());
    }
    false
}

fn build(rustc: &OsStr, out: &Path) -> Result<(), String> {
    let compile = |kind: &str, more: &[&str], source: &Path| {
        let mut command = Command::new(rustc);
        command.args(["--target", TARGET, "--edition=2024", "--crate-type", kind, "--cap-lints=allow"]);
        command.args(["-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1", "-Cdebuginfo=0"]);
        command.arg("-L").arg(out).arg("--out-dir").arg(out).args(more).arg(source);
        let done = command.output().map_err(|e| format!("rustc: {e}"))?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(format!("{}: {said}", source.display())) }
    };
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets no CARGO_MANIFEST_DIR")?);
    let library = here.join("../../protocols/function/src/lib.rs");
    compile("rlib", &["--crate-name=anabranch_function"], &library)?;
    let stack = format!("-Clink-arg=-zstack-size={STACK_BYTES}");
    for (name, kind) in FUNCTIONS {
        let source = out.join(format!("{name}.rs"));
        let text = format!("#![no_std]\nanabranch_function::export!(anabranch_function::{kind});\n");
        fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
        let rlib =
            format!("--extern=anabranch_function={}", out.join("libanabranch_function.rlib").display());
        compile("cdylib", &[&rlib, "-Clto=fat", "-Cstrip=symbols", &stack], &source)?;
    }
    Ok(())
}
