//! Mutants: the kernels with one bug each, planted in their text. How many of them a campaign finds,
//! and how soon, measures the harness where the model's planted faults cannot: in the code that
//! really runs.
//!
//! The list ([`list`]) is data, written before any of it was run and not tuned to what is found. A
//! mutant whose outputs are right is kept, with the proof that it is equivalent.

pub mod hunt;
pub mod list;

pub use hunt::{HuntError, Hunted, Plan, Verdict, hunt_all};
pub use list::{ListError, Mutant, Shows};
