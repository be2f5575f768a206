//! What a worker promises of its backend, in its hello: the contract that it is judged by.

use super::ProtocolError;
use super::message::Parsed;
use crate::contract::{Contract, DeadRows, Deterministic, Known, Recipe, Rounding};

/// The least that is promised: dead rows of any content, roundings of P and dS somewhere on their way, no
/// output twice the same.
pub const LEAST: Contract = Contract {
    dead_rows: DeadRows::Anything,
    rounding: Rounding { recipe: &Recipe::FUSED, known: Known::InKind, forward_tile: LEAST_TILE },
    deterministic: Deterministic { forward: false, dq: false, dk_dv: false, dsink: false },
};

/// Keys of a forward's tile where nothing is said: the fewer, the more often it rescales.
const LEAST_TILE: usize = 16;

/// Reads the promises of a hello; what it does not say is as in [`LEAST`].
pub(super) fn read(parsed: &Parsed) -> Result<Contract, ProtocolError> {
    let mut contract = LEAST;
    if let Some(text) = parsed.optional("dead-rows") {
        let kinds = [DeadRows::Zero, DeadRows::Untouched, DeadRows::Anything];
        let named = kinds.into_iter().find(|kind| kind.name() == text);
        contract.dead_rows = named.ok_or_else(|| parsed.bad("dead-rows", "zero, untouched or anything"))?;
    }
    if let Some(text) = parsed.optional("rounding") {
        let named = Recipe::named(text);
        contract.rounding.recipe =
            named.ok_or_else(|| parsed.bad("rounding", "a recipe that docs/oracle.md lists"))?;
    }
    if let Some(text) = parsed.optional("forward-tile") {
        let tile = text.parse().ok().filter(|&tile| tile > 0);
        contract.rounding.forward_tile =
            tile.ok_or_else(|| parsed.bad("forward-tile", "a number of keys, 1 or more"))?;
        // Who knows the tile knows the roundings.
        contract.rounding.known = Known::Exactly;
    }
    if let Some(text) = parsed.optional("deterministic") {
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let of = &mut contract.deterministic;
            let flag = match name {
                "forward" => &mut of.forward,
                "dq" => &mut of.dq,
                "dk-dv" => &mut of.dk_dv,
                "dsink" => &mut of.dsink,
                _ => return Err(parsed.bad("deterministic", "a list of forward, dq, dk-dv and dsink")),
            };
            *flag = true;
        }
    }
    Ok(contract)
}
