//! A client that speaks HTTP/1.1 by hand on one connection that it keeps, and sees every byte.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::PATIENCE;

/// A connection that is kept.
#[derive(Debug)]
pub struct HttpClient {
    stream: BufReader<TcpStream>,
    /// Sent with calls of the admin API that have no token of their own.
    token: Option<String>,
}

/// A reply, with the names of headers in lower case.
#[derive(Debug)]
pub struct ClientReply {
    /// The status code.
    pub status: u16,
    /// In their order.
    pub headers: Vec<(String, String)>,
    /// Text.
    pub body: String,
}

impl HttpClient {
    /// A connection to this address.
    pub fn to(address: SocketAddr) -> Self {
        Self::try_to(address).unwrap()
    }

    /// Like [`to`](Self::to), or the error.
    pub fn try_to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::on(BufReader::new(stream)))
    }

    /// On an open connection.
    pub fn on(stream: BufReader<TcpStream>) -> Self {
        Self {
            stream,
            token: None,
        }
    }

    /// The same client, which sends this token to the admin API.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// Sends a request such as `POST /v1/check` and returns the reply. An empty body is none.
    pub fn ask(&mut self, call: &str, body: &str) -> ClientReply {
        self.ask_with(call, &[], body)
    }

    /// The same with headers.
    pub fn ask_with(&mut self, call: &str, headers: &[(&str, &str)], body: &str) -> ClientReply {
        self.try_ask(call, headers, body).unwrap()
    }

    /// The same; an error if the connection ends before the reply is whole.
    pub fn try_ask(
        &mut self,
        call: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<ClientReply> {
        let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let is_given = headers.iter().any(|(name, _)| *name == "authorization");
        let mut headers = headers.to_vec();
        match &authorization {
            Some(value) if is_admin(call) && !is_given => {
                headers.push(("authorization", value));
            }
            _ => {}
        }
        self.send(&request(call, &headers, body))?;
        self.reply()
    }

    /// Sends a text as it is.
    pub fn send(&mut self, text: &str) -> io::Result<()> {
        self.send_bytes(text.as_bytes())
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The next reply; an error if the connection ends before it is whole.
    pub fn reply(&mut self) -> io::Result<ClientReply> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not HTTP: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let reply = ClientReply {
            status,
            headers,
            body: String::new(),
        };
        let length = reply.header("content-length").map_or("0", |text| text);
        let mut body = vec![0; length.parse().map_err(io::Error::other)?];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(ClientReply { body, ..reply })
    }

    /// Whether the server closes the connection without sending more.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn is_admin(call: &str) -> bool {
    let path = call.split(' ').nth(1).unwrap_or_default();
    let open = ["/v1/check", "/v1/leases", "/v1/authorize"];
    path.starts_with("/v1/") && !open.iter().any(|call| path.starts_with(call))
}

/// A request as a local client sends it, but for the headers that are given. Headers without a value are
/// left out.
pub fn request(call: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{call} HTTP/1.1\r\n");
    let mut header = |name: &str, value: &str| {
        let _ = write!(text, "{name}: {value}\r\n");
    };
    let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
    if !is_given("host") {
        header("host", "localhost");
    }
    if !body.is_empty() {
        header("content-length", &body.len().to_string());
        if !is_given("content-type") {
            header("content-type", "application/json");
        }
    }
    for (name, value) in headers {
        if !value.is_empty() || *name == "host" {
            header(name, value);
        }
    }
    text + "\r\n" + body
}

impl ClientReply {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body with its rules as they were written, without what the server adds to them.
    pub fn written(&self) -> Value {
        let mut body = self.json();
        let drop_computed = |rule: &mut Value| {
            if let Some(rule) = rule.as_object_mut() {
                rule.remove("worst_case");
            }
        };
        drop_computed(&mut body);
        let rules = body.get_mut("rules").and_then(Value::as_array_mut);
        rules.into_iter().flatten().for_each(drop_computed);
        body
    }

    /// The detail of a refusal. Every one is problem+json, repeats its status, and says something.
    pub fn detail(&self) -> String {
        let media_type = self.header("content-type");
        assert_eq!(media_type, Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{self:?}");
        assert!(!body["title"].as_str().unwrap().is_empty(), "{self:?}");
        let detail = body["detail"].as_str().unwrap();
        assert!(!detail.trim().is_empty(), "{self:?}");
        detail.to_owned()
    }

    /// Asserts the status, and returns the reply.
    #[track_caller]
    #[expect(
        clippy::return_self_not_must_use,
        reason = "some tests need no more than the status"
    )]
    pub fn with_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Status, a few headers and the body, for a snapshot.
    pub fn whole(&self) -> String {
        let mut text = format!("{}\n", self.status);
        for name in ["allow", "www-authenticate", "content-type"] {
            if let Some(value) = self.header(name) {
                let _ = writeln!(text, "{name}: {value}");
            }
        }
        text + &self.body + "\n"
    }
}
