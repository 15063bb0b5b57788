//! How much beyond its limit a rule may admit when a fault happens: the bounds that the guide *One node to many* states.

use crate::rules::{CountedRule, CountedShape, FailureMode};

/// What a fault does to the state that Redis keeps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OverBound {
    /// How often Redis loses what it has acknowledged: each time a key may get its limit once more.
    losses: u32,
    /// The most of these in one fixed window.
    losses_in_a_window: u32,
    /// How many windows of a bucket the outages of a flapping Redis touch.
    outages: u32,
}

impl OverBound {
    /// Redis keeps what it has acknowledged.
    pub(crate) fn nothing_lost() -> Self {
        Self::default()
    }

    /// Redis loses its state once.
    pub(crate) fn lost_once() -> Self {
        Self::lost(1, 1)
    }

    /// Redis loses its state that often in all, and in one fixed window.
    pub(crate) fn lost(losses: u32, losses_in_a_window: u32) -> Self {
        Self {
            losses,
            losses_in_a_window,
            outages: 0,
        }
    }

    /// Redis comes and goes, and so many windows of a bucket see an outage.
    pub(crate) fn flapping(mut self, outages: u32) -> Self {
        self.outages = outages;
        self
    }

    /// The most that a rule may admit beyond its limit, given whether any of its answers was degraded.
    pub(crate) fn of(self, rule: CountedRule, is_degraded: bool) -> u32 {
        let is_local = is_degraded && rule.mode == FailureMode::Local;
        let times = match rule.shape {
            CountedShape::FixedWindow => self.losses_in_a_window + u32::from(is_local),
            CountedShape::TokenBucket => self.losses + u32::from(is_local) * self.outages.max(1),
        };
        rule.limit() * times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleSync;

    use CountedShape::{FixedWindow, TokenBucket};
    use FailureMode::{Deny, Local};

    #[test]
    fn a_bound_follows_from_losses_and_outages() {
        let rule = |shape, mode| CountedRule {
            shape,
            mode,
            sync: RuleSync::Exact,
        };
        let none = OverBound::nothing_lost();
        #[rustfmt::skip]
        let table = [
            ("no fault",             none,                        FixedWindow, Local, false, 0),
            ("an outage, denied",    none,                        FixedWindow, Deny,  true,  0),
            ("an outage, local",     none,                        FixedWindow, Local, true,  100),
            ("an outage, a bucket",  none,                        TokenBucket, Local, true,  50),
            ("a flapping Redis",     none.flapping(5),            TokenBucket, Local, true,  250),
            ("lost once, denied",    OverBound::lost_once(),      FixedWindow, Deny,  true,  100),
            ("lost once, local",     OverBound::lost_once(),      FixedWindow, Local, true,  200),
            ("lost three times",     OverBound::lost(3, 1),       TokenBucket, Deny,  false, 150),
            ("one in each window",   OverBound::lost(3, 1),       FixedWindow, Deny,  false, 100),
        ];
        for (name, bound, shape, mode, is_degraded, expected) in table {
            let got = bound.of(rule(shape, mode), is_degraded);
            assert_eq!(got, expected, "{name}");
        }
    }
}
