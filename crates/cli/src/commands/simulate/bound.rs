//! How much may be denied: a number of requests, or a share of them.

/// A number, or a share in millionths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeniedBound {
    Requests(u64),
    Share(u64),
}

/// Millionths in one.
const PART: u64 = 1_000_000;

impl DeniedBound {
    /// `100`, `1%` or `0.25%`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let wrong = || "write a number of requests, or a share such as `0.5%`".to_owned();
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(Self::Requests).map_err(|_| wrong());
        };
        let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 6 || whole.len() > 3 {
            return Err(wrong());
        }
        let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
        let share = whole.parse::<u64>().map_err(|_| wrong())? * PART + fraction;
        (share <= 100 * PART)
            .then_some(Self::Share(share))
            .ok_or_else(wrong)
    }

    /// Whether `denied` of `requests` are more.
    pub(super) fn is_exceeded(self, denied: u64, requests: u64) -> bool {
        match self {
            Self::Requests(most) => denied > most,
            Self::Share(share) => {
                u128::from(denied) * u128::from(100 * PART)
                    > u128::from(share) * u128::from(requests)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_by_hand() {
        let is_exceeded = |text: &str, denied, requests| {
            DeniedBound::read(text)
                .unwrap()
                .is_exceeded(denied, requests)
        };
        assert!(!is_exceeded("3", 3, 10));
        assert!(is_exceeded("3", 4, 10));
        assert!(!is_exceeded("10%", 1, 10));
        assert!(is_exceeded("9.99%", 1, 10));
        assert!(!is_exceeded("0%", 0, 0));
        assert!(is_exceeded("0", 1, 1));
        for text in ["", "%", "x", "-1", "1.5", "101%", "0.0000001%", "1e3%"] {
            assert!(DeniedBound::read(text).is_err(), "{text}");
        }
    }
}
