//! Stats as envoyproxy/ratelimit has them: one set of counters, and what each output makes of them.
//!
//! `hits.rs` is the arithmetic of one call, `named.rs` keeps counters by the path of a limit, `times.rs` the times of
//! calls, `book.rs` all of them with their names. `mapping/` names series of Prometheus by a file of `statsd_exporter`,
//! `page.rs` writes them. `statsd.rs` writes lines of statsd and `DogStatsD`.

mod book;
mod hits;
mod mapping;
mod mogrifier;
mod named;
mod page;
mod recent;
mod statsd;
mod times;

pub use book::{CountedMethod, OutsideStats, RateLimitStats, RedisPoolStats, StatForms, StatKind};
pub use hits::{LIMIT_STATS, LimitCounts, LimitHits, NearLimitRatio};
pub use mapping::{StatMapping, TimeUnit};
pub use mogrifier::Mogrifier;
pub use page::StatPage;
pub use statsd::{StatsdDialect, StatsdLines};
pub use times::{Observation, ObservationShape, ObserverForm};
