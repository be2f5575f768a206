//! The terms of a bias and of dropout, in simulation: a right fused kernel in fp32 that rounds P, dS and its outputs and
//! truncates as it accumulates is within the bounds made of them, and one that is wrong by a little is not.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use thd_fuzz::oracle::budget::{self, DotError, ScoreError, Storage};
use thd_fuzz::oracle::rounding::Grid;
use thd_fuzz::tensor::DType;

/// Heads that share one bias, queries, keys and head dim.
const HEADS: usize = 4;
const ROWS: usize = 48;
const KEYS: usize = 80;
const DIM: usize = 32;
const SCALE: f64 = 0.17;
/// Terms of one step of a tensor core.
const STEP: usize = 16;

type Matrix = Vec<f64>;

/// One head's inputs; the bias is shared.
struct Head {
    q: Matrix,
    k: Matrix,
    v: Matrix,
    dout: Matrix,
    /// Is the pair kept?
    kept: Vec<bool>,
}

struct Problem {
    dtype: DType,
    heads: Vec<Head>,
    bias: Matrix,
    /// r = 1 / (1 - p).
    factor: f64,
}

impl Problem {
    fn new(seed: u64, dtype: DType, drop: f64, bias_size: f64) -> Problem {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut uniform = move || f64::from(rng.next_u32()) / 2f64.powi(32);
        let mut matrix = |len: usize, size: f64| -> Matrix {
            // Sums of uniforms: near enough to normal.
            let mut one = || (0..6).map(|_| uniform() - 0.5).sum::<f64>() * size * 1.41;
            (0..len).map(|_| dtype.round(one())).collect()
        };
        let bias = matrix(ROWS * KEYS, bias_size);
        let mut heads = Vec::new();
        for _ in 0..HEADS {
            let [q, k] = [ROWS, KEYS].map(|rows| matrix(rows * DIM, 1.0));
            let [v, dout] = [KEYS, ROWS].map(|rows| matrix(rows * DIM, 1.0));
            heads.push(Head { q, k, v, dout, kept: Vec::new() });
        }
        for head in &mut heads {
            head.kept = (0..ROWS * KEYS).map(|_| uniform() >= drop).collect();
        }
        Problem { dtype, heads, bias, factor: 1.0 / (1.0 - drop) }
    }
}

/// Outputs of a head; dB of all.
#[derive(Default)]
struct Answer {
    o: Vec<Matrix>,
    lse: Vec<Matrix>,
    dq: Vec<Matrix>,
    dk: Vec<Matrix>,
    dv: Vec<Matrix>,
    db: Matrix,
}

/// fp32 with what is beyond it cut off.
fn truncated(x: f64) -> f64 {
    let nearest = x as f32;
    let beyond = f64::from(nearest).abs() > x.abs();
    f64::from(if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest })
}

/// A sum of products as a tensor core accumulates it.
fn accumulated(terms: impl Iterator<Item = (f64, f64)>) -> f64 {
    let terms: Vec<f64> = terms.map(|(a, b)| a * b).collect();
    terms.chunks(STEP).fold(0.0, |sum, step| truncated(sum + step.iter().sum::<f64>()))
}

fn f32_of(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Row `i` of a matrix of `columns`.
fn row(x: &[f64], i: usize, columns: usize) -> &[f64] {
    &x[i * columns..(i + 1) * columns]
}

fn pairs<'a>(a: &'a [f64], b: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    a.iter().copied().zip(b.iter().copied())
}

/// The kernel: fp32 between its roundings.
fn kernel(problem: &Problem) -> Answer {
    let (r, round) = (f32_of(problem.factor), |x: f64| problem.dtype.round(x));
    let mut answer = Answer::default();
    let mut db = vec![0.0; ROWS * KEYS];
    for head in &problem.heads {
        let (mut o, mut lse) = (vec![0.0; ROWS * DIM], vec![0.0; ROWS]);
        let (mut p, mut ds) = (vec![0.0; ROWS * KEYS], vec![0.0; ROWS * KEYS]);
        for i in 0..ROWS {
            let logit = |j: usize| {
                let dot = accumulated(pairs(row(&head.q, i, DIM), row(&head.k, j, DIM)));
                f32_of(f32_of(dot * f32_of(SCALE)) + problem.bias[i * KEYS + j])
            };
            let s: Vec<f64> = (0..KEYS).map(logit).collect();
            let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exp: Vec<f64> = s.iter().map(|s| f32_of(f32_of(s - max).exp())).collect();
            let sum = exp.iter().fold(0.0, |sum, x| f32_of(sum + x));
            lse[i] = f32_of(max + f32_of(sum.ln()));
            let kept = |j: usize, x: f64| if head.kept[i * KEYS + j] { x } else { 0.0 };
            let weights: Vec<f64> = (0..KEYS).map(|j| round(kept(j, exp[j]))).collect();
            for c in 0..DIM {
                let column: Vec<f64> = (0..KEYS).map(|j| head.v[j * DIM + c]).collect();
                o[i * DIM + c] = round(f32_of(accumulated(pairs(&weights, &column)) * f32_of(r / sum)));
            }
            let delta =
                pairs(row(&o, i, DIM), row(&head.dout, i, DIM)).fold(0.0, |sum, (a, b)| f32_of(sum + a * b));
            for j in 0..KEYS {
                let again = f32_of(f32_of(s[j] - lse[i]).exp());
                let dp = accumulated(pairs(row(&head.dout, i, DIM), row(&head.v, j, DIM)));
                let dp = kept(j, f32_of(dp * r));
                p[i * KEYS + j] = round(kept(j, again));
                ds[i * KEYS + j] = f32_of(again * f32_of(dp - delta));
            }
        }
        db.iter_mut().zip(&ds).for_each(|(sum, ds)| *sum = f32_of(*sum + ds));
        ds.iter_mut().for_each(|ds| *ds = round(*ds));
        let gradient = |scale: f64, rows: usize, terms: usize, a: &dyn Fn(usize, usize) -> f64, b: &[f64]| {
            let element = |i: usize, c: usize| {
                let terms = (0..terms).map(|j| (a(i, j), b[j * DIM + c]));
                round(f32_of(accumulated(terms) * f32_of(scale)))
            };
            (0..rows * DIM).map(|at| element(at / DIM, at % DIM)).collect::<Matrix>()
        };
        answer.dq.push(gradient(SCALE, ROWS, KEYS, &|i, j| ds[i * KEYS + j], &head.k));
        answer.dk.push(gradient(SCALE, KEYS, ROWS, &|j, i| ds[i * KEYS + j], &head.q));
        answer.dv.push(gradient(r, KEYS, ROWS, &|j, i| p[i * KEYS + j], &head.dout));
        answer.o.push(o);
        answer.lse.push(lse);
    }
    answer.db = db.into_iter().map(round).collect();
    answer
}

/// What an operand is, how far a kernel's may be off in fp32, and by how much its rounding.
#[derive(Clone, Copy, Default)]
struct Term {
    value: f64,
    error: f64,
    rounding: f64,
}

/// |error| / tau at its largest, by output.
#[derive(Debug, Default)]
struct Worst([f64; 6]);

impl Worst {
    fn see(&mut self, output: usize, got: f64, want: f64, tau: f64) {
        self.0[output] = self.0[output].max((got - want).abs() / tau);
    }
}

/// A judge, with or without the terms of dropout.
struct Judge {
    storage: Storage,
    grid: Grid,
    with_dropout: bool,
}

impl Judge {
    fn product(&self, scale: f64, terms: impl Iterator<Item = (Term, f64)>) -> (f64, f64) {
        let (mut y, mut size, mut noise, mut n) = (0.0, 0.0, 0.0, 0);
        for (term, b) in terms {
            y += term.value * b;
            size += (term.value * b).abs();
            noise += (term.error + term.rounding) * b.abs();
            n += 1;
        }
        let noise = scale * (noise + budget::accumulation(n) * size);
        (
            scale * y,
            noise + budget::last_steps(scale * y, scale * n as f64) + budget::OF_DROPOUT * (scale * y).abs(),
        )
    }

    fn see(&self, worst: &mut Worst, output: usize, got: f64, (want, noise): (f64, f64)) {
        worst.see(output, got, want, budget::tau(&self.storage, self.grid, want, noise));
    }

    /// Holds an answer against fp64, the backward given its own O and LSE.
    fn judge(&self, problem: &Problem, answer: &Answer) -> Worst {
        let mut worst = Worst::default();
        let mut db = vec![(0.0, 0.0); ROWS * KEYS];
        for (h, head) in problem.heads.iter().enumerate() {
            let mut p = vec![Term::default(); ROWS * KEYS];
            let mut ds = vec![Term::default(); ROWS * KEYS];
            for i in 0..ROWS {
                let logits = Logits::new(problem, head, i);
                let lse = answer.lse[h][i];
                let o = row(&answer.o[h], i, DIM);
                self.forward((problem, head, i), &logits, (o, lse), &mut worst);
                let at = i * KEYS..(i + 1) * KEYS;
                let to = (&mut p[at.clone()], &mut ds[at]);
                self.pairs((problem, head, i), &logits, (o, lse), to);
            }
            for (ds, (sum, tau)) in ds.iter().zip(&mut db) {
                // Sums in fp32 of what is not rounded.
                *sum += ds.value;
                *tau += ds.error + budget::accumulation(HEADS) * ds.value.abs();
            }
            for at in 0..ROWS * DIM {
                let (i, c) = (at / DIM, at % DIM);
                let terms = (0..KEYS).map(|j| (ds[i * KEYS + j], head.k[j * DIM + c]));
                self.see(&mut worst, 2, answer.dq[h][at], self.product(SCALE, terms));
            }
            for at in 0..KEYS * DIM {
                let (j, c) = (at / DIM, at % DIM);
                let of_k = (0..ROWS).map(|i| (ds[i * KEYS + j], head.q[i * DIM + c]));
                self.see(&mut worst, 3, answer.dk[h][at], self.product(SCALE, of_k));
                let of_v = (0..ROWS).map(|i| (p[i * KEYS + j], head.dout[i * DIM + c]));
                self.see(&mut worst, 4, answer.dv[h][at], self.product(1.0, of_v));
            }
        }
        for (got, want) in answer.db.iter().zip(&db) {
            self.see(&mut worst, 5, *got, *want);
        }
        worst
    }

    /// The factor that is allowed for.
    fn factor(&self, problem: &Problem) -> f64 {
        if self.with_dropout { problem.factor } else { 1.0 }
    }

    /// Row `i` of O and LSE.
    fn forward(
        &self,
        (problem, head, i): (&Problem, &Head, usize),
        logits: &Logits,
        (o, lse): (&[f64], f64),
        worst: &mut Worst,
    ) {
        let largest = logits.errors.iter().copied().fold(0.0, f64::max);
        let of_lse = budget::lse(largest, logits.lse, KEYS);
        worst.see(1, lse, logits.lse, of_lse);
        let mut relative = logits.errors.clone();
        budget::with_that_of_maximum(&mut relative, largest);
        for (c, &o) in o.iter().enumerate() {
            let terms = (0..KEYS).filter(|&j| head.kept[i * KEYS + j]).map(|j| {
                let p = (logits.s[j] - logits.lse).exp();
                let rounding = self.storage.dropped_operand(p, 0.0, self.factor(problem));
                let value = problem.factor * p;
                (Term { value, error: relative[j] * value, rounding }, head.v[j * DIM + c])
            });
            let (y, noise) = self.product(1.0, terms);
            self.see(worst, 0, o, (y, noise + of_lse * y.abs()));
        }
    }

    /// Row `i` of P and dS as the products take them.
    fn pairs(
        &self,
        (problem, head, i): (&Problem, &Head, usize),
        logits: &Logits,
        (o, lse): (&[f64], f64),
        (p, ds): (&mut [Term], &mut [Term]),
    ) {
        let (r, dout) = (self.factor(problem), row(&head.dout, i, DIM));
        let delta = dot(o, dout);
        let sizes = pairs(o, dout).map(|(a, b)| (a * b).abs()).sum::<f64>();
        let of_dp = DotError::new(DIM, norm(dout), delta, budget::delta(DIM, sizes)).with_dropout(r);
        for j in 0..KEYS {
            let kept = f64::from(u8::from(head.kept[i * KEYS + j]));
            let x = (logits.s[j] - lse).exp();
            let v = row(&head.v, j, DIM);
            let dp = kept * problem.factor * dot(dout, v);
            let e = budget::exp_minus_one(logits.errors[j]);
            let value = x * (dp - delta);
            let error = budget::d_score(x, dp - delta, value, e, of_dp.of(kept * norm(v), dp));
            ds[j] = Term { value, error, rounding: self.storage.operand(value, error) };
            let error = budget::probability(x, e);
            let rounding = kept * self.storage.dropped_operand(x, error, r);
            let by = kept * problem.factor;
            p[j] = Term { value: by * x, error: by * error, rounding };
        }
    }
}

/// A row's logits with their errors, and its LSE.
struct Logits {
    s: Vec<f64>,
    errors: Vec<f64>,
    lse: f64,
}

impl Logits {
    fn new(problem: &Problem, head: &Head, i: usize) -> Logits {
        let q = row(&head.q, i, DIM);
        let bias = row(&problem.bias, i, KEYS);
        let s: Vec<f64> = (0..KEYS).map(|j| SCALE * dot(q, row(&head.k, j, DIM)) + bias[j]).collect();
        let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = max + s.iter().map(|s| (s - max).exp()).sum::<f64>().ln();
        let score = ScoreError::new(DIM, lse.abs().max(max.abs()));
        let of_pair = |j: usize| {
            let norms = SCALE * norm(q) * norm(row(&head.k, j, DIM));
            budget::with_bias(score.of(norms, s[j]), bias[j])
        };
        Logits { errors: (0..KEYS).map(of_pair).collect(), s, lse }
    }
}

fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    pairs(a, b).map(|(a, b)| a * b).sum()
}

const OUTPUTS: [&str; 6] = ["O", "LSE", "dQ", "dK", "dV", "dB"];

fn judge(dtype: DType, with_dropout: bool) -> Judge {
    Judge { storage: Storage::of(dtype), grid: Grid::of(dtype), with_dropout }
}

/// Probabilities to drop, and sizes of the bias, up to one that decides the softmax alone.
const DROPS: [f64; 4] = [0.0, 0.1, 0.5, 0.9];
const BIASES: [f64; 3] = [0.0, 1.0, 60.0];

fn every(mut see: impl FnMut(Problem)) {
    for (d, drop) in DROPS.into_iter().enumerate() {
        for (b, size) in BIASES.into_iter().enumerate() {
            for dtype in [DType::Bf16, DType::F16] {
                see(Problem::new((10 * d + b) as u64, dtype, drop, size));
            }
        }
    }
}

#[test]
fn a_right_kernel_with_bias_and_dropout_is_within_its_bounds() {
    let mut all = [0.0; 6];
    every(|problem| {
        let worst = judge(problem.dtype, true).judge(&problem, &kernel(&problem));
        all.iter_mut().zip(worst.0).for_each(|(all, worst)| *all = f64::max(*all, worst));
    });
    for (output, worst) in OUTPUTS.iter().zip(all) {
        println!("{output}: {worst:.3} of its bound at most");
        assert!(worst <= 1.0 && worst > 0.01, "{output}: {worst}");
    }
}

#[test]
fn without_the_factor_of_dropout_a_right_kernel_is_beyond() {
    let problem = Problem::new(7, DType::Bf16, 0.9, 1.0);
    let worst = judge(problem.dtype, false).judge(&problem, &kernel(&problem));
    assert!(worst.0[0] > 1.0 && worst.0[4] > 1.0, "{worst:?}");
}

#[test]
fn gradients_that_forget_bias_or_dropout_are_beyond() {
    every(|problem| {
        let right = kernel(&problem);
        let plain = Problem { bias: vec![0.0; ROWS * KEYS], ..Problem::new(1, problem.dtype, 0.0, 1.0) };
        // The same problem with one of the two left out of the kernel.
        let without = |bias: &Matrix, drop: bool| Problem {
            dtype: problem.dtype,
            bias: bias.clone(),
            factor: if drop { problem.factor } else { 1.0 },
            heads: problem
                .heads
                .iter()
                .map(|head| Head {
                    q: head.q.clone(),
                    k: head.k.clone(),
                    v: head.v.clone(),
                    dout: head.dout.clone(),
                    kept: if drop { head.kept.clone() } else { vec![true; ROWS * KEYS] },
                })
                .collect(),
        };
        let judged = judge(problem.dtype, true);
        if problem.factor > 1.0 {
            let wrong = Answer { dv: kernel(&without(&problem.bias, false)).dv, ..kernel(&problem) };
            assert!(judged.judge(&problem, &wrong).0[4] > 1.0, "dropout forgotten in dV");
        }
        if problem.bias.iter().any(|b| *b != 0.0) {
            let wrong = Answer { dq: kernel(&without(&plain.bias, true)).dq, ..kernel(&problem) };
            assert!(judged.judge(&problem, &wrong).0[2] > 1.0, "bias forgotten in dQ");
        }
        let scaled = Answer { db: right.db.iter().map(|x| x * 1.02).collect(), ..right };
        assert!(judged.judge(&problem, &scaled).0[5] > 1.0, "dB too large by a fiftieth");
    });
}
