//! Plays calls through the library of Rust: each line of the input is a limiter with its calls, each line of the output
//! their answers. Times are whole microseconds. With the URL of a Redis and a namespace as arguments it counts there.

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{
    Algorithm, Anchor, Limit, Limiter, LimiterDecision, ManualClock, Micros, Outcome, Rate, Retry,
    SharedLimiter, Timestamp,
};
use tidegate_redis::{RedisSettings, RedisStore};

/// A limiter in memory, or over Redis.
enum Played {
    Memory(Limiter),
    Redis(SharedLimiter),
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(play())
}

async fn play() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let store = match &arguments[..] {
        [url, namespace] => {
            let mut settings = RedisSettings::new(url.parse()?);
            settings.namespace = Some(namespace.parse()?);
            settings.deadline = Duration::from_secs(5);
            let store = RedisStore::open(settings);
            store.connected(Duration::from_secs(5)).await?;
            Some(store)
        }
        _ => None,
    };
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let game: Value = serde_json::from_str(&line?)?;
        let limits = game["limits"].as_array().ok_or("no limits")?;
        let limits = limits.iter().map(limit).collect::<Result<Vec<_>, _>>()?;
        let clock = ManualClock::new(Timestamp::from_micros(number(&game["start"])?));
        let builder = Limiter::builder_for(limits).clock(clock.clone());
        let limiter = match &store {
            Some(store) => {
                let name = format!("{}@user_id", text(&game["name"])?);
                Played::Redis(builder.bring_time().build_shared(&name, store.clone())?)
            }
            None => Played::Memory(builder.build()?),
        };
        let mut answers = Vec::new();
        for call in game["calls"].as_array().ok_or("no calls")? {
            clock.advance(Micros::new(number(&call[0])?));
            answers.push(answer(&limiter, call).await?);
        }
        writeln!(output, "{}", Value::Array(answers))?;
        output.flush()?;
    }
    Ok(())
}

fn text(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("`{value}` is no text"))
}

fn number(value: &Value) -> Result<u64, String> {
    value
        .as_u64()
        .ok_or_else(|| format!("`{value}` is no number"))
}

/// A limit: its rate, the name of its algorithm, and options.
fn limit(given: &Value) -> Result<Limit, Box<dyn Error>> {
    let rate: Rate = text(&given[0])?.parse()?;
    let options = &given[2];
    let span = |name: &str| options[name].as_str().map(str::parse::<Micros>).transpose();
    let algorithm = match text(&given[1])? {
        "token_bucket" => Algorithm::TokenBucket {
            max_delay: span("max_delay")?.unwrap_or_default(),
        },
        "leaky_bucket" => Algorithm::LeakyBucket {
            shape: options["shape"].as_bool().unwrap_or(true),
        },
        "fixed_window" => Algorithm::FixedWindow {
            anchor: match options["anchor"].as_str() {
                Some("first_request") => Anchor::FirstRequest,
                _ => Anchor::Clock,
            },
        },
        "sliding_window_log" => Algorithm::SlidingWindowLog,
        "sliding_window_counter" => Algorithm::SlidingWindowCounter,
        "sliding_window_slots" => Algorithm::SlidingWindowSlots {
            slots: options["slots"].as_u64().map(u32::try_from).transpose()?,
            strict: options["strict"].as_bool().unwrap_or(false),
        },
        name => return Err(format!("`{name}` is not played").into()),
    };
    Ok(Limit::new(rate, algorithm)?)
}

async fn answer(limiter: &Played, call: &Value) -> Result<Value, Box<dyn Error>> {
    let (key, cost) = (text(&call[2])?, number(&call[3])?);
    let decision = match (text(&call[1])?, limiter) {
        ("check" | "allow", Played::Memory(limiter)) => limiter.check_cost(key, cost),
        ("check" | "allow", Played::Redis(limiter)) => limiter.check_cost(key, cost).await?,
        ("peek", Played::Memory(limiter)) => limiter.peek_cost(key, cost),
        ("peek", Played::Redis(limiter)) => limiter.peek_cost(key, cost).await?,
        ("settle", Played::Memory(limiter)) => limiter.settle(key, cost),
        ("settle", Played::Redis(limiter)) => limiter.settle(key, cost).await?,
        ("reset", Played::Memory(limiter)) => {
            limiter.reset(key);
            return Ok(Value::Null);
        }
        ("reset", Played::Redis(limiter)) => {
            limiter.reset(key).await?;
            return Ok(Value::Null);
        }
        (name, _) => return Err(format!("`{name}` is no call").into()),
    };
    Ok(written(&decision))
}

fn written(decision: &LimiterDecision) -> Value {
    let deciding = &decision.outcomes()[decision.decided_by()];
    json!({
        "allowed": decision.is_allowed(),
        "delay": Micros::from(decision.delay()).get(),
        "decided": outcome(deciding),
        "outcomes": decision.outcomes().iter().map(outcome).collect::<Vec<_>>(),
    })
}

fn outcome(outcome: &Outcome) -> Value {
    let retry = match outcome.retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(wait.get()),
        Retry::Never => None,
    };
    json!([
        outcome.allowed,
        outcome.limit,
        outcome.remaining,
        retry,
        outcome.reset_at.as_micros(),
        outcome.delay.get(),
    ])
}
