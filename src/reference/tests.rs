//! The reference held from five sides: its own forward (finite differences), what must be conserved,
//! the formulas as plain loops, rows that see nothing, and what may not depend on what.
//!
//! A third implementation, in another language, is in `tests/torch_reference.rs`.

use std::cell::{Cell, RefCell};

use super::*;

mod naive;
mod shapes;

use shapes::{Shape, for_all};

/// A unit's outputs by name; vectors of all query heads one after another.
fn parts(solution: &Solution) -> [(&'static str, Vec<f64>); 6] {
    [
        ("O", solution.o.concat()),
        ("LSE", solution.lse.concat()),
        ("dQ", solution.dq.concat()),
        ("dK", solution.dk.clone()),
        ("dV", solution.dv.clone()),
        ("dSink", solution.dsink.clone()),
    ]
}

/// The largest quotient seen, with where; a test prints it, since a bound that is nowhere near
/// reached says little.
#[derive(Default)]
struct Worst(RefCell<(f64, String)>);

impl Worst {
    /// `difference` in units of `size`; an error above `tolerance`.
    fn judge(&self, difference: f64, size: f64, tolerance: f64, what: &str) -> Result<(), String> {
        if difference == 0.0 {
            return Ok(());
        }
        let quotient = difference.abs() / size;
        if quotient.is_nan() || quotient > tolerance {
            return Err(format!("{what}: off by {difference:e}, {quotient:.1e} of its size {size:e}"));
        }
        let mut worst = self.0.borrow_mut();
        if quotient > worst.0 {
            *worst = (quotient, what.to_string());
        }
        Ok(())
    }

    fn print(&self, of: &str) {
        let worst = self.0.borrow();
        println!("{of}: largest {:.1e}, {}", worst.0, worst.1);
    }
}

// Finite differences.

/// One input element of a unit.
#[derive(Clone, Copy, Debug)]
enum Element {
    Q(usize, usize),
    K(usize),
    V(usize),
    Sink(usize),
}

impl Element {
    fn of(self, unit: &mut Unit) -> &mut f64 {
        match self {
            Element::Q(head, at) => &mut unit.q[head][at],
            Element::K(at) => &mut unit.k[at],
            Element::V(at) => &mut unit.v[at],
            Element::Sink(head) => unit.sink[head].as_mut().expect("a head with a sink"),
        }
    }

    fn gradient(self, solution: &Solution) -> f64 {
        match self {
            Element::Q(head, at) => solution.dq[head][at],
            Element::K(at) => solution.dk[at],
            Element::V(at) => solution.dv[at],
            Element::Sink(head) => solution.dsink[head],
        }
    }

    /// How fast a logit can move with this element: the largest |c k| or |c q| of its column.
    fn logit_rate(self, unit: &Unit) -> f64 {
        let column = |values: &[f64], at: usize| {
            let rows = values.iter().skip(at % unit.d).step_by(unit.d);
            rows.fold(0.0, |max: f64, x| max.max(x.abs()))
        };
        let largest = match self {
            Element::Q(_, at) => column(&unit.k, at),
            Element::K(at) => unit.q.iter().map(|q| column(q, at)).fold(0.0, f64::max),
            Element::V(_) => return 0.0,
            Element::Sink(_) => return 1.0,
        };
        unit.scale.abs() * largest
    }
}

/// The derivative of <O, dO> by the five-point rule, and the size that its error is relative to.
///
/// Logits move by `TURN` at most per step, so the rule's own error is `TURN^4 / 30` = 3e-14 times
/// a fifth derivative, some dozens in units of the size; rounding of O, 1e-16 to 1e-14 as logits
/// are small or large, is divided by `TURN` but averages out over O's elements. 1e-11 leaves room
/// for both; a wrong gradient is off by far more.
fn five_point(unit: &Unit, at: Element) -> (f64, f64) {
    const TURN: f64 = 1e-3;
    let rate = at.logit_rate(unit);
    // In v the loss is linear: any step is exact. With a rate of 0 nothing depends on the element.
    let step = if rate > 0.0 { TURN / rate } else { 1.0 };
    let o = |steps: f64| {
        let mut moved = unit.clone();
        *at.of(&mut moved) += steps * step;
        solve_unit(&moved).o.concat()
    };
    let dout = unit.dout.concat();
    // Differences before the sum: rows that the element does not reach cancel exactly.
    let between = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).zip(&dout).map(|((a, b), dout)| (a - b) * dout).sum()
    };
    let near = between(&o(1.0), &o(-1.0));
    let far = between(&o(2.0), &o(-2.0));
    let largest_v = unit.v.iter().fold(0.0, |max: f64, v| max.max(v.abs()));
    let terms: f64 = dout.iter().map(|x| x.abs()).sum();
    let size = if matches!(at, Element::V(_)) { terms * (1.0 + largest_v) } else { terms * largest_v * rate };
    ((8.0 * near - far) / (12.0 * step), size)
}

#[test]
fn gradients_are_the_derivatives_of_the_forward() {
    let worst = Worst::default();
    let (checked, masked_rows, silent_keys) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_all(400, shapes::shapes(1..=9, 1..=6), |shape| {
        let unit = shape.unit();
        let solution = solve_unit(&unit);
        let blind = (0..unit.m).filter(|&i| unit.visible(i).is_empty()).count();
        masked_rows.set(masked_rows.get() + blind);
        for round in 0..12 {
            let pick = |len: usize, salt: usize| (len > 0).then(|| shape.draw(3 * round + salt) % len);
            let head = round % unit.q.len();
            let elements = [
                pick(unit.m * unit.d, 0).map(|at| Element::Q(head, at)),
                pick(unit.n * unit.d, 1).map(Element::K),
                pick(unit.n * unit.e, 2).map(Element::V),
                unit.sink[head].map(|_| Element::Sink(head)),
            ];
            for at in elements.into_iter().flatten() {
                let got = at.gradient(&solution);
                let (want, size) = five_point(&unit, at);
                worst.judge(got - want, size, 1e-11, &format!("{at:?}: {got:e} for {want:e}"))?;
                checked.set(checked.get() + 1);
                silent_keys.set(silent_keys.get() + usize::from(got == 0.0));
            }
        }
        Ok(())
    });
    worst.print("finite differences");
    assert!(checked.get() > 8_000 && masked_rows.get() > 200, "{checked:?} {masked_rows:?}");
    assert!(silent_keys.get() * 2 < checked.get(), "half of the gradients are 0: too little is seen");
}

// Conservation.

/// The four laws, each with the sum of the absolute values of what it adds up.
fn laws(unit: &Unit, solution: &Solution) -> Vec<(String, f64, f64)> {
    let sizes = naive::evaluate(unit).size;
    let seeing: Vec<bool> = (0..unit.m).map(|i| !unit.visible(i).is_empty()).collect();
    let column = |values: &[f64], width: usize, x: usize| values.iter().skip(x).step_by(width).sum::<f64>();
    let mut laws = Vec::new();
    let sums_to_one = unit.sink[0].is_none();
    let linear = sums_to_one && unit.softcap.is_none();
    for x in (0..unit.d).filter(|_| linear) {
        let got = column(&solution.dk, unit.d, x);
        laws.push((format!("column {x} of sum dK = 0"), got, column(&sizes.dk, unit.d, x)));
    }
    for y in (0..unit.e).filter(|_| sums_to_one) {
        let rows = unit.dout.iter().flat_map(|dout| dout.chunks(unit.e).zip(&seeing));
        let seen: Vec<f64> = rows.filter(|(_, seeing)| **seeing).map(|(row, _)| row[y]).collect();
        let want: f64 = seen.iter().sum();
        let size = seen.iter().map(|x| x.abs()).sum();
        laws.push((format!("column {y} of sum dV = sum dO"), column(&solution.dv, unit.e, y) - want, size));
    }
    let absolute = |values: &[f64]| values.iter().map(|x| x.abs()).collect::<Vec<f64>>();
    let q = unit.q.concat();
    let turned = dot(&q, &solution.dq.concat()) - dot(&unit.k, &solution.dk);
    laws.push(("<q,dQ> = <k,dK>".into(), turned, dot(&absolute(&q), &sizes.dq.concat())));
    let weighed = dot(&unit.v, &solution.dv) - dot(&solution.o.concat(), &unit.dout.concat());
    laws.push(("<v,dV> = <o,dO>".into(), weighed, dot(&absolute(&unit.v), &sizes.dv)));
    laws
}

#[test]
fn what_must_be_conserved_is() {
    let worst = Worst::default();
    let rows = Cell::new(0);
    for_all(120, shapes::shapes(1..=250, 1..=12), |shape| {
        let unit = shape.unit();
        rows.set(rows.get() + (0..unit.m).filter(|&i| unit.visible(i).len() > 1).count());
        for (law, off, size) in laws(&unit, &solve_unit(&unit)) {
            worst.judge(off, size, 1e-12, &law)?;
        }
        Ok(())
    });
    worst.print("conservation");
    assert!(rows.get() > 3_000, "only {} rows see more than one key", rows.get());
}

// The formulas as plain loops.

/// Compares with [`naive`], relative to the sum of absolute terms of each element.
fn same_as_naive(unit: &Unit, worst: &Worst) -> Result<(), String> {
    let naive::Naive { value, size } = naive::evaluate(unit);
    let all = parts(&solve_unit(unit)).into_iter().zip(parts(&value)).zip(parts(&size));
    for (((name, got), (_, want)), (_, size)) in all {
        if got.len() != want.len() {
            return Err(format!("{name} has {} elements, expected {}", got.len(), want.len()));
        }
        for (at, ((&got, &want), &size)) in got.iter().zip(&want).zip(&size).enumerate() {
            if got != want {
                let what = format!("{name}[{at}]: {got:e} for {want:e}");
                worst.judge(got - want, size, 1e-12, &what)?;
            }
        }
    }
    Ok(())
}

#[test]
fn plain_loops_agree_on_random_units() {
    let worst = Worst::default();
    for_all(150, shapes::shapes(1..=160, 1..=10), |shape| same_as_naive(&shape.unit(), &worst));
    worst.print("plain loops");
}

#[test]
fn plain_loops_agree_across_the_edges_of_blocks() {
    let worst = Worst::default();
    // (a block starts after key 0, ends before the last, sees nothing, has few rows, is not the first)
    let mut reached = [0; 5];
    for shape in shapes::of_many_blocks() {
        let unit = shape.unit();
        for block in unit.blocks() {
            let (rows, keys) = (block.rows, block.keys);
            let sees = !keys.is_empty();
            let few = rows.end < unit.m && rows.len() < BLOCK_ROWS;
            let facts = [keys.start > 0, sees && keys.end < unit.n, !sees, few, rows.start > 0];
            reached.iter_mut().zip(facts).for_each(|(count, fact)| *count += u32::from(fact));
        }
        same_as_naive(&unit, &worst).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
    worst.print("plain loops across blocks");
    assert!(reached.iter().all(|&count| count >= 2), "kinds of blocks reached: {reached:?}");
}

// Rows that see nothing.

#[test]
fn a_row_without_a_visible_key_is_zero_and_contributes_nothing() {
    let blind_rows = Cell::new(0);
    for_all(200, shapes::shapes(1..=20, 1..=6), |shape| {
        let unit = shape.unit();
        let solution = solve_unit(&unit);
        let mut without = unit.clone();
        for i in (0..unit.m).filter(|&i| unit.visible(i).is_empty()) {
            blind_rows.set(blind_rows.get() + 1);
            for head in 0..unit.q.len() {
                let row =
                    |values: &[f64], width: usize| values[i * width..][..width].iter().all(|&x| x == 0.0);
                let zero = row(&solution.o[head], unit.e) && row(&solution.dq[head], unit.d);
                let alone = unit.sink[head].unwrap_or(f64::NEG_INFINITY);
                if !zero || solution.lse[head][i] != alone {
                    return Err(format!("head {head}, row {i} sees nothing but is not 0, {alone}, 0"));
                }
                // Other q and dO in such a row must change nothing at all.
                without.q[head][i * unit.d..][..unit.d].fill(7.0);
                without.dout[head][i * unit.e..][..unit.e].fill(-3.0);
            }
        }
        let same = parts(&solution) == parts(&solve_unit(&without));
        if same { Ok(()) } else { Err("a row that sees nothing contributes".into()) }
    });
    assert!(blind_rows.get() > 300, "only {} such rows", blind_rows.get());
}

#[test]
fn empty_sides_are_answered() {
    for (m, n) in [(0, 0), (0, 5), (5, 0), (300, 0)] {
        let unit = Shape { m, n, ..Shape::default() }.unit();
        let solution = solve_unit(&unit);
        assert_eq!(solution.lse, vec![vec![f64::NEG_INFINITY; m]; 2], "{m} x {n}");
        assert_eq!(solution.o, vec![vec![0.0; m * unit.e]; 2]);
        assert_eq!(solution.dq, vec![vec![0.0; m * unit.d]; 2]);
        assert_eq!((solution.dk, solution.dv), (vec![0.0; n * unit.d], vec![0.0; n * unit.e]));
    }
}

// Softcap and sink.

/// The unit with one more key, of a zero value, whose logit is the sink's; the mask must let it be seen.
fn with_the_sink_as_a_key(unit: &Unit) -> Unit {
    let mut more = Unit { d: unit.d + 1, n: unit.n + 1, sink: vec![None; unit.q.len()], ..unit.clone() };
    let widen = |rows: &[f64], last: f64| -> Vec<f64> {
        rows.chunks(unit.d).flat_map(|row| row.iter().copied().chain([last])).collect()
    };
    for (q, sink) in more.q.iter_mut().zip(&unit.sink) {
        *q = widen(q, sink.expect("a head with a sink") / unit.scale);
    }
    more.k = widen(&unit.k, 0.0);
    more.k.extend(std::iter::repeat_n(0.0, unit.d).chain([1.0]));
    more.v.extend(std::iter::repeat_n(0.0, unit.e));
    more
}

#[test]
fn a_sink_is_a_key_of_its_logit_and_of_no_value() {
    let unit = Shape { m: 40, n: 70, sink: true, ..Shape::default() }.unit();
    let (got, want) = (solve_unit(&unit), solve_unit(&with_the_sink_as_a_key(&unit)));
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + b.abs()));
    let narrow = |rows: &[f64]| -> Vec<f64> {
        rows.chunks(unit.d + 1).flat_map(|row| row[..unit.d].to_vec()).collect()
    };
    for head in 0..2 {
        assert!(near(&got.o[head], &want.o[head]) && near(&got.lse[head], &want.lse[head]));
        assert!(near(&got.dq[head], &narrow(&want.dq[head])));
        // dS of the key, summed over the rows: its dK in the last column is that of q times the scale.
        let of_q: Vec<f64> = want.dq[head].chunks(unit.d + 1).map(|row| row[unit.d] / unit.scale).collect();
        assert!(near(&[got.dsink[head]], &[of_q.iter().sum()]), "{:?}", got.dsink);
    }
    assert!(near(&got.dk, &narrow(&want.dk)[..got.dk.len()]) && near(&got.dv, &want.dv[..got.dv.len()]));
    assert!(got.dsink.iter().all(|x| x.abs() > 1e-3));
}

#[test]
fn a_cap_far_above_every_logit_is_none() {
    let shape = Shape { m: 30, n: 30, spread: 2.0, ..Shape::default() };
    let (none, wide) = (shape.unit(), Shape { softcap: Some(1e9), ..shape.clone() }.unit());
    for ((name, a), (_, b)) in parts(&solve_unit(&none)).iter().zip(&parts(&solve_unit(&wide))) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12), "{name}");
    }
    let tight = solve_unit(&Shape { softcap: Some(0.5), ..shape }.unit());
    assert_ne!(tight.lse, solve_unit(&none).lse);
}

// Independence.

/// Each unit's outputs by (sequence, kv head).
fn solved(text: &str) -> Vec<((usize, usize), Solution)> {
    let case: Case = text.parse().unwrap();
    Unit::all(&case).into_iter().zip(solve(&Inputs::new(&case))).collect()
}

#[test]
fn a_unit_depends_on_its_own_sequence_and_head_alone() {
    for mask in ["", " causal-br", " window(20,3)"] {
        let whole = solved(&format!("[40,150,0,9]x[33,170,4,0] h6/3 d16/8{mask} data=head-scale(4)"));
        let find = |sequence, head| &whole.iter().find(|(at, _)| *at == (sequence, head)).unwrap().1;
        // (the case that is left, which sequences and heads of the whole its own are)
        let parts_of_whole: [(&str, &[usize], &[usize]); 4] = [
            ("[150]x[170] h6/3 keys=1", &[1], &[0, 1, 2]),
            ("[40,9]x[33,0] h2/1 keys=0,3 head-keys=2", &[0, 3], &[2]),
            ("[150,40]x[170,33] h4/2 gap-q(3,1) lead-kv=5 dead=nan keys=1,0 head-keys=2,0", &[1, 0], &[2, 0]),
            ("[0]x[4] h2/1 keys=2 head-keys=1 tail-q=2 dead=big", &[2], &[1]),
        ];
        for (text, sequences, heads) in parts_of_whole {
            for ((sequence, head), got) in solved(&format!("{text} d16/8{mask} data=head-scale(4)")) {
                let want = find(sequences[sequence], heads[head]);
                // Of one platform and one block shape: to the bit.
                assert_eq!(parts(&got), parts(want), "{text}{mask}, sequence {sequence}, head {head}");
            }
        }
    }
}

#[test]
fn a_query_head_does_not_see_the_others_of_its_group() {
    let (four, one) = (solved("[30]x[41] h4/1 d16 causal-br"), solved("[30]x[41] d16 causal-br"));
    let (four, one) = (&four[0].1, &one[0].1);
    assert_eq!((&four.o[0], &four.lse[0], &four.dq[0]), (&one.o[0], &one.lse[0], &one.dq[0]));
    assert_ne!(four.o[0], four.o[1], "heads differ");
}
