//! What a proxy does with connections and with bytes.

use std::time::Duration;

/// What happens to connections and to what goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultMode {
    /// Everything passes.
    #[default]
    Pass,
    /// Everything passes that much later, in each direction.
    Delay(Duration),
    /// Requests pass at once, replies that much later.
    DelayReplies(Duration),
    /// Everything waits, and passes when the mode changes: a network that heals.
    Stall,
    /// Requests reach the server, replies are lost.
    LoseReplies,
    /// Connections are accepted and nothing passes; what is sent is lost.
    BlackHole,
    /// New connections are refused, open ones go on.
    Refuse,
    /// Open connections are closed, new ones refused.
    Cut,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Requests,
    Replies,
}

impl FaultMode {
    pub(super) fn refuses(self) -> bool {
        matches!(self, Self::Refuse | Self::Cut)
    }

    /// Whether bytes that arrive now are lost.
    pub(super) fn loses(self, direction: Direction) -> bool {
        match self {
            Self::BlackHole | Self::Cut => true,
            Self::LoseReplies => direction == Direction::Replies,
            Self::Pass | Self::Delay(_) | Self::DelayReplies(_) | Self::Stall | Self::Refuse => {
                false
            }
        }
    }

    /// How much later bytes that arrive now are sent on.
    pub(super) fn delay(self, direction: Direction) -> Duration {
        match (self, direction) {
            (Self::Delay(delay), _) | (Self::DelayReplies(delay), Direction::Replies) => delay,
            _ => Duration::ZERO,
        }
    }
}
