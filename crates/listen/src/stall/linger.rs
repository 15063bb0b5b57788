//! Reads on after the last answer. Closing a socket with unread bytes resets the connection, and the client may lose
//! the answer that explains the close.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use super::Deadline;

/// How long, and for how many bytes, to read on.
const LONGEST: Duration = Duration::from_secs(1);
const MOST_BYTES: usize = 256 * 1024;

/// Reads until the client closes too, within bounds.
#[derive(Debug, Default)]
pub struct Linger {
    discarded: usize,
    deadline: Option<Deadline>,
}

impl Linger {
    /// Reads and discards arrived bytes. Ready at the end, or if nothing has arrived and nothing is expected.
    pub fn poll<T>(&mut self, io: &mut T, cx: &mut Context<'_>, is_expected: bool) -> Poll<()>
    where
        T: AsyncRead + Unpin,
    {
        let mut bytes = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.discarded += buffer.filled().len();
                    if self.discarded > MOST_BYTES {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if self.discarded == 0 && !is_expected {
            return Poll::Ready(());
        }
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut deadline = Deadline::default();
            deadline.set(LONGEST);
            deadline
        });
        deadline.poll(cx)
    }
}
