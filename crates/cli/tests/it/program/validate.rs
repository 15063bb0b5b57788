//! `tidegate rules validate` as a person and as a pipeline see it.

use super::support::{CommandRun, tidegate};

const GOOD: &str = "rules:\n  - id: per-ip\n    per: [ip]\n    limit: 10/second\n";
const DOUBTFUL: &str = "rules:\n  - id: per-user\n    per: [user_id]\n    limit: 10/second\n";
const BAD: &str = "\
rules:
  - id: per-user
    per: [user_id]
    limit: 100/fortnight
    missing: deny
  - id: per-user
    per: [ip]
    limt: 10/second
";

fn validate(arguments: &[&str]) -> CommandRun {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("good.yaml", GOOD),
        ("doubtful.yaml", DOUBTFUL),
        ("bad.yaml", BAD),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    std::fs::write(directory.path().join("binary.yaml"), [0xff, 0xfe]).unwrap();
    let arguments = [&["rules", "validate"], arguments].concat();
    tidegate(directory.path(), &arguments, DOUBTFUL)
}

#[test]
fn a_good_file_is_summed_up_with_the_worst_case_of_each_limit() {
    insta::assert_snapshot!(validate(&["good.yaml"]).whole());
}

#[test]
fn all_problems_of_a_file_are_shown_where_they_are() {
    insta::assert_snapshot!(validate(&["bad.yaml"]).whole());
}

#[test]
fn several_files_and_stdin_are_each_summed_up() {
    insta::assert_snapshot!(validate(&["good.yaml", "-", "bad.yaml"]).whole());
}

#[test]
fn warnings_are_fine_unless_denied() {
    assert_eq!(validate(&["doubtful.yaml"]).code, Some(0));
    assert_eq!(
        validate(&["doubtful.yaml", "--deny-warnings"]).code,
        Some(1)
    );
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_the_others_are_read() {
    let run = validate(&["nowhere.yaml", "good.yaml", "binary.yaml"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stdout.starts_with("good.yaml: 1 rule\n"));
    let stderr = run.stderr;
    assert!(
        stderr.starts_with("error: cannot read `nowhere.yaml`: "),
        "{stderr}"
    );
    let ending = "; cannot read `binary.yaml`: it is not text in UTF-8\n";
    assert!(stderr.ends_with(ending), "{stderr}");
}

#[test]
fn problems_are_a_list_in_json() {
    insta::assert_snapshot!(validate(&["bad.yaml", "good.yaml", "--json"]).whole());
    assert_eq!(validate(&["good.yaml", "--json"]).stdout, "[]\n");
}

#[test]
fn colour_is_for_terminals_or_for_who_asks() {
    let run = validate(&["bad.yaml"]);
    assert!(!run.stderr.contains('\u{1b}'), "{:?}", run.stderr);
    let run = validate(&["bad.yaml", "--color", "always"]);
    assert!(
        run.stderr
            .starts_with("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: bad.yaml:4:12: "),
        "{:?}",
        run.stderr
    );
}
