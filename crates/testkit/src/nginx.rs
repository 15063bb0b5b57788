//! nginx as a process of its own, in a folder of its own. Ended when it is dropped.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test cannot go on without nginx"
)]

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{ReservedPort, wait_until};

/// How long to wait until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running nginx.
pub struct NginxProcess {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    _port: ReservedPort,
    folder: TempDir,
}

impl NginxProcess {
    /// Starts a program with an `http` block, in which `PORT` is the port to listen on and `FOLDER` a folder with the
    /// file `index.html`.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start(program: &str, http: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = ReservedPort::new();
        let here = folder.path().display().to_string();
        let http = http
            .replace("PORT", &port.number().to_string())
            .replace("FOLDER", &here);
        let config = format!(
            "daemon off; master_process off; pid {here}/nginx.pid; error_log {here}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
  fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
  {http}
}}
"
        );
        fs::write(folder.path().join("nginx.conf"), config).expect("a file");
        fs::write(folder.path().join("index.html"), "ok").expect("a file");
        let child = Command::new(program)
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("`{program}` does not start: {error}; install it with ./scripts/install packages")
            });
        let nginx = Self {
            address: SocketAddr::from(([127, 0, 0, 1], port.number())),
            child,
            _port: port,
            folder,
        };
        wait_until("nginx listens", PATIENCE, || nginx.connect().ok());
        nginx
    }

    /// The text of a file in `FOLDER`.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).expect("a file")
    }

    /// Stops it where it is (SIGSTOP): it reads nothing.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child takes signals");
    }

    /// A new connection.
    pub fn connect(&self) -> io::Result<NginxConnection> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(NginxConnection(BufReader::new(stream)))
    }
}

impl Drop for NginxProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, for one request after the other.
pub struct NginxConnection(BufReader<TcpStream>);

/// The head of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NginxAnswer {
    /// The status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl NginxAnswer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl NginxConnection {
    /// Sends a request, and reads the status of its answer and no more.
    pub fn begin(&mut self, line: &str, headers: &[(&str, &str)]) -> io::Result<u16> {
        self.send(line, headers)?;
        self.status()
    }

    /// Sends a request.
    pub fn send(&mut self, line: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut request = format!("{line} HTTP/1.1\r\n");
        for (name, value) in headers {
            request.extend([*name, ": ", *value, "\r\n"]);
        }
        if !headers.iter().any(|(name, _)| *name == "host") {
            request.push_str("host: localhost\r\n");
        }
        request.push_str("\r\n");
        self.0.get_mut().write_all(request.as_bytes())
    }

    fn status(&mut self) -> io::Result<u16> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        status.ok_or_else(|| io::Error::other(format!("it answered `{line}`")))
    }

    /// Sends a request and reads the answer.
    pub fn ask(&mut self, line: &str, headers: &[(&str, &str)]) -> io::Result<NginxAnswer> {
        self.send(line, headers)?;
        self.answer()
    }

    /// Reads the answer to a request that was sent.
    pub fn answer(&mut self) -> io::Result<NginxAnswer> {
        let status = self.status()?;
        let mut line = String::new();
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = NginxAnswer {
            status,
            headers,
            body: String::new(),
        };
        let length = answer
            .header("content-length")
            .and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Ok(answer)
    }
}
