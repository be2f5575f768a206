//! The limits of a case, checked in checked arithmetic before anything is allocated.
//!
//! A case string is a stranger's: `[1*4000000000]` must cost a sentence, not the machine's memory.

/// Longest text of a scenario, in bytes.
pub const MAX_TEXT: usize = 16 << 20;
/// Most calls of a scenario.
pub const MAX_CALLS: usize = 16;
/// Most sequences of a case.
pub const MAX_SEQUENCES: u64 = 1 << 20;
/// Most live tokens of a case, on either side.
pub const MAX_TOKENS: u64 = 1 << 20;
/// Most storage rows of a side: live tokens, lead, gaps and tail together.
pub const MAX_ROWS: u64 = 1 << 24;
/// Most query heads; beyond the 65,535 of a CUDA grid's y and z, where launches have failed.
pub const MAX_HEADS: u64 = 1 << 17;
/// Most pairs of a sequence and a query head.
pub const MAX_SEQUENCE_HEADS: u64 = 1 << 24;
/// Largest head dim, of MLA's absorbed form.
pub const MAX_HEAD_DIM: u64 = 576;
/// Head dims are multiples of this: 16 bytes of a 2-byte type, what every fused kernel asks for.
pub const HEAD_DIM_STEP: u64 = 8;
/// Most bytes that the tensors of one call may take together.
pub const MAX_BYTES: u64 = 8 << 30;
/// Most multiply-adds of one product (scores times a head dim) that the reference takes on.
///
/// `[65536]` with one head of d64 is 2.7e11: minutes on two cores. Beyond it the harness refuses
/// rather than seem to hang.
pub const MAX_WORK: u64 = 1 << 39;
/// Multiply-adds that a sequence and kv head of no length at all costs the reference as much as.
pub const UNIT_WORK: u64 = 1 << 16;
/// Most bytes that the reference and its bounds may take.
pub const MAX_REFERENCE_BYTES: u64 = 8 << 30;
/// Bytes that a sequence and kv head of no length at all costs the reference.
pub const UNIT_BYTES: u64 = 8 << 10;
/// Smallest magnitude of a scale, an offset or another factor that is not 0.
///
/// Below it, and above [`MAX_FACTOR`], quotients of two of them leave the range of f64.
pub const MIN_FACTOR: f64 = 1e-30;
/// Largest magnitude of a softmax scale or of a factor of dO. Not `1 / MIN_FACTOR`, which rounds to
/// less than 1e30 and would refuse it.
pub const MAX_FACTOR: f64 = 1e30;
/// Least cap of the logits: below it, all of them are the cap or its negative.
pub const MIN_SOFTCAP: f64 = 0.001;
/// Largest cap of the logits, as large as the logits may be.
pub const MAX_SOFTCAP: f64 = 10_000.0;
