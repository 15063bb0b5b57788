//! Limits as JavaScript gives them: a text such as `100/minute; 5/second`, and the name of an algorithm or none.

use std::error::Error;

use tidegate_core::{Algorithm, Anchor, Limit, LimitError, Micros, Rate};

/// Reads limits. Without a name each is counted by the algorithm that is the default for it.
pub(crate) fn read_limits(text: &str, algorithm: &str) -> Result<Vec<Limit>, Box<dyn Error>> {
    let algorithm = match algorithm {
        "" => None,
        name => Some(Algorithm::named(name)?),
    };
    let limit = |rate: Rate| {
        let algorithm = algorithm.unwrap_or_else(|| Algorithm::default_for(&rate));
        Limit::new(rate, algorithm)
    };
    let rates = Rate::parse_all(text)?.into_iter();
    let limits = rates.map(limit).collect::<Result<Vec<_>, _>>()?;
    if limits.is_empty() {
        return Err(LimitError::NoLimit.into());
    }
    let mut later = limits.iter().enumerate();
    let is_double = |(index, limit): &(usize, &Limit)| {
        let earlier = &limits[..*index];
        earlier.iter().any(|other| other.shape() == limit.shape())
    };
    match later.find(is_double) {
        Some((_, limit)) => Err(LimitError::SameShapeTwice { rate: limit.rate() }.into()),
        None => Ok(limits),
    }
}

/// The limit of a store of another limiter: `count` in a window, which begins with the first request if it is fixed.
pub(crate) fn store_limit(
    count: u64,
    window: Micros,
    algorithm: Algorithm,
) -> Result<Limit, LimitError> {
    let algorithm = match algorithm {
        Algorithm::FixedWindow { .. } => Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        other => other,
    };
    Limit::new(Rate::new(count, window), algorithm)
}
