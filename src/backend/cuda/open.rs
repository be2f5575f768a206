//! Opening the GPU: in a child as a rule, here where that child serves it.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::Cuda;
use super::driver::{Gpu, GpuError, Unavailable};
use super::units::Sources;
use crate::backend::custom::Made;
use crate::backend::kernels::Replacement;
use crate::backend::nvrtc::{Nvrtc, NvrtcError};
use crate::backend::worker::{Deadline, Program, Worker};
use crate::backend::{Backend, Choice, OpenError, Patience, Run, launch};
use crate::case::Case;

/// Why the backend does not open.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// No GPU.
    #[error("the backend cuda has no GPU: {0}; the emulator runs the same kernels on the processor")]
    Unavailable(Unavailable),
    /// No compiler, or no kernels.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    /// The driver.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The kernels' sources.
    #[error("the kernels' sources: {0}")]
    Files(#[from] io::Error),
}

impl From<Unavailable> for CudaError {
    fn from(why: Unavailable) -> CudaError {
        // No source: the sentence holds it.
        CudaError::Unavailable(why)
    }
}

/// What is here: the GPU, its driver and the compiler.
///
/// # Errors
/// Whatever of it is missing.
pub(in crate::backend) fn here_is() -> Result<Option<String>, OpenError> {
    let (gpu, nvrtc) = tools()?;
    Ok(Some(format!("{gpu}, NVRTC {}", nvrtc.version())))
}

fn tools() -> Result<(Gpu, &'static Nvrtc), CudaError> {
    Ok((Gpu::find()?, Nvrtc::find()?))
}

/// The GPU in a child process, the kernels compiled before it starts.
pub(in crate::backend) fn in_child(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let (gpu, nvrtc) = tools()?;
    let mut args: Vec<OsString> = ["worker", "--backend", "cuda"].map(OsString::from).into();
    match choice.custom.as_ref().map(|custom| custom.made()) {
        Some(Made::Folder(folder)) => args.extend(["--sources".into(), folder.clone().into()]),
        _ => Sources::own().compile_all(nvrtc, &gpu.architecture()).map(drop).map_err(CudaError::from)?,
    }
    let worker = Worker::new("cuda", Program::this(args), launch::supports).with_deadline(deadline);
    Ok(Box::new(worker.keeping(choice.custom.clone())))
}

/// The GPU in this process.
pub(in crate::backend) fn here(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    Ok(Box::new(Cuda::new(sources(choice)?)?))
}

/// The kernels that are chosen.
pub(super) fn sources(choice: &Choice) -> Result<Sources, CudaError> {
    Ok(match choice.custom.as_ref().map(|custom| custom.made()) {
        Some(Made::Folder(folder)) => Sources::read(folder)?,
        _ => Sources::own(),
    })
}

/// Can kernels be made?
///
/// # Errors
/// No GPU, or no compiler.
pub(in crate::backend) fn can_make() -> Result<(), CudaError> {
    tools().map(drop)
}

/// Compiles the kernels, with these sources replaced, into a folder.
pub(in crate::backend) fn make(folder: &Path, replacements: &[Replacement]) -> Result<(), CudaError> {
    let (gpu, nvrtc) = tools()?;
    let sources = Sources::write(folder, replacements)?;
    sources.compile_all(nvrtc, &gpu.architecture())?;
    Ok(())
}

/// Time that no case goes below: another process's kernel that hangs shares the GPU's time with ours.
const LEAST: Duration = Duration::from_secs(20);
/// Likewise where the case is known to hang and a smaller one is looked for.
const LEAST_SHORT: Duration = Duration::from_secs(3);

/// The kernels take microseconds; what takes time is the way there and back.
fn deadline(case: &Case, run: Run) -> Deadline {
    let least = if run.patience == Patience::Short { LEAST_SHORT } else { LEAST };
    let of_case = Deadline::of(case, Run { races: false, patience: Patience::Short, ..run });
    // A child that waits for the GPU uses no processor: the wall tells.
    Deadline { cpu: of_case.cpu.max(least), wall: of_case.cpu.max(least) }
}
