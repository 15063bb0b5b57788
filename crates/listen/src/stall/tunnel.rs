//! Copies bytes both ways, for upgraded connections such as WebSocket.

use std::io;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio_util::io::InspectReader;

use super::{Moves, Stalled};

/// Copies bytes both ways until one end closes. An error if neither sends anything for a whole timeout.
pub async fn copy_both_ways<A, B>(one: A, other: B, timeout: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moves = &Moves::default();
    let mut one = InspectReader::new(one, |_| moves.note());
    let mut other = InspectReader::new(other, |_| moves.note());
    tokio::select! {
        copied = copy_bidirectional(&mut one, &mut other) => copied.map(drop),
        () = moves.stalled(timeout) => Err(Stalled.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::clock::now;

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_lasts_while_either_side_sends() {
        let (timeout, pause) = (Duration::from_secs(10), Duration::from_secs(9));
        let ((mut client, one), (mut server, other)) = (duplex(64), duplex(64));
        let start = now();
        let copying = tokio::spawn(copy_both_ways(one, other, timeout));
        for _ in 0..5 {
            tokio::time::sleep(pause).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'x');
        }
        let ended = copying.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        let silent = start.elapsed().saturating_sub(pause * 5);
        assert!((timeout..timeout * 2).contains(&silent), "{silent:?}");
    }
}
