//! Writes replies, in the protocol version of the client.

/// The protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RespVersion {
    /// Without maps, booleans and numbers with decimals.
    #[default]
    Resp2,
    /// With them.
    Resp3,
}

/// Replies that wait to be sent.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// The version that the client chose.
    pub protocol: RespVersion,
}

impl Replies {
    /// The replies.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether no reply waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The length of the replies.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Drops sent bytes, and the memory of an unusually large batch.
    pub fn clear(&mut self, usual: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(usual);
    }

    /// A short text.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: an upper-case code for programs, and a message for people.
    pub fn error(&mut self, code: &str, message: &str) {
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

    /// A whole number.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.bytes.push(b':');
        self.digits(number);
        self.end();
    }

    /// Any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.count(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// No value.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            RespVersion::Resp2 => b"$-1\r\n",
            RespVersion::Resp3 => b"_\r\n",
        });
    }

    /// A boolean: a number in RESP2.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            RespVersion::Resp2 => self.integer(i64::from(value)),
            RespVersion::Resp3 => self.line(b'#', if value { "t" } else { "f" }),
        }
    }

    /// Seconds with up to six decimals: text in RESP2, which has only whole numbers.
    pub fn seconds(&mut self, micros: u64) {
        let mut text = Vec::with_capacity(24);
        crate::write_seconds(&mut text, micros);
        match self.protocol {
            RespVersion::Resp2 => self.bulk(&text),
            RespVersion::Resp3 => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(&text);
                self.end();
            }
        }
    }

    /// An array of five whole numbers, in one step: the answer of `CL.THROTTLE`.
    #[inline]
    pub(super) fn five_integers(&mut self, numbers: [i64; 5]) {
        // The kind, a sign, 19 digits, and the end of the line; before all, the head of the array.
        const LONGEST: usize = 23;
        const HEAD: [u8; 4] = *b"*5\r\n";
        let mut bytes = [0; HEAD.len() + 5 * LONGEST];
        // From the end, where the last digits are known first. Byte by byte: these are too few for a copy.
        let mut at = bytes.len();
        let mut put = |byte| {
            at -= 1;
            bytes[at] = byte;
        };
        for number in numbers.into_iter().rev() {
            put(b'\n');
            put(b'\r');
            let mut left = number.unsigned_abs();
            while left > 9 {
                put(digit(left % 10));
                left /= 10;
            }
            put(digit(left));
            if number < 0 {
                put(b'-');
            }
            put(b':');
        }
        HEAD.into_iter().rev().for_each(put);
        self.bytes.extend_from_slice(&bytes[at..]);
    }

    /// The start of an array of `count` values.
    pub fn array(&mut self, count: usize) {
        self.count(b'*', count);
    }

    /// The start of a map of `count` pairs: in RESP2 an array of twice as many values.
    pub fn map(&mut self, count: usize) {
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
            _ => {
                let mut digits = itoa::Buffer::new();
                let digits = digits.format(number).as_bytes();
                self.bytes.extend_from_slice(digits);
            }
        }
    }

    #[inline]
    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// A number below ten, as text.
#[inline]
fn digit(number: u64) -> u8 {
    b'0' + number.to_le_bytes()[0]
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
    fn five_numbers_are_written_as_one_by_one() {
        let edges = [0, 1, -1, 9, 10, 99, 100, 1_000_000, i64::MAX, i64::MIN];
        for first in edges {
            for second in edges {
                let numbers = [first, second, first, second, second];
                let together = written(RespVersion::Resp2, |r| r.five_integers(numbers));
                let alone = written(RespVersion::Resp2, |r| {
                    r.array(5);
                    for number in numbers {
                        r.integer(number);
                    }
                });
                assert_eq!(together, alone);
            }
        }
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
