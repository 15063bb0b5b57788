//! Spellings of one client's identity, against real servers: Express, Flask and PHP. `spellings.py` makes them and says
//! what must hold; `scripts/long spellings` tries more of them.

use std::path::Path;
use std::process::{Command, Stdio};

/// How many spellings are tried.
const COUNT: &str = "3000";
/// The same spellings in every run.
const SEED: &str = "1";

#[test]
fn no_spelling_of_an_identity_escapes_at_express_flask_or_php() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/spellings");
    let servers = tests.join("../../../../../target/tools/identity/php/lighttpd");
    assert!(
        servers.exists(),
        "the servers are missing: install them with `scripts/install identity-servers`"
    );
    let output = Command::new("python3")
        .arg(tests.join("spellings.py"))
        .args([env!("CARGO_BIN_EXE_tidegate"), COUNT, SEED])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{said}{errors}");
    println!("{said}");
}
