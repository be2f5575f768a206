//! Do two backends agree: is each output element of one within both bounds of the other's?
//!
//! Both compute the same exact values, so right answers are within the sum of their bounds of each
//! other, and how near to it they come says more than that each passed. O and LSE are compared by
//! the forward's bounds, gradients by the chain's: the bounds of the backward alone are each relative
//! to a forward of its own.

use super::{Coord, Judgement, Plane, Truth};
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};

/// How two answers compare, over a call or over many.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Elements compared: those whose bounds are both finite.
    pub elements: usize,
    /// Elements that are further apart than both bounds together.
    pub beyond: usize,
    /// The pair that is furthest apart, in units of both bounds; `None` where all are equal.
    pub furthest: Option<Pair>,
}

/// The same element of two answers.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The output.
    pub output: Output,
    /// Where in it.
    pub at: Coord,
    /// What each has there.
    pub values: [f64; 2],
    /// What each may be off by.
    pub bounds: [f64; 2],
}

impl Pair {
    /// Both bounds together.
    pub fn bound(&self) -> f64 {
        self.bounds[0] + self.bounds[1]
    }

    /// How far apart they are, in units of both bounds: 0 where equal, equal infinities included. A NaN
    /// is infinitely far from everything, a NaN too.
    pub fn apart(&self) -> f64 {
        let [x, y] = self.values;
        let apart = if x == y { 0.0 } else { (x - y).abs() / self.bound() };
        if apart.is_nan() { f64::INFINITY } else { apart }
    }
}

impl Agreement {
    /// Compares two answers to one call, each with the truth that it is judged by.
    pub fn of(inputs: &Inputs, [a, b]: [&Outputs; 2], [of_a, of_b]: [&Truth; 2]) -> Agreement {
        let mut agreement = Agreement::default();
        for judgement in [Judgement::Forward, Judgement::Chain] {
            // The same inputs, so the same planes in the same order.
            let planes = of_a.planes(inputs, judgement).into_iter().zip(of_b.planes(inputs, judgement));
            planes.for_each(|(plane, other)| agreement.compare(&plane, &other, [a, b]));
        }
        agreement
    }

    fn compare(&mut self, plane: &Plane, other: &Plane, [a, b]: [&Outputs; 2]) {
        let values = plane.got(a).into_iter().zip(plane.got(b));
        let bounds = plane.bounded.tau.iter().zip(&other.bounded.tau);
        for (i, ((x, y), (&tau, &other_tau))) in values.zip(bounds).enumerate() {
            let (output, at) = (plane.output, plane.coord(i));
            let pair = Pair { output, at, values: [x, y], bounds: [tau, other_tau] };
            if pair.bound().is_finite() {
                self.elements += 1;
                self.beyond += usize::from(pair.apart() > 1.0);
                self.keep_furthest(pair);
            }
        }
    }

    /// Adds what another comparison gave.
    pub fn add(&mut self, other: &Agreement) {
        self.elements += other.elements;
        self.beyond += other.beyond;
        other.furthest.into_iter().for_each(|pair| self.keep_furthest(pair));
    }

    /// Of pairs that are equally far apart the first is kept.
    fn keep_furthest(&mut self, pair: Pair) {
        if pair.apart() > self.apart() {
            self.furthest = Some(pair);
        }
    }

    /// How far apart the furthest pair is, in units of both bounds; 0 where all are equal.
    pub fn apart(&self) -> f64 {
        self.furthest.map_or(0.0, |pair| pair.apart())
    }

    /// The furthest pair where it is beyond both bounds: then the backends disagree.
    pub fn disagreement(&self) -> Option<&Pair> {
        self.furthest.as_ref().filter(|pair| pair.apart() > 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Choice, Run};
    use crate::contract::Contract;

    /// A right answer, and what it is judged by.
    fn right(text: &str) -> (Inputs, Outputs, Truth) {
        let inputs = Inputs::new(&text.parse().expect("a valid case"));
        let model = Choice::find(Some("model"), None).expect("a name of the table");
        let mut model = model.open().expect("it needs nothing");
        let outputs = model.run(Run::PLAIN, &inputs).expect("it refuses nothing").outputs;
        let truth = Truth::work_out(&inputs, &outputs, Contract::OWN.rounding);
        (inputs, outputs, truth)
    }

    /// A right answer against the same with element `i` of an output's plane set to `value`.
    fn planted(text: &str, output: Output, i: usize, value: impl Fn(f64, f64) -> f64) -> Agreement {
        let (inputs, outputs, truth) = right(text);
        let mut changed = outputs.clone();
        let planes = [Judgement::Forward, Judgement::Chain].map(|j| truth.planes(&inputs, j));
        let plane = planes.iter().flatten().rfind(|plane| plane.output == output).unwrap();
        let (index, tau) = (plane.index(&outputs, i), plane.bounded.tau[i]);
        let was = outputs.get(output).at(index);
        changed.get_mut(output).set(index as isize, value(was, tau));
        let agreement = Agreement::of(&inputs, [&outputs, &changed], [&truth, &truth]);
        let mirrored = Agreement::of(&inputs, [&changed, &outputs], [&truth, &truth]);
        assert_eq!((mirrored.beyond, mirrored.apart()), (agreement.beyond, agreement.apart()));
        agreement
    }

    #[test]
    fn equal_answers_are_not_apart_and_every_live_element_is_compared() {
        let (inputs, outputs, truth) = right("[3,2]x[4,0] h4/2 d16/8 gap-q(1,0) tail-kv=2");
        let agreement = Agreement::of(&inputs, [&outputs; 2], [&truth; 2]);
        // O, LSE and dQ of 5 rows and 4 heads; dK and dV of 4 rows and 2 heads.
        assert_eq!(agreement.elements, 5 * 4 * (8 + 1 + 16) + 4 * 2 * (16 + 8));
        assert_eq!((agreement.beyond, agreement.apart()), (0, 0.0));
        assert!(agreement.furthest.is_none() && agreement.disagreement().is_none());
    }

    #[test]
    fn an_element_beyond_both_bounds_is_told_with_its_place_and_one_within_is_not() {
        // A case without a learnable sink has no dSink.
        for output in Output::ALL.into_iter().filter(|&output| output != Output::Dsink) {
            // Both bounds are 2 tau; a stored value lies on the dtype's grid: hence the margins.
            let agreement = planted("[5,70] h2 d40/24 causal", output, 3, |x, tau| x + 5.0 * tau);
            let pair = agreement.disagreement().expect("it is beyond");
            assert_eq!((pair.output, agreement.beyond), (output, 1));
            let (row, column) = if output == Output::Lse { (3, 0) } else { (0, 3) };
            assert_eq!(pair.at, Coord { sequence: 1, row: Some(row), head: 1, column });
            assert!((1.5..3.5).contains(&pair.apart()), "{output}: {pair:?}");
            assert_eq!(pair.apart(), (pair.values[0] - pair.values[1]).abs() / pair.bound());
            let within = planted("[5,70] h2 d40/24 causal", output, 3, |x, tau| x + 1.2 * tau);
            assert!(within.disagreement().is_none() && within.beyond == 0);
            assert!(within.apart() > 0.2, "{output}: {within:?}");
        }
    }

    #[test]
    fn a_nan_is_infinitely_far_from_a_number() {
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let agreement = planted("[4] h2", Output::Dv, 1, |_, _| wrong);
            assert_eq!((agreement.beyond, agreement.apart()), (1, f64::INFINITY), "{wrong}");
        }
    }

    #[test]
    fn equal_infinities_agree_and_others_do_not() {
        // A row without keys, whose LSE is -inf and may be nothing else.
        let equal = planted("[2]x[0]", Output::Lse, 1, |x, tau| {
            assert_eq!((x, tau), (f64::NEG_INFINITY, 0.0));
            x
        });
        assert!(equal.furthest.is_none(), "{equal:?}");
        for other in [f64::INFINITY, f64::NAN, -1e30] {
            let agreement = planted("[2]x[0]", Output::Lse, 1, |_, _| other);
            assert_eq!((agreement.beyond, agreement.apart()), (1, f64::INFINITY), "{other}");
        }
    }

    #[test]
    fn nothing_is_asked_where_either_may_overflow() {
        let (inputs, outputs, truth) = right("[3]");
        let mut open = Truth::work_out(&inputs, &outputs, Contract::OWN.rounding);
        open.units[0].chain.as_mut().expect("the whole").dk.tau[5] = f64::INFINITY;
        let mut changed = outputs.clone();
        changed.dk.set(5, f64::NAN);
        let all = Agreement::of(&inputs, [&outputs, &changed], [&truth; 2]);
        let rest = Agreement::of(&inputs, [&outputs, &changed], [&truth, &open]);
        assert_eq!([all.beyond, rest.beyond], [1, 0]);
        assert_eq!(rest.elements, all.elements - 1);
    }

    #[test]
    fn calls_add_up_to_the_furthest_of_all() {
        let far = planted("[4]", Output::Dq, 0, |x, tau| x + 9.0 * tau);
        let near = planted("[4]", Output::O, 0, |x, tau| x + 5.0 * tau);
        let mut total = Agreement::default();
        [&near, &far, &near].into_iter().for_each(|one| total.add(one));
        assert_eq!((total.elements, total.beyond), (2 * near.elements + far.elements, 3));
        assert_eq!(total.disagreement().unwrap().output, Output::Dq);
    }
}
