use tidegate::document::Source;
use tidegate::rules::StatPath;

use super::super::mapping::TimeUnit;
use super::super::{LimitHits, RedisPoolStats, StatForms};
use super::*;

fn stats_for(page: &StatPage) -> RateLimitStats {
    RateLimitStats::new(&StatForms {
        names: 10,
        observers: page.observers(),
        ..StatForms::default()
    })
}

fn hit(stats: &RateLimitStats, path: &str) {
    let path = StatPath::Named {
        path: path.to_owned(),
        without_values: "web".into(),
    };
    let hits = LimitHits {
        limit: 1,
        hits: 3,
        is_over: true,
        ..LimitHits::default()
    };
    stats.add(&path, &hits);
}

fn mapping(text: &str) -> StatMapping {
    StatMapping::read(&Source::new("mapping", text)).unwrap().0
}

#[test]
fn the_built_in_page_by_hand() {
    let tags = [
        ("zone-id".to_owned(), "a\"b\\c".to_owned()),
        ("key1".to_owned(), "of the mapping".to_owned()),
    ];
    let page = StatPage::new(StatMapping::built_in(TimeUnit::Seconds), &tags);
    let stats = stats_for(&page);
    hit(&stats, "web.a.b.c");
    hit(&stats, "web.a.b.d");
    hit(&stats, "web.a");
    stats.add_call(CountedMethod::ShouldRateLimit, 7_000, || 0);
    stats.add_call(CountedMethod::ShouldRateLimit, 20_000_000, || 0);
    let outside = OutsideStats {
        redis_pool: Some(RedisPoolStats {
            active: 2,
            ..RedisPoolStats::default()
        }),
        ..OutsideStats::default()
    };
    let text = page.text(&stats, &outside, 0);
    let with = |labels: &str| format!("{{{labels},zone_id=\"a\\\"b\\\\c\"}}");
    for line in [
        "# TYPE ratelimit_service_rate_limit_over_limit counter".to_owned(),
        format!(
            "ratelimit_service_rate_limit_over_limit{} 2",
            with(r#"domain="web",key1="a""#)
        ),
        format!(
            "ratelimit_service_rate_limit_over_limit{} 4",
            with(r#"domain="web",key1="a",key2="b""#)
        ),
        format!(
            "ratelimit_service_rate_limit_shadow_mode{} 0",
            with(r#"domain="web",key1="a""#)
        ),
        "# TYPE ratelimit_service_response_time_seconds histogram".to_owned(),
        format!(
            "ratelimit_service_response_time_seconds_bucket{} 1",
            with(r#"grpc_method="ShouldRateLimit",key1="of the mapping""#)
                .replace('}', r#",le="0.01"}"#)
        ),
        format!(
            "ratelimit_service_response_time_seconds_bucket{} 2",
            with(r#"grpc_method="ShouldRateLimit",key1="of the mapping""#)
                .replace('}', r#",le="+Inf"}"#)
        ),
        format!(
            "ratelimit_service_response_time_seconds_sum{} 20.007",
            with(r#"grpc_method="ShouldRateLimit",key1="of the mapping""#)
        ),
        "# TYPE ratelimit_redis_pool_cx_active gauge".to_owned(),
    ] {
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
    // What nothing names is shown once it has happened.
    assert!(
        !text.contains("cx_total") && !text.contains("local_cache"),
        "{text}"
    );
    let total = |text: &str| {
        let name = "ratelimit_service_rate_limit_total_hits";
        let series = format!("{name}{} ", with(r#"domain="web",key1="a""#));
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.map(str::to_owned)
    };
    assert_eq!(total(&text).as_deref(), Some("3"));
    hit(&stats, "web.a");
    let later = page.text(&stats, &outside, 0);
    assert_eq!(total(&later).as_deref(), Some("6"));
}

#[test]
fn a_summary_has_the_times_of_its_quantiles() {
    let page = StatPage::new(
        mapping(
            "mappings: [{match: ratelimit_server.*.response_time, name: took, labels: {m: $1}}]",
        ),
        &[],
    );
    let stats = stats_for(&page);
    stats.add_call(CountedMethod::Check, 50, || 0);
    let text = page.text(&stats, &OutsideStats::default(), 0);
    let start = text.find("# HELP took").unwrap();
    let expected = "\
# HELP took A stat of the rate limit service, as mapped.
# TYPE took summary
took{m=\"Check\",quantile=\"0.5\"} 0.05
took{m=\"Check\",quantile=\"0.9\"} 0.05
took{m=\"Check\",quantile=\"0.99\"} 0.05
took_sum{m=\"Check\"} 0.05
took_count{m=\"Check\"} 1
took{m=\"ShouldRateLimit\",quantile=\"0.5\"} NaN
took{m=\"ShouldRateLimit\",quantile=\"0.9\"} NaN
took{m=\"ShouldRateLimit\",quantile=\"0.99\"} NaN
took_sum{m=\"ShouldRateLimit\"} 0
took_count{m=\"ShouldRateLimit\"} 0
";
    assert_eq!(&text[start..], expected);
}

#[test]
fn of_two_kinds_with_one_name_the_first_is_shown_and_what_is_dropped_is_not() {
    let page = StatPage::new(
        mapping(
            "
mappings:
  - {match: ratelimit.redis_pool.*, name: one, help: \"a\\nb\\\\c\"}
  - {match: ., match_type: regex, action: drop}
",
        ),
        &[],
    );
    let outside = OutsideStats {
        redis_pool: Some(RedisPoolStats {
            active: 2,
            total: 5,
            closed: 3,
        }),
        ..OutsideStats::default()
    };
    let text = page.text(&stats_for(&page), &outside, 0);
    assert_eq!(text, "# HELP one a\\nb\\\\c\n# TYPE one gauge\none 2\n");
    assert_eq!(page.observers(), Vec::new());
}

#[test]
fn series_of_limits_that_are_gone_are_forgotten() {
    let page = StatPage::new(StatMapping::built_in(TimeUnit::Seconds), &[]);
    let stats = stats_for(&page);
    for path in ["web.a", "web.b", "web.c", "web.d"] {
        hit(&stats, path);
    }
    page.text(&stats, &OutsideStats::default(), 0);
    assert!(page.known.lock().len() > 24);
    page.text(&stats_for(&page), &OutsideStats::default(), 0);
    assert_eq!(page.known.lock().len(), 0);
}
