//! Compiles the functions that come with anabranch to WebAssembly: the crate `function`, and a module of
//! three lines for each function. Nothing is downloaded. If Rust has no library for WebAssembly here, there
//! are no built-in functions, and the program says how to get them.

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
    let mut table = String::from("&[");
    match build(&out) {
        Ok(()) => {
            for (name, _) in FUNCTIONS {
                let path = out.join(format!("{name}.wasm"));
                table += &format!("({name:?}, include_bytes!({path:?}) as &[u8]), ");
            }
        }
        Err(reason) => println!("cargo::warning=no packet functions are built in: {reason}"),
    }
    fs::write(out.join("functions.rs"), table + "]").expect("OUT_DIR can be written");
}

fn build(out: &Path) -> Result<(), String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(&rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let library = said.map_err(|e| e.to_string())?.stdout;
    let library = PathBuf::from(String::from_utf8_lossy(&library).trim());
    println!("cargo::rerun-if-changed={}", library.display());
    if !library.exists() {
        return Err(format!("`rustup target add {TARGET}` brings what they need"));
    }
    let compile = |kind: &str, more: &[&str], source: &Path| {
        let mut command = Command::new(&rustc);
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
