//! How long the kernels take on the GPU: each launch between two events, the same inputs again and again.

use std::time::Duration;

use super::driver::{Event, GpuError};
use super::image::Image;
use super::open::{self, CudaError};
use super::{Cuda, shape};
use crate::backend::launch::{self, Launch, WorkLists};
use crate::backend::params::Params;
use crate::backend::{Backend, Choice, RunError, Support};
use crate::case::Case;
use crate::inputs::Inputs;
use crate::tensor::Poison;

/// Runs before the first that counts: clocks rise, caches fill.
const WARM_UP: usize = 5;

/// Times of one launch.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The entry point.
    pub kernel: String,
    /// Does it belong to the forward pass?
    pub forward: bool,
    /// Of each repeat, in order.
    pub times: Vec<Duration>,
}

/// Times of all launches of a case, and of forward and backward as a whole.
#[derive(Clone, Debug)]
pub struct Timing {
    /// GPU, driver and compiler.
    pub device: String,
    /// By launch.
    pub launches: Vec<Timed>,
    /// All launches of the forward pass one after the other, of each repeat.
    pub forward: Vec<Duration>,
    /// Likewise of the backward pass.
    pub backward: Vec<Duration>,
}

/// Why there are no times.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No GPU, or no compiler.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The kernels do not do such cases.
    #[error("the kernels refuse the case: {0}")]
    Refused(String),
    /// The driver, or a kernel that faults.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The kernels do not load.
    #[error("the kernels do not load: {0}")]
    Load(RunError),
}

/// Times a case on the GPU, in this process.
///
/// # Errors
/// [`BenchError`].
pub fn measure(choice: &Choice, case: &Case, repeats: usize) -> Result<Timing, BenchError> {
    if let Support::No(reason) = launch::supports(case) {
        return Err(BenchError::Refused(reason));
    }
    let mut cuda = Cuda::new(open::sources(choice)?)?;
    let lists = WorkLists::new(case);
    let image = Image::new(&Inputs::new(case), &lists, Poison::Nan);
    let memory = cuda.memory(image.bytes().len())?;
    memory.write(image.bytes())?;
    let params = image.params_at(memory.address());
    drop(image);
    cuda.module(case).map_err(BenchError::Load)?;
    let (forward, backward): (Vec<Launch>, Vec<Launch>) =
        launch::launches(case, &lists).into_iter().partition(|launch| launch.kernel.contains("forward"));
    let device = cuda.about();
    let mut timing = Timing { device, launches: Vec::new(), forward: Vec::new(), backward: Vec::new() };
    for (pass, is_forward) in [(&forward, true), (&backward, false)] {
        let whole = cuda.times(case, pass, &params, repeats)?;
        *(if is_forward { &mut timing.forward } else { &mut timing.backward }) = whole;
        for launch in pass {
            let times = cuda.times(case, std::slice::from_ref(launch), &params, repeats)?;
            timing.launches.push(Timed { kernel: launch.kernel.clone(), forward: is_forward, times });
        }
    }
    Ok(timing)
}

impl Cuda {
    /// Of these launches together, again and again.
    fn times(
        &mut self,
        case: &Case,
        launches: &[Launch],
        params: &Params,
        repeats: usize,
    ) -> Result<Vec<Duration>, BenchError> {
        let mut times = Vec::with_capacity(repeats);
        for repeat in 0..WARM_UP + repeats {
            let module = self.module(case).map_err(BenchError::Load)?;
            let functions =
                launches.iter().map(|launch| module.function(&launch.kernel, launch.shared_bytes));
            let functions = functions.collect::<Result<Vec<_>, _>>()?;
            let start = Event::now(&self.context)?;
            for (function, launch) in functions.iter().zip(launches) {
                function.launch(&self.context, shape(launch), params.as_bytes())?;
            }
            let end = Event::now(&self.context)?;
            self.context.wait()?;
            if repeat >= WARM_UP {
                times.push(end.since(&start)?);
            }
        }
        Ok(times)
    }
}
