//! Pairs of values that no case can have, each with the reason.
//!
//! The test of [`super`] holds both ways: a pair listed here never occurs, and a pair that is not
//! listed does.

/// Values of one axis that exclude values of another.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Axis and values, twice: no value of the first goes with a value of the second.
    pub sides: [(&'static str, &'static [&'static str]); 2],
    /// Why.
    pub reason: &'static str,
}

const fn rule(
    axis: &'static str,
    values: &'static [&'static str],
    other: &'static str,
    others: &'static [&'static str],
    reason: &'static str,
) -> Rule {
    Rule { sides: [(axis, values), (other, others)], reason }
}

const NO_TOKEN: &str = "there is no token";
const ONE: &str = "with one entry there is one order and no equal pair";
const SINGLE: &str = "a single length is first, last and every one";
const ALL_SAME: &str = "some zeros and some others are not all equal";
const POSITIONS: &[&str] = &["first", "middle", "last", "several"];
const TILED: &[&str] = &["one below a multiple", "a multiple", "one above", "between"];
const INSIDE: &[&str] = &["1 or more, inside", "a tile's edge or next to it"];
const UNLIKE: &[&str] =
    &["others, as many tokens", "q longer", "q 8 times longer", "kv longer", "kv 8 times longer"];
const SOME_LONG: &[&str] =
    &["1", "2 to 8", "9 to 32", "33 to 64", "65 to 128", "129 to 256", "257 to 512", "513 or more"];
const BOUNDED: &[&str] =
    &["*", "negative", "0", "1 or more, inside", "a tile's edge or next to it", "the longest length or more"];

/// The rules.
#[rustfmt::skip]
pub static IMPOSSIBLE: &[Rule] = &[
    // No sequence.
    rule("sequences", &["none"], "sequences, power of two", &["yes"], "0 is no power of two"),
    rule("sequences", &["none"], "longest sequence", SOME_LONG, NO_TOKEN),
    rule("sequences", &["none"], "longest sequence and tiles of 64", TILED, NO_TOKEN),
    rule("sequences", &["none"], "q lengths", &["all equal", "uneven"], "no length to compare"),
    rule("sequences", &["none"], "zero-length q", &["first", "middle", "last", "several", "every"], "no sequence to be empty"),
    rule("sequences", &["none"], "zero-length kv", &["first", "middle", "last", "several", "every"], "no sequence to be empty"),
    rule("sequences", &["none"], "q and kv lengths", UNLIKE, NO_TOKEN),
    rule("sequences", &["none"], "query heads and longest q", &["equal, 2 or more"], NO_TOKEN),
    rule("sequences", &["none"], "window, left", INSIDE, NO_TOKEN),
    rule("sequences", &["none"], "window, right", INSIDE, NO_TOKEN),
    rule("sequences", &["none"], "query rows without a key", &["some", "all"], NO_TOKEN),
    rule("sequences", &["none"], "gaps of q", &["after the last only", "elsewhere"], "a gap follows a sequence"),
    rule("sequences", &["none"], "gaps of kv", &["after the last only", "elsewhere"], "a gap follows a sequence"),
    rule("sequences", &["none"], "keys of sequences", &["permuted", "with holes", "equal"], "no sequence to have a key"),
    // Few sequences.
    rule("sequences", &["1", "2"], "sequences, power of two", &["no"], "they are powers of two"),
    rule("sequences", &["1"], "q lengths", &["all equal", "uneven"], "one length is compared with none"),
    rule("sequences", &["2", "3 to 8", "9 to 32", "33 or more"], "q lengths", &["fewer than two"], "by definition"),
    rule("sequences", &["1"], "zero-length q", POSITIONS, SINGLE),
    rule("sequences", &["1"], "zero-length kv", POSITIONS, SINGLE),
    rule("sequences", &["2"], "zero-length q", &["middle", "several"], "two have no middle, and two zeros are every one"),
    rule("sequences", &["2"], "zero-length kv", &["middle", "several"], "two have no middle, and two zeros are every one"),
    rule("sequences", &["1"], "q and kv lengths", &["others, as many tokens"], "one length is its total"),
    rule("sequences", &["1"], "gaps of q", &["elsewhere"], "the only gap is the last"),
    rule("sequences", &["1"], "gaps of kv", &["elsewhere"], "the only gap is the last"),
    rule("sequences", &["1"], "keys of sequences", &["permuted", "equal"], ONE),
    // Lengths.
    rule("longest sequence", &["0"], "longest sequence and tiles of 64", TILED, NO_TOKEN),
    rule("longest sequence", &["1", "2 to 8", "9 to 32"], "longest sequence and tiles of 64", TILED, "shorter than 63"),
    rule("longest sequence", &["33 to 64"], "longest sequence and tiles of 64", &["one above", "between"], "65 is the first above a multiple"),
    rule("longest sequence", &["65 to 128", "129 to 256", "257 to 512", "513 or more"], "longest sequence and tiles of 64", &["below 63"], "by definition"),
    rule("longest sequence", &["0"], "q lengths", &["uneven"], "all are 0"),
    rule("longest sequence", &["0"], "zero-length q", POSITIONS, "all are 0"),
    rule("longest sequence", &["0"], "zero-length kv", POSITIONS, "all are 0"),
    rule("longest sequence", &["0"], "q and kv lengths", UNLIKE, NO_TOKEN),
    rule("longest sequence", &["0"], "query heads and longest q", &["equal, 2 or more"], NO_TOKEN),
    rule("longest sequence", &["1"], "query heads and longest q", &["equal, 2 or more"], "1 is below 2"),
    rule("longest sequence", &["0", "1"], "window, left", INSIDE, "nothing is above 0 and below the length"),
    rule("longest sequence", &["0", "1"], "window, right", INSIDE, "nothing is above 0 and below the length"),
    rule("longest sequence", &["2 to 8"], "window, left", &["a tile's edge or next to it"], "the smallest tile has 16 rows"),
    rule("longest sequence", &["2 to 8"], "window, right", &["a tile's edge or next to it"], "the smallest tile has 16 rows"),
    rule("longest sequence", &["0"], "query rows without a key", &["some", "all"], NO_TOKEN),
    rule("q lengths", &["fewer than two"], "zero-length q", POSITIONS, SINGLE),
    rule("q lengths", &["fewer than two"], "zero-length kv", POSITIONS, SINGLE),
    rule("q lengths", &["fewer than two"], "q and kv lengths", &["others, as many tokens"], "one length is its total"),
    rule("q lengths", &["fewer than two"], "gaps of q", &["elsewhere"], "the only gap is the last"),
    rule("q lengths", &["fewer than two"], "gaps of kv", &["elsewhere"], "the only gap is the last"),
    rule("q lengths", &["fewer than two"], "keys of sequences", &["permuted", "equal"], ONE),
    rule("q lengths", &["all equal"], "zero-length q", POSITIONS, ALL_SAME),
    rule("q lengths", &["uneven"], "zero-length q", &["every"], "zeros are equal"),
    rule("zero-length q", &["every"], "q and kv lengths", &["others, as many tokens", "q longer", "q 8 times longer", "kv longer"], "no query: kv is as empty, or longer without bound"),
    rule("zero-length kv", &["every"], "q and kv lengths", &["others, as many tokens", "q longer", "kv longer", "kv 8 times longer"], "no key: q is as empty, or longer without bound"),
    rule("zero-length q", &["every"], "query heads and longest q", &["equal, 2 or more"], "the longest q is 0"),
    rule("zero-length q", &["every"], "query rows without a key", &["some", "all"], "no query row"),
    rule("zero-length kv", &["every"], "query rows without a key", &["some"], "no row has a key"),
    // Heads and dims.
    rule("query heads", &["1"], "head groups", &["MQA", "GQA, square", "GQA, not square"], "one head is no group"),
    rule("query heads", &["2", "3"], "head groups", &["GQA, square", "GQA, not square"], "a prime"),
    rule("query heads", &["4"], "head groups", &["GQA, not square"], "4/2 is the only one"),
    rule("query heads", &["5 to 7"], "head groups", &["GQA, square"], "no square number"),
    rule("query heads", &["1"], "query heads and longest q", &["equal, 2 or more"], "1 is below 2"),
    rule("query heads", &["1"], "keys of kv heads", &["permuted", "equal"], ONE),
    rule("head groups", &["MQA"], "keys of kv heads", &["permuted", "equal"], ONE),
    rule("d_qk", &["128"], "d_v against d_qk", &["larger"], "128 is the largest so far"),
    rule("d_v", &["128"], "d_v against d_qk", &["smaller"], "128 is the largest so far"),
    // Masks.
    rule("mask", &["full", "causal", "causal-br"], "window, left", BOUNDED, "not a window"),
    rule("mask", &["full", "causal", "causal-br"], "window, right", BOUNDED, "not a window"),
    rule("mask", &["window", "window-br"], "window, left", &["no window"], "a window"),
    rule("mask", &["window", "window-br"], "window, right", &["no window"], "a window"),
    rule("window, left", &["no window"], "window, right", BOUNDED, "a window has two bounds"),
    rule("window, left", BOUNDED, "window, right", &["no window"], "a window has two bounds"),
    // Calls.
    rule("calls", &["1"], "second call", &["the same lengths, heads and dims", "other lengths", "other heads or dims"], "no second call"),
    rule("calls", &["2", "3"], "second call", &["none"], "a second call"),
];
