//! How tests of all crates say that they do not run here: one way, so that it can be counted.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::capabilities::{self, CAP_NET_ADMIN, CAP_SYS_ADMIN};

/// The variable that names the file in which skips are counted, a line each: `.ci/run` sets it.
const COUNTED_IN: &str = "ANABRANCH_SKIPPED";

/// Says that a test, or a part of one, is skipped, and what is missing: a right, a program, a part of the
/// kernel. It is seen even where the output of tests that pass is swallowed.
pub fn skip(why: impl Display) {
    let line = format!("skipped: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os(COUNTED_IN) {
        let file = fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Skips a test because the kernel refused a namespace, a device or a program.
///
/// # Panics
/// If this process has the privileges that it takes: then something is wrong, and a test that passed
/// would hide it.
pub fn refused(why: impl Display) {
    assert!(!is_privileged(), "this process is privileged, so this is an error and no reason to skip: {why}");
    skip(why);
}

/// The same for what needs TUN devices, which a kernel may lack.
///
/// # Panics
/// As [`refused`], if the kernel has them.
pub fn refused_device(why: impl Display) {
    match Path::new("/dev/net/tun").exists() {
        true => refused(why),
        false => skip(why),
    }
}

/// Whether this process may make namespaces and devices, and load eBPF.
#[must_use]
pub fn is_privileged() -> bool {
    capabilities::has(&[CAP_NET_ADMIN, CAP_SYS_ADMIN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_an_error_for_who_has_the_privileges() {
        let panicked = std::panic::catch_unwind(|| refused("a test of refusals, not a refusal")).is_err();
        assert_eq!(panicked, is_privileged());
    }
}
