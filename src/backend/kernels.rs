//! The project's kernel sources, embedded: NVRTC takes them joined in order, the emulator is
//! compiled from a copy of the folder.

use std::fs;
use std::io;
use std::path::Path;

/// A source file.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Path below `kernels/`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! sources {
    ($($name:literal)*) => {
        [$(Source { name: $name, text: include_str!(concat!("../../kernels/", $name)) },)*]
    };
}

/// The kernels, in the order in which they are joined.
pub static KERNELS: [Source; 10] = sources! {
    "params.h" "tile.cuh" "mask.cuh" "ragged.cuh" "product.cuh"
    "forward.cu" "backward_delta.cu" "backward.cu" "backward_convert.cu" "clear.cu"
};

/// The emulator.
pub static EMULATOR: [Source; 13] = sources! {
    "emulator/abi.h" "emulator/device.h" "emulator/primitives.h" "emulator/fiber.h"
    "emulator/machine.h" "emulator/machine.cc" "emulator/collective.cc" "emulator/products.cc"
    "emulator/race.cc" "emulator/launch.cc" "emulator/kernels.cc" "emulator/kernel_table.h"
    "emulator/exports.map"
};

/// Another text in a source's place: a mutant, or the user's own kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Name of a source of [`KERNELS`].
    pub name: String,
    /// Its new text.
    pub text: String,
}

/// Writes all sources into `folder`, replaced ones replaced.
///
/// # Errors
/// Whatever the file system says, or a replacement of a file that is no kernel source.
pub fn write_to(folder: &Path, replacements: &[Replacement]) -> io::Result<()> {
    no_stranger(replacements)?;
    fs::create_dir_all(folder.join("emulator"))?;
    for source in KERNELS.iter().chain(&EMULATOR) {
        fs::write(folder.join(source.name), text_of(source, replacements))?;
    }
    Ok(())
}

/// The kernels as one text, in order, each line told by its own file and number.
///
/// # Errors
/// A replacement of a file that is no kernel source.
pub fn joined(replacements: &[Replacement]) -> io::Result<String> {
    no_stranger(replacements)?;
    let part = |source: &Source| format!("#line 1 \"{}\"\n{}\n", source.name, text_of(source, replacements));
    Ok(KERNELS.iter().map(part).collect())
}

fn text_of<'a>(source: &Source, replacements: &'a [Replacement]) -> &'a str {
    replacements.iter().find(|r| r.name == source.name).map_or(source.text, |r| &r.text)
}

fn no_stranger(replacements: &[Replacement]) -> io::Result<()> {
    let known = |name: &str| KERNELS.iter().any(|source| source.name == name);
    let Some(stranger) = replacements.iter().find(|r| !known(&r.name)) else { return Ok(()) };
    let names = KERNELS.map(|source| source.name).join(", ");
    let message = format!("'{}' is no kernel source; those are {names}", stranger.name.escape_debug());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
