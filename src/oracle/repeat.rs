//! The same call again: what came before it, what memory holds and which process it runs in change nothing.

use super::question::{Base, Before, Likeness, Question, Step};
use crate::case::{Case, Data, Dout};
use crate::inputs::Inputs;
use crate::tensor::Poison;

/// `f(x)` again, in whatever state the first call left.
pub const AGAIN: Question = Question {
    name: "again",
    oracle: "repeat",
    law: "f(x) = f(x) when called twice",
    plan: |base| Ok(vec![same(base, Before::Nothing, Poison::Nan)]),
};

/// Memory of the outputs and of the workspace holds numbers before, not NaN.
pub const OTHER_POISON: Question = Question {
    name: "other-poison",
    oracle: "repeat",
    law: "f(x) does not depend on what its outputs held before",
    plan: |base| Ok(vec![same(base, Before::Reset, Poison::Finite)]),
};

/// A call of the same shapes and other data comes before.
pub const DIRTY_MEMORY: Question = Question {
    name: "dirty-memory",
    oracle: "repeat",
    law: "f(x) = f(x) after f(y), y of the same shapes",
    plan: |base| {
        let case = &base.inputs.case;
        let seed = case.seed.wrapping_add(1);
        let other = Case { seed, data: Data::default(), dout: Dout::default(), ..case.clone() };
        let first = Step {
            before: Before::Reset,
            poison: Poison::Nan,
            inputs: Some(Inputs::new(&other)),
            like: None,
        };
        Ok(vec![first, same(base, Before::Nothing, Poison::Nan)])
    },
};

/// The last call of a scenario by itself.
pub const WITHOUT_EARLIER_CALLS: Question = Question {
    name: "without-earlier-calls",
    oracle: "repeat",
    law: "f(x) after other calls = f(x) alone",
    plan: |base| match base.call {
        0 => Err("no call comes before".into()),
        _ => Ok(vec![same(base, Before::Reset, Poison::Nan)]),
    },
};

/// A new process, whose first call it is.
pub const FRESH_PROCESS: Question = Question {
    name: "fresh-process",
    oracle: "repeat",
    law: "f(x) = f(x) in a new process",
    plan: |base| Ok(vec![same(base, Before::NewProcess, Poison::Nan)]),
};

/// The base's own inputs once more.
fn same(base: &Base, before: Before, poison: Poison) -> Step {
    Step { before, poison, inputs: None, like: Some(Likeness::whole(base.inputs)) }
}
