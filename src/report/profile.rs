//! A rounding profile for a person.

use std::fmt::Write;

use crate::backend::Choice;
use crate::contract::{Known, Weights};
use crate::profile::{OUTPUTS, PROBES, Profile};

/// The page of a backend.
pub fn page(profile: &Profile, choice: &Choice) -> String {
    let mut page = format!("rounding of {}: {}\n\n", choice.with_device(), verdict(profile));
    let outputs: String = OUTPUTS.iter().map(|output| format!("{:>7}", output.name())).collect();
    let _ = writeln!(page, "  {:22}{outputs}{:>7}", "recipe", "all");
    for (recipe, residual) in &profile.recipes {
        let of: String = OUTPUTS.iter().map(|&output| format!("{:7.2}", residual.of(output))).collect();
        let mark = if **recipe == *profile.declared.recipe { "  declared" } else { "" };
        let _ = writeln!(page, "  {:22}{of}{:7.2}{mark}", recipe.name, residual.total());
    }
    if !profile.tiles.is_empty() {
        let tiles = profile.tiles.iter().map(|(tile, left)| {
            let mark = if *tile == profile.declared.forward_tile { " (declared)" } else { "" };
            format!("{tile}{mark} {left:.2}")
        });
        let tiles: Vec<String> = tiles.collect();
        let _ = writeln!(
            page,
            "\n  keys after which the forward takes its running maximum: {}",
            tiles.join(", ")
        );
    }
    let _ = writeln!(
        page,
        "\n  What each recipe leaves of the outputs, in units of what their own rounding leaves (root mean squares): 1.00 is\n  \
         all that the right one leaves. Over {} of {} probe cases.",
        PROBES.len() - profile.refused.len(),
        PROBES.len()
    );
    for (case, reason) in &profile.refused {
        let _ = writeln!(page, "  refused: {case}: {}", reason.escape_debug());
    }
    page
}

/// One sentence.
fn verdict(profile: &Profile) -> String {
    let (best, declared) = (profile.best(), profile.declared);
    if !profile.is_explained() {
        return format!(
            "no recipe explains it; {} leaves the least, and {} is declared",
            best.name, declared.recipe.name
        );
    }
    let alike: Vec<&str> = profile.alike().iter().map(|recipe| recipe.name).collect();
    let or = if alike.is_empty() {
        String::new()
    } else {
        format!(" or {}, which these cases do not tell apart", alike.join(" or "))
    };
    let known = match declared.known {
        Known::Exactly => "exactly",
        Known::InKind => "in kind",
    };
    if profile.is_as_declared() {
        return format!("{}{or}, as declared ({known})\n  {}", best.name, best.reason);
    }
    if *best == *declared.recipe && best.weights == Weights::Running {
        return format!(
            "{}, as declared, but in other tiles of keys than {}",
            best.name, declared.forward_tile
        );
    }
    format!("{}{or}, where {} is declared\n  {}", best.name, declared.recipe.name, best.reason)
}
