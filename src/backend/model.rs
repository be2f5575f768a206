//! The fused algorithm in Rust: the kernel's tiles and rounding points, in fp32, and planted bugs.
//!
//! It stands where a fused kernel stands: a forward with an online softmax over tiles of keys that
//! stores O and LSE, and a backward over tiles that recomputes P from them, rounds P and dS to the
//! storage dtype, and accumulates dQ in a workspace. The harness is measured on it: silence on the
//! right one, an alarm for each planted bug.

use std::borrow::Cow;
use std::ops::Range;

use super::{Answer, Backend, Choice, OpenError, Run, RunError, Support};
use crate::case::{Case, Mask, Span};
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};
use crate::reference::query_heads;
use crate::tensor::{DType, Tensor};

mod backward;
mod faults;
mod forward;

pub use faults::FAULTS;
use faults::Fault;

/// Rows of a tile, of queries and of keys.
const TILE: usize = 64;
/// Kv heads that a grid of one of the bugs holds.
const MOST_HEADS: usize = 16;
const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// The model, with a planted bug or without.
pub(super) fn open(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let fault = choice.fault.and_then(Fault::of);
    Ok(Box::new(Model { fault, workspace: Vec::new(), first: None }))
}

struct Model {
    fault: Option<Fault>,
    /// fp32 accumulators of dQ, `[rows_q][h_q][d_qk]`, kept from call to call as a library keeps
    /// its workspace.
    workspace: Vec<f32>,
    /// What bugs keep of the first call.
    first: Option<First>,
}

/// What a library that caches plans or captures graphs may keep of the first call.
struct First {
    scale: f64,
    lengths: [Vec<usize>; 2],
}

impl Backend for Model {
    fn supports(&self, _: &Case) -> Support {
        Support::Yes
    }

    fn reset(&mut self) {
        self.workspace = Vec::new();
        self.first = None;
    }

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        let inputs = &*self.as_kept(inputs);
        let case = &inputs.case;
        let mut outputs = Outputs::poisoned(case, run.poison);
        self.clear_workspace(outputs.dq.len());
        for sequence in 0..case.sequences() {
            for kv_head in 0..case.heads.kv as usize {
                let view = View::new(inputs, sequence, kv_head, self.fault);
                for head in query_heads(case, kv_head) {
                    forward::head(&view, head, &mut outputs);
                }
            }
        }
        // As in a launch of its own: every statistic is stored before any is read.
        let mut dsink = vec![0.0; outputs.dsink.len()];
        for sequence in 0..case.sequences() {
            for kv_head in 0..case.heads.kv as usize {
                if self.fault == Some(Fault::HeadLimit) && kv_head >= MOST_HEADS {
                    continue;
                }
                let view = View::new(inputs, sequence, kv_head, self.fault);
                backward::kv_head(&view, &mut outputs, &mut self.workspace, &mut dsink);
            }
        }
        for (head, &sum) in dsink.iter().enumerate() {
            outputs.dsink.set(head as isize, f64::from(sum));
        }
        self.clear_dead_rows(case, &mut outputs);
        if self.fault == Some(Fault::GuardOverrun) {
            let end = outputs.dq.len() as isize;
            outputs.dq.set(end, 0.0);
        }
        Ok(Answer { outputs, races: Vec::new() })
    }
}

impl Model {
    /// The inputs with what a bug kept of the first call.
    fn as_kept<'a>(&mut self, inputs: &'a Inputs) -> Cow<'a, Inputs> {
        let lengths = |spans: &[Span]| spans.iter().map(|span| span.len).collect::<Vec<_>>();
        let first = self.first.get_or_insert_with(|| First {
            scale: inputs.case.softmax_scale(),
            lengths: [lengths(&inputs.q_spans), lengths(&inputs.kv_spans)],
        });
        let mut inputs = Cow::Borrowed(inputs);
        match self.fault {
            Some(Fault::ScaleCached) => inputs.to_mut().case.scale = Some(first.scale),
            Some(Fault::LengthsCaptured) if first.lengths[0].len() == inputs.q_spans.len() => {
                let kept = inputs.to_mut();
                for (spans, lengths) in
                    [&mut kept.q_spans, &mut kept.kv_spans].into_iter().zip(&first.lengths)
                {
                    // A longer one would read its neighbour.
                    spans.iter_mut().zip(lengths).for_each(|(span, &len)| span.len = span.len.min(len));
                }
            }
            _ => {}
        }
        inputs
    }

    fn clear_workspace(&mut self, len: usize) {
        if self.fault == Some(Fault::WorkspaceDirty) {
            self.workspace.resize(len.max(self.workspace.len()), 0.0);
        } else {
            self.workspace.clear();
            self.workspace.resize(len, 0.0);
        }
    }

    fn clear_dead_rows(&self, case: &Case, outputs: &mut Outputs) {
        for output in Output::ALL {
            if output == Output::Dk && self.fault == Some(Fault::DeadRowsUnwritten) {
                continue;
            }
            let dead = output.dead_rows(case);
            let tensor = outputs.get_mut(output);
            let width = tensor.heads * tensor.dim;
            for index in dead.iter().flat_map(|row| row * width..(row + 1) * width) {
                tensor.set(index as isize, 0.0);
            }
        }
    }
}

/// One sequence and one kv head as a block of a launch sees them, in fp32.
struct View<'a> {
    inputs: &'a Inputs,
    fault: Option<Fault>,
    queries: Span,
    keys: Span,
    kv_head: usize,
    /// Keys that are read: those of the sequence, unless a bug reads more.
    n: usize,
    d: usize,
    e: usize,
    dtype: DType,
    /// `[n][d]`.
    k: Vec<f32>,
    /// `[n][e]`.
    v: Vec<f32>,
}

impl<'a> View<'a> {
    fn new(inputs: &'a Inputs, sequence: usize, kv_head: usize, fault: Option<Fault>) -> Self {
        let (queries, keys) = (inputs.q_spans[sequence], inputs.kv_spans[sequence]);
        let mut k = load(&inputs.k, keys.rows(), kv_head);
        let mut v = load(&inputs.v, keys.rows(), kv_head);
        let next = inputs.kv_spans.get(sequence + 1).filter(|next| next.len > 0 && keys.len > 0);
        let mut n = keys.len;
        if let (Some(Fault::NeighbourLeak), Some(next)) = (fault, next) {
            k.extend(load(&inputs.k, next.row..next.row + 1, kv_head));
            v.extend(load(&inputs.v, next.row..next.row + 1, kv_head));
            n += 1;
        }
        let case = &inputs.case;
        let (d, e) = (case.dims.qk as usize, case.dims.v as usize);
        View { inputs, fault, queries, keys, kv_head, n, d, e, dtype: case.dtype, k, v }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Softmax scale times log2(e): logits are kept in base 2.
    fn scale2(&self) -> f32 {
        self.inputs.case.softmax_scale() as f32 * LOG2_E
    }

    /// A product of q and k as a logit in base 2, `scale2` being the scale; capped where the case says so.
    fn logit(&self, product: f32, scale2: f32) -> f32 {
        match self.inputs.case.softcap {
            None => product * scale2,
            Some(cap) => {
                let cap2 = cap as f32 * LOG2_E;
                cap2 * (product * scale2 / cap2).tanh()
            }
        }
    }

    /// The slope of the cap at a capped logit in base 2.
    fn slope(&self, logit: f32) -> f32 {
        self.inputs.case.softcap.map_or(1.0, |cap| {
            let t = logit / (cap as f32 * LOG2_E);
            1.0 - t * t
        })
    }

    /// The sink's logit of a query head in base 2.
    fn sink2(&self, head: usize) -> Option<f32> {
        self.inputs.sink_logit(head).map(|sink| sink as f32 * LOG2_E)
    }

    /// The keys that each query sees under `mask`.
    fn visible(&self, mask: Mask) -> Vec<Range<usize>> {
        (0..self.queries.len).map(|i| mask.visible_keys(i, self.queries.len, self.n)).collect()
    }

    /// Rows of q or dO of one head.
    fn query_rows(&self, tensor: &Tensor, rows: &Range<usize>, head: usize) -> Vec<f32> {
        load(tensor, self.queries.row + rows.start..self.queries.row + rows.end, head)
    }

    /// Rounds an operand of a product as the kernel stores it.
    fn round(&self, x: f32) -> f32 {
        self.dtype.round_f32(x)
    }
}

fn load(tensor: &Tensor, rows: Range<usize>, head: usize) -> Vec<f32> {
    tensor.rows_of_head(rows, head).into_iter().map(|x| x as f32).collect()
}

/// The tiles of `0..len`.
fn tiles(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(TILE).map(move |start| start..(start + TILE).min(len))
}

/// Does any of these rows see any of these keys?
fn tile_is_empty(visible: &[Range<usize>], rows: &Range<usize>, keys: &Range<usize>) -> bool {
    rows.clone().all(|i| visible[i].start.max(keys.start) >= visible[i].end.min(keys.end))
}
