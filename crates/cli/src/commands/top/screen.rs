//! Takes the terminal, and gives it back: at the end, after an error or a panic, and when a signal ends the process.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use super::draw::draw;
use super::feed::{self, Order, Update};
use super::state::{Reaction, TopState};
use crate::client::ApiClient;

/// How long a key may wait for the screen, and news for a key.
const TICK: Duration = Duration::from_millis(100);
/// How often ages are drawn again when there is no news.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows the state until the user quits.
pub(super) fn show(client: ApiClient, mut state: TopState) -> anyhow::Result<()> {
    state.has_colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    let (sender, updates) = mpsc::channel();
    let order = Order::new(state.wanted.clone());
    stop_on_signal(sender.clone()).context("cannot watch for signals")?;
    let asked = order.clone();
    thread::spawn(move || feed::keep_asking(&client, &asked, &sender));
    // Also sets a panic hook that gives the terminal back.
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let shown = follow(&mut terminal, &mut state, &order, &updates);
    ratatui::restore();
    shown.context("cannot use this terminal any more")
}

fn follow(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    order: &Order,
    updates: &Receiver<Update>,
) -> io::Result<()> {
    let mut drawn_at: Option<Instant> = None;
    loop {
        if drawn_at.is_none_or(|at| at.elapsed() >= REDRAW) {
            terminal.draw(|frame| draw(frame, state))?;
            drawn_at = Some(Instant::now());
        }
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match state.on_key(key) {
                    Reaction::Quit => return Ok(()),
                    Reaction::Ask => order.change(&state.wanted),
                    Reaction::Nothing => {}
                },
                _ => {}
            }
            // After a resize, too.
            drawn_at = None;
        }
        while let Ok(update) = updates.try_recv() {
            if state.update(update) {
                return Ok(());
            }
            drawn_at = None;
        }
    }
}

/// Sends [`Update::Stop`] when a signal asks the process to end, so that the terminal is given back first.
fn stop_on_signal(stop: Sender<Update>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    thread::spawn(move || {
        let waiting = async {
            let mut end = signal(SignalKind::terminate())?;
            let mut hang_up = signal(SignalKind::hangup())?;
            tokio::select! {
                _ = end.recv() => {}
                _ = hang_up.recv() => {}
            }
            io::Result::Ok(())
        };
        if runtime.block_on(waiting).is_ok() {
            // Without a receiver, the screen is gone already.
            let _ = stop.send(Update::Stop);
        }
    });
    Ok(())
}
