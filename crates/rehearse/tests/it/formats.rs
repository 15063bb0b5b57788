//! Sample lines of each format: those of nginx, Caddy, Traefik, Envoy and `HAProxy` were written by these programs.

use serde_json::{Value, json};
use tidegate_rehearse::{FieldMap, FormatName, InputSettings, LineTemplate};

use crate::support::{log, report, shown};

/// What matters of each request: the time, the address, the method, the path and the host.
fn summary(text: &str, input: InputSettings) -> Vec<[Value; 5]> {
    let requests = shown(&[log("log", text)], input);
    requests
        .iter()
        .map(|request| {
            let attribute = |name: &str| request["attributes"][name].clone();
            [
                request["time"].clone(),
                attribute("ip"),
                attribute("method"),
                attribute("path"),
                attribute("host"),
            ]
        })
        .collect()
}

fn format_of(text: &str) -> Value {
    let rules = "rules: [{id: all, per: [], limit: 1/s}]";
    report(&[log("log", text)], rules, InputSettings::default())["input"]["files"][0]["format"]
        .clone()
}

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("samples/", $name))
    };
}

#[test]
fn each_format_is_found_by_its_lines() {
    for (text, format) in [
        (sample!("record.jsonl"), "tidegate"),
        (sample!("tidegate-access.log"), "tidegate-access"),
        (sample!("caddy.log"), "caddy"),
        (sample!("traefik.log"), "traefik"),
        (sample!("envoy-json.log"), "envoy-json"),
        (sample!("cloudflare.log"), "cloudflare"),
        (sample!("gcp.log"), "gcp"),
        (sample!("alb.log"), "alb"),
        (sample!("envoy.log"), "envoy"),
        (sample!("haproxy.log"), "haproxy"),
        (sample!("vhost.log"), "vhost"),
        (sample!("nginx-combined.log"), "combined"),
        (sample!("traefik-text.log"), "combined"),
        (
            "203.0.113.7 - - [18/Nov/2026:16:53:51 +0000] \"GET / HTTP/1.1\" 200 5\n",
            "common",
        ),
        (sample!("plain.json"), "json"),
        (sample!("columns.csv"), "csv"),
        (sample!("columns.tsv"), "tsv"),
    ] {
        assert_eq!(format_of(text), format, "{text}");
    }
}

#[test]
fn the_lines_of_programs_are_read() {
    let auto = InputSettings::default;
    let local = json!("127.0.0.1");
    let items = ["GET", "/v1/items"];
    for (text, host, time) in [
        (
            sample!("caddy.log"),
            json!("127.0.0.1"),
            Some(1_795_020_830.230_115),
        ),
        (sample!("traefik.log"), json!("127.0.0.1"), None),
        (
            sample!("traefik-text.log"),
            Value::Null,
            Some(1_795_020_831.0),
        ),
        (sample!("haproxy.log"), Value::Null, Some(1_795_020_830.981)),
        (
            sample!("nginx-combined.log"),
            Value::Null,
            Some(1_795_020_831.0),
        ),
        (
            sample!("envoy-json.log"),
            json!("127.0.0.1"),
            Some(1_795_020_830.609),
        ),
    ] {
        let read = summary(text, auto());
        let found = read.iter().find(|request| request[3] == items[1]);
        let [at, ip, method, _, of_host] = found.unwrap_or_else(|| panic!("{read:?}"));
        assert_eq!(
            (ip, method, of_host),
            (&local, &json!(items[0]), &host),
            "{text}"
        );
        if let Some(time) = time {
            assert_eq!(at.as_f64(), Some(time), "{text}");
        }
        assert!(
            read.iter()
                .any(|request| request[2] == "POST" && request[3] == "/a b/\"c"),
            "{read:?}"
        );
    }
    // The last address of X-Forwarded-For, and quotes that are not escaped.
    let envoy = shown(&[log("log", sample!("envoy.log"))], auto());
    assert_eq!(envoy[1]["attributes"]["ip"], "192.0.2.2");
    assert_eq!(envoy[1]["attributes"]["host"], "127.0.0.1");
    assert_eq!(
        envoy[1]["attributes"]["header.user-agent"],
        "agent \"quoted\""
    );
    let nginx = shown(&[log("log", sample!("nginx-combined.log"))], auto());
    assert_eq!(
        nginx[1]["attributes"]["header.user-agent"],
        "agent \"quoted\""
    );
}

#[test]
fn lines_after_the_documentation_are_read() {
    let auto = InputSettings::default;
    let row = |time: f64, ip: &str, method: &str, path: &str, host: &str| {
        [
            json!(time),
            json!(ip),
            json!(method),
            json!(path),
            json!(host),
        ]
    };
    let whole = |request: [Value; 5]| {
        let [time, rest @ ..] = request;
        let time = json!(time.as_f64().unwrap());
        let [ip, method, path, host] = rest;
        [time, ip, method, path, host]
    };
    let read = |text: &str| {
        summary(text, auto())
            .into_iter()
            .map(whole)
            .collect::<Vec<_>>()
    };
    let www = "www.example.com";
    assert_eq!(
        read(sample!("alb.log")),
        [
            row(1_795_020_831.185, "203.0.113.7", "GET", "/v1/items", www),
            row(1_795_020_832.18, "2001:db8::7", "POST", "/a b", www),
            row(1_795_020_834.18, "2001:db8::7", "GET", "/c", www),
        ]
    );
    let haproxy: Vec<Value> = read(sample!("haproxy.log"))
        .into_iter()
        .map(|[_, ip, ..]| ip)
        .collect();
    assert_eq!(haproxy[3..], ["::1", "127.0.0.1", "2001:db8::1"]);
    assert_eq!(
        read(sample!("cloudflare.log")),
        [
            row(1_795_020_831.0, "203.0.113.7", "GET", "/v1/items", www),
            row(1_795_020_832.0, "203.0.113.7", "POST", "/a b", www),
            row(1_795_020_832.25, "2001:db8::7", "GET", "/c", www),
        ]
    );
    assert_eq!(
        read(sample!("gcp.log")),
        [row(
            1_795_020_831.25,
            "203.0.113.7",
            "GET",
            "/v1/items",
            www
        )]
    );
    let vhost = shown(&[log("log", sample!("vhost.log"))], auto());
    assert_eq!(vhost[0]["attributes"]["host"], www);
    assert_eq!(vhost[1]["attributes"]["client_host"], "client.example.net");
    assert_eq!(vhost[1]["attributes"].get("ip"), None);
    let access = shown(&[log("log", sample!("tidegate-access.log"))], auto());
    assert_eq!(
        access[0]["attributes"],
        json!({"ip": "203.0.113.7", "method": "GET", "path": "/v1/items", "header.user-agent": "agent"})
    );
    let record = shown(&[log("log", sample!("record.jsonl"))], auto());
    assert_eq!(record[0]["time"], json!(1_795_020_831.25));
    assert_eq!(
        record[0]["attributes"],
        json!({"ip": "203.0.113.7", "path": "/v1/items"})
    );
    assert_eq!(record.len(), 2);
}

#[test]
fn json_and_columns_give_attributes_of_their_names() {
    let json = shown(
        &[log("log", sample!("plain.json"))],
        InputSettings::default(),
    );
    let expected = json!({"ip": "203.0.113.7", "method": "GET", "path": "/v1/items", "host": "www.example.com",
        "user_id": "u1", "size": "17"});
    assert_eq!(json[0]["attributes"], expected);
    assert_eq!(
        json[1]["attributes"],
        json!({"ip": "203.0.113.7", "method": "POST", "path": "/a b"})
    );
    let csv = shown(
        &[log("log", sample!("columns.csv"))],
        InputSettings::default(),
    );
    let expected = json!({"ip": "203.0.113.7", "method": "GET", "path": "/v1/items", "user_id": "u1", "note": "a, \"b\""});
    assert_eq!(csv[0]["attributes"], expected);
    assert_eq!(
        csv[1]["attributes"],
        json!({"ip": "203.0.113.7", "method": "POST", "path": "/a b", "note": "x"})
    );
}

#[test]
fn a_log_format_names_the_fields() {
    let template = |text: &str| Some(LineTemplate::read_text(text).unwrap());
    let input = InputSettings {
        template: template(
            r#"$remote_addr "$request" $msec $request_time "$http_x_forwarded_for" "$http_x_api_key""#,
        ),
        map: FieldMap::read_all(["api_key=$http_x_api_key", "user_id=@ip"]).unwrap(),
        ..InputSettings::default()
    };
    let nginx = shown(&[log("log", sample!("nginx-timed.log"))], input);
    assert_eq!(nginx[0]["time"], json!(1_795_020_830.069));
    assert_eq!(
        nginx[0]["attributes"]["header.x-forwarded-for"],
        "203.0.113.7"
    );
    assert_eq!(nginx[0]["attributes"]["user_id"], "127.0.0.1");
    assert_ne!(
        nginx[0]["attributes"]["api_key"], "k1",
        "secrets are digests"
    );
    assert_eq!(nginx[1]["attributes"].get("api_key"), None, "`-` is absent");
    let input = InputSettings {
        template: template(
            r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %DOWNSTREAM_REMOTE_ADDRESS% %REQ(X-USER)%"#,
        ),
        ..InputSettings::default()
    };
    let line =
        "[2026-11-18T16:53:50.609Z] \"GET /v1/items?page=2 HTTP/1.1\" 203.0.113.7:4711 ada\n";
    let envoy = shown(&[log("log", line)], input);
    let expected =
        json!({"ip": "203.0.113.7", "method": "GET", "path": "/v1/items", "header.x-user": "ada"});
    assert_eq!(envoy[0]["attributes"], expected);
    assert!(LineTemplate::read_text("no variables").is_err());
    assert!(LineTemplate::read_text("$a$b").is_err());
    assert!(
        LineTemplate::read_text("$remote_addr $request")
            .unwrap()
            .check_time()
            .is_err()
    );
}

/// A line of another format, cut at every byte: none of them is read as something else, and none panics.
#[test]
fn malformed_lines_are_counted_and_not_guessed() {
    let rules = "rules: [{id: all, per: [ip], limit: 1/s}]";
    for (format, text) in [
        (FormatName::Alb, sample!("alb.log")),
        (FormatName::Caddy, sample!("caddy.log")),
        (FormatName::Cloudflare, sample!("cloudflare.log")),
        (FormatName::Combined, sample!("nginx-combined.log")),
        (FormatName::Envoy, sample!("envoy.log")),
        (FormatName::EnvoyJson, sample!("envoy-json.log")),
        (FormatName::Gcp, sample!("gcp.log")),
        (FormatName::Haproxy, sample!("haproxy.log")),
        (FormatName::Recording, sample!("record.jsonl")),
        (FormatName::TidegateAccess, sample!("tidegate-access.log")),
        (FormatName::Traefik, sample!("traefik.log")),
        (FormatName::Vhost, sample!("vhost.log")),
        (FormatName::Common, sample!("nginx-combined.log")),
        (FormatName::Json, sample!("plain.json")),
    ] {
        let line = text
            .lines()
            .find(|line| !line.contains("tidegate_record"))
            .unwrap();
        let mut cut: String = (1..line.len().min(40))
            .map(|end| format!("{}\n", &line[..end]))
            .collect();
        cut.push_str(line);
        cut.push_str("\nx\n");
        let input = InputSettings {
            format: Some(format),
            ..InputSettings::default()
        };
        let report = report(&[log("log", cut.as_str())], rules, input);
        let counts = &report["input"];
        assert_eq!(counts["requests"], 1, "{format:?} {counts}");
        assert_eq!(
            counts["malformed"].as_u64().unwrap() + 1,
            counts["lines"].as_u64().unwrap(),
            "{format:?} {counts}"
        );
        assert_eq!(counts["problems"].as_array().unwrap().len(), 10);
    }
}

#[test]
fn malformed_columns_and_lines_of_a_template_are_counted() {
    let rules = "rules: [{id: all, per: [ip], limit: 1/s}]";
    let template = LineTemplate::read_text("$remote_addr [$msec] $request").unwrap();
    let by = |format, template| InputSettings {
        format,
        template,
        ..InputSettings::default()
    };
    let csv = "time,ip,path\n1794770000,10.0.0.1,/a\n1794770000,10.0.0.1\nx,10.0.0.1,/a\n1794770000,\"10\n";
    let tsv = csv.replace(',', "\t");
    let lines = "10.0.0.1 [1794770000.0] GET / HTTP/1.1\n10.0.0.1 1794770000.0 GET /\n10.0.0.1 [x] GET / HTTP/1.1\n[\n";
    for (text, ignored, input) in [
        (csv, 1, by(Some(FormatName::Csv), None)),
        (&tsv, 1, by(Some(FormatName::Tsv), None)),
        (lines, 0, by(None, Some(template))),
    ] {
        let report = report(&[log("log", text)], rules, input);
        let counts = &report["input"];
        assert_eq!(
            (
                &counts["requests"],
                &counts["malformed"],
                &counts["ignored"]
            ),
            (&json!(1), &json!(3), &json!(ignored)),
            "{text}: {counts}"
        );
    }
}

#[test]
fn a_format_is_found_by_lines_whose_time_is_mapped() {
    let rules = "rules: [{id: all, per: [], limit: 1/s}]";
    let input = InputSettings {
        map: FieldMap::read_all(["time=meta.at"]).unwrap(),
        ..InputSettings::default()
    };
    let text = "{\"meta\": {\"at\": 1794770000}, \"ip\": \"10.0.0.1\"}\n".repeat(3);
    let report = report(&[log("log", text)], rules, input);
    assert_eq!(report["input"]["files"][0]["format"], "json");
    assert_eq!(report["input"]["requests"], 3);
}

#[test]
fn compressed_logs_are_recognised_by_their_first_bytes() {
    use std::io::Write as _;
    let text = sample!("nginx-combined.log");
    let mut gzip = Vec::new();
    for part in text.split_inclusive('\n') {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(part.as_bytes()).unwrap();
        gzip.extend(encoder.finish().unwrap());
    }
    let mut zstd = Vec::new();
    for part in text.split_inclusive('\n') {
        zstd.extend(ruzstd::encoding::compress_to_vec(
            part.as_bytes(),
            ruzstd::encoding::CompressionLevel::Fastest,
        ));
        // A frame that is to be skipped.
        zstd.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    }
    let plain = shown(&[log("log", text)], InputSettings::default());
    assert_eq!(plain.len(), 3);
    assert_eq!(shown(&[log("log", gzip)], InputSettings::default()), plain);
    assert_eq!(shown(&[log("log", zstd)], InputSettings::default()), plain);
}
