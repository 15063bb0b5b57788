//! What is sent to statsd itself, over TCP and UDP, is what the debug port shows.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tidegate_testkit::{ReservedPort, wait_until};
use tidegate_testkit_server::{PATIENCE, TestFolder};

use super::{DEBUG, RULES, ask, page, routed, start_in};

/// A process of statsd, with the port that it is asked on.
struct Statsd {
    process: Child,
    port: ReservedPort,
    asked: ReservedPort,
}

impl Drop for Statsd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Statsd {
    fn start(folder: &TestFolder) -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = root.join("target/tools/statsd/node_modules/statsd/stats.js");
        assert!(
            program.exists(),
            "statsd is missing: install it with `scripts/install statsd`"
        );
        let (port, packets, asked) = (
            ReservedPort::new(),
            ReservedPort::new(),
            ReservedPort::new(),
        );
        // The reservation itself is a socket for packets.
        let udp = packets.number();
        drop(packets);
        let address = "address: '127.0.0.1'";
        folder.write(
            "statsd.js",
            &format!(
                "{{servers: [{{server: './servers/tcp', {address}, port: {}}}, {{server: './servers/udp', {address}, port: {udp}}}], mgmt_address: '127.0.0.1', mgmt_port: {}, flushInterval: 3600000, backends: ['./backends/console'], title: false}}",
                port.number(),
                asked.number()
            ),
        );
        folder.write("udp", &udp.to_string());
        let process = Command::new("node")
            .arg(program)
            .arg(folder.path("statsd.js"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let statsd = Self {
            process,
            port,
            asked,
        };
        wait_until("statsd listens", PATIENCE, || {
            TcpStream::connect(("127.0.0.1", statsd.asked.number())).ok()
        });
        statsd
    }

    /// What it says to a command, a line for each item.
    fn said(&self, command: &str) -> Vec<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.asked.number())).unwrap();
        writeln!(stream, "{command}").unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.take_while(|line| line != "END").collect()
    }

    /// Its counters, by name.
    fn counters(&self) -> BTreeMap<String, u64> {
        let said = self.said("counters").join(" ");
        let items = said
            .trim_matches(|c| matches!(c, '{' | '}' | ' '))
            .split(',');
        let counter = |item: &str| {
            let (name, count) = item.rsplit_once(':')?;
            let name = name.trim().trim_matches('\'');
            Some((name.to_owned(), count.trim().parse().ok()?))
        };
        items.filter_map(counter).collect()
    }
}

/// A name in the letters that statsd keeps.
fn kept(name: &str) -> String {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || "_-.;=".contains(*c);
    name.replace('/', "-").chars().filter(is_kept).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn statsd_counts_what_the_debug_port_shows() {
    let folder = TestFolder::new();
    let statsd = Statsd::start(&folder);
    let udp = std::fs::read_to_string(folder.path("udp")).unwrap();
    let settings = format!(
        "{DEBUG}statsd:
- {{address: '127.0.0.1:{}', interval: 20ms, tags: {{via: tcp}}}}
- {{address: '127.0.0.1:{udp}', protocol: udp, interval: 20ms, tags: {{via: udp}}}}
",
        statsd.port.number()
    );
    let running = start_in(folder, Some(RULES), &settings);
    ask(
        &running,
        &vec![routed("masked_remote_address=0.0.0.0/0"); 5],
    )
    .await;
    ask(&running, &vec![routed("user=x"); 3]).await;
    let text = page(running.server.debug, "/stats");
    let mut expected = BTreeMap::new();
    for (via, line) in ["tcp", "udp"].into_iter().flat_map(|via| {
        let lines = text.lines().filter(|line| !line.ends_with(": 0"));
        lines.map(move |line| (via, line))
    }) {
        let (name, value) = line.rsplit_once(": ").unwrap();
        if !name.ends_with("response_time") {
            let name = kept(&format!("{name}.__via={via}"));
            expected.insert(name, value.parse::<u64>().unwrap());
        }
    }
    assert!(expected.len() > 10, "{expected:?}");
    let is_same = || {
        let mut counters = statsd.counters();
        counters.retain(|name, _| name.starts_with("ratelimit"));
        (counters == expected).then_some(())
    };
    wait_until("statsd has the counts", PATIENCE, is_same);
    assert_eq!(statsd.counters()["statsd.bad_lines_seen"], 0);
    // Every call has a time.
    let times = || {
        let said = statsd.said("timers").join(" ");
        let (_, times) = said.split_once("ShouldRateLimit.response_time.__via=tcp': [")?;
        let (times, _) = times.split_once(']')?;
        (times.split(',').count() == 8).then_some(())
    };
    wait_until("statsd has the times", PATIENCE, times);
}
