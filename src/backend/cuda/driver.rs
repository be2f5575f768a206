//! The CUDA driver: nothing but this file and its folder calls it.
//!
//! It is loaded when it is first needed. Every function used here is in every driver since CUDA 11, so
//! that an older one is refused by what it says and not by a missing symbol.

use std::panic::catch_unwind;

use cudarc::driver::result::{self, DriverError, primary_ctx};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

mod objects;

pub use objects::{Event, Function, Memory, Module, Shape};

/// Least compute capability: `mma.m16n8k16` and `cp.async`.
const LEAST: (i32, i32) = (8, 0);

/// Why there is no GPU to run on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// No driver.
    #[error("no NVIDIA driver (libcuda.so.1) on this machine")]
    NoDriver,
    /// It does not start.
    #[error("the NVIDIA driver does not start: {0}")]
    Init(String),
    /// Nothing to drive, or nothing that may be seen.
    #[error("the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?)")]
    NoDevice,
    /// Too old.
    #[error("{name} has compute capability {}.{}, the kernels need {}.{}", .is.0, .is.1, LEAST.0, LEAST.1)]
    TooOld {
        /// The GPU.
        name: String,
        /// Its capability.
        is: (i32, i32),
    },
}

/// What a call of the driver failed by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The device stopped at a fault of a kernel: nothing in this process can use it any more.
    #[error("{0}")]
    DeviceFault(String),
    /// A launch that the driver refused.
    #[error("the launch was refused: {0}")]
    Launch(String),
    /// Memory of the GPU is short.
    #[error("the GPU has not {bytes} bytes of memory left")]
    NoMemory {
        /// What was asked for.
        bytes: u64,
    },
    /// Anything else.
    #[error("the CUDA driver's {call}: {problem}")]
    Driver {
        /// The call.
        call: &'static str,
        /// What it said.
        problem: String,
    },
}

/// A GPU as a reader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// CUDA version that the driver speaks, such as 13000.
    pub driver: i32,
    device: sys::CUdevice,
}

impl Gpu {
    /// The first that may be seen. Asks the driver and takes nothing of the GPU.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn find() -> Result<Gpu, Unavailable> {
        // SAFETY: loads NVIDIA's library, whose initialisers run.
        if !unsafe { sys::is_culib_present() } {
            return Err(Unavailable::NoDriver);
        }
        // A function that a library lacks is a panic of the bindings.
        let found = catch_unwind(Gpu::first);
        found.unwrap_or_else(|_| Err(Unavailable::Init("it lacks a function of CUDA 11".into())))
    }

    fn first() -> Result<Gpu, Unavailable> {
        let init = |error: DriverError| match error.0 {
            CUresult::CUDA_ERROR_NO_DEVICE => Unavailable::NoDevice,
            _ => Unavailable::Init(text(error)),
        };
        result::init().map_err(init)?;
        if result::device::get_count().map_err(init)? == 0 {
            return Err(Unavailable::NoDevice);
        }
        let device = result::device::get(0).map_err(init)?;
        // SAFETY: the device is one.
        let attribute = |which| unsafe { result::device::get_attribute(device, which) }.map_err(init);
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let name = result::device::get_name(device).map_err(init)?.escape_debug().to_string();
        let mut driver = 0;
        // SAFETY: an integer to write to.
        unsafe { sys::cuDriverGetVersion(&mut driver) }.result().map_err(init)?;
        if (major, minor) < LEAST {
            return Err(Unavailable::TooOld { name, is: (major, minor) });
        }
        Ok(Gpu { name, capability: (major, minor), driver, device })
    }

    /// What cubins for it are compiled for: `sm_90`.
    pub fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = (self.driver / 1000, self.driver % 1000 / 10);
        write!(f, "{}, {}, driver of CUDA {major}.{minor}", self.name, self.architecture())
    }
}

/// A GPU in use by this process. Memory, modules and events are used by a thread that [`Context::bind`]
/// has bound to it.
pub struct Context {
    gpu: Gpu,
    handle: sys::CUcontext,
}

// SAFETY: the driver's handles are of the process and not of a thread; a thread that uses them is bound
// to their context first.
unsafe impl Send for Context {}

impl Context {
    /// Takes the GPU's primary context, and makes waiting for it sleep rather than spin: the threads
    /// that judge the last case want the processor.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn open(gpu: Gpu) -> Result<Context, GpuError> {
        let flags = sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32;
        // SAFETY: the device is one; the context is kept as long as the process lives.
        let handle = unsafe {
            // Refused where it is active already, which then is somebody else's choice.
            let _ = sys::cuDevicePrimaryCtxSetFlags_v2(gpu.device, flags).result();
            primary_ctx::retain(gpu.device)
        };
        let handle = handle.map_err(|e| failed("cuDevicePrimaryCtxRetain", e))?;
        let context = Context { gpu, handle };
        context.bind()?;
        Ok(context)
    }

    /// Binds this thread to it.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn bind(&self) -> Result<(), GpuError> {
        // SAFETY: the context was retained.
        unsafe { result::ctx::set_current(self.handle) }.map_err(|e| failed("cuCtxSetCurrent", e))
    }

    /// Whose it is.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Waits for everything that was launched.
    ///
    /// # Errors
    /// [`GpuError::DeviceFault`] where a kernel did what it may not.
    pub fn wait(&self) -> Result<(), GpuError> {
        result::ctx::synchronize().map_err(|e| failed("cuCtxSynchronize", e))
    }
}

/// Does this code tell that a kernel faulted, after which the context is lost?
fn is_fault(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    )
}

fn failed(call: &'static str, error: DriverError) -> GpuError {
    match is_fault(error.0) {
        true => GpuError::DeviceFault(text(error)),
        false => GpuError::Driver { call, problem: text(error) },
    }
}

/// `CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered`.
fn text(error: DriverError) -> String {
    let word = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
    };
    match (word(error.error_name()), word(error.error_string())) {
        (name, _) if name.is_empty() => format!("error {}", error.0 as u32),
        (name, text) => format!("{name}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_no_gpu_is_one_sentence() {
        match Gpu::find() {
            Ok(gpu) => assert!(gpu.architecture().starts_with("sm_") && !gpu.name.is_empty()),
            Err(why) => assert!(why.to_string().len() < 160, "{why}"),
        }
        let old = Unavailable::TooOld { name: "T4".into(), is: (7, 5) };
        assert_eq!(old.to_string(), "T4 has compute capability 7.5, the kernels need 8.0");
    }
}
