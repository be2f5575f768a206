//! What the bounds cost: the reference with its bounds beside the plain one, in the same run:
//! `cargo bench --bench reference`. `bounded` is what a campaign pays for an answer that passes, `bounded-whole`
//! what it pays with the chain and the laws: for one case in eight, and for every case that fails.

#![allow(missing_docs)] // what the macros make

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use thd_fuzz::backend::{Choice, Run};
use thd_fuzz::case::Case;
use thd_fuzz::contract::Contract;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{Depth, Truth};
use thd_fuzz::reference;

/// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CASES: [&str; 5] = ["[512] h4", "[512] h4 d128 causal", "[512] h4 f16", "[64*16] h4/2", "[2048] d128"];

fn references(criterion: &mut Criterion) {
    let model = Choice::find(Some("model"), None).expect("the model is in the table");
    for text in CASES {
        let case: Case = text.parse().expect("a valid case");
        let inputs = Inputs::new(&case);
        let outputs =
            model.open().expect("it needs nothing").run(Run::PLAIN, &inputs).expect("it takes all").outputs;
        let mut group = criterion.benchmark_group(text);
        group.sample_size(20);
        group.bench_function(BenchmarkId::from_parameter("plain"), |bencher| {
            bencher.iter(|| reference::solve(&inputs));
        });
        for (name, depth) in [("bounded", Depth::Halves), ("bounded-whole", Depth::Whole)] {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| Truth::work_out_to(depth, &inputs, &outputs, Contract::OWN.rounding));
            });
        }
    }
}

criterion_group!(benches, references);
criterion_main!(benches);
