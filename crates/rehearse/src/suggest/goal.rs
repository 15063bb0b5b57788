//! What suggested limits must keep: a share of clients or of requests that may be denied.

/// A share, in millionths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuggestShare(u64);

/// Of this many parts a share is one.
const WHOLE: u64 = 100_000_000;

impl SuggestShare {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One percent.
    pub const ONE_PERCENT: Self = Self(WHOLE / 100);

    /// `1%` or `0.25%`, with up to six decimals.
    pub fn read(text: &str) -> Option<Self> {
        let percent = text.strip_suffix('%')?;
        let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 6 || whole.len() > 6 {
            return None;
        }
        let fraction: u64 = format!("{fraction:0<6}").parse().ok()?;
        Some(Self(whole.parse::<u64>().ok()? * (WHOLE / 100) + fraction))
    }

    /// Whether it is at most the whole.
    pub fn is_part(self) -> bool {
        self.0 <= WHOLE
    }

    /// It as a fraction of one.
    #[expect(clippy::cast_precision_loss, reason = "it is shown")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / WHOLE as f64
    }

    /// So much of a number, cut, if it is divided among `parts`.
    fn of(self, number: u64, parts: u64) -> u64 {
        let share = u128::from(number) * u128::from(self.0)
            / (u128::from(WHOLE) * u128::from(parts.max(1)));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// A number and so much more, rounded up.
    pub(super) fn on_top_of(self, number: u64) -> u64 {
        let raised = (u128::from(number) * (u128::from(WHOLE) + u128::from(self.0)))
            .div_ceil(u128::from(WHOLE));
        u64::try_from(raised).unwrap_or(u64::MAX)
    }
}

/// What suggested limits must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuggestGoal {
    /// At most this share of clients has a denied request.
    Clients(SuggestShare),
    /// At most this share of requests is denied.
    Requests(SuggestShare),
}

impl SuggestGoal {
    /// How many clients may have a denied request, if the goal is divided among so many limits.
    pub(super) fn clients(self, count: u64, limits: u64) -> Option<u64> {
        match self {
            Self::Clients(share) => Some(share.of(count, limits)),
            Self::Requests(_) => None,
        }
    }

    /// How many requests may be denied.
    pub(super) fn requests(self, count: u64, limits: u64) -> Option<u64> {
        match self {
            Self::Clients(_) => None,
            Self::Requests(share) => Some(share.of(count, limits)),
        }
    }

    /// Whether so many denied of all clients and of all requests keep it.
    pub(super) fn is_kept_by(self, clients: (u64, u64), requests: (u64, u64)) -> bool {
        self.clients(clients.0, 1)
            .is_none_or(|most| clients.1 <= most)
            && self
                .requests(requests.0, 1)
                .is_none_or(|most| requests.1 <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_cut_and_headroom_is_rounded_up() {
        let share = |text| SuggestShare::read(text).unwrap();
        assert_eq!(share("1%").of(199, 1), 1);
        assert_eq!(share("1%").of(200, 1), 2);
        assert_eq!(share("1%").of(200, 2), 1);
        assert_eq!(share("0.5%").of(1_000, 1), 5);
        assert_eq!(share("20%").on_top_of(11), 14);
        assert_eq!(SuggestShare::ZERO.on_top_of(11), 11);
        for text in ["", "1", "%", "x%", "-1%", "0.1234567%"] {
            assert_eq!(SuggestShare::read(text), None, "{text}");
        }
    }
}
