//! Progress on stderr while logs are read, and Ctrl-C.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_rehearse::InputProgress;

use crate::output::grouped;

/// How often it is drawn.
const INTERVAL: Duration = Duration::from_millis(100);

/// Progress that is shown until it [ends](Self::end).
pub(in crate::commands) struct ShownProgress {
    began: Instant,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ShownProgress {
    /// Begins to show it, on a terminal unless it is to be quiet. From here on Ctrl-C ends reading.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long reading takes is shown to people"
    )]
    pub(in crate::commands) fn start(
        verb: &'static str,
        progress: &Arc<InputProgress>,
        quiet: bool,
    ) -> Self {
        let began = Instant::now();
        stop_at_interrupt(Arc::clone(progress));
        let is_over = Arc::new(AtomicBool::new(false));
        let is_shown = !quiet && io::stderr().is_terminal();
        let drawing = (Arc::clone(progress), Arc::clone(&is_over));
        let thread = is_shown.then(|| {
            thread::spawn(move || {
                let (progress, is_over) = drawing;
                while !is_over.load(Ordering::Relaxed) {
                    thread::park_timeout(INTERVAL);
                    draw(&line(verb, &progress, began.elapsed()));
                }
                draw("");
            })
        });
        Self {
            began,
            is_over,
            thread,
        }
    }

    /// Removes it. Returns how long it was shown.
    pub(in crate::commands) fn end(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            // A thread that cannot draw has nothing to say.
            let _ = thread.join();
        }
        self.began.elapsed()
    }
}

fn draw(line: &str) {
    let mut stderr = io::stderr().lock();
    // Without a terminal there is nothing to draw on.
    let _ = write!(stderr, "\r\x1b[2K{line}").and_then(|()| stderr.flush());
}

/// `simulating  42 %  610,000 lines/s  0:03 left`; of stdin without the share and the time that is left.
fn line(verb: &str, progress: &InputProgress, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let lines = progress.lines.load(Ordering::Relaxed);
    let rate = grouped(lines.saturating_mul(1_000) / millis);
    let (bytes, size) = (
        progress.bytes.load(Ordering::Relaxed),
        progress.size.load(Ordering::Relaxed),
    );
    if size == 0 {
        return format!("{verb}  {} lines  {rate} lines/s", grouped(lines));
    }
    let bytes = bytes.min(size);
    let percent = u128::from(bytes) * 100 / u128::from(size);
    let left = match bytes {
        0 => String::new(),
        bytes => {
            let left = u128::from(millis) * u128::from(size - bytes) / u128::from(bytes) / 1_000;
            format!("  {}:{:02} left", left / 60, left % 60)
        }
    };
    format!("{verb}  {percent} %  {rate} lines/s{left}")
}

/// Ends reading at the first Ctrl-C, and the program at the second, or if there is nothing to report on yet.
fn stop_at_interrupt(progress: Arc<InputProgress>) {
    let watch = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let Ok(runtime) = runtime else {
            return;
        };
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                let is_second = progress.stop.swap(true, Ordering::Relaxed);
                if is_second || !progress.is_reading.load(Ordering::Relaxed) {
                    std::process::exit(2);
                }
            }
        });
    };
    thread::spawn(watch);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_by_hand() {
        let progress = InputProgress::default();
        progress.lines.store(1_220_000, Ordering::Relaxed);
        progress.bytes.store(42, Ordering::Relaxed);
        let text = line("simulating", &progress, Duration::from_secs(2));
        assert_eq!(text, "simulating  1,220,000 lines  610,000 lines/s");
        progress.size.store(100, Ordering::Relaxed);
        let text = line("simulating", &progress, Duration::from_secs(2));
        assert_eq!(text, "simulating  42 %  610,000 lines/s  0:02 left");
    }
}
