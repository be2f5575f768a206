//! A differential fuzzer for fused attention backward kernels on packed variable-length batches.
//!
//! ```text
//! Case -> Inputs -> Backend::run -> Outputs -> Oracle -> findings -> shrink -> report
//! ```
pub mod axes;
pub mod backend;
pub mod campaign;
pub mod case;
pub mod check;
pub mod cli;
pub mod contract;
pub mod corpus;
pub mod generate;
pub mod inputs;
pub mod linalg;
pub mod oracle;
pub mod outputs;
pub mod reference;
pub mod report;
pub mod shrink;
pub mod stats;
pub mod tensor;
