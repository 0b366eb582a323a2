//! Loads the eBPF object with libbpf, and runs its programs for the parity test.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::mem::MaybeUninit;
use std::sync::Mutex;

use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use libbpf_rs::{MapCore as _, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramType};

use crate::bpf_abi::{AnbStep, Op};
use crate::controller_table::{Controller, PIN_DIR, Program};
use crate::{Error, Result};

/// The eBPF object file that `build.rs` made.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/controllers.bpf.o"));

/// The suffix of the name of a controller's struct_ops map.
const OPS: &str = "_ops";

/// The hooks of a controller. The program of a hook is named `HOOK_NAME`, and the program for [`Parity`]
/// `parity_NAME`. The hook comes first because the kernel cuts names at [`NAME_BYTES_MAX`] bytes.
const HOOKS: [&str; 5] = ["ack", "cut", "init", "release", "undo"];
const PARITY: &str = "parity";
/// The longest name of a program in the kernel: `BPF_OBJ_NAME_LEN` of linux/bpf.h, without its final zero.
const NAME_BYTES_MAX: usize = 15;

/// The messages of libbpf since the last [`capture_log`]. libbpf reports its errors nowhere else.
static LIBBPF_LOG: Mutex<String> = Mutex::new(String::new());
/// Limits of [`LIBBPF_LOG`]: its bytes, and the lines that it keeps of each message.
const LOG_BYTES_MAX: usize = 1 << 20;
const MESSAGE_LINES_MAX: usize = 12;

fn capture_log(verbose: bool) {
    fn keep(level: PrintLevel, text: String) {
        if level == PrintLevel::Debug {
            return;
        }
        if let Ok(mut log) = LIBBPF_LOG.lock() {
            // A verifier's log can be megabytes; only its end is useful.
            let text: String = text
                .lines()
                .rev()
                .take(MESSAGE_LINES_MAX)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .fold(String::new(), |all, line| all + line + "\n");
            if log.len() + text.len() < LOG_BYTES_MAX {
                log.push_str(&text);
            }
        }
    }
    fn show(_: PrintLevel, text: String) {
        let _ = write!(std::io::stderr(), "{text}");
        keep(PrintLevel::Info, text);
    }
    if let Ok(mut log) = LIBBPF_LOG.lock() {
        log.clear();
    }
    libbpf_rs::set_print(Some(if verbose { (PrintLevel::Debug, show) } else { (PrintLevel::Info, keep) }));
}

fn refused(attempt: &str, e: &libbpf_rs::Error) -> Error {
    let log = LIBBPF_LOG.lock().map(|log| log.clone()).unwrap_or_default();
    if e.kind() == libbpf_rs::ErrorKind::PermissionDenied && !log.contains("processed ") {
        return Error::Permission(attempt.into());
    }
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(6)..].join("\n  ");
    let hint = "\n--verbose shows all that the kernel said";
    Error::Refused(format!("{attempt}: {e}{}{last}{hint}", if last.is_empty() { "" } else { "\n  " }))
}

/// Loads the eBPF object with the programs of `controller` only. With `parity`, loads the test program of
/// that controller instead of its hooks.
fn open(controller: &Controller, parity: bool, verbose: bool) -> Result<Object> {
    capture_log(verbose);
    let attempt = "cannot load the eBPF programs";
    let mut builder = ObjectBuilder::default();
    builder.pin_root_path(PIN_DIR).map_err(|e| refused(attempt, &e))?;
    let mut open = builder.open_memory(OBJECT).map_err(|e| refused(attempt, &e))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(of) = name.strip_suffix(OPS) {
            let wanted = !parity && of == controller.linux;
            map.set_autocreate(wanted).map_err(|e| refused(attempt, &e))?;
        }
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let hook = name.strip_suffix(controller.linux).and_then(|rest| rest.strip_suffix('_'));
        program.set_autoload(hook.is_some_and(
            |hook| {
                if parity { hook == PARITY } else { HOOKS.contains(&hook) }
            },
        ));
    }
    open.load().map_err(|e| refused(attempt, &e))
}

/// See [`crate::controllers::load`]. Each controller gets an eBPF object of its own, with its own map of
/// connections.
pub(crate) fn load(controllers: &[&'static Controller], verbose: bool) -> Result<()> {
    let one = |controller: &&'static Controller| {
        open(controller, false, verbose).and_then(|object| register(controller, object))
    };
    let result = controllers.iter().try_for_each(one);
    if result.is_err() {
        for controller in controllers {
            let _ = fs::remove_dir_all(controller.pin_dir());
        }
    }
    result
}

fn register(controller: &'static Controller, mut object: Object) -> Result<()> {
    let pins = controller.pin_dir();
    fs::create_dir_all(&pins).map_err(|e| crate::error::refused("cannot make pins", &e))?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "connections" {
            map.pin(pins.join(name)).map_err(|e| refused("cannot pin the connections", &e))?;
        } else if name.strip_suffix(OPS) == Some(controller.linux) {
            let attempt = format!("the kernel does not take `{}`", controller.linux);
            let mut link = map.attach_struct_ops().map_err(|e| match e.kind() {
                libbpf_rs::ErrorKind::AlreadyExists => Error::Taken(controller.linux.into()),
                libbpf_rs::ErrorKind::InvalidInput => Error::TooOld(e.to_string()),
                _ => refused(&attempt, &e),
            })?;
            link.pin(pins.join("link")).map_err(|e| refused("cannot pin the link", &e))?;
        }
    }
    Ok(())
}

/// Returns the name, cut to [`NAME_BYTES_MAX`], that the kernel has for the program of a hook.
fn kernel_name(hook: &str, controller: &Controller) -> String {
    let mut name = format!("{hook}_{}", controller.linux);
    name.truncate(NAME_BYTES_MAX);
    name
}

/// See [`crate::controllers::programs`].
pub(crate) fn programs(controller: &Controller) -> Vec<Program> {
    let program = |info: ProgramInfo| {
        let name = info.name.to_str()?;
        let on = HOOKS.into_iter().find(|on| kernel_name(on, controller) == name)?;
        let ours = info.ty == ProgramType::StructOps;
        ours.then_some(Program { on, calls: info.run_cnt, time_ns: info.run_time_ns })
    };
    let mut all: Vec<Program> = Vec::new();
    // The kernel keeps the programs of an earlier load as long as a socket uses them.
    for one in ProgInfoIter::default().filter_map(program) {
        match all.iter_mut().find(|other| other.on == one.on) {
            Some(same) => (same.calls, same.time_ns) = (same.calls + one.calls, same.time_ns + one.time_ns),
            None => all.push(one),
        }
    }
    all.sort_by_key(|program| program.on);
    all
}

/// The programs of a controller for the parity test: the same code as in the kernel's hooks, run on a step
/// that the caller makes.
#[derive(Debug)]
pub struct Parity {
    object: Object,
    program: String,
}

const STEP_BYTES: usize = size_of::<AnbStep>();

impl Parity {
    /// Loads the test program of the controller `name`, without registering the controller.
    ///
    /// # Errors
    /// If there is no such controller, or the kernel refuses the program.
    pub fn new(name: &str) -> Result<Self> {
        let controller = Controller::by_name(name)?;
        let object = open(controller, true, false)?;
        Ok(Self { object, program: format!("{PARITY}_{}", controller.linux) })
    }

    /// Runs one step of the controller in the kernel, changes `step` to the result, and returns the window in
    /// packets.
    ///
    /// # Errors
    /// If the kernel refuses.
    #[expect(unsafe_code, reason = "a step is plain memory to the kernel")]
    pub fn step(&mut self, step: &mut AnbStep, op: Op) -> Result<u32> {
        let attempt = "cannot run a step";
        let missing = || Error::Refused(attempt.into());
        let map = self.object.maps().find(|map| map.name() == "parity").ok_or_else(missing)?;
        let mut value = vec![0u8; STEP_BYTES + 8];
        // SAFETY: `bytes` covers exactly `STEP_BYTES` of `step`. Padding may be uninitialized, as
        // `MaybeUninit` allows.
        let bytes: &[MaybeUninit<u8>] =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(step).cast(), STEP_BYTES) };
        for (to, from) in value.iter_mut().zip(bytes) {
            // SAFETY: `step` was made from all zeros or read back from the kernel, both with initialized
            // padding.
            *to = unsafe { from.assume_init() };
        }
        value[STEP_BYTES..STEP_BYTES + 4].copy_from_slice(&(op as u32).to_ne_bytes());
        let zero = 0u32.to_ne_bytes();
        map.update(&zero, &value, MapFlags::ANY).map_err(|e| refused(attempt, &e))?;
        let program = self.object.progs_mut().find(|p| *p.name() == *self.program).ok_or_else(missing)?;
        program.test_run(libbpf_rs::ProgramInput::default()).map_err(|e| refused(attempt, &e))?;
        let value =
            map.lookup(&zero, MapFlags::ANY).map_err(|e| refused(attempt, &e))?.ok_or_else(missing)?;
        // SAFETY: `value` holds at least a whole step. Only the booleans of members have invalid values, and
        // the kernel's programs, which write them, are compiled from the same code as the host's.
        *step = unsafe { std::ptr::read_unaligned(value.as_ptr().cast()) };
        Ok(u32::from_ne_bytes([0, 1, 2, 3].map(|i| value[STEP_BYTES + 4 + i])))
    }
}

/// Opens the map that is pinned at `path`; `None` if there is no such file.
///
/// # Errors
/// If the file cannot be looked at or opened.
pub(crate) fn open_pinned(path: &std::path::Path) -> Result<Option<libbpf_rs::MapHandle>> {
    if let Err(e) = fs::metadata(path) {
        return match e.kind() {
            ErrorKind::NotFound => Ok(None),
            _ => Err(crate::error::refused(&format!("cannot look at {}", path.display()), &e)),
        };
    }
    let handle = libbpf_rs::MapHandle::from_pinned_path(path);
    handle.map(Some).map_err(|e| refused(&format!("cannot open {}", path.display()), &e))
}
