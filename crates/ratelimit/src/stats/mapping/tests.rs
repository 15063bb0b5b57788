use std::fmt::Write as _;

use tidegate::document::Source;

use super::*;

fn read(text: &str) -> StatMapping {
    let read = StatMapping::read(&Source::new("mapping", text));
    read.unwrap_or_else(|problems| panic!("{problems:?}")).0
}

/// The series of a stat as text; what is dropped is nothing.
fn shown(mapping: &StatMapping, stat: &str, kind: StatKind) -> String {
    let MappedStat::Series(series) = mapping.map(stat, kind) else {
        return String::new();
    };
    let mut text = series.name;
    for (label, value) in series.labels {
        let _ = write!(text, " {label}={value}");
    }
    text
}

#[test]
fn the_built_in_series_by_hand() {
    let mapping = StatMapping::built_in(TimeUnit::Seconds);
    let limit = "ratelimit.service.rate_limit";
    #[rustfmt::skip]
    let table = [
        (format!("{limit}.web.path_/a.total_hits"),         "ratelimit_service_rate_limit_total_hits domain=web key1=path_/a"),
        (format!("{limit}.web.path_/a.over_limit"),         "ratelimit_service_rate_limit_over_limit domain=web key1=path_/a"),
        (format!("{limit}.web.path_/a.near_limit"),         "ratelimit_service_rate_limit_near_limit domain=web key1=path_/a"),
        (format!("{limit}.web.path_/a.within_limit"),       "ratelimit_service_rate_limit_within_limit domain=web key1=path_/a"),
        (format!("{limit}.web.path_/a.shadow_mode"),        "ratelimit_service_rate_limit_shadow_mode domain=web key1=path_/a"),
        (format!("{limit}.web.a.b.over_limit"),             "ratelimit_service_rate_limit_over_limit domain=web key1=a key2=b"),
        (format!("{limit}.web.a.b.c.over_limit"),           "ratelimit_service_rate_limit_over_limit domain=web key1=a key2=b"),
        (format!("{limit}.web.a.b.c.d.e.shadow_mode"),      "ratelimit_service_rate_limit_shadow_mode domain=web key1=a key2=b"),
        (format!("{limit}.web.a.over_limit_with_local_cache"), "ratelimit_service_rate_limit_web_a_over_limit_with_local_cache"),
        (format!("{limit}.a:b.domain_not_found"),           "ratelimit_service_rate_limit_a_b_domain_not_found"),
        ("ratelimit.service.call.should_rate_limit.redis_error".to_owned(), "ratelimit_service_should_rate_limit_error err_type=redis_error"),
        ("ratelimit_server.ShouldRateLimit.total_requests".to_owned(), "ratelimit_service_total_requests grpc_method=ShouldRateLimit"),
        ("ratelimit.service.config_load_success".to_owned(), "ratelimit_service_config_load_success"),
        ("ratelimit.service.config_load_error".to_owned(),  "ratelimit_service_config_load_error"),
        ("ratelimit.service.global_shadow_mode".to_owned(), "ratelimit_service_global_shadow_mode"),
    ];
    for (stat, expected) in table {
        assert_eq!(shown(&mapping, &stat, StatKind::Counter), expected);
    }
    let timer = "ratelimit_server.Check.response_time";
    for (unit, scale) in [
        (TimeUnit::Seconds, Some(0.001)),
        (TimeUnit::Milliseconds, None),
    ] {
        let mapping = StatMapping::built_in(unit);
        let MappedStat::Series(series) = mapping.map(timer, StatKind::Timer) else {
            panic!("it is shown");
        };
        let bounds = vec![
            0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        ];
        assert_eq!(series.name, "ratelimit_service_response_time_seconds");
        assert_eq!(series.observer, ObserverForm::Histogram(bounds));
        assert_eq!(series.scale, scale);
    }
}

/// The file that Envoy Gateway's users mount, and its own tests query the series of.
#[test]
fn a_mapping_of_globs_with_a_drop_at_its_end() {
    let mapping = read(
        r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.over_limit"
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
  - match: "ratelimit.service.rate_limit.*.*.*.over_limit"
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
      key2: "$3"
  - match: "ratelimit_server.*.response_time"
    name: "ratelimit_service_response_time_seconds"
    timer_type: histogram
    labels:
      grpc_method: "$1"
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#,
    );
    let route = "httproute/infra/web/rule/0/match/0/*";
    let limit = format!("ratelimit.service.rate_limit.infra/gw/http.{route}_{route}");
    let stat = format!("{limit}.masked_remote_address_0_0_0_0/0.over_limit");
    assert_eq!(
        shown(&mapping, &stat, StatKind::Counter),
        format!(
            "ratelimit_service_rate_limit_over_limit domain=infra/gw/http key1={route}_{route} key2=masked_remote_address_0_0_0_0/0"
        )
    );
    for dropped in [
        format!("{limit}.total_hits"),
        format!("{limit}.a.b.over_limit"),
        "ratelimit_server.Check.total_requests".to_owned(),
    ] {
        assert_eq!(shown(&mapping, &dropped, StatKind::Counter), "");
    }
    let timer = "ratelimit_server.Check.response_time";
    let expected = "ratelimit_service_response_time_seconds grpc_method=Check";
    assert_eq!(shown(&mapping, timer, StatKind::Timer), expected);
}

#[test]
fn the_first_glob_counts_and_globs_before_regular_expressions() {
    let mapping = read(
        "
defaults: {match_type: regex, timer_type: summary}
mappings:
  - {match: '^a\\.(?P<which>.*)$', name: 'by_regex_${which}'}
  - {match: 'b', name: never, match_metric_type: gauge}
  - {match: a.*.c, match_type: glob, name: first, labels: {part: 'p-$1'}}
  - {match: a.b.*, match_type: glob, name: second}
  - {match: a.timer, match_type: glob, name: timed, match_metric_type: timer, observer_type: histogram, timer_type: summary, buckets: [1, 2, .inf]}
",
    );
    #[rustfmt::skip]
    let table = [
        ("a.b.c",   StatKind::Counter,  "first part=p-b"),
        ("a.b.d",   StatKind::Counter,  "second"),
        ("a.x",     StatKind::Counter,  "by_regex_x"),
        ("a.x-y",   StatKind::Counter,  "by_regex_x_y"),
        ("a.timer", StatKind::Counter,  "by_regex_timer"),
        ("a.timer", StatKind::Timer,    "timed"),
        ("b",       StatKind::Counter,  "b"),
        ("b",       StatKind::Gauge,    "never"),
        ("9b.c-d",  StatKind::Counter,  "_9b_c_d"),
        ("x--y",    StatKind::Counter,  "x_y"),
    ];
    for (stat, kind, expected) in table {
        assert_eq!(shown(&mapping, stat, kind), expected, "{stat}");
    }
    let MappedStat::Series(series) = mapping.map("a.timer", StatKind::Timer) else {
        panic!("it is shown");
    };
    assert_eq!(series.observer, ObserverForm::Histogram(vec![1.0, 2.0]));
}

#[test]
fn defaults_are_in_force_where_a_mapping_says_nothing() {
    let mapping = read(
        "
defaults:
  observer_type: histogram
  histogram_options: {buckets: [0.1, 0.2]}
  summary_options: {quantiles: [{quantile: 0.7, error: 0.01}]}
mappings:
  - {match: a.b, name: a}
  - {match: a.c, name: b, timer_type: summary}
  - {match: a.d, name: c, timer_type: summary, quantiles: [{quantile: 0.1}], scale: 1e-3, help: Text.}
",
    );
    #[rustfmt::skip]
    let table = [
        ("a.b",     ObserverForm::Histogram(vec![0.1, 0.2]),    None,       None),
        ("a.c",     ObserverForm::Summary(vec![0.7]),           None,       None),
        ("a.d",     ObserverForm::Summary(vec![0.1]),           Some(1e-3), Some("Text.")),
        ("other",   ObserverForm::Histogram(vec![0.1, 0.2]),    None,       None),
    ];
    for (stat, observer, scale, help) in table {
        let MappedStat::Series(series) = mapping.map(stat, StatKind::Timer) else {
            panic!("it is shown");
        };
        assert_eq!(series.observer, observer, "{stat}");
        assert_eq!(
            (series.scale, series.help.as_deref()),
            (scale, help),
            "{stat}"
        );
    }
    let nothing = read("mappings: []\n");
    assert_eq!(
        nothing.observer,
        ObserverForm::Summary(vec![0.5, 0.9, 0.99])
    );
}

#[test]
fn keys_without_effect_are_warnings() {
    let text = "
defaults: {ttl: 1m, glob_disable_ordering: true}
mappings:
  - {match: a.b, name: a, ttl: 5s, summary_options: {max_age: 1m}}
other: 1
";
    let (_, warnings) = StatMapping::read(&Source::new("mapping", text)).unwrap();
    let fields: Vec<&str> = warnings
        .iter()
        .map(|warning| warning.field.as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "defaults.ttl",
            "defaults.glob_disable_ordering",
            "mappings[0].ttl",
            "mappings[0].summary_options.max_age",
            "other",
        ]
    );
}

#[test]
fn a_mistake_makes_a_file_unusable() {
    #[rustfmt::skip]
    let table = [
        ("mappings: {a: b}",                                                    "must be a list"),
        ("mappings: [{match: a.b}]",                                            "give `name`"),
        ("mappings: [{name: a}]",                                               "give `match`"),
        ("mappings: [{match: a*.b, name: a}]",                                  "is not a pattern"),
        ("mappings: [{match: '(', match_type: regex, name: a}]",                "is not a regular expression"),
        ("mappings: [{match: a.b, name: 'a-b'}]",                               "is not the name of a metric"),
        ("mappings: [{match: a.b, name: a, labels: {'a-b': c}}]",               "is not the name of a label"),
        ("mappings: [{match: a.b, name: a, labels: {b: [c]}}]",                 "must be text"),
        ("mappings: [{match: a.b, name: a, action: keep}]",                     "`keep` is unknown"),
        ("mappings: [{match: a.b, name: a, match_type: prefix}]",               "`prefix` is unknown"),
        ("mappings: [{match: a.b, name: a, timer_type: chart}]",                "`chart` is unknown"),
        ("mappings: [{match: a.b, name: a, match_metric_type: set}]",           "`set` is unknown"),
        ("mappings: [{match: a.b, name: a, buckets: [2, 1]}]",                  "must be ascending"),
        ("mappings: [{match: a.b, name: a, buckets: [x]}]",                     "must be a number"),
        ("mappings: [{match: a.b, name: a, scale: x}]",                         "must be a number"),
        ("mappings: [{match: a.b, name: a, quantiles: [0.5]}]",                 "write a quantile as"),
        ("mappings: [{match: a.b, name: a, quantiles: [{quantile: 2}]}]",       "from 0 to 1"),
        ("defaults: x",                                                         "must be a map"),
        ("[",                                                                   ""),
    ];
    for (text, expected) in table {
        let problems = StatMapping::read(&Source::new("mapping", text)).unwrap_err();
        let found = problems
            .iter()
            .any(|problem| problem.message.contains(expected));
        assert!(found, "{text}: {problems:?}");
    }
}
