//! Units of random shape, mask, scale and data, and the property tests' one runner.

use std::ops::RangeInclusive;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::case::{Align, Mask};
use crate::reference::Unit;

/// Everything that decides a unit; small enough to read when a property fails.
#[derive(Clone, Debug)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub d: usize,
    pub e: usize,
    /// Query heads that share the kv head.
    pub group: usize,
    pub mask: Mask,
    pub scale: f64,
    pub softcap: Option<f64>,
    /// Has every head a sink?
    pub sink: bool,
    /// Largest logit that the data can make, near enough: flat at 0, one-hot at 60.
    pub spread: f64,
    pub seed: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            m: 8,
            n: 8,
            d: 5,
            e: 4,
            group: 2,
            mask: Mask::Full,
            scale: 0.5,
            softcap: None,
            sink: false,
            spread: 4.0,
            seed: 1,
        }
    }
}

/// A number below 2^32 that looks random: splitmix64 without its state.
fn scramble(x: u64) -> u64 {
    let mut z = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z >> 32
}

impl Shape {
    /// The `at`-th choice of this shape.
    pub fn draw(&self, at: usize) -> usize {
        scramble(u64::from(self.seed) << 24 ^ 0x5eed << 12 ^ at as u64) as usize
    }

    pub fn unit(&self) -> Unit {
        let mut next = u64::from(self.seed) << 32;
        let mut fill = |len: usize, reach: f64| -> Vec<f64> {
            let mut value = || {
                next += 1;
                (scramble(next) as f64 / 2f64.powi(31) - 1.0) * reach
            };
            (0..len).map(|_| value()).collect()
        };
        let (m, n, d, e) = (self.m, self.n, self.d, self.e);
        let scale = if self.scale == 0.0 { 1.0 } else { self.scale.abs() };
        // A logit's standard deviation is a third of its usual extreme.
        let reach = (self.spread / (scale * (d as f64).sqrt())).sqrt();
        Unit {
            sequence: 0,
            kv_head: 0,
            m,
            n,
            d,
            e,
            scale: self.scale,
            softcap: self.softcap,
            sink: (0..self.group)
                .map(|head| self.sink.then(|| self.draw(head + 900) as f64 % 3.0 - 1.5))
                .collect(),
            mask: self.mask,
            q: (0..self.group).map(|_| fill(m * d, reach)).collect(),
            dout: (0..self.group).map(|_| fill(m * e, 1.0)).collect(),
            k: fill(n * d, reach),
            v: fill(n * e, 1.0),
        }
    }
}

fn masks(reach: i64) -> impl Strategy<Value = Mask> {
    let aligns = || prop_oneof![Just(Align::TopLeft), Just(Align::BottomRight)];
    let bounds = move || prop_oneof![1 => Just(None), 4 => (-reach / 2..=reach).prop_map(Some)];
    prop_oneof![
        1 => Just(Mask::Full),
        2 => aligns().prop_map(Mask::Causal),
        5 => (bounds(), bounds(), aligns()).prop_map(|(left, right, align)| Mask::Window { left, right, align }),
    ]
}

/// Shapes with lengths from `lengths` or 0, and head dims from `dims`.
pub fn shapes(lengths: RangeInclusive<usize>, dims: RangeInclusive<usize>) -> impl Strategy<Value = Shape> {
    let reach = *lengths.end() as i64;
    let length = move || prop_oneof![1 => Just(0), 24 => lengths.clone()];
    let scale = prop_oneof![Just(0.5), Just(1.0), Just(-0.7), Just(0.0131), Just(3.7), Just(0.0)];
    let spread = prop_oneof![Just(0.0), Just(0.01), Just(1.0), Just(6.0), Just(60.0)];
    let sizes = (length(), length(), dims.clone(), dims, 1usize..=4);
    let softcap = prop_oneof![3 => Just(None), 1 => Just(Some(0.8)), 1 => Just(Some(5.0))];
    let softmax = (scale, softcap, prop_oneof![2 => Just(false), 1 => Just(true)]);
    (sizes, masks(reach), softmax, spread, any::<u32>()).prop_map(
        |((m, n, d, e, group), mask, (scale, softcap, sink), spread, seed)| Shape {
            m,
            n,
            d,
            e,
            group,
            mask,
            scale,
            softcap,
            sink,
            spread,
            seed,
        },
    )
}

/// Units that the reference takes in several blocks, for every mask.
pub fn of_many_blocks() -> Vec<Shape> {
    let mut masks = vec![Mask::Full];
    for align in [Align::TopLeft, Align::BottomRight] {
        masks.push(Mask::Causal(align));
        let bounds = [(60, 20), (0, 0), (-40, 90), (150, -120), (-200, 260), (3, 500), (-1, 1)];
        masks.extend(bounds.map(|(l, r)| Mask::Window { left: Some(l), right: Some(r), align }));
        masks.push(Mask::Window { left: None, right: Some(-130), align });
        masks.push(Mask::Window { left: Some(10), right: None, align });
    }
    // One block's rows and one more, several blocks, blocks of 43 rows, blocks of one row.
    let lengths = [(129, 31), (300, 290), (50, 3000), (3, 70_000)];
    let mut shapes = Vec::new();
    for (at, (m, n)) in lengths.into_iter().enumerate() {
        for &mask in if n < 10_000 { &masks[..] } else { &masks[..4] } {
            let (group, seed) = (1 + shapes.len() % 3, shapes.len() as u32);
            let scale = [0.4, -0.3][at % 2];
            shapes.push(Shape { m, n, mask, group, seed, scale, ..Shape::default() });
        }
    }
    shapes
}

/// Runs a property on `cases` shapes, the same ones every time, and shrinks what fails.
pub fn for_all(
    cases: u32,
    shapes: impl Strategy<Value = Shape>,
    holds: impl Fn(&Shape) -> Result<(), String>,
) {
    let config =
        Config { cases, rng_seed: RngSeed::Fixed(2024), failure_persistence: None, ..Config::default() };
    let property = |shape: Shape| holds(&shape).map_err(TestCaseError::fail);
    if let Err(failure) = TestRunner::new(config).run(&shapes, property) {
        panic!("{failure}");
    }
}
