//! The arrows of the module graph: values move one way, so nothing downstream is imported upstream.
//! And: tolerances live in `oracle/budget.rs`, nowhere else.
//!
//! The sources are read as text, without their comments and tests: a test may import what it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A part of `src`: its name, and the parts that it imports. A row may name earlier rows only, so
/// the table has no cycle; and an arrow that nothing uses is an error, so it has no surplus. What a
/// folder's own file imports from the folder is no arrow: `backend.rs` lists its backends.
type Layer = (&'static str, &'static [&'static str]);

#[rustfmt::skip]
const LAYERS: [Layer; 25] = [
    ("tensor",        &[]),
    ("case",          &["tensor"]),
    ("contract",      &[]),
    ("linalg",        &[]),
    ("inputs",        &["case", "tensor"]),
    ("outputs",       &["case", "tensor"]),
    ("reference",     &["case", "inputs", "linalg"]),
    ("backend",       &["case", "contract", "inputs", "outputs", "tensor"]),
    ("backend/model", &["backend", "case", "inputs", "linalg", "outputs", "reference", "tensor"]),
    ("oracle",        &["case", "contract", "inputs", "linalg", "outputs", "reference", "tensor"]),
    ("check",         &["backend", "case", "contract", "inputs", "oracle", "outputs"]),
    ("profile",       &["backend", "case", "check", "contract", "inputs", "linalg", "oracle", "outputs", "reference"]),
    ("generate",      &["case", "tensor"]),
    ("axes",          &["case", "tensor"]),
    ("shrink",        &["case", "tensor"]),
    ("mutate",        &["case", "generate", "shrink"]),
    ("diagnose",      &["backend", "case", "check", "generate", "inputs", "linalg", "mutate", "oracle", "outputs", "reference", "tensor"]),
    ("stats",         &["case", "check", "oracle", "outputs"]),
    ("campaign",      &["backend", "case", "check", "generate", "oracle", "shrink", "stats"]),
    ("corpus",        &["case"]),
    ("mutants",       &["backend", "campaign", "generate", "oracle"]),
    ("catalogue",     &["backend", "campaign", "check", "diagnose", "generate", "mutants", "oracle"]),
    ("report",        &["backend", "campaign", "case", "catalogue", "check", "contract", "diagnose", "mutants", "oracle", "outputs", "profile", "stats"]),
    ("cli",           &["backend", "campaign", "case", "catalogue", "check", "corpus", "diagnose", "generate", "mutants", "oracle", "profile", "report", "stats"]),
    ("libfuzzer",     &["backend", "campaign", "case", "check", "contract", "mutate", "oracle", "report", "shrink"]),
];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file: its path inside `src`, and its code.
fn sources() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![src()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let name = path.strip_prefix(src()).unwrap().to_str().unwrap().to_string();
                files.insert(name, without_comments(&std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let tests: BTreeSet<String> = files.iter().flat_map(|(name, code)| test_files(name, code)).collect();
    files.retain(|name, _| !tests.iter().any(|test| name.starts_with(test.as_str())));
    files.values_mut().for_each(|code| *code = without_tests(code));
    files
}

/// The code without line comments. A `//` inside a string ends the line as well: no import follows.
fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_string() + "\n").collect()
}

/// The files, or folders, of modules that are declared for tests only.
fn test_files(name: &str, code: &str) -> Vec<String> {
    let folder = name.trim_end_matches(".rs");
    let after = code.split("#[cfg(test)]").skip(1);
    let module = after.filter_map(|rest| rest.trim_start().strip_prefix("mod ")?.split_once([';', '{']));
    module.map(|(module, _)| format!("{folder}/{}", module.trim())).collect()
}

/// The code without inline modules of tests, which end where a brace stands in the first column.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.extend([line, "\n"]);
        } else if lines.next().is_some_and(|next| next.ends_with('{')) {
            lines.by_ref().find(|line| *line == "}");
        }
    }
    kept
}

/// The row that a file belongs to: the longest name that its path begins with.
fn layer_of(name: &str) -> Option<&'static str> {
    let module = name.trim_end_matches(".rs");
    let inside = |layer: &str| module == layer || module.starts_with(&format!("{layer}/"));
    LAYERS.iter().map(|&(layer, _)| layer).filter(|layer| inside(layer)).max_by_key(|layer| layer.len())
}

/// The first names of the paths that start with `crate::`.
fn imports(code: &str) -> BTreeSet<String> {
    let word = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    code.split("crate::").skip(1).map(word).collect()
}

#[test]
fn every_import_is_an_arrow_of_the_table_and_every_arrow_is_used() {
    let mut failures = Vec::new();
    let mut used: BTreeSet<(&str, String)> = BTreeSet::new();
    for (name, code) in sources() {
        let Some(layer) = layer_of(&name) else {
            if !["lib.rs", "main.rs"].contains(&name.as_str()) {
                failures.push(format!("{name}: in no row of the table"));
            }
            continue;
        };
        if code.contains("crate::{") {
            failures
                .push(format!("{name}: an import of several modules at once, which this test cannot read"));
        }
        // `super` inside a module's own folder is its own; what it is outside of that is `crate`.
        let depth = name.matches('/').count();
        if code.contains(&"super::".repeat(depth + 1)) {
            failures.push(format!("{name}: reaches the root by super"));
        }
        used.extend(imports(&code).into_iter().filter(|to| to != layer).map(|to| (layer, to)));
        // In a layer's own file, `super` is the layer around it.
        if let (Some((around, _)), true) = (layer.rsplit_once('/'), name == format!("{layer}.rs"))
            && code.contains("super::")
        {
            used.insert((layer, around.to_string()));
        }
    }
    for (at, &(layer, allowed)) in LAYERS.iter().enumerate() {
        let earlier: Vec<&str> = LAYERS[..at].iter().map(|&(name, _)| name).collect();
        let upward = allowed.iter().filter(|to| !earlier.contains(to));
        failures
            .extend(upward.map(|to| format!("the table lets {layer} import {to}, which is not upstream")));
        let uses = |to: &str| used.contains(&(layer, to.to_string()));
        let surplus = allowed.iter().filter(|to| !uses(to));
        failures.extend(surplus.map(|to| format!("nothing in {layer} imports {to}: take the arrow away")));
        let wrong = used.iter().filter(|(from, to)| *from == layer && !allowed.contains(&to.as_str()));
        failures.extend(wrong.map(|(_, to)| format!("{layer} imports {to}")));
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_program_is_a_door_onto_the_command_line() {
    let code = &sources()["main.rs"];
    let used: BTreeSet<&str> =
        code.split("thd_fuzz::").skip(1).filter_map(|rest| rest.split([':', ';']).next()).collect();
    assert_eq!(used, BTreeSet::from(["cli"]));
}

/// Float literals other than 0 and 1 that may stand beside the judgements though they are no
/// tolerance, each with its reason: file, line of code, reason.
const ALLOWED: [(&str, &str, &str); 0] = [];

/// The float literals of a line: digits with a point and digits, an exponent, or both.
fn floats(line: &str) -> Vec<f64> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let part_of_name = rest[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        let mut end = start;
        while let Some(c) = rest[end..].chars().next() {
            let sign = c == '-' && rest[..end].ends_with(['e', 'E']);
            let point = c == '.' && !rest[start..end].contains('.') && !rest[end..].starts_with("..");
            if !(c.is_ascii_alphanumeric() || c == '_' || sign || point) {
                break;
            }
            end += 1;
        }
        let literal = rest[start..end].replace('_', "");
        let literal = literal.trim_end_matches("f64").trim_end_matches("f32");
        if !part_of_name && literal.contains(['.', 'e', 'E']) {
            found.extend(literal.parse::<f64>().ok());
        }
        rest = &rest[end..];
    }
    found
}

#[test]
fn no_file_beside_the_budget_holds_a_tolerance() {
    let judged = |name: &str| name == "check.rs" || name == "oracle.rs" || name.starts_with("oracle/");
    let files: Vec<_> = sources().into_iter().filter(|(name, _)| judged(name)).collect();
    assert!(files.len() >= 7, "{} files", files.len());
    let (mut failures, mut met) = (Vec::new(), BTreeSet::new());
    for (name, code) in files.iter().filter(|(name, _)| name != "oracle/budget.rs") {
        for line in code.lines().filter(|line| floats(line).iter().any(|&x| x != 0.0 && x != 1.0)) {
            match ALLOWED.iter().find(|(file, text, _)| file == name && line.contains(text)) {
                Some(&(file, text, _)) => drop(met.insert((file, text))),
                None => failures.push(format!("{name}: {}", line.trim())),
            }
        }
    }
    let stale = ALLOWED.iter().filter(|(file, text, _)| !met.contains(&(file, text)));
    failures.extend(stale.map(|(file, text, _)| format!("allowed, and not there any more: {file}: {text}")));
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_scan_sees_floats_and_only_them() {
    assert_eq!(floats("if x < 1e-3 { y * 2.5f64 } else { 0.0 } + 1_000.5"), [1e-3, 2.5, 0.0, 1000.5]);
    assert_eq!(floats("for i in 0..8 { a[2].0 += u64::MAX >> 3 + x1e5; }"), [] as [f64; 0]);
}
