//! How the usage of a request ended.

/// What became of the usage of a request, as metrics and logs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UsageResult {
    /// Never sent, or answered with another status than 2xx: nothing is charged.
    Failed,
    /// Reported, and charged as reported.
    Reported,
    /// Not reported: the estimate is charged.
    Missing,
    /// Not readable: the estimate is charged.
    Unreadable,
    /// Encoded, although that was not asked for: the estimate is charged.
    Encoded,
    /// Cut before final usage came: the input as reported if it was, the output as estimated or more.
    Cut,
}

impl UsageResult {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Failed,
        Self::Reported,
        Self::Missing,
        Self::Unreadable,
        Self::Encoded,
        Self::Cut,
    ];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Reported => "reported",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Encoded => "encoded",
            Self::Cut => "cut",
        }
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerEnd {
    /// The body is complete.
    Complete,
    /// The client left, or the server did, or the time was over.
    Cut,
}
