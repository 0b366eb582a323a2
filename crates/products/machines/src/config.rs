//! What a machine is made of, and the arguments of the QEMU that runs it. Both ends of a move start QEMU with
//! the same configuration: that is what makes the state of one fit into the other.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result};

/// The name of the virtio-serial port on which a guest may write a heartbeat: any bytes, often.
pub const HEARTBEAT: &str = "org.anabranch.heartbeat";
/// The processor of a guest whose instructions are translated. With its own default, QEMU 7.2 damages Linux
/// guests that write to memory while they move: ten of eleven panicked or hung after it, none with this one.
const TRANSLATED: &str = "Nehalem";
/// The most memory of a machine, MB.
const MEMORY_MB_MAX: u64 = 4 << 20;
/// The most processors of a machine.
const CPUS_MAX: u16 = 512;
/// The most disks or network cards.
pub(crate) const DEVICES_MAX: usize = 8;

/// How the processor of the guest is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// By the host's processor.
    #[default]
    Kvm,
    /// By translation, which every host can do.
    Tcg,
}

/// A disk of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The file, or the device.
    pub path: PathBuf,
    /// The format.
    #[serde(default)]
    pub format: Format,
    /// Whether both hosts see the same bytes at this path: a network file system, a shared LUN. Any other
    /// disk is copied.
    #[serde(default)]
    pub shared: bool,
}

/// The format of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The bytes of the disk, and nothing else.
    #[default]
    Raw,
    /// QEMU's own.
    Qcow2,
}

/// A network card of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// What it is connected to: `user` (QEMU's own network), `tap:DEVICE` or `bridge:DEVICE`, of both hosts.
    pub to: String,
    /// The hardware address.
    pub mac: String,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name.
    pub name: String,
    /// How its processor is run.
    #[serde(default)]
    pub accelerator: Accelerator,
    /// QEMU's machine type with its version, `pc-i440fx-7.2`; `None` until it is started for the first time.
    #[serde(default)]
    pub machine: Option<String>,
    /// The memory, MB.
    pub memory_mb: u64,
    /// The processors.
    #[serde(default = "one")]
    pub cpus: u16,
    /// A Linux kernel to start, instead of a boot loader on a disk.
    #[serde(default)]
    pub kernel: Option<PathBuf>,
    /// The kernel's initial file system.
    #[serde(default)]
    pub initrd: Option<PathBuf>,
    /// The kernel's command line.
    #[serde(default)]
    pub append: String,
    /// The disks.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// The network cards.
    #[serde(default)]
    pub nics: Vec<Nic>,
}

const fn one() -> u16 {
    1
}

/// Where the files of a running QEMU are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The directory of the machine.
    pub dir: PathBuf,
}

impl Places {
    /// The QMP socket of a move.
    #[must_use]
    pub fn qmp(&self) -> PathBuf {
        self.dir.join("qmp")
    }

    /// The QMP socket of everybody else.
    #[must_use]
    pub fn look(&self) -> PathBuf {
        self.dir.join("look")
    }

    /// The socket of the heartbeat.
    #[must_use]
    pub fn beat(&self) -> PathBuf {
        self.dir.join("beat")
    }

    /// The file of the serial console.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// The file of QEMU's own messages.
    #[must_use]
    pub fn messages(&self) -> PathBuf {
        self.dir.join("qemu.log")
    }
}

/// Whether a text can be a name of a machine or a host: it becomes a file's.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

impl Config {
    /// Reads a configuration in TOML, and checks it.
    ///
    /// # Errors
    /// `Usage`, with the line of the text.
    pub fn parse(text: &str) -> Result<Self> {
        let config: Self =
            toml::from_str(text).map_err(|e| Error::Usage(e.to_string().trim().replace('\n', "; ")))?;
        config.check()?;
        Ok(config)
    }

    /// Refuses what QEMU could not start, or would take for something else.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(&self) -> Result {
        let wrong = |text: String| Err(Error::Usage(text));
        if !is_name(&self.name) {
            let name = self.name.escape_default();
            return wrong(format!(
                "`{name}` is no name of a machine: 1 to 64 letters, digits, `.`, `_`, `-`"
            ));
        }
        if !(16..=MEMORY_MB_MAX).contains(&self.memory_mb) {
            return wrong(format!("{} MB are no memory: 16 MB to 4 TB", self.memory_mb));
        }
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return wrong(format!("{} processors: 1 to {CPUS_MAX}", self.cpus));
        }
        if self.kernel.is_none() && (self.initrd.is_some() || !self.append.is_empty()) {
            return wrong("an initial file system and a command line are a kernel's: name one".to_owned());
        }
        if self.kernel.is_none() && self.disks.is_empty() {
            return wrong("there is nothing to start: name a disk or a kernel".to_owned());
        }
        if self.disks.len() > DEVICES_MAX || self.nics.len() > DEVICES_MAX {
            return wrong(format!("at most {DEVICES_MAX} disks and {DEVICES_MAX} network cards"));
        }
        let is_word = |text: &str| {
            !text.is_empty()
                && text.len() < 64
                && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
        };
        if let Some(machine) = self.machine.as_deref().filter(|machine| !is_word(machine)) {
            return wrong(format!("`{}` is no machine type", machine.escape_default()));
        }
        self.nics.iter().try_for_each(Nic::check)
    }

    /// Returns the arguments of QEMU. With `waits`, it waits for the state of another one, and does not run
    /// when that has come.
    #[must_use]
    pub fn arguments(&self, places: &Places, waits: bool) -> Vec<String> {
        let mut words: Vec<String> =
            ["-nodefaults", "-no-user-config", "-display", "none"].map(Into::into).into();
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        let accelerator = match self.accelerator {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        };
        add("-name", self.name.clone());
        add("-machine", format!("{},accel={accelerator}", self.machine.as_deref().unwrap_or("pc")));
        let processor = if self.accelerator == Accelerator::Kvm { "host" } else { TRANSLATED };
        add("-cpu", processor.to_owned());
        add("-m", format!("{}M", self.memory_mb));
        add("-smp", self.cpus.to_string());
        if let Some(kernel) = &self.kernel {
            add("-kernel", kernel.display().to_string());
        }
        if let Some(initrd) = &self.initrd {
            add("-initrd", initrd.display().to_string());
        }
        if !self.append.is_empty() {
            add("-append", self.append.clone());
        }
        for (id, path) in [("qmp", places.qmp()), ("look", places.look())] {
            add("-chardev", format!("socket,id={id},path={},server=on,wait=off", comma(&path)));
            add("-mon", format!("chardev={id},mode=control"));
        }
        add("-chardev", format!("file,id=console,path={},append=on", comma(&places.console())));
        add("-serial", "chardev:console".to_owned());
        add("-device", json!({"driver": "virtio-serial-pci", "id": "ports"}).to_string());
        add("-chardev", format!("socket,id=beat,path={},server=on,wait=off", comma(&places.beat())));
        let port =
            json!({"driver": "virtserialport", "bus": "ports.0", "chardev": "beat", "name": HEARTBEAT});
        add("-device", port.to_string());
        for (n, disk) in self.disks.iter().enumerate() {
            let format = if disk.format == Format::Raw { "raw" } else { "qcow2" };
            let node = disk_node(n);
            let file = json!({"driver": "file", "filename": disk.path});
            let mut block = json!({"driver": format, "node-name": node, "file": file});
            if waits && disk.format == Format::Qcow2 {
                // An image names its backing file itself, and a client may have written it.
                block["backing"] = serde_json::Value::Null;
            }
            add("-blockdev", block.to_string());
            add("-device", json!({"driver": "virtio-blk-pci", "drive": disk_node(n)}).to_string());
        }
        for (n, nic) in self.nics.iter().enumerate() {
            add("-netdev", nic.backend(n));
            let id = nic_id(n);
            let card =
                json!({"driver": "virtio-net-pci", "id": id, "netdev": format!("net{n}"), "mac": nic.mac});
            add("-device", card.to_string());
        }
        if waits {
            add("-incoming", "defer".to_owned());
            words.push("-S".to_owned());
        }
        words
    }
}

/// Returns the name of a disk in QEMU.
#[must_use]
pub fn disk_node(n: usize) -> String {
    format!("disk{n}")
}

/// Returns the name of a network card in QEMU.
#[must_use]
pub fn nic_id(n: usize) -> String {
    format!("nic{n}")
}

/// Returns a path as the value of an option of QEMU, in which a comma ends a value.
pub(crate) fn comma(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

impl Nic {
    /// Makes a network card with a hardware address that is made of `seed`.
    ///
    /// # Errors
    /// `Usage` if it is connected to nothing that is known.
    pub fn new(to: &str, seed: [u8; 3]) -> Result<Self> {
        let [a, b, c] = seed;
        // The range of addresses that QEMU's machines have.
        let nic = Self { to: to.to_owned(), mac: format!("52:54:00:{a:02x}:{b:02x}:{c:02x}") };
        nic.check()?;
        Ok(nic)
    }

    fn check(&self) -> Result {
        let device = self.to.strip_prefix("tap:").or_else(|| self.to.strip_prefix("bridge:"));
        let is_device = |name: &str| {
            (1..16).contains(&name.len())
                && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
        };
        if self.to != "user" && !device.is_some_and(is_device) {
            let to = self.to.escape_default();
            return Err(Error::Usage(format!(
                "`{to}`: a network card is connected to user, tap:DEVICE or bridge:DEVICE"
            )));
        }
        let parts: Vec<&str> = self.mac.split(':').collect();
        let is_mac = parts.len() == 6
            && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok());
        match is_mac {
            true => Ok(()),
            false => Err(Error::Usage(format!("`{}` is no hardware address", self.mac.escape_default()))),
        }
    }

    fn backend(&self, n: usize) -> String {
        match self.to.split_once(':') {
            Some(("tap", device)) => format!("tap,id=net{n},ifname={device},script=no,downscript=no"),
            Some((_, device)) => format!("bridge,id=net{n},br={device}"),
            None => format!("user,id=net{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"web\"\nmemory_mb = 256\naccelerator = \"tcg\"\nkernel = \"/boot/vmlinuz\"\n\
        append = \"console=ttyS0\"\n[[disks]]\npath = \"/srv/a,b.img\"\n\
        [[nics]]\nto = \"tap:tap0\"\nmac = \"52:54:00:00:00:01\"\n";

    #[test]
    fn both_ends_of_a_move_get_the_same_machine() {
        let config = Config::parse(TEXT).unwrap();
        let places = Places { dir: "/run/a,b".into() };
        let runs = config.arguments(&places, false);
        let waits = config.arguments(&places, true);
        assert_eq!(waits[..runs.len()], runs);
        assert_eq!(waits[runs.len()..], ["-incoming", "defer", "-S"]);
        let all = runs.join(" ");
        for part in [
            "-machine pc,accel=tcg -cpu Nehalem -m 256M -smp 1 -kernel /boot/vmlinuz -append console=ttyS0",
            "socket,id=qmp,path=/run/a,,b/qmp,server=on,wait=off",
            "\"filename\":\"/srv/a,b.img\"",
            "tap,id=net0,ifname=tap0,script=no,downscript=no",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        let back: Config = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(back, config);
    }

    #[test]
    fn what_qemu_would_take_for_something_else_is_refused() {
        let changed = |from: &str, to: &str| {
            assert!(TEXT.contains(from));
            Config::parse(&TEXT.replace(from, to)).unwrap_err().to_string()
        };
        for name in ["", "a,accel=kvm", "../x", "-x", "<b>"] {
            let error = changed("name = \"web\"", &format!("name = \"{name}\""));
            assert!(error.contains("is no name of a machine"), "{error}");
        }
        assert!(changed("tap:tap0", "tap:a,script=/tmp/x").contains("is connected to"));
        assert!(changed("52:54:00:00:00:01", "x").contains("no hardware address"));
        assert!(changed("memory_mb = 256", "memory_mb = 1").contains("are no memory"));
        assert!(changed("name = \"web\"", "nme = 1").contains("unknown field `nme`"));
        assert!(
            changed("name = \"web\"", "name = \"web\"\nmachine = \"pc,x=y\"").contains("no machine type")
        );
        assert!(changed("kernel = \"/boot/vmlinuz\"\n", "").contains("are a kernel's"));
    }
}
