//! Builds the emulated kernels: the libraries that the backend `emulator` loads where nobody asks for
//! another kernel.

use std::env;
use std::path::{Path, PathBuf};

#[path = "src/backend/emulator/compile.rs"]
#[allow(dead_code)] // what only run time needs
mod compile;

use compile::{Job, Mode};

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-env-changed=CXX");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = compile::compiler();
    let build = |mode: Mode| {
        let library = out.join(format!("libthd_kernels_{}.so", mode.name()));
        let sources = Path::new("kernels");
        // The emulator's sources may have changed: no object of an earlier build is good.
        let objects = out.join(format!("objects-{}", mode.name()));
        let _ = std::fs::remove_dir_all(&objects);
        std::fs::create_dir_all(&objects).map_err(|e| e.to_string())?;
        let job = Job { compiler: &compiler, sources, objects: &objects, mode, library: &library };
        compile::build(&job).map_err(|e| e.to_string())
    };
    let race = std::thread::scope(|scope| {
        let race = scope.spawn(|| build(Mode::Race));
        let plain = build(Mode::Plain);
        plain.and(race.join().unwrap_or_else(|_| Err("a panic while compiling".into())))
    });
    if let Err(message) = race {
        println!("cargo::error=thd-fuzz needs a C++17 compiler (g++ 12 or clang 15 and newer): {message}");
        std::process::exit(1);
    }
}
