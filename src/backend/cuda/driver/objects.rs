//! What a context holds: memory, modules with their entry points, events.

use std::ffi::{CString, c_void};
use std::time::Duration;

use cudarc::driver::result::{self, event, function, module};
use cudarc::driver::sys::{self, CUresult};

use super::{Context, GpuError, failed, text};

/// Dynamic shared memory that needs no permission.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

/// Memory of the GPU.
#[derive(Debug)]
pub struct Memory {
    address: u64,
    bytes: usize,
}

impl Memory {
    /// At least one byte, of unknown content.
    ///
    /// # Errors
    /// [`GpuError::NoMemory`], or what else the driver says.
    pub fn new(_: &Context, bytes: usize) -> Result<Memory, GpuError> {
        let bytes = bytes.max(1);
        // SAFETY: a context is current.
        let address = unsafe { result::malloc_sync(bytes) };
        let address = address.map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => GpuError::NoMemory { bytes: bytes as u64 },
            _ => failed("cuMemAlloc", error),
        })?;
        Ok(Memory { address, bytes })
    }

    /// Its first byte, on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills its beginning.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), GpuError> {
        assert!(bytes.len() <= self.bytes, "more than the memory holds");
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation.
        unsafe { result::memcpy_htod_sync(self.address, bytes) }.map_err(|e| failed("cuMemcpyHtoD", e))
    }

    /// Fills it from byte `from` on with ones, which are NaN in every dtype.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn fill_rest(&mut self, from: usize) -> Result<(), GpuError> {
        let bytes = self.bytes.saturating_sub(from);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: inside the allocation.
        let filled = unsafe { result::memset_d8_sync(self.address + from as u64, u8::MAX, bytes) };
        filled.map_err(|e| failed("cuMemsetD8", e))
    }

    /// Reads its beginning.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn read(&self, bytes: &mut [u8]) -> Result<(), GpuError> {
        assert!(bytes.len() <= self.bytes, "more than the memory holds");
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation.
        unsafe { result::memcpy_dtoh_sync(bytes, self.address) }.map_err(|e| failed("cuMemcpyDtoH", e))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated here, freed once. After a fault of the device it fails, and the process ends.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// A loaded cubin.
pub struct Module {
    handle: sys::CUmodule,
}

// SAFETY: the handle is of the process; a thread that uses it is bound to its context first.
unsafe impl Send for Module {}

impl Module {
    /// Loads it.
    ///
    /// # Errors
    /// [`GpuError`], say for a cubin of another architecture.
    pub fn load(_: &Context, image: &[u8]) -> Result<Module, GpuError> {
        // SAFETY: a cubin tells its own size.
        let handle = unsafe { module::load_data(image.as_ptr().cast()) };
        Ok(Module { handle: handle.map_err(|e| failed("cuModuleLoadData", e))? })
    }

    /// An entry point, allowed to use as much dynamic shared memory as it is launched with.
    ///
    /// # Errors
    /// [`GpuError`], for a name that is not there or more memory than the GPU has.
    pub fn function(&self, name: &str, shared_bytes: u32) -> Result<Function, GpuError> {
        let driver = |problem: String| GpuError::Driver { call: "cuModuleGetFunction", problem };
        let entry = CString::new(name).map_err(|error| driver(error.to_string()))?;
        // SAFETY: the module is loaded.
        let handle = unsafe { module::get_function(self.handle, entry) };
        let handle = handle.map_err(|error| driver(format!("{name}: {}", text(error))))?;
        if shared_bytes > SHARED_WITHOUT_ASKING {
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function exists.
            let set = unsafe { function::set_function_attribute(handle, which, shared_bytes as i32) };
            set.map_err(|error| GpuError::Launch(format!("{shared_bytes} bytes shared: {}", text(error))))?;
        }
        Ok(Function { handle })
    }
}

/// An entry point.
#[derive(Clone, Copy)]
pub struct Function {
    handle: sys::CUfunction,
}

/// How it is launched.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks in x and y.
    pub grid: [u32; 2],
    /// Threads in x.
    pub block: u32,
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
}

impl Function {
    /// Launches it with one parameter, passed by value.
    ///
    /// # Errors
    /// [`GpuError::Launch`] where the driver refuses; what the kernel does is told by [`Context::wait`].
    pub fn launch(&self, _: &Context, shape: Shape, parameter: &[u8]) -> Result<(), GpuError> {
        let mut parameters = [parameter.as_ptr().cast_mut().cast::<c_void>()];
        let (grid, block) = ((shape.grid[0], shape.grid[1], 1), (shape.block, 1, 1));
        let stream = result::stream::null();
        // SAFETY: the driver copies the parameter before it returns. What the kernel does with the
        // addresses in it is the kernel's; the process is a child that may die of it.
        let launched = unsafe {
            result::launch_kernel(self.handle, grid, block, shape.shared_bytes, stream, &mut parameters)
        };
        launched.map_err(|error| match failed("cuLaunchKernel", error) {
            GpuError::Driver { problem, .. } => GpuError::Launch(problem),
            other => other,
        })
    }
}

/// A point in the GPU's work, to measure time between two.
pub struct Event {
    handle: sys::CUevent,
}

impl Event {
    /// Marks everything that was launched so far.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn now(_: &Context) -> Result<Event, GpuError> {
        let handle = event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = Event { handle: handle.map_err(|e| failed("cuEventCreate", e))? };
        // SAFETY: just created.
        let recorded = unsafe { event::record(event.handle, result::stream::null()) };
        recorded.map_err(|e| failed("cuEventRecord", e))?;
        Ok(event)
    }

    /// Time from `earlier` to this one; both are in the past.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn since(&self, earlier: &Event) -> Result<Duration, GpuError> {
        // SAFETY: both exist and were recorded.
        let elapsed = unsafe { event::elapsed(earlier.handle, self.handle) };
        let milliseconds = elapsed.map_err(|e| failed("cuEventElapsedTime", e))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) * 1e-3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created here, destroyed once.
        let _ = unsafe { event::destroy(self.handle) };
    }
}
