//! The replies of the simulated server, as values and as bytes.

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RedisReply {
    Status(&'static str),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    List(Vec<RedisReply>),
    Nothing,
}

impl RedisReply {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    pub(crate) fn error(problem: impl Into<String>) -> Self {
        Self::Error(problem.into())
    }

    /// The number of something.
    pub(crate) fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Appends the bytes that a client reads, in the second version of the protocol.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, kind: u8, text: &[u8]| {
            out.push(kind);
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        };
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.replace(['\r', '\n'], " ").as_bytes()),
            Self::Integer(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Nothing => line(out, b'$', b"-1"),
            Self::Bulk(bytes) => {
                line(out, b'$', bytes.len().to_string().as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::List(replies) => {
                line(out, b'*', replies.len().to_string().as_bytes());
                for reply in replies {
                    reply.write(out);
                }
            }
        }
    }
}
