//! Planted bugs of the model, each of a class of the bug taxonomy, with the case it must shrink to.

use crate::backend::FaultInfo;

/// Declares the faults once: the enum that the model asks, and the table that a user sees.
macro_rules! faults {
    ($($variant:ident $name:literal $class:literal $minimal:literal $about:literal;)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $(#[doc = $about] $variant,)* }

        const VARIANTS: &[Fault] = &[$(Fault::$variant,)*];

        /// Every planted bug, in the order of the enum.
        pub static FAULTS: [FaultInfo; VARIANTS.len()] = [$(FaultInfo {
            name: $name,
            class: $class,
            about: $about,
            minimal: $minimal,
        },)*];
    };
}

faults! {
    LseTransposed "lse-transposed" "STATS" "[2] h2"
        "softmax statistics are written [s][h] and read [h][s] (the seed report's cause)";
    DqScale "dq-scale" "SCALE" "[128]"
        "dQ is doubled in sequences whose length is divisible by 128";
    DkTailDropped "dk-tail-dropped" "TAIL" "[2]"
        "the last, partial tile of queries does not contribute to dK";
    DeltaOmitted "delta-omitted" "DROP-FEATURE" "[1]"
        "dS = P * dP: delta is forgotten";
    CausalOffByOne "causal-off-by-one" "WINDOW" "[2] causal"
        "the backward lets a query see one key past the causal diagonal";
    GqaLastHeadOnly "gqa-last-head-only" "GQA" "[1] h2/1"
        "dK and dV hold the last query head of a group only";
    NeighbourLeak "neighbour-leak" "PAD-POISON" "[1,1]"
        "the first kv row of the next sequence is seen where two sequences meet";
    WorkspaceDirty "workspace-dirty" "STALE-WS" "[2]; [1]"
        "dQ is accumulated onto what the last call left in the workspace";
    WindowLeftDropped "window-left-dropped" "WINDOW" "[2] window(0,*)"
        "the backward ignores a window's left bound";
    BottomRightAsTopLeft "br-as-tl" "SQ!=SK" "[1]x[2] causal-br"
        "the backward aligns a bottom-right mask to the top left";
    ScaleOfPaddedDim "scale-of-padded-d" "SCALE" "[2] d8"
        "the backward's default scale comes from d_qk rounded up to 64";
    GapsIgnored "gaps-ignored" "GAP" "[1] lead-kv=1"
        "dK and dV of a sequence are stored at the prefix sum of lengths, not at its offset";
    MaskedRowNan "masked-row-nan" "MASKED-ROW" "[1]x[0]"
        "a row without a visible key divides by its row sum of zero";
    TailRowUnwritten "tail-row-unwritten" "PAD-POISON" "[65]"
        "dV of the last key is not written when the length is 1 beyond a tile";
    DeadRowsUnwritten "dead-rows-unwritten" "PAD-POISON" "[] tail-kv=1"
        "dead rows of dK are left as they were";
    GuardOverrun "guard-overrun" "OOB-META" "[]"
        "one element of dQ is written past the end of the tensor";
    OneTileLseStale "one-tile-lse-stale" "STATS" "[65]"
        "the backward reads the first tile's statistics for every tile of queries";
    DvWidthOfDk "dv-width-of-dk" "HEAD-DIM" "[1] d64/72"
        "columns of dV beyond d_qk are left as zero";
    LastHeadScaled "last-head-scaled" "SCALE" "[2] h2"
        "dQ of the last of several heads is a sixteenth too large";
    KvTailUnmasked "kv-tail-unmasked" "TAIL" "[1] f16 data=offset(-9)"
        "P of the zeros behind the last key is exp(0 - LSE), and infinity times zero is NaN";
    SingleQueryPairs "single-query-pairs" "DEGEN" "[1]x[2]"
        "the path for sequences of a single query stores the dK and dV of a pair of keys in each other's place";
    EmptyQueriesSkipped "empty-q-skipped" "EMPTY" "[0]x[1]"
        "dK of a sequence without queries is not written";
    SoftmaxWithoutMax "softmax-without-max" "RANGE" "[2]"
        "the forward's exponentials are not taken relative to the row's maximum";
    ScaleCached "scale-cached" "CACHE" "[]; [2] d8"
        "a later call runs with the softmax scale of the first";
    LengthsCaptured "lengths-captured" "GRAPH" "[0]; [1]"
        "a later call runs with the lengths of the first where it has as many sequences";
    DvThroughBf16 "dv-through-bf16" "DTYPE" "[1] f16"
        "dV passes through bf16 on its way to f16";
    RowWraps "dq-row-8-bit" "INT-OVF" "[257]"
        "the storage row of dQ is an 8-bit number";
    DoutStrideOfQ "dout-stride-of-q" "STRIDE" "[2] d8/64"
        "the backward reads dO by the strides of Q";
    DeltaBufferShort "delta-buffer-short" "WS-SIZE" "[1,1]"
        "the buffer of delta has room for max_seqlen rows, and what lies beyond reads as zero";
    LseBase2 "lse-base-2" "LSE-CONV" "[1]"
        "the LSE is stored as a logarithm to base 2, and read so";
    HeadLimit "heads-beyond-16" "ARCH-LIMIT" "[1] h17"
        "the backward's grid ends at 16 kv heads";
    KvHeadModulo "kv-head-modulo" "GQA" "[1] h4/2"
        "the backward deals kv heads out in turn instead of group by group";
    DeltaOfFirstHead "delta-of-first-head" "STATS" "[1] h2"
        "every head reads the first head's delta";
    LseOfNextRow "lse-of-next-row" "STATS" "[2]"
        "a row reads the LSE of the next one";
}

impl Fault {
    /// The fault of a row of [`FAULTS`].
    pub fn of(info: &'static FaultInfo) -> Option<Fault> {
        FAULTS.iter().position(|row| row.name == info.name).map(|i| VARIANTS[i])
    }
}
