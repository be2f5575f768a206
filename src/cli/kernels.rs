//! `kernels`: what the compiled kernels take of a GPU, whatever GPU is here.

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
    let nvrtc = Nvrtc::find()?;
    let table = report::table(nvrtc.version(), &compile(nvrtc, &args.architectures)?);
    match &args.check {
        None => Ok(settle(out::line(table.trim_end()), Status::Clean)),
        Some(file) => compare(file, &table),
    }
}

/// Every entry point for every architecture, in the order asked for.
fn compile(nvrtc: &Nvrtc, architectures: &[String]) -> anyhow::Result<Vec<(String, Vec<Resources>)>> {
    let sources = Sources::own();
    let jobs: Vec<(&String, Instance)> = architectures
        .iter()
        .flat_map(|architecture| Instance::all().into_iter().map(move |instance| (architecture, instance)))
        .collect();
    let logs = jobs.par_iter().map(|(architecture, instance)| {
        let cubin = nvrtc.compile(&sources.unit(*instance, architecture))?;
        Ok(((*architecture).clone(), resources(&cubin.log)))
    });
    let logs = logs.collect::<anyhow::Result<Vec<_>>>()?;
    let of = |architecture: &String| {
        let mine = logs.iter().filter(|(of, _)| of == architecture);
        let mut all: Vec<Resources> = mine.flat_map(|(_, resources)| resources.clone()).collect();
        // What does not depend on a head dim is in several units, and the same in each.
        all.sort();
        all.dedup();
        (architecture.clone(), all)
    };
    Ok(architectures.iter().map(of).collect())
}

fn compare(file: &Path, table: &str) -> anyhow::Result<Status> {
    let name = file.display().to_string().escape_debug().to_string();
    let known = std::fs::read_to_string(file).with_context(|| format!("cannot read '{name}'"))?;
    if known.lines().next() != table.lines().next() {
        let (theirs, ours) =
            (known.lines().next().unwrap_or_default(), table.lines().next().unwrap_or_default());
        bail!("'{name}' begins with '{}', this one with '{ours}': not to be compared", theirs.escape_debug());
    }
    let differences = report::differences(&known, table);
    if differences.is_empty() {
        return Ok(settle(
            out::line(&format!("as in {name}: {} lines", table.lines().count())),
            Status::Clean,
        ));
    }
    Ok(settle(out::line(differences.trim_end()), Status::Finding))
}
