//! Computes a version of the code that changes with everything that can change a result: the sources of the
//! machines, the worlds and the laboratory. Results in a file carry it, so that results of other code are
//! not mistaken for results of this code. Also lists the scenarios and traces of the repository, which
//! become part of the program.

#[path = "src/digest.rs"]
#[expect(unreachable_pub, reason = "it is public in the library")]
mod digest;

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that influence a result.
const CRATES: [&str; 6] =
    ["core/algo", "protocols/mmtp", "products/lab", "worlds/kernel", "worlds/net", "worlds/sim"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let (mut files, mut whole) = (Vec::new(), true);
    for name in CRATES {
        let dir = here.join("../..").join(name).join("src");
        whole &= dir.is_dir();
        if dir.is_dir() {
            println!("cargo:rerun-if-changed={}", dir.display());
            walk(&dir, &format!("{name}/src"), &mut files);
        }
    }
    // In a package from a registry the sibling crates are missing, and the version number identifies them.
    let mut version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    if whole {
        files.sort();
        version = format!("{version}-{:016x}", hash(&files));
    }
    println!("cargo:rustc-env=ANABRANCH_CODE={version}");
    built_in(&here.join("../../../scenarios"));
}

/// Writes the tables of `src/scenario/built_in.rs`; they are empty if the scenarios are not beside the
/// crates.
fn built_in(scenarios: &Path) {
    let mut text = String::new();
    for (name, dir, end) in
        [("SCENARIOS", scenarios.to_owned(), "toml"), ("TRACES", scenarios.join("traces"), "trace")]
    {
        println!("cargo:rerun-if-changed={}", dir.display());
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|other| other == end)).collect();
        paths.sort();
        text += &format!("pub(crate) const {name}: &[(&str, &str)] = &[\n");
        for path in paths {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let path = path.canonicalize().unwrap_or(path);
            println!("cargo:rerun-if-changed={}", path.display());
            text += &format!("    ({stem:?}, include_str!({:?})),\n", path.display().to_string());
        }
        text += "];\n";
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("built_in.rs");
    fs::write(out, text).expect("the tables are written");
}

/// Lists every Rust file below `dir` as (name, path).
fn walk(dir: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), format!("{name}/{}", entry.file_name().to_string_lossy()));
        if path.is_dir() {
            walk(&path, &name, files);
        } else if name.ends_with(".rs") {
            files.push((name, path));
        }
    }
}

/// Returns the digest of names and contents.
fn hash(files: &[(String, PathBuf)]) -> u64 {
    let mut all = Vec::new();
    for (name, path) in files {
        all.extend([name.as_bytes(), &[0], &fs::read(path).unwrap_or_default(), &[0]].concat());
    }
    digest::Digest::of(&all).0
}
