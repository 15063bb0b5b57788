//! Writes the heads of requests and parses those of answers.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, request, response};
use smallvec::SmallVec;

use super::Broken;
use super::download::{ChunkPosition, Download};
use super::upload::BodyFraming;
use crate::forwarded::ForwardedHeaders;

/// The longest head of an answer, and the most headers.
const LONGEST_HEAD: usize = 256 * 1024;
const MOST_HEADERS: usize = 128;

/// The most heads for one request, interim ones included.
const MOST_HEADS: u32 = 64;

const NO_LENGTH: Broken = Broken::Malformed("invalid content length");

/// Spare capacity for the headers that are added to an answer later.
const MOST_OWN_HEADERS: usize = 6;

/// Writes the head of a request, with `host` in place of its own if given, and with the `forwarded` headers.
pub(super) fn write(
    text: &mut Vec<u8>,
    head: &request::Parts,
    host: Option<&HeaderValue>,
    forwarded: Option<&ForwardedHeaders>,
    framing: Option<BodyFraming>,
) {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    text.extend_from_slice(head.method.as_str().as_bytes());
    text.push(b' ');
    text.extend_from_slice(path.as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = host {
        write_header(text, &HOST, host.as_bytes());
    }
    for (name, value) in &head.headers {
        // The length is written once, by the framing of the body.
        if (host.is_none() || name != HOST) && name != CONTENT_LENGTH {
            write_header(text, name, value.as_bytes());
        }
    }
    for (name, value) in forwarded.into_iter().flat_map(ForwardedHeaders::headers) {
        write_header(text, name, value);
    }
    let expects_body = matches!(head.method, Method::POST | Method::PUT | Method::PATCH)
        || head.headers.contains_key(CONTENT_LENGTH);
    match framing {
        Some(BodyFraming::Chunks) => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Some(BodyFraming::Length(length)) => {
            text.extend_from_slice(b"content-length: ");
            text.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        None if expects_body => text.extend_from_slice(b"content-length: 0\r\n"),
        None => {}
    }
    text.extend_from_slice(b"\r\n");
}

pub(super) fn write_header(text: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Parses the final head of an answer, if all of it has arrived; interim heads are skipped, and counted in `heads`.
pub(super) fn read_final(
    bytes: &mut BytesMut,
    heads: &mut u32,
) -> Result<Option<response::Parts>, Broken> {
    while !bytes.is_empty()
        && let Some(head) = read(bytes)?
    {
        *heads += 1;
        if *heads > MOST_HEADS {
            let message = "too many interim heads before the answer";
            return Err(Broken::Malformed(message));
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS || !head.status.is_informational() {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Parses the head of an answer, if all of it has arrived.
pub(super) fn read(bytes: &mut BytesMut) -> Result<Option<response::Parts>, Broken> {
    let mut space = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let mut found = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut found, bytes, &mut space) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() <= LONGEST_HEAD => return Ok(None),
        Ok(_) => return Err(Broken::Malformed("the head is too long")),
        Err(_) => return Err(Broken::Malformed("invalid head")),
    };
    let status = found.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Broken::Malformed("invalid status code"))?;
    let version = match found.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    // Positions, because the values take slices of the bytes.
    let start = bytes.as_ptr().addr();
    let mut ranges: SmallVec<[(HeaderName, usize, usize); 16]> = SmallVec::new();
    for header in &*found.headers {
        // `keep-alive` is the default of HTTP/1.1, and would be removed later.
        if version == Version::HTTP_11
            && header.name.eq_ignore_ascii_case("connection")
            && header.value.eq_ignore_ascii_case(b"keep-alive")
        {
            continue;
        }
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| Broken::Malformed("invalid header name"))?;
        let at = header.value.as_ptr().addr() - start;
        ranges.push((name, at, at + header.value.len()));
    }
    let text = bytes.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(ranges.len() + MOST_OWN_HEADERS);
    for (name, from, to) in ranges {
        let value = HeaderValue::from_maybe_shared(text.slice(from..to))
            .map_err(|_| Broken::Malformed("invalid header value"))?;
        headers.append(name, value);
    }
    let (mut head, ()) = http::Response::new(()).into_parts();
    (head.status, head.version, head.headers) = (status, version, headers);
    Ok(Some(head))
}

/// The framing of the body of an answer to a request with this method.
pub(super) fn download(method: &Method, head: &response::Parts) -> Result<Download, Broken> {
    let has_none = head.status.is_informational()
        || matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    // An unused length is forwarded to the client, which may read it differently.
    let mut length = None;
    for value in head.headers.get_all(CONTENT_LENGTH) {
        length = Some(read_length(value).ok_or(NO_LENGTH)?);
    }
    if has_none || method == Method::HEAD {
        return Ok(Download::Ended);
    }
    if head.headers.contains_key(TRANSFER_ENCODING) {
        // Other codings, or a length in addition, are checked before the body is used.
        return match head.version {
            Version::HTTP_11 => Ok(Download::Chunks(ChunkPosition::Size)),
            _ => Err(Broken::Malformed("HTTP/1.0 has no chunks")),
        };
    }
    Ok(match length {
        Some(0) => Download::Ended,
        Some(length) => Download::Length(length),
        None => Download::UntilClose,
    })
}

/// A length that consists of digits only.
pub(super) fn read_length(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Whether the connection can be used again after this answer.
pub(super) fn keeps_alive(head: &response::Parts) -> bool {
    let says = |word: &[u8]| {
        let values = head.headers.get_all(CONNECTION).iter();
        let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(word))
    };
    match head.version {
        Version::HTTP_11 => !says(b"close"),
        _ => says(b"keep-alive") && !says(b"close"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> response::Parts {
        let mut bytes = BytesMut::from(text);
        let head = read(&mut bytes).unwrap().unwrap();
        assert!(bytes.is_empty());
        head
    }

    #[test]
    fn a_head_is_read_when_all_of_it_is_there() {
        let text = "HTTP/1.1 404 Not Found\r\nX-A: 1\r\nx-a:2 \r\nServer:\r\n\r\nrest";
        for end in 0..text.len() - 4 {
            let mut bytes = BytesMut::from(&text[..end]);
            assert!(read(&mut bytes).unwrap().is_none(), "{end}");
            assert_eq!(bytes.len(), end);
        }
        let mut bytes = BytesMut::from(text);
        let head = read(&mut bytes).unwrap().unwrap();
        assert_eq!(
            (head.status.as_u16(), head.version),
            (404, Version::HTTP_11)
        );
        let values: Vec<_> = head.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(head.headers["server"], "");
        assert_eq!(&bytes[..], b"rest");
    }

    #[test]
    fn heads_that_are_none_are_refused() {
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "a: b\r\n".repeat(MOST_HEADERS + 1)
        );
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(LONGEST_HEAD));
        let long_and_whole = format!("{long}\r\n\r\n");
        for text in [
            "nonsense\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\na : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\0\r\n\r\n",
            &many,
            &long,
            &long_and_whole,
        ] {
            assert!(read(&mut BytesMut::from(text)).is_err(), "{text:.60}");
        }
    }

    #[test]
    fn lengths_by_hand() {
        let get = |headers: &str| {
            download(
                &Method::GET,
                &parts(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")),
            )
        };
        assert_eq!(get("").unwrap(), Download::UntilClose);
        assert_eq!(get("content-length: 0\r\n").unwrap(), Download::Ended);
        assert_eq!(get("content-length: 7\r\n").unwrap(), Download::Length(7));
        let chunks = Download::Chunks(ChunkPosition::Size);
        assert_eq!(get("transfer-encoding: chunked\r\n").unwrap(), chunks);
        for bad in ["", "+1", "-1", "1, 1", "0x1", "18446744073709551616", "1a"] {
            assert!(get(&format!("content-length: {bad}\r\n")).is_err(), "{bad}");
        }
        let head = parts("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n");
        assert_eq!(download(&Method::HEAD, &head).unwrap(), Download::Ended);
        for bad in ["-5", "5, 5", ""] {
            let head = parts(&format!("HTTP/1.1 200 OK\r\ncontent-length: {bad}\r\n\r\n"));
            assert!(download(&Method::HEAD, &head).is_err(), "{bad}");
        }
        let head = parts("HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n");
        assert_eq!(download(&Method::GET, &head).unwrap(), Download::Ended);
        let head = parts("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        assert!(download(&Method::GET, &head).is_err());
    }

    #[test]
    fn who_stays_connected() {
        for (text, stays) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\n\r\n", true),
            (
                "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nconnection: close\r\n\r\n",
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: keep-alive, close\r\n\r\n",
                false,
            ),
        ] {
            assert_eq!(keeps_alive(&parts(text)), stays, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_head_is_taken_whole_or_not_at_all(bytes: Vec<u8>, cut in 0_usize..80, with in any::<u8>()) {
            let mut text = *b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nx: y\r\n\r\n";
            if let Some(byte) = text.get_mut(cut) {
                *byte = with;
            }
            for whole in [&bytes[..], &text[..]] {
                let mut rest = BytesMut::from(whole);
                match read(&mut rest) {
                    Ok(Some(head)) => {
                        let taken = whole.strip_suffix(&rest[..]);
                        prop_assert!(taken.is_some_and(|head| head.ends_with(b"\n")));
                        let _ = (download(&Method::GET, &head), keeps_alive(&head));
                    }
                    Ok(None) => prop_assert_eq!(&rest[..], whole),
                    Err(_) => {}
                }
            }
        }
    }
}
