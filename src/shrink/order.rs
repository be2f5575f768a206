//! The shrink order: which of two scenarios says more plainly what is wrong.
//!
//! One chain of keys, read from the top: what a reader has to understand comes before what a kernel
//! has to compute. So an item less is worth any number of tokens, and `[2] h2` is before both
//! `[2]x[1] h2` and `[2] h2/1`. Two scenarios tie only where their texts are equal.

use std::cmp::Ordering;

use crate::case::{Align, Base, Case, Data, DeadFill, Dims, Dout, Heads, Item, Mask, Scenario, Sink};
use crate::tensor::DType;

/// How far one dimension is from its simplest value. Empty is the default, so it is before all else.
type Rank = Vec<u64>;

/// A scenario's place in the order: the smaller key is the simpler scenario.
///
/// The fields are compared in the order they stand in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    calls: usize,
    sequences: usize,
    printed_items: usize,
    tokens: u64,
    heads: u64,
    /// Each item in the order of printing, and within an item each call.
    items: Vec<Rank>,
    /// Lengths of q, then of kv, call by call: of equally many tokens the ascending ones are first.
    lengths: Vec<[Vec<u32>; 2]>,
    /// Data keys and seed: they say least, so they come last.
    draws: Vec<Rank>,
}

/// The items that only choose among equally simple data.
const DRAWS: [Item; 3] = [Item::Keys, Item::HeadKeys, Item::Seed];

/// A scenario's place in the order.
pub fn key(scenario: &Scenario) -> Key {
    let calls = &scenario.calls;
    let ranks = |items: &[Item]| -> Vec<Rank> {
        items.iter().flat_map(|&item| calls.iter().map(move |case| rank(item, case))).collect()
    };
    let told: Vec<Item> = Item::ALL.into_iter().filter(|item| !DRAWS.contains(item)).collect();
    Key {
        calls: calls.len(),
        sequences: calls.iter().map(Case::sequences).sum(),
        printed_items: calls.iter().map(Case::printed_items).sum(),
        tokens: calls.iter().map(|case| case.q.tokens() + case.kv.tokens()).sum(),
        heads: calls.iter().map(|case| u64::from(case.heads.q) + u64::from(case.heads.kv)).sum(),
        items: ranks(&told),
        lengths: calls.iter().map(|case| [case.q.lengths.clone(), case.kv.lengths.clone()]).collect(),
        draws: ranks(&DRAWS),
    }
}

/// `Less` where `a` is the simpler scenario. Whoever holds many scenarios keeps their [`key`]s.
pub fn compare(a: &Scenario, b: &Scenario) -> Ordering {
    key(a).cmp(&key(b))
}

fn rank(item: Item, case: &Case) -> Rank {
    match item {
        Item::Heads => heads(case.heads),
        Item::Dims => dims(case.dims),
        Item::DType => match case.dtype {
            DType::Bf16 => vec![],
            DType::F16 => vec![1],
            DType::F32 => vec![2],
        },
        Item::Mask => mask(case.mask),
        Item::Scale => case.scale.map_or(vec![], |scale| number(scale).to_vec()),
        Item::Softcap => case.softcap.map_or(vec![], |cap| number(cap).to_vec()),
        Item::Sink => if_printed(case.sink != Sink::None, vec![case.sink as u64]),
        Item::GapQ => gaps(&case.q.gaps),
        Item::GapKv => gaps(&case.kv.gaps),
        Item::LeadQ => rows(case.q.lead),
        Item::LeadKv => rows(case.kv.lead),
        Item::TailQ => rows(case.q.tail),
        Item::TailKv => rows(case.kv.tail),
        Item::Data => data(&case.data),
        Item::Dout => dout(&case.dout),
        Item::Dead => match case.dead {
            DeadFill::Zero => vec![],
            DeadFill::Big => vec![1],
            DeadFill::Nan => vec![2],
        },
        Item::Keys => data_keys(&case.keys),
        Item::HeadKeys => data_keys(&case.head_keys),
        Item::Seed => if_printed(case.seed != 0, vec![case.seed]),
    }
}

fn if_printed(printed: bool, rank: Rank) -> Rank {
    if printed { rank } else { vec![] }
}

fn heads(heads: Heads) -> Rank {
    if_printed(heads != Heads { q: 1, kv: 1 }, vec![heads.q.into(), heads.kv.into()])
}

/// A dim of 64 tells the reader nothing, so `d64/8` is before `d8/16`.
fn dims(dims: Dims) -> Rank {
    let odd = u64::from(dims.qk != 64) + u64::from(dims.v != 64);
    let (qk, v) = (u64::from(dims.qk), u64::from(dims.v));
    if_printed(odd > 0, vec![odd, qk + v, qk, v])
}

fn mask(mask: Mask) -> Rank {
    let corner = |align| u64::from(align == Align::BottomRight);
    let bound = |b: Option<i64>| b.map_or([0, 0, 0], |b| [1, b.unsigned_abs(), u64::from(b < 0)]);
    match mask {
        Mask::Full => vec![],
        Mask::Causal(align) => vec![1, corner(align)],
        Mask::Window { left, right, align } => {
            [[2, corner(align)].as_slice(), &bound(left), &bound(right)].concat()
        }
    }
}

/// Fewer dead rows, then later ones.
fn gaps(gaps: &[u32]) -> Rank {
    let total: u64 = gaps.iter().map(|&g| u64::from(g)).sum();
    let entries = gaps.iter().map(|&g| u64::from(g));
    if_printed(total > 0, std::iter::once(total).chain(entries).collect())
}

fn rows(rows: u32) -> Rank {
    if_printed(rows > 0, vec![rows.into()])
}

/// Fewer terms, then term by term.
fn data(data: &Data) -> Rank {
    let plain = Data::default();
    let base = match data.base {
        base if base == plain.base => [0; 4],
        Base::Ones => [1, 0, 0, 0],
        Base::Dyadic => [2, 0, 0, 0],
        Base::Flat => [4, 0, 0, 0],
        Base::OneHot => [5, 0, 0, 0],
        Base::Logits(spread) => {
            let [decimals, size, sign] = number(spread);
            [3, decimals, size, sign]
        }
    };
    let terms = [data.base != plain.base, data.offset != 0.0, data.head_scale != 1.0];
    let terms = terms.iter().filter(|&&printed| printed).count() as u64;
    let numbers = [term(data.offset, 0.0), term(data.head_scale, 1.0)].concat();
    if_printed(terms > 0, [[terms].as_slice(), &base, &numbers].concat())
}

fn dout(dout: &Dout) -> Rank {
    let terms = [dout.ones, dout.row.is_some(), dout.scale != 1.0];
    let terms = terms.iter().filter(|&&printed| printed).count() as u64;
    let row = dout.row.map_or([0, 0], |row| [1, row.into()]);
    let head = [terms, u64::from(dout.ones)];
    if_printed(terms > 0, [head.as_slice(), &row, &term(dout.scale, 1.0)].concat())
}

/// A number with a default, which is before all else.
fn term(x: f64, default: f64) -> [u64; 4] {
    if x == default {
        return [0; 4];
    }
    let [decimals, size, sign] = number(x);
    [1, decimals, size, sign]
}

/// Fewer decimals, then smaller, then positive: `2`, `-2`, `100`, `0.5`, `0.25`.
fn number(x: f64) -> [u64; 3] {
    // The bits of non-negative floats order as the floats do.
    [u64::from(decimals(x)), x.abs().to_bits(), u64::from(x.is_sign_negative())]
}

/// Digits after the point of the shortest decimal that reads back as `x`.
pub(super) fn decimals(x: f64) -> u32 {
    let text = x.to_string();
    text.split_once('.').map_or(0, |(_, decimals)| decimals.len() as u32)
}

fn data_keys(keys: &[u32]) -> Rank {
    let plain = keys.iter().enumerate().all(|(i, &key)| key as usize == i);
    if_printed(!plain, keys.iter().map(|&key| u64::from(key)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shrink::pool::Pool;

    fn parse(text: &str) -> Scenario {
        text.parse().expect(text)
    }

    /// Each line in ascending order.
    #[test]
    fn the_order_of_the_examples() {
        let chains: [&[&str]; 16] = [
            &["[]", "[0]", "[128]", "[128]x[2]", "[128] h2", "[1,1]", "[]; []"],
            &["[128]", "[128]x[2]"],
            &["[2] h2", "[2]x[1] h2"],
            &["[2] h2", "[2] h3", "[2] h2/1", "[2] h4/1", "[2] h4/2"],
            &["[4000]", "[0]x[4]", "[4]x[0]", "[4]x[1]"],
            &["[4000]", "[1,1]", "[1,2]", "[2,2]", "[1,2] causal"],
            &["[0,0,4]", "[0,2,2]", "[0,4,0]", "[2,0,2]", "[2,2,0]"],
            &["[] causal", "[] causal-br", "[] window(*,0)", "[] window(3,*)", "[] window-br(0,0)"],
            &["[] window(*,*)", "[] window(*,1)", "[] window(*,-1)", "[] window(*,2)", "[] window(0,0)"],
            &["[] d8", "[] d72", "[] d128", "[] d64/8", "[] d64/128", "[] d8/16"],
            &["[] scale=1", "[] scale=-1", "[] scale=100", "[] scale=0.5", "[] scale=0.25"],
            &["[] data=ones", "[] data=dyadic", "[] data=logits(4)", "[] data=ones+offset(1)"],
            &[
                "[] data=offset(1)",
                "[] data=offset(-2)",
                "[] data=offset(3)",
                "[] data=head-scale(2)+offset(1)",
            ],
            &["[] do=scale(2)", "[] do=row(7)", "[] do=row(8)", "[] do=ones", "[] do=ones+row(1)"],
            &["[0,0] gap-q(0,1)", "[0,0] gap-q(1,0)", "[0,0] gap-q(0,2)", "[0,0] gap-q(1,0) dead=big"],
            &["[7] seed=1", "[7] seed=9", "[7] head-keys=1", "[7] keys=1", "[7] keys=2", "[7] keys=1 seed=1"],
        ];
        for chain in chains {
            for pair in chain.windows(2) {
                let (a, b) = (parse(pair[0]), parse(pair[1]));
                assert_eq!(compare(&a, &b), Ordering::Less, "{} before {}", pair[0], pair[1]);
                assert_eq!(compare(&b, &a), Ordering::Greater);
            }
        }
    }

    #[test]
    fn a_default_is_before_every_other_value_of_its_item() {
        for scenario in Pool::new(11).scenarios(300) {
            for (i, case) in scenario.calls.iter().enumerate() {
                for item in Item::ALL {
                    assert_eq!(item.text(case).is_none(), rank(item, case).is_empty(), "call {i}: {case}");
                }
            }
        }
    }

    #[test]
    fn ties_are_equal_texts_and_the_order_is_total() {
        let pool = Pool::new(12).scenarios(90);
        let keys: Vec<Key> = pool.iter().map(key).collect();
        for (a, ka) in pool.iter().zip(&keys) {
            for (b, kb) in pool.iter().zip(&keys) {
                assert_eq!(ka == kb, a.to_string() == b.to_string(), "{a} and {b}");
                assert_eq!(ka.cmp(kb), kb.cmp(ka).reverse());
                for kc in &keys {
                    assert!(!(ka <= kb && kb <= kc) || ka <= kc);
                }
            }
        }
    }

    #[test]
    fn decimals_are_those_of_the_shortest_text() {
        for (x, want) in [(0.0, 0), (-110.0, 0), (0.5, 1), (-0.25, 2), (1e30, 0), (1e-3, 3)] {
            assert_eq!(decimals(x), want, "{x}");
        }
    }
}
