//! A `tidegate serve` process: its settings, how it is started again, stopped and killed, and what it says of itself.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tidegate_testkit::{ReservedPort, now};

use crate::exchange::ask;

const PATIENCE: Duration = Duration::from_secs(20);

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// Flags beyond the address and the data directory.
    pub(crate) flags: Vec<String>,
    /// Variables, without any of this process's own but `PATH`.
    pub(crate) variables: Vec<(String, String)>,
    /// A limit of file descriptors.
    pub(crate) descriptors: Option<u32>,
}

/// A server, running or not. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct FleetServer {
    program: PathBuf,
    folder: PathBuf,
    data: PathBuf,
    port: ReservedPort,
    pub(crate) launch: Launch,
    child: Option<Child>,
}

impl FleetServer {
    /// A server in a folder of its own, not started.
    pub(crate) fn new(program: &Path, folder: PathBuf, launch: Launch) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self {
            program: program.to_owned(),
            data: folder.join("data"),
            folder,
            port: ReservedPort::new(),
            launch,
            child: None,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Another data directory than the one in its folder.
    pub(crate) fn set_data(&mut self, data: &Path) {
        data.clone_into(&mut self.data);
    }

    /// A file in its folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts it, without waiting until it answers.
    pub(crate) fn spawn(&mut self) -> anyhow::Result<()> {
        let log = self.folder.join("log");
        let log = File::options().create(true).append(true).open(log)?;
        // The system kills it when the thread of its row ends, whatever happened there.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(count) = self.launch.descriptors {
            let script = format!(r#"ulimit -n {count}; exec "$0" "$@""#);
            command.args(["sh", "-c", &script]);
        }
        command
            .arg(&self.program)
            .args(["serve", "--grpc", "off", "--http"])
            .arg(self.address().to_string())
            .arg("--data-dir")
            .arg(&self.data)
            .args(&self.launch.flags)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(self.launch.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn();
        self.child = Some(child.with_context(|| format!("{}", self.program.display()))?);
        Ok(())
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.spawn()?;
        self.wait_until_it_answers()
    }

    /// Waits until `/healthz` is 200.
    pub(crate) fn wait_until_it_answers(&mut self) -> anyhow::Result<()> {
        let end = now() + PATIENCE;
        while now() < end {
            if matches!(ask(self.address(), "GET /healthz", None, ""), Ok((200, _))) {
                return Ok(());
            }
            ensure!(self.is_alive(), "the server ended: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server does not answer: {}", self.log())
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("it runs")?;
        kill_process(Pid::from_child(child), signal)?;
        Ok(())
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM; waits for its end and returns the exit code.
    pub(crate) fn terminate(&mut self) -> anyhow::Result<Option<i32>> {
        self.signal(Signal::TERM)?;
        let mut child = self.child.take().context("it runs")?;
        Ok(child.wait()?.code())
    }

    /// All that it and its predecessors logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The sum of a metric over its labels; 0 if it is not there.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let (_, page) = ask(self.address(), "GET /metrics", None, "")?;
        let lines = page.lines().filter_map(|line| line.strip_prefix(name));
        let series = lines.filter(|rest| rest.starts_with(['{', ' ']));
        let values = series.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// A call of the API with the token that the server made.
    pub(crate) fn call(&self, call: &str, body: &str) -> anyhow::Result<(u16, String)> {
        let token = fs::read_to_string(self.data.join("admin-token"));
        let token = token.unwrap_or_default();
        ask(self.address(), call, Some(token.trim()), body)
    }

    /// Processor time that it has used, in seconds. Needs no connection.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = self.proc_file("stat")?;
        // The name, in parentheses, may hold spaces; user and system time are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(") ").context("a name in parentheses")?;
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: u32 = ticks.filter_map(|text| text.parse::<u32>().ok()).sum();
        let per_second = u32::try_from(rustix::param::clock_ticks_per_second())?;
        Ok(f64::from(ticks) / f64::from(per_second))
    }

    /// Resident memory, in MiB. Needs no connection.
    pub(crate) fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = self.proc_file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        let kib: u32 = number.context("a line with the memory")?.parse()?;
        Ok(f64::from(kib) / 1_024.0)
    }

    fn proc_file(&self, name: &str) -> anyhow::Result<String> {
        let child = self.child.as_ref().context("it runs")?;
        Ok(fs::read_to_string(format!("/proc/{}/{name}", child.id()))?)
    }
}

impl Drop for FleetServer {
    fn drop(&mut self) {
        self.kill();
    }
}
