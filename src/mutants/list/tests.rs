//! Lists that are wrong are a sentence.

use super::*;

const GOOD: &str = r#"
[[mutant]]
name = "a"
file = "backward.cu"
find = "__syncthreads();"
occurrence = 2
replace = ""
class = "RACE"
about = "a barrier less"
shows = "race"
gpu = false
"#;

fn complaint(text: &str) -> String {
    let checked = parse(Path::new("list"), text).and_then(|mutants| validate(&mutants));
    checked.expect_err("a list that is wrong").to_string()
}

#[test]
fn the_occurrence_that_is_meant_is_replaced() {
    let mutant = &parse(Path::new("list"), GOOD).unwrap()[0];
    let text = mutant.replacement().unwrap().text;
    let source = KERNELS.iter().find(|source| source.name == "backward.cu").unwrap().text;
    let start = source.match_indices(&mutant.find).nth(1).unwrap().0;
    assert_eq!(text, [&source[..start], &source[start + mutant.find.len()..]].concat());
}

#[test]
fn what_is_wrong_is_told() {
    let told = [
        (GOOD.replace("gpu", "cpu"), "unknown field `cpu`"),
        (GOOD.replace("occurrence = 2\n", ""), "its text occurs 5 times in backward.cu, not once"),
        (GOOD.replace("= 2", "= 6"), "occurrence 6 of its text in backward.cu: there are 5"),
        (GOOD.replace("= 2", "= 0"), "occurrence 0 of its text in backward.cu: there are 5"),
        (GOOD.replace("__sync", "___sync"), "its text does not occur in backward.cu"),
        (GOOD.replace("\"\"", "\"__syncthreads();\""), "it changes nothing"),
        (GOOD.replace("backward.cu", "other.cu"), "'other.cu' is no kernel source; those are params.h,"),
        (GOOD.replace("\"a\"", "\"A b\""), "the mutant 'A b': a name is"),
        (GOOD.replace("\"race\"", "\"racy\""), "unknown variant `racy`"),
        (GOOD.repeat(2), "two mutants are called 'a'"),
        ("mutant = []".into(), "no mutant in the list"),
    ];
    for (text, words) in told {
        let said = complaint(&text);
        assert!(said.contains(words) && !said.contains('\n'), "{said:?}, not {words:?}");
    }
}

#[test]
fn a_name_that_is_in_no_list_is_told_with_those_that_are() {
    let unknown = load(&[], &["nobody".into()]).unwrap_err().to_string();
    assert!(unknown.starts_with("no mutant is called 'nobody'; the names are: "), "{unknown}");
    let one = load(&[], &["lse-transposed".into()]).unwrap();
    assert_eq!(one.len(), 1);
    let missing = load(&["/no/such/list".into()], &[]).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read the list '/no/such/list': "), "{missing}");
}
