//! Known answers: decisions that established rate limiters document or test, replayed on any store.
//!
//! [`replay_all`] plays every line of `vectors/known.jsonl` that applies to a store. What does not
//! apply is in [`NOT_REPLAYED`] with the reason. A field that is neither checked nor listed fails
//! the replay, and so does one that is listed although it agrees.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use serde::Deserialize;
pub use serde_json::Value;
use tidegate_core::{
    Algorithm, Anchor, Charge, Limit, LimitError, Micros, Outcome, Rate, Request, Retry, Scope,
    Store, StoreError, Timestamp,
};

/// The lines, as they are.
pub const TEXT: &str = include_str!("../vectors/known.jsonl");

/// A count that no line reaches: on a limit this large, what was used can be made and read.
const ROOMY: u64 = 10_000_000;

/// What is known of one limiter: a limit, a timeline, and the answer to each step of it.
#[derive(Debug, Clone, Deserialize)]
pub struct Vector {
    /// Its name, unique in the file.
    pub id: String,
    /// How the source counts, in the source's words.
    pub algorithm: String,
    /// Requests per window; none where any will do.
    pub limit: Option<Count>,
    /// The window in seconds.
    pub window_s: Option<f64>,
    /// The capacity of a bucket, if it is not the limit.
    pub burst: Option<u64>,
    /// What was used before the first step.
    pub state: Option<UsedBefore>,
    /// The timeline.
    pub steps: Vec<Step>,
    /// Where it comes from.
    pub source: String,
    /// What it shows.
    #[serde(default)]
    pub notes: String,
    /// Whatever else the line says.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// Requests per window.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// This many.
    Exactly(u64),
    /// Any of these, written `1..9999`.
    AnyOf(String),
}

/// What was used in two neighbouring windows, the later of which starts at `bucket_start` seconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsedBefore {
    /// In the window that starts there.
    pub current: u64,
    /// In the one before.
    pub previous: u64,
    /// The start of the later one, in seconds.
    pub bucket_start: f64,
}

/// One step of a timeline, and what is known of the answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Step {
    /// When, in seconds.
    #[serde(default, alias = "now")]
    pub t: f64,
    /// How much it takes.
    #[serde(default = "one")]
    pub cost: u64,
    /// How often it is done.
    #[serde(default = "one")]
    pub repeat: u64,
    /// Whether the repetitions come all at once.
    #[serde(default)]
    pub concurrent: bool,
    /// What is done.
    #[serde(default)]
    pub op: Operation,
    /// Whose state it is.
    #[serde(default)]
    pub key: String,
    /// What the window has used before this step, if the source says so.
    pub counter_before: Option<u64>,
    /// Which request of its client it is, where the source counts them; steps are in that order.
    pub hit: Option<u64>,
    /// The known answers, by the source's names for them.
    #[serde(flatten)]
    pub answers: BTreeMap<String, Value>,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Charges.
    #[default]
    Charge,
    /// Asks, and takes nothing.
    Peek,
    /// Forgets what the key has used.
    Clear,
}

fn one() -> u64 {
    1
}

/// Every line of the file, in its order.
pub fn all() -> Result<Vec<Vector>, serde_json::Error> {
    serde_json::Deserializer::from_str(TEXT)
        .into_iter()
        .collect()
}

/// Lines, or fields of them, that a store has no answer to, or by our contract a different one.
#[derive(Debug, Clone, Copy)]
pub struct NotReplayed {
    /// The lines.
    pub ids: &'static [&'static str],
    /// The fields; none means the whole line.
    pub fields: &'static [&'static str],
    /// Why, in one sentence.
    pub reason: &'static str,
}

impl NotReplayed {
    const fn lines(ids: &'static [&'static str], reason: &'static str) -> Self {
        Self::fields(ids, &[], reason)
    }

    const fn fields(
        ids: &'static [&'static str],
        fields: &'static [&'static str],
        reason: &'static str,
    ) -> Self {
        Self {
            ids,
            fields,
            reason,
        }
    }

    /// Why the line `id` is not replayed at all, if so.
    pub fn reason_for(id: &str) -> Option<&'static str> {
        let whole = |listed: &&Self| listed.fields.is_empty() && listed.ids.contains(&id);
        NOT_REPLAYED.iter().find(whole).map(|listed| listed.reason)
    }

    /// Whether this field of the line `id` is listed.
    pub fn names(id: &str, field: &str) -> bool {
        NOT_REPLAYED
            .iter()
            .any(|listed| listed.ids.contains(&id) && listed.fields.contains(&field))
    }
}

/// All that is not replayed, and why.
pub const NOT_REPLAYED: &[NotReplayed] = &[
    NotReplayed::lines(
        &["envoy-hits-addend"],
        "how the gRPC front end reads `hits_addend`; a store is given the cost",
    ),
    NotReplayed::lines(
        &["envoy-headers"],
        "the text of headers in a gRPC answer, which that front end writes",
    ),
    NotReplayed::lines(
        &["envoy-errors"],
        "malformed gRPC requests and a missing configuration, which no store gets to see",
    ),
    NotReplayed::lines(
        &["envoy-shadow"],
        "shadow mode belongs to the rule; a store tells what the limit itself says",
    ),
    NotReplayed::lines(
        &["erl-draft6", "erl-draft7", "erl-draft8"],
        "the text of headers in drafts 6 to 8; ours are draft 10, and not a store's to write",
    ),
    NotReplayed::fields(
        &["redis-cell-main"],
        &["rate"],
        "says the limit once more in words, and answers nothing",
    ),
    NotReplayed::fields(
        &["redis-cell-e2e", "redis-cell-readme"],
        &["resp"],
        "the command that was sent, which the RESP front end reads",
    ),
    NotReplayed::fields(
        &["limits-moving-empty"],
        &["reset_in"],
        "an untouched key is whole now by our contract, and not a window later",
    ),
    NotReplayed::fields(
        &[
            "envoy-basic",
            "envoy-over-minute",
            "envoy-near-under",
            "envoy-near-at",
            "envoy-near-over",
            "envoy-add-under",
            "envoy-add-some-near",
            "envoy-add-all-near",
            "envoy-add-some-over",
            "envoy-add-three",
            "envoy-add-all-over",
        ],
        &[
            "near_limit_ratio",
            "near_limit_hits",
            "over_limit_hits",
            "within_limit_hits",
        ],
        "Envoy's statistics split one request's cost by a threshold; an outcome has one verdict",
    ),
    NotReplayed::fields(
        &[
            "envoy-over-minute",
            "envoy-near-over",
            "envoy-add-some-over",
            "envoy-add-three",
            "envoy-add-all-over",
        ],
        &["counter_after"],
        "Envoy counts denied requests; by our contract a denied request changes nothing",
    ),
    NotReplayed::fields(
        &["envoy-add-some-over", "envoy-add-three"],
        &["remaining"],
        "Envoy charged the denied request; by our contract what was left of the window stays",
    ),
];

/// An answer that differs from the known one, or that could not be had.
#[derive(Debug, Clone)]
pub struct Mismatch {
    /// The line.
    pub id: String,
    /// The step, counted from one; zero for what the line says outside its steps.
    pub step: usize,
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            step,
            field,
            problem,
        } = self;
        write!(f, "`{id}` step {step}, `{field}`: {problem}")
    }
}

/// A [`Mismatch`] before it is known where.
struct Problem {
    field: String,
    text: String,
}

impl Problem {
    fn new(field: &str, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            text: text.into(),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new("store", error.to_string())
    }
}

impl From<LimitError> for Problem {
    fn from(error: LimitError) -> Self {
        Self::new("limit", error.to_string())
    }
}

/// What came of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The lines that were played, whether they agreed or not.
    pub ids: Vec<String>,
    /// Where the store differs: the first mismatch of each line.
    pub mismatches: Vec<Mismatch>,
}

/// Plays every line that applies. Each has a scope of its own, so one store serves for all of them.
///
/// The store has to keep states whose supplied time is long past.
pub async fn replay_all<S: Store>(store: &S) -> Result<Replayed, serde_json::Error> {
    let mut replayed = Replayed::default();
    for vector in all()? {
        if NotReplayed::reason_for(&vector.id).is_none() {
            replayed
                .mismatches
                .extend(replay(store, &vector, in_flight_together).await.err());
            replayed.ids.push(vector.id);
        }
    }
    Ok(replayed)
}

/// Plays one line, up to the first mismatch.
///
/// `race` makes a request so many times at once, and tells how many of them were allowed.
pub async fn replay<S: Store>(
    store: &S,
    vector: &Vector,
    race: impl AsyncFn(&S, &Request<'_>, u64) -> Result<u64, StoreError>,
) -> Result<(), Mismatch> {
    let at = |step: usize| {
        move |problem: Problem| Mismatch {
            id: vector.id.clone(),
            step,
            field: problem.field,
            problem: problem.text,
        }
    };
    let player = Player::new(store, vector).map_err(at(0))?;
    for (field, known) in &vector.others {
        player.compare(field, known, None).map_err(at(0))?;
    }
    player.use_before().await.map_err(at(0))?;
    for (index, step) in vector.steps.iter().enumerate() {
        let answered = player.play(step, &race).await;
        answered.map_err(at(index + 1))?;
    }
    Ok(())
}

/// Makes a request so many times without waiting for an answer in between, and tells how many were
/// allowed.
pub async fn in_flight_together<S: Store>(
    store: &S,
    request: &Request<'_>,
    times: u64,
) -> Result<u64, StoreError> {
    let mut calls: Vec<_> = (0..times)
        .map(|_| Box::pin(store.charge(request)))
        .collect();
    let mut answers = Vec::new();
    poll_fn(|context| {
        calls.retain_mut(|call| match call.as_mut().poll(context) {
            Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            Poll::Pending => true,
        });
        if calls.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    let mut allowed = 0;
    for answer in answers {
        allowed += u64::from(answer?.iter().all(|outcome| outcome.allowed));
    }
    Ok(allowed)
}

/// One line on its way through a store.
struct Player<'a, S> {
    store: &'a S,
    vector: &'a Vector,
    algorithm: Algorithm,
    window: Micros,
    scope: Scope,
}

impl<'a, S: Store> Player<'a, S> {
    fn new(store: &'a S, vector: &'a Vector) -> Result<Self, Problem> {
        let algorithm = match vector.algorithm.as_str() {
            "fixed_window_first_hit" | "headers" => Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            },
            "fixed_window_calendar" | "fixed_window_calendar_key" => Algorithm::FIXED_WINDOW,
            "gcra" | "gcra_emission_interval" => Algorithm::TOKEN_BUCKET,
            "sliding_log" => Algorithm::SlidingWindowLog,
            "sliding_window_counter" => Algorithm::SlidingWindowCounter,
            other => return Err(Problem::new("algorithm", format!("`{other}` is not ours"))),
        };
        let window = vector.window_s.and_then(micros);
        Ok(Self {
            store,
            vector,
            algorithm,
            window: window.ok_or_else(|| Problem::new("window_s", "is missing"))?,
            scope: Scope::new(&vector.id),
        })
    }

    async fn play(
        &self,
        step: &Step,
        race: &impl AsyncFn(&S, &Request<'_>, u64) -> Result<u64, StoreError>,
    ) -> Result<(), Problem> {
        if step.answers.contains_key("property") {
            return self.hold_property().await;
        }
        let limit = match self.own_limit() {
            Err(refusal) => {
                return self.compare_all(step, |field| {
                    (field == "error").then(|| Found::Refused(refusal.clone()))
                });
            }
            Ok(limit) => limit,
        };
        let at = instant(step.t)?;
        if let Some(used) = step.counter_before {
            self.fill(&step.key, used, at).await?;
        }
        if step.op == Operation::Clear {
            self.store.forget(&self.scope, &limit, &step.key).await?;
            return self.compare_all(step, |_| None);
        }
        if step.concurrent {
            let charge = self.asking(&limit, &step.key, step.cost);
            let request = Request::new(std::slice::from_ref(&charge)).at(at);
            let allowed = race(self.store, &request, step.repeat).await?;
            return self.compare_all(step, |field| {
                (field == "total_allowed").then_some(Found::Count(allowed))
            });
        }
        for _ in 0..step.repeat {
            let charge = self.asking(&limit, &step.key, step.cost);
            let outcome = match step.op {
                Operation::Peek => self.peek(charge, at).await?,
                _ => self.charge(charge, at).await?,
            };
            for (field, known) in &step.answers {
                let found = self.found(field, step, &limit, outcome).await?;
                self.compare(field, known, found)?;
            }
        }
        Ok(())
    }

    /// What our contract says where the source says `field`. None where it says nothing.
    async fn found(
        &self,
        field: &str,
        step: &Step,
        limit: &Limit,
        outcome: Outcome,
    ) -> Result<Option<Found>, Problem> {
        let at = instant(step.t)?;
        let to_reset = outcome.reset_at.since(at);
        let found = match field {
            "allowed" => Found::Flag(outcome.allowed),
            "code" if outcome.allowed => Found::Text("OK".into()),
            "code" => Found::Text("OVER_LIMIT".into()),
            "status" => Found::Count(if outcome.allowed { 200 } else { 429 }),
            "limit" | "capacity" => Found::Count(outcome.limit),
            "remaining" => Found::Count(outcome.remaining),
            "never" => Found::Flag(outcome.retry == Retry::Never),
            "retry_after" => Found::Retry(outcome),
            "retry-after" => Found::Text(whole_seconds(outcome.retry)),
            "reset_at" | "window_end" => Found::Span(since_epoch(outcome.reset_at)),
            "reset_in" | "reset_in_approx"
                if self.is_sliding() && outcome.remaining < outcome.limit =>
            {
                // `limits` tells when one more comes back, and not when all has.
                let one_more = self.asking(limit, &step.key, outcome.remaining + 1);
                let wait = wait(self.peek(one_more, at).await?)?;
                match self.algorithm {
                    // It rounds the share of the window before, and is known to the millisecond.
                    Algorithm::SlidingWindowCounter => Found::About(wait),
                    _ => Found::Span(wait),
                }
            }
            "reset_in" | "reset_after" | "duration_until_reset" => Found::Span(to_reset),
            "counter_after" => Found::Count(self.used(&step.key, at).await?),
            "weighted" => {
                let taken = if outcome.allowed { step.cost } else { 0 };
                Found::Count(self.used(&step.key, at).await?.saturating_sub(taken))
            }
            "emission_interval_s" => {
                let rest = self.asking(limit, &step.key, outcome.remaining);
                self.charge(rest, at).await?;
                let one_more = self.asking(limit, &step.key, 1);
                Found::Span(wait(self.charge(one_more, at).await?)?)
            }
            "window_start" => {
                // The window before the right one ends where that starts.
                let before = window_start(step)? - Micros::new(1);
                let charge = self.asking(limit, "the window before", 1);
                Found::Span(since_epoch(self.charge(charge, before).await?.reset_at))
            }
            "ttl_s" => Found::Span(outcome.reset_at.since(window_start(step)?)),
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn compare_all(
        &self,
        step: &Step,
        found: impl Fn(&str) -> Option<Found>,
    ) -> Result<(), Problem> {
        for (field, known) in &step.answers {
            self.compare(field, known, found(field))?;
        }
        Ok(())
    }

    fn compare(&self, field: &str, known: &Value, found: Option<Found>) -> Result<(), Problem> {
        let is_listed = NotReplayed::names(&self.vector.id, field);
        let text = match found {
            None if is_listed => return Ok(()),
            None => "is neither checked nor listed".into(),
            Some(found) => match (found.agrees_with(known), is_listed) {
                (true, false) | (false, true) => return Ok(()),
                (false, false) => format!("known is {known}, found is {found:?}"),
                (true, true) => "is listed as not replayed, but agrees".into(),
            },
        };
        Err(Problem::new(field, text))
    }

    async fn hold_property(&self) -> Result<(), Problem> {
        match self.vector.id.as_str() {
            "gov-wait" => self.waiting_as_told_is_enough().await,
            "gov-prop-not-until" => self.waiting_less_is_not().await,
            _ => Err(Problem::new("property", "is neither checked nor listed")),
        }
    }

    /// After each denial, waits exactly as long as it was told: all of twenty charges conform.
    /// Held for every limit that denies some of them, the known one included.
    async fn waiting_as_told_is_enough(&self) -> Result<(), Problem> {
        for count in 1..20 {
            let limit = self.limit(count, Some(count))?;
            let (key, mut now) = (count.to_string(), Timestamp::EPOCH);
            for number in 1..=20 {
                let charge = self.asking(&limit, &key, 1);
                let first = self.charge(charge, now).await?;
                if !first.allowed {
                    now = now + wait(first)?;
                    let told = self.charge(charge, now).await?;
                    hold(told.allowed, || {
                        format!("{limit}: charge {number} waited in vain")
                    })?;
                }
                hold(first.allowed == (number <= count), || {
                    format!("{limit}: charge {number} was allowed: {}", first.allowed)
                })?;
            }
        }
        Ok(())
    }

    /// Takes the burst, then one request whenever one has come back; each time the next is denied at
    /// every instant before its `retry_after`, and allowed at it.
    async fn waiting_less_is_not(&self) -> Result<(), Problem> {
        for count in self.sample_counts()? {
            let limit = self.limit(count, None)?;
            let key = count.to_string();
            let one = self.asking(&limit, &key, 1);
            let burst = self.asking(&limit, &key, count);
            let taken = self.charge(burst, Timestamp::EPOCH).await?;
            hold(taken.allowed, || format!("{limit}: the burst was denied"))?;
            for number in 1..=10 {
                let now = Timestamp::from_micros((number * self.window.get()).div_ceil(count));
                let back = self.charge(one, now).await?;
                hold(back.allowed, || format!("{limit}: {number} had come back"))?;
                let told = wait(self.charge(one, now).await?)?.get();
                let before = (0..8)
                    .map(|part| told * part / 8)
                    .chain([told.saturating_sub(1)]);
                for (waited, allowed) in before.map(|wait| (wait, false)).chain([(told, true)]) {
                    let asked = self.peek(one, now + Micros::new(waited)).await?;
                    hold(asked.allowed == allowed, || {
                        format!(
                            "{limit}: told to wait {told} µs, and after {waited} µs allowed: {}",
                            asked.allowed
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Counts from the line's range, its ends among them.
    fn sample_counts(&self) -> Result<Vec<u64>, Problem> {
        let range = match &self.vector.limit {
            Some(Count::AnyOf(range)) => range.split_once(".."),
            _ => None,
        };
        let ends = range.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        let (low, high): (u64, u64) =
            ends.ok_or_else(|| Problem::new("limit", "is not a range"))?;
        let between = [2, 3, 7, 60, 999, 1_000, 3_001];
        let inside = between
            .into_iter()
            .filter(|count| (low..high).contains(count));
        Ok([low, high].into_iter().chain(inside).collect())
    }

    /// Charges what the line says was used before its first step.
    async fn use_before(&self) -> Result<(), Problem> {
        if let Some(state) = &self.vector.state {
            let start = instant(state.bucket_start)?;
            self.fill("", state.previous, start - self.window).await?;
            self.fill("", state.current, start).await?;
        }
        Ok(())
    }

    /// Uses so much of the window, on a larger limit: a changed limit keeps what was used.
    async fn fill(&self, key: &str, used: u64, at: Timestamp) -> Result<(), Problem> {
        let roomy = self.limit(ROOMY, None)?;
        let filled = self.charge(self.asking(&roomy, key, used), at).await?;
        if filled.allowed {
            Ok(())
        } else {
            Err(Problem::new(
                "state",
                format!("{used} do not fit into {roomy}"),
            ))
        }
    }

    /// What counts as used, above the limit too.
    async fn used(&self, key: &str, at: Timestamp) -> Result<u64, Problem> {
        let roomy = self.limit(ROOMY, None)?;
        let asked = self.peek(self.asking(&roomy, key, 0), at).await?;
        Ok(ROOMY.saturating_sub(asked.remaining))
    }

    fn own_limit(&self) -> Result<Limit, LimitError> {
        let count = match self.vector.limit {
            Some(Count::Exactly(count)) => count,
            Some(Count::AnyOf(_)) | None => 1,
        };
        self.limit(count, self.vector.burst)
    }

    fn limit(&self, count: u64, burst: Option<u64>) -> Result<Limit, LimitError> {
        let rate = Rate {
            count,
            window: Some(self.window.into()),
            burst,
        };
        Limit::new(rate, self.algorithm)
    }

    fn is_sliding(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter
        )
    }

    fn asking<'b>(&'b self, limit: &'b Limit, key: &'b str, cost: u64) -> Charge<'b> {
        Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        }
    }

    async fn charge(&self, charge: Charge<'_>, at: Timestamp) -> Result<Outcome, Problem> {
        let outcomes = self.store.charge(&Request::new(&[charge]).at(at)).await?;
        the_only(&outcomes)
    }

    async fn peek(&self, charge: Charge<'_>, at: Timestamp) -> Result<Outcome, Problem> {
        let outcomes = self.store.peek(&Request::new(&[charge]).at(at)).await?;
        the_only(&outcomes)
    }
}

/// What our contract says, in the form in which the file writes it.
#[derive(Debug)]
enum Found {
    Flag(bool),
    Count(u64),
    Text(String),
    Span(Micros),
    /// Right to the millisecond.
    About(Micros),
    /// Minus one where there is nothing to wait for: it was allowed, or never will be.
    Retry(Outcome),
    Refused(LimitError),
}

impl Found {
    fn agrees_with(&self, known: &Value) -> bool {
        let span = known.as_f64().and_then(micros);
        match self {
            Self::Flag(found) => known.as_bool() == Some(*found),
            Self::Count(found) => known.as_u64() == Some(*found),
            Self::Text(found) => known.as_str() == Some(found),
            Self::Span(found) => span == Some(*found),
            Self::About(found) => span.is_some_and(|known| {
                found.get().abs_diff(known.get()) <= Micros::MILLISECOND.get()
            }),
            Self::Retry(outcome) => match outcome.retry {
                Retry::After(wait) => !outcome.allowed && span == Some(wait),
                Retry::Now => outcome.allowed && known.as_i64() == Some(-1),
                Retry::Never => !outcome.allowed && known.as_i64() == Some(-1),
            },
            Self::Refused(refusal) => {
                let for_zero = known.as_str().is_some_and(|text| text.starts_with("zero"));
                for_zero && matches!(refusal, LimitError::Zero { .. })
            }
        }
    }
}

/// The whole microseconds nearest to `seconds`; none below zero.
fn micros(seconds: f64) -> Option<Micros> {
    Duration::try_from_secs_f64(seconds).ok().map(Micros::from)
}

fn instant(seconds: f64) -> Result<Timestamp, Problem> {
    let since = micros(seconds).ok_or_else(|| Problem::new("t", "is not a time"))?;
    Ok(Timestamp::EPOCH + since)
}

fn since_epoch(at: Timestamp) -> Micros {
    at.since(Timestamp::EPOCH)
}

fn window_start(step: &Step) -> Result<Timestamp, Problem> {
    let known = step.answers.get("window_start").and_then(Value::as_f64);
    instant(known.ok_or_else(|| Problem::new("window_start", "is missing"))?)
}

fn whole_seconds(retry: Retry) -> String {
    retry
        .wait()
        .map_or_else(String::new, |wait| wait.ceil_seconds().to_string())
}

/// How long a denied request was told to wait.
fn wait(outcome: Outcome) -> Result<Micros, Problem> {
    match outcome.retry {
        Retry::After(wait) => Ok(wait),
        other => Err(Problem::new(
            "retry_after",
            format!("is {other:?}, not a wait"),
        )),
    }
}

fn the_only(outcomes: &[Outcome]) -> Result<Outcome, Problem> {
    match outcomes {
        [outcome] => Ok(*outcome),
        _ => Err(Problem::new(
            "store",
            format!("{} outcomes to one charge", outcomes.len()),
        )),
    }
}

fn hold(holds: bool, problem: impl FnOnce() -> String) -> Result<(), Problem> {
    if holds {
        Ok(())
    } else {
        Err(Problem::new("property", problem()))
    }
}
