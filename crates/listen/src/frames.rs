//! Detects HTTP/2 clients that flood a connection with control frames such as `PRIORITY` and `WINDOW_UPDATE`. Each
//! costs a little work, gets no answer, and is not counted by hyper.
//!
//! A client earns control frames by its requests, by the data that it is sent, and over time. The clock is read
//! only when a client is about to run out.

use std::io;

use crate::clock::{Instant, now};

/// How many control frames a client has at the beginning, and earns per second, per header block that it
/// sends, and per data frame that it is sent.
const AT_FIRST: u64 = 1_000;
const PER_SECOND: u64 = 100;
const PER_HEADERS: u64 = 20;
const PER_DATA: u64 = 20;

/// The length of the client preface.
const PREFACE: u32 = 24;
const HEAD: usize = 9;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// The frames of one connection.
#[derive(Debug)]
pub(crate) struct Frames {
    from_client: Scan,
    to_client: Scan,
    earned: u64,
    spent: u64,
    /// When the earning of time began, and how many seconds were earned.
    since: Instant,
    seconds: u64,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self {
            from_client: Scan::after(PREFACE),
            to_client: Scan::after(0),
            earned: AT_FIRST,
            spent: 0,
            since: now(),
            seconds: 0,
        }
    }

    /// Inspects bytes from the client. An error if it sends too many control frames.
    pub(crate) fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut headers, mut idle) = (0, 0);
        self.from_client.each(bytes, |kind| match kind {
            HEADERS => headers += 1,
            // These are bounded elsewhere.
            DATA | PUSH_PROMISE | GOAWAY | CONTINUATION => {}
            _ => idle += 1,
        });
        self.earned += headers * PER_HEADERS;
        self.spent += idle;
        if self.spent > self.earned {
            return self.look_at_clock(now());
        }
        Ok(())
    }

    /// Inspects bytes to the client.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        let mut data = 0;
        self.to_client
            .each(bytes, |kind| data += u64::from(kind == DATA));
        self.earned += data * PER_DATA;
    }

    fn look_at_clock(&mut self, now: Instant) -> io::Result<()> {
        let seconds = now.duration_since(self.since).as_secs();
        self.earned += (seconds - self.seconds) * PER_SECOND;
        self.seconds = seconds;
        if self.spent > self.earned {
            return Err(io::Error::other(
                "the client floods the connection with control frames",
            ));
        }
        Ok(())
    }
}

/// Finds the frames in a stream of bytes.
#[derive(Debug)]
struct Scan {
    /// The beginning of an incomplete frame header.
    head: [u8; HEAD],
    length: usize,
    /// How many bytes are left before the next frame.
    left: u32,
}

impl Scan {
    fn after(left: u32) -> Self {
        Self {
            head: [0; HEAD],
            length: 0,
            left,
        }
    }

    /// Calls `found` with the type of each frame that begins in these bytes.
    fn each(&mut self, mut bytes: &[u8], mut found: impl FnMut(u8)) {
        loop {
            let skipped = bytes
                .len()
                .min(usize::try_from(self.left).unwrap_or(usize::MAX));
            bytes = &bytes[skipped..];
            self.left -= u32::try_from(skipped).unwrap_or(self.left);
            if bytes.is_empty() {
                return;
            }
            let taken = bytes.len().min(HEAD - self.length);
            self.head[self.length..self.length + taken].copy_from_slice(&bytes[..taken]);
            self.length += taken;
            bytes = &bytes[taken..];
            if self.length < HEAD {
                return;
            }
            self.length = 0;
            let [a, b, c, kind, ..] = self.head;
            self.left = u32::from_be_bytes([0, a, b, c]);
            found(kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PRIORITY: u8 = 2;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD + usize::from(length), 0xff);
        frame
    }

    fn opened() -> Frames {
        let mut frames = Frames::new();
        frames
            .received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        frames
    }

    #[test]
    fn frames_are_found_however_the_bytes_come() {
        let kinds = [4, 0, 8, 9, 0, 2];
        let mut text = vec![0xff; 24];
        for (kind, length) in kinds.into_iter().zip([6, 200, 4, 0, 0, 5]) {
            text.extend(frame(kind, length));
        }
        for step in 1..=text.len() {
            let (mut scan, mut seen) = (Scan::after(PREFACE), Vec::new());
            for piece in text.chunks(step) {
                scan.each(piece, |kind| seen.push(kind));
            }
            assert_eq!(seen, kinds, "in pieces of {step}");
        }
    }

    #[test]
    fn a_flood_is_cut_whatever_frames_it_is_made_of() {
        for (kind, length) in [
            (PRIORITY, 5),
            (WINDOW_UPDATE, 4),
            (PING, 8),
            (4, 0),
            (3, 4),
            (0x10, 9),
            (0xbe, 0),
        ] {
            let mut frames = opened();
            let flood = frame(kind, length).repeat(10);
            let sent = (0..1_000).take_while(|_| frames.received(&flood).is_ok());
            let sent = sent.count();
            assert!((100..200).contains(&sent), "{kind}: {sent}");
        }
    }

    #[test]
    fn a_download_and_many_requests_earn_what_clients_send_with_them() {
        let mut frames = opened();
        for _ in 0..10_000 {
            frames.sent(&frame(DATA, 1));
            frames.received(&frame(WINDOW_UPDATE, 4).repeat(2)).unwrap();
        }
        for _ in 0..10_000 {
            frames.received(&frame(HEADERS, 30)).unwrap();
            frames.received(&frame(PRIORITY, 5).repeat(4)).unwrap();
        }
    }

    #[test]
    fn a_client_that_pings_now_and_then_may_do_so_for_days() {
        let mut frames = opened();
        frames.spent = frames.earned;
        for day in 1..10 {
            let now = frames.since + Duration::from_hours(24) * day;
            frames.spent += 24 * 60 * 60;
            frames.look_at_clock(now).unwrap();
        }
    }
}
