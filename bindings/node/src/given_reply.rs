//! A reply of Redis as JavaScript brings it: a line for each value, `*` and the number of values that follow, `:` and a
//! number, or `$` and a text.

use tidegate_redis_wire::value::ReplyValue;

/// The deepest list in a reply: of an answer within the answers to all steps.
const DEEPEST: usize = 4;

/// A value of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenReply {
    Number(i64),
    Text(String),
    Values(Vec<GivenReply>),
}

impl GivenReply {
    /// Reads the lines of one value; none if they are not that.
    pub(crate) fn read(lines: &str) -> Option<Self> {
        let mut lines = lines.split('\n');
        let value = Self::next(&mut lines, 0)?;
        lines.next().is_none().then_some(value)
    }

    fn next<'a>(lines: &mut impl Iterator<Item = &'a str>, depth: usize) -> Option<Self> {
        let line = lines.next().filter(|_| depth <= DEEPEST)?;
        let rest = line.get(1..)?;
        match line.as_bytes().first()? {
            b':' => rest.parse().ok().map(Self::Number),
            b'$' => Some(Self::Text(rest.to_owned())),
            b'*' => {
                let count: usize = rest.parse().ok()?;
                let values = (0..count).map(|_| Self::next(lines, depth + 1));
                values.collect::<Option<Vec<_>>>().map(Self::Values)
            }
            _ => None,
        }
    }
}

impl ReplyValue for GivenReply {
    fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::Values(_) => None,
        }
    }

    fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text.as_bytes()),
            Self::Number(_) | Self::Values(_) => None,
        }
    }

    fn values(&self) -> Option<&[Self]> {
        match self {
            Self::Values(values) => Some(values),
            Self::Number(_) | Self::Text(_) => None,
        }
    }
}
