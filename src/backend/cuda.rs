//! The project's kernel on a GPU: the CUDA sources compiled by NVRTC for the one that is there.
//!
//! This is the kernel in this process. A fault of a kernel makes the GPU useless to the process that
//! launched it, so the backend of the command line runs in a child (`backend::worker`).

use std::collections::HashMap;

use super::launch::{self, Launch, WorkLists};
use super::nvrtc::Nvrtc;
use super::params::Params;
use super::{Answer, Backend, Failure, Run, RunError, Support};
use crate::case::Case;
use crate::inputs::Inputs;

pub mod bench;
pub mod driver;
mod image;
pub mod open;
pub mod units;

use driver::{Context, GpuError, Memory, Module, Shape};
use image::Image;
use open::CudaError;
use units::{Instance, Sources};

/// Memory is taken in multiples of this, so that it is not taken anew for every case.
const MEMORY_UNIT: usize = 16 << 20;

/// The GPU.
pub struct Cuda {
    // Dropped in this order: what belongs to the context goes before it.
    memory: Option<Memory>,
    modules: HashMap<Instance, Module>,
    context: Context,
    /// Here before the first case: a case's time is not for compiling.
    cubins: HashMap<Instance, Vec<u8>>,
    nvrtc: &'static Nvrtc,
}

impl Cuda {
    /// On the GPU that is there.
    ///
    /// # Errors
    /// No GPU, no compiler, or what the driver says.
    pub fn new(sources: Sources) -> Result<Cuda, CudaError> {
        let context = Context::open(driver::Gpu::find()?)?;
        let nvrtc = Nvrtc::find()?;
        let cubins = sources.compile_all(nvrtc, &context.gpu().architecture())?;
        Ok(Cuda { memory: None, modules: HashMap::new(), context, cubins, nvrtc })
    }

    /// The kernels that a case runs in, loaded.
    fn module(&mut self, case: &Case) -> Result<&Module, RunError> {
        let refused = || RunError::Refused("no kernel is compiled for it".into());
        let instance = Instance::of(case).ok_or_else(refused)?;
        if !self.modules.contains_key(&instance) {
            let cubin = self.cubins.get(&instance).ok_or_else(refused)?;
            let module = Module::load(&self.context, cubin).map_err(run_error)?;
            self.modules.insert(instance, module);
        }
        Ok(&self.modules[&instance])
    }

    /// At least so much memory.
    fn memory(&mut self, bytes: usize) -> Result<&mut Memory, GpuError> {
        if self.memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            // The old goes first: both may not fit.
            self.memory = None;
            let memory = Memory::new(&self.context, bytes.next_multiple_of(MEMORY_UNIT))?;
            self.memory = Some(memory);
        }
        Ok(self.memory.as_mut().expect("there is some now"))
    }

    /// Launches one kernel and waits for it, so that a fault is told by its name.
    fn launch(&mut self, case: &Case, launch: &Launch, params: &Params) -> Result<(), RunError> {
        let function = self.module(case)?.function(&launch.kernel, launch.shared_bytes);
        let launched = function.and_then(|function| {
            function.launch(&self.context, shape(launch), params.as_bytes())?;
            self.context.wait()
        });
        launched.map_err(|error| match run_error(error) {
            RunError::Fault { kind, detail } => {
                RunError::Fault { kind, detail: format!("{}: {detail}", launch.kernel) }
            }
            other => other,
        })
    }
}

impl Backend for Cuda {
    fn supports(&self, case: &Case) -> Support {
        launch::supports(case)
    }

    fn reset(&mut self) {}

    fn about(&self) -> String {
        format!("{}, NVRTC {}", self.context.gpu(), self.nvrtc.version())
    }

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        let case = &inputs.case;
        if let Support::No(reason) = launch::supports(case) {
            return Err(RunError::Refused(reason));
        }
        self.context.bind().map_err(run_error)?;
        let lists = WorkLists::new(case);
        let image = Image::new(inputs, &lists, run.poison);
        let memory = self.memory(image.bytes().len()).map_err(run_error)?;
        memory.write(image.bytes()).map_err(run_error)?;
        // What an earlier case left behind is not to be read as numbers.
        memory.fill_rest(image.bytes().len()).map_err(run_error)?;
        let params = image.params_at(memory.address());
        for launch in launch::launches(case, &lists) {
            self.launch(case, &launch, &params)?;
        }
        let mut after = vec![0; image.bytes().len()];
        self.memory(after.len()).and_then(|memory| memory.read(&mut after)).map_err(run_error)?;
        let outputs = image.outputs(case, &after);
        let fault = |detail| RunError::Fault { kind: Failure::Error, detail };
        Ok(Answer { outputs: outputs.map_err(fault)?, races: Vec::new() })
    }
}

fn shape(launch: &Launch) -> Shape {
    Shape { grid: launch.grid, block: launch::THREADS, shared_bytes: launch.shared_bytes }
}

fn run_error(error: GpuError) -> RunError {
    match error {
        GpuError::DeviceFault(detail) => RunError::Fault { kind: Failure::DeviceFault, detail },
        GpuError::Launch(detail) => RunError::Fault { kind: Failure::Error, detail },
        GpuError::NoMemory { .. } => RunError::Refused(error.to_string()),
        GpuError::Driver { .. } => RunError::Harness(error.to_string()),
    }
}
