//! Modules of WebAssembly and instances of them: what they may have, and calls of their exports.
//!
//! A module has no imports, so it can reach nothing but its own memory. Its memory is bounded, and each call
//! has fuel: instructions are counted, not time, so a busy machine ends no function.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_function::abi::{
    ABI, Answer, Area, EXPORT_ABI, EXPORT_AREA, EXPORT_PACKET, EXPORT_REPORT, EXPORT_START, PACKET_BYTES_MAX,
    Side,
};
use ring::digest::{SHA256, digest};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, Memory, Module, OptLevel, PoolingAllocationConfig, Store,
    StoreLimits, StoreLimitsBuilder, Trap, TypedFunc, WasmParams, WasmResults,
};

use crate::error::{Error, Result};
use crate::plane::Handle;

/// The most bytes of a module.
pub const MODULE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of an instance's memory.
pub const MEMORY_BYTES_MAX: usize = 1 << 20;
/// The most entries of a module's table of functions.
const TABLE_MAX: usize = 256;
/// The most bytes of wasmtime's own record of an instance, which depends on what a module exports.
const INSTANCE_BYTES_MAX: usize = 16 << 10;
/// The most different modules that are kept compiled.
const PROGRAMS_MAX: usize = 256;
/// The fuel of a packet, about one for each instruction: less than a millisecond.
pub const FUEL_PACKET: u64 = 500_000;
/// The fuel to start an instance, and for a report.
pub const FUEL_START: u64 = 5_000_000;

/// How instances are made; each of these can be switched off, to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most instances at once.
    pub instances_max: u32,
    /// Whether places for instances are reserved at the beginning.
    pub has_pool: bool,
    /// Whether an instance's memory begins as a view of the module's, and a page is copied when it is
    /// written.
    pub copies_on_write: bool,
    /// Whether a module is compiled once for all of its instances.
    pub shares_code: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { instances_max: 10_000, has_pool: true, copies_on_write: true, shares_code: true }
    }
}

/// Compiles modules, and keeps them.
pub struct Wasm {
    engine: Engine,
    settings: Settings,
    programs: Mutex<BTreeMap<String, Arc<Program>>>,
    taken: Arc<AtomicU32>,
}

/// The place of an instance, one of those that there may be.
struct Seat(Arc<AtomicU32>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A module that is compiled, and speaks our ABI.
pub struct Program {
    module: Module,
    bytes: Vec<u8>,
    hash: String,
}

impl Program {
    /// Returns the SHA-256 of the module, hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the module.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the SHA-256 of a module, hexadecimal.
#[must_use]
pub fn hash(module: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(digest(&SHA256, module).as_ref())
}

fn no_module(text: impl std::fmt::Display) -> Error {
    Error::Usage(format!("this is no function: {text}"))
}

impl Wasm {
    /// Prepares to run modules.
    ///
    /// # Errors
    /// `Kernel` if there is not enough address space for so many instances.
    pub fn new(settings: Settings) -> Result<Self> {
        let mut config = Config::new();
        config.consume_fuel(true).generate_address_map(false).wasm_backtrace(false);
        config.cranelift_opt_level(OptLevel::Speed);
        config.memory_reservation(MEMORY_BYTES_MAX as u64).memory_guard_size(64 << 10);
        config.memory_reservation_for_growth(0).memory_init_cow(settings.copies_on_write);
        if settings.has_pool {
            let mut pool = PoolingAllocationConfig::new();
            pool.total_core_instances(settings.instances_max).total_memories(settings.instances_max);
            pool.total_tables(settings.instances_max).table_elements(TABLE_MAX);
            pool.max_memory_size(MEMORY_BYTES_MAX).max_core_instance_size(INSTANCE_BYTES_MAX);
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        }
        let engine = Engine::new(&config).map_err(|e| {
            let text = format!("cannot reserve places for {} instances: {e:#}", settings.instances_max);
            Error::Kernel(text)
        })?;
        Ok(Self { engine, settings, programs: Mutex::default(), taken: Arc::default() })
    }

    /// Compiles a module, unless it is compiled.
    ///
    /// # Errors
    /// `Usage` if it is no module, has imports, or has another ABI; `Refused` if there are too many.
    pub fn compile(&self, module: &[u8]) -> Result<Arc<Program>> {
        let hash = hash(module);
        if let Some(program) = self.known(&hash) {
            return Ok(program);
        }
        if module.len() > MODULE_BYTES_MAX {
            return Err(no_module(format_args!("it is larger than {MODULE_BYTES_MAX} bytes")));
        }
        let compiled =
            Module::from_binary(&self.engine, module).map_err(|e| no_module(format_args!("{e:#}")))?;
        if let Some(import) = compiled.imports().next() {
            let (from, name) = (import.module().escape_default(), import.name().escape_default());
            return Err(no_module(format_args!("it imports {from}.{name}, and a function has no imports")));
        }
        let program = Arc::new(Program { module: compiled, bytes: module.to_vec(), hash: hash.clone() });
        if !self.settings.shares_code {
            return Ok(program);
        }
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if programs.len() >= PROGRAMS_MAX {
            programs.retain(|_, program| Arc::strong_count(program) > 1);
        }
        if programs.len() >= PROGRAMS_MAX {
            return Err(Error::Refused(format!(
                "{PROGRAMS_MAX} different modules are in use, which is the limit"
            )));
        }
        programs.insert(hash, Arc::clone(&program));
        Ok(program)
    }

    /// Returns a module that is compiled.
    #[must_use]
    pub fn known(&self, hash: &str) -> Option<Arc<Program>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    fn seat(&self) -> Result<Seat> {
        let most = self.settings.instances_max;
        let take = |taken| (taken < most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        let full = |_| Error::Refused(format!("there are {most} instances here, which is the limit"));
        taken.map(|_| Seat(Arc::clone(&self.taken))).map_err(full)
    }

    /// Makes an instance, which has no settings and no state yet.
    ///
    /// # Errors
    /// `Usage` if the module has another ABI; `Refused` if there is no place.
    pub fn instantiate(&self, program: &Arc<Program>) -> Result<Instance> {
        let seat = self.seat()?;
        let limits = StoreLimitsBuilder::new().memory_size(MEMORY_BYTES_MAX).table_elements(TABLE_MAX);
        let mut store = Store::new(&self.engine, limits.instances(1).memories(1).tables(4).build());
        store.limiter(|limits| limits);
        store.set_fuel(FUEL_START).map_err(|e| Error::Failed(e.to_string()))?;
        let instance = wasmtime::Instance::new(&mut store, &program.module, &[]);
        let instance = instance.map_err(|e| no_module(fault_of(&e)))?;
        let other = |name: &str| no_module(format_args!("it does not export {name} as ABI {ABI} has it"));
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| other("memory"))?;
        let abi: u32 = call_once(&instance, &mut store, EXPORT_ABI)?;
        if abi != ABI {
            return Err(no_module(format_args!("it has ABI {abi}, this is ABI {ABI}")));
        }
        let at: u32 = call_once(&instance, &mut store, EXPORT_AREA)?;
        let mut bytes = [0; Area::BYTES];
        memory.read(&store, at as usize, &mut bytes).map_err(|_| other(EXPORT_AREA))?;
        let area = Area::parse(&bytes);
        let is_inside = |at: u32, len: u32| u64::from(at) + u64::from(len) <= memory.data_size(&store) as u64;
        if area.packet_bytes as usize != PACKET_BYTES_MAX
            || !is_inside(area.packet, area.packet_bytes)
            || !is_inside(area.state, area.state_bytes)
        {
            return Err(other(EXPORT_AREA));
        }
        Ok(Instance {
            packet: typed(&instance, &mut store, EXPORT_PACKET)?,
            report: typed(&instance, &mut store, EXPORT_REPORT)?,
            start: typed(&instance, &mut store, EXPORT_START)?,
            memory,
            area,
            store,
            program: Arc::clone(program),
            _seat: seat,
        })
    }
}

fn typed<P: WasmParams, R: WasmResults>(
    instance: &wasmtime::Instance,
    store: &mut Store<StoreLimits>,
    name: &str,
) -> Result<TypedFunc<P, R>> {
    let other = |_| no_module(format_args!("it does not export {name} as ABI {ABI} has it"));
    instance.get_typed_func(store, name).map_err(other)
}

fn call_once(instance: &wasmtime::Instance, store: &mut Store<StoreLimits>, name: &str) -> Result<u32> {
    let export: TypedFunc<(), u32> = typed(instance, store, name)?;
    export.call(store, ()).map_err(|e| no_module(fault_of(&e)))
}

/// Describes why a call ended.
fn fault_of(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => "it did not end in time: its fuel was used up".to_owned(),
        Some(trap) => format!("it trapped: {trap}"),
        None => format!("{error:#}"),
    }
}

/// An instance of a module.
pub struct Instance {
    store: Store<StoreLimits>,
    memory: Memory,
    area: Area,
    packet: TypedFunc<(u64, u32, u32), u32>,
    start: TypedFunc<u32, u32>,
    report: TypedFunc<(), u32>,
    program: Arc<Program>,
    // The last field, so that its place is free only when the others are.
    _seat: Seat,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("module", &self.program.hash).finish_non_exhaustive()
    }
}

impl Instance {
    /// Returns the module of which this is an instance.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn part(&mut self, at: u32, len: usize) -> Result<&mut [u8]> {
        let at = at as usize;
        let part = self.memory.data_mut(&mut self.store).get_mut(at..at + len);
        part.ok_or_else(|| Error::Failed("its memory is smaller than it was".to_owned()))
    }

    /// Reads the text of this length that the function left in the packet's place.
    fn text(&mut self, len: u32) -> Result<String> {
        let len = (len as usize).min(PACKET_BYTES_MAX);
        let place = self.area.packet;
        Ok(String::from_utf8_lossy(self.part(place, len)?).into_owned())
    }

    /// Gives it its settings: lines `KEY VALUE`.
    ///
    /// # Errors
    /// `Usage` with what the function says is wrong, or how it failed.
    pub fn start(&mut self, settings: &str) -> Result {
        if settings.len() > PACKET_BYTES_MAX {
            return Err(Error::Usage(format!("the settings are longer than {PACKET_BYTES_MAX} bytes")));
        }
        self.part(self.area.packet, settings.len())?.copy_from_slice(settings.as_bytes());
        let _ = self.store.set_fuel(FUEL_START);
        let called = self.start.call(&mut self.store, settings.len() as u32);
        match called.map_err(|e| Error::Usage(fault_of(&e)))? {
            0 => Ok(()),
            len => Err(Error::Usage(format!("the function says: {}", self.text(len)?))),
        }
    }

    /// Hands it the packet in the first `len` bytes of `place`, which it may change.
    ///
    /// # Errors
    /// How it failed; it must not be called again, because its state may be half changed.
    pub fn packet(
        &mut self,
        now_ms: u64,
        from: Side,
        place: &mut [u8; PACKET_BYTES_MAX],
        len: usize,
    ) -> std::result::Result<Answer, String> {
        let said = |e: Error| e.to_string();
        self.part(self.area.packet, len).map_err(said)?.copy_from_slice(&place[..len]);
        let _ = self.store.set_fuel(FUEL_PACKET);
        let called = self.packet.call(&mut self.store, (now_ms, from as u32, len as u32));
        let number = called.map_err(|e| fault_of(&e))?;
        let answer = Answer::decode(number).ok_or_else(|| format!("its answer {number:#x} is no verdict"))?;
        let len = usize::from(answer.len);
        if len > PACKET_BYTES_MAX {
            return Err(format!("its packet of {len} bytes is too long"));
        }
        place[..len].copy_from_slice(self.part(self.area.packet, len).map_err(said)?);
        Ok(answer)
    }

    /// Returns what the function says that it has done: lines `NAME NUMBER`.
    ///
    /// # Errors
    /// `Failed`, with how it failed.
    pub fn report(&mut self) -> Result<String> {
        let _ = self.store.set_fuel(FUEL_START);
        let len = self.report.call(&mut self.store, ()).map_err(|e| Error::Failed(fault_of(&e)))?;
        self.text(len)
    }

    /// Returns a copy of its state.
    ///
    /// # Errors
    /// `Failed` if its memory is not what it was.
    pub fn state(&mut self) -> Result<Vec<u8>> {
        Ok(self.part(self.area.state, self.area.state_bytes as usize)?.to_vec())
    }

    /// Sets its state, which an instance of the same module had.
    ///
    /// # Errors
    /// `Refused` if the state has another length.
    pub fn set_state(&mut self, state: &[u8]) -> Result {
        if state.len() != self.area.state_bytes as usize {
            let (have, want) = (state.len(), self.area.state_bytes);
            return Err(Error::Refused(format!("the state has {have} bytes, the function {want}")));
        }
        self.part(self.area.state, state.len())?.copy_from_slice(state);
        Ok(())
    }
}

impl Handle for Instance {
    fn packet(
        &mut self,
        now_ms: u64,
        from: Side,
        place: &mut [u8; PACKET_BYTES_MAX],
        len: usize,
    ) -> std::result::Result<Answer, String> {
        Self::packet(self, now_ms, from, place, len)
    }

    fn report(&mut self) -> Result<String> {
        Self::report(self)
    }

    fn state(&mut self) -> Result<Vec<u8>> {
        Self::state(self)
    }
}
