//! A limit as written, before an algorithm is chosen for it.

use std::fmt;

use super::{LimitError, Window, within};
use crate::time::Micros;

/// Requests per window, with burst, as an operator writes it.
///
/// Parsed from `100/minute burst 20`, `10 per 2 hours`, `5/30s`; nothing is validated beyond the
/// form of the text until a [`Limit`](super::Limit) is made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Rate {
    /// Requests per window, or holders at once.
    pub count: u64,
    /// The window; none for concurrency.
    pub window: Option<Window>,
    /// The capacity of a bucket, if it is not the count.
    pub burst: Option<u64>,
}

impl Rate {
    /// `count` requests per `window`.
    pub fn new(count: u64, window: impl Into<Window>) -> Self {
        Self {
            count,
            window: Some(window.into()),
            burst: None,
        }
    }

    /// `count` requests per second.
    pub fn per_second(count: u64) -> Self {
        Self::new(count, Micros::SECOND)
    }

    /// `count` requests per minute.
    pub fn per_minute(count: u64) -> Self {
        Self::new(count, Micros::MINUTE)
    }

    /// `count` requests per hour.
    pub fn per_hour(count: u64) -> Self {
        Self::new(count, Micros::HOUR)
    }

    /// `count` holders at once, which have no window.
    pub fn concurrent(count: u64) -> Self {
        Self {
            count,
            window: None,
            burst: None,
        }
    }

    /// The same rate with another count.
    #[must_use]
    pub fn with_count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// The same rate with room for `burst` requests at once.
    #[must_use]
    pub fn burst(self, burst: u64) -> Self {
        Self {
            burst: Some(burst),
            ..self
        }
    }

    /// The same rate with the default burst.
    #[must_use]
    pub fn without_burst(self) -> Self {
        Self {
            burst: None,
            ..self
        }
    }

    pub(super) fn some_window(&self) -> Result<Window, LimitError> {
        let window = self
            .window
            .ok_or(LimitError::WindowMissing { count: self.count })?;
        if let Window::Span(span) = window {
            within("window", span)?;
        }
        Ok(window)
    }
}

/// As people write it: `100/minute burst 20`, `10/2h`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        if let Some(window) = self.window {
            let words = [
                (Micros::SECOND, "second"),
                (Micros::MINUTE, "minute"),
                (Micros::HOUR, "hour"),
                (Micros::DAY, "day"),
                (Micros::WEEK, "week"),
            ];
            match words.iter().find(|(span, _)| window == (*span).into()) {
                Some((_, word)) => write!(f, "/{word}")?,
                None => write!(f, "/{window}")?,
            }
        }
        if let Some(burst) = self.burst {
            write!(f, " burst {burst}")?;
        }
        Ok(())
    }
}
