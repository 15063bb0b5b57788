//! Limits, validated once so that no decision has to check them again.
//!
//! [`Rate`] is the text as parsed, [`Algorithm`] the way of counting, [`Limit`] both together after validation. The
//! arithmetic lives in [`crate::algorithm`].

mod error;
mod excess;
mod parse;
mod promise;
mod rate;
mod share;
mod spelling;
mod waiting;
mod window;
mod worst_case;

pub use error::{LimitError, UnknownAlgorithm};
pub use excess::MAX_WINDOW_COUNT;
pub use rate::Rate;
pub use waiting::wait_for_all;
pub use window::Window;
pub(crate) use window::{elapsed_in, since_epoch};
pub use worst_case::WorstCase;

use std::fmt;
use std::str::FromStr;

use crate::algorithm::{
    Bucket, Concurrency, FixedWindow, Form, Hold, SlidingCounter, SlidingLog, SlidingSlots,
};
use crate::time::Micros;

/// The largest count or burst that a limit may have: one billion.
///
/// A bucket's debt, including the excess over the burst that `max_delay` allows, has to fit into 30 bits next to its
/// remainder and its time.
pub const MAX_COUNT: u64 = 1_000_000_000;
/// The shortest window: one millisecond.
pub const MIN_WINDOW: Micros = Micros::MILLISECOND;
/// The longest window: 366 days.
pub const MAX_WINDOW: Micros = Micros::DAY.times(366);
/// The largest number of slots that a window may be cut into.
pub const MAX_SLOTS: u32 = 3_600;
/// How long a concurrency permit lasts by default.
pub const DEFAULT_LEASE_TTL: Micros = Micros::MINUTE;

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// One counter for each window.
    FixedWindow {
        /// Where windows start.
        anchor: Anchor,
    },
    /// The time of every admitted request.
    SlidingWindowLog,
    /// Two counters, the older one weighted by how much of it is still in the window.
    SlidingWindowCounter,
    /// A ring of counters, one for each slot of the window.
    SlidingWindowSlots {
        /// How many parts the window is cut into; by default 60, or 50 where 60 does not divide it.
        slots: Option<u32>,
        /// Whether the slot that is partly in the window counts whole, so that no interval of one
        /// window's length ever admits more than the limit.
        strict: bool,
    },
    /// A bucket of tokens that refills continuously.
    TokenBucket {
        /// Requests that would be allowed within this time are admitted now, with a delay.
        max_delay: Micros,
    },
    /// A bucket that leaks continuously.
    LeakyBucket {
        /// Whether an admitted request gets a delay for the requests that are ahead of it in the bucket.
        shape: bool,
    },
    /// A maximum number of simultaneous holders.
    Concurrency {
        /// When a permit that is neither released nor renewed ends.
        lease_ttl: Micros,
    },
}

/// Where the windows of [`Algorithm::FixedWindow`] start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Anchor {
    /// At multiples of the window since the epoch; weeks on Mondays, months and years with the
    /// calendar, all in UTC.
    #[default]
    Clock,
    /// At the first charged request that finds no window open.
    FirstRequest,
    /// At multiples of the window since the epoch, those of a week too.
    Epoch,
}

impl Algorithm {
    /// A token bucket that never delays.
    pub const TOKEN_BUCKET: Self = Self::TokenBucket {
        max_delay: Micros::ZERO,
    };
    /// A leaky bucket that gives requests a delay.
    pub const LEAKY_BUCKET: Self = Self::LeakyBucket { shape: true };
    /// A fixed window that starts with the clock.
    pub const FIXED_WINDOW: Self = Self::FixedWindow {
        anchor: Anchor::Clock,
    };
    /// Slots of the default number, not strict.
    pub const SLIDING_WINDOW_SLOTS: Self = Self::SlidingWindowSlots {
        slots: None,
        strict: false,
    };
    /// Concurrency with permits of [`DEFAULT_LEASE_TTL`].
    pub const CONCURRENCY: Self = Self::Concurrency {
        lease_ttl: DEFAULT_LEASE_TTL,
    };

    /// Every algorithm, with its default options.
    pub const ALL: [Self; 7] = [
        Self::TOKEN_BUCKET,
        Self::LEAKY_BUCKET,
        Self::FIXED_WINDOW,
        Self::SlidingWindowLog,
        Self::SlidingWindowCounter,
        Self::SLIDING_WINDOW_SLOTS,
        Self::CONCURRENCY,
    ];

    /// The algorithm of a rate that names none: a token bucket, or a fixed window of the clock if the
    /// window is a day or longer and there is no burst.
    ///
    /// ```
    /// use tidegate_core::{Algorithm, Limit};
    ///
    /// assert_eq!("100/minute".parse::<Limit>()?.algorithm(), Algorithm::TOKEN_BUCKET);
    /// assert_eq!("10000/day".parse::<Limit>()?.algorithm(), Algorithm::FIXED_WINDOW);
    /// assert_eq!("10000/day burst 50".parse::<Limit>()?.algorithm(), Algorithm::TOKEN_BUCKET);
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn default_for(rate: &Rate) -> Self {
        match rate.window {
            Some(Window::Month | Window::Year) => Self::FIXED_WINDOW,
            Some(Window::Span(span)) if span >= Micros::DAY && rate.burst.is_none() => {
                Self::FIXED_WINDOW
            }
            Some(Window::Span(_)) | None => Self::TOKEN_BUCKET,
        }
    }

    /// The algorithm with this [name](Self::name), with its default options.
    ///
    /// ```
    /// use tidegate_core::Algorithm;
    ///
    /// assert_eq!(Algorithm::named("token_bucket").unwrap(), Algorithm::TOKEN_BUCKET);
    /// let error = Algorithm::named("leaky").unwrap_err().to_string();
    /// assert!(error.starts_with("`leaky` is not an algorithm; expected one of `token_bucket`, `leaky_bucket`"));
    /// ```
    pub fn named(name: &str) -> Result<Self, UnknownAlgorithm> {
        let mut known = Self::ALL.into_iter();
        known
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }

    /// The name in rules, metrics and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::SlidingWindowSlots { .. } => "sliding_window_slots",
            Self::TokenBucket { .. } => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
            Self::Concurrency { .. } => "concurrency",
        }
    }

    /// Whether a burst means anything to it.
    pub fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket { .. } | Self::LeakyBucket { .. })
    }
}

/// A limit that is known to be sound: every decision about it is exact and cannot fail.
///
/// ```
/// use tidegate_core::{Algorithm, Limit, Rate};
///
/// let bucket: Limit = "100/minute burst 20".parse()?;
/// assert_eq!(bucket.capacity(), 20);
///
/// let rate: Rate = "10 per 2 hours".parse()?;
/// let log = Limit::new(rate, Algorithm::SlidingWindowLog)?;
/// assert_eq!(log.to_string(), "10/2h");
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    rate: Rate,
    algorithm: Algorithm,
    form: Form,
    shape: u64,
}

impl Limit {
    /// Checks that `rate` can be counted by `algorithm`, exactly and in every store.
    pub fn new(rate: Rate, algorithm: Algorithm) -> Result<Self, LimitError> {
        let count = in_range("count", rate.count)?;
        if rate.burst.is_some() && !algorithm.is_bucket() {
            return Err(LimitError::BurstWithoutBucket {
                algorithm: algorithm.name(),
            });
        }
        let form = match algorithm {
            Algorithm::FixedWindow { anchor } => {
                let window = rate.some_window()?;
                if anchor == Anchor::FirstRequest {
                    window.span_for(algorithm)?;
                }
                Form::FixedWindow(FixedWindow::new(count, window, anchor))
            }
            Algorithm::SlidingWindowLog => Form::SlidingLog(SlidingLog::new(
                count,
                rate.some_window()?.span_for(algorithm)?,
            )),
            Algorithm::SlidingWindowCounter => Form::SlidingCounter(SlidingCounter::new(
                count,
                rate.some_window()?.span_for(algorithm)?,
            )),
            Algorithm::SlidingWindowSlots { slots, strict } => {
                let window = rate.some_window()?.span_for(algorithm)?;
                let slots = slots_of(window, slots)?;
                Form::SlidingSlots(SlidingSlots::new(count, window, slots, strict))
            }
            Algorithm::TokenBucket { max_delay } => {
                Form::Bucket(bucket(&rate, algorithm, Hold::UpTo(max_delay))?)
            }
            Algorithm::LeakyBucket { shape } => {
                let hold = if shape {
                    Hold::Queue
                } else {
                    Hold::UpTo(Micros::ZERO)
                };
                Form::Bucket(bucket(&rate, algorithm, hold)?)
            }
            Algorithm::Concurrency { lease_ttl } => {
                if rate.window.is_some() {
                    return Err(LimitError::WindowOnConcurrency { rate });
                }
                Form::Concurrency(Concurrency::new(count, within("lease_ttl", lease_ttl)?))
            }
        };
        Ok(Self {
            rate,
            algorithm,
            form,
            shape: shape_of(algorithm, &form),
        })
    }

    /// A token bucket whose state does not depend on any of its numbers: such limits take over each
    /// other's state, whatever their counts, windows and bursts.
    ///
    /// For callers that bring limits of their own and may use several for one key.
    ///
    /// ```
    /// use tidegate_core::{Limit, Micros};
    ///
    /// let slow = Limit::portable_bucket(30, Micros::MINUTE, 16)?;
    /// let fast = Limit::portable_bucket(5, Micros::SECOND, 5)?;
    /// assert_eq!(slow.shape(), fast.shape());
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn portable_bucket(count: u64, window: Micros, burst: u64) -> Result<Self, LimitError> {
        Self::with_common_parts(Rate::new(count, window).burst(burst))
    }

    fn with_common_parts(rate: Rate) -> Result<Self, LimitError> {
        let limit = Self::new(rate, Algorithm::TOKEN_BUCKET)?;
        let form = match limit.form {
            Form::Bucket(bucket) => Form::Bucket(bucket.with_common_parts()),
            other => other,
        };
        Ok(Self {
            form,
            shape: shape_of(limit.algorithm, &form),
            ..limit
        })
    }

    /// A limit of another rate that is counted on the same state.
    fn at_rate(&self, rate: Rate) -> Result<Self, LimitError> {
        match &self.form {
            Form::Bucket(bucket) if bucket.has_common_parts() => Self::with_common_parts(rate),
            Form::FixedWindow(form) => Self::fixed_window(rate.count, form.window(), form.anchor()),
            _ => Self::new(rate, self.algorithm),
        }
    }

    /// Whether its state does not depend on any of its numbers.
    pub(crate) fn is_portable(&self) -> bool {
        matches!(&self.form, Form::Bucket(bucket) if bucket.has_common_parts())
    }

    /// Whether it counts requests in progress, which hold permits.
    #[inline]
    pub fn is_concurrency(&self) -> bool {
        matches!(self.form, Form::Concurrency(_))
    }

    /// A maximum number of simultaneous holders, with permits of [`DEFAULT_LEASE_TTL`].
    pub fn concurrent(holders: u64) -> Result<Self, LimitError> {
        let rate = Rate {
            count: holders,
            window: None,
            burst: None,
        };
        Self::new(rate, Algorithm::CONCURRENCY)
    }

    /// The same limit, counted on the same state, that admits requests up to `max_delay` early.
    ///
    /// Only a token bucket of a rule can: for any other limit nothing changes.
    pub fn with_max_delay(&self, max_delay: Micros) -> Result<Self, LimitError> {
        match (self.algorithm, &self.form) {
            (Algorithm::TokenBucket { .. }, Form::Bucket(bucket)) if !bucket.has_common_parts() => {
                Self::new(self.rate, Algorithm::TokenBucket { max_delay })
            }
            _ => Ok(self.clone()),
        }
    }

    /// The rate as written: requests, window and burst.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// How it is counted.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The algorithm with its parameters, ready to decide.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The window; none for concurrency.
    pub fn window(&self) -> Option<Window> {
        self.rate.window
    }

    /// The most that it grants at one instant: requests per window, or the capacity of a bucket.
    pub fn capacity(&self) -> u64 {
        match &self.form {
            Form::Bucket(bucket) => bucket.burst(),
            _ => self.rate.count,
        }
    }

    /// The rate of a bucket if its capacity is another number, so that the capacity alone does not show it.
    pub fn rate_unlike_capacity(&self) -> Option<Rate> {
        let is_other = self.capacity() != self.rate.count;
        is_other.then(|| self.rate.without_burst())
    }

    /// Names the form of the state that this limit keeps.
    ///
    /// Limits with the same shape can take over each other's state: they differ at most in count,
    /// burst and waiting. A change of algorithm or window changes the shape.
    pub fn shape(&self) -> u64 {
        self.shape
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads a rate, counted by the algorithm that is the default for it.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let rate: Rate = text.parse()?;
        Self::new(rate, Algorithm::default_for(&rate))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rate.fmt(f)
    }
}

fn bucket(rate: &Rate, algorithm: Algorithm, hold: Hold) -> Result<Bucket, LimitError> {
    let window = rate.some_window()?.span_for(algorithm)?;
    let burst = in_range("burst", rate.burst.unwrap_or(rate.count))?;
    if let Hold::UpTo(max_delay) = hold {
        if max_delay > MAX_WINDOW {
            return Err(LimitError::DelayTooLong { max_delay });
        }
        // The maximum debt: the burst, plus the requests that flow back within the delay.
        let ahead = u128::from(rate.count) * u128::from(max_delay.get()) / u128::from(window.get());
        if u128::from(burst) + ahead > u128::from(MAX_COUNT) {
            return Err(LimitError::DelayOwesTooMuch { max_delay });
        }
    }
    let to_full = u128::from(burst) * u128::from(window.get()) / u128::from(rate.count);
    if to_full >= u128::from(Micros::MAX.get()) {
        return Err(LimitError::FillsTooSlowly { rate: *rate });
    }
    Ok(Bucket::new(rate.count, window, burst, hold))
}

fn slots_of(window: Micros, slots: Option<u32>) -> Result<u32, LimitError> {
    let divides = |slots: u32| window.get().is_multiple_of(u64::from(slots));
    match slots {
        Some(slots) if slots == 0 || slots > MAX_SLOTS => {
            Err(LimitError::SlotsOutOfRange { slots })
        }
        Some(slots) if divides(slots) => Ok(slots),
        Some(slots) => Err(LimitError::SlotsDoNotDivide { slots, window }),
        None => [60, 50]
            .into_iter()
            .find(|slots| divides(*slots))
            .ok_or(LimitError::SlotsDoNotDivide { slots: 60, window }),
    }
}

fn in_range(what: &'static str, value: u64) -> Result<u64, LimitError> {
    match value {
        0 => Err(LimitError::Zero { what }),
        1..=MAX_COUNT => Ok(value),
        _ => Err(LimitError::TooLarge { what, value }),
    }
}

fn within(what: &'static str, span: Micros) -> Result<Micros, LimitError> {
    if (MIN_WINDOW..=MAX_WINDOW).contains(&span) {
        Ok(span)
    } else {
        Err(LimitError::SpanOutOfRange { what, span })
    }
}

fn shape_of(algorithm: Algorithm, form: &Form) -> u64 {
    use std::hash::{BuildHasher, Hash};
    // A fixed seed is safe: only operators choose the input. Snapshots name counters by this hash, so a change makes
    // servers lose the counters that they kept.
    let mut hasher = foldhash::quality::FixedState::with_seed(0).build_hasher();
    std::mem::discriminant(&algorithm).hash(&mut hasher);
    match form {
        Form::FixedWindow(limit) => (limit.window(), limit.anchor()).hash(&mut hasher),
        Form::SlidingLog(limit) => limit.window().hash(&mut hasher),
        Form::SlidingCounter(limit) => limit.window().hash(&mut hasher),
        Form::SlidingSlots(limit) => {
            (limit.window(), limit.slot(), limit.counted()).hash(&mut hasher);
        }
        // They share one state, and no window has this length.
        Form::Bucket(limit) if limit.has_common_parts() => Micros::ZERO.hash(&mut hasher),
        Form::Bucket(limit) => limit.window().hash(&mut hasher),
        Form::Concurrency(_) => {}
    }
    std::hash::Hasher::finish(&hasher)
}

#[cfg(test)]
mod tests;
