//! Emulator and model compute the same thing by different code: on every saved case each output of one
//! is within both bounds of the other's.

use std::path::PathBuf;

use thd_fuzz::backend::{Backend, Choice, Run};
use thd_fuzz::check::{Side, check_both};
use thd_fuzz::corpus;
use thd_fuzz::oracle::{Agreement, Depth};

fn open(name: &str) -> (Choice, Box<dyn Backend>) {
    let choice = Choice::find(Some(name), None).expect("a name of the table");
    let backend = choice.open_here().expect("it opens");
    (choice, backend)
}

fn side((choice, backend): &mut (Choice, Box<dyn Backend>)) -> Side<'_> {
    Side {
        backend: &mut **backend,
        contract: choice.descriptor.contract,
        run: Run::PLAIN,
        depth: Depth::Whole,
    }
}

#[test]
fn emulator_and_model_agree_within_their_bounds_on_every_saved_case() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let (saved, errors) = corpus::load(&[folder]);
    assert!(errors.is_empty() && saved.len() > 100, "{} cases, {errors:?}", saved.len());
    let (mut emulator, mut model) = (open("emulator"), open("model"));
    let (mut failures, mut total) = (Vec::new(), Agreement::default());
    for case in &saved {
        let both = check_both(&case.scenario, [side(&mut emulator), side(&mut model)]);
        let agreement = both.expect("no fault of ours").agreement.expect("both take every saved case");
        if let Some(pair) = agreement.disagreement() {
            failures.push(format!("{}: '{}' apart: {pair:?}", case.path.display(), case.scenario));
        }
        total.add(&agreement);
    }
    let (elements, apart) = (total.elements, total.apart());
    println!("{} cases, {elements} elements, furthest apart {apart:.3} of both bounds", saved.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
