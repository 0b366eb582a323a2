//! Makes a module of WebAssembly of a function: the exports of [`abi`](crate::abi).

use core::cell::UnsafeCell;

use crate::abi::{Area, PACKET_BYTES_MAX, Side};
use crate::function::{Function, Instance};

/// The memory of a module: an instance, and the place of a packet.
#[derive(Debug)]
pub struct Exported<F> {
    instance: UnsafeCell<Instance<F>>,
    packet: UnsafeCell<[u8; PACKET_BYTES_MAX]>,
    area: UnsafeCell<Area>,
}

// SAFETY: a module has one thread, and its host calls one export at a time.
unsafe impl<F> Sync for Exported<F> {}

impl<F: Function> Exported<F> {
    /// Makes the memory at the beginning.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            instance: UnsafeCell::new(Instance::new()),
            packet: UnsafeCell::new([0; PACKET_BYTES_MAX]),
            area: UnsafeCell::new(Area { packet: 0, packet_bytes: 0, state: 0, state_bytes: 0 }),
        }
    }

    /// See [`EXPORT_AREA`](crate::abi::EXPORT_AREA).
    pub fn area(&self) -> u32 {
        let area = Area {
            packet: self.packet.get().addr() as u32,
            packet_bytes: PACKET_BYTES_MAX as u32,
            state: self.instance.get().addr() as u32,
            state_bytes: size_of::<Instance<F>>() as u32,
        };
        // SAFETY: no other reference to the area exists.
        unsafe { *self.area.get() = area };
        self.area.get().addr() as u32
    }

    /// See [`EXPORT_START`](crate::abi::EXPORT_START).
    pub fn start(&self, len: u32) -> u32 {
        // SAFETY: exports are called one at a time, so no other reference exists.
        let (instance, place) = unsafe { (&mut *self.instance.get(), &mut *self.packet.get()) };
        let said = match place.get(..len as usize).map(core::str::from_utf8) {
            Some(Ok(settings)) => match instance.start(settings) {
                Ok(()) => return 0,
                Err((line, wrong)) => (line, wrong.0),
            },
            _ => ("", "the settings are no text"),
        };
        // The line is in the place to which the text is written, so it goes first, to where it is.
        let (line, text) = said;
        let (at, line_bytes) = (line.as_ptr().addr(), line.len());
        let start = if line_bytes == 0 { 0 } else { at - place.as_ptr().addr() };
        place.copy_within(start..start + line_bytes, 0);
        let mut written = line_bytes;
        let between = if line_bytes == 0 { "" } else { ": " };
        for part in [between, text] {
            let end = (written + part.len()).min(place.len());
            place[written..end].copy_from_slice(&part.as_bytes()[..end - written]);
            written = end;
        }
        written as u32
    }

    /// See [`EXPORT_PACKET`](crate::abi::EXPORT_PACKET).
    pub fn packet(&self, now: u64, from: u32, len: u32) -> u32 {
        // SAFETY: exports are called one at a time, so no other reference exists.
        let (instance, place) = unsafe { (&mut *self.instance.get(), &mut *self.packet.get()) };
        instance.packet(now, Side::of(from), place, len as usize).encode()
    }

    /// See [`EXPORT_REPORT`](crate::abi::EXPORT_REPORT).
    pub fn report(&self) -> u32 {
        // SAFETY: exports are called one at a time, so no other reference exists.
        let (instance, place) = unsafe { (&*self.instance.get(), &mut *self.packet.get()) };
        instance.report(place) as u32
    }
}

impl<F: Function> Default for Exported<F> {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes a module of a function: `anabranch_function::export!(Firewall);` in a crate of type `cdylib` that is
/// `no_std`.
#[macro_export]
macro_rules! export {
    ($function:ty) => {
        static EXPORTED: $crate::export::Exported<$function> = $crate::export::Exported::new();

        #[unsafe(no_mangle)]
        extern "C" fn anabranch_abi() -> u32 {
            $crate::abi::ABI
        }

        #[unsafe(no_mangle)]
        extern "C" fn anabranch_area() -> u32 {
            EXPORTED.area()
        }

        #[unsafe(no_mangle)]
        extern "C" fn anabranch_start(len: u32) -> u32 {
            EXPORTED.start(len)
        }

        #[unsafe(no_mangle)]
        extern "C" fn anabranch_packet(now: u64, from: u32, len: u32) -> u32 {
            EXPORTED.packet(now, from, len)
        }

        #[unsafe(no_mangle)]
        extern "C" fn anabranch_report() -> u32 {
            EXPORTED.report()
        }

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            core::arch::wasm32::unreachable()
        }
    };
}
