//! `docs/notation.md` against the parser: every case in it, every error, every limit, every item.

use thd_fuzz::case::{Case, Item, Scenario, limits};

const NOTATION: &str = include_str!("../docs/notation.md");

/// The lines of a section, fenced code left out.
fn section(title: &str) -> Vec<&'static str> {
    let (mut inside, mut fenced) = (false, false);
    let mut lines = Vec::new();
    for line in NOTATION.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with("## ") {
            inside = line == format!("## {title}");
        } else if inside && !fenced {
            lines.push(line);
        }
    }
    assert!(!lines.is_empty(), "no section '{title}'");
    lines
}

/// The cells of a section's table, its head left out.
fn table(title: &str) -> Vec<Vec<&'static str>> {
    let rows = section(title).into_iter().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The code spans of a text.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn only_code(cell: &str) -> &str {
    code(cell).next().unwrap_or_else(|| panic!("no code in '{cell}'"))
}

fn scenario(text: &str) -> Result<Scenario, String> {
    text.parse::<Scenario>().map_err(|error| format!("'{text}': {error}"))
}

/// Whatever a reader would take for a case: a code span that begins with a bracket.
#[test]
fn every_case_in_the_text_parses_and_prints_as_written() {
    let titles = NOTATION.lines().filter_map(|line| line.strip_prefix("## "));
    let apart = ["Errors", "The printed form"];
    let lines = NOTATION.lines().take_while(|line| !line.starts_with("## ")).chain(
        titles
            .filter(|title| !apart.contains(title))
            .flat_map(|title| section(title).into_iter().collect::<Vec<_>>()),
    );
    let paragraphs = lines.collect::<Vec<_>>().join("\n");
    let cases: Vec<&str> = code(&paragraphs).filter(|span| is_case(span)).collect();
    assert!(cases.len() >= 30, "{} cases found", cases.len());
    let failures: Vec<String> = cases
        .into_iter()
        .filter_map(|text| match scenario(text) {
            Ok(scenario) if scenario.to_string() == text => None,
            Ok(scenario) => Some(format!("'{text}' prints as '{scenario}'")),
            Err(error) => Some(error),
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// `[2]`, `[]`, but not the `[s][h]` of a layout or the `[0, 0, :3]` of Python.
fn is_case(span: &str) -> bool {
    let lengths = span.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(lengths, _)| lengths);
    lengths.is_some_and(|lengths| lengths.chars().all(|c| c.is_ascii_digit() || ",*".contains(c)))
}

#[test]
fn other_spellings_print_as_the_table_says() {
    let rows = table("The printed form");
    assert!(rows.len() >= 8, "{} rows", rows.len());
    for row in rows {
        let printed = scenario(only_code(row[0])).unwrap().to_string();
        assert_eq!(printed, only_code(row[1]), "from '{}'", only_code(row[0]));
    }
}

#[test]
fn every_listed_error_is_the_parsers() {
    let mut failures = Vec::new();
    let rows = table("Errors");
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for row in rows {
        let text = only_code(row[0]);
        match text.parse::<Scenario>() {
            Ok(_) => failures.push(format!("'{text}' is a case")),
            Err(error) if error.to_string() == row[1] => {}
            Err(error) => failures.push(format!("'{text}' gives\n  {error}\nand not\n  {}", row[1])),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_table_of_items_has_every_item_in_the_order_of_printing() {
    let rows = table("Items");
    assert_eq!(rows.len(), Item::ALL.len());
    for (row, item) in rows.iter().zip(Item::ALL) {
        let case: Case = only_code(row[4]).parse().unwrap();
        let text = item.text(&case).unwrap_or_else(|| panic!("{item:?} does not print in '{case}'"));
        let named = code(row[0]).any(|name| text.starts_with(name));
        assert!(named, "the row of {} has '{text}' in its example", row[0]);
    }
}

#[test]
fn the_table_of_limits_has_the_limits() {
    let numbers = [
        ("text of a scenario", limits::MAX_TEXT as u64),
        ("calls", limits::MAX_CALLS as u64),
        ("sequences", limits::MAX_SEQUENCES),
        ("tokens of a side", limits::MAX_TOKENS),
        ("rows of a side", limits::MAX_ROWS),
        ("query heads", limits::MAX_HEADS),
        ("head dim", limits::MAX_HEAD_DIM),
        ("bytes of all tensors", limits::MAX_BYTES),
        ("`keys`", u64::from(u32::MAX)),
        ("`seed`", u64::MAX),
    ];
    let rows = table("Limits");
    for (what, limit) in numbers {
        let row = rows.iter().find(|row| row[0].starts_with(what)).unwrap_or_else(|| panic!("no {what}"));
        let number = row[1].split(' ').next().unwrap();
        assert_eq!(number.parse(), Ok(limit), "{what}");
    }
}

#[test]
fn the_ranges_of_real_numbers_end_where_the_table_says() {
    let inside = [
        "scale=0",
        "scale=1e-30",
        "scale=-1e-30",
        "scale=1e30",
        "scale=-1e30",
        "do=scale(1e30)",
        "do=scale(0)",
        "data=logits(0)",
        "data=logits(1e-30)",
        "data=logits(10000)",
        "data=offset(-10000)",
        "data=offset(1e-30)",
        "data=head-scale(1)",
        "data=head-scale(1000)",
    ];
    let outside = [
        "scale=9e-31",
        "scale=1.01e30",
        "do=scale(1.01e30)",
        "data=logits(10001)",
        "data=logits(-1)",
        "data=logits(9e-31)",
        "data=offset(10001)",
        "data=head-scale(0.99)",
        "data=head-scale(1001)",
        "data=head-scale(0)",
        "data=head-scale(-2)",
    ];
    let parses = |item: &&&str| scenario(&format!("[2] {item}")).is_ok();
    let refused: Vec<_> = inside.iter().filter(|item| !parses(item)).collect();
    let taken: Vec<_> = outside.iter().filter(|item| parses(item)).collect();
    assert!(refused.is_empty() && taken.is_empty(), "refused {refused:?}, taken {taken:?}");
}

#[test]
fn the_grammar_has_every_word_that_the_parser_reads() {
    let grammar = NOTATION.split("```ebnf").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let terminals: String = grammar.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
    let words = [
        "h",
        "d",
        "bf16",
        "f16",
        "full",
        "causal",
        "causal-br",
        "window",
        "window-br",
        "scale=",
        "gap-q",
        "gap-kv",
        "lead-q",
        "lead-kv",
        "tail-q",
        "tail-kv",
        "data=",
        "logits(",
        "ones",
        "dyadic",
        "flat",
        "one-hot",
        "offset(",
        "head-scale(",
        "do=",
        "row(",
        "scale(",
        "dead=",
        "zero",
        "big",
        "nan",
        "keys=",
        "head-keys=",
        "seed=",
        "x",
        ";",
    ];
    let missing: Vec<_> = words.iter().filter(|word| !terminals.split(' ').any(|t| t == **word)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
