//! A differential fuzzer for fused attention backward kernels on packed variable-length batches.

pub mod case;
pub mod inputs;
pub mod linalg;
pub mod outputs;
pub mod reference;
pub mod tensor;
