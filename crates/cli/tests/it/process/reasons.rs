//! Why a request is denied, in the words of `tidegate check`.

use crate::server::ProgramFolder;

const RULES: &str = "rules:
- {id: blocked, match: {path: /blocked}, per: [user_id], limit: 5/hour, overrides: {mallory: blocked}}
- {id: missing, match: {path: /missing}, per: [ip, user_id, 'a\"b'], missing: deny, limit: 5/hour}
- {id: costly, match: {path: /costly}, per: [], limit: 5/hour}
";

#[test]
fn the_program_says_in_words_why_a_request_is_denied() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let url = server.url();
    #[rustfmt::skip]
    let table = [
        (vec!["-a", "path=/missing", "-a", "ip=1.1.1.1", "-a", "a\"b=1"],   "the attribute `user_id` is missing"),
        (vec!["-a", "path=/missing"],                                       "the attributes `ip`, `user_id`, `a\"b` are missing"),
        (vec!["-a", "path=/blocked", "-a", "user_id=mallory"],              "the rule grants nothing to this request"),
        (vec!["-a", "path=/costly", "--cost", "9"],                         "the cost is more than the limit can ever grant"),
    ];
    for (arguments, words) in table {
        let arguments = [&["check", "--server", &url], &arguments[..]].concat();
        let run = folder.run(&arguments);
        assert_eq!(run.code, Some(1), "{}", run.whole());
        assert!(run.stdout.contains(words), "{}", run.whole());
    }
}
