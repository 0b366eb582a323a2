//! What an agent lets guests have. A client that is paired may start guests, and nothing else: what a
//! configuration names, and what its disks name in turn, is checked against the list of the agent's user.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::config::{Config, Format};
use crate::error::{Error, Result};
use crate::launch;
use crate::qmp::{Qmp, Version};
use crate::store::Store;

/// What an agent lets guests have.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The most memory of all machines that came, bytes; without it, what the host has.
    pub memory_bytes: Option<u64>,
    /// The directories in which disks may be.
    pub disks: Vec<PathBuf>,
    /// What network cards may be connected to. `user`, QEMU's own network, reaches all that this host does,
    /// and the host's own services that listen at loopback addresses.
    pub nets: Vec<String>,
}

fn refused<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

impl Allowed {
    /// Refuses what this host does not give, and returns the configuration with the paths of this host.
    pub(crate) fn check(&self, store: &Store, qemu: Version, config: &Config) -> Result<Config> {
        config.check()?;
        let mut config = config.clone();
        for image in [&mut config.kernel, &mut config.initrd].into_iter().flatten() {
            let name = image.to_string_lossy().into_owned();
            let is_hash = name.len() == 64 && name.bytes().all(|c| c.is_ascii_hexdigit());
            *image = store.image(&name);
            if !is_hash || !image.is_file() {
                return refused(format!("the image {} is not there", name.escape_default()));
            }
        }
        for disk in &mut config.disks {
            let path = disk.path.display().to_string();
            if !disk.shared {
                // Its bytes come over the network, to a file of our own.
                match self.disks.is_empty() {
                    true => {
                        return refused(format!(
                            "the agent has no room for {path}: it needs --disks with a directory for it"
                        ));
                    }
                    false => continue,
                }
            }
            let Ok(real) = disk.path.canonicalize() else {
                return refused(format!("the destination has no {path}: is the shared storage there?"));
            };
            if !self.disks.iter().any(|dir| real.starts_with(dir)) {
                return refused(format!(
                    "the agent lets no guest have {path}: it needs --disks with a directory above it"
                ));
            }
            check_disk(&real, disk.format)?;
            disk.path = real;
        }
        for nic in &config.nics {
            if !self.nets.contains(&nic.to) {
                return refused(format!(
                    "the agent lets no guest have {}: it needs --net {}",
                    nic.to, nic.to
                ));
            }
        }
        if let Some(machine) = config.machine.as_deref().filter(|machine| !launch::knows_machine(machine)) {
            return refused(format!("QEMU {qemu} at the destination has no machine type {machine}"));
        }
        Ok(config)
    }
}

/// Refuses a disk that is made of more files than the one that was checked: an image of QEMU's own format can
/// name others, which QEMU opens.
fn check_disk(path: &Path, format: Format) -> Result {
    let failed = |e| Error::of_path(path, &e);
    // A pipe of this name must not block the agent.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = file.map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return refused(format!("{} is neither a file nor a disk", path.display()));
    }
    if format == Format::Raw {
        return Ok(());
    }
    // The header of an image (QEMU's docs/interop/qcow2.txt).
    let mut header = Vec::new();
    file.take(104).read_to_end(&mut header).map_err(failed)?;
    let field = |at: usize| {
        let bytes = header.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_be_bytes)
    };
    let version = field(0).filter(|_| header.starts_with(b"QFI\xfb")).map(|first| first as u32);
    let (has_backing, has_data) = match version {
        Some(2) => (field(8) != Some(0), false),
        Some(3) => (field(8) != Some(0), field(72).is_none_or(|features| features & 1 << 2 != 0)),
        _ => return refused(format!("{} is no image of the format qcow2", path.display())),
    };
    if has_backing || has_data {
        let other = if has_backing { "a backing file" } else { "a data file" };
        return refused(format!(
            "{} has {other}, which the agent does not let guests have: `qemu-img convert -O qcow2` makes one \
             file of the two",
            path.display()
        ));
    }
    Ok(())
}

/// Refuses a QEMU that has opened other files than the disks of its machine: an image may have been changed
/// after it was checked.
pub(crate) fn check_opened(qmp: &mut Qmp, config: &Config) -> Result {
    let nodes = qmp.execute("query-named-block-nodes", json!({"flat": true}))?;
    for node in nodes.as_array().into_iter().flatten() {
        let is_format = matches!(node["drv"].as_str(), Some("raw" | "qcow2"));
        let file = node["file"].as_str().unwrap_or_default();
        if !is_format && !config.disks.iter().any(|disk| disk.path == Path::new(file)) {
            return refused(format!("a disk of {} leads to {}", config.name, file.escape_default()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::config::{Disk, Nic};

    const QEMU: Version = Version { major: 7, minor: 2, micro: 0 };

    fn config(path: &Path, format: Format) -> Config {
        let mut config = Config::parse("name = \"web\"\nmemory_mb = 16\n[[disks]]\npath = \"/x\"").unwrap();
        config.disks = vec![Disk { path: path.to_owned(), format, shared: true }];
        config
    }

    fn said(allowed: &Allowed, store: &Store, config: &Config) -> String {
        allowed.check(store, QEMU, config).map_or_else(|e| e.to_string(), |_| "yes".to_owned())
    }

    #[test]
    fn a_disk_that_names_other_files_is_refused() {
        if Command::new("qemu-img").arg("--version").output().is_err() {
            return anabranch_net::testing::skip("needs qemu-img");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let store = Store::open(&root.join("state")).unwrap();
        let shared = root.join("shared");
        std::fs::create_dir(&shared).unwrap();
        let allowed = Allowed { disks: vec![shared.clone()], ..Allowed::default() };
        let secret = root.join("secret");
        std::fs::write(&secret, vec![7; 1 << 20]).unwrap();
        let backing = format!("backing_file={},backing_fmt=raw", secret.display());
        let data = format!("data_file={},data_file_raw=on", root.join("data").display());
        for (name, options, wanted) in [
            ("whole", "compat=1.1", "yes"),
            ("old", "compat=0.10", "yes"),
            ("backed", backing.as_str(), "has a backing file"),
            ("old-backed", &format!("compat=0.10,{backing}"), "has a backing file"),
            ("data", &data, "has a data file"),
        ] {
            let path = shared.join(name);
            let mut make = Command::new("qemu-img");
            make.args(["create", "-q", "-f", "qcow2", "-o", options]).arg(&path).arg("1M");
            assert!(make.status().unwrap().success(), "{name}");
            let text = said(&allowed, &store, &config(&path, Format::Qcow2));
            assert!(text.contains(wanted), "{name}: {text}");
            assert_eq!(
                said(&allowed, &store, &config(&path, Format::Raw)),
                "yes",
                "its bytes, not its files"
            );
        }
        let other = said(&allowed, &store, &config(&secret, Format::Raw));
        assert!(other.contains("it needs --disks"), "{other}");
        std::os::unix::fs::symlink(&secret, shared.join("link")).unwrap();
        let other = said(&allowed, &store, &config(&shared.join("link"), Format::Raw));
        assert!(other.contains("it needs --disks"), "{other}");
        let no_image = said(&allowed, &store, &config(&shared.join("link"), Format::Qcow2));
        assert!(no_image.contains("it needs --disks"), "{no_image}");
        std::fs::write(shared.join("text"), "text").unwrap();
        let no_image = said(&allowed, &store, &config(&shared.join("text"), Format::Qcow2));
        assert!(no_image.contains("is no image"), "{no_image}");
    }

    #[test]
    fn no_network_is_given_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let store = Store::open(&root.join("state")).unwrap();
        std::fs::write(root.join("disk"), "").unwrap();
        let mut config = config(&root.join("disk"), Format::Raw);
        config.nics = vec![Nic::new("user", [1, 2, 3]).unwrap()];
        let mut allowed = Allowed { disks: vec![root], ..Allowed::default() };
        assert_eq!(said(&allowed, &store, &config), "the agent lets no guest have user: it needs --net user");
        allowed.nets = vec!["user".to_owned()];
        assert_eq!(said(&allowed, &store, &config), "yes");
    }
}
