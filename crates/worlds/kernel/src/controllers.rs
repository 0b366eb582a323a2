//! Loads controllers into the running kernel as congestion controls, and unloads them.
//!
//! ```text
//!  /sys/fs/bpf/anabranch/NAME/link          keeps NAME registered, without any process
//!  /sys/fs/bpf/anabranch/NAME/connections   the numbers that the subflows of its connections publish
//!  /sys/fs/bpf/anabranch/groups             which subflows share a bottleneck; for all controllers
//! ```
//!
//! Nothing else is stored. Removing the link of a controller takes the controller off the kernel's list.
//! Sockets that use the controller keep it until they close.

mod pins;

pub use crate::controller_table::{CONTROLLERS, Controller, PIN_DIR, Program};

use std::path::Path;
use std::{fs, io};

use anabranch_net::capabilities::{self, CAP_NET_ADMIN};
use anabranch_net::private_file::{Access, PrivateDir};

use crate::error::refused;
use crate::{Error, Result};

/// The file in which the kernel describes its types.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const MPTCP: &str = "/proc/sys/net/mptcp/enabled";

/// Lists the congestion controls that sockets of this network namespace can choose.
///
/// # Errors
/// If /proc cannot be read.
pub fn available() -> io::Result<Vec<String>> {
    Ok(fs::read_to_string(AVAILABLE)?.split_whitespace().map(Into::into).collect())
}

/// Returns the controllers of [`CONTROLLERS`] that are loaded.
#[must_use]
pub fn loaded() -> Vec<&'static Controller> {
    CONTROLLERS.iter().filter(|controller| controller.is_loaded()).collect()
}

/// Returns the name under which this kernel has a controller of `algo`'s table now, if it has it. For `reno`
/// and `cubic` this is the kernel's own controller, for every other name ours, which must be loaded.
///
/// # Errors
/// If /proc cannot be read.
pub fn linux_name(name: &str) -> io::Result<Option<String>> {
    let available = available()?;
    let own = matches!(name, "reno" | "cubic").then_some(name);
    let name = own.or_else(|| CONTROLLERS.iter().find(|c| c.name == name).map(|c| c.linux));
    Ok(name.filter(|name| available.iter().any(|other| other == name)).map(Into::into))
}

/// Whether MPTCP is switched on in the calling thread's network namespace; `None` if the kernel has no MPTCP.
#[must_use]
pub fn mptcp() -> Option<bool> {
    fs::read_to_string(MPTCP).ok().map(|text| text.trim() != "0")
}

/// Whether this process may see the pins. If it may not, all controllers seem to be absent.
#[must_use]
pub fn can_see_pins() -> bool {
    !matches!(fs::metadata(PIN_DIR), Err(e) if e.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the programs of a controller that the kernel has. The list is empty if this process may not ask.
#[must_use]
pub fn programs(controller: &Controller) -> Vec<Program> {
    #[cfg(feature = "ebpf")]
    return crate::bpf_object::programs(controller);
    #[cfg(not(feature = "ebpf"))]
    {
        let _ = controller;
        Vec::new()
    }
}

/// Where a controller is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The controller is not loaded, as far as this process may see.
    Absent,
    /// The controller is loaded, and this process sees its pins.
    Here,
    /// The controller is loaded, but its pins are in the `/sys/fs/bpf` of another mount namespace.
    Elsewhere,
}

/// Finds out where a controller is loaded, given the list that [`available`] returned. If this process may
/// see neither pins nor programs, the controller seems absent.
#[must_use]
pub fn presence(controller: &Controller, available: &[String]) -> Presence {
    if controller.is_loaded() {
        return Presence::Here;
    }
    // The listed name alone proves nothing, because another module may have it. So look for our programs.
    let listed = available.iter().any(|name| name == controller.linux);
    if listed && !programs(controller).is_empty() { Presence::Elsewhere } else { Presence::Absent }
}

/// Options of [`load`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Loads the controller even without MPTCP, when there are no subflows to couple.
    pub tcp: bool,
    /// Shows the messages of the kernel's verifier on standard error.
    pub verbose: bool,
}

/// Registers either all these controllers in the kernel, or none. They stay until [`unload`], even if this
/// process ends.
///
/// # Errors
/// If anything prevents the loading; then nothing is left behind.
pub fn load(controllers: &[&'static Controller], options: Options) -> Result<()> {
    preflight(controllers, options)?;
    mount_bpffs()?;
    for controller in controllers {
        // These pins are of a `load` that was killed: preflight found none of these controllers loaded.
        let _ = fs::remove_dir_all(controller.pin_dir());
    }
    #[cfg(feature = "ebpf")]
    return crate::bpf_object::load(controllers, options.verbose);
    #[cfg(not(feature = "ebpf"))]
    Err(Error::NotBuilt)
}

/// Checks that this build has the programs that it loads.
///
/// # Errors
/// [`Error::NotBuilt`] if it has not.
pub const fn is_built() -> Result<()> {
    if cfg!(feature = "ebpf") { Ok(()) } else { Err(Error::NotBuilt) }
}

/// Checks that this process may load controllers.
///
/// # Errors
/// [`Error::NotBuilt`], which no privilege mends, before [`Error::Permission`].
pub fn may_load() -> Result<()> {
    is_built()?;
    allowed("cannot load congestion control")
}

/// Checks that this process may unload controllers.
///
/// # Errors
/// [`Error::Permission`] if it may not.
pub fn may_unload() -> Result<()> {
    allowed("cannot unload congestion control")
}

/// Checks that pins made by this process stay when the process ends.
///
/// # Errors
/// [`Error::PrivateSys`] if they would not.
pub fn pins_last() -> Result<()> {
    if pins::are_lasting() { Ok(()) } else { Err(Error::PrivateSys) }
}

/// Says why there is nothing to unload of a controller that has no pins here.
#[must_use]
pub fn unpinned(controller: &Controller) -> Error {
    match presence(controller, &available().unwrap_or_default()) {
        Presence::Elsewhere if !pins::are_lasting() => Error::PrivateSys,
        Presence::Elsewhere => Error::PinnedElsewhere(controller.name.into()),
        Presence::Absent | Presence::Here => Error::NotLoaded(controller.name.into()),
    }
}

/// Takes controllers off the kernel's list, including those left by a `load` that was killed. Sockets that
/// use such a controller keep it until they close.
///
/// # Errors
/// If one of them is not loaded, or its pins cannot be removed.
pub fn unload(controllers: &[&'static Controller]) -> Result<()> {
    for controller in controllers {
        let pins = controller.pin_dir();
        match fs::remove_dir_all(&pins) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(unpinned(controller));
            }
            Err(e) => return Err(refused(&format!("cannot remove {}", pins.display()), &e)),
        }
    }
    wait_until_unlisted(controllers);
    Ok(())
}

/// Waits until the kernel no longer lists these controllers, for about a second at most.
fn wait_until_unlisted(controllers: &[&'static Controller]) {
    for _ in 0..100 {
        let listed = available().unwrap_or_default();
        if !controllers.iter().any(|controller| listed.iter().any(|name| name == controller.linux)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Removes all controllers, including half-loaded ones, and the rules for groups.
///
/// # Errors
/// If something cannot be removed.
pub fn unload_all() -> Result<()> {
    let controllers = loaded();
    let removed = match fs::remove_dir_all(PIN_DIR) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(refused(&format!("cannot remove {PIN_DIR}"), &e))
        }
        _ => Ok(()),
    };
    wait_until_unlisted(&controllers);
    removed
}

/// Checks everything that can be checked before anything is loaded.
fn preflight(controllers: &[&'static Controller], options: Options) -> Result<()> {
    may_load()?;
    pins_last()?;
    if !Path::new(BTF_PATH).exists() {
        return Err(Error::NoBtf);
    }
    if !options.tcp {
        match mptcp() {
            None => return Err(Error::NoMptcp),
            Some(false) => return Err(Error::MptcpOff),
            Some(true) => {}
        }
    }
    let available = available().map_err(|e| refused(&format!("cannot read {AVAILABLE}"), &e))?;
    for controller in controllers {
        match presence(controller, &available) {
            Presence::Here => return Err(Error::Loaded(controller.name.into())),
            Presence::Elsewhere => return Err(Error::PinnedElsewhere(controller.name.into())),
            Presence::Absent if available.iter().any(|name| name == controller.linux) => {
                return Err(Error::Taken(controller.linux.into()));
            }
            Presence::Absent => {}
        }
    }
    Ok(())
}

// capabilities(7)
const PERFMON: u32 = 38;
const BPF: u32 = 39;

fn allowed(attempt: &str) -> Result<()> {
    match nix::unistd::geteuid().is_root() || capabilities::has(&[CAP_NET_ADMIN, PERFMON, BPF]) {
        true => Ok(()),
        false => Err(Error::Permission(attempt.into())),
    }
}

/// Whether this process may see which subflows belong to the same connection.
#[must_use]
pub fn may_see_subflows() -> bool {
    capabilities::has(&[CAP_NET_ADMIN])
}

/// Makes sure that the directory for pins exists, and that no other user can write to it.
fn mount_bpffs() -> Result<()> {
    use nix::mount::{MsFlags, mount};
    let place = pins::BPFFS;
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.split(' ').nth(1) == Some(place)) {
        // Without `mode=700`, the kernel would let all users make directories there. systemd mounts it with
        // this mode, too.
        mount(Some("bpf"), place, Some("bpf"), MsFlags::empty(), Some("mode=700"))
            .map_err(|e| refused(&format!("cannot mount bpf at {place}"), &e.into()))?;
    }
    make_pin_dir(Path::new(PIN_DIR))
}

/// Makes the directory for pins, and refuses one that another user owns: its owner could take controllers out
/// of the kernel.
fn make_pin_dir(path: &Path) -> Result<()> {
    let made = PrivateDir::make(path, Access::Public).map(drop);
    made.map_err(|e| refused(&format!("cannot keep controllers in {}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_abi::{AnbStep, ENTRIES, Op};
    use anabranch_algo::control::{ALGORITHMS, Algorithm};

    #[test]
    fn the_table_is_that_of_all_algorithms() {
        let of_linux = ALGORITHMS.iter().filter_map(|entry| Some((entry.name, entry.linux?)));
        assert!(of_linux.eq(CONTROLLERS.iter().map(|controller| (controller.name, controller.linux))));
        for controller in CONTROLLERS {
            assert!(controller.linux.len() < 16, "TCP_CA_NAME_MAX, linux/tcp.h");
            assert_eq!(Controller::by_name(controller.linux), Ok(controller));
        }
        assert_eq!(Controller::by_name("bbr"), Err(Error::Unknown("bbr".into())));
    }

    #[test]
    fn pins_are_not_kept_in_what_others_can_write() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("anabranch");
        make_pin_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = make_pin_dir(&dir).unwrap_err().to_string();
        assert!(refused.contains("cannot keep controllers in") && refused.contains("mode 777"), "{refused}");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        if !nix::unistd::geteuid().is_root() {
            return anabranch_net::testing::skip("giving a directory away needs root");
        }
        chown(&dir, Some(65_534), None).unwrap();
        let refused = make_pin_dir(&dir).unwrap_err().to_string();
        assert!(refused.contains("belongs to another user (65534)"), "{refused}");
    }

    #[test]
    fn a_step_starts_as_the_table_does() {
        use anabranch_algo::control::Control;
        for entry in ENTRIES {
            let mut step = AnbStep::default();
            let cwnd = (entry.step)(&mut step, Op::Init as u32);
            let fresh = Algorithm::by_name(entry.name).expect("in the table");
            assert_eq!(step.mine, fresh.stats(anabranch_algo::Span::ZERO), "{}", entry.name);
            assert_eq!(cwnd, 10);
            // The controllers take a timeout and then growth, step by step as `algo`'s own do.
            let (mut mine, alone) = (fresh, anabranch_algo::control::Group { members: &[], me: 0 });
            for round in 1..200 {
                step = AnbStep {
                    now_ns: u64::from(round) * 10_000_000,
                    srtt_ns: 10_000_000,
                    rtt_ns: 10_000_000,
                    min_rtt_ns: 10_000_000,
                    acked: 5,
                    round,
                    cwnd_limited: 1,
                    cause: u32::from(round % 3 == 0),
                    ..step
                };
                let (now, srtt) =
                    (anabranch_algo::Time::from_nanos(step.now_ns), anabranch_algo::Span::from_millis(10));
                let ack = anabranch_algo::control::Ack {
                    now,
                    acked: 5,
                    round,
                    srtt,
                    rtt: srtt,
                    min_rtt: srtt,
                    cwnd_limited: true,
                    recovering: false,
                };
                if round % 50 == 0 {
                    let cause = if round % 3 == 0 {
                        anabranch_algo::control::CongestionCause::Timeout
                    } else {
                        anabranch_algo::control::CongestionCause::Loss
                    };
                    let event = anabranch_algo::control::CongestionEvent { now, cause, srtt };
                    let cwnd = (entry.step)(&mut step, Op::Congestion as u32);
                    assert_eq!(cwnd, mine.on_congestion(&event, &alone));
                } else {
                    let cwnd = (entry.step)(&mut step, Op::Ack as u32);
                    assert_eq!(cwnd, mine.on_ack(&ack, &alone), "{}", entry.name);
                }
                assert_eq!(step.mine, mine.stats(srtt));
            }
        }
    }
}
