//! The response headers that describe a decision, as names and values for any web framework.
//!
//! [`HeaderSettings::headers`] builds them from the charged limits. The caller names the deciding limit and leaves out
//! shadow rules. The two fields of the IETF draft are in `draft`.

mod by_unit;
mod draft;

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::algorithm::Form;
use crate::limit::Limit;
use crate::outcome::Outcome;

/// When to come back, on a denial. Like every name here in lower case, as HTTP/2 and HTTP/3 demand
/// and HTTP/1.1 does not mind.
pub const RETRY_AFTER: &str = "retry-after";
/// The quota of the deciding limit.
pub const X_RATELIMIT_LIMIT: &str = "x-ratelimit-limit";
/// The remaining quota of the deciding limit.
pub const X_RATELIMIT_REMAINING: &str = "x-ratelimit-remaining";
/// When it is whole again.
pub const X_RATELIMIT_RESET: &str = "x-ratelimit-reset";
/// The quota of each limit, by draft-10.
pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
/// Where each limit stands, by draft-10.
pub const RATELIMIT: &str = "ratelimit";

/// Which headers are sent, and in which form. By default all, with the reset as a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each form of headers is sent or not, independent of the others"
)]
pub struct HeaderSettings {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, of the limit that decided.
    pub x: bool,
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, of all limits.
    pub draft_10: bool,
    /// `Retry-After` on a denial, unless waiting cannot help.
    pub retry_after: bool,
    /// `x-ratelimit-limit-<unit>`, `-remaining-<unit>` and `-reset-<unit>` for each unit, as OpenAI sends them. Off by
    /// default; see [`headers_by_unit`](Self::headers_by_unit).
    pub openai: bool,
    /// `anthropic-ratelimit-<unit>-limit`, `-remaining` and `-reset`. Off by default.
    pub anthropic: bool,
    /// The form of `X-RateLimit-Reset`.
    pub reset: ResetForm,
}

/// The form of `X-RateLimit-Reset`. Both are in use, and a client cannot see which it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ResetForm {
    /// Seconds since the Unix epoch, rounded up.
    #[default]
    UnixSeconds,
    /// Seconds from the decision, rounded up.
    DeltaSeconds,
}

/// One limit that took part in a decision.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The name that clients see; see [`limit_name`].
    pub name: &'a str,
    /// The limit; none where everything is blocked, whatever the limit would be.
    pub limit: Option<&'a Limit>,
    /// What the limit counts, if not requests.
    pub unit: Option<&'a str>,
    /// The answer of the limit.
    pub outcome: &'a Outcome,
}

impl HeaderSettings {
    /// No headers at all.
    pub const NONE: Self = Self {
        x: false,
        draft_10: false,
        retry_after: false,
        openai: false,
        anthropic: false,
        reset: ResetForm::UnixSeconds,
    };

    /// The headers of one decision that do not go by unit, each name at most once, every value printable ASCII.
    ///
    /// `items` are the limits in the order of their charges, without those of shadow rules, which cannot deny.
    /// `headline` is the index of the deciding limit. If it denied, the decision is a denial, and `Retry-After` is
    /// [`seconds_to_retry`]. Without items there are no headers; with a `headline` out of range only those that need no
    /// headline.
    ///
    /// ```
    /// use tidegate_core::headers::{HeaderSettings, Item};
    /// use tidegate_core::{Limit, Micros, Outcome, Retry, Timestamp};
    ///
    /// let limit: Limit = "100/minute".parse()?;
    /// let now = Timestamp::from_seconds(1_794_770_000);
    /// let outcome = Outcome {
    ///     allowed: false,
    ///     limit: 100,
    ///     remaining: 0,
    ///     exceeded: 0,
    ///     retry: Retry::After(Micros::from_millis(600)),
    ///     reset_at: now + Micros::MINUTE,
    ///     delay: Micros::ZERO,
    ///     at: now,
    ///     is_remembered: false,
    /// };
    /// let items = [Item { name: "per-user", limit: Some(&limit), unit: None, outcome: &outcome }];
    ///
    /// let headers: Vec<_> = HeaderSettings::default().headers(&items, 0).collect();
    /// assert_eq!(headers, [
    ///     ("retry-after", "1".to_owned()),
    ///     ("x-ratelimit-limit", "100".to_owned()),
    ///     ("x-ratelimit-remaining", "0".to_owned()),
    ///     ("x-ratelimit-reset", "1794770060".to_owned()),
    ///     ("ratelimit-policy", r#""per-user";q=100;w=60"#.to_owned()),
    ///     ("ratelimit", r#""per-user";r=0;t=1"#.to_owned()),
    /// ]);
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn headers(&self, items: &[Item<'_>], headline: usize) -> Headers {
        let outcome = items.get(headline).map(|item| item.outcome);
        let mut headers = Headers::default();
        if let Some(outcome) = outcome
            && self.retry_after
            && !outcome.allowed
            && let Some(seconds) = seconds_to_retry(items.iter().map(Item::as_charged))
        {
            headers.add(RETRY_AFTER, |text| push_integer(text, seconds));
        }
        if let Some(outcome) = outcome
            && self.x
        {
            let reset = self.reset.of(outcome);
            headers.add(X_RATELIMIT_LIMIT, |text| push_integer(text, outcome.limit));
            headers.add(X_RATELIMIT_REMAINING, |text| {
                push_integer(text, outcome.remaining);
            });
            headers.add(X_RATELIMIT_RESET, |text| push_integer(text, reset));
        }
        if self.draft_10 && !items.is_empty() {
            headers.add(RATELIMIT_POLICY, |text| draft::push_policies(text, items));
            headers.add(RATELIMIT, |text| draft::push_standings(text, items));
        }
        headers
    }
}

/// The headers of one decision, one after another, as name and value.
///
/// All values are in one text, which may be taken [as it is](Self::into_text).
#[derive(Debug, Clone, Default)]
pub struct Headers {
    text: String,
    /// Each name, and where its value ends.
    ends: SmallVec<[(&'static str, usize); 6]>,
    /// Which is the next.
    next: usize,
}

impl Headers {
    fn add(&mut self, name: &'static str, push_value: impl FnOnce(&mut String)) {
        if self.text.capacity() == 0 {
            self.text.reserve(USUAL_LENGTH);
        }
        push_value(&mut self.text);
        self.ends.push((name, self.text.len()));
    }

    /// The text of all values, and for each name the range of its value in that text.
    pub fn into_text(self) -> (String, impl Iterator<Item = (&'static str, Range<usize>)>) {
        let mut start = 0;
        let ranges = self.ends.into_iter().map(move |(name, end)| {
            let range = start..end;
            start = end;
            (name, range)
        });
        (self.text, ranges)
    }
}

impl Iterator for Headers {
    type Item = (&'static str, String);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, end) = *self.ends.get(self.next)?;
        let start = match self.next.checked_sub(1) {
            Some(before) => self.ends[before].1,
            None => 0,
        };
        self.next += 1;
        Some((name, self.text[start..end].to_owned()))
    }
}

/// How long the values of most decisions are together.
const USUAL_LENGTH: usize = 128;

/// Writes a number. Without the machinery of `write!`, which takes longer than all the rest.
fn push_integer(text: &mut String, value: u64) {
    text.push_str(itoa::Buffer::new().format(value));
}

impl Default for HeaderSettings {
    fn default() -> Self {
        Self {
            x: true,
            draft_10: true,
            retry_after: true,
            openai: false,
            anthropic: false,
            reset: ResetForm::UnixSeconds,
        }
    }
}

impl ResetForm {
    fn of(self, outcome: &Outcome) -> u64 {
        match self {
            Self::UnixSeconds => outcome.reset_at.ceil_seconds(),
            Self::DeltaSeconds => seconds_to_reset(outcome),
        }
    }
}

/// The name of a rule's limit at `index`: the rule's `id` for its first limit, for a later one the
/// id and the window, such as `id/1s`, `id/month` or, without a window, `id/concurrency`.
///
/// ```
/// use tidegate_core::{Limit, headers::limit_name};
///
/// let (minute, second): (Limit, Limit) = ("100/minute".parse()?, "5/second".parse()?);
/// assert_eq!(limit_name("per-user", 0, &minute), "per-user");
/// assert_eq!(limit_name("per-user", 1, &second), "per-user/1s");
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
pub fn limit_name<'a>(id: &'a str, index: usize, limit: &Limit) -> Cow<'a, str> {
    match (index, limit.window()) {
        (0, _) => Cow::Borrowed(id),
        (_, Some(window)) => Cow::Owned(format!("{id}/{window}")),
        (_, None) => Cow::Owned(format!("{id}/{}", limit.algorithm().name())),
    }
}

impl<'a> Item<'a> {
    fn as_charged(&self) -> (Option<&'a Limit>, &'a Outcome) {
        (self.limit, self.outcome)
    }
}

/// Whole seconds after which a denied request may be repeated: the maximum over the limits that deny it. `None` if none
/// denies, or if waiting cannot help.
///
/// At least 1: a client that gets 0 comes back immediately, and is denied again. A concurrency limit counts 1,
/// because a permit may come free at any moment: its `retry` is when the first one ends by itself.
pub fn seconds_to_retry<'a>(
    charged: impl IntoIterator<Item = (Option<&'a Limit>, &'a Outcome)>,
) -> Option<u64> {
    let denying = charged.into_iter().filter(|(_, outcome)| !outcome.allowed);
    let mut longest = None;
    for (limit, outcome) in denying {
        let wait = outcome.retry.wait()?;
        let is_permit = limit.is_some_and(|limit| matches!(limit.form(), Form::Concurrency(_)));
        let seconds = if is_permit {
            1
        } else {
            wait.ceil_seconds().max(1)
        };
        longest = longest.max(Some(seconds));
    }
    longest
}

/// Whole seconds until everything is there again.
fn seconds_to_reset(outcome: &Outcome) -> u64 {
    outcome.reset_at.since(outcome.at).ceil_seconds()
}

#[cfg(test)]
mod tests;
