//! What NVRTC compiles: the kernels of one dtype and head dim at a time, so that they compile beside
//! each other and a campaign of one dtype loads no other's.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use rayon::prelude::*;

use crate::backend::kernels::{self, Replacement};
use crate::backend::launch::{self, HEAD_DIMS};
use crate::backend::nvrtc::cache::Cache;
use crate::backend::nvrtc::{Nvrtc, NvrtcError, Unit};
use crate::case::Case;
use crate::tensor::DType;

/// Storage dtypes that the kernels are compiled for.
const DTYPES: [DType; 2] = [DType::Bf16, DType::F16];
/// The compiler's options. Line numbers cost nothing and tell NVIDIA's tools where they are; ptxas
/// prints what [`nvrtc::resources`](crate::backend::nvrtc::resources()) reads.
const OPTIONS: [&str; 3] = ["--std=c++17", "--generate-line-info", "--ptxas-options=-v"];
/// The joined source in a folder of sources.
const SOURCE: &str = "kernels.cu";

/// A dtype and a compiled head dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Storage dtype.
    pub dtype: DType,
    /// Columns of a tile.
    pub head_dim: u32,
}

impl Instance {
    /// All of them.
    pub fn all() -> Vec<Instance> {
        let of = |dtype| HEAD_DIMS.map(|head_dim| Instance { dtype, head_dim });
        DTYPES.into_iter().flat_map(of).collect()
    }

    /// The one that a case runs in; `None` where it runs in none.
    pub fn of(case: &Case) -> Option<Instance> {
        Some(Instance { dtype: case.dtype, head_dim: launch::head_dim(case)? })
    }

    /// To be compiled.
    fn unit(self, source: &str, architecture: &str) -> Unit {
        let (dtype, head_dim) = (self.dtype.name(), self.head_dim);
        let only = [
            format!("--define-macro=THD_FOR_EACH_DTYPE_DIM(X)=X({dtype},{head_dim})"),
            format!("--define-macro=THD_FOR_EACH_DTYPE(X)=X({dtype})"),
        ];
        Unit {
            source: source.into(),
            options: OPTIONS.map(String::from).into_iter().chain(only).collect(),
            architecture: architecture.into(),
        }
    }
}

/// A source and where the cubins made of it are kept.
#[derive(Clone, Debug)]
pub struct Sources {
    text: String,
    cache: Cache,
}

impl Sources {
    /// The project's own.
    pub fn own() -> Sources {
        let text = kernels::joined(&[]).expect("nothing is replaced");
        Sources { text, cache: Cache::of_user() }
    }

    /// Others, written into a folder, which also holds their cubins.
    ///
    /// # Errors
    /// Whatever the file system says, or a replacement of a file that is no kernel source.
    pub fn write(folder: &Path, replacements: &[Replacement]) -> io::Result<Sources> {
        let text = kernels::joined(replacements)?;
        fs::write(folder.join(SOURCE), &text)?;
        Ok(Sources { text, cache: Cache::at(folder) })
    }

    /// Those that were written there.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn read(folder: &Path) -> io::Result<Sources> {
        Ok(Sources { text: fs::read_to_string(folder.join(SOURCE))?, cache: Cache::at(folder) })
    }

    /// An instance, to be compiled.
    pub fn unit(&self, instance: Instance, architecture: &str) -> Unit {
        instance.unit(&self.text, architecture)
    }

    /// A cubin, compiled where it is not kept yet.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn cubin(
        &self,
        instance: Instance,
        nvrtc: &Nvrtc,
        architecture: &str,
    ) -> Result<Vec<u8>, NvrtcError> {
        self.cache.cubin(nvrtc, &self.unit(instance, architecture))
    }

    /// All cubins, kept from now on where anything can be kept, as many compiled at once as there are cores.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn compile_all(
        &self,
        nvrtc: &Nvrtc,
        architecture: &str,
    ) -> Result<HashMap<Instance, Vec<u8>>, NvrtcError> {
        let one = |instance| Ok((instance, self.cubin(instance, nvrtc, architecture)?));
        Instance::all().into_par_iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_the_instance_that_its_launches_name() {
        let case: Case = "[1] f16 d8/72".parse().unwrap();
        let instance = Instance::of(&case).unwrap();
        assert_eq!((instance.dtype, instance.head_dim), (DType::F16, 96));
        assert!(Instance::all().contains(&instance) && Instance::all().len() == 8);
        assert_eq!(Instance::of(&"[1] d136".parse().unwrap()), None);
        let options = instance.unit("", "sm_90").options;
        assert!(options.iter().any(|o| o.ends_with("(X)=X(f16,96)")), "{options:?}");
    }

    #[test]
    fn other_sources_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let other = Replacement { name: "clear.cu".into(), text: "// nothing".into() };
        let written = Sources::write(folder.path(), &[other]).unwrap();
        assert!(written.text.contains("#line 1 \"clear.cu\"\n// nothing\n"));
        assert!(!Sources::own().text.contains("// nothing\n"));
        assert_eq!(Sources::read(folder.path()).unwrap().text, written.text);
    }
}
