//! A differential fuzzer for fused attention backward kernels on packed variable-length batches.

pub mod case;
pub mod tensor;
