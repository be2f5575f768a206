//! A differential fuzzer for fused attention **backward** kernels on packed variable-length (THD)
//! batches: random sequence partitions, masks, storage and data through a backend, every output
//! judged against an fp64 reference with a bound of its own, a failure shrunk to a repro as small
//! as `[128]`.
//!
//! ```text
//! Case -> Inputs -> Backend::run -> Outputs -> oracles -> findings -> shrink -> report
//! ```
//!
//! Values move one way; nothing downstream is imported upstream. In the order of flow:
//!
//! | module | what it is |
//! |---|---|
//! | [`case`] | plain data that decides the inputs and the question; its text is the repro |
//! | [`generate`], [`axes`] | the one generator, and the registry of what it reaches |
//! | [`tensor`], [`inputs`], [`outputs`] | guarded storage; what goes in; what comes out |
//! | [`reference`](mod@reference) | attention forward and backward in fp64 |
//! | [`contract`] | what a backend promises: dead rows, rounding points |
//! | [`backend`] | whatever computes the outputs; the table of them |
//! | [`oracle`] | questions asked of the outputs, with bounds; all tolerances in [`oracle::budget`] |
//! | [`check`](mod@check) | runs a scenario on a backend, or on two, and asks the oracles |
//! | [`profile`](mod@profile) | which rounding recipe a backend's outputs show |
//! | [`diagnose`](mod@diagnose) | what would make the outputs wrong in just this way, and what of a case matters |
//! | [`shrink`](mod@shrink) | the smallest scenario that still answers a predicate |
//! | [`mutate`](mod@mutate) | a scenario changed a little, or crossed with another |
//! | [`campaign`], [`stats`] | generated scenarios until the time is up; what was seen |
//! | [`corpus`] | saved cases |
//! | [`mutants`] | the kernels with one bug each, and whether a campaign finds it |
//! | [`catalogue`](mod@catalogue) | every planted fault: found, shrunk, diagnosed |
//! | [`report`], [`cli`] | text and JSON; the command line |
//! | [`libfuzzer`] | the cargo-fuzz target, without libFuzzer |
//!
//! Words. A **case** is one call of a backend: forward and backward over one batch. A **scenario** is
//! one or more cases in one process. A **finding** is something wrong in one output; its
//! **identity** is what shrinking keeps. A **dead row** belongs to no sequence: lead, gap or tail.
//! A **judgement** is a comparison with the reference: forward, backward given the backend's own O
//! and LSE, or the whole chain.
//!
//! ```
//! use thd_fuzz::backend::{Choice, Run};
//! use thd_fuzz::check::{Outcome, check};
//!
//! let choice = Choice::find(Some("model"), Some("dq-scale"))?;
//! let scenario = "[128] h2 causal".parse()?;
//! let mut backend = choice.open()?;
//! let outcome = check(&scenario, &mut *backend, choice.descriptor.contract, Run::PLAIN)?;
//! let Outcome::Judged(report) = outcome else { panic!("the model refuses nothing") };
//! assert_eq!(report.findings[0].tensor, Some(thd_fuzz::outputs::Output::Dq));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("thd-fuzz runs on Linux only: it isolates kernels in child processes with memfds and fibers");

pub mod axes;
pub mod backend;
pub mod campaign;
pub mod case;
pub mod catalogue;
pub mod check;
pub mod cli;
pub mod contract;
pub mod corpus;
pub mod diagnose;
pub mod generate;
pub mod inputs;
pub mod libfuzzer;
pub mod linalg;
pub mod mutants;
pub mod mutate;
pub mod oracle;
pub mod outputs;
pub mod profile;
pub mod reference;
pub mod report;
pub mod shrink;
pub mod stats;
pub mod tensor;
