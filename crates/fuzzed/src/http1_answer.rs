//! Answers of HTTP/1: the client of the gateway accepts what hyper's client accepts, with the same content and
//! boundaries, or less.

use http::{HeaderMap, Method, Version};
use tidegate_gateway::fuzzing::{AnswerRefusal, ReadAnswer, read_answer};

use crate::hyper_client::{ReceivedAnswer, receive};

/// As many headers as the gateway's client takes; hyper's default is fewer.
const MOST_HEADERS: usize = 128;

/// A refusal of the gateway's client where hyper's may accept the answer.
struct StricterAnswer {
    refusal: AnswerRefusal,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the test of the table"))]
    example: &'static str,
}

/// All differences to hyper, but for bounds on sizes. There are none in the other direction.
const STRICTER: [StricterAnswer; 4] = [
    // The client of the gateway could choose another of them.
    StricterAnswer {
        refusal: AnswerRefusal::TwoLengths,
        example: "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    },
    // Also the list `1, 1`, and where the length is not used, as after `HEAD`.
    StricterAnswer {
        refusal: AnswerRefusal::Malformed("invalid content length"),
        example: "HTTP/1.1 204 No Content\r\ncontent-length: x\r\n\r\n",
    },
    // To hyper, the trailers end at the bare newline and the answer does not; what is between them is dropped.
    StricterAnswer {
        refusal: AnswerRefusal::Malformed("a trailer ends in a bare newline"),
        example: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\n\r\nc\r\n\r\n",
    },
    // No upgrade was asked for.
    StricterAnswer {
        refusal: AnswerRefusal::Upgrade,
        example: "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    },
];

/// The methods that the first byte of an input chooses from.
const METHODS: [Method; 3] = [Method::GET, Method::HEAD, Method::POST];

/// The same answer however the bytes arrive; the content and the boundaries of hyper; and nothing that hyper
/// refuses.
pub fn check(input: &[u8]) {
    let Some((method, bytes)) = input.split_first() else {
        return;
    };
    let method = &METHODS[usize::from(*method) % METHODS.len()];
    let answer = read_answer(method, bytes, 1);
    for step in [2, 7, bytes.len()] {
        let again = read_answer(method, bytes, step);
        assert_eq!(answer, again, "in pieces of {step}");
    }
    let received = receive(method, bytes, MOST_HEADERS);
    match (answer, received) {
        (Ok(answer), Some(received)) => {
            same_content(&answer, &received);
            same_boundaries(method, bytes, &answer);
        }
        (Ok(answer), None) => unreachable!("hyper does not read {answer:?}"),
        (Err(_), None) => {}
        (Err(refusal), Some(received)) => assert!(
            STRICTER.iter().any(|form| form.refusal == refusal),
            "hyper reads {received:?}, and no row of the table says why the gateway does not: {refusal:?}"
        ),
    }
}

fn same_content(answer: &ReadAnswer, received: &ReceivedAnswer) {
    assert_eq!(answer.status, received.status);
    assert_eq!(answer.version, received.version);
    let expected = without_keep_alive(received.version, &received.headers);
    assert_eq!(
        without_keep_alive(answer.version, &answer.headers),
        expected
    );
    assert_eq!(answer.body, received.body);
    assert_eq!(answer.trailers, received.trailers);
}

/// Without a header that says what HTTP/1.1 does anyway, which the gateway drops.
fn without_keep_alive(version: Version, headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let all = headers.iter();
    let mut pairs: Vec<(String, Vec<u8>)> = all
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .filter(|(name, value)| {
            version != Version::HTTP_11
                || name != "connection"
                || !value.eq_ignore_ascii_case(b"keep-alive")
        })
        .collect();
    // Sorted by name: the order of the values of one name stays.
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    pairs
}

/// The answer alone, cut out by our boundary, is the same to hyper, and one byte less of it is none.
fn same_boundaries(method: &Method, bytes: &[u8], answer: &ReadAnswer) {
    let alone = &bytes[..answer.length];
    let Some(received) = receive(method, alone, MOST_HEADERS) else {
        unreachable!("hyper needs more than the {} bytes of it", answer.length)
    };
    same_content(answer, &received);
    if !answer.is_until_close {
        let shorter = receive(method, &alone[..alone.len() - 1], MOST_HEADERS);
        assert!(shorter.is_none(), "hyper ends it earlier: {shorter:?}");
        return;
    }
    assert_eq!(answer.length, bytes.len(), "all bytes belong to it");
    assert!(!answer.is_kept, "it ends with the connection");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_differences_is_true() {
        for form in &STRICTER {
            let answer = form.example.as_bytes();
            let received = receive(&Method::GET, answer, MOST_HEADERS);
            assert!(received.is_some(), "hyper accepts {}", form.example);
            let refusal = read_answer(&Method::GET, answer, 1).unwrap_err();
            assert_eq!(refusal, form.refusal, "{}", form.example);
        }
    }
}
