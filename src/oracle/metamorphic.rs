//! Laws between the answers to a case and to another that is made of it.
//!
//! `f` is the backend: from q, k, v and dO of a batch to O, LSE, dQ, dK and dV. `[a, b]` is a batch of the
//! sequences a and b.

use super::question::{Base, Before, Likeness, Question, Step};
use crate::case::{Case, DeadFill, Heads, Mask, Side};
use crate::inputs::{Inputs, Origin};
use crate::tensor::Poison;

/// Sequences of a batch that are run alone.
const ALONE_AT_MOST: usize = 4;

/// A sequence by itself: where its neighbours or its offset reach into it, it is another then.
pub const ALONE: Question =
    Question { name: "alone", oracle: "metamorphic", law: "f([a, b]) = [f([a]), f([b])]", plan: alone };

/// The sequences in the opposite order, each with its gap.
pub const REVERSED: Question = Question {
    name: "reversed",
    oracle: "metamorphic",
    law: "f([a, b]) = [y, x] where f([b, a]) = [x, y]",
    plan: reversed,
};

/// No dead row on either side.
pub const NO_GAPS: Question = Question {
    name: "no-gaps",
    oracle: "metamorphic",
    law: "f(x with gaps) = f(x packed)",
    plan: |base| {
        let case = with_dead_rows(base)?;
        let packed = |side: &Side| Side::packed(side.lengths.clone());
        let dead = DeadFill::default();
        let other = Case { q: packed(&case.q), kv: packed(&case.kv), dead, ..case.clone() };
        Ok(vec![whole(base, other)])
    },
};

/// Dead rows of the inputs hold something else.
pub const OTHER_DEAD_ROWS: Question = Question {
    name: "other-dead-rows",
    oracle: "metamorphic",
    law: "f(x) does not depend on rows that belong to no sequence",
    plan: |base| {
        let case = with_dead_rows(base)?;
        let dead = if case.dead == DeadFill::Nan { DeadFill::Big } else { DeadFill::Nan };
        Ok(vec![whole(base, Case { dead, ..case.clone() })])
    },
};

/// Another name for the same visible pairs: a window that is as long as the sequences is none.
pub const OTHER_MASK: Question = Question {
    name: "other-mask",
    oracle: "metamorphic",
    law: "full = window(s,s), causal = window(*,0), window(l,r) = window(*,r) for l >= s",
    plan: |base| {
        let case = &base.inputs.case;
        let mask = other_mask(case).ok_or("the mask has no other name")?;
        Ok(vec![whole(base, Case { mask, ..case.clone() })])
    },
};

/// K and V repeated for each query head: a group's dK and dV are sums over its heads.
pub const MHA: Question = Question {
    name: "mha",
    oracle: "metamorphic",
    law: "f(GQA) = f(MHA of repeated k, v), with dK = sum over the group of dK_h, dV likewise",
    plan: repeated,
};

/// The backward is linear in dO, and two is a power of two.
pub const DOUBLED: Question = Question {
    name: "doubled",
    oracle: "metamorphic",
    law: "dQ, dK, dV (2 dO) = 2 dQ, dK, dV (dO); O and LSE as before",
    plan: |base| {
        let mut other = base.inputs.case.clone();
        other.dout.scale += other.dout.scale;
        let limit = other.dtype.max_finite();
        let largest = (0..base.inputs.dout.len()).map(|i| base.inputs.dout.at(i).abs());
        let largest = largest.filter(|x| x.is_finite()).fold(0.0, f64::max);
        if largest + largest > limit {
            return Err("twice dO is beyond the dtype".into());
        }
        let origin = Origin { dout: 1.0 + 1.0, ..Origin::whole(&other) };
        let like = Likeness { factor: origin.dout, ..Likeness::whole(base.inputs) };
        Ok(vec![step(base.inputs.derived(other, &origin), like)])
    },
};

/// A sequence of no token in the middle.
pub const EMPTY_SEQUENCE: Question = Question {
    name: "empty-sequence",
    oracle: "metamorphic",
    law: "f([a, [], b]) = f([a, b])",
    plan: |base| {
        let case = some_tokens(base)?;
        let (at, n) = (case.sequences() / 2, case.sequences());
        let mut other = case.clone();
        for side in [&mut other.q, &mut other.kv] {
            side.lengths.insert(at, 0);
            side.gaps.insert(at, 0);
        }
        other.keys.insert(at, 0);
        let sequences = (0..n).map(|s| Some(s + usize::from(s >= at))).collect();
        Ok(vec![rearranged(base, other, sequences)])
    },
};

/// The kv heads with their query heads, rotated by one.
pub const OTHER_HEAD_ORDER: Question = Question {
    name: "other-head-order",
    oracle: "metamorphic",
    law: "f(heads in another order) = f(heads), in that order",
    plan: rotated,
};

fn alone(base: &Base) -> Result<Vec<Step>, String> {
    let case = &base.inputs.case;
    let live: Vec<usize> = (0..case.sequences()).filter(|&s| !is_empty(case, s)).collect();
    if case.sequences() < 2 || live.is_empty() {
        return Err("no sequence has a neighbour".into());
    }
    let longest = live.iter().copied().max_by_key(|&s| case.q.lengths[s].max(case.kv.lengths[s]));
    let drawn = live[(case.seed % live.len() as u64) as usize];
    let mut picked = vec![live[0], live[live.len() - 1], longest.unwrap_or(drawn), drawn];
    picked.sort_unstable();
    picked.dedup();
    picked.truncate(ALONE_AT_MOST);
    let one = |s: usize| {
        let side = |side: &Side| Side::packed(vec![side.lengths[s]]);
        let (dead, keys) = (DeadFill::default(), vec![case.keys[s]]);
        let other = Case { q: side(&case.q), kv: side(&case.kv), keys, dead, ..case.clone() };
        let sequences = (0..case.sequences()).map(|i| (i == s).then_some(0)).collect();
        rearranged(base, other, sequences)
    };
    Ok(picked.into_iter().map(one).collect())
}

fn reversed(base: &Base) -> Result<Vec<Step>, String> {
    let case = some_tokens(base)?;
    let n = case.sequences();
    if n < 2 {
        return Err("there is one sequence".into());
    }
    let mut other = case.clone();
    for side in [&mut other.q, &mut other.kv] {
        side.lengths.reverse();
        side.gaps.reverse();
    }
    other.keys.reverse();
    Ok(vec![rearranged(base, other, (0..n).map(|s| Some(n - 1 - s)).collect())])
}

fn repeated(base: &Base) -> Result<Vec<Step>, String> {
    let case = &base.inputs.case;
    let group = case.heads.group() as usize;
    if group == 1 {
        return Err("each kv head has one query head".into());
    }
    let heads = case.heads.q as usize;
    let kv_heads: Vec<usize> = (0..heads).map(|head| head / group).collect();
    let head_keys = kv_heads.iter().map(|&head| case.head_keys[head]).collect();
    let other = Case { heads: Heads { q: case.heads.q, kv: case.heads.q }, head_keys, ..case.clone() };
    let origin = Origin { kv_heads, ..Origin::whole(case) };
    let sums = (0..case.heads.kv as usize).map(|head| (head * group..(head + 1) * group).collect()).collect();
    let like = Likeness { kv_heads: sums, ..Likeness::whole(base.inputs) };
    Ok(vec![step(base.inputs.derived(other, &origin), like)])
}

fn rotated(base: &Base) -> Result<Vec<Step>, String> {
    let case = &base.inputs.case;
    let (kv, group) = (case.heads.kv as usize, case.heads.group() as usize);
    if kv == 1 {
        return Err("there is one kv head".into());
    }
    let mut other = case.clone();
    other.head_keys.rotate_left(1);
    let kv_heads: Vec<usize> = (0..kv).map(|head| (head + 1) % kv).collect();
    let q_heads: Vec<usize> = kv_heads.iter().flat_map(|&head| head * group..(head + 1) * group).collect();
    let place = |of: &[usize], head: usize| of.iter().position(|&from| from == head);
    let like = Likeness {
        q_heads: (0..q_heads.len()).filter_map(|head| place(&q_heads, head)).collect(),
        kv_heads: (0..kv).map(|head| place(&kv_heads, head).into_iter().collect()).collect(),
        ..Likeness::whole(base.inputs)
    };
    let origin = Origin { q_heads, kv_heads, ..Origin::whole(case) };
    Ok(vec![step(base.inputs.derived(other, &origin), like)])
}

/// The same visible pairs by another mask; `None` where there is none.
fn other_mask(case: &Case) -> Option<Mask> {
    let longest = i64::from(case.q.max_len().max(case.kv.max_len()));
    let (left, right, align) = case.mask.window();
    let shorter = |bound: Option<i64>| bound.filter(|&bound| bound < longest);
    let other = match case.mask {
        Mask::Full => Mask::Window { left: Some(longest), right: Some(longest), align },
        Mask::Causal(_) => Mask::Window { left, right, align },
        Mask::Window { .. } => match (shorter(left), shorter(right)) {
            (None, None) => Mask::Full,
            (None, Some(0)) => Mask::Causal(align),
            (left, right) => Mask::Window { left, right, align },
        },
    };
    (other != case.mask).then_some(other)
}

/// What the logits of a row may differ by in a sequence: `2 |c| max|q| max|k|`.
pub fn spread(inputs: &Inputs, sequence: usize) -> f64 {
    let largest = |tensor: &crate::tensor::Tensor, rows: std::ops::Range<usize>| {
        let heads = 0..tensor.heads;
        let of_head = heads.flat_map(|head| {
            let values = tensor.rows_of_head(rows.clone(), head);
            values.chunks(tensor.dim).map(|row| row.iter().map(|x| x * x).sum::<f64>()).collect::<Vec<_>>()
        });
        of_head.fold(0.0, f64::max).sqrt()
    };
    let q = largest(&inputs.q, inputs.q_spans[sequence].rows());
    let k = largest(&inputs.k, inputs.kv_spans[sequence].rows());
    let spread = inputs.case.softmax_scale().abs() * q * k;
    spread + spread
}

fn is_empty(case: &Case, sequence: usize) -> bool {
    case.q.lengths[sequence] == 0 && case.kv.lengths[sequence] == 0
}

fn some_tokens<'a>(base: &Base<'a>) -> Result<&'a Case, String> {
    let case = &base.inputs.case;
    let empty = (0..case.sequences()).all(|s| is_empty(case, s));
    if empty { Err("there is no token".into()) } else { Ok(case) }
}

fn with_dead_rows<'a>(base: &Base<'a>) -> Result<&'a Case, String> {
    let case = &base.inputs.case;
    let dead = case.q.has_dead_rows() || case.kv.has_dead_rows();
    if dead { Ok(case) } else { Err("there is no dead row".into()) }
}

/// All of the base in another case of the same sequences and heads.
fn whole(base: &Base, other: Case) -> Step {
    let origin = Origin::whole(&other);
    step(base.inputs.derived(other, &origin), Likeness::whole(base.inputs))
}

/// Sequences of the base at other places: `to` says for each where it is in `other`.
fn rearranged(base: &Base, other: Case, to: Vec<Option<usize>>) -> Step {
    let mut from = vec![None; other.sequences()];
    for (sequence, &place) in to.iter().enumerate() {
        place.into_iter().for_each(|place| from[place] = Some(sequence));
    }
    let origin = Origin { sequences: from, ..Origin::whole(&other) };
    step(base.inputs.derived(other, &origin), Likeness { sequences: to, ..Likeness::whole(base.inputs) })
}

fn step(inputs: Inputs, like: Likeness) -> Step {
    Step { before: Before::Reset, poison: Poison::Nan, inputs: Some(inputs), like: Some(like) }
}
