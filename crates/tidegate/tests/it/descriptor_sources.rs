//! Several documents in the form of envoyproxy/ratelimit, as files of a folder or resources of a management server.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use tidegate::document::{Problems, Source};
use tidegate::rules::{DescriptorSource, RuleSet, RuleSettings};

fn read_sources(files: &[(&str, &str)], merge_domains: bool) -> Result<RuleSet, String> {
    let texts: Vec<Source> = files
        .iter()
        .map(|(name, text)| Source::new(*name, *text))
        .collect();
    let read = |text: &Source| DescriptorSource {
        name: text.name.as_str().into(),
        documents: text.read_all(&mut Problems::new()).unwrap(),
    };
    let sources: Vec<DescriptorSource> = texts.iter().map(read).collect();
    let mut settings = RuleSettings::default();
    settings.merge_domains = merge_domains;
    RuleSet::from_descriptors(&sources, &settings).map_err(|problems| problems.render_all(&texts))
}

#[test]
fn a_domain_in_several_files_is_merged_only_if_that_is_set() {
    let one =
        "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]";
    let two =
        "domain: edge\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]";
    let files = [("one.yaml", one), ("two.yaml", two)];
    let refused = read_sources(&files, false).unwrap_err();
    assert!(
        refused
            .starts_with("error: two.yaml:1:9: field `domain`: the domain `edge` is there twice"),
        "{refused}"
    );
    assert!(refused.contains("1 | domain: edge"), "{refused}");

    let merged = read_sources(&files, true).unwrap();
    let ids: Vec<&str> = merged.iter().map(|rule| rule.id()).collect();
    assert_eq!(ids, ["edge.a", "edge.b"]);

    let same = [("one.yaml", one), ("three.yaml", one)];
    let refused = read_sources(&same, true).unwrap_err();
    assert!(refused.contains("the same descriptor before"), "{refused}");
    assert!(refused.contains("three.yaml:2:15"), "{refused}");
}

#[test]
fn problems_of_several_files_are_in_the_order_of_the_files() {
    let files = [
        ("b.yaml", "domain: ''"),
        ("a.yaml", "descriptors: []\n\ndomain: ''"),
    ];
    let refused = read_sources(&files, false).unwrap_err();
    let places: Vec<&str> = refused
        .lines()
        .filter_map(|line| line.strip_prefix("error: ")?.split(": ").next())
        .collect();
    assert_eq!(places, ["a.yaml:3:9", "b.yaml:1:9"]);
}
