//! Links the kernels and their emulator into the targets, the kernels instrumented as the target
//! is, and lays out the seeds where cargo-fuzz looks for them.
//!
//! `kernels/emulator/README.md` says why each flag is there.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[path = "../src/backend/emulator/compile.rs"]
#[allow(dead_code)] // this file builds objects; the rest builds libraries
mod compile;

/// What lets libFuzzer see the kernel's branches.
const COVERAGE: &str = "-fsanitize-coverage=inline-8bit-counters,pc-table";
/// By these instrumented code announces its counters. Instrumented Rust is twenty times as much as the
/// kernels, and a new branch of an oracle is no reason to keep an input: what Rust calls goes to an
/// empty function in `hooks.rs`, what the kernels call to libFuzzer.
const ANNOUNCEMENTS: [&str; 2] = ["__sanitizer_cov_8bit_counters_init", "__sanitizer_cov_pcs_init"];
/// The sections of the counters, and the constructor that announces them, of which a program keeps
/// one: the kernels get their own.
const NAMES: [(&str, &str); 3] = [
    ("__sancov_cntrs", "__kernel_cntrs"),
    ("__sancov_pcs", "__kernel_pcs"),
    ("sancov.module_ctor", "kernel.module_ctor"),
];
/// What instrumented Rust calls at every comparison, for a mutator of bytes to learn operands from.
/// Ours works on scenarios, and recording took more than half of the time: likewise.
const COMPARISONS: [&str; 8] =
    ["cmp1", "cmp2", "cmp4", "cmp8", "const_cmp1", "const_cmp2", "const_cmp4", "const_cmp8"];
/// AddressSanitizer and UndefinedBehaviorSanitizer; the runtime of both is rustc's.
const SANITIZERS: [&str; 3] = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    // Fake stacks and fibers do not mix.
    "-fsanitize-address-use-after-return=never",
];
/// Only clang's objects give libFuzzer coverage.
const COMPILERS: [&str; 2] = ["clang++-19", "clang++"];

fn main() -> ExitCode {
    match lay_out_seeds().map_err(|error| format!("seeds: {error}")).and_then(|()| build()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=../kernels");
    println!("cargo::rerun-if-changed=../src/backend/emulator/compile.rs");
    println!("cargo::rerun-if-env-changed=CXX");
    let compiler = compiler()?;
    let (mut everywhere, mut kernels) = (Vec::new(), Vec::new());
    if env::var_os("CARGO_CFG_FUZZING").is_some() {
        kernels.push(COVERAGE);
    }
    match env::var("CARGO_CFG_SANITIZE").unwrap_or_default().as_str() {
        "" => {}
        "address" => {
            everywhere.push("-DTHD_ASAN");
            kernels.extend(SANITIZERS);
        }
        other => return Err(format!("the kernels build with -s address and -s none, not with {other}")),
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let compile = |name: &str, flags: &[&str], what: &str, to: &Path| {
        let mut command = Command::new(&compiler);
        command.args(compile::COMMON).args(&everywhere).args(flags).arg(what);
        command.arg(Path::new("../kernels/emulator").join(format!("{name}.cc"))).arg("-o").arg(to);
        run(command, name)
    };
    for name in compile::MACHINE {
        let object = out.join(format!("{name}.o"));
        compile(name, &["-O3"], "-c", &object)?;
        println!("cargo::rustc-link-arg={}", object.display());
    }
    kernels.push("-O2");
    let (assembly, object) = (out.join("kernels.s"), out.join("kernels.o"));
    compile("kernels", &kernels, "-S", &assembly)?;
    set_apart(&assembly).map_err(|error| format!("{}: {error}", assembly.display()))?;
    let mut assembler = Command::new(&compiler);
    assembler.arg("-c").arg(&assembly).arg("-o").arg(&object);
    run(assembler, "the kernels' assembly")?;
    println!("cargo::rustc-link-arg={}", object.display());
    for name in ANNOUNCEMENTS {
        println!("cargo::rustc-link-arg=-Wl,--wrap={name}");
    }
    for name in COMPARISONS {
        println!("cargo::rustc-link-arg=-Wl,--wrap=__sanitizer_cov_trace_{name}");
    }
    println!("cargo::rustc-link-arg=-lstdc++");
    Ok(())
}

fn run(mut command: Command, what: &str) -> Result<(), String> {
    let said = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if said.status.success() { Ok(()) } else { Err(format!("{what}: {}", first_error(&said.stderr))) }
}

/// Gives the kernels' counters sections of their own, and lets their announcement past the linker's
/// `--wrap`. In the assembly, since no compiler has a flag for it.
fn set_apart(assembly: &Path) -> io::Result<()> {
    // Bytes: what strings hold need not be text.
    let mut text = fs::read(assembly)?;
    for (from, to) in NAMES {
        text = replaced(&text, from, to);
    }
    for name in ANNOUNCEMENTS {
        text = replaced(&text, name, &format!("__real_{name}"));
    }
    fs::write(assembly, text)
}

fn replaced(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let (written, read) = match rest.starts_with(from.as_bytes()) {
            true => (to.as_bytes(), from.len()),
            false => (std::slice::from_ref(&first), 1),
        };
        out.extend_from_slice(written);
        rest = &rest[read..];
    }
    out
}

/// `CXX` where that is clang, else what is on the path.
fn compiler() -> Result<OsString, String> {
    let is_clang = |name: &OsString| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("clang"))
    };
    let named = env::var_os("CXX").into_iter().chain(COMPILERS.map(OsString::from));
    named.filter(|name| !name.is_empty()).find(is_clang).ok_or_else(|| {
        "no clang++ (looked for CXX, clang++-19, clang++): libFuzzer needs its coverage of the kernels; \
         on Debian: apt-get install clang-19 libclang-rt-19-dev"
            .to_string()
    })
}

fn first_error(stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    let line = said.lines().find(|line| line.contains("error")).or_else(|| said.lines().next());
    line.unwrap_or("the compiler failed").to_string()
}

/// Copies `corpus/thd_bwd` to the git-ignored folder that `cargo fuzz run thd_bwd` reads and grows.
fn lay_out_seeds() -> io::Result<()> {
    let (from, to) = (Path::new("../corpus/thd_bwd"), Path::new("corpus/thd_bwd"));
    println!("cargo::rerun-if-changed={}", from.display());
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
