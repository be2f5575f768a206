//! The program as its users meet it: exit statuses, what is printed where, bad input, bad disks.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "cli/against.rs"]
mod against;
#[path = "cli/cuda.rs"]
mod cuda;
#[path = "cli/json.rs"]
mod json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_thd-fuzz");
const SEED_CASE: &str = "[128] h8 d128 causal do=ones";

/// What a run of the program left.
#[derive(Debug)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code().expect("it ended by itself"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("THD_FUZZ_LOG").env_remove("RUST_LOG").spawn().unwrap()
}

/// On the model where nothing else is asked for: these tests are of the command line, and it needs no
/// child process.
fn program(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).current_dir(folder);
    let runs = ["fuzz", "check", "shrink", "replay"].contains(&args[0]);
    if runs && !args.iter().any(|arg| arg.starts_with("--backend") || arg.starts_with("--fault")) {
        command.args(["--backend", "model"]);
    }
    command
}

fn ran(args: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    finish(start(program(args, folder.path())))
}

/// The lines of a complaint, without the pointer to the help that argument errors end with.
fn sentences(err: &str) -> Vec<&str> {
    err.lines().filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect()
}

fn is_calm(err: &str) -> bool {
    !err.contains("panic") && !err.contains("RUST_BACKTRACE") && !err.contains('\x1b')
}

/// A table whose figures keep the first half of their digits, which no order of additions changes.
fn stable(table: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let mut cut = String::new();
    for line in table.lines().take_while(|line| !line.contains("off by")) {
        let mut rest = line;
        while let Some(start) = rest.find(is_part) {
            let end = start + rest[start..].find(|c| !is_part(c)).unwrap_or(rest.len() - start);
            let figure = &rest[start..end];
            cut += &rest[..start];
            cut += &if figure.contains('.') { half_of_the_digits(figure) } else { figure.to_string() };
            rest = &rest[end..];
        }
        cut.extend([rest, "\n"]);
    }
    cut
}

/// `0.3706` as `0.37xx`.
fn half_of_the_digits(figure: &str) -> String {
    let digits = figure.chars().filter(char::is_ascii_digit).count();
    let mut seen = 0;
    let hide = |c: char| {
        seen += usize::from(c.is_ascii_digit());
        if c.is_ascii_digit() && seen > digits.div_ceil(2) { 'x' } else { c }
    };
    figure.chars().map(hide).collect()
}

#[test]
fn the_seed_case_passes_with_a_table_of_cosines_and_norms() {
    let run = ran(&["check", SEED_CASE]);
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    insta::assert_snapshot!(stable(&run.out), @r"
    [128] h8 d128 causal do=ones on model

    lengths                     O cos  dQ cos  norm (reference)    dK                          dV                             worst  verdict
    [128]                    0.999xxx   1.00xx 9.1xxe1 (9.1xxe1)    1.00xx 1.7xxe2 (1.7xxe2)    1.00xx 5.2xxe2 (5.2xxe2)      0.9xx  ok

    asked: again, other-poison, dirty-memory, other-mask, doubled, empty-sequence, other-head-order
    ");
}

#[test]
fn the_seed_case_fails_with_the_seeds_fault_as_the_report_has_it() {
    let run = ran(&["check", SEED_CASE, "--fault", "lse-transposed"]);
    assert_eq!((run.status, run.err.as_str()), (1, ""));
    insta::assert_snapshot!(stable(&run.out), @r"
    [128] h8 d128 causal do=ones on model with the planted fault lse-transposed

    lengths                     O cos  dQ cos  norm (reference)    dK                          dV                             worst  verdict
    [128]                    0.999xxx   0.37xx 9.2xxe2 (9.1xxe1)    0.45xx 2.0xxe3 (1.7xxe2)    0.41xx 5.8xxe3 (5.2xxe2)      9.xe5  BAD
    ");
    let findings: Vec<&str> = run.out.lines().skip_while(|line| !line.contains("off by")).collect();
    assert!(findings[0].starts_with("dQ: backward (bound), at sequence 0, row "), "{}", findings[0]);
}

#[test]
fn the_status_is_0_for_clean_1_for_a_finding_and_2_for_a_fault_of_ours() {
    let table: [(&[&str], i32); 8] = [
        (&["backends"], 0),
        (&["check", "[3] h2"], 0),
        (&["check", "[3] h2", "--fault", "lse-transposed"], 1),
        (&["shrink", "[3] h2"], 0),
        (&["shrink", "[3] h2", "--fault", "lse-transposed"], 1),
        (&["fuzz", "--cases", "2", "--seed", "3"], 0),
        (&["fuzz", "--cases", "1", "--seed", "3", "--fault", "guard-overrun"], 1),
        (&["check", "[1048576]"], 2),
    ];
    for (args, status) in table {
        let run = ran(args);
        assert_eq!(run.status, status, "{args:?}: {run:?}");
        assert!(is_calm(&run.err), "{args:?}: {}", run.err);
    }
}

#[test]
fn a_shrink_says_the_minimal_case_and_how_to_replay_it() {
    let run = ran(&["shrink", "[7,65] h3 causal", "--fault", "lse-transposed"]);
    assert!(run.out.contains("  minimal  [2] h2\n"), "{}", run.out);
    let replay = "thd-fuzz check '[2] h2' --backend model --fault lse-transposed";
    assert!(run.out.contains(replay), "{}", run.out);
}

#[test]
fn bad_input_costs_one_sentence_and_status_2() {
    let table: [(&[&str], &str); 16] = [
        (&["check", "[128"], "column 5: expected ',' or ']', found the end"),
        (&["check", "[1*4000000000]"], "column 2: 4000000000 entries so far, the limit is 1048576"),
        (&["check", "[1] h0"], "column 5: "),
        (&["check", "[1] \u{1b}[2J"], "column 5: expected an item"),
        (&["check", "[1]", "--backend", "cudnn"], "unknown backend 'cudnn'; known: cuda, emulator, model"),
        (
            &["check", "[1]", "--backend", "\u{1b}[2J"],
            "unknown backend '\\u{1b}[2J'; known: cuda, emulator, model",
        ),
        (&["check", "[1]", "--fault", "gremlin"], "unknown fault 'gremlin'; known: lse-transposed, "),
        (&["fuzz", "--fault", "gremlin"], "unknown fault 'gremlin'; known: lse-transposed, "),
        (
            &["fuzz", "--time", "nonsense"],
            "invalid value 'nonsense' for '--time <TIME>': expected number at 0",
        ),
        (&["fuzz", "--cases", "-1"], "'-1'"),
        (&["fuzz", "--cases", "0"], "0 is not in 1.."),
        (&["fuzz", "--time", "0s"], "no time at all"),
        (&["fuzz", "--stop-after", "0"], "at least 1"),
        (&["replay", "no/such/file"], "no/such/file: No such file or directory"),
        (&["replay", ".", "--against", "cudnn"], "unknown backend 'cudnn'; known: "),
        (&["check", "[1048576]"], "multiply-adds a product, more than the reference takes on"),
    ];
    for (args, sentence) in table {
        let run = ran(args);
        assert_eq!(run.status, 2, "{args:?}: {run:?}");
        let said = sentences(&run.err);
        assert!(said[0].contains(sentence), "{args:?} says '{}'", said[0]);
        assert!(said.len() == 1 || run.err.contains("tip:") || run.err.contains("Usage:"), "{said:?}");
        assert!(is_calm(&run.err), "{}", run.err);
    }
}

#[test]
fn hostile_corpus_files_cost_a_sentence_each_and_the_others_run() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("binary", &[0xff, 0xfe, 0, 1]);
    put("bomb.toml", b"case = '[1*4000000000]'");
    put("colour", b"[1] \x1b[31m");
    put("empty", b"");
    put("field.toml", b"case = '[1]'\nbackend = 'cmd:touch hacked'\n");
    put("good.toml", b"case = '[2] h2'\ntitle = \"red \\u001b[31m\"\n");
    put("nested.toml", format!("case = {}", "[".repeat(100_000)).as_bytes());
    fs::File::create(folder.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
    let run = finish(start(program(&["replay", "."], folder.path())));
    assert_eq!(run.status, 2);
    assert_eq!(sentences(&run.err).len(), 7, "{}", run.err);
    assert!(is_calm(&run.err) && is_calm(&run.out), "{run:?}");
    assert!(run.out.contains("ok   [2] h2"), "{}", run.out);
    assert!(run.out.contains("1 passed") && run.out.contains("7 files unreadable"), "{}", run.out);
    assert!(!folder.path().join("hacked").exists());
}

#[test]
fn a_saved_finding_replays_with_its_fault_and_passes_without() {
    let folder = tempfile::tempdir().unwrap();
    let fault = ["--fault", "dead-rows-unwritten"];
    let fuzz = [&["fuzz", "--seed", "3", "--cases", "4", "--stop-after", "1", "--save", "kept"], &fault[..]];
    let run = finish(start(program(&fuzz.concat(), folder.path())));
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.out.contains("  saved    kept/dk-dead-row-"), "{}", run.out);
    let again = finish(start(program(&[&["replay", "kept"], &fault[..]].concat(), folder.path())));
    assert_eq!(again.status, 1, "{again:?}");
    assert!(again.out.starts_with("FAIL ") && again.out.contains("1 failed"), "{}", again.out);
    let right = finish(start(program(&["replay", "kept"], folder.path())));
    assert_eq!(right.status, 0, "{right:?}");
}

/// A campaign that finds something at once and cannot save it.
fn is_told_all_the_same(run: &Ran) {
    assert_eq!(run.status, 2, "{run:?}");
    let told = ["FINDING  ", "  minimal  ", "NOT CLEAN on model"];
    assert!(told.iter().all(|text| run.out.contains(text)), "{}", run.out);
    assert!(!run.out.contains("  saved "), "{}", run.out);
    let complaints: Vec<&str> = run.err.lines().filter(|line| line.contains("cannot save")).collect();
    assert_eq!(complaints.len(), 1, "{}", run.err);
    assert!(complaints[0].ends_with("name another folder with --save") && is_calm(&run.err), "{}", run.err);
}

const FINDS_AT_ONCE: [&str; 8] =
    ["fuzz", "--seed", "3", "--cases", "1", "--stop-after", "1", "--fault=guard-overrun"];

#[test]
fn a_folder_that_cannot_be_made_is_told_before_the_campaign_and_not_hours_later() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let args = [&FINDS_AT_ONCE[..], &["--save", "file/below"]].concat();
    let run = finish(start(program(&args, folder.path())));
    assert_eq!((run.status, run.out.as_str()), (2, ""));
    assert_eq!(sentences(&run.err).len(), 1, "{}", run.err);
    assert!(run.err.contains("cannot save findings in file/below") && is_calm(&run.err), "{}", run.err);
}

/// A limit on file sizes of 0 is a full disk to whoever writes, root included.
#[test]
fn a_full_disk_loses_no_finding_and_leaves_no_half_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", PROGRAM]).current_dir(folder.path());
    shell.args(FINDS_AT_ONCE).args(["--save", "full"]);
    is_told_all_the_same(&finish(start(shell)));
    assert_eq!(fs::read_dir(folder.path().join("full")).unwrap().count(), 0);
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly_with_the_status_of_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let table: [(&[&str], i32); 5] = [
        (&["check", "[3] h2"], 0),
        (&["check", "[3] h2", "--fault", "lse-transposed"], 1),
        (&["backends"], 0),
        (&["fuzz", "--cases", "2", "--seed", "3"], 0),
        (&["fuzz", "--cases", "100000", "--seed", "1", "--fault", "guard-overrun"], 1),
    ];
    for (args, status) in table {
        let mut child = start(program(args, folder.path()));
        drop(child.stdout.take());
        let run = finish(child);
        assert_eq!(run.status, status, "{args:?}: {run:?}");
        let words = ["pipe", "closed", "cannot", "error"];
        assert!(is_calm(&run.err) && !words.iter().any(|word| run.err.contains(word)), "{args:?}: {run:?}");
    }
}

/// Sends SIGINT once `ready` stands in a line of standard error, and reads on to the end.
fn interrupted(args: &[&str], ready: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(program(args, folder.path()));
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains(ready) {
        assert!(err.read_line(&mut text).unwrap() > 0, "it ended before '{ready}': {text}");
    }
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    err.read_to_string(&mut text).unwrap();
    Ran { err: text, ..finish(child) }
}

#[test]
fn ctrl_c_ends_a_campaign_with_its_summary_and_the_status_of_what_was_found() {
    let start = Instant::now();
    let clean = interrupted(&["fuzz", "--time", "10m", "--seed", "1"], "fuzzing model");
    assert_eq!(clean.status, 0, "{clean:?}");
    assert!(clean.out.starts_with("clean on model, seed 1: "), "{}", clean.out);
    let args = ["fuzz", "--time", "10m", "--seed", "1", "--fault", "guard-overrun"];
    let failing = interrupted(&args, "failing, to be shrunk");
    assert_eq!(failing.status, 1, "{failing:?}");
    assert!(failing.out.starts_with("FINDING  "), "{}", failing.out);
    assert!(failing.out.contains("NOT CLEAN on model with the planted fault guard-overrun, seed 1: "));
    assert!(start.elapsed() < Duration::from_secs(120));
}

#[test]
fn output_that_is_lost_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(&["check", "[1]"], folder.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(fs::File::create("/dev/full").unwrap());
    let run = finish(command.spawn().unwrap());
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.err.contains("cannot write to standard output"), "{}", run.err);
}
