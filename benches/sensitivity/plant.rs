//! Faults of a chosen size, planted in the outputs of a right backend as a fused kernel that has them would store
//! them.

use thd_fuzz::backend::{Choice, Run};
use thd_fuzz::case::Case;
use thd_fuzz::contract::Contract;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{Judgement, Plane, Truth};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::reference::{Unit, dot};

/// A right backend's inputs and outputs.
pub fn right(case: &Case) -> (Inputs, Outputs) {
    (Inputs::new(case), run(case, None).expect("the model takes every case"))
}

/// What the model stores for `case`, with one of its planted faults or without; `None` where it fails.
pub fn run(case: &Case, fault: Option<&str>) -> Option<Outputs> {
    let model = Choice::find(Some("model"), fault).expect("a name of the table");
    let answer = model.open().expect("it needs nothing").run(Run::PLAIN, &Inputs::new(case));
    answer.ok().map(|answer| answer.outputs)
}

/// Stores `value(i, expected)` for every element of the planes of `output` that `choose` names.
pub fn store(
    inputs: &Inputs,
    outputs: &mut Outputs,
    output: Output,
    choose: impl Fn(&Plane) -> bool,
    value: impl Fn(usize, f64) -> f64,
) {
    let truth = Truth::work_out(inputs, outputs, Contract::OWN.rounding);
    for plane in truth
        .planes(inputs, Judgement::Backward)
        .iter()
        .filter(|plane| plane.output == output && choose(plane))
    {
        for (i, &expected) in plane.bounded.value.iter().enumerate() {
            let index = plane.index(outputs, i) as isize;
            outputs.get_mut(output).set(index, value(i, expected));
        }
    }
}

/// dQ of the second head times `1 + size`.
pub fn scaled_head(inputs: &Inputs, outputs: &mut Outputs, size: f64) {
    store(inputs, outputs, Output::Dq, |plane| plane.head == 1, |_, x| x * (1.0 + size));
}

/// The gradients that follow from an LSE that is off by `size` in row 100 of the second head; the LSE itself is stored
/// as it should be.
pub fn lse_of_a_row(inputs: &Inputs, outputs: &mut Outputs, size: f64) {
    let mut read = outputs.clone();
    let at = read.lse.index(100, 1, 0);
    read.lse.set(at as isize, read.lse.at(at) + size);
    let truth = Truth::work_out(inputs, &read, Contract::OWN.rounding);
    for plane in truth.planes(inputs, Judgement::Backward) {
        for (i, &value) in plane.bounded.value.iter().enumerate() {
            let index = plane.index(outputs, i) as isize;
            outputs.get_mut(plane.output).set(index, value);
        }
    }
}

/// `size` of what the queries 256 to 319 give to the dK of keys 64 to 127 of the second head is lost: 1 is the whole of
/// a 64 x 64 tile.
pub fn tile_of_dk(inputs: &Inputs, outputs: &mut Outputs, size: f64) {
    let unit = Unit::new(inputs, 0, 1);
    let (d, e) = (unit.d, unit.e);
    let mut lost = vec![0.0; unit.n * d];
    for i in 256..320 {
        let (q, dout) = (&unit.q[0][i * d..(i + 1) * d], &unit.dout[0][i * e..(i + 1) * e]);
        let delta = dot(&outputs.o.rows_of_head(i..i + 1, 1), dout);
        let lse = outputs.lse.at(outputs.lse.index(i, 1, 0));
        for j in (64..128).filter(|j| unit.visible(i).contains(j)) {
            let p = (unit.scale * dot(q, &unit.k[j * d..(j + 1) * d]) - lse).exp();
            let ds = p * (dot(dout, &unit.v[j * e..(j + 1) * e]) - delta);
            (0..d).for_each(|x| lost[j * d + x] += unit.scale * ds * q[x]);
        }
    }
    store(inputs, outputs, Output::Dk, |plane| plane.head == 1, |i, x| x - size * lost[i]);
}
