//! `tidegate console`: an address with a code that works once, and never the token.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::json;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::PATIENCE;

use crate::server::ProgramFolder;

/// What the address of a page has after `#code=`.
fn code_in(url: &str) -> &str {
    url.trim_end().split_once("/console/#code=").unwrap().1
}

#[test]
fn the_printed_address_signs_in_once_and_has_no_token() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&["--data-dir", "tidegate-data", "--log-level", "trace"]);
    let token = fs::read_to_string(folder.path("tidegate-data/admin-token")).unwrap();
    let token = token.trim_end();
    let url = server.url();
    let no_desktop = [("DISPLAY", ""), ("WAYLAND_DISPLAY", "")];
    let run = folder.run_with(&["console", "--server", &url], &no_desktop);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.starts_with(&format!("{url}/console/#code=")));
    assert!(run.stderr.contains("within 60 s"), "{}", run.stderr);
    let body = json!({"code": code_in(&run.stdout)}).to_string();
    let page = [("authorization", "")];
    let open = || server.ask_with("POST /v1/console/session", &page, &body);
    assert_eq!(open().with_status(200).json()["name"], "admin-token");
    open().with_status(401);

    let run_json = folder.run_with(&["console", "--json", "--no-open", "--server", &url], &[]);
    assert_eq!(run_json.code, Some(0), "{}", run_json.stderr);
    assert!(run_json.stdout.contains("\"opened\": false"));
    server.signal(Signal::TERM);
    let (_, log) = server.ended();
    for text in [run.stdout, run.stderr, run_json.stdout, log] {
        assert!(!text.contains(token), "{text}");
    }
}

#[test]
fn where_there_is_a_desktop_a_private_page_leads_to_the_address() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&["--data-dir", "tidegate-data"]);
    let fake = folder.path("xdg-open");
    fs::write(
        &fake,
        "#!/bin/sh\necho \"$@\" >opened.new\nmv opened.new opened\n",
    )
    .unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let programs = fake.parent().unwrap().display().to_string();
    let path = format!("{programs}:/usr/bin:/bin");
    let runtime = folder.path("runtime");
    fs::create_dir(&runtime).unwrap();
    let runtime_text = runtime.display().to_string();
    let desktop = [
        ("DISPLAY", ":0"),
        ("PATH", path.as_str()),
        ("XDG_RUNTIME_DIR", runtime_text.as_str()),
    ];
    let run = folder.run_with(&["console", "--server", &server.url()], &desktop);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("opened in your browser"));
    let opened = wait_until("the page", PATIENCE, || {
        fs::read_to_string(folder.path("opened")).ok()
    });
    // Arguments can be read by all users of the machine.
    let page = std::path::Path::new(opened.trim_end());
    assert!(!opened.contains(code_in(&run.stdout)), "{opened}");
    assert!(
        page.starts_with(runtime.canonicalize().unwrap()),
        "{opened}"
    );
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(page), mode(page.parent().unwrap())), (0o600, 0o700));
    let text = fs::read_to_string(page).unwrap();
    assert!(
        text.contains(&format!("url={}\"", run.stdout.trim_end())),
        "{text}"
    );
}

#[test]
fn a_server_without_the_console_says_so() {
    let folder = ProgramFolder::new();
    let off = [("TIDEGATE_CONSOLE", "off")];
    let server = folder.serve_with(&["--data-dir", "tidegate-data"], &off);
    let run = folder.run_with(&["console", "--server", &server.url()], &[]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("`console` is `off`"), "{}", run.stderr);
}
