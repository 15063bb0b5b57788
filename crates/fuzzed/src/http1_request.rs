//! Requests of HTTP/1: the strict framing reader in front of hyper accepts what hyper accepts, with the same
//! boundaries, or less.

use tidegate_listen::fuzzing::{FramingVerdict, read_framing};

use crate::hyper_server::{ServedRequest, serve};

/// A form of requests that hyper accepts and the reader refuses.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the test of the table reads all of it")
)]
struct StricterRequest {
    /// Why it is refused.
    reason: &'static str,
    /// Whether a request that begins with these bytes has this form.
    is_in: fn(&[u8]) -> bool,
    example: &'static str,
}

/// All differences to hyper. There are none in the other direction.
const STRICTER: [StricterRequest; 4] = [
    StricterRequest {
        reason: "a line ends in a bare newline, which some servers do not take for an end",
        is_in: |request| {
            let newlines = request
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'\n');
            newlines
                .map(|(index, _)| index.checked_sub(1).map(|before| request[before]))
                .any(|before| before != Some(b'\r'))
        },
        example: "GET / HTTP/1.1\nhost: a\r\n\r\n",
    },
    StricterRequest {
        reason: "there are several lengths, even if they are the same",
        is_in: |request| values(request, "content-length").count() > 1,
        example: "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
    },
    StricterRequest {
        reason: "there are a length and a coding",
        is_in: |request| {
            let has = |name| values(request, name).next().is_some();
            has("content-length") && has("transfer-encoding")
        },
        example: "POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    },
    StricterRequest {
        reason: "the coding is more than `chunked`",
        is_in: |request| {
            let mut codings = values(request, "transfer-encoding");
            let first = codings.next();
            let is_chunked = |value: &[u8]| value.eq_ignore_ascii_case(b"chunked");
            first.is_some_and(|first| !is_chunked(first)) || codings.next().is_some()
        },
        example: "POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    },
];

/// The values of a header in the head that these bytes begin with. Written without the reader that is checked.
fn values<'r>(request: &'r [u8], name: &'static str) -> impl Iterator<Item = &'r [u8]> {
    let lines = request.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.skip_while(|line| line.is_empty());
    let head = std::iter::from_fn(move || lines.next().filter(|line| !line.is_empty()));
    head.skip(1).filter_map(move |line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (found, value) = line.split_at(colon);
        let is_it = found.eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| value[1..].trim_ascii())
    })
}

/// The same verdict however the bytes arrive; the boundaries of hyper; and nothing that hyper refuses.
pub fn check(bytes: &[u8]) {
    let verdict = read_framing(bytes, 1);
    for step in [2, 7, bytes.len()] {
        same_in_pieces(&verdict, &read_framing(bytes, step), step);
    }
    let alone = serve(bytes);
    let behind = serve(&bytes[..verdict.passed]);
    assert!(
        alone.starts_with(&behind),
        "behind the reader hyper sees other requests: {behind:?}, and without it {alone:?}"
    );
    same_boundaries(bytes, &verdict, &behind);
    if alone.len() > behind.len() {
        let start = start_of(&verdict, behind.len());
        let refused = &bytes[start..];
        assert!(
            verdict.is_refused || verdict.is_invalid,
            "a request was neither passed on nor refused"
        );
        assert!(
            STRICTER.iter().any(|form| (form.is_in)(refused)),
            "hyper accepts {}, and no row of the table says why the reader does not",
            refused.escape_ascii()
        );
    }
}

fn same_in_pieces(verdict: &FramingVerdict, other: &FramingVerdict, step: usize) {
    let refusals = |verdict: &FramingVerdict| (verdict.is_refused, verdict.is_invalid);
    assert_eq!(refusals(verdict), refusals(other), "in pieces of {step}");
    if verdict.is_invalid {
        // Of the piece with the invalid byte, nothing is passed on.
        assert!(other.passed <= verdict.passed, "in pieces of {step}");
    } else if verdict.is_refused {
        // The line that is refused is passed on as far as it arrived in earlier pieces.
        assert!(other.passed <= verdict.passed, "in pieces of {step}");
    } else {
        assert_eq!(verdict.passed, other.passed, "in pieces of {step}");
    }
}

/// Each request alone, cut out by the reader's boundaries, is that request to hyper, and one byte less of it is none.
fn same_boundaries(bytes: &[u8], verdict: &FramingVerdict, served: &[ServedRequest]) {
    assert!(
        served.len() <= verdict.ends.len(),
        "hyper sees {} complete requests where the reader sees {}",
        served.len(),
        verdict.ends.len()
    );
    for (index, request) in served.iter().enumerate() {
        let alone = &bytes[start_of(verdict, index)..verdict.ends[index]];
        assert_eq!(
            serve(alone),
            std::slice::from_ref(request),
            "the request that the reader ends at {}",
            verdict.ends[index]
        );
        let shorter = serve(&alone[..alone.len() - 1]);
        assert!(
            shorter.is_empty(),
            "hyper ends a request earlier: {shorter:?}"
        );
    }
}

fn start_of(verdict: &FramingVerdict, index: usize) -> usize {
    index
        .checked_sub(1)
        .map_or(0, |before| verdict.ends[before])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_differences_is_true() {
        for form in &STRICTER {
            let request = form.example.as_bytes();
            assert_eq!(serve(request).len(), 1, "hyper accepts: {}", form.reason);
            let verdict = read_framing(request, 1);
            assert!(verdict.is_refused || verdict.is_invalid, "{}", form.reason);
            assert!(serve(&request[..verdict.passed]).is_empty());
            let forms = STRICTER.iter().filter(|other| (other.is_in)(request));
            assert_eq!(forms.count(), 1, "one reason: {}", form.reason);
            check(request);
        }
    }
}
