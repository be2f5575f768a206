//! A differential fuzzer for fused attention backward kernels on packed variable-length batches.

pub mod backend;
pub mod case;
pub mod check;
pub mod contract;
pub mod inputs;
pub mod linalg;
pub mod oracle;
pub mod outputs;
pub mod reference;
pub mod tensor;
