//! Writes replies, in the protocol version of the client.

use std::io::Write as _;

/// The protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RespVersion {
    #[default]
    Resp2,
    Resp3,
}

/// Replies that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    pub(super) protocol: RespVersion,
}

impl Replies {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Drops sent bytes, and the memory of an unusually large batch.
    pub(super) fn clear(&mut self, usual: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(usual);
    }

    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: an upper-case code for programs, and a message for people.
    pub(super) fn error(&mut self, code: &str, message: &str) {
        self.bytes.push(b'-');
        self.bytes.extend_from_slice(code.as_bytes());
        self.bytes.push(b' ');
        // An error must stay one line, even if it quotes a client.
        let line = message.bytes().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        });
        self.bytes.extend(line);
        self.end();
    }

    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.bytes.push(b':');
        self.digits(number);
        self.end();
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.count(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            RespVersion::Resp2 => b"$-1\r\n",
            RespVersion::Resp3 => b"_\r\n",
        });
    }

    pub(super) fn boolean(&mut self, value: bool) {
        match self.protocol {
            RespVersion::Resp2 => self.integer(i64::from(value)),
            RespVersion::Resp3 => self.line(b'#', if value { "t" } else { "f" }),
        }
    }

    /// Seconds with up to six decimals: text in RESP2, which has only whole numbers.
    pub(super) fn seconds(&mut self, micros: u64) {
        let mut text = Vec::with_capacity(24);
        crate::seconds::write_seconds(&mut text, micros);
        match self.protocol {
            RespVersion::Resp2 => self.bulk(&text),
            RespVersion::Resp3 => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(&text);
                self.end();
            }
        }
    }

    /// The start of an array of `count` values.
    pub(super) fn array(&mut self, count: usize) {
        self.count(b'*', count);
    }

    /// The start of a map of `count` pairs: in RESP2 an array of twice as many values.
    pub(super) fn map(&mut self, count: usize) {
        match self.protocol {
            RespVersion::Resp2 => self.count(b'*', count * 2),
            RespVersion::Resp3 => self.count(b'%', count),
        }
    }

    #[inline]
    fn count(&mut self, kind: u8, count: usize) {
        self.bytes.push(kind);
        self.digits(i64::try_from(count).unwrap_or(i64::MAX));
        self.end();
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    #[inline]
    fn digits(&mut self, number: i64) {
        match u8::try_from(number) {
            Ok(digit @ 0..=9) => self.bytes.push(b'0' + digit),
            Ok(small @ 10..=99) => {
                let digits = [b'0' + small / 10, b'0' + small % 10];
                self.bytes.extend_from_slice(&digits);
            }
            // Writing to a vector does not fail.
            _ => drop(write!(self.bytes, "{number}")),
        }
    }

    #[inline]
    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: RespVersion, write: impl Fn(&mut Replies)) -> String {
        let mut replies = Replies {
            protocol,
            ..Replies::default()
        };
        write(&mut replies);
        String::from_utf8(replies.bytes).unwrap()
    }

    #[test]
    fn replies_by_hand() {
        #[rustfmt::skip]
        type Row = (fn(&mut Replies), &'static str, &'static str);
        let table: [Row; 10] = [
            (|r| r.simple("OK"), "+OK\r\n", "+OK\r\n"),
            (
                |r| r.error("ERR", "a\r\n+b"),
                "-ERR a  +b\r\n",
                "-ERR a  +b\r\n",
            ),
            (|r| r.integer(-1), ":-1\r\n", ":-1\r\n"),
            (|r| r.integer(42), ":42\r\n", ":42\r\n"),
            (
                |r| r.integer(i64::MAX),
                ":9223372036854775807\r\n",
                ":9223372036854775807\r\n",
            ),
            (|r| r.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (Replies::null, "$-1\r\n", "_\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.seconds(600_000), "$3\r\n0.6\r\n", ",0.6\r\n"),
            (|r| r.map(3), "*6\r\n", "%3\r\n"),
        ];
        for (write, second, third) in table {
            assert_eq!(written(RespVersion::Resp2, write), second);
            assert_eq!(written(RespVersion::Resp3, write), third);
        }
    }
}
