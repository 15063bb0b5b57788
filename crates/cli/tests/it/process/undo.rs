//! An operator at a terminal: looks at a server, finds a change, takes it back, and clears a counter.

use crate::server::ProgramFolder;

const FIRST: &str = "rules:\n  - {id: per-user, per: [user_id], limit: 100/minute}\n";
const SECOND: &str = "rules:\n  - {id: per-user, per: [user_id], limit: 2/minute}\n";

#[test]
fn a_change_is_found_previewed_and_taken_back() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let url = format!("http://{}", server.address);
    let run = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        words.extend(["--server", &url]);
        folder.run(&words)
    };
    let ok = |line: &str| {
        let done = run(line);
        assert_eq!(
            done.code,
            Some(0),
            "{line}: {} {}",
            done.stdout,
            done.stderr
        );
        done.stdout
    };
    for (name, text) in [("first.yaml", FIRST), ("second.yaml", SECOND)] {
        folder.write(name, text);
        ok(&format!("rules apply -f {name}"));
    }
    let status = ok("status");
    assert!(status.contains("is ready\n"), "{status}");
    assert!(
        status.contains("1 rule, version 2, from data directory"),
        "{status}"
    );

    let diff = "--- version 1\n+++ version 2\n@@ -1,4 +1,4 @@ rule per-user\n rules:\n   - id: per-user\n     per: [user_id]\n-    limit: 100/minute\n+    limit: 2/minute\n\n1 rule changed\n";
    let compared = run("rules diff --from 1 --to 2");
    assert_eq!((compared.code, compared.stdout.as_str()), (Some(1), diff));
    let history = ok("rules history --diff");
    assert!(history.contains("  changed per-user\n--- version 1\n"));
    assert!(history.contains("  added per-user\n--- version 0\n"));

    let preview = ok("rules rollback 1 --dry-run");
    assert!(preview.contains("+    limit: 100/minute\n"), "{preview}");
    assert_eq!(run("rules diff --from 1 --to 2").stdout, diff, "unchanged");
    assert_eq!(
        ok("rules rollback 1"),
        "back to version 1, now as version 3: 1 rule\n"
    );

    ok("check -a user_id=u1 --cost 7");
    let reset = ok("reset -a user_id=u1");
    let expected = "RULE      LIMIT  KEY         USED\nper-user  100    user_id=u1  7\n";
    assert_eq!(reset, expected);
}
