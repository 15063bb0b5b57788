//! `tidegate override`: gives a client another limit until a given time, ends it, and lists current overrides.

use anyhow::bail;
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, TextTable, plain};

#[derive(Debug, Args)]
#[command(
    after_help = "Without KEY it lists the temporary overrides of RULE, and without RULE those of all rules."
)]
pub(crate) struct OverrideArgs {
    /// The rule's id
    rule: Option<String>,

    /// The value of the first attribute of the rule's `per`, or of the entries that a descriptor leaves open, as in
    /// `u1/v2`; of a secret one its hash `sha256:...`, or what tables show
    key: Option<String>,

    /// What the client gets: a limit such as `100/minute`, `unlimited` or `blocked`
    limit: Option<String>,

    /// How long it lasts, such as `2h`; 30 days at the most
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until")]
    lasts: Option<String>,

    /// When it ends, such as `2027-01-01T00:00:00Z`
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// Why, for people; 200 characters at the most
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// End the override of KEY now
    #[arg(long, requires = "key", conflicts_with_all = ["limit", "lasts", "until", "reason"])]
    remove: bool,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &OverrideArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let json = args.server.json;
    match (&args.rule, &args.key, &args.limit) {
        (Some(rule), Some(key), Some(limit)) => put(args, &client, rule, key, limit),
        (Some(rule), Some(key), None) if args.remove => remove(&client, rule, key, json),
        (Some(_), Some(_), None) => {
            bail!("give a limit for KEY, such as `100/minute`, or --remove")
        }
        (rule, ..) => list(&client, rule.as_deref(), json),
    }
}

fn put(
    args: &OverrideArgs,
    client: &ApiClient,
    rule: &str,
    key: &str,
    limit: &str,
) -> anyhow::Result<Answer> {
    let mut body = json!({"key": key, "limit": limit});
    match (&args.lasts, &args.until) {
        (Some(lasts), _) => body["for"] = json!(lasts),
        (None, Some(until)) => body["expires_at"] = json!(until),
        (None, None) => bail!("an override needs an end; give --for 2h, or --until TIME"),
    }
    if let Some(reason) = &args.reason {
        body["reason"] = json!(reason);
    }
    let reply = client.post(&path(rule), &body)?.accept(&[201])?;
    output::print_either(args.server.json, &reply.body, || {
        let [key, limit, end] =
            ["key", "limit", "expires_at"].map(|name| plain(&text_of(&reply.body, name)));
        let rule = plain(rule);
        match limit.as_str() {
            "blocked" | "unlimited" => format!("{key} is {limit} under {rule} until {end}\n"),
            _ => format!("{key} gets {limit} under {rule} until {end}\n"),
        }
    })?;
    Ok(Answer::Yes)
}

fn remove(client: &ApiClient, rule: &str, key: &str, json: bool) -> anyhow::Result<Answer> {
    let path = format!("{}/{}", path(rule), encoded(key));
    let reply = client.delete(&path)?.accept(&[204, 404])?;
    if reply.status == 404 {
        let problem = text_of(&reply.body, "detail");
        if json {
            output::print_json(&json!({"removed": []}))?;
        } else {
            output::note(&format!("{}\n", plain(&problem)))?;
        }
        return Ok(Answer::No);
    }
    output::print_either(json, &json!({"removed": [key]}), || {
        format!("removed the override of {rule} for {}\n", plain(key))
    })?;
    Ok(Answer::Yes)
}

fn list(client: &ApiClient, rule: Option<&str>, json: bool) -> anyhow::Result<Answer> {
    let path = rule.map_or_else(|| "/v1/overrides".to_owned(), path);
    let reply = client.get(&path)?.accept(&[200])?;
    let overrides = reply.list("overrides")?;
    if json {
        output::print_json(&reply.body)?;
    } else if overrides.is_empty() {
        output::note("there are no temporary overrides\n")?;
    } else {
        output::print(&table(overrides))?;
    }
    Ok(Answer::Yes)
}

fn path(rule: &str) -> String {
    format!("/v1/rules/{}/overrides", encoded(rule))
}

/// Text as one segment of a path. The characters of ids stay unchanged.
pub(super) fn encoded(text: &str) -> String {
    const SEGMENT: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    match text {
        // These would be taken for another path.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => utf8_percent_encode(text, SEGMENT).to_string(),
    }
}

fn table(overrides: &[Value]) -> String {
    const COLUMNS: [&str; 6] = ["rule", "key", "limit", "expires_at", "by", "reason"];
    let mut table = TextTable::new(&["rule", "key", "limit", "until", "by", "reason"]);
    for one in overrides {
        table.row(COLUMNS.map(|name| text_of(one, name)).to_vec());
    }
    table.render()
}

fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_segment_whatever_it_is() {
        for (key, segment) in [
            ("u1", "u1"),
            ("per-user_1.x", "per-user_1.x"),
            ("10.0.0.0/8", "10.0.0.0%2F8"),
            ("2001:db8::/64", "2001%3Adb8%3A%3A%2F64"),
            ("a b?#%", "a%20b%3F%23%25"),
            ("..", "%2E%2E"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(encoded(key), segment, "{key}");
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_and_nothing_steers_the_terminal() {
        let overrides = [
            json!({"rule": "per-user", "key": "u1", "limit": "unlimited", "expires_at": "2026-11-17T12:00:00Z",
                   "reason": "a launch", "by": "ops", "at": "2026-11-17T10:00:00Z"}),
            json!({"rule": "login", "key": "\u{1b}[2J", "limit": "1/s", "expires_at": "2026-11-17T12:00:00Z",
                   "reason": null, "by": "ops", "at": "2026-11-17T10:00:00Z"}),
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&overrides)));
    }
}
