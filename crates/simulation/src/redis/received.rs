//! Commands as bytes: what a connection has received and the server has not run yet.

/// The bytes of a connection, of which the last command may be incomplete.
#[derive(Debug, Default)]
pub(crate) struct ReceivedBytes {
    bytes: Vec<u8>,
}

impl ReceivedBytes {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete command: its name and arguments.
    pub(crate) fn next(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut at = 0;
        let count = self.number(&mut at, b'*')?;
        let mut command = Vec::with_capacity(count);
        for _ in 0..count {
            let length = self.number(&mut at, b'$')?;
            let argument = self.bytes.get(at..at + length)?.to_vec();
            self.bytes.get(at + length..at + length + 2)?;
            at += length + 2;
            command.push(argument);
        }
        self.bytes.drain(..at);
        Some(command)
    }

    /// The number on a line that begins with `kind`.
    fn number(&self, at: &mut usize, kind: u8) -> Option<usize> {
        let rest = self.bytes.get(*at..)?;
        let length = rest.windows(2).position(|end| end == b"\r\n")?;
        let line = rest.get(..length)?.strip_prefix(&[kind])?;
        *at += length + 2;
        str::from_utf8(line).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_when_they_are_complete() {
        let mut received = ReceivedBytes::default();
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n";
        for byte in &bytes[..21] {
            received.push(&[*byte]);
            assert_eq!(received.next(), None);
        }
        received.push(&bytes[21..]);
        let get = vec![b"GET".to_vec(), b"a\r\n".to_vec()];
        assert_eq!(received.next(), Some(get));
        assert_eq!(received.next(), Some(vec![b"PING".to_vec()]));
        assert_eq!(received.next(), None);
    }
}
