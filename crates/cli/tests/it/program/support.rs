//! Runs the program, and plays the server that it asks.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// What a run of the program left behind.
pub(crate) struct CommandRun {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandRun {
    /// All of it, for a snapshot.
    pub(crate) fn whole(&self) -> String {
        let Self {
            code,
            stdout,
            stderr,
        } = self;
        format!(
            "exit {}\n--- stdout\n{stdout}--- stderr\n{stderr}",
            code.unwrap_or(-1)
        )
    }
}

/// Runs `tidegate` with these arguments in a directory, with a text on its stdin.
pub(crate) fn tidegate(directory: &Path, arguments: &[&str], input: &str) -> CommandRun {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("TIDEGATE_SERVER")
        .env_remove("TIDEGATE_TOKEN")
        .env_remove("TIDEGATE_DATA_DIR")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that reads no input may be gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandRun {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Answers call after call with a status and a body, then leaves. What was asked comes back.
pub(crate) fn serving(answers: &[(&str, &str)]) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = |(status, body): &(&str, &str)| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nETag: \"7\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    };
    let answers: Vec<String> = answers.iter().map(answer).collect();
    let asked = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = read(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
            asked
        };
        answers.into_iter().map(answer).collect()
    });
    (address, asked)
}

/// One call: its head and its body.
fn read(stream: &mut TcpStream) -> String {
    let mut asked = String::new();
    let mut buffer = [0; 4_096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        asked.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        let Some((head, body)) = asked.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        if count == 0 || body.len() >= length.unwrap_or(0) {
            return asked;
        }
    }
}
