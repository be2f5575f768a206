//! Random scenarios for the tests: every dimension, each drawn about as often as it is left alone.

use crate::case::{Align, Base, Case, DeadFill, Dims, Heads, Mask, Scenario};
use crate::tensor::DType;

/// A deterministic source of random scenarios.
pub struct Pool {
    state: u64,
}

impl Pool {
    pub fn new(seed: u64) -> Pool {
        Pool { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03 }
    }

    /// A Weyl sequence through a finaliser: enough for tests.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.state;
        for shift in [30, 27, 31] {
            x = (x ^ (x >> shift)).wrapping_mul(0xBF58_476D_1CE4_E5B9 ^ shift);
        }
        x ^ (x >> 32)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn length(&mut self) -> u32 {
        let edge = self.pick(&[0, 1, 2, 16, 63, 64, 65, 127, 128, 129, 192, 256, 320, 512, 1024]);
        match self.below(4) {
            0 => edge,
            1 => self.below(20) as u32,
            2 => self.below(300) as u32,
            _ => self.below(2048) as u32,
        }
    }

    fn rows(&mut self, one_in: u64) -> u32 {
        if self.one_in(one_in) { self.below(9) as u32 * (1 + self.below(20) as u32) } else { 0 }
    }

    fn lengths(&mut self, case: &mut Case) {
        let most = self.pick(&[5, 5, 16]);
        let n = 1 + self.below(most) as usize;
        let uniform = self.one_in(5).then(|| self.length());
        let sparse = self.one_in(5);
        let mut length = || match uniform {
            _ if sparse && self.below(4) > 0 => 0,
            Some(length) => length,
            None => self.length(),
        };
        let lengths: Vec<u32> = (0..n).map(|_| length()).collect();
        *case = Case::new(lengths);
        if self.one_in(3) {
            for len in &mut case.kv.lengths {
                *len = if self.one_in(2) { self.length() } else { *len };
            }
        }
    }

    fn storage(&mut self, case: &mut Case) {
        for side in [&mut case.q, &mut case.kv] {
            if self.one_in(3) {
                side.gaps.iter_mut().for_each(|gap| *gap = self.rows(2));
            }
            (side.lead, side.tail) = (self.rows(4), self.rows(4));
        }
        case.dead = self.pick(&[DeadFill::Zero, DeadFill::Zero, DeadFill::Big, DeadFill::Nan]);
    }

    fn shape(&mut self, case: &mut Case) {
        if self.one_in(2) {
            let kv = self.pick(&[1, 2, 3, 4, 8]);
            case.heads = Heads { q: kv * self.pick(&[1, 1, 2, 3, 4, 8]), kv };
        }
        case.head_keys = (0..case.heads.kv).collect();
        if self.one_in(2) {
            let qk = self.pick(&[8, 32, 64, 72, 96, 128, 192, 256]);
            case.dims = Dims { qk, v: if self.one_in(3) { self.pick(&[64, 128, 256]) } else { qk } };
        }
        let align = self.pick(&[Align::TopLeft, Align::BottomRight]);
        let bounds = [None, None, Some(0), Some(1), Some(-3), Some(63), Some(128), Some(700)];
        let (left, right) = (self.pick(&bounds), self.pick(&bounds));
        case.mask = match self.below(5) {
            0 | 1 => Mask::Full,
            2 => Mask::Causal(align),
            _ => Mask::Window { left, right, align },
        };
    }

    fn values(&mut self, case: &mut Case) {
        case.dtype = self.pick(&[DType::Bf16, DType::F16]);
        case.scale = self.pick(&[None, None, Some(1.0), Some(0.5), Some(0.0883), Some(-2.25)]);
        case.data.base = self.pick(&[
            Base::Logits(1.0),
            Base::Logits(4.0),
            Base::Logits(0.37),
            Base::Ones,
            Base::Dyadic,
            Base::Flat,
            Base::OneHot,
        ]);
        case.data.offset = self.pick(&[0.0, 0.0, 3.5, -57.25, -110.0, 400.0]);
        case.data.head_scale = self.pick(&[1.0, 1.0, 8.0, 2.5]);
        case.dout.ones = self.one_in(4);
        case.dout.row = self.one_in(3).then(|| self.below(200) as u32);
        case.dout.scale = self.pick(&[1.0, 1.0, 1e4, 0.001, -1.0]);
        if self.one_in(4) {
            case.keys.iter_mut().for_each(|key| *key = self.below(12) as u32);
        }
        if self.one_in(6) {
            case.head_keys.iter_mut().for_each(|key| *key = self.below(9) as u32);
        }
        case.seed = if self.one_in(2) { self.next() >> self.below(64) } else { 0 };
    }

    fn case(&mut self) -> Case {
        let mut case = Case::new(vec![]);
        self.lengths(&mut case);
        self.storage(&mut case);
        self.shape(&mut case);
        self.values(&mut case);
        case
    }

    pub fn scenario(&mut self) -> Scenario {
        let mut calls = vec![self.case()];
        while calls.len() < 4 && self.one_in(4) {
            // Calls that share state are mostly alike.
            let mut next = if self.one_in(2) { calls[0].clone() } else { self.case() };
            next.seed = self.below(5);
            calls.push(next);
        }
        let scenario = Scenario { calls };
        scenario.validate().expect("the pool is valid");
        scenario
    }

    pub fn scenarios(&mut self, n: usize) -> Vec<Scenario> {
        (0..n).map(|_| self.scenario()).collect()
    }

    /// `n` scenarios that `wanted` holds for, or fewer where they are too rare.
    pub fn scenarios_where(&mut self, n: usize, wanted: &dyn Fn(&Scenario) -> bool) -> Vec<Scenario> {
        let draws = (0..20_000 * n).map(|_| self.scenario());
        draws.filter(wanted).take(n).collect()
    }
}
