//! The rules in common use, each asked of one head of one sequence of a gradient, and ours.

use thd_fuzz::contract::Contract;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{self, Evidence, Judgement, Truth, bound};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::reference::{Unit, query_heads};
use thd_fuzz::tensor::DType;

/// Names of the rules, ours first.
pub const RULES: [&str; 6] = [
    "thd-fuzz",
    "cosine > 0.99",
    "allclose 1e-2",
    "cuDNN frontend's",
    "TransformerEngine's",
    "FlashAttention's 2x",
];

/// Which rules find something wrong in `outputs`.
pub fn alarms(inputs: &Inputs, outputs: &Outputs, low: &LowPrecision) -> [bool; RULES.len()] {
    let contract = Contract::OWN;
    let truth = Truth::work_out(inputs, outputs, contract.rounding);
    let measures = bound::measure(inputs, outputs, &truth);
    let evidence = Evidence { call: 0, inputs, outputs, truth: &truth, contract, races: &[], measures };
    let mut found = [false; RULES.len()];
    found[0] = !oracle::judge(&evidence).is_empty();
    for plane in truth.planes(inputs, Judgement::Chain) {
        if !matches!(plane.output, Output::Dq | Output::Dk | Output::Dv) {
            continue;
        }
        let (got, want) = (plane.got(outputs), &plane.bounded.value);
        let peer = low.of_head(inputs, plane.output, plane.sequence, plane.head);
        let head = Head { got: &got, want, dtype: inputs.case.dtype, output: plane.output };
        let judged = [
            head.cosine(),
            head.close(1e-2, 1e-2),
            head.cudnn(),
            head.transformer_engine(),
            head.twice(peer),
        ];
        found[1..].iter_mut().zip(judged).for_each(|(found, passes)| *found |= !passes);
    }
    found
}

/// One head of one sequence of a gradient.
struct Head<'a> {
    got: &'a [f64],
    want: &'a [f64],
    dtype: DType,
    output: Output,
}

impl Head<'_> {
    fn cosine(&self) -> bool {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let norms = (dot(self.got, self.got) * dot(self.want, self.want)).sqrt();
        norms == 0.0 && self.got == self.want || dot(self.got, self.want) / norms > 0.99
    }

    fn close(&self, absolute: f64, relative: f64) -> bool {
        self.got
            .iter()
            .zip(self.want)
            .all(|(got, want)| (got - want).abs() <= absolute + relative * want.abs())
    }

    /// 2e-2 of both, 7e-2 absolute for dK and dV in bf16.
    fn cudnn(&self) -> bool {
        let of_keys = self.output != Output::Dq && self.dtype == DType::Bf16;
        self.close(if of_keys { 7e-2 } else { 2e-2 }, 2e-2)
    }

    /// 1.5e-2 of both in bf16, 1e-3 in f16.
    fn transformer_engine(&self) -> bool {
        let tolerance = if self.dtype == DType::Bf16 { 1.5e-2 } else { 1e-3 };
        self.close(tolerance, tolerance)
    }

    /// The largest error at most twice that of unfused code in the same dtype, and twice what `x + 0.3 - 0.3` loses.
    fn twice(&self, peer: &[f64]) -> bool {
        let largest = |got: &[f64]| got.iter().zip(self.want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let round = |x: f64| self.dtype.round(x);
        let lost = self.want.iter().map(|&x| {
            let x = round(x);
            (round(round(x + 0.3) - 0.3) - x).abs()
        });
        largest(self.got) <= 2.0 * largest(peer) + 2.0 * lost.fold(0.0, f64::max)
    }
}

/// Gradients as unfused code computes them in the storage dtype: every product is stored before the next.
pub struct LowPrecision {
    units: Vec<((usize, usize), Gradients)>,
}

struct Gradients {
    dq: Vec<Vec<f64>>,
    dk: Vec<f64>,
    dv: Vec<f64>,
}

impl LowPrecision {
    pub fn of(inputs: &Inputs) -> LowPrecision {
        let of_unit = |(s, h): (usize, usize)| ((s, h), unfused(&Unit::new(inputs, s, h), inputs.case.dtype));
        LowPrecision { units: Unit::all(&inputs.case).into_iter().map(of_unit).collect() }
    }

    fn of_head(&self, inputs: &Inputs, output: Output, sequence: usize, head: usize) -> &[f64] {
        let kv_head = if output == Output::Dq { head / inputs.case.heads.group() as usize } else { head };
        let found = self.units.iter().find(|(at, _)| *at == (sequence, kv_head));
        let gradients = &found.expect("a plane of a unit").1;
        match output {
            Output::Dk => &gradients.dk,
            Output::Dv => &gradients.dv,
            _ => &gradients.dq[head - query_heads(&inputs.case, kv_head).start],
        }
    }
}

fn unfused(unit: &Unit, dtype: DType) -> Gradients {
    let round = |x: f64| dtype.round(x);
    let (d, e, n) = (unit.d, unit.e, unit.n);
    let mut all = Gradients { dq: Vec::new(), dk: vec![0.0; n * d], dv: vec![0.0; n * e] };
    for (head, (q, dout)) in unit.q.iter().zip(&unit.dout).enumerate() {
        let mut dq = vec![0.0; unit.m * d];
        for i in 0..unit.m {
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let keys: Vec<usize> = unit.visible(i).collect();
            let (q, dout) = (&q[i * d..(i + 1) * d], &dout[i * e..(i + 1) * e]);
            let capped = |s: f64| unit.softcap.map_or(s, |cap| cap * (s / cap).tanh());
            let s: Vec<f64> = keys
                .iter()
                .map(|&j| round(capped(unit.scale * dot(q, &unit.k[j * d..(j + 1) * d]))))
                .collect();
            let l = unit.log_sum_exp(head, &s);
            let p: Vec<f64> = s.iter().map(|s| round((s - l).exp())).collect();
            let dp: Vec<f64> = keys.iter().map(|&j| round(dot(dout, &unit.v[j * e..(j + 1) * e]))).collect();
            let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
            for (((&j, p), dp), &s) in keys.iter().zip(&p).zip(&dp).zip(&s) {
                let ds = round(unit.scale * p * (dp - delta) * unit.slope(s));
                (0..d).for_each(|x| dq[i * d + x] += ds * unit.k[j * d + x]);
                (0..d).for_each(|x| all.dk[j * d + x] += ds * q[x]);
                (0..e).for_each(|x| all.dv[j * e + x] += p * dout[x]);
            }
        }
        dq.iter_mut().for_each(|x| *x = round(*x));
        all.dq.push(dq);
    }
    all.dk.iter_mut().chain(&mut all.dv).for_each(|x| *x = round(*x));
    all
}
