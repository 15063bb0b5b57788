//! What one line says of a request, before it becomes attributes.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate::Costs;

use super::exact::ExactTime;
use super::values::{LineValues, is_absent};

/// A value of a line.
pub(crate) type LineValue<'l> = Cow<'l, [u8]>;

/// Why a line is no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LineProblem {
    /// It is not in the format, for this reason.
    Malformed(&'static str),
    /// It is in the format, and no request.
    Ignored,
}

pub(crate) const NO_TIME: LineProblem = LineProblem::Malformed("it has no time that can be read");

/// What a line says of a request. Values that logs write for what is absent are left out.
#[derive(Debug, Default)]
pub(crate) struct LineRequest<'l> {
    /// When it arrived.
    pub(crate) time: Option<ExactTime>,
    /// How long it took.
    pub(crate) duration: Option<ExactTime>,
    /// The client's address, or its name if the log has names.
    pub(crate) address: Option<LineValue<'l>>,
    pub(crate) method: Option<LineValue<'l>>,
    /// The target of the request with its query.
    pub(crate) target: Option<LineValue<'l>>,
    pub(crate) host: Option<LineValue<'l>>,
    /// Headers, by their names in any case.
    pub(crate) headers: SmallVec<[(Cow<'l, str>, LineValue<'l>); 2]>,
    /// Attributes that the line names itself.
    pub(crate) attributes: SmallVec<[(Cow<'l, str>, LineValue<'l>); 2]>,
    pub(crate) costs: Option<Costs>,
    /// Whether attributes are as a server has recorded them: in normal form, secret ones as digests.
    pub(crate) is_recorded: bool,
    /// The parts of a recorded call that has several, instead of all of the above.
    pub(crate) parts: Vec<RecordedPart<'l>>,
    /// The fields of the line, for `--map`.
    pub(crate) values: LineValues<'l>,
}

/// One part of a recorded call.
#[derive(Debug, Default)]
pub(crate) struct RecordedPart<'l> {
    pub(crate) attributes: Vec<(Cow<'l, str>, LineValue<'l>)>,
    pub(crate) costs: Option<Costs>,
}

impl<'l> LineRequest<'l> {
    /// Takes the request as `METHOD TARGET [VERSION]`. Ignored if it is something else.
    pub(crate) fn take_request(&mut self, request: LineValue<'l>) -> Result<(), LineProblem> {
        let Some(first) = memchr::memchr(b' ', &request) else {
            return Err(LineProblem::Ignored);
        };
        let rest = &request[first + 1..];
        let second = memchr::memchr(b' ', rest);
        let target_end = second.map_or(request.len(), |at| first + 1 + at);
        let version = second.map(|at| &rest[at + 1..]);
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_method = first > 0 && request[..first].iter().all(is_token);
        let is_version =
            version.is_none_or(|version| version.starts_with(b"HTTP/") && !version.contains(&b' '));
        if !is_method || !is_version || target_end == first + 1 {
            return Err(LineProblem::Ignored);
        }
        match request {
            Cow::Borrowed(bytes) => {
                self.method = Some(Cow::Borrowed(&bytes[..first]));
                self.target = Some(Cow::Borrowed(&bytes[first + 1..target_end]));
            }
            Cow::Owned(bytes) => {
                self.method = Some(Cow::Owned(bytes[..first].to_vec()));
                self.target = Some(Cow::Owned(bytes[first + 1..target_end].to_vec()));
            }
        }
        Ok(())
    }

    pub(crate) fn push_header(&mut self, name: impl Into<Cow<'l, str>>, value: LineValue<'l>) {
        if !is_absent(&value) {
            self.headers.push((name.into(), value));
        }
    }
}

/// A value unless it stands for an absent one.
pub(crate) fn present(value: LineValue<'_>) -> Option<LineValue<'_>> {
    (!is_absent(&value)).then_some(value)
}

/// A client with its port, which is always there: `203.0.113.7:443`, `2001:db8::1:443`. The address alone.
pub(crate) fn before_port(client: &[u8]) -> &[u8] {
    let end = memchr::memrchr(b':', client).unwrap_or(client.len());
    match &client[..end] {
        [b'[', inner @ .., b']'] => inner,
        address => address,
    }
}

/// An address without its port: `203.0.113.7:443`, `[2001:db8::1]:443`. An IPv6 address without brackets has none.
pub(crate) fn without_port(address: LineValue<'_>) -> LineValue<'_> {
    let end = match memchr::memrchr(b':', &address) {
        // In brackets, or the only colon.
        Some(at) if at > 0 && address[at - 1] == b']' => at,
        Some(at) if memchr::memchr(b':', &address) == Some(at) => at,
        _ => address.len(),
    };
    let inner = match &address[..end] {
        [b'[', inner @ .., b']'] => 1..=inner.len(),
        whole => 0..=whole.len().saturating_sub(1),
    };
    if address.is_empty() {
        return address;
    }
    match address {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[inner]),
        Cow::Owned(bytes) => Cow::Owned(bytes[inner].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_their_ports() {
        for (text, expected) in [
            ("203.0.113.7:443", "203.0.113.7"),
            ("203.0.113.7", "203.0.113.7"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::1", "::1"),
            ("", ""),
        ] {
            let without = without_port(Cow::Borrowed(text.as_bytes()));
            assert_eq!(&*without, expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn addresses_before_ports_that_are_always_there() {
        for (text, expected) in [
            ("203.0.113.7:443", "203.0.113.7"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("2001:db8::1:8080", "2001:db8::1"),
            ("::1:40058", "::1"),
            ("::ffff:127.0.0.1:60126", "::ffff:127.0.0.1"),
            ("unix:1", "unix"),
            ("-", "-"),
            ("", ""),
        ] {
            assert_eq!(before_port(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn a_request_is_a_method_and_a_target() {
        for (text, expected) in [
            ("GET / HTTP/1.1", Some(("GET", "/"))),
            ("GET /a?b=c HTTP/2.0", Some(("GET", "/a?b=c"))),
            ("get /", Some(("get", "/"))),
            ("OPTIONS * HTTP/1.1", Some(("OPTIONS", "*"))),
            ("GET /a b HTTP/1.1", None),
            ("GET  HTTP/1.1", None),
            ("GET", None),
            ("-", None),
            ("", None),
            ("\u{16}\u{3}\u{1} x", None),
            ("GET / RTSP/1.0", None),
        ] {
            let mut line = LineRequest::default();
            let taken = line.take_request(Cow::Borrowed(text.as_bytes()));
            let bytes = |value: &Option<LineValue<'_>>| value.as_ref().map(|value| value.to_vec());
            let expected = expected
                .map(|(method, target)| (method.as_bytes().to_vec(), target.as_bytes().to_vec()));
            assert_eq!(taken.is_ok(), expected.is_some(), "{text}");
            assert_eq!(
                bytes(&line.method).zip(bytes(&line.target)),
                expected,
                "{text}"
            );
        }
    }
}
