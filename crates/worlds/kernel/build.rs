//! Compiles the controllers for the kernel: `algo`'s Rust and a file of C become one eBPF object.
//!
//! ```text
//!  library/core ─ rustc --emit=metadata ─▶ libcore.rmeta ────────────┐
//!  algo/src/{control,softfloat,split_mix,units}.rs, {bpf_abi,lib}.rs ┴ rustc --emit=asm ▶ .s ─ clang ▶ .o ┐
//!  controllers.bpf.c, bpf_abi.h ───────────────────────────────────── clang ────────────▶ .o ─────────────┴▶
//! ```
//!
//! Two files are written here, from `bpf_abi.rs` and so from `algo`'s table: `functions.rs`, what the
//! programs call, and `bpf_abi.h`, what C must know.
//!
//! Rust has eBPF as a target without a prebuilt library and without a linker. Of the library nothing is
//! needed but its metadata, as all of it is inlined; and clang assembles what rustc writes.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=ebpf");
    #[cfg(feature = "ebpf")]
    if let Err(reason) = ebpf::build() {
        println!("cargo::error=the controllers for the kernel cannot be built: {reason}");
        std::process::exit(1);
    }
}

#[cfg(feature = "ebpf")]
#[path = "ebpf/bpf_abi.rs"]
#[allow(dead_code, unreachable_pub, reason = "only its numbers and layouts are asked for")]
mod bpf_abi;

#[cfg(feature = "ebpf")]
mod ebpf {
    use std::mem::offset_of;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{env, fs};

    use anabranch_algo::control::SubflowStats;

    use super::bpf_abi::{
        AnbRule, AnbSlot, AnbStep, ENTRIES, GROUP_APART, Op, RULE_ADDRESS, RULE_ALL, RULE_CONNECTION,
        RULE_INTERFACE, SLOTS, SSTHRESH_INFINITE, STATE_WORDS,
    };

    const TARGET: &str = "bpfel-unknown-none";
    /// Atomics and 32-bit operations: kernels from 5.12.
    const CPU: &str = "v3";
    /// Of `algo`, what a controller consists of.
    const ALGO_SOURCES: [&str; 5] = ["control", "control.rs", "softfloat.rs", "split_mix.rs", "units.rs"];
    /// What a controller's functions are called for: `NAME_init`.
    const OPS: [(Op, &str); 4] =
        [(Op::Init, "init"), (Op::Ack, "ack"), (Op::Congestion, "congestion"), (Op::SetWindow, "set_window")];
    /// LLVM: inline everything, as eBPF can neither return nor pass a struct; and unroll the loops over the
    /// places of a connection, whose bounds the verifier cannot always find in what is left of them.
    const LLVM_OPTIONS: [&str; 5] = [
        "-Cllvm-args=-inline-threshold=1000000",
        "-Cllvm-args=-inlinecold-threshold=1000000",
        "-Cllvm-args=-inline-cold-callsite-threshold=1000000",
        "-Cllvm-args=-locally-hot-callsite-threshold=1000000",
        "-Cllvm-args=-unroll-threshold=20000",
    ];

    pub(super) fn build() -> Result<(), String> {
        let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?);
        let here =
            PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets no CARGO_MANIFEST_DIR")?);
        let algo = here.join("../../core/algo/src");
        println!("cargo::rerun-if-changed={}", algo.display());
        println!("cargo::rerun-if-env-changed=CLANG");

        let sources = out.join("ebpf");
        let _ = fs::remove_dir_all(&sources);
        for part in ALGO_SOURCES {
            copy(&algo.join(part), &sources.join(part))?;
        }
        for file in ["lib.rs", "bpf_abi.rs"] {
            copy(&here.join("ebpf").join(file), &sources.join(file))?;
        }
        write(&sources.join("functions.rs"), &functions())?;
        write(&out.join("bpf_abi.h"), &header())?;
        core(&out)?;
        let assembly = out.join("controllers.s");
        rustc(&out)
            .args([
                "--crate-name=anabranch_algo",
                "--crate-type=cdylib",
                "--emit=asm",
                "-Copt-level=2",
                "-Cdebuginfo=2",
            ])
            .args(["-Ccodegen-units=1", "-Zfunction-sections=no", "-Zinline-mir-threshold=100000"])
            .args(["-Zinline-mir-hint-threshold=100000", "--cap-lints=allow"])
            .args(LLVM_OPTIONS)
            .arg("--extern=core=libcore.rmeta")
            .arg("-o")
            .arg(&assembly)
            .arg(sources.join("lib.rs"))
            .check("rustc")?;
        let text = fs::read_to_string(&assembly).map_err(|e| format!("{}: {e}", assembly.display()))?;
        write(&assembly, &portable_assembly(&text))?;

        let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
        let clang = |from: &Path, to: &str| {
            let to = out.join(to);
            let mut command = Command::new(&clang);
            command.args(["--target=bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-c"]).arg(from);
            command
                .arg("-I")
                .arg(&out)
                .arg("-o")
                .arg(&to)
                .check("clang (Debian: apt-get install clang)")
                .map(|()| to)
        };
        let rust = clang(&assembly, "rust.o")?;
        let c = clang(&here.join("ebpf/controllers.bpf.c"), "c.o")?;
        let object = out.join("controllers.bpf.o");
        let link = || -> libbpf_rs::Result<()> {
            let mut linker = libbpf_rs::Linker::new(&object)?;
            linker.add_file(&c)?;
            linker.add_file(&rust)?;
            linker.link()
        };
        link().map_err(|e| format!("libbpf's linker: {e}"))
    }

    /// What the programs call: a function for each step of each controller. One for all steps would have
    /// every program take along, and the verifier look at, what only the others need.
    fn functions() -> String {
        let mut text = "use crate::bpf_abi::{self, AnbStep, Op};\n".to_owned();
        for entry in ENTRIES {
            for (op, name) in OPS {
                let of = entry.linux;
                text += &format!(
                    "#[unsafe(no_mangle)]\nextern \"C\" fn {of}_{name}(step: *mut AnbStep) -> u32 {{\n    \
                     bpf_abi::{of}(step, Op::{op:?} as u32)\n}}\n"
                );
            }
        }
        text
    }

    /// What C must know.
    fn header() -> String {
        let numbers = [
            ("SLOTS", SLOTS as u32),
            ("STATE_WORDS", STATE_WORDS as u32),
            ("SSTHRESH_INFINITE", SSTHRESH_INFINITE),
            ("RULE_ADDRESS", RULE_ADDRESS),
            ("RULE_INTERFACE", RULE_INTERFACE),
            ("RULE_CONNECTION", RULE_CONNECTION),
            ("RULE_ALL", RULE_ALL),
            ("GROUP_APART", GROUP_APART),
        ];
        let mut text = String::new();
        for (name, number) in numbers {
            text += &format!("#define {name} {number}u\n");
        }
        for (op, name) in OPS {
            text += &format!("#define OP_{} {}u\n", name.to_uppercase(), op as u32);
        }
        text += "#define CONTROLLERS";
        for entry in ENTRIES {
            text += &format!(" CONTROLLER({})", entry.linux);
        }
        text += "\n#define ASSERT_LAYOUTS";
        let mut assert = |what: String, bytes: usize| {
            text += &format!(" _Static_assert({what} == {bytes}, \"as in bpf_abi.rs\");");
        };
        macro_rules! layouts {
            ($($type:ident { $($field:ident)+ })+) => { $(
                assert(concat!("sizeof(struct ", stringify!($type), ")").into(), size_of::<$type>());
                $(assert(
                    concat!("__builtin_offsetof(struct ", stringify!($type), ", ", stringify!($field), ")")
                        .into(),
                    offset_of!($type, $field),
                );)+
            )+ };
        }
        layouts! {
            SubflowStats {
                cwnd srtt slow_start loss_interval phase_at packets_between_losses peak
            }
            AnbStep {
                state now_ns srtt_ns rtt_ns min_rtt_ns acked round cwnd_limited recovering cause cwnd
                ssthresh n me slow_start members mine
            }
            AnbSlot { owner cookie at_ns group token stats }
            AnbRule { netns kind selector unused }
        }
        text + "\n"
    }

    /// The metadata of the library's core for the target, made anew for each compiler.
    fn core(out: &Path) -> Result<(), String> {
        let version = run(Command::new(compiler()).arg("-vV"), "rustc")?;
        let stamp = out.join("core.version");
        if fs::read_to_string(&stamp).is_ok_and(|old| old == version) {
            return Ok(());
        }
        let sysroot = run(Command::new(compiler()).arg("--print=sysroot"), "rustc")?;
        let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if !source.exists() {
            return Err(format!(
                "the sources of Rust's library are not installed ({}): rustup component add rust-src",
                source.display()
            ));
        }
        rustc(out)
            .args(["--crate-name=core", "--crate-type=rlib", "--emit=metadata", "-Copt-level=3"])
            .args(["-Zforce-unstable-if-unmarked", "-Zalways-encode-mir", "--cap-lints=allow"])
            .arg(source)
            .check("rustc, for the library's core")?;
        // Every crate wants this one, which has what neither eBPF nor these controllers use.
        let nothing = out.join("compiler_builtins.rs");
        let text = "#![feature(no_core, compiler_builtins)]\n#![no_core]\n#![compiler_builtins]\n";
        write(&nothing, text)?;
        rustc(out)
            .args(["--crate-name=compiler_builtins", "--crate-type=rlib", "--emit=metadata"])
            .args(["-Zforce-unstable-if-unmarked", "--cap-lints=allow"])
            .arg(nothing)
            .check("rustc")?;
        write(&stamp, &version)
    }

    /// What clang's assembler does not know of newer LLVMs' text, and the panic handler's name, which nobody
    /// calls and the linker would ask for.
    fn portable_assembly(assembly: &str) -> String {
        let mut text = String::with_capacity(assembly.len());
        for line in assembly.lines() {
            let word = |prefix: &str| line.trim_start().strip_prefix(prefix);
            if [".globl", ".hidden", ".weak"].iter().any(|d| word(d).is_some_and(|n| n.contains("_R"))) {
                continue;
            }
            // "r1 = w2", zero extension, is the same instruction as "w1 = w2".
            let moved = word("r").and_then(|rest| rest.split_once(" = w")).filter(|(to, from)| {
                let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                number(to) && number(from)
            });
            match moved {
                Some((to, from)) => text.push_str(&format!("\tw{to} = w{from}")),
                None => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }

    fn compiler() -> std::ffi::OsString {
        env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
    }

    /// The compiler, for the target. Its unstable options do not depend on the channel.
    fn rustc(out: &Path) -> Command {
        let mut command = Command::new(compiler());
        command.current_dir(out).env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTFLAGS");
        command.args(["--edition=2024", "-Zunstable-options", "-Cpanic=abort", "-L."]);
        command.arg(format!("--target={TARGET}")).arg(format!("-Ctarget-cpu={CPU}"));
        command
    }

    trait Check {
        fn check(&mut self, what: &str) -> Result<(), String>;
    }

    impl Check for Command {
        fn check(&mut self, what: &str) -> Result<(), String> {
            run(self, what).map(|_| ())
        }
    }

    fn run(command: &mut Command, what: &str) -> Result<String, String> {
        let output = command.output().map_err(|e| format!("{what} cannot be run: {e}"))?;
        if !output.status.success() {
            return Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn write(path: &Path, text: &str) -> Result<(), String> {
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn copy(from: &Path, to: &Path) -> Result<(), String> {
        let wrong = |e: std::io::Error| format!("{}: {e}", from.display());
        if from.is_dir() {
            fs::create_dir_all(to).map_err(wrong)?;
            for entry in fs::read_dir(from).map_err(wrong)? {
                let name = entry.map_err(wrong)?.file_name();
                copy(&from.join(&name), &to.join(&name))?;
            }
            return Ok(());
        }
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).map_err(wrong)?;
        }
        fs::copy(from, to).map(|_| ()).map_err(wrong)
    }
}
