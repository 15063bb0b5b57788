//! Lines of statsd and of `DogStatsD`: what changed since the last ones.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use foldhash::fast::RandomState;

use super::book::{OutsideStats, RateLimitStats, StatKind, without_separators};
use super::mogrifier::Mogrifier;

/// How tags are written.
#[derive(Debug, Clone)]
pub enum StatsdDialect {
    /// As a part of the name: `NAME.__k=v:1|c`.
    Statsd,
    /// After the type: `NAME:1|c|#k:v`, and names may be rewritten.
    DogStatsd(Vec<Mogrifier>),
}

/// Writes what changed.
#[derive(Debug)]
pub struct StatsdLines {
    dialect: StatsdDialect,
    /// By name, with values in letters that do not end a part.
    tags: BTreeMap<String, String>,
    /// What each counter was when it was last written.
    written: HashMap<Box<str>, u64, RandomState>,
}

impl StatsdLines {
    /// Lines in this dialect, with these tags. One without a name or a value is left out.
    pub fn new(dialect: StatsdDialect, tags: &[(String, String)]) -> Self {
        let tags = tags.iter();
        let tags = tags.filter(|(key, value)| !key.is_empty() && !value.is_empty());
        let tags = tags.map(|(key, value)| (key.clone(), without_separators(value).into_owned()));
        Self {
            dialect,
            tags: tags.collect(),
            written: HashMap::default(),
        }
    }

    /// Gives each line, with its line feed, to `write`: what counters have grown by, and gauges.
    pub fn numbers(
        &mut self,
        stats: &RateLimitStats,
        outside: &OutsideStats,
        mut write: impl FnMut(&str),
    ) {
        let mut lines = Vec::new();
        let (written, mut visited) = (&mut self.written, 0);
        stats.visit_used(outside, &mut |name, kind, value| {
            visited += 1;
            let (value, sign) = match kind {
                StatKind::Counter => (growth(written, name, value), "c"),
                StatKind::Gauge => (Some(value), "g"),
                StatKind::Timer => (None, "ms"),
            };
            if let Some(value) = value {
                lines.push((name.to_owned(), value, sign));
            }
        });
        // Counters of limits that are gone.
        if written.len() > 2 * visited {
            let mut known = HashMap::default();
            stats.visit_used(outside, &mut |name, _, _| {
                if let Some((name, value)) = written.remove_entry(name) {
                    known.insert(name, value);
                }
            });
            *written = known;
        }
        for (name, value, sign) in lines {
            write(&self.line(&name, &value.to_string(), sign));
        }
    }

    /// Gives a line for each time of a call since the last ones to `write`, in milliseconds.
    pub fn times(&self, times: &[(String, Vec<u32>)], mut write: impl FnMut(&str)) {
        for (name, times) in times {
            for micros in times {
                let millis = f64::from(*micros) / 1_000.0;
                write(&self.line(name, &millis.to_string(), "ms"));
            }
        }
    }

    fn line(&self, name: &str, value: &str, sign: &str) -> String {
        let mut line = String::with_capacity(name.len() + 40);
        // Writing to a String cannot fail.
        match &self.dialect {
            StatsdDialect::Statsd => {
                line.push_str(name);
                for (key, tag) in &self.tags {
                    let _ = write!(line, ".__{key}={tag}");
                }
                let _ = writeln!(line, ":{value}|{sign}");
            }
            StatsdDialect::DogStatsd(mogrifiers) => {
                let rewritten = mogrifiers.iter().find_map(|it| it.apply(name));
                let (name, more) = rewritten.unwrap_or_else(|| (name.to_owned(), Vec::new()));
                let _ = write!(line, "{name}:{value}|{sign}");
                let own = self.tags.iter();
                let more = more.iter().map(|(key, tag)| (key, tag));
                for (index, (key, tag)) in own.chain(more).enumerate() {
                    let before = if index == 0 { "|#" } else { "," };
                    let _ = write!(line, "{before}{key}:{tag}");
                }
                line.push('\n');
            }
        }
        line
    }
}

/// What a counter has grown by since it was last written; none if it has not. One that began again counts from zero.
fn growth(
    written: &mut HashMap<Box<str>, u64, RandomState>,
    name: &str,
    value: u64,
) -> Option<u64> {
    let Some(last) = written.get_mut(name) else {
        if value > 0 {
            written.insert(name.into(), value);
        }
        return (value > 0).then_some(value);
    };
    let growth = value.checked_sub(*last).unwrap_or(value);
    *last = value;
    (growth > 0).then_some(growth)
}

#[cfg(test)]
mod tests {
    use tidegate::rules::StatPath;

    use super::super::{CountedMethod, LimitHits, RedisPoolStats, StatForms};
    use super::*;

    fn tag(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    fn stats() -> RateLimitStats {
        RateLimitStats::new(&StatForms {
            names: 10,
            are_times_sent: true,
            ..StatForms::default()
        })
    }

    fn hit(stats: &RateLimitStats) {
        let path = StatPath::Named {
            path: "web.a_1".to_owned(),
            without_values: "web.a".into(),
        };
        let hits = LimitHits {
            limit: 10,
            hits: 2,
            ..LimitHits::default()
        };
        stats.add(&path, &hits);
    }

    fn lines(
        lines: &mut StatsdLines,
        stats: &RateLimitStats,
        outside: &OutsideStats,
    ) -> Vec<String> {
        let mut all = Vec::new();
        lines.numbers(stats, outside, |line| all.push(line.to_owned()));
        lines.times(&stats.take_times(), |line| all.push(line.to_owned()));
        all
    }

    #[test]
    fn what_grew_is_written_once_and_gauges_always() {
        let stats = stats();
        let tags = [tag("version", "1.2"), tag("env", "a:b"), tag("none", "")];
        let mut statsd = StatsdLines::new(StatsdDialect::Statsd, &tags);
        let outside = OutsideStats {
            config_load_success: 1,
            redis_pool: Some(RedisPoolStats {
                active: 2,
                ..RedisPoolStats::default()
            }),
            ..OutsideStats::default()
        };
        hit(&stats);
        stats.add_call(CountedMethod::ShouldRateLimit, 1_250, || 0);
        let with = |name: &str, rest: &str| format!("{name}.__env=a_b.__version=1_2:{rest}\n");
        let limit = |stat: &str| format!("ratelimit.service.rate_limit.web.a_1.{stat}");
        assert_eq!(
            lines(&mut statsd, &stats, &outside),
            [
                with(&limit("total_hits"), "2|c"),
                with(&limit("within_limit"), "2|c"),
                with("ratelimit.service.config_load_success", "1|c"),
                with("ratelimit_server.ShouldRateLimit.total_requests", "1|c"),
                with("ratelimit.redis_pool.cx_active", "2|g"),
                with("ratelimit_server.ShouldRateLimit.response_time", "1.25|ms"),
            ]
        );
        let gauge = with("ratelimit.redis_pool.cx_active", "2|g");
        assert_eq!(
            lines(&mut statsd, &stats, &outside),
            std::slice::from_ref(&gauge)
        );
        hit(&stats);
        let more = lines(&mut statsd, &stats, &outside);
        assert_eq!(
            more,
            [
                with(&limit("total_hits"), "2|c"),
                with(&limit("within_limit"), "2|c"),
                gauge
            ]
        );
    }

    #[test]
    fn dogstatsd_has_tags_of_its_own_and_the_first_mogrifier_that_matches() {
        let stats = stats();
        let mogrifier = |pattern: &str, name: &str, tags: &[(String, String)]| {
            Mogrifier::new(pattern, name, tags).unwrap()
        };
        let mogrifiers = vec![
            mogrifier("never", "x", &[]),
            mogrifier(
                r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.total_hits$",
                "hits",
                &[tag("domain", "$1"), tag("descriptor", "$2")],
            ),
            mogrifier("total_hits", "too late", &[]),
        ];
        let mut dogstatsd =
            StatsdLines::new(StatsdDialect::DogStatsd(mogrifiers), &[tag("v", "1.2")]);
        hit(&stats);
        assert_eq!(
            lines(&mut dogstatsd, &stats, &OutsideStats::default()),
            [
                "hits:2|c|#v:1_2,domain:web,descriptor:a_1\n",
                "ratelimit.service.rate_limit.web.a_1.within_limit:2|c|#v:1_2\n",
            ]
        );
        let mut plain = StatsdLines::new(StatsdDialect::DogStatsd(Vec::new()), &[]);
        assert_eq!(
            lines(&mut plain, &stats, &OutsideStats::default())[0],
            "ratelimit.service.rate_limit.web.a_1.total_hits:2|c\n"
        );
    }

    #[test]
    fn a_counter_that_began_again_is_written_from_zero() {
        let mut written = HashMap::default();
        for (value, expected) in [
            (0, None),
            (3, Some(3)),
            (3, None),
            (5, Some(2)),
            (1, Some(1)),
            (1, None),
        ] {
            assert_eq!(growth(&mut written, "a", value), expected, "{value}");
        }
    }
}
