//! `--format json`: its fields, which programs rely on.

use super::*;

pub const FINDING_FIELDS: [&str; 19] = [
    "at",
    "backend",
    "bound",
    "case",
    "error",
    "explained",
    "fault",
    "got",
    "kernel",
    "kind",
    "minimal",
    "note",
    "one_minimal",
    "oracle",
    "recurred",
    "runs",
    "tensor",
    "type",
    "want",
];
pub const SUMMARY_FIELDS: [&str; 17] = [
    "asked",
    "backend",
    "cases",
    "cases_per_second",
    "device",
    "errors",
    "failing",
    "fault",
    "findings",
    "kernel",
    "median_tokens",
    "refused",
    "seconds",
    "seed",
    "share_of_4_heads_or_more",
    "share_over_256_tokens",
    "type",
];

pub fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

#[test]
fn json_lines_have_the_documented_fields_and_the_summary_comes_last() {
    let runs: [&[&str]; 3] = [
        &["check", "[3] h2", "--fault", "lse-transposed"],
        &["fuzz", "--cases", "4", "--seed", "3", "--fault", "dead-rows-unwritten"],
        &["fuzz", "--cases", "1", "--seed", "3"],
    ];
    for args in runs {
        let run = ran(&[args, &["--format", "json"]].concat());
        let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, findings) = lines.split_last().unwrap();
        assert_eq!(fields(summary), SUMMARY_FIELDS);
        assert_eq!(summary["type"], "summary");
        assert_eq!(findings.is_empty(), run.status == 0, "{args:?}");
        for finding in findings {
            assert_eq!(fields(finding), FINDING_FIELDS);
            assert_eq!(finding["type"], "finding");
            assert_eq!(finding["fault"].as_str(), args.last().copied());
            let minimal: Result<thd_fuzz::case::Scenario, _> = finding["minimal"].as_str().unwrap().parse();
            assert!(minimal.is_ok(), "{finding}");
        }
    }
}
