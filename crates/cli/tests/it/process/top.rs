//! `tidegate top` on a real terminal: it follows the server, shows hostile names harmlessly, and gives the terminal
//! back.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::terminal::{TestTerminal, end_of};
use crate::server::{ProgramFolder, Server};

/// Clears the screen, sets the title of the window, and turns the text around.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{202e}";

fn serve_with_denials(folder: &ProgramFolder, arguments: &[&str]) -> Server {
    let server = folder.serve(arguments);
    let rules = r#"{"rules": [{"id": "per-user", "per": ["user_id"], "limit": "1/hour"}]}"#;
    server.ask("PUT /v1/rules", rules).with_status(200);
    for user in ["<img src=x onerror=alert(1)>", HOSTILE] {
        let body = json!({"attributes": {"user_id": user}, "cost": 2}).to_string();
        for _ in 0..3 {
            server.ask("POST /v1/check", &body).with_status(429);
        }
    }
    server
}

#[test]
fn a_terminal_is_used_followed_and_given_back() {
    let folder = ProgramFolder::new();
    let server = serve_with_denials(&folder, &[]);
    let address = server.address.to_string();
    let url = format!("http://{address}");
    let mut terminal = TestTerminal::open();
    let top = folder.spawn_on(&terminal.end, &["top", "--server", &url]);
    terminal.wait_for("user_id=<img");
    terminal.wait_for("user_id=\\u{1b}[2J\\u{1b}]0;p");
    assert!(!terminal.is_given_back(), "keys are read one by one");
    terminal.press("?");
    terminal.wait_for("column");
    // Closes the help, and opens the rule. A resize draws everything.
    terminal.press("x\r");
    terminal.wait_for("back");
    terminal.text.clear();
    terminal.resize(120, 30);
    terminal.wait_for("esc back");
    terminal.wait_for("user_id=\\u{1b}[2J\\u{1b}]0;pwned\\u{7}\\u{202e}");
    let raw = terminal.text.clone();
    assert!(
        !raw.contains("\u{1b}]0;") && !raw.contains('\u{202e}'),
        "{raw:?}"
    );

    // The server goes away, and comes back.
    server.kill();
    terminal.wait_for("no answer for");
    let _server = folder.serve(&["--http", &address]);
    terminal.text.clear();
    terminal.wait_for("live");
    terminal.press("q");
    assert_eq!(end_of(top), Some(0));
    terminal.wait_for("\u{1b}[?1049l");
    assert!(terminal.is_given_back());
}

#[test]
fn a_signal_gives_the_terminal_back_first() {
    let folder = ProgramFolder::new();
    let server = serve_with_denials(&folder, &[]);
    let url = format!("http://{}", server.address);
    let mut terminal = TestTerminal::open();
    let top = folder.spawn_on(&terminal.end, &["top", "--server", &url]);
    terminal.wait_for("live");
    kill_process(Pid::from_child(&top), Signal::TERM).unwrap();
    assert_eq!(end_of(top), Some(0));
    terminal.wait_for("\u{1b}[?1049l");
    assert!(terminal.is_given_back());
}

#[test]
fn without_a_terminal_it_prints_once_or_says_how() {
    let folder = ProgramFolder::new();
    let server = serve_with_denials(&folder, &[]);
    let url = format!("http://{}", server.address);
    let run = |more: &[&str]| folder.run(&[&["top", "--server", &url], more].concat());
    let refused = run(&[]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("--once"), "{}", refused.stderr);
    let once = run(&["--once"]);
    assert_eq!(once.code, Some(0), "{}", once.stderr);
    assert!(once.stdout.contains("top keys of per-user by denied"));
    assert!(
        once.stdout
            .contains("user_id=\\u{1b}[2J\\u{1b}]0;pwned\\u{7}\\u{202e}")
    );
    assert!(!once.stdout.contains('\u{1b}'), "{}", once.stdout);
    let json = run(&["--json", "--window", "5m", "--rule", "per-user"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["activity"]["step"], 1);
    assert_eq!(json["rule"], "per-user");
    assert_eq!(json["keys"]["keys"].as_array().unwrap().len(), 2);
    let unknown = run(&["--once", "--rule", "none"]);
    assert!(unknown.stdout.contains("there is no rule `none`"));
}
