//! The harness is measured by bugs in the kernels themselves: a campaign must find each, and race mode
//! must tell the line of a barrier that is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use thd_fuzz::backend::emulator::compile::Mode;
use thd_fuzz::backend::emulator::library::{Library, Workshop};
use thd_fuzz::backend::emulator::{Emulator, Kernels};
use thd_fuzz::backend::kernels::{KERNELS, Replacement};
use thd_fuzz::backend::{Backend, Run};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::mutants::list::load;
use thd_fuzz::mutants::{Mutant, Shows};

/// One of each way to show, and one more.
const HANDFUL: [&str; 5] =
    ["dq-unscaled", "dead-rows-left", "dq-not-atomic", "delta-stored-wild", "head-without-end"];

/// What race mode must find whatever the schedule.
const OUT_OF_ORDER: [&str; 6] = [
    "barrier-v-landed",
    "barrier-p-complete",
    "barrier-do-read",
    "wait-missing",
    "commit-missing",
    "dq-not-atomic",
];

/// The case's seed is the schedule's, too.
const SCHEDULES: std::ops::RangeInclusive<u32> = 1..=10;

fn list() -> Vec<Mutant> {
    load(&[], &[]).expect("the project's own list")
}

fn mutant(name: &str) -> Mutant {
    load(&[], &[name.to_string()]).expect("a mutant of the list").remove(0)
}

#[test]
fn the_list_is_whole_and_speaks_of_known_classes() {
    let own = list();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants");
    let names = |list: &[Mutant]| list.iter().map(|mutant| mutant.name.clone()).collect::<BTreeSet<_>>();
    let of_folder = load(&[folder], &[]).expect("the files that are built in");
    assert_eq!(names(&own), names(&of_folder), "a file is not built in");
    assert!(own.len() >= 26, "{} mutants", own.len());

    let table = include_str!("../corpus/README.md").split("## Classes").nth(1).expect("the classes");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let known: BTreeSet<&str> =
        rows.map(|row| row.trim_matches('|').split('|').next().unwrap().trim()).collect();
    for mutant in &own {
        assert!(known.contains(mutant.class.as_str()), "{}: class {}", mutant.name, mutant.class);
        assert!(!mutant.about.is_empty() && !mutant.about.contains('\n'), "{}: about", mutant.name);
    }
    for shows in [Shows::Values, Shows::Race, Shows::Crash, Shows::Hang] {
        assert!(own.iter().any(|mutant| mutant.shows == shows), "{shows:?}");
    }
}

/// Exit status and lines of a hunt.
fn hunt(args: &[&str]) -> (i32, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thd-fuzz"));
    command.args(["mutants", "--format", "json"]).args(args).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let values = lines.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect();
    (output.status.code().expect("it ends by itself"), values)
}

/// What is wrong with a hunted mutant.
fn complaint(line: &Value) -> Option<String> {
    let wrong = line["verdict"] == "found" && line["shows"] != line["expected"];
    let bad = !["found", "equivalent"].contains(&line["verdict"].as_str().unwrap_or_default());
    (wrong || bad).then(|| format!("{line}"))
}

#[test]
fn one_mutant_of_each_kind_is_found_as_it_should_be() {
    let only: Vec<&str> = HANDFUL.iter().flat_map(|name| ["--only", name]).collect();
    let (status, lines) = hunt(&[&["--no-shrink"], &only[..]].concat());
    let (summary, mutants) = lines.split_last().expect("a summary");
    let complaints: Vec<String> = mutants.iter().filter_map(complaint).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!((status, &summary["found"]), (0, &Value::from(HANDFUL.len())), "{summary}");
}

#[test]
fn every_mutant_is_found() {
    if std::env::var_os("THD_FUZZ_NIGHTLY").is_none_or(|asked| asked != "1") {
        println!("not asked for: THD_FUZZ_NIGHTLY=1 hunts every mutant, for ten minutes or so");
        return;
    }
    let (status, lines) = hunt(&[]);
    lines.iter().for_each(|line| println!("{line}"));
    let bad: Vec<String> = lines
        .iter()
        .filter(|line| line["type"] == "mutant")
        .filter(|line| !["found", "equivalent"].contains(&line["verdict"].as_str().unwrap_or_default()))
        .map(|line| format!("{line}"))
        .collect();
    assert!(status == 0 && bad.is_empty(), "status {status}\n{}", bad.join("\n"));
    assert_eq!(lines.len(), list().len() + 1);
}

#[test]
fn a_list_that_is_wrong_is_a_sentence_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, find: &str, replace: &str| -> PathBuf {
        let file = folder.path().join(name);
        let text = format!(
            "[[mutant]]\nname = 'a'\nfile = 'clear.cu'\nfind = '{find}'\nreplace = '{replace}'\nclass = 'TAIL'\n\
             about = 'x'\nshows = 'values'\ngpu = false\n"
        );
        std::fs::write(&file, text).unwrap();
        file
    };
    let told = [
        (put("absent.toml", "nowhere", ""), "the mutant 'a': its text does not occur in clear.cu"),
        (put("bad.toml", "= 0.0f;", "= nonsense;"), "the mutant 'a': compiling the kernels: clear.cu:21:"),
        (put("none.toml", "= 0.0f;", "= 0.0f;"), "the mutant 'a': it changes nothing"),
        (folder.path().join("missing.toml"), "cannot read the list '"),
    ];
    for (file, words) in told {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thd-fuzz"));
        let output = command.arg("mutants").arg(&file).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// Lines, from 1 on, of the function around the place where the mutant differs: from the line before
/// it that begins a definition to the brace that ends it.
fn function(mutant: &Mutant) -> std::ops::RangeInclusive<usize> {
    let text = mutant.replacement().unwrap().text;
    let original = KERNELS.iter().find(|source| source.name == mutant.file).unwrap().text;
    let same = original.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    let at = text[..same].matches('\n').count();
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.starts_with("DEVICE") || line.starts_with("template");
    let first = lines[..=at].iter().rposition(begins).expect("a definition");
    let last = at + lines[at..].iter().position(|line| *line == "}").expect("its end");
    first + 1..=last + 1
}

/// Does one of the conflicts name a line of the function?
fn tells(races: &[String], file: &str, lines: &std::ops::RangeInclusive<usize>) -> bool {
    let words = races.iter().flat_map(|race| race.split([' ', ',']));
    let numbers = words.filter_map(|word| word.strip_prefix(file)?.strip_prefix(':')?.parse().ok());
    numbers.into_iter().any(|line: usize| lines.contains(&line))
}

/// The emulator with a mutant, compiled for one dtype and head dim to save time.
fn racing(mutant: &Mutant, workshop: &Workshop) -> Emulator {
    let params = KERNELS.iter().find(|source| source.name == "params.h").unwrap();
    let all = "X(bf16, 32) X(bf16, 64) X(bf16, 96) X(bf16, 128) X(f16, 32) X(f16, 64) X(f16, 96) X(f16, 128)";
    let text = params.text.replace(all, "X(bf16, 32)");
    assert_ne!(text, params.text, "params.h has changed");
    let narrow = Replacement { name: params.name.into(), text };
    let path = workshop.build(&[mutant.replacement().unwrap(), narrow], Mode::Race).unwrap();
    let library = Arc::new(Library::open(&path).unwrap());
    Emulator::with(Kernels::Loaded(Arc::clone(&library), Some(library)))
}

#[test]
fn race_mode_tells_the_line_of_what_is_missing_on_every_schedule() {
    let workshop = Workshop::new().unwrap();
    let mut failures = Vec::new();
    for name in OUT_OF_ORDER {
        let mutant = mutant(name);
        let (mut emulator, lines) = (racing(&mutant, &workshop), function(&mutant));
        for seed in SCHEDULES {
            let text = format!("[130]x[150] h2/1 d32 seed={seed}");
            let races = match emulator.run(Run::RACES, &Inputs::new(&text.parse().unwrap())) {
                Ok(answer) => answer.races,
                Err(error) => panic!("{name}, '{text}': {error:?}"),
            };
            if !tells(&races, &mutant.file, &lines) {
                failures.push(format!("{name}, '{text}': {}, lines {lines:?}: {races:?}", mutant.file));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
