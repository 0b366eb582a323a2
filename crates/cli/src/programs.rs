//! The programs that the command consists of. Large parts are programs of their own, built only if they are
//! wanted: `anabranch lab` runs `anabranch-lab`, as git does.
//!
//! Each program knows the options of all commands that were built with it, so that help, manual pages and
//! messages are the same in every program. Each can be run by its own name too: `anabranch-lab run` is
//! `anabranch lab run`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::exit::Failure;

/// A program with commands of its own.
#[derive(Debug)]
pub struct Program {
    /// The executable: `anabranch-` and the name of its first command.
    pub name: &'static str,
    /// The feature of this package that builds it.
    pub feature: &'static str,
    /// The commands, each with a summary.
    pub commands: &'static [(&'static str, &'static str)],
}

/// The program that has all commands of no other program.
pub const MAIN: &str = "anabranch";

/// The other programs.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "anabranch-cache",
        feature: "cache",
        commands: &[(
            "cache",
            "Cache and verify what pip, apt, Nix and others fetch, from all mirrors at once",
        )],
    },
    Program {
        name: "anabranch-daemon",
        feature: "daemon",
        commands: &[(
            "daemon",
            "Keep a queue of downloads, for AriaNg, Motrix and what else speaks to aria2",
        )],
    },
    Program {
        name: "anabranch-lab",
        feature: "lab",
        commands: &[
            ("lab", "Run experiments, simulated or in the kernel: tables beside what papers report"),
            ("soak", "Try random worlds by the thousand, and see that what must hold does"),
        ],
    },
    Program {
        name: "anabranch-minicache",
        feature: "minicache",
        commands: &[(
            "minicache",
            "Serve objects by their hashes from one file, milliseconds after the start",
        )],
    },
    Program {
        name: "anabranch-kernel",
        feature: "kernel",
        commands: &[("kernel", "Coupled congestion control for the kernel's MPTCP")],
    },
    Program {
        name: "anabranch-op",
        feature: "op",
        commands: &[("op", "Run packet functions that start at once, and move while packets come")],
    },
    Program {
        name: "anabranch-proxy",
        feature: "proxy",
        commands: &[(
            "proxy",
            "Let every program use several links, towards servers that know nothing of it",
        )],
    },
    Program {
        name: "anabranch-tcp",
        feature: "tcp",
        commands: &[("tcp", "TCP and Multipath TCP of this process, on TUN devices")],
    },
    Program {
        name: "anabranch-net",
        feature: "network",
        commands: &[
            ("net", "Networks as graphs, and whole domains on this machine"),
            ("forward", "Forward packets between the lines of a node of a publish/subscribe network"),
            ("rendezvous", "Keep who publishes what in a publish/subscribe network, and tell those who ask"),
            ("topology", "Keep how the lines of a publish/subscribe network do, and hand out paths"),
        ],
    },
    Program {
        name: "anabranch-trace",
        feature: "trace",
        commands: &[("trace", "Explain a capture: which subflow carried what, when and why")],
    },
    Program {
        name: "anabranch-uplinks",
        feature: "uplinks-daemon",
        commands: &[("uplinks", "Keep several uplinks right for MPTCP while links come and go")],
    },
    Program {
        name: "anabranch-vm",
        feature: "vm",
        commands: &[("vm", "Move running machines between hosts over all links at once")],
    },
];

impl Program {
    /// Returns the program that has a command; `None` for the commands of [`MAIN`].
    #[must_use]
    pub fn of(command: &str) -> Option<&'static Self> {
        PROGRAMS.iter().find(|program| program.commands.iter().any(|(name, _)| *name == command))
    }

    /// Whether the program is beside this one or on `PATH`.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.path().is_some()
    }

    /// Returns the path of the program: beside this one, or else on `PATH`.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path =
            || std::env::split_paths(&path).map(|dir| dir.join(self.name)).find(|path| path.is_file());
        beside(self.name).or_else(on_path)
    }
}

/// Returns the path of a program in the directory of this one, if it is there.
fn beside(program: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(program);
    path.is_file().then_some(path)
}

/// Returns a command that runs a program: the one beside this one, or else the one on `PATH`.
#[must_use]
pub fn process(program: &str) -> Command {
    Command::new(beside(program).unwrap_or_else(|| program.into()))
}

/// Runs a program in place of this one. Returns only if that fails, with the reason.
pub fn exec(program: &str, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Failure {
    let error = process(program).args(words).exec();
    if error.kind() != ErrorKind::NotFound {
        return Failure::other(format!("cannot run {program}: {error}"));
    }
    let feature = PROGRAMS.iter().find(|known| known.name == program).map(|known| known.feature);
    let option = feature.map(|feature| format!(" --features {feature}")).unwrap_or_default();
    Failure::other(format!(
        "{program} is a program of its own, and is neither beside this one nor on PATH: `cargo install \
         --path crates/cli{option}` in anabranch's sources builds it; --features all builds every one"
    ))
}
