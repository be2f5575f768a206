//! What right outputs are, with the largest error that a right backend may show at each element.
//!
//! Three judgements are kept apart. The *forward*: O and LSE against fp64. The *backward* alone:
//! gradients given the O and LSE that the backend stored, the tight one, which says which half is
//! at fault. The *chain*: gradients against fp64 throughout, with the forward's permitted error
//! propagated. All three come from one walk over the reference's blocks; the formulas and their
//! names are those of `docs/oracle.md`, the constants those of [`budget`].

use super::Depth;
use super::budget::{self, Beside, Storage};
use super::laws::{LawBudget, LawSums};
use super::products::{Bounded, Elements, Product, Shape};
use super::rounding::Grid;
use crate::case::Case;
use crate::contract::Rounding;
use crate::reference::Unit;

pub(super) mod delta;
mod operands;
pub mod sink;
pub(super) mod walk;

use delta::DeltaInDk;
use sink::SinkSum;
use walk::{Queries, Walk};

/// O and LSE of a unit as the backend stored them, a vector for each query head.
#[derive(Clone, Debug)]
pub struct Received {
    /// `[m][e]`.
    pub o: Vec<Vec<f64>>,
    /// `[m]`.
    pub lse: Vec<Vec<f64>>,
}

/// Gradients of a unit with their bounds.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// dQ of each query head, `[m][d]`.
    pub dq: Vec<Bounded>,
    /// dK, `[n][d]`.
    pub dk: Bounded,
    /// dV, `[n][e]`.
    pub dv: Bounded,
    /// This unit's share of each query head's dSink.
    pub sinks: Vec<SinkSum>,
}

/// Everything that a unit's outputs are judged by.
#[derive(Debug)]
pub struct UnitTruth {
    /// The unit.
    pub unit: Unit,
    /// O of each query head, `[m][e]`.
    pub o: Vec<Bounded>,
    /// LSE of each query head, `[m]`.
    pub lse: Vec<Bounded>,
    /// Gradients given the received O and LSE.
    pub backward: Gradients,
    /// Gradients of the whole chain, where the reference goes so far.
    pub chain: Option<Gradients>,
    /// What the conservation laws may be off by, likewise.
    pub laws: Option<LawBudget>,
}

/// Works out a unit. `received` is what the backend stored.
pub fn work_out(
    unit: Unit,
    case: &Case,
    (rounding, depth): (Rounding, Depth),
    received: &Received,
) -> UnitTruth {
    let mut walk = Walk::new(&unit, case, rounding, depth);
    let (mut o, mut lse) = (Vec::new(), Vec::new());
    for head in 0..unit.q.len() {
        let (head_o, head_lse) = walk.head(head, received);
        o.push(head_o);
        lse.push(head_lse);
    }
    let Walk { storage, grid, backward, whole, ds_unit, q_unit, .. } = walk;
    let backward = backward.into_gradients(&storage, grid);
    let Some(WholeSums { mut chain, chain_dq, extra, sums }) = whole else {
        let o = o.into_iter().map(|o| o.into_bounded(&storage, grid, |_| false)).collect();
        return UnitTruth { o, lse, backward, chain: None, laws: None, unit };
    };
    let (rows, c) = (unit.m * unit.q.len(), unit.scale.abs());
    for (i, x) in chain.products.dk.extra.iter_mut().enumerate() {
        *x += c * extra.due(i, ds_unit * q_unit, rows);
    }
    let (o, of_o): (Vec<_>, Vec<_>) = o.iter().map(|o| o.finish(&storage, grid, |_| false)).unzip();
    let (elements, chain) = chain.finish(&storage, grid, chain_dq);
    let laws = sums.budget(&storage, &unit, (&elements, &chain), (&of_o, &o));
    UnitTruth { o, lse, backward, chain: Some(chain), laws: Some(laws), unit }
}

/// What only the whole depth needs.
struct WholeSums {
    chain: Sums,
    /// The elements of dQ of each head.
    chain_dq: Vec<Elements>,
    /// What delta's error adds to dK.
    extra: DeltaInDk,
    /// What the laws may be off by.
    sums: LawSums,
}

/// The elements that the gradients of one judgement come from.
pub(super) struct GradientElements {
    /// dQ of each query head.
    pub(super) dq: Vec<Elements>,
    pub(super) dk: Elements,
    pub(super) dv: Elements,
}

/// The products that the gradients of the keys are.
struct KeyProducts {
    dk: Product,
    dv: Product,
}

impl KeyProducts {
    /// Both.
    fn each(&mut self) -> [&mut Product; 2] {
        [&mut self.dk, &mut self.dv]
    }
}

/// Gradient sums of one judgement.
struct Sums {
    products: KeyProducts,
    dq: Vec<Bounded>,
    /// Rows of dQ, then of dK and dV, that may overflow or have no meaning.
    open_rows: Vec<bool>,
    open_keys: Vec<bool>,
    sinks: Vec<SinkSum>,
    /// dK and dV of the heads up to the last, and the sizes of their terms, where each head's are rounded.
    earlier: [Vec<(f64, f64)>; 2],
}

impl Sums {
    fn new(unit: &Unit, ds_unit: f64, loose: bool) -> Sums {
        let terms = unit.m * unit.q.len();
        let accumulation = budget::accumulation_of_parts(unit.q.len(), unit.m);
        let dk =
            Shape { output: [unit.n, unit.d], terms, accumulation, scale: unit.scale, unit: ds_unit, loose };
        let dv = Shape { output: [unit.n, unit.e], scale: 1.0, unit: 1.0, ..dk };
        let (dk, dv) = (Product::new(dk), Product::new(dv));
        Sums {
            products: KeyProducts { dk, dv },
            dq: Vec::new(),
            open_rows: vec![false; unit.m],
            open_keys: vec![false; unit.n],
            sinks: Vec::new(),
            earlier: [Vec::new(), Vec::new()],
        }
    }

    /// Allows for the rounding of a head's dK and dV before they are added to those of others.
    fn allow_for_head(&mut self, beside: &Beside) {
        if !beside.rounds_heads() {
            return;
        }
        for (product, earlier) in self.products.each().into_iter().zip(&mut self.earlier) {
            earlier.resize(product.y.len(), (0.0, 0.0));
            let scale = product.scale();
            for (i, earlier) in earlier.iter_mut().enumerate() {
                let now = (product.y[i], product.size(i));
                let (y, terms) = (scale * (now.0 - earlier.0), scale.abs() * (now.1 - earlier.1));
                product.extra[i] += beside.in_head(y, terms);
                *earlier = now;
            }
        }
    }

    /// Takes note of a head's q and dO, once.
    fn meet(&mut self, queries: &Queries) {
        self.products.dk.meet(&queries.q);
        self.products.dv.meet(&queries.dout);
    }

    /// Leaves a row of dQ and some of dK and dV open.
    fn open(&mut self, row: usize, keys: std::ops::Range<usize>) {
        self.open_rows[row] = true;
        self.open_keys[keys].fill(true);
    }

    /// Bounds a head's dQ, whose rows no other head shares.
    fn finish_head(&mut self, storage: &Storage, grid: Grid, dq: Product) {
        let dq = dq.into_bounded(storage, grid, |row| self.open_rows[row]);
        self.take_head(dq);
    }

    /// The same where the elements are asked for.
    fn finish_head_with_elements(&mut self, storage: &Storage, grid: Grid, dq: &Product) -> Elements {
        let (dq, elements) = dq.finish(storage, grid, |row| self.open_rows[row]);
        self.take_head(dq);
        elements
    }

    fn take_head(&mut self, dq: Bounded) {
        self.dq.push(dq);
        self.open_rows.fill(false);
    }

    fn into_gradients(self, storage: &Storage, grid: Grid) -> Gradients {
        let open = |key: usize| self.open_keys[key];
        let KeyProducts { dk, dv } = self.products;
        let [dk, dv] = [dk, dv].map(|product| product.into_bounded(storage, grid, open));
        Gradients { dq: self.dq, dk, dv, sinks: self.sinks }
    }

    /// The gradients, and the elements that they come from: `dq` holds those of dQ.
    fn finish(self, storage: &Storage, grid: Grid, dq: Vec<Elements>) -> (GradientElements, Gradients) {
        let open = |key: usize| self.open_keys[key];
        let (dk, of_dk) = self.products.dk.finish(storage, grid, open);
        let (dv, of_dv) = self.products.dv.finish(storage, grid, open);
        let gradients = Gradients { dq: self.dq, dk, dv, sinks: self.sinks };
        (GradientElements { dq, dk: of_dk, dv: of_dv }, gradients)
    }
}
