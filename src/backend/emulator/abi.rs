//! The C interface of an emulated-kernel library: the mirror of `kernels/emulator/abi.h`.

use std::ffi::{c_char, c_void};

/// Version of the interface that this program speaks.
pub const ABI: u32 = 1;

/// Bit of [`Functions::mode`]: built with the race detector.
pub const MODE_RACE: u32 = 1;
/// Bit of [`Functions::mode`]: built for AddressSanitizer.
pub const MODE_ASAN: u32 = 2;
/// Bit of [`Functions::mode`]: fibers switch by swapcontext.
pub const MODE_UCONTEXT: u32 = 4;
/// From this status on a failure is the kernel's.
pub const FIRST_KERNEL_FAULT: u32 = 10;
/// The launch took more context switches than allowed.
pub const TOO_LONG: u32 = 15;
/// A range that may only be read.
pub const RANGE_READ_ONLY: u32 = 1;
/// A range that nobody may touch, for a library in [`MODE_ASAN`].
pub const RANGE_FORBIDDEN: u32 = 2;
/// No range: the address is outside all of them.
pub const NO_RANGE: u32 = u32::MAX;
/// No other side.
pub const NO_THREAD: u32 = u32::MAX;

/// Memory that a kernel may touch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Range {
    pub name: *const c_char,
    pub data: *const c_void,
    pub bytes: u64,
    pub flags: u32,
    pub reserved: u32,
}

/// One launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Launch {
    pub kernel: *const c_char,
    pub params: *const c_void,
    pub params_bytes: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub accumulation: u32,
    pub seed: u64,
    pub max_switches: u64,
    pub ranges: *const Range,
    pub range_count: u64,
}

/// One side of a conflict.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Access {
    pub pc: u64,
    pub block: u32,
    pub thread: u32,
}

/// A conflict.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Race {
    pub kind: u32,
    pub range: u32,
    pub in_shared: u32,
    pub bytes: u32,
    pub offset: u64,
    pub access: Access,
    pub earlier: Access,
}

/// Most conflicts that a report keeps.
pub const MAX_RACES: usize = 16;
const MESSAGE_BYTES: usize = 512;

/// What came of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Report {
    pub status: u32,
    pub races_kept: u32,
    pub races_seen: u64,
    pub switches: u64,
    pub races: [Race; MAX_RACES],
    pub message: [u8; MESSAGE_BYTES],
}

impl Report {
    /// All zeros, as the library expects nothing in particular.
    pub fn empty() -> Report {
        let side = Access { pc: 0, block: 0, thread: 0 };
        let race = Race { kind: 0, range: 0, in_shared: 0, bytes: 0, offset: 0, access: side, earlier: side };
        Report {
            status: 0,
            races_kept: 0,
            races_seen: 0,
            switches: 0,
            races: [race; MAX_RACES],
            message: [0; MESSAGE_BYTES],
        }
    }

    /// The message, up to its end.
    pub fn message(&self) -> String {
        let end = self.message.iter().position(|&b| b == 0).unwrap_or(MESSAGE_BYTES);
        String::from_utf8_lossy(&self.message[..end]).into_owned()
    }
}

/// What a kind of conflict is called.
pub fn race_name(kind: u32) -> &'static str {
    match kind {
        1 => "read after write without a barrier",
        2 => "write after read without a barrier",
        3 => "write after write without a barrier",
        4 => "access to a copy nobody has waited for",
        5 => "read of shared memory that nobody wrote",
        6 => "access outside every buffer",
        7 => "access between shared arrays",
        8 => "write to an input",
        _ => "conflict of an unknown kind",
    }
}

/// `thd_emulator_launch`.
pub type LaunchFn = unsafe extern "C" fn(*const Launch, *mut Report) -> u32;

/// The functions of a library, loaded or linked.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Runs a kernel.
    pub launch: LaunchFn,
    /// Bits of `ThdMode`.
    pub mode: u32,
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn sizes_are_those_that_abi_h_asserts() {
        let sizes = [size_of::<Range>(), size_of::<Launch>(), size_of::<Race>(), size_of::<Access>()];
        assert_eq!(sizes, [32, 88, 56, 16]);
        assert_eq!(size_of::<Report>(), 24 + MAX_RACES * 56 + MESSAGE_BYTES);
    }
}
