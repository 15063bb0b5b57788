//! Reads when a rule starts and when it expires.

use tidegate_core::Timestamp;

use crate::internal::document::{Node, Problems, Spot};

/// From when until when a rule applies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Validity {
    pub(super) starts_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
}

impl Validity {
    pub(super) fn read(
        starts_at: Option<(Spot, &Node)>,
        expires_at: Option<(Spot, &Node)>,
        problems: &mut Problems,
    ) -> Self {
        let mut read = |(spot, node): (Spot, &Node)| spot.parsed(node, read_time, problems);
        let validity = Self {
            starts_at: starts_at.clone().and_then(&mut read),
            expires_at: expires_at.and_then(&mut read),
        };
        if let (Some(start), Some(end)) = (validity.starts_at, validity.expires_at)
            && start >= end
            && let Some((spot, node)) = starts_at
        {
            let message = "`starts_at` is not before `expires_at`, so the rule would never apply; exchange the two, or remove one";
            problems.error(&node.place, &spot, message);
        }
        validity
    }
}

/// Reads a time as rules write it, such as `2027-01-01T00:00:00Z`.
#[doc(hidden)]
pub fn read_time(text: &str) -> Result<Timestamp, String> {
    let refused = || {
        format!(
            "`{text}` is not a time between 1970 and 2255; write for example `2027-01-01T00:00:00Z`"
        )
    };
    let time: jiff::Timestamp = text.parse().map_err(|_| without_zone(text, refused()))?;
    let micros = u64::try_from(time.as_microsecond()).map_err(|_| refused())?;
    let timestamp = Timestamp::from_micros(micros);
    if timestamp.as_micros() != micros {
        return Err(refused());
    }
    Ok(timestamp)
}

/// The message for a time that lacks only its zone; `otherwise` for any other mistake.
fn without_zone(text: &str, otherwise: String) -> String {
    match text.parse::<jiff::civil::DateTime>() {
        Ok(time) => format!("`{text}` has no time zone; write `{time}Z` for UTC"),
        Err(_) => otherwise,
    }
}
