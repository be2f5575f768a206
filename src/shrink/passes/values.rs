//! Numbers and data: scale, softcap and sink, data, dO, keys and seed.

use super::{Knob, PATIENCE, Patience, attempt_each, scopes};
use crate::case::{Base, Case, Data, Dout, Sink, limits};
use crate::shrink::order::decimals;
use crate::shrink::{Shrinker, search};

/// A real number of a case that may be simplified.
struct Dial {
    /// Its value, where the case has one to simplify.
    get: fn(&Case) -> Option<f64>,
    /// Sets another value.
    set: fn(&mut Case, f64),
    /// Its least legal magnitude.
    least: f64,
}

/// Decimals that a shorter number is looked for with.
const MOST_DECIMALS: u32 = 3;

/// Whole numbers worth trying, in units of the last decimal.
const WHOLE: [u64; 15] = [0, 1, 2, 3, 4, 5, 8, 10, 16, 20, 25, 50, 64, 100, 1000];

/// Units of the last decimal beyond which a number is left as long as it is.
const MAX_UNITS: f64 = 1e9;

impl Dial {
    /// Makes the number positive, shorter, then smaller, in every scope.
    fn simplify(&self, shrinker: &mut Shrinker<'_>) {
        for scope in scopes(shrinker) {
            let set = |shrinker: &mut Shrinker<'_>, x: f64| {
                x.abs() >= self.least
                    && shrinker.attempt(|scenario| {
                        let calls = scenario.calls[scope.clone()].iter_mut();
                        calls.filter(|case| (self.get)(case).is_some()).for_each(|case| (self.set)(case, x));
                    })
            };
            let value =
                |shrinker: &Shrinker<'_>| shrinker.current().calls[scope.clone()].iter().find_map(self.get);
            let Some(x) = value(shrinker) else { continue };
            if x < 0.0 {
                set(shrinker, -x);
            }
            let x = value(shrinker).unwrap_or(x);
            shorten(x, |x| set(shrinker, x));
            let x = value(shrinker).unwrap_or(x);
            self.shrink_units(x, |x| set(shrinker, x));
        }
    }

    /// Lowers `x` as a whole number of units of its last decimal.
    fn shrink_units(&self, x: f64, mut set: impl FnMut(f64) -> bool) {
        let unit = 10f64.powi(decimals(x).min(300) as i32);
        let units = (x.abs() * unit).round();
        let least = (self.least * unit).ceil() as u64;
        if units > MAX_UNITS {
            return;
        }
        let values: Vec<u64> =
            std::iter::once(least).chain(WHOLE.into_iter().filter(|&v| v > least)).collect();
        search::lower(units as u64, &values, |v| set((v as f64 / unit).copysign(x)));
    }
}

/// Rounds `x` to the fewest decimals that work, toward zero or away from it.
fn shorten(x: f64, mut set: impl FnMut(f64) -> bool) {
    for places in 0..decimals(x).min(MOST_DECIMALS) {
        let unit = 10f64.powi(places as i32);
        let units = x.abs() * unit;
        if [units.floor(), units.ceil()].into_iter().any(|units| set((units / unit).copysign(x))) {
            return;
        }
    }
}

const SCALE: Dial = Dial { get: |case| case.scale, set: |case, x| case.scale = Some(x), least: 0.0 };

const SOFTCAP: Dial =
    Dial { get: |case| case.softcap, set: |case, x| case.softcap = Some(x), least: limits::MIN_SOFTCAP };

const DATA: [Dial; 3] = [
    Dial {
        get: |case| match case.data.base {
            Base::Logits(spread) if case.data.base != Data::default().base => Some(spread),
            _ => None,
        },
        set: |case, x| case.data.base = Base::Logits(x),
        least: 0.0,
    },
    Dial {
        get: |case| Some(case.data.offset).filter(|&x| x != 0.0),
        set: |case, x| case.data.offset = x,
        least: 0.0,
    },
    Dial {
        get: |case| Some(case.data.head_scale).filter(|&x| x != 1.0),
        set: |case, x| case.data.head_scale = x,
        least: 1.0,
    },
];

const DOUT_SCALE: Dial = Dial {
    get: |case| Some(case.dout.scale).filter(|&x| x != 1.0),
    set: |case, x| case.dout.scale = x,
    least: 0.0,
};

const DOUT_ROW: Knob = Knob {
    get: |case| case.dout.row.map_or(0, u64::from),
    set: |case, row| case.dout.row = Some(row as u32),
    values: &[0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128],
};

/// Makes the softmax scale a short number.
pub fn simplify_scale(shrinker: &mut Shrinker<'_>) {
    SCALE.simplify(shrinker);
}

/// Makes the cap of the logits a short number, and a learnable sink one of zero.
pub fn simplify_softmax(shrinker: &mut Shrinker<'_>) {
    SOFTCAP.simplify(shrinker);
    let plainer: fn(&mut Case) = |case| case.sink = case.sink.min(Sink::OffByOne);
    attempt_each(shrinker, &[plainer]);
}

/// Drops each term of the data recipe, tries the plainer bases, and shortens the numbers.
pub fn simplify_data(shrinker: &mut Shrinker<'_>) {
    let edits: [fn(&mut Case); 6] = [
        |case| case.data.base = Data::default().base,
        |case| case.data.offset = Data::default().offset,
        |case| case.data.head_scale = Data::default().head_scale,
        |case| case.data.base = Base::Ones,
        |case| case.data.base = Base::Dyadic,
        |case| case.data.base = Base::Flat,
    ];
    attempt_each(shrinker, &edits);
    DATA.iter().for_each(|dial| dial.simplify(shrinker));
}

/// Drops each term of dO's recipe, and shortens its numbers.
pub fn simplify_dout(shrinker: &mut Shrinker<'_>) {
    let edits: [fn(&mut Case); 3] = [
        |case| case.dout.ones = Dout::default().ones,
        |case| case.dout.row = Dout::default().row,
        |case| case.dout.scale = Dout::default().scale,
    ];
    attempt_each(shrinker, &edits);
    DOUT_ROW.lower(shrinker);
    DOUT_SCALE.simplify(shrinker);
}

/// Lowers data keys to their index or below, and tries small seeds.
///
/// Data of another key are other data, so nothing lies between two keys: no bisection.
pub fn lower_draws(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        lower_keys(shrinker, call, |case| &mut case.keys);
        lower_keys(shrinker, call, |case| &mut case.head_keys);
    }
    for scope in scopes(shrinker) {
        let seeds = shrinker.current().calls[scope.clone()].iter().map(|case| case.seed);
        let from = seeds.max().unwrap_or(0);
        search::first_of(from, &[0, 1, 2, 3, 4, 5, 6, 7], |seed| {
            shrinker.attempt(|scenario| {
                scenario.calls[scope.clone()].iter_mut().for_each(|case| case.seed = seed)
            })
        });
    }
}

fn lower_keys(shrinker: &mut Shrinker<'_>, call: usize, keys: fn(&mut Case) -> &mut Vec<u32>) {
    let mut patience = Patience::of(PATIENCE);
    let now = keys(&mut shrinker.current().calls[call].clone()).clone();
    for (i, key) in now.into_iter().enumerate().filter(|&(i, key)| key as usize != i) {
        let mut set = |key: u64| shrinker.attempt(|scenario| keys(&mut scenario.calls[call])[i] = key as u32);
        let lowered = set(i as u64) || search::first_of(key.into(), &[0, 1, 2, 3], set).is_some();
        patience.note(lowered || move_key_back(shrinker, call, i, keys));
        if patience.is_lost() {
            return;
        }
    }
}

/// Gives a key to a later sequence or head instead.
fn move_key_back(
    shrinker: &mut Shrinker<'_>,
    call: usize,
    i: usize,
    keys: fn(&mut Case) -> &mut Vec<u32>,
) -> bool {
    let n = keys(&mut shrinker.current().calls[call].clone()).len();
    (i + 1..n.min(i + PATIENCE)).any(|j| {
        shrinker.attempt(|scenario| {
            let keys = keys(&mut scenario.calls[call]);
            keys[j] = std::mem::replace(&mut keys[i], i as u32);
        })
    })
}
