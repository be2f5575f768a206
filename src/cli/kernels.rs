//! `kernels`: what the compiled kernels take of a GPU, whatever GPU is here.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use rayon::prelude::*;

use super::out::{self, settle};
use super::{Kernels, Status};
use crate::backend::cuda::units::{Instance, Sources};
use crate::backend::nvrtc::{Nvrtc, Resources, resources};
use crate::report::kernels as report;

/// Compiles them and prints the table, or compares it.
pub(super) fn run(args: &Kernels) -> anyhow::Result<Status> {
    let known = args.check.as_deref().map(read).transpose()?;
    let nvrtc = Nvrtc::find()?;
    let mut architectures: Vec<&String> = Vec::new();
    for architecture in &args.architectures {
        if !architectures.contains(&architecture) {
            architectures.push(architecture);
        }
    }
    let table = report::table(nvrtc.version(), &compile(nvrtc, &architectures)?);
    match &known {
        None => Ok(settle(out::line(table.trim_end()), Status::Clean)),
        Some((name, known)) => compare(name, known, &table),
    }
}

/// Every entry point for every architecture, in the order asked for.
fn compile(nvrtc: &Nvrtc, architectures: &[&String]) -> anyhow::Result<Vec<(String, Vec<Resources>)>> {
    let sources = Sources::own();
    let jobs: Vec<(&String, Instance)> = architectures
        .iter()
        .copied()
        .flat_map(|architecture| Instance::all().into_iter().map(move |instance| (architecture, instance)))
        .collect();
    let logs = jobs.par_iter().map(|(architecture, instance)| {
        let cubin = nvrtc.compile(&sources.unit(*instance, architecture))?;
        let resources = resources(&cubin.log);
        if resources.is_empty() {
            bail!("NVRTC {} says nothing of the kernels for {architecture}", nvrtc.version());
        }
        Ok(((*architecture).clone(), resources))
    });
    let logs = logs.collect::<anyhow::Result<Vec<_>>>()?;
    let of = |architecture: &&String| {
        let mine = logs.iter().filter(|(of, _)| of == *architecture);
        let mut all: Vec<Resources> = mine.flat_map(|(_, resources)| resources.clone()).collect();
        // What does not depend on a head dim is in several units, and the same in each.
        all.sort();
        all.dedup();
        ((*architecture).clone(), all)
    };
    Ok(architectures.iter().map(of).collect())
}

/// Most bytes of a table: far beyond that of every architecture there is.
const MAX_TABLE: u64 = 1 << 20;

/// A table that was printed before, and its name as it may be shown.
fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let name = file.display().to_string().escape_debug().to_string();
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(MAX_TABLE).read_to_string(&mut text));
    read.with_context(|| format!("cannot read '{name}'"))?;
    Ok((name, text))
}

fn compare(name: &str, known: &str, table: &str) -> anyhow::Result<Status> {
    let [theirs, ours] = [known, table].map(|text| text.lines().next().unwrap_or_default());
    if theirs != ours {
        bail!("'{name}' begins with '{}', this one with '{ours}': not to be compared", theirs.escape_debug());
    }
    let differences = report::differences(known, table);
    if differences.is_empty() {
        let lines = table.lines().count();
        return Ok(settle(out::line(&format!("as in {name}: {lines} lines")), Status::Clean));
    }
    Ok(settle(out::line(differences.trim_end()), Status::Finding))
}
