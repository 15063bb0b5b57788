//! Why bytes are not a question. Each front end turns it into its own reply, in one function.

/// Why bytes are not a question, with a message for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The question is malformed: the caller must change it.
    #[error("{0}")]
    Invalid(String),
    /// The message is larger than what is read.
    #[error("a message may have at most {most} bytes, this has {given}")]
    TooLarge {
        /// How many bytes it has.
        given: usize,
        /// How many are read.
        most: usize,
    },
    /// The question has a form that is not supported.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl CodecError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}
