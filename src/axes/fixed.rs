//! The axes that are pinned or left out, with the reason.

use super::{Axis, Status};

const fn pinned(
    name: &'static str,
    notation: &'static str,
    reaches: &'static str,
    value: &'static str,
    reason: &'static str,
) -> Axis {
    Axis { name, notation, reaches, status: Status::Pinned { value, reason } }
}

const fn excluded(
    name: &'static str,
    notation: &'static str,
    reaches: &'static str,
    reason: &'static str,
) -> Axis {
    Axis { name, notation, reaches, status: Status::Excluded { reason } }
}

/// The pinned and the excluded axes.
#[rustfmt::skip]
pub(super) static AXES: &[Axis] = &[
    pinned("layout of q, k, v, O, dO and gradients", "layout=t3hd", "STRIDE", "each tensor apart, (token, head, column), contiguous",
        "the case has no stride plan yet; planned with the storage dimensions, and a metamorphic view-or-copy law with it"),
    pinned("strides, among them 0 and huge ones", "stride-do=0", "STRIDE, INT-OVF", "contiguous",
        "planned with the layouts; a huge stride needs sparsely mapped memory"),
    pinned("layout of the LSE", "lse=head-major", "STATS, WS-SIZE", "each backend's own, read back as (token, head)",
        "planned with the layouts: a backend that offers both is two"),
    pinned("max_seqlen", "max=+64", "WS-SIZE, GRAPH", "exactly the longest sequence",
        "slack is planned; it changes no live result, so it comes with a metamorphic law"),
    pinned("width of offsets", "offsets=i64", "INT-OVF, OOB-META", "each backend's own",
        "a choice of some backends only; planned as an item that the others refuse"),
    pinned("dtype per tensor", "out=f32", "DTYPE", "one storage dtype, an f32 LSE",
        "no backend at hand mixes them; fp8 has no reference bounds yet"),
    pinned("gradients asked for", "grads=bias", "EXTRA-GRAD", "dQ, dK and dV together",
        "subsets are planned with the bias, where they have failed"),
    pinned("outputs before a call", "", "PAD-POISON, STALE-WS", "NaN, then a second pattern",
        "not a dimension of a case: the question other-poison asks about it"),
    pinned("workspaces and freed memory before a call", "", "STALE-WS", "poisoned where the harness owns them",
        "a duty of each backend, not a dimension of a case; earlier calls of a scenario dirty the rest"),
    pinned("repeats of a call", "repeat=3", "RACE, DET", "decided by the repeat oracle",
        "a question about every case rather than a property of one"),
    pinned("schedule of the emulator", "sched=17", "RACE", "the emulator's own choice",
        "means nothing to a GPU; becomes an item when a finding needs it to recur"),
    excluded("head dims above 128", "d256", "HEAD-DIM, ARCH-LIMIT",
        "our kernels stop at 128 so far; `MAX_DIM` of the generator lifts it, the tables already hold 136 to 256"),
    excluded("bias", "bias=..", "EXTRA-GRAD, MASKED-ROW, INT-OVF", "not in the case yet; planned with dBias and its broadcast shapes"),
    excluded("ALiBi", "alibi", "DROP-FEATURE", "not in the case yet; planned as a bias without a gradient"),
    excluded("dropout", "dropout=0.1", "DROP-FEATURE", "each library has its own random stream; linearity in dO at a fixed seed is planned instead of a reference"),
    excluded("deterministic flag", "det", "DET", "not in the case yet; planned with the deterministic mode of our kernel"),
    excluded("spikes in a channel of q or k", "data=spikes", "RANGE", "not in the case yet; planned as a term of the data recipe"),
    excluded("hints of the total number of tokens", "", "WS-SIZE", "an argument of one library; planned with its backend"),
    excluded("lengths by seqused", "seqused", "GAP, PAD-POISON", "a second way to state gaps that two libraries have; planned as an item"),
    excluded("dense twin without a padding mask", "", "TAIL", "another entry point of the libraries; planned as a metamorphic run where all lengths are equal"),
    excluded("more than 130 sequences", "[1*65536]", "ARCH-LIMIT, INT-OVF", "the budget of a campaign; a case for the corpus"),
    excluded("thousands of tokens in one sequence", "[100000]", "INT-OVF, RANGE", "the reference is quadratic; planned with sampled rows"),
    excluded("stream", "stream=side", "RACE", "GPU only; planned with the CUDA backend"),
    excluded("kernel just before the call, neighbour load", "producer=do load", "RACE", "GPU only; planned with the CUDA backend"),
    excluded("graph capture and replay", "capture", "GRAPH", "GPU only; planned with the CUDA backend"),
    excluded("architecture, library and version", "", "ARCH-LIMIT", "not a dimension of a case: a campaign runs on the machine that it finds and reports what that is"),
];
